"""Refreshes and restarts of a loop beside others: what they wrote stays, tasks have one owner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handover_kit import heard, put, say, tasks
from store_kit import Between, Place

from holdfast import sync
from holdfast.agents import StepResult, Task

QUICK: dict[str, Any] = {"backoff": 0.001, "idle": 0.001, "drift": False}


class Worker:
    """Counts its steps, and keeps the count; `act` may do more in each of them."""

    def __init__(self, steps: int, act: Callable[[int], Any] = lambda number: None) -> None:
        self.count = 0
        self._steps = steps
        self._act = act

    def get_persistent_state(self) -> dict[str, Any]:
        return {"count": self.count}

    def apply_persistent_state(self, values: dict[str, Any]) -> None:
        self.count = values["count"]

    def step(self) -> StepResult:
        self.count += 1
        self._act(self.count)
        return StepResult(
            f"count {self.count}", progress=self.count, done=self.count >= self._steps
        )


class Stuck:
    """Does the same again and again until its conversation is a fresh one."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def step(self) -> StepResult:
        if "hello" not in heard(self._state):
            return StepResult("finish", "t", 1.0, done=True)
        return StepResult("search", "t", 0.2)


def beside(place: Place) -> tuple[sync.State, list[int]]:
    """An agent, and what another program writes to its scope before every other commit."""
    between = Between(place.storage())
    here, there = place.open(storage=between).agent("7"), place.open().agent("7")
    wrote: list[int] = []

    def write() -> None:
        there.set(f"fact/{len(wrote)}", len(wrote))
        say(there, f"fact {len(wrote)}")
        wrote.append(len(wrote))
        between.before, between.passing = write, 1

    between.before = write
    return here, wrote


def facts(state: sync.State) -> list[int]:
    return sorted(state.get(key) for key in state.keys("fact/"))


@pytest.mark.spec("D36")
def test_a_refresh_undoes_nothing_that_others_write_meanwhile(place: Place) -> None:
    state, wrote = beside(place)
    result = sync.agents.run(lambda: Worker(6), state, refresh=1e-9, **QUICK)
    assert (result.outcome, result.restarts > 3) == ("done", True)
    assert state.checkpoints(type="recovery"), "there is one to go back to before each"
    assert facts(state) == wrote


@pytest.mark.spec("D48")
def test_a_clean_refresh_removes_only_what_its_checkpoint_holds(place: Place) -> None:
    state, wrote = beside(place)
    say(state, "hello")
    result = sync.agents.run(Stuck, state)
    assert (result.outcome, result.restarts) == ("done", 1)
    assert facts(state) == wrote
    [recovery] = state.checkpoints(type="recovery")
    old = [one["content"] for one in state.at(recovery).get("$agent/conversation")]
    assert "hello" in old
    said = {"hello", *(f"fact {number}" for number in wrote)}
    assert sorted([*old, *heard(state)]) == sorted(said), "in the checkpoint, or still there"


@pytest.mark.spec("D43")
def test_what_is_written_between_two_processes_stays(place: Place) -> None:
    store = place.open()
    state, other = store.agent("7"), store.agent("other")
    result = sync.agents.run(lambda: Worker(9), state, refresh=1e-9, restart="process", **QUICK)
    assert result.outcome == "restart"
    state.set("settings", {"speed": 2})
    sync.agents.AgentState(other).put("tasks", "t", Task(id="t"))
    sync.agents.Handovers(store).hand_over(other, state, "t", reason="busy")
    again = place.open().agent("7")
    result = sync.agents.run(lambda: Worker(3), again, **QUICK)
    assert (result.outcome, result.restarts) == ("done", 1)
    assert again.get("settings") == {"speed": 2}
    assert (tasks(again), tasks(other)) == (["t"], [])


