"""The past: checkpoints, restore, views."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Clock, sync
from holdfast.errors import (
    CheckpointNotFoundError,
    Conflict,
    InvalidInputError,
    PointNotFoundError,
    ScopeNotFoundError,
    StateIntegrityError,
    TimelineNotFoundError,
)
from holdfast.store.names.items import TYPES

LONG = [{"n": n, "text": "x" * 50} for n in range(300)]


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    return store.agent("1")


# ---- checkpoints ---------------------------------------------------------------------------


@pytest.mark.spec("K59", "K60", "K61", "K62", "K63")
@pytest.mark.parametrize("kind", TYPES)
def test_types(state: sync.State, kind: str) -> None:
    state.set("k", 1)
    made = state.checkpoint("c", type=kind)
    assert made.type == kind
    assert state.checkpoints(type=kind) == [made]
    assert state.checkpoints(type="manual" if kind != "manual" else "routine") == []


@pytest.mark.spec("K45", "K52", "K64", "K41")
def test_what_a_checkpoint_says(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    state.set("k", LONG)
    with store.acting("deployer", correlation="run"):
        made = state.checkpoint(
            "before deploy",
            type="migration",
            tags=["deploy", "v2"],
            description="why",
            metadata={"build": 7, "when": datetime(2024, 1, 1, tzinfo=UTC)},
        )
    assert (made.id, made.name, made.type, made.tags) == (
        "main@2",
        "before deploy",
        "migration",
        ("deploy", "v2"),
    )
    assert (made.description, made.metadata["build"]) == ("why", 7)
    assert made.cause.actor == "deployer"
    assert made.root == state.root()
    assert len(made.root) == len(made.hash) == 64
    assert made.signed_by
    for again in (place.open, place.reopen):
        assert again().agent("1").checkpoints() == [made]


@pytest.mark.spec("K88", "K96", "K147")
def test_finding_checkpoints(state: sync.State) -> None:
    state.set("k", 1)
    made = [state.checkpoint(f"c{n % 3}", tags=[f"t{n % 2}"]) for n in range(9)]
    assert state.checkpoints() == made[::-1]
    assert state.checkpoints(limit=2) == made[:-3:-1]
    assert state.checkpoints(name="c1") == [made[7], made[4], made[1]]
    assert state.checkpoints(tag="t0", name="c0") == [made[6], made[0]]
    assert state.checkpoints(name="nobody") == []
    assert state.at("c1")._handle.place()[2] == made[7].sequence, "of one name, the newest is meant"


@pytest.mark.spec("K82")
@pytest.mark.parametrize(
    "bad",
    [
        {"type": "nonsense"},
        {"name": 7},
        {"name": "x" * 257},
        {"name": "\ud800"},
        {"tags": "text"},
        {"tags": [7]},
        {"tags": ["\ud800"]},
        {"description": 7},
        {"description": "\ud800"},
        {"metadata": {"a": {1, 2}}},
        {"metadata": [1]},
        {"description": "x" * 70_000},
    ],
    ids=repr,
)
def test_checkpoints_that_are_refused(state: sync.State, bad: dict[str, Any]) -> None:
    state.set("k", 1)
    with pytest.raises(InvalidInputError):
        state.checkpoint(**bad)
    assert state._handle.place()[2] == 1


def test_a_checkpoint_of_nothing(store: sync.Store) -> None:
    state = store.agent("1")
    made = state.checkpoint("empty")
    state.set("k", 1)
    state.restore(made)
    assert state.keys() == []


# ---- restore -------------------------------------------------------------------------------


@pytest.mark.spec("K105", "M7", "M12", "M47")
def test_restore_and_undo(place: Place) -> None:
    state = place.open().agent("1")
    state.set("a", LONG)
    state.set("b", 1)
    safe = state.checkpoint("safe")
    root = state.root()
    state.set("a", LONG[:-1])
    state.delete("b")
    state.set("c", 3)
    spoiled = state.items()
    result = state.restore(safe, reason="it went wrong")
    assert state.items() == [("a", LONG), ("b", 1)]
    assert state.root() == root == result.root
    assert (result.point, result.keys, result.verified) == ("main@3", 2, "full")
    assert result.values_checked >= len(LONG)
    assert state.log()[0].cause.reason == "it went wrong"
    assert state.log()[0].kinds == ("restore",)
    assert result.backup is not None
    assert result.backup.type == "recovery"
    assert result.backup.sequence == result.sequence - 1
    for again in (place.open, place.reopen):
        seen = again().agent("1")
        assert seen.items() == [("a", LONG), ("b", 1)]
        assert seen.at(result.backup).items() == spoiled
    seen.restore(result.backup)
    assert seen.items() == spoiled
    assert place.open().verify().findings == []


def test_restore_is_one_commit(place: Place) -> None:
    store, counting = place.open_counting()
    state = store.agent("1")
    state.set("k", 1)
    safe = state.checkpoint()
    state.set("k", 2)
    counting.reset()
    state.restore(safe)
    assert counting.calls["commit"] == 1


def test_dry_run_changes_nothing(state: sync.State) -> None:
    state.set("k", {"a": 1})
    state.set("gone", 1)
    safe = state.checkpoint()
    state.set("k", {"a": 2})
    state.delete("gone")
    before = state._handle.place()
    result = state.restore(safe, dry_run=True)
    assert result.dry_run
    assert result.backup is None
    assert state._handle.place() == before
    assert state.get("k") == {"a": 2}
    assert [(d.path, d.before, d.after) for d in result.diff] == [
        ("gone", None, 1),
        ("k.a", 2, 1),
    ]


def test_restore_expects_the_head_if_asked(state: sync.State) -> None:
    state.set("k", 1)
    safe = state.checkpoint()
    head = state.set("k", 2)
    state.set("k", 3)
    with pytest.raises(Conflict):
        state.restore(safe, if_head=head)
    assert state.get("k") == 3
    state.restore(safe, if_head=head + 1)
    assert state.get("k") == 1


def test_writes_after_a_restore(place: Place) -> None:
    state = place.open().agent("1")
    for number in range(20):
        state.append("l", number)
        state.set(f"k{number}", number)
    state.restore(11)
    state.append("l", "after")
    state.set("k0", "after")
    state.delete("k1")
    expected = {"l": [0, 1, 2, 3, 4, 5, "after"], "k0": "after"}
    expected |= {f"k{n}": n for n in range(2, 5)}
    assert dict(state.items()) == expected
    assert dict(place.reopen().agent("1").items()) == expected


@pytest.mark.spec("K55")
@pytest.mark.parametrize("verify", ["full", "references", "none"])
@pytest.mark.parametrize("damage", ["none", "changed", "removed"])
def test_levels_of_verification(
    place: Place, monkeypatch: pytest.MonkeyPatch, verify: str, damage: str
) -> None:
    """`full` reads every value, `references` looks that all is there, `none` does neither."""
    monkeypatch.setattr(
        "holdfast.store.journal.timeline.DELTA_EVERY", 1
    )  # else values are read to replay
    state = place.open().agent("1")
    state.set("k", [{"n": n, "text": f"{n} " * 60} for n in range(60)])  # too long for an index
    point = state.checkpoint().sequence
    state.set("k", "other")
    head = state.set("j", 1)
    storage = place.storage()
    key, row = rows_of(storage, b"V")[0]
    if damage != "none":
        put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]) if damage == "changed" else None)
    state = place.reopen().agent("1")
    noticed: dict[str, list[str]] = {
        "none": [],
        "changed": ["full"],
        "removed": ["full", "references"],
    }
    if verify in noticed[damage]:
        with pytest.raises(StateIntegrityError, match="values"):
            state.restore(point, verify=verify)
        assert (state.get("k"), state._handle.place()[2]) == ("other", head)
        return
    result = state.restore(point, verify=verify)
    assert result.verified == verify
    assert (result.values_checked > 0) == (verify != "none")


@pytest.mark.spec("K97", "K94")
def test_restores_that_are_refused(store: sync.Store) -> None:
    state = store.agent("1")
    with pytest.raises(ScopeNotFoundError):
        state.restore(1)
    state.set("k", 1)
    other = store.agent("2")
    other.set("k", 2)
    foreign = other.checkpoint("theirs")
    for point, error in [
        (9, PointNotFoundError),
        (-1, PointNotFoundError),
        ("nobody", CheckpointNotFoundError),
        ("main@9", PointNotFoundError),
        ("trial@1", TimelineNotFoundError),
        (foreign, PointNotFoundError),
        (other, PointNotFoundError),
        (other.log()[0], PointNotFoundError),
        (True, InvalidInputError),
        (1.5, InvalidInputError),
        (None, InvalidInputError),
        (datetime(2000, 1, 1, tzinfo=UTC), PointNotFoundError),
        (datetime(2000, 1, 1), InvalidInputError),  # noqa: DTZ001
    ]:
        for call in (state.restore, state.at, state.diff):
            with pytest.raises(error):
                call(point)
    with pytest.raises(InvalidInputError):
        state.restore(1, verify="nonsense")
    with pytest.raises(InvalidInputError):
        state.restore(1, verify="nonsense", dry_run=True)
    assert state._handle.place()[2] == 1


# ---- views ---------------------------------------------------------------------------------


@pytest.mark.spec("K292")
def test_points_of_every_kind(place: Place) -> None:
    state = place.open().agent("1")
    state.set("k", 1)
    first = state.checkpoint("first")
    state.set("k", 2)
    odd = state.checkpoint("release@2024")
    number = state.checkpoint("12")
    state.set("k", 3)
    entry = state.log(limit=1)[0]
    view = state.at(1)
    for seen, own in ((state, [(view, 1), (state, 3)]), (place.open().agent("1"), [])):
        for point, value in [
            *own,
            (1, 1),
            (first, 1),
            ("first", 1),
            ("main@1", 1),
            (first.id, 1),
            (odd, 2),
            ("release@2024", 2),
            ("12", 2),
            (number, 2),
            (entry, 3),
            (first.time, 1),
            (entry.time, 3),
            (0, None),
        ]:
            assert seen.at(point).get("k") == value, point
    assert view._handle.place()[1:] == ("main", 1)
    state.set("k", 4)
    assert (view.get("k"), view.keys(), view.length("nothing")) == (1, ["k"], 0)


def test_a_view_reads_like_a_state(state: sync.State) -> None:
    for number in range(300):
        state.append("l", {"n": number, "pad": "x" * 30})
    state.set("a", 1)
    state.set("a", 2)
    view = state.at(200)
    assert view.length("l") == 200
    assert [item["n"] for item in view.tail("l", 2)] == [198, 199]
    assert view.slice("l", 10, 12) == state.slice("l", 10, 12)
    assert (view.exists("a"), view.keys(), view.item("a")) == (False, ["l"], None)
    assert state.at(301).get_many(["a"]) == {"a": 1}
    item = state.at(301).item("a")
    assert item is not None
    assert (item.value, item.version) == (1, 301)
    assert state.at(302).root() == state.root() != view.root()


class Hand:
    """A wall clock that is set by hand; the monotonic one goes on."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000.0
        self.ticks = 0.0

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.ticks)

    def go(self, seconds: float, *, jump: float = 0.0) -> datetime:
        self.ticks += seconds
        self.wall += seconds + jump
        return datetime.fromtimestamp(self.wall, UTC)


