"""Merging timelines that have values which are too long to be read whole."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import Place

from holdfast import MergeConflict, ValueLimits, sync
from holdfast.errors import LimitExceededError, MergeConflictError, PrunedError
from holdfast.store.names.items import LongValue

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


def test_what_one_side_changed_is_taken_over(place: Place, state: sync.State) -> None:
    trial = state.fork("trial")
    trial.set("plan", 1)
    assert state.merge(trial).keys == ["plan"], "what nobody changed is in nobody's way"
    write(trial, b"b")
    write(trial, b"n", "new")
    trial.expire("new", 3600)
    write(state, b"o", "ours")
    size = sum(len(row) for _, row in place.storage().scan(b"V", b"W", limit=10_000))
    told = state.merge(trial, dry_run=True)
    assert (told.keys, told.conflicts) == (["film", "new"], [])
    assert "<3145728 bytes" in str(told.diff)
    assert state.merge(trial).keys == ["film", "new"]
    assert [letter(state, key) for key in ("film", "new", "ours")] == [b"b", b"n", b"o"]
    assert state.read_range("film", 0, 2) == b"bb"
    grown = sum(len(row) for _, row in place.storage().scan(b"V", b"W", limit=10_000)) - size
    assert grown < LONG // 10, "a letter that repeats is stored once"
    again = place.reopen(limits=LIMITS)
    film = again.agent("a")
    assert (letter(film), letter(film, "new")) == (b"b", b"n")
    assert film._handle.reader.now().slot("new").meta  # type: ignore[union-attr]
    assert letter(film.fork("past", at=1)) == b"a"
    assert again.verify().findings == []


def test_what_both_changed_is_a_conflict_like_any_other(place: Place, state: sync.State) -> None:
    trials = {name: state.fork(name) for name in ("theirs", "ours", "both", "newest", "chosen")}
    write(state, b"m")
    for name, trial in trials.items():
        write(trial, name[0].encode())
    with pytest.raises(MergeConflictError) as found:
        state.merge(trials["theirs"])
    (conflict,) = found.value.conflicts
    assert [type(one) for one in (conflict.base, conflict.ours, conflict.theirs)] == [LongValue] * 3
    assert letter(state) == b"m"
    state.merge(trials["ours"], strategy="ours")
    assert letter(state) == b"m"
    state.merge(trials["both"], strategy="both")
    assert (letter(state), letter(state, "film~theirs")) == (b"m", b"b")
    state.merge(trials["newest"], strategy="newest")
    assert letter(state) == b"n"

    def choose(conflict: MergeConflict) -> Any:
        return conflict.theirs

    state.merge(trials["chosen"], strategy=choose)
    assert letter(state) == b"c"
    state.merge(trials["theirs"], strategy="theirs")
    assert letter(place.reopen(limits=LIMITS).agent("a")) == b"t"
    assert place.open().verify().findings == []


def test_a_long_value_against_a_short_one_or_none(place: Place, state: sync.State) -> None:
    one, two = state.fork("one"), state.fork("two")
    one.set("film", "cut")
    two.delete("film")
    write(state, b"m")
    for trial in (one, two):
        with pytest.raises(MergeConflictError):
            state.merge(trial)
        state.merge(trial, strategy="ours")
        assert letter(state) == b"m"
    one.set("film", "cut again")
    state.merge(one, strategy="theirs")
    assert state.get("film") == "cut again"
    assert place.open().verify().findings == []


def test_pruning_spares_what_was_taken_over(place: Place, state: sync.State) -> None:
    trial = state.fork("trial")
    write(trial, b"b")
    state.merge(trial)
    trial.set("film", "gone here")
    trial.set("more", 1)
    trial.prune(trial._handle.place()[2], keep=())
    state.set("more", 2)
    state.prune(state._handle.place()[2], keep=())
    assert letter(state) == b"b"
    assert place.open().verify().findings == []
    with pytest.raises(PrunedError):
        state.merge("trial@3")


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