def test_a_restart_that_was_cut_short_is_not_restored_twice(place: Place) -> None:
    """What was written after it was restored is not undone when another process finishes it."""
    state = place.open().agent("7")
    state.set("plan", 1)
    safe = state.checkpoint("safe")
    state.set("plan", 2)

    class Killed(BaseException):
        pass

    def make() -> Worker:
        assert state.get("plan") == 1
        state.set("order", "from a customer")
        raise Killed

    loop = sync.agents.Loop(state, make, **QUICK)
    loop.restart(safe)
    with pytest.raises(Killed):
        loop.run()
    again = place.open().agent("7")
    result = sync.agents.run(lambda: Worker(1), again, **QUICK)
    assert (result.outcome, result.restarts) == ("done", 1)
    assert (again.get("plan"), again.get("order")) == (1, "from a customer")
    assert sync.checkpoints.Checkpoints(again).held() == [], (
        "the backup is let go, by whoever finishes it"
    )


def asked(state: sync.State, checkpoint: Any, reason: str = "by hand") -> None:
    """Ask for a restart as another program does."""
    sync.agents.Loop(state, Worker(0), **QUICK).restart(checkpoint, reason=reason)


class Asking:
    """Asks in its second step for what becomes of its plan; says what that was in each step."""

    def __init__(self, state: sync.State, ask: Callable[[], None], failing: bool = False) -> None:
        self._state, self._ask, self._failing = state, ask, failing
        self.seen: list[str] = []

    def step(self) -> StepResult:
        self.seen.append(self._state.get("plan"))
        if len(self.seen) == 2:
            self._ask()
            if self._failing:
                raise ValueError
        return StepResult(f"step {len(self.seen)}", done=len(self.seen) == 3)


def replanned(state: sync.State) -> Any:
    """A checkpoint of the plan that is wanted, which is not the one that is there."""
    state.set("plan", "wanted")
    wanted = state.checkpoint("wanted")
    state.set("plan", "later")
    return wanted


@pytest.mark.parametrize("drifts", [False, True])
@pytest.mark.parametrize("failing", [False, True])
def test_what_the_loop_wants_itself_takes_no_place_of_what_is_asked_for(
    store: sync.Store, failing: bool, drifts: bool
) -> None:
    state = store.agent("7")
    wanted = replanned(state)
    agent = Asking(state, lambda: asked(state, wanted), failing)
    drift = sync.agents.Drift(state, max_cycles=2) if drifts else False
    result = sync.agents.run(agent, state, backoff=0.001, drift=drift)
    assert (result.outcome, result.restarts, result.errors) == ("done", 1, failing)
    assert ("drift" in [one.metadata.get("trigger") for one in state.checkpoints()]) is drifts
    assert agent.seen == ["later", "later", "wanted"]
    assert sync.checkpoints.Retention(store, rules={}).marked("agent:7") == {}


def test_a_refresh_takes_no_place_of_what_is_asked_for_meanwhile(place: Place) -> None:
    between = Between(place.storage())
    here, there = place.open(storage=between).agent("7"), place.open().agent("7")
    wanted = replanned(here)

    def ask() -> None:  # before the checkpoint of the refresh, when the turn has begun
        between.before = lambda: asked(there, wanted)

    agent = Asking(here, ask)
    assert sync.agents.run(agent, here, refresh=1e-9, **QUICK).outcome == "done"
    assert agent.seen == ["later", "later", "wanted"]


@pytest.mark.parametrize("reason", ["by hand", "another"])
def test_what_is_asked_for_during_a_restart_is_the_next(store: sync.Store, reason: str) -> None:
    state = store.agent("7")
    first = replanned(state)
    second = state.checkpoint("second")
    state.set("plan", "now")
    seen: list[str] = []

    class Recovering(Worker):
        def handle_recovery(self) -> None:
            seen.append(state.get("plan"))
            if len(seen) == 1:
                asked(state, first, reason)

    asked(state, second)
    assert sync.agents.run(lambda: Recovering(1), state, **QUICK).restarts == 2
    assert (seen, state.get("plan")) == (["later", "wanted"], "wanted")
    assert sync.checkpoints.Checkpoints(state).held() == []


