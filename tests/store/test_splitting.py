"""Items of a list that is set again are recognised by content, and only where that is safe."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidValueError, LimitExceededError
from holdfast.seal.codec import Codec, ValueLimits
from holdfast.seal.registry import Registry
from holdfast.store.tree import split
from holdfast.store.tree.split import Branch, Splitter

CODEC = Codec(Registry())


def remembered(value: Any, codec: Codec = CODEC) -> tuple[Splitter, Branch]:
    splitter = Splitter(codec, lambda data: hashlib.sha256(data).digest(), bytes(32))
    known = split.remembered(splitter.split(value))
    assert known is not None
    assert known[1] > 0
    return splitter, known[0]


def rows(**more: Any) -> list[Any]:
    return [{"n": n, "text": "zażółć gęślą jaźń" * 5, **deepcopy(more)} for n in range(100)]


def parts_of(part: Any) -> list[Any]:
    assert type(part) is Branch
    return part.parts


def listed(part: Any, nested: bool) -> list[Any]:
    return parts_of(parts_of(parts_of(part)[0])[0] if nested else part)


@pytest.mark.parametrize("nested", [False, True])
def test_an_item_changed_in_place_is_found(nested: bool) -> None:
    value = rows(tags=["a"])
    whole = {"more": {"rows": value}} if nested else value
    splitter, before = remembered(whole)
    value[50]["tags"].append("b")
    value[60]["n"] = 60.0  # equal, but not the same
    again = listed(splitter.split(whole, before), nested)
    known = set(map(id, listed(before, nested)))
    assert [n for n, part in enumerate(again) if id(part) not in known] == [50, 60]
    fresh = listed(splitter.split(whole), nested)
    assert [part.ref for part in again] == [part.ref for part in fresh]
    assert [part.data(CODEC) for part in again] == [part.data(CODEC) for part in fresh]


def test_what_cannot_help_is_not_kept() -> None:
    splitter = Splitter(CODEC, lambda data: hashlib.sha256(data).digest(), bytes(32))
    assert split.remembered(splitter.split({"a": "text" * 9000, "b": list(range(9))})) is None
    whole = {"long": b"x" * 100_000, "rows": rows(), "few": [1, 2], "more": {"text": "y" * 9000}}
    _, known = remembered(whole)
    assert known.keys == ["rows"]
    _, known = remembered([*rows(), *rows(raw=b"x" * 900)])
    assert all(part.encoded is None or not part.encoded for part in known.parts)


def test_bytes_are_not_taken_for_what_is_like_them() -> None:
    value = [*rows(), *rows(raw=[{"b": b"x"}])]
    splitter, before = remembered(value)
    again = parts_of(splitter.split(value, before))
    assert [one is two for one, two in zip(again, before.parts, strict=True)] == (
        [True] * 100 + [False] * 100
    )
    with pytest.raises(InvalidValueError) as caught:
        splitter.split([*rows(), *rows(raw=[{"b": bytearray(b"x")}])], before)
    assert caught.value.path == "$[100].raw[0].b"


TEXTS = st.lists(st.integers(0, 40), min_size=16, max_size=150)


@given(TEXTS, TEXTS)
def test_what_is_said_to_differ_gives_the_new_list(old: list[int], new: list[int]) -> None:
    """Also where items stand twice, have moved, or cannot be recognised at all."""

    def value(numbers: list[int]) -> list[Any]:
        long = "long " * 20
        return [[long, datetime.fromtimestamp(n, UTC) if n > 38 else n] for n in numbers]

    splitter, before = remembered(value(old))
    again = splitter.split(value(new), before)
    fresh = parts_of(splitter.split(value(new)))
    assert [part.ref for part in parts_of(again)] == [part.ref for part in fresh]
    if again.spans is not None:
        patched, done = [], 0
        for low, high, first, last in again.spans:
            patched += before.parts[done:low] + again.parts[first:last]
            done = high
        patched += before.parts[done:]
        assert [part.ref for part in patched] == [part.ref for part in fresh]


LIMITED = Codec(Registry(), ValueLimits(depth=5, items=1000))


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


def beyond(rows: list[Any]) -> dict[str, list[Any]]:
    """Lists beyond a limit that are not so without what the one before does not count."""
    return {
        "more items": [*rows, *({"n": -n, "a": 1, "b": 2, "c": 3} for n in range(150))],
        "an item again and again": rows[:20] * 20,
        "one with many items": [*rows, {"n": -1, "many": [1] * 600}],
        "a level more": [*rows, {"n": -1, "deep": deep(4)}],
        "no list any more": [{"rows": rows, "n": 1, "more": rows}],
    }


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("case", beyond([]))
def test_limits_are_kept_whatever_was_set_before(case: str, nested: bool) -> None:
    rows = [{"n": n, "text": "some words " * 9, "a": 1, "b": 2} for n in range(100)]

    def whole(rows: Any) -> Any:
        return {"more": rows} if nested else rows

    splitter, known = remembered(whole(rows), LIMITED)
    value = whole(beyond(rows)[case])
    with pytest.raises(LimitExceededError) as refused:
        splitter.split(value, known)
    with pytest.raises(LimitExceededError) as at_once:
        splitter.split(value)
    assert str(refused.value) == str(at_once.value)


def test_what_is_gone_counts_no_longer() -> None:
    """A window that slides for long: more items went through it than one value may have."""
    rows = [{"n": n, "text": "some words " * 9} for n in range(200)]
    splitter, known = remembered(rows, LIMITED)
    helped = 0
    for n in range(200, 800, 10):
        rows = [*rows[10:], *({"n": n + i, "text": "some words " * 9} for i in range(10))]
        part = splitter.split(rows, known)
        fresh = splitter.split(rows)
        assert [one.ref for one in parts_of(part)] == [one.ref for one in parts_of(fresh)]
        assert type(part) is Branch
        helped += part.before is not None
        found = split.remembered(part)
        assert found is not None
        known = found[0]
    assert helped > 50
