"""What a store counts of its agents: transitions, recoveries and what was not valid."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cancel_kit import Middle, Slow
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineRule, MachineState, Task
from holdfast.errors import (
    AgentValidationError,
    Conflict,
    HandoverValidationError,
    MachineDataError,
    RecoveryFailedError,
    TransitionRefusedError,
)
from holdfast.storage import open_storage


def work(step: Any) -> None:
    if step.input.get("fails"):
        raise BrokenPipeError


class Killed(BaseException):
    """Stands for the end of the process."""


def die(step: Any) -> None:
    raise Killed


DEFINITION = MachineDefinition(
    "draft",
    {
        "draft": MachineState(on={"review": "reviewed", "print": MachineArrow("lost", work=die)}),
        "reviewed": MachineState(
            on={
                "publish": MachineArrow(
                    "published", work=work, undo=lambda step: None, keep=("pages",)
                )
            }
        ),
        "published": MachineState(rules=(MachineRule("pages", required=True),)),
        "lost": MachineState(),
    },
)


@pytest.mark.spec("M78", "M94", "M98")
def test_transitions_are_counted_by_trigger_state_and_outcome(store: sync.Store) -> None:
    machine = sync.agents.Machine(store.agent("7"), DEFINITION, "article")
    machine.start()
    with pytest.raises(TransitionRefusedError):
        machine.fire("a trigger with a secret in it")
    with pytest.raises(Killed):
        machine.fire("print")
    machine.settle("roll_back")
    machine.fire("review")
    with pytest.raises(BrokenPipeError):
        machine.fire("publish", fails=True)
    with pytest.raises(MachineDataError):
        machine.fire("publish")
    machine.fire("publish", pages=3)
    found = store.metrics()
    assert found.count("transitions") == len(machine.transitions())
    assert found.by("transitions", "outcome") == {
        "succeeded": 3,
        "refused": 1,
        "rolled_back": 1,
        "failed": 2,
    }
    assert found.by("transitions", "trigger") == {
        "": 1,
        "(no arrow)": 1,
        "print": 1,
        "review": 1,
        "publish": 3,
    }
    assert found.by("transitions", "to_state", outcome="succeeded", kind="step") == {
        "reviewed": 1,
        "published": 1,
    }
    assert found.by("transitions", "machine") == {"article": 7}
    assert found.latency("transitions", trigger="publish").count == 3
    assert found.latency("transitions").seconds > 0
    assert found.count("validation_failures", what="machine") == 1
    assert "secret" not in str(found.data())
    assert found.figures()["transitions_failed"] == pytest.approx(4 / 7)


def test_one_that_was_overtaken_is_told_apart(place: Place) -> None:
    def overtake(step: Any) -> None:
        sync.agents.Machine(place.open().agent("7"), definition).settle("roll_back")

    states = {
        "draft": MachineState(on={"review": MachineArrow("reviewed", work=overtake)}),
        "reviewed": MachineState(),
    }
    definition = MachineDefinition("draft", states)
    mine = place.open()
    machine = sync.agents.Machine(mine.agent("7"), definition)
    machine.start()
    with pytest.raises(Conflict):
        machine.fire("review")
    assert mine.metrics().count("transitions", outcome="overtaken") == 1


@pytest.mark.parametrize("refused", ["guard", "no arrow", "work"])
def test_a_transition_after_a_refused_one_costs_no_failed_save(
    store: sync.Store, refused: str
) -> None:
    bad = {
        "guard": {"bad": MachineArrow("b", guard=lambda step: False)},
        "no arrow": {},
        "work": {"bad": MachineArrow("b", work=lambda step: 1 / 0, undo=lambda step: None)},
    }
    on: dict[str, Any] = {"go": "b", **bad[refused]}
    states = {"a": MachineState(on=on), "b": MachineState(on={"back": "a"})}
    machine = sync.agents.Machine(store.agent("7"), MachineDefinition("a", states))
    machine.start()
    for _ in range(3):
        with pytest.raises((TransitionRefusedError, ZeroDivisionError)):
            machine.fire("bad")
        known = machine._book.last_seen()
        assert known == machine._book.look(), "it knows the log without looking again"
        machine.fire("go")
        machine.fire("back")
    found = store.metrics()
    assert list(found.by("saves", "outcome")) == ["saved"]
    assert found.count("transitions") == len(machine.transitions())
    assert found.figures()["saves_failed"] == 0


@pytest.mark.parametrize("number", [1, 2])
def test_one_whose_task_is_cancelled_while_it_is_stored_counts_if_it_is(number: int) -> None:
    """In the commit of its intent it is not made; in the last one it is, and the log has it."""

    async def slow(step: Any) -> None:
        await asyncio.sleep(0)

    states = {
        "a": MachineState(on={"go": MachineArrow("b", work=slow, recover="roll_back")}),
        "b": MachineState(),
    }

    async def main() -> None:
        middle = Middle()
        storage = Slow(open_storage("memory:"), middle)
        async with holdfast.open("memory:", storage=storage, commit="thread") as store:
            machine = holdfast.agents.Machine(store.agent("7"), MachineDefinition("a", states))
            await machine.start()
            task = asyncio.create_task(machine.fire("go"))
            middle.cancels(task, number=number)
            with pytest.raises(asyncio.CancelledError):
                await task
            log = await machine.transitions()
            assert len(log) == number
            assert store.metrics().by("transitions", "outcome") == {"succeeded": number}
            now = await machine.now()
            assert now is not None
            assert (now.state, now.pending is None) == [("a", False), ("b", True)][number - 1]

    asyncio.run(main())


@pytest.mark.spec("M78")
def test_both_faces_count_alike(place: Place) -> None:
    async def main() -> dict[str, int]:
        async with holdfast.open(place.url, **place.options()) as store:
            machine = holdfast.agents.Machine(store.agent("7"), DEFINITION)
            await machine.start()
            await machine.fire("review")
            with pytest.raises(TransitionRefusedError):
                await machine.fire("review")
            return store.metrics().by("transitions", "outcome")

    assert asyncio.run(main()) == {"succeeded": 2, "refused": 1}


def broken(state: Any) -> bool:
    return False


@pytest.mark.spec("M80", "M81", "M94", "M98", "M105")
def test_recoveries_are_counted_with_how_they_ended(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("7")
    state.set("task", 1)
    state.checkpoint("good")
    state.set("task", "bad")

    def slowly(given: Any) -> None:
        hands.move(3)

    sync.recovery.Recovery(timed, validate=[slowly]).recover(state, "agent_crash")
    once = {**sync.recovery.Recovery(timed).procedures()[-1].data(), "retries": 0}
    with pytest.raises(RecoveryFailedError):
        recovery = sync.recovery.Recovery(timed, procedures=[once], validate=[broken])
        recovery.recover(state, "agent_crash", procedure=once["id"])
    found = timed.metrics()
    assert found.by("recoveries", "outcome") == {"succeeded": 1, "rolled_back": 1}
    assert found.by("recoveries", "failure") == {"agent_crash": 2}
    assert found.share("recoveries", outcome="succeeded") == 0.5
    assert found.latency("recoveries", outcome="succeeded").seconds >= 3
    assert found.figures()["recoveries_failed"] == 0.5


@pytest.mark.spec("M80")
def test_a_group_counts_for_each_of_its_agents(store: sync.Store) -> None:
    for id in ("7", "8"):
        store.agent(id).set("task", 1)
    sync.checkpoints.CheckpointGroups(store).create(["agent:7", "agent:8"], "both")
    sync.recovery.Recovery(store).recover_group(["agent:7", "agent:8"], "drift")
    assert store.metrics().by("recoveries", "outcome") == {"succeeded": 2}


@pytest.mark.spec("M81")
def test_what_is_not_valid_is_counted_by_what_it_is(store: sync.Store) -> None:
    state = store.agent("7")
    agent = sync.agents.AgentState(state)
    with pytest.raises(AgentValidationError):
        agent.set("episodic_memory", {"episodes": [{"importance": 2}], "max_retention": 0})
    with pytest.raises(HandoverValidationError):
        sync.agents.Handovers(store).offer("agent:7", "agent:8", "t1", reason="none there")

    class Bot:
        count = 1

        def validate_state(self) -> str:
            return "the count is wrong"

    with pytest.raises(AgentValidationError):
        sync.agents.attach(Bot(), state, fields=("count",)).start()
    with pytest.raises(AgentValidationError):
        sync.agents.Agents(store, {"bot": lambda identity: Bot()}).register("9", kind=7)
    found = store.metrics().by("validation_failures", "what")
    assert found == {"agent_state": 1, "handover": 1, "agent": 1, "identity": 1}


@pytest.mark.parametrize("way", ["attached", "loop"])
@pytest.mark.parametrize("error", [AgentValidationError("bad", ["n: bad"]), ValueError("bad")])
def test_validate_state_that_raises_is_counted(
    store: sync.Store, way: str, error: Exception
) -> None:
    class Bot:
        count = 1

        def validate_state(self) -> None:
            raise error

        def step(self) -> None:
            raise AssertionError

    with pytest.raises(AgentValidationError):
        if way == "attached":
            sync.agents.attach(Bot(), store.agent("7"), fields=("count",)).start()
        else:
            sync.agents.run(Bot(), store.agent("7"), fields=("count",))
    assert store.metrics().by("validation_failures", "what") == {"agent": 1}


def test_an_offer_that_stands_and_a_trigger_by_its_rules_are_counted(store: sync.Store) -> None:
    sync.agents.AgentState(store.agent("7")).put("tasks", "t", Task(id="t"))
    handovers = sync.agents.Handovers(store)
    handovers.offer("agent:7", "agent:8", "t", reason="x")
    with pytest.raises(HandoverValidationError, match="offered already"):
        handovers.offer("agent:7", "agent:9", "t", reason="x")
    arrow = MachineArrow("b", accepts=(MachineRule("page", required=True),), actors=("ada",))
    states = {"a": MachineState(on={"go": arrow}), "b": MachineState()}
    machine = sync.agents.Machine(store.agent("7"), MachineDefinition("a", states))
    with pytest.raises(TransitionRefusedError) as refused:
        machine.fire("go")
    assert len(refused.value.problems) == 2, "all that speaks against it is told"
    with pytest.raises(TransitionRefusedError):
        machine.fire("nowhere")
    found = store.metrics().by("validation_failures", "what")
    assert found == {"handover": 1, "machine": 1}
