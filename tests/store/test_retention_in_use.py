"""Retention beside what is in use: operations that run, releases, very many states, odd clocks."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import Keep, sync
from holdfast.checkpoints import RetentionRule, retention
from holdfast.errors import NotConfirmedError, OutcomeUnknown, PrunedError
from holdfast.storage.contract import Batch
from holdfast.store.upkeep import prune as pruning
from holdfast.sync.checkpoints import Checkpoints, Retention

DAY = 86_400.0


class Broken(Exception):
    """What goes wrong in these tests."""


def beside(state: sync.State, store: sync.Store) -> None:
    """Retention as a schedule runs it: on a thread that is no part of the operation."""
    thread = threading.Thread(target=lambda: Retention(store).run(state))
    thread.start()
    thread.join()


@pytest.mark.parametrize("keep", [None, Keep(count=1)])
def test_an_operation_is_undone_whole_though_retention_ran(
    store: sync.Store, keep: Keep | None
) -> None:
    state = store.agent("1")
    for n in range(8):
        state.checkpoint(f"before {n}", type="routine")
        state.set("plan", "good")
    if keep is not None:
        state.declare(keep)
    checkpoints = Checkpoints(state)
    with pytest.raises(Broken), checkpoints.operation("deploy") as run:
        state.set("plan", "bad")
        for n in range(5):
            state.set("new", n)
            state.checkpoint(f"inside {n}", type="routine")
        state.set("plan", "worse")
        plan = Retention(store).plan(state)
        inside = [one for one in plan.lines[0].judged if one.checkpoint.name.startswith("inside")]
        assert all(one.stays for one in inside)
        assert any("is not over" in one.why for one in inside)
        beside(state, store)
        raise Broken
    assert run.outcome == "reverted"
    assert (state.get("plan"), state.get("new")) == ("good", None)
    assert "before 0" not in [one.name for one in state.checkpoints()]  # retention did run
    beside(state, store)
    assert len(state.checkpoints(type="routine")) == 3
    assert checkpoints.held() == []
    assert store.verify().findings == []


def test_an_operation_whose_entries_were_pruned_is_not_said_to_be_undone(
    store: sync.Store,
) -> None:
    """`prune` does as it is told; then the checkpoint stays held and can be restored."""
    state = store.agent("1")
    state.set("plan", "good")
    checkpoints = Checkpoints(state)
    with pytest.raises(Broken) as raised, checkpoints.operation("deploy") as run:
        state.set("plan", "bad")
        state.set("plan", "worse")
        state.prune(state.log(limit=1)[0].sequence)
        raise Broken
    assert run.outcome != "reverted"
    assert "is still held" in raised.value.__notes__[0]
    (held,) = checkpoints.held()
    with pytest.raises(PrunedError, match="restore that"):
        checkpoints.finish(held.checkpoint, "revert")
    assert [one.checkpoint for one in checkpoints.held()] == [held.checkpoint]
    state.restore(held.checkpoint)
    assert state.get("plan") == "good"
    checkpoints.finish(held.checkpoint, "keep")
    assert held not in checkpoints.held()


def test_releases_go_behind_what_they_released(store: sync.Store) -> None:
    state = store.agent("1")
    checkpoints, retention = Checkpoints(state), Retention(store)
    for n in range(4):
        with checkpoints.operation("step"):
            state.set("k", n)
    first = state.checkpoints(type="pre_operation")[-1]
    retention.pin(first)
    state.set("k", "end")
    retention.run(state)  # what was released
    assert [one.id for one in state.checkpoints(type="pre_operation")] == [first.id]
    assert len(state.checkpoints(type="post_operation")) == 4
    retention.run(state)  # and the releases, but for that of the one that is there
    (left,) = state.checkpoints(type="post_operation")
    assert left.metadata["releases"] == [first.id]
    assert checkpoints.held() == []
    retention.unpin(first)
    retention.run(state)
    retention.run(state)
    assert state.checkpoints() == []
    assert store.verify().findings == []


def test_more_states_than_can_be_kept_below_a_floor(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is possible is pruned, and more when fewer are kept."""
    monkeypatch.setattr(pruning, "MOST_BASES", 10)
    state = store.agent("1")
    for n in range(30):
        state.set("k", f"{n} " + "x" * 200)
        state.checkpoint(str(n))
    state.set("k", "end")
    state.declare(Keep(count=0))
    (done,) = Retention(store).run(state)
    assert 0 < done.floor <= 22
    assert len(done.kept) <= 10
    assert len(state.checkpoints()) == 30
    assert state.at("29").get("k").startswith("29 ")
    Retention(store, rules={"manual": RetentionRule(max_count=5)}).run(state)
    assert [one.name for one in state.checkpoints()] == ["29", "28", "27", "26", "25"]
    assert store.verify().findings == []


