"""The encoding of terms: types apart, order kept, every term told from what follows."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidInputError
from holdfast.store.rules.lookup import (
    LONG,
    begins_bounds,
    encode_term,
    equal_bounds,
    range_bounds,
    split_terms,
)

_MISSING: Any = object()
_zones = st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(1) / 2)]
)
LARGEST = 16**LONG - 1
"""The largest number that is kept whole, and can be a bound."""
texts = st.text(
    st.characters() | st.sampled_from("\0\xfe\xff\x7f\ud7ff\ud800\udfff\ue000\U0010ffff")
)
kinds: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers()
    | st.integers(-(16**700), 16**700)
    | st.integers(LARGEST - 2, LARGEST + 2)
    | st.sampled_from([0, -1, 255, 256, -256]),
    float: st.floats(allow_nan=False),
    datetime: st.datetimes(timezones=_zones),
    str: texts | st.builds(lambda text, n: text + "x" * n, texts, st.integers(LONG - 2, LONG + 2)),
    bytes: st.binary() | st.binary(min_size=LONG - 1, max_size=LONG + 1),
}
pairs = st.sampled_from(sorted(kinds, key=str)).flatmap(
    lambda kind: st.tuples(kinds[kind], kinds[kind])
)
anything = st.one_of(st.none(), st.just(math.nan), *kinds.values())


def text_of(term: Any) -> str:
    text = encode_term(term)
    assert text is not None
    return text


def cut(term: Any) -> Any:
    """What the order is decided by."""
    if isinstance(term, str | bytes):
        return term[:LONG]
    if type(term) is int:
        digits = f"{abs(term):x}"
        kept = int(digits[:LONG], 16) << (4 * max(0, len(digits) - LONG))
        return kept if term >= 0 else -kept
    return term


@given(pairs)
@settings(max_examples=600, deadline=None)
def test_order_and_equality_are_those_of_the_terms(pair: tuple[Any, Any]) -> None:
    a, b = pair
    assert (text_of(a) == text_of(b)) == (a == b)
    if cut(a) != cut(b):
        assert (text_of(a) < text_of(b)) == (a < b)


@given(st.lists(anything, min_size=1, max_size=5), st.text())
@settings(max_examples=300, deadline=None)
def test_terms_in_a_row_are_told_apart(row: list[Any], key: str) -> None:
    found = [text_of(term) for term in row]
    assert split_terms("".join(found) + "/" + key, len(row)) == found
    for text in found:
        text.encode()  # it can be stored


@given(pairs)
@settings(max_examples=400, deadline=None)
def test_bounds_hold_what_they_say(pair: tuple[Any, Any]) -> None:
    a, bound = pair
    if isinstance(bound, str | bytes):
        bound = bound[:LONG]
    if type(bound) is int:
        bound = max(-LARGEST, min(bound, LARGEST))
    name = text_of(a) + "/key"
    for side, expected in (
        ("gt", a > bound),
        ("ge", a >= bound),
        ("lt", a < bound),
        ("le", a <= bound),
    ):
        sides = dict.fromkeys(("gt", "ge", "lt", "le"), _MISSING) | {side: bound}
        low, high = range_bounds(**sides, missing=_MISSING)
        assert (low <= name < high) == expected, side
    low, high = equal_bounds(pair[1])
    assert (low <= name < high) == (a == pair[1])
    if isinstance(a, str | bytes):
        low, high = begins_bounds(bound)
        assert (low <= name < high) == a.startswith(bound)


def test_types_are_never_confused() -> None:
    terms = [
        None,
        False,
        True,
        0,
        1,
        0.0,
        1.0,
        "",
        "1",
        "True",
        b"",
        b"1",
        datetime(1970, 1, 1, tzinfo=UTC),
    ]
    assert len({text_of(term) for term in terms}) == len(terms)
    assert text_of(0.0) == text_of(-0.0)
    assert text_of(math.nan) == text_of(-math.nan)
    low, high = range_bounds(_MISSING, 0.0, _MISSING, _MISSING, _MISSING)
    assert low <= text_of(math.inf) < high
    assert not low <= text_of(math.nan) < high
    assert not low <= text_of(5) < high


def test_equal_instants_are_equal() -> None:
    noon = datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert text_of(noon) == text_of(noon.astimezone(timezone(timedelta(hours=3))))


@pytest.mark.parametrize("term", [[], {}, object(), datetime(2026, 1, 1), 1j])  # noqa: DTZ001
def test_what_is_no_term_is_refused(term: Any) -> None:
    assert encode_term(term) is None
    with pytest.raises(InvalidInputError):
        equal_bounds(term)


@pytest.mark.parametrize(
    "sides",
    [{}, {"gt": 1, "ge": 1}, {"lt": 1, "le": 1}, {"gt": 1, "lt": "a"}, {"ge": None},
     {"ge": math.nan}, {"le": "x" * (LONG + 1)}, {"gt": LARGEST + 1}, {"lt": -LARGEST - 1},
     {"ge": 1, "lt": 2.0}, {"ge": False, "lt": 1}],
)  # fmt: skip
def test_bounds_that_cannot_be_meant_are_refused(sides: dict[str, Any]) -> None:
    every = dict.fromkeys(("gt", "ge", "lt", "le"), _MISSING) | sides
    with pytest.raises(InvalidInputError):
        range_bounds(**every, missing=_MISSING)
    with pytest.raises(InvalidInputError):
        begins_bounds("x" * (LONG + 1))