def test_what_is_asked_for_before_a_restart_has_restored_is_the_next(place: Place) -> None:
    between = Between(place.storage())
    here, there = place.open(storage=between).agent("7"), place.open().agent("7")
    first = replanned(here)
    second = here.checkpoint("second")
    here.set("plan", "now")
    asked(here, second)

    loop = sync.agents.Loop(here, lambda: Worker(1), **QUICK)
    put_back = loop._store.put_back

    def later(restart: Any) -> None:
        loop._store.put_back = put_back  # type: ignore[method-assign]
        between.before = lambda: asked(there, first)  # with the same reason
        put_back(restart)

    loop._store.put_back = later  # type: ignore[method-assign]
    assert loop.run().restarts == 2
    assert here.get("plan") == "wanted"


def test_a_clean_restart_from_another_timeline(store: sync.Store) -> None:
    main = store.agent("7")
    say(main, "hello")
    main.set("mine", 1)
    safe = main.checkpoint("safe")
    fork = main.fork("trial")
    say(fork, "more")
    loop = sync.agents.Loop(fork, lambda: Worker(1), **QUICK)
    loop.restart(safe, clean=True)
    assert loop.run().restarts == 1
    assert (heard(fork), fork.get("mine")) == ([], 1)
    assert heard(main) == ["hello"]


@pytest.mark.parametrize("gives", [True, False])
def test_a_task_has_one_owner_after_the_loop_has_restored(place: Place, gives: bool) -> None:
    store = place.open()
    state, other = store.agent("7"), store.agent("other")
    handovers = sync.agents.Handovers(store)
    first, second = (state, other) if gives else (other, state)
    put(first, t={"id": "t"})

    def act(number: int) -> None:
        if number == 1:
            handovers.hand_over(first, second, "t", reason="r")

    assert sync.agents.run(lambda: Worker(3, act), state, **QUICK).outcome == "done"
    assert handovers.owner(first, "t") == second.scope
    loop = sync.agents.Loop(state, lambda: Worker(9), **QUICK)
    loop.restart(state.checkpoints(type="session_start")[-1])
    assert loop.run().restarts == 1
    assert (tasks(first), tasks(second)) == ([], ["t"])


def asked_for_one(state: sync.State) -> None:
    """Let a restart be asked for, and the state go on."""
    state.set("k", "old")
    checkpoint = state.checkpoint("old")
    sync.agents.Loop(state, Worker(1), **QUICK).restart(checkpoint, reason="wrong turn")
    state.set("k", "new")
    state.checkpoint("new")


@pytest.mark.parametrize("past", [0, 20])
@pytest.mark.parametrize("how", ["copy", "export", "recovery"])
def test_a_restart_is_asked_of_one_agent_and_not_of_its_copies(
    store: sync.Store, tmp_path: Path, how: str, past: int
) -> None:
    source = store.agent("7")
    asked_for_one(source)
    with sync.open("memory:") as other:
        state = store.agent("8") if how == "copy" else other.agent("7")
        for number in range(past):
            state.set("k", number)
        if how == "copy":
            sync.checkpoints.Checkpoints(state).restore("new", source=source)
        elif how == "export":
            sync.checkpoints.export_checkpoint(source, tmp_path / "file", plain=True)
            sync.checkpoints.import_checkpoint(state, tmp_path / "file", untrusted=True)
        else:
            sync.recovery.Recovery(other, copies=[store], order=["copy"]).recover(
                state, "storage_failure"
            )

        result = sync.agents.run(Worker(1), state, **QUICK)

        assert (result.outcome, result.restarts, state.get("k")) == ("done", 0, "new")
        assert other.verify().findings == []
    assert sync.agents.run(Worker(1), source, **QUICK).restarts == 1
    assert source.get("k") == "old"
