"""Rows as objects: what goes in comes out, and a change touches only what lies near it."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.backup.manifest import LONGEST, MOST, Row, packed, unpacked
from holdfast.errors import DamagedBackupError

Rows = dict[tuple[int, bytes], bytes]
keys = st.tuples(st.integers(0, 3), st.integers(0, 400).map(lambda n: n.to_bytes(3, "big")))
contents = st.tuples(st.integers(0, 255), st.integers(0, 9000)).map(lambda c: bytes([c[0]]) * c[1])


def objects(rows: Rows) -> list[bytes]:
    made = [Row(table, key, content) for (table, key), content in sorted(rows.items())]
    found = list(packed(made))
    back = [row for data, _ in found for row in unpacked(data, "object")]
    assert back == made
    assert sum(count for _, count in found) == len(made)
    assert all(len(data) <= MOST for data, _ in found)
    return [data for data, _ in found]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(keys, contents, max_size=120), st.dictionaries(keys, contents, max_size=3))
def test_a_change_makes_few_new_objects(rows: Rows, changes: Rows) -> None:
    before = {hashlib.sha256(data).digest() for data in objects(rows)}
    after = {hashlib.sha256(data).digest() for data in objects(rows | changes)}
    # Each changed row is in one object, and may make two of one, or one of two.
    if max(map(len, objects(rows | changes)), default=0) < LONGEST:
        assert len(after - before) <= 2 * len(changes)


@given(st.binary(max_size=200))
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with suppress(DamagedBackupError):
        rows = list(unpacked(data, "object"))
        assert sum(6 + len(row.key) + len(row.content) for row in rows) == len(data)


def test_an_object_that_ends_too_early_is_refused() -> None:
    ((data, _),) = packed([Row(0, b"key", b"content")])
    assert list(unpacked(data, "object")) == [Row(0, b"key", b"content")]
    for end in range(1, len(data)):
        with pytest.raises(DamagedBackupError):
            list(unpacked(data[:end], "object"))