class Ahead:
    """Opens one store again and again, each time by a clock that is wrong by so much."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.passed = 0.0
        """Seconds that really went by."""

    def open(self, wrong: float = 0.0) -> sync.Store:
        begun = time.time()
        clock = holdfast.Clock(lambda: begun + self.passed + wrong, lambda: self.passed)
        return self.place.open(clock=clock)


RULES = {
    "manual": RetentionRule(max_age=timedelta(days=30)),
    "triggered": RetentionRule(max_age=timedelta(hours=1)),
}


@pytest.mark.parametrize("years", [10, 1])
def test_a_process_that_starts_with_a_wrong_clock_is_asked_first(
    place: Place, years: float
) -> None:
    """However much it writes: most of what there is would go by its age."""
    ahead = Ahead(place)
    with ahead.open() as store:
        state = store.agent("1")
        state.declare(Keep(age=timedelta(days=30)))
        for n in range(20):
            state.set("k", n)
            for type_ in ("manual", "recovery", "triggered"):
                state.checkpoint(f"{type_} {n}", type=type_)
    with ahead.open(years * 365 * DAY) as store:
        state = store.agent("1")
        for n in range(120):
            state.set("k", n)
        entries = len(state.log(limit=None))
        with pytest.raises(NotConfirmedError, match="60 of 60 checkpoints"):
            Retention(store, rules=RULES).run(state)
        assert len(state.checkpoints(limit=None)) == 60
        assert len(state.log(limit=None)) == entries


def test_what_really_grew_old_goes_whichever_process_saw_it(place: Place) -> None:
    """A start each day: no process lives as long as the rule, all of them together do."""
    ahead = Ahead(place)
    for day in range(40):
        with ahead.open() as store:
            state = store.agent("1")
            state.declare(Keep(age=timedelta(days=10)))
            state.set("k", day)
            state.checkpoint(f"day {day}", type="recovery" if day % 10 == 5 else "scheduled")
            state.set("k", -day)
            Retention(store).run(state, confirm=True)
        ahead.passed += 0.9 * DAY
    with ahead.open() as store:
        state = store.agent("1")
        assert [one.name for one in state.checkpoints(type="recovery")] == ["day 35"]
        assert len(state.checkpoints()) == 37
        assert {-state.at(one).get("k") for one in state.log(kind="set", limit=None)[::2]} <= set(
            range(28, 40)
        )
        assert store.verify().findings == []


def make_routine(state: sync.State) -> None:
    for n in range(4):
        state.set("k", n)
        state.checkpoint(type="routine")
    state.set("k", "end")


def test_a_group_goes_by_what_it_says_itself(store: sync.Store) -> None:
    """Its type does not count: one of its scopes may have made more of that type since."""
    a, b = store.agent("a"), store.agent("b")
    for state in (a, b):
        state.set("k", "then")
    groups = sync.checkpoints.CheckpointGroups(store)
    group = groups.create([a, b], "release", type="routine")
    make_routine(a)
    for rules in (None, {"routine": RetentionRule(max_count=1)}):
        Retention(store, rules=rules).run(a)
        b.set("k", "later")
        groups.restore(groups.of(a.checkpoints()[-1]))
        assert (a.get("k"), b.get("k")) == ("then", "then")
    for n in range(2):
        for state in (a, b):
            state.set("k", n)
        last = groups.create([a, b], f"{n}", retention={"max_count": 1})
        a.checkpoint(type="routine")
    for state in (a, b):
        state.set("k", "end")
        Retention(store).run(state)
        named = {one.name for one in state.checkpoints() if one.metadata.get("group")}
        assert named == {"1", "release"}
    assert (group.name, len(groups.of(last.checkpoints[0]).checkpoints)) == ("release", 2)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -1, 1e300, "long", [1]])
def test_an_odd_age_in_the_metadata_removes_nothing_and_stops_nothing(
    store: sync.Store, odd: object
) -> None:
    state = store.agent("1")
    state.checkpoint("odd", metadata={"retention": {"max_age": odd}})
    for n in range(5):
        state.set("k", n)
        state.checkpoint(str(n), type="routine")
    state.set("k", "end")
    Retention(store).run(state)
    assert [one.name for one in state.checkpoints()] == ["4", "3", "2", "odd"]


def test_it_runs_on_after_a_recovery_from_damage(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    for n in range(6):
        state.set("x", f"{n}" * 300)
        state.checkpoint(f"n{n}", type="routine")
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[-2]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    store = place.open()
    state = store.agent("1")
    Checkpoints(state).recover()
    for n in range(4):
        state.set("x", n)
        state.checkpoint(f"new{n}", type="routine")
    retention = Retention(store, rules={"manual": RetentionRule(max_age=timedelta(seconds=1))})
    assert "nothing goes because of its age" in retention.plan(state).notes[0]
    assert retention.run(state)[0].entries > 5
    assert [one.name for one in state.checkpoints(type="routine")] == ["new3", "new2", "new1"]


@pytest.mark.parametrize("id_", [None, "once"])
def test_an_outcome_is_settled_though_its_entry_was_pruned_meanwhile(
    plain: Place, id_: str | None
) -> None:
    """Nothing young has to stay for it: of a pruned entry there is the envelope, and its id."""
    there = plain.open()
    there.agent("1").set("k", 0)

    class Answerless:
        """A storage whose next commit is applied and not answered, and then others go on."""

        def __init__(self) -> None:
            self.inner = plain.storage()
            self.armed = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def turn(self) -> AbstractContextManager[object]:
            return nullcontext()

        def commit(self, batch: Batch) -> None:
            self.inner.commit(batch)
            if self.armed:
                self.armed = False
                there.agent("1").set("mine", "theirs")
                for n in range(8):
                    there.agent("1").set("k", n)
                    there.agent("1").checkpoint(f"r{n}", type="routine")
                there.agent("1").set("k", "newest")
                (done,) = Retention(there).run("agent:1")
                pruned.append(done.floor)
                raise OutcomeUnknown("the answer was lost")

    pruned: list[int] = []
    storage = Answerless()
    here = plain.open(storage=storage)
    state = here.agent("1")
    storage.armed = True
    with state.change(id=id_) as change:
        change.set("mine", 1)
    assert pruned[0] > 2
    assert (state.get("mine"), state.get("k")) == ("theirs", "newest")
    head = state._handle.place()[2]
    if id_ is not None:
        with state.change(id=id_) as again:
            again.set("mine", 1)
    assert state._handle.place()[2] == head, "it was applied, once"
    assert there.verify().findings == []


def test_who_prunes_further_meanwhile_does_not_stop_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was planned is of the past then: it is planned anew."""
    store, other = place.open(), place.open().agent("1")
    make_routine(store.agent("1"))
    make_routine(store.agent("1"))
    prune, done = retention.prune_state, []

    def late(*given: Any, **named: Any) -> Any:
        if not done:
            done.append(other.prune(other._handle.place()[2], keep=other.checkpoints()[1:5]))
        return prune(*given, **named)

    monkeypatch.setattr(retention, "prune_state", late)
    Retention(store).run("agent:1")
    assert [one.sequence for one in other.checkpoints()] == [15, 13, 11]
    assert store.verify().findings == []
