"""Values as JSON: nothing is lost, and nothing is guessed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import InvalidValueError
from holdfast.seal.codec import Typed
from holdfast.store.tree.difference import same
from holdfast.store.tree.json_values import SAFE, dumps, loads

ZONES = st.one_of(
    st.just(UTC),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kathmandu"]).map(ZoneInfo),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), st.text()),
)
TEXT = st.text(st.characters())  # lone surrogates too
KEYS = st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(1 << 63), (1 << 64) - 1)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 200), 1 << 200),
    st.floats(),
    TEXT,
    st.binary(),
    st.datetimes(timezones=ZONES),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(KEYS | st.sampled_from(["$bytes", "$map", "$", "a"]), inner, max_size=4),
        st.builds(Typed, st.sampled_from(["Plan", "Step"]), st.integers(1, 9), inner),
    ),
    max_leaves=12,
)


def exact(value: Any) -> Any:
    """What `same` leaves out: zone and fold of datetimes, the fields of objects."""
    if isinstance(value, dict):
        return [(key, exact(part)) for key, part in value.items()]
    if isinstance(value, list):
        return [exact(part) for part in value]
    if isinstance(value, datetime):
        return value.isoformat(), value.fold, repr(value.tzinfo)
    if isinstance(value, Typed):
        return value.name, value.version, exact(value.value)
    return type(value), value.hex() if isinstance(value, float) else value


@given(VALUES, st.sampled_from([None, 2]))
@example(-0.0, None)
@example(1e16, None)
@example({"$bytes": "x"}, None)
@example({1: "a", "1": "b"}, 2)
@example("\ud83d\ude00", None)
@example(10**5000, None)
@example(-(10**5000), None)
@example(datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), None)
def test_round_trip(value: Any, indent: int | None) -> None:
    text = dumps(value, indent=indent)
    text.encode()  # valid Unicode, whatever the value holds
    json.loads(text)  # valid JSON for everyone
    back = loads(text)
    assert exact(back) == exact(value)


@given(st.integers())
def test_numbers_that_others_would_round_are_tagged(number: int) -> None:
    assert isinstance(json.loads(dumps(number)), int) == (abs(number) <= SAFE)


def test_forms() -> None:
    assert dumps(b"hi") == '{"$bytes": "aGk="}'
    assert dumps(float("nan")) == '{"$float": "nan"}'
    assert dumps(2**64) == '{"$int": "18446744073709551616"}'
    assert dumps(datetime(2026, 11, 15, tzinfo=UTC)) == '{"$time": "2026-11-15T00:00:00+00:00"}'
    assert dumps({"$a": 1}) == '{"$map": [["$a", 1]]}'
    assert dumps({"$a": 1, "b": 2}) == '{"$a": 1, "b": 2}'


def test_nothing_in_it_reaches_the_terminal() -> None:
    text = dumps({"\x1b[31m": "\x9b2J\x7f\u202e"})
    assert text.isprintable()
    assert same(loads(text), {"\x1b[31m": "\x9b2J\x7f\u202e"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "{",
        "NaN",
        "[Infinity]",
        "1e999",
        '{"a": 1, "a": 2}',
        '{"$unknown": 1}',
        '{"$bytes": "?"}',
        '{"$bytes": 7}',
        '{"$float": "1.5"}',
        '{"$int": "1_000"}',
        '{"$int": 5}',
        '{"$time": "2026-11-15T10:00:00"}',
        '{"$time": "yesterday"}',
        '{"$time": {"at": "2026-11-15T10:00:00+05:00", "zone": "Europe/Berlin"}}',
        '{"$time": {"at": "2026-11-15T10:00:00+01:00", "zone": "Nowhere/None"}}',
        '{"$time": {"at": "2026-11-15T10:00:00+01:00", "more": 1}}',
        '{"$map": {"a": 1}}',
        '{"$map": ["ab"]}',
        '{"$map": [["a", 1], ["a", 2]]}',
        '{"$map": [[1.5, 1]]}',
        '{"$map": [[[], 1]]}',
        '{"$object": {"name": "A"}}',
        '{"$object": {"name": 1, "version": 1, "fields": 1}}',
        '{"$object": {"name": "", "version": 1, "fields": 1}}',
        "9" * 5000,
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_what_is_not_clear_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        loads(text)
    assert "yesterday" not in str(caught.value)
