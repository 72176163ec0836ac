"""Merging timelines that have values which are too long to be read whole."""

from __future__ import annotations

import pytest
from store_kit import Place

from holdfast import ValueLimits, sync
from holdfast.errors import LimitExceededError

LIMITS = ValueLimits(size=1 << 20)
LONG = 3 << 20


def write(state: sync.State, letter: bytes, key: str = "film") -> None:
    with state.open_write(key) as file:
        file.write(letter * LONG)


def letter(state: sync.View, key: str = "film") -> bytes:
    """What a long value begins and ends with, and how long it is."""
    with state.open_read(key) as file:
        first = file.read(1)
        file.seek(-1, 2)
        assert file.tell() == LONG - 1
        assert file.read() == first
    return first


@pytest.fixture
def state(place: Place) -> sync.State:
    state = place.open(limits=LIMITS).agent("a")
    write(state, b"a")
    return state


@pytest.mark.parametrize("ours", [False, True])
def test_what_is_too_long_to_be_read_is_refused_by_name(
    place: Place, state: sync.State, ours: bool
) -> None:
    trial = state.fork("trial")
    trial.set("plan", 1)
    assert state.merge(trial).keys == ["plan"], "what nobody changed is in nobody's way"
    write(trial, b"b")
    if ours:
        state.set("film", "cut")
    with pytest.raises(LimitExceededError, match=r"'film' is too long.*`adopt`"):
        state.merge(trial)
    state.adopt(trial)
    assert letter(state) == b"b"
    assert place.open().verify().findings == []


def test_what_is_too_long_and_not_bytes_is_refused_by_name(place: Place) -> None:
    state = place.open().agent("a")
    state.set("list", [0])
    trial = state.fork("trial")
    trial.set("list", ["x" * 1000] * 2000)
    short = place.open(limits=LIMITS).agent("a")
    with pytest.raises(LimitExceededError, match="`adopt`"):
        short.merge("trial")
    assert short.get("list") == [0]
    short.adopt("trial")
    assert short.length("list") == 2000
