"""Parts of an agent that meet: its machine, its typed state, handovers, the loop, the registry."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from handover_kit import busy, tasks
from machine_kit import HAIKU
from store_kit import Place

import holdfast
from holdfast import Ephemeral, sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineState, StepResult
from holdfast.errors import (
    Conflict,
    HandoverValidationError,
    InvalidInputError,
    LeaseHeldError,
    MachineDataError,
    MissingError,
)

QUICK: dict[str, Any] = {"backoff": 0.001, "idle": 0.001, "signals": ()}


def send(step: Any) -> None:
    raise KeyboardInterrupt


MAIL = MachineDefinition(
    "written",
    {
        "written": MachineState(on={"send": MachineArrow("sent", work=send)}),
        "sent": MachineState(),
    },
)


# the state of another agent


@pytest.mark.parametrize("how", ["restore", "import"])
@pytest.mark.parametrize("own", [False, True])
def test_what_the_state_of_another_agent_brings_along(
    store: sync.Store, tmp_path: Path, own: bool, how: str
) -> None:
    """What has happened to an agent is its own; one to which nothing has happened takes it over."""
    one, other = store.agent("one"), store.agent("other")
    for state in [one, other] if own else [one]:
        sync.agents.Mailbox(state).send(f"to {state.scope.id}")
        sync.agents.Effects(state).call("mail", lambda effect: 1, id=state.scope.id)
        machine = sync.agents.Machine(state, HAIKU)
        machine.fire("topic", topic=state.scope.id)
    one.checkpoint("safe")
    if how == "restore":
        sync.checkpoints.Checkpoints(other).restore("safe", source=one)
    else:
        sync.checkpoints.export_checkpoint(one, tmp_path / "one.hfx", plain=True)
        sync.checkpoints.import_checkpoint(other, tmp_path / "one.hfx")
    whose = "other" if own else "one"
    assert [letter.content for letter in sync.agents.Mailbox(other).waiting()] == [f"to {whose}"]
    assert [effect.id for effect in sync.agents.Effects(other).all()] == [whose]
    machine = sync.agents.Machine(other, HAIKU)
    now = machine.now()
    assert now is not None
    assert (now.data["topic"], now.unnumbered) == ("one", own)


# a machine, and the typed state


def test_the_state_of_an_agent_is_that_of_its_machine(store: sync.Store) -> None:
    state = store.agent("poet")
    typed = sync.agents.AgentState(state)
    machine = sync.agents.Machine(state, HAIKU)
    typed.set("state", {"name": "by hand", "data": {"n": 1}})
    assert typed.persisted().state_name == "by hand"  # type: ignore[union-attr]
    machine.start()
    machine.fire("topic", topic="rain")
    found = typed.persisted()
    assert found is not None
    assert (found.state_name, found.state_data) == ("generating", machine.now().data)  # type: ignore[union-attr]
    safe = state.checkpoint("safe")
    machine.fire("done")
    assert sync.agents.AgentState(state).persisted().state_name == "complete"  # type: ignore[union-attr]
    state.restore(safe)
    assert typed.persisted().state_name == "generating"  # type: ignore[union-attr]


def test_a_machine_of_another_name_is_not_the_state_of_the_agent(store: sync.Store) -> None:
    state = store.agent("poet")
    sync.agents.Machine(state, HAIKU, "second").start()
    found = sync.agents.AgentState(state).persisted()
    assert found is not None
    assert (found.state_name, found.state_data) == ("", None)


# a machine, and effects


def test_a_transition_plans_an_effect_with_its_own_change(place: Place) -> None:
    """It is planned if the transition is made, and else not; on both faces."""

    def definition(plan: Any) -> MachineDefinition:
        on = {trigger: MachineArrow(trigger, action=plan) for trigger in ("shut", "open")}
        shut = MachineState(check=lambda data: "nobody gets in")
        return MachineDefinition(
            "a", {"a": MachineState(on=on), "shut": shut, "open": MachineState()}
        )

    def plan(step: Any) -> None:
        sync.agents.Effects(state).plan("send", id=step.trigger, into=step.change)

    with place.open() as store:
        state = store.agent("blocking")
        machine = sync.agents.Machine(state, definition(plan))
        with pytest.raises(MachineDataError):
            machine.fire("shut")
        machine.fire("open")
        assert [one.id for one in sync.agents.Effects(state).all()] == ["open"]

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("async")
            effects = holdfast.agents.Effects(state)

            async def plan(step: Any) -> None:
                await effects.plan("send", id=step.trigger, into=step.change)

            machine = holdfast.agents.Machine(state, definition(plan))
            with pytest.raises(MachineDataError):
                await machine.fire("shut")
            await machine.fire("open")
            assert [one.id for one in await effects.all()] == ["open"]

    asyncio.run(main())


# a machine, and handovers


def test_who_is_in_the_middle_of_work_hands_nothing_over(store: sync.Store) -> None:
    ada = busy(store)
    machine = sync.agents.Machine(ada, MAIL, "mail")
    handovers = sync.agents.Handovers(store)
    offer = handovers.offer(ada, "agent:bob", "t1", reason="offered before")
    with pytest.raises(KeyboardInterrupt):
        machine.fire("send")
    with pytest.raises(HandoverValidationError) as caught:
        handovers.accept("agent:bob", offer.id)
    assert caught.value.problems == (
        "the machine 'mail' is on its way to 'sent': recover() or settle() it",
    )
    assert tasks(ada) == ["t1"]
    machine.settle("done")
    assert handovers.accept("agent:bob", offer.id).status == "accepted"
    assert tasks(store.agent("bob")) == ["t1"]
    assert machine.now().state == "sent", "it stays with its agent"  # type: ignore[union-attr]


# messages that need not outlive the process


@pytest.mark.spec("S54")
def test_a_queue_in_memory(place: Place) -> None:
    """Letters are stored; where that is not wanted, an ephemeral list is a queue.

    Catches: a change that may rest on an ephemeral key that another has written since, by which
    two take the same message; ephemeral keys that reach an entry.
    """
    store, storage = place.open_counting()
    state = store.agent("7")
    state.declare(Ephemeral("queue/"))
    before = storage.calls["commit"]

    def take(into: list[int]) -> None:
        while len(into) < 1000:
            with suppress(Conflict):
                with state.change() as change:
                    first, *rest = change.get("queue/in") or [None]
                    if first is None:
                        return
                    change.set("queue/in", rest)
                    time.sleep(0.0005)  # others take, too, and one of them is late
                into.append(first["number"])

    for number in range(40):
        state.append("queue/in", {"number": number, "text": "only in memory"})
    taken: list[list[int]] = [[], [], []]
    threads = [threading.Thread(target=take, args=(one,)) for one in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(one == sorted(one) for one in taken), "each gets them in their order"
    assert sorted(number for one in taken for number in one) == list(range(40)), (
        "and nobody what another got"
    )
    assert storage.calls["commit"] == before, "nothing reached the storage"
    state.append("queue/in", {"text": "only in memory"})
    state.set("stored", 1)
    state = place.reopen().agent("7")
    assert (state.get("queue/in"), state.get("stored")) == (None, 1)


# the registry, and loops


class Counter(sync.agents.Agent):
    """Counts up to five, or, if somebody waits for that, until it is stopped."""

    persistent = ("count",)

    def __init__(self, counted: threading.Event | None = None) -> None:
        self.count = 0
        self.counted = counted

    def step(self) -> StepResult:
        self.count += 1
        if self.counted is not None and self.count == 5:
            self.counted.set()
        return StepResult(f"count {self.count}", done=self.counted is None and self.count == 5)


class AsyncCounter(holdfast.agents.Agent):
    persistent = ("count",)

    def __init__(self, counted: asyncio.Semaphore) -> None:
        self.count = 0
        self.counted = counted

    async def step(self) -> StepResult:
        self.count += 1
        if self.count == 5:
            self.counted.release()
        return StepResult(f"count {self.count}")


def counters(store: sync.Store) -> sync.agents.Agents:
    agents = sync.agents.Agents(store, {"counter": lambda identity: Counter()})
    agents.register("7", kind="counter")
    return agents


def test_an_agent_that_is_spawned_saves_itself(place: Place) -> None:
    """And what it saves is under the lease of who spawned it."""
    agents = counters(place.open())
    agent = agents.get("7")
    agent.step()
    agent.persist_state()
    assert agent.kept is agents.running()["7"]
    agents._store.break_lease("agent/7")
    agent.step()
    with pytest.raises(holdfast.errors.LeaseLostError):
        agent.persist_state()


def test_a_registered_agent_is_run_in_a_loop(place: Place) -> None:
    agents = counters(place.open())
    result = agents.run("7", **QUICK)
    assert (result.outcome, result.cycles) == ("done", 5)
    assert agents.loops() == {}
    [info] = agents.list()
    assert (info.status, info.owner, info.here) == ("stopped", None, False)
    assert agents.get("7").count == 5, "spawned, it has what the loop saved"
    with pytest.raises(InvalidInputError, match=r"stop\(\) it first"):
        agents.run("7", **QUICK)
    with pytest.raises(MissingError, match="not registered"):
        agents.run("8")
    with pytest.raises(InvalidInputError, match="a loop has no 'often'"):
        agents.run("7", often=1)


@pytest.mark.spec("S44")
def test_loops_of_the_registry_are_known_while_they_run(place: Place) -> None:
    store = place.open()
    counted = threading.Event()
    agents = sync.agents.Agents(store, {"counter": lambda identity: Counter(counted)})
    agents.register("7", kind="counter")
    results: list[Any] = []
    with agents:
        thread = threading.Thread(target=lambda: results.append(agents.run("7", **QUICK)))
        thread.start()
        assert counted.wait(60)
        [info] = agents.list()
        assert (info.status, info.here) == ("running", True)
        assert info.owner is not None
        assert [(id, type(loop)) for id, loop in agents.loops().items()] == [
            ("7", sync.agents.Loop)
        ]
        with pytest.raises(LeaseHeldError):
            sync.agents.Agents(store, agents._kinds).spawn("7")
    thread.join(60)
    assert [one.outcome for one in results] == ["stopped"], "closing the registry ends it"
    assert agents.loops() == {}
    assert agents.list()[0].status == "stopped"


def test_many_loops_as_tasks(place: Place) -> None:
    async def main() -> None:
        counted = asyncio.Semaphore(0)
        ids = [f"a{number}" for number in range(5)]
        kinds = {"counter": lambda identity: AsyncCounter(counted)}
        async with holdfast.open(place.url, **place.options()) as store:
            agents = holdfast.agents.Agents(store, kinds)
            async with asyncio.TaskGroup() as group:
                for id in ids:
                    await agents.register(id, kind="counter")
                    group.create_task(agents.run(id, **QUICK))
                for _ in ids:
                    await counted.acquire()
                assert sorted(agents.loops()) == ids
                found = await agents.list()
                assert [(one.here, one.status) for one in found] == [(True, "running")] * 5
                for id in ids:
                    await agents.stop(id)
            assert agents.loops() == {}
            assert {one.status for one in await agents.list()} == {"stopped"}
            assert (await agents.get("a0")).count >= 5
            await agents.close()

    asyncio.run(main())
