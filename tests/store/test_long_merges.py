"""Merging timelines that have values which are too long to be read whole."""

from __future__ import annotations

import pytest
from store_kit import Place

from holdfast import ValueLimits, sync
from holdfast.errors import LimitExceededError

LIMITS = ValueLimits(size=1 << 20)


def write(state: sync.State, letter: bytes) -> None:
    with state.open_write("film") as file:
        file.write(letter * (3 << 20))


def test_a_value_that_is_too_long_is_refused_by_name(place: Place) -> None:
    store = place.open(limits=LIMITS)
    state = store.agent("a")
    write(state, b"a")
    trial = state.fork("trial")
    trial.set("plan", 1)
    assert state.merge(trial).keys == ["plan"], "what nobody changed is in nobody's way"
    write(trial, b"b")
    trial.set("plan", 2)
    with pytest.raises(LimitExceededError, match=r"'film' is too long.*`adopt`"):
        state.merge(trial)
    assert (state.get("plan"), state.read_range("film", 0, 2)) == (1, b"aa")
    state.adopt(trial)
    assert (state.get("plan"), state.read_range("film", 0, 2)) == (2, b"bb")
    assert store.verify().findings == []