def test_a_clock_that_jumps(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order is the entries' numbers; a time means the last entry that claims no later one."""
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 3)
    hand = Hand()
    store = place.open(clock=hand.clock())
    state = store.agent("1")
    times: list[datetime] = []
    jumps = {7: -7200.0, 13: 86400.0, 20: -90000.0, 31: 3600.0}
    for number in range(1, 41):
        times.append(hand.go(10, jump=jumps.get(number, 0.0)))
        state.set("k", number)
        state.append("l", number)
    log = state.log(limit=None, newest_first=False, kind="set")
    assert [entry.time for entry in log] == times
    assert {n: e.clock_step for n, e in enumerate(log, 1) if e.clock_step} == {
        number: round(jump) for number, jump in jumps.items()
    }
    probes = [t + d for t in times for d in (timedelta(0), timedelta(seconds=3), timedelta(0, -3))]
    for seen in (state, place.open().agent("1")):
        for probe in probes:
            fitting = [number for number, time in enumerate(times, 1) if time <= probe]
            if fitting:
                assert seen.at(probe).get("k") == fitting[-1]
            else:
                with pytest.raises(PointNotFoundError):
                    seen.at(probe)
        assert seen.get("l") == list(range(1, 41))
    assert store.verify().findings == []


def test_a_clock_that_jumps_back_at_a_restore(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 4)
    hand = Hand()
    state = place.open(clock=hand.clock()).agent("1")
    times: list[datetime] = []
    for number in range(1, 30):
        jump = -500_000.0 if number in (10, 20) else 700_000.0 if number == 15 else 0.0
        now = hand.go(10, jump=jump)
        if number in (10, 20):
            state.restore(3)
            times += [now, now]
        else:
            state.set("k", number)
            times.append(now)
    for seen in (state, place.open().agent("1")):
        for probe in times:
            last = max(n for n, time in enumerate(times, 1) if time <= probe)
            assert seen.at(probe)._handle.place()[2] == last


@pytest.mark.parametrize("which", [0, 2, 4])
@pytest.mark.parametrize("newest_first", [True, False])
def test_a_log_passes_over_no_missing_entry(place: Place, which: int, newest_first: bool) -> None:
    state = place.open().agent("a")
    for number in range(5):
        state.set("k", number)
    storage = place.storage()
    put_row(storage, rows_of(storage, b"E")[which][0], None)
    with pytest.raises(StateIntegrityError, match=f"entry {which + 1}.*missing"):
        state.log(newest_first=newest_first)


@pytest.mark.parametrize("which", [1, 3, 5])
def test_a_list_of_checkpoints_is_without_those_that_are_missing(place: Place, which: int) -> None:
    state = place.open().agent("a")
    for number in range(3):
        state.set("k", number)
        state.checkpoint(f"c{number}")
    state.set("k", 3)
    storage = place.storage()
    put_row(storage, rows_of(storage, b"E")[which][0], None)
    left = [f"c{number}" for number in (2, 1, 0) if number != which // 2]
    assert [one.name for one in state.checkpoints()] == left
    with pytest.raises(StateIntegrityError, match=f"entry {which + 1}.*missing"):
        state.log()
