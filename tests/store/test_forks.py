"""Timelines: forks, adopting them, and leading entries through a function."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import Place, put_row

from holdfast import sync
from holdfast.errors import (
    Conflict,
    InvalidInputError,
    ScopeNotFoundError,
    TimelineNotFoundError,
    Unavailable,
)
from holdfast.store.names import rowkinds

LONG = [{"n": n, "text": "x" * 50} for n in range(300)]


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    return store.agent("1")


@pytest.mark.spec("K43", "K44")
def test_forks_are_apart(place: Place) -> None:
    main = place.open().agent("1")
    main.set("k", 1)
    main.append("l", 1)
    safe = main.checkpoint("safe")
    main.set("k", 2)
    trial = main.fork("what-if", at=safe)
    assert (trial.timeline, trial.scope) == ("what-if", main.scope)
    assert trial.items() == [("k", 1), ("l", [1])]
    trial.set("k", 10)
    trial.append("l", 10)
    main.append("l", 2)
    inner = trial.fork("inner")
    inner.delete("k")
    now = main.fork("now")
    expected = {
        "main": [("k", 2), ("l", [1, 2])],
        "what-if": [("k", 10), ("l", [1, 10])],
        "inner": [("l", [1, 10])],
        "now": [("k", 2), ("l", [1, 2])],
    }
    assert now.items() == expected["now"]
    for again in (place.open, place.reopen):
        seen = again().agent("1")
        assert {name: seen.on(name).items() for name in expected} == expected
        lines = {line.name: line for line in seen.timelines()}
        assert set(lines) == set(expected)
        assert (lines["main"].parent, lines["main"].head) == (None, 5)
        assert (lines["what-if"].parent, lines["what-if"].start) == ("main", 3)
        assert (lines["inner"].parent, lines["inner"].start) == ("what-if", 3)
        assert seen.at("what-if@2").get("k") == 10
        assert seen.on("what-if").at("main@1").items() == [("k", 1)]
        assert seen.diff(seen.on("what-if"), seen).keys == ["k", "l"]
    assert place.open().verify().findings == []


def test_names_of_timelines(state: sync.State) -> None:
    state.set("k", 1)
    state.fork("a")
    for taken in ("a", "main"):
        with pytest.raises(Conflict, match=taken):
            state.fork(taken)
    for bad in ("", "x" * 129, "a@b", 7, "\ud800"):
        with pytest.raises(InvalidInputError):
            state.fork(bad)  # type: ignore[arg-type]
    for call in (
        lambda: state.on("nobody").get("k"),
        lambda: state.on("nobody").set("k", 1),
        lambda: state.on("nobody").log(),
        lambda: state.adopt("nobody"),
    ):
        with pytest.raises(TimelineNotFoundError, match="nobody"):
            call()
    assert [line.name for line in state.timelines()] == ["main", "a"]


def test_a_fork_of_nothing(store: sync.Store) -> None:
    with pytest.raises(ScopeNotFoundError):
        store.agent("1").fork("a")
    assert store.scopes().items == []
    assert store.agent("1").timelines() == []


def test_adopt(place: Place) -> None:
    main = place.open().agent("1")
    main.set("k", 1)
    trial = main.fork("trial")
    trial.set("k", 2)
    trial.append("l", LONG)
    main.set("other", 3)
    before = main.items()
    result = main.adopt("trial")
    assert main.items() == trial.items() == [("k", 2), ("l", [LONG])]
    assert main.root() == trial.root()
    assert main.log()[0].cause.reason == "adopted trial"
    trial.set("k", 99)
    main.append("l", "mine")
    assert (main.get("k"), main.length("l"), trial.length("l")) == (2, 2, 1)
    assert result.backup is not None
    fresh = place.reopen().agent("1")
    assert fresh.get("l") == [LONG, "mine"]
    fresh.restore(result.backup)
    assert fresh.items() == before
    fresh.adopt(fresh.on("trial"))
    assert fresh.get("k") == 99
    assert place.open().verify().findings == []


def test_checkpoints_belong_to_their_timeline(state: sync.State) -> None:
    state.set("k", 1)
    state.checkpoint("main's")
    trial = state.fork("trial")
    made = trial.checkpoint("trial's")
    assert [c.name for c in state.checkpoints()] == ["main's"]
    assert trial.checkpoints() == [made]
    assert made.id == "trial@2"
    state.restore(made)
    state.restore("trial@2")


# ---- replay --------------------------------------------------------------------------------


@pytest.mark.spec("M54")
def test_replay(place: Place) -> None:
    state = place.open().agent("1")
    for number in range(5):
        state.set(f"k{number % 2}", number)
    state.checkpoint("c")

    def count(so_far: dict[str, int], entry: Any) -> dict[str, int]:
        for key in entry.keys:
            so_far[key] = so_far.get(key, 0) + 1
        return so_far

    assert state.replay(count, {}) == {"k0": 3, "k1": 2}
    assert state.replay(count, {}, since=4, until=5) == {"k1": 1, "k0": 1}
    assert state.replay(lambda seen, entry: [*seen, entry.sequence], []) == [1, 2, 3, 4, 5, 6]
    assert place.open().agent("nobody").replay(count, "start") == "start"


def test_the_log_of_a_key_begins_with_the_fork_that_brought_it(state: sync.State) -> None:
    state.set("k", 1)
    trial = state.fork("trial")
    item = trial.item("k")
    assert item is not None
    assert [(e.sequence, e.kinds) for e in trial.log(key="k")] == [(item.version, ("fork",))]
    assert trial.log(key="other") == []
    trial.set("k", 2)
    trial.set("other", 1)
    assert [e.kinds for e in trial.log(key="k")] == [("set",), ("fork",)]
    assert [e.kinds for e in trial.log(key="other")] == [("set",)]


def test_a_row_in_the_way_of_a_fork_is_named_by_verify(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    state.set("k", 1)
    number = state._handle.history.points.line().ledger.number
    place_of_it = rowkinds.entry(rowkinds.line(b"E", number, 1), 1)
    put_row(place.storage(), place_of_it, b"stray")
    with pytest.raises(Unavailable, match="run verify"):
        state.fork("trial")
    assert [one.row for one in store.verify().findings] == [place_of_it.hex()]
    assert [line.name for line in state.timelines()] == ["main"]
    put_row(place.storage(), place_of_it, None)
    assert state.fork("trial").get("k") == 1


def test_a_fork_of_what_a_pruning_announced_keeps_nobody_from_reading(place: Place) -> None:
    """The entry that it begins from stays, and the next pruning leaves nothing before it."""
    state = place.open().agent("a")
    for number in range(2):
        state.set(f"first/{number}", number)  # these entries stay whole, for their values do
    state.prune(state._handle.place()[2])
    state.fork("f")
    for number in range(20):
        state.set("k", number)
    state.prune(state._handle.place()[2] - 5)
    again = place.reopen().agent("a")
    assert again.get("k") == 19
    again.set("k", 20)
    assert again.on("f").items() == [("first/0", 0), ("first/1", 1)]


@pytest.mark.parametrize("name", ["a\nb", "a\0", "\x7f", "a\tb"])
def test_control_characters_are_in_no_new_name(
    state: sync.State, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    state.set("k", 1)
    with pytest.raises(InvalidInputError, match=r"control character U\+00"):
        state.fork(name)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.store.history.checkpoint.check_new_timeline", lambda name: None)
        state.fork(name).set("k", 2)
    assert state.on(name).get("k") == 2, "what is there can be read"
    assert {one.name for one in state.timelines()} == {"main", name}
