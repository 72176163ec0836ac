"""Merging timelines that have values which are too long to be read whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from store_kit import Hands, Place

from holdfast import DELETED, LongValue, Lookup, ValueLimits, sync
from holdfast.errors import GateRefusedError, LimitExceededError, MergeConflictError
from holdfast.store.gates import Gate, Request

LIMITS = ValueLimits(size=1 << 20)
SIZE = 3 << 20


def write(state: sync.State, key: str, letter: bytes, size: int = SIZE) -> None:
    with state.open_write(key) as file:
        file.write(letter * size)


def letter(state: sync.State, key: str) -> bytes:
    with state.open_read(key) as file:
        assert file.size > LIMITS.size
        found = set(file.read(10) + (file.seek(-10, 2) and file.read(10)))
    assert len(found) == 1
    return bytes(found)


@pytest.fixture
def sides(place: Place, hands: Hands) -> tuple[sync.State, sync.State]:
    state = place.open(limits=LIMITS, clock=hands.clock).agent("a")
    write(state, "film", b"a")
    state.set("plan", 1)
    return state, state.fork("trial")


def test_what_only_theirs_changed_is_taken_over(
    place: Place, sides: tuple[sync.State, sync.State], hands: Hands
) -> None:
    state, trial = sides
    write(trial, "film", b"b")
    write(trial, "new", b"n")
    trial.expire("new", timedelta(days=1))
    trial.set("plan", "x" * 5000)
    state.declare(Lookup("by", "", "status"))
    dry = state.merge(trial, dry_run=True)
    assert [type(one.after) for one in dry.diff.changes if one.key != "plan"] == [LongValue] * 2
    done = state.merge(trial)
    assert done.keys == ["film", "new", "plan"]
    assert (letter(state, "film"), letter(state, "new")) == (b"b", b"n")
    write(trial, "film", b"c")
    assert letter(state, "film") == b"b"
    state.checkpoint("merged")
    assert place.open(limits=LIMITS).verify().findings == []
    again = place.open(limits=LIMITS, clock=hands.clock).agent("a")
    assert (letter(again, "film"), letter(again, "new")) == (b"b", b"n")
    assert again.at("merged").get("plan") == "x" * 5000
    state.merge(trial)
    assert letter(state, "film") == b"c"
    hands.move(2 * 24 * 3600)
    assert state.keys() == ["film", "plan"], "when it expires came with it"


def test_what_both_changed_is_a_conflict(
    place: Place, sides: tuple[sync.State, sync.State]
) -> None:
    state, trial = sides
    write(trial, "film", b"b")
    write(state, "film", b"c")
    with pytest.raises(MergeConflictError) as caught:
        state.merge(trial)
    (conflict,) = caught.value.conflicts
    assert [type(one) for one in (conflict.base, conflict.ours, conflict.theirs)] == [LongValue] * 3
    assert state.merge(trial, strategy="both").keys == ["film~theirs"]
    assert (letter(state, "film"), letter(state, "film~theirs")) == (b"c", b"b")
    write(trial, "film", b"d")
    write(state, "film", b"e")
    state.merge(trial, strategy=lambda one: one.theirs)
    assert letter(state, "film") == b"d"
    trial.delete("film")
    state.merge(trial)
    assert not state.exists("film")
    write(trial, "film", b"f")
    (added,) = state.merge(trial, dry_run=True).diff.changes
    assert added.before is DELETED or added.kind == "added"
    assert place.open(limits=LIMITS).verify().findings == []


def test_a_gate_sees_it_as_a_long_value(sides: tuple[sync.State, sync.State]) -> None:
    state, trial = sides
    write(trial, "film", b"b")

    class No(Gate):
        def before(self, request: Request) -> Any:
            for one in request.operations:
                if one.kind == "set" and type(one.value) is LongValue:
                    raise GateRefusedError(f"{one.value.size} bytes are too many")

    state._handle.core.gates.add(No())
    with pytest.raises(GateRefusedError, match=f"{SIZE} bytes"):
        state.merge(trial)
    assert letter(state, "film") == b"a"


def test_what_was_set_whole_under_other_limits_is_refused_by_name(place: Place) -> None:
    state = place.open().agent("a")
    state.set("film", b"a")
    state.fork("trial").set("film", bytes(2000) * 1000)
    small = place.open(limits=LIMITS).agent("a")
    with pytest.raises(LimitExceededError, match=r"'film' is too long.*`adopt`"):
        small.merge("trial")
    assert small.get("film") == b"a"
    small.adopt("trial")
    assert small.read_range("film", 0, 4) == bytes(4)
