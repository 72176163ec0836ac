"""Makes a store in which every feature keeps its records, and tells what they say of them.

    python tests/format/features.py     writes features.json anew

Do that only together with a reader of what is there now: it stands in people's files. The store is
compared by what the public classes read from it, and by the keys that each scope has.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import golden
import msgspec

from holdfast import sync
from holdfast.agents import (
    MachineArrow,
    MachineDefinition,
    MachineState,
    Message,
    RetryPolicy,
    StepResult,
    Task,
)
from holdfast.checkpoints import Condition, Policy, PolicyRetention
from holdfast.recovery.failure_kinds import AgentFailure
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.watchdog import Sighting, Sightings
from holdfast.store.inner import Finding, handle_of
from holdfast.sync import agents, checkpoints, recovery
from holdfast.sync.access import Audit

FILE = Path(__file__).with_name("features.json")
MACHINE = MachineDefinition(
    "written",
    {
        "written": MachineState(on={"send": MachineArrow("sent", work=lambda step: {"n": 1})}),
        "sent": MachineState(on={"again": "written"}),
    },
)


class Counter:
    """An agent for the loop, and to be attached."""

    def __init__(self) -> None:
        self.count = 0
        self.notes: list[str] = []

    def step(self) -> StepResult:
        self.count += 1
        return StepResult("count", progress=self.count, done=self.count % 3 == 0)


def fill(store: sync.Store) -> None:
    """Use every feature that keeps something in a scope."""
    clerk, shop = store.agent("clerk"), store.agent("shop")
    keep_effects(clerk)
    keep_letters(clerk, shop)
    keep_a_machine(clerk)
    for number in range(5):
        agents.Drift(clerk).note("read", task="book", progress=number)
    hand_over(store)
    registry = agents.Agents(store)
    registry.register("clerk", kind="office", name="Clerk", metadata={"floor": 3})
    with agents.attach(Counter(), shop, fields=["count", "notes"]) as attached:
        attached.agent.notes.append("open at nine")
        attached.save()
    loop = agents.Loop(store.agent("counter"), Counter, fields=["count"], signals=())
    loop.run()
    loop.restart(store.agent("counter").checkpoints(type="session_start")[0], reason="a wrong turn")
    keep_checkpoints(store)
    recover(store)
    with checkpoints.ShutdownCheckpoints(store, participants={"custom:queue": Queue()}, signals=()):
        pass
    with TemporaryDirectory() as folder:
        import_a_folder(store, Path(folder))
    find_damage(store)
    with Audit(store, wait=True):
        clerk.set("api_token", "t0p")
        clerk.get("api_token")


def keep_effects(state: sync.State) -> None:
    """One that is done, one whose end is not known, one that is planned."""
    effects = agents.Effects(state)
    effects.call("send-email", lambda effect: "receipt 1", key="order-17")
    with suppress(KeyboardInterrupt), effects.once("print", id="call_1", about={"invoice": 1}):
        raise KeyboardInterrupt
    with state.change() as change:
        effects.plan("send-email", id="call_2", about={"to": "Dan"}, into=change)


def keep_letters(clerk: sync.State, shop: sync.State) -> None:
    """Some that wait, one that was processed, one that failed, one that was set aside."""
    mailbox = agents.Mailbox(clerk, retry=RetryPolicy(max_attempts=1, delay=60))
    mailbox.send({"order": 17}, sender="agent:shop", id="order-17")
    with mailbox.next() as mail:
        mail.change.append("orders", mail.content)
        mail.send(shop, "accepted")
    for content in ("in vain", "waits"):
        mailbox.send(content)
    with suppress(TimeoutError), mailbox.next():
        raise TimeoutError


def keep_a_machine(state: sync.State) -> None:
    """Two transitions, and a third that is open."""
    machine = agents.Machine(state, MACHINE)
    machine.fire("send", to="Ann")
    machine.fire("again")


def hand_over(store: sync.Store) -> None:
    """An accepted one, one that is offered, one that was refused."""
    giver, handovers = store.agent("triage"), agents.Handovers(store)
    typed = agents.AgentState(giver)
    typed.append("conversation", Message(role="user", content="You charged me twice."))
    for id in ("t1", "t2", "t3"):
        typed.put("tasks", id, Task(id=id, title=f"invoice {id}"))
        handovers.offer(giver, "agent:billing", id, reason="money", id=f"offer-{id}")
    handovers.accept("agent:billing", "offer-t1")
    handovers.refuse("agent:billing", "offer-t2", reason="not ours")


def keep_checkpoints(store: sync.Store) -> None:
    """Pins, holds, policies, schedules, a group, dependencies and an operation."""
    state = store.agent("kept")
    state.set("plan", 1)
    made = [state.checkpoint(f"c{number}") for number in range(3)]
    retention = checkpoints.Retention(store)
    retention.pin(made[0], "a good one")
    retention.hold(made[1], "case 7")
    policies = checkpoints.Policies(store)
    condition = Condition("operation_count", "operation_count", "greater_than_or_equal", 10)
    policies.set(state, Policy("often", (condition,), retention=PolicyRetention(max_count=2)))
    policies.close()
    checkpoints.Scheduler(store).every(300, state)
    checkpoints.CheckpointGroups(store).create([state, store.agent("clerk")], "together")
    checkpoints.Checkpoints(store.agent("other")).create("rests", depends_on=[made[2]])
    with checkpoints.Checkpoints(state).operation("deploy"):
        state.set("plan", 2)


def recover(store: sync.Store) -> None:
    """A recovery with its records and its notices, and a watchdog that has looked."""
    state = store.agent("crashed")
    state.set("plan", "a")
    state.checkpoint("good")
    state.set("plan", "b")
    made = recovery.Recovery(store)
    made.recover(state, "agent_crash")
    recovery.Watchdog(store, made).look()


class Queue:
    """Takes part when a process ends."""

    def collect(self) -> list[str]:
        return ["a", "b"]

    def restore(self, kept: list[str], /) -> None:
        raise AssertionError


def import_a_folder(store: sync.Store, folder: Path) -> None:
    """An agent that lived in files: a task, what it remembers, letters, how far it is."""
    inbox = folder / "agent_comms" / "agent_mailboxes" / "filed" / "inbox"
    data = folder / "agent_data" / "filed"
    for one in (inbox / "processed", data):
        one.mkdir(parents=True)
    task = {"task_id": "T-1", "assigned_agent": "filed", "status": "in_progress", "name": "find"}
    for path, content in {
        folder / "working_tasks.json": [task],
        folder / "agent_status.json": {"agents": {"filed": {"cycle_count": 12}}},
        data / "context.json": {"goals": ["ship"]},
        data / "memory.json": {"session": {"user": "Ada"}},
        inbox / "processed" / "msg-1.json": {"content": "old"},
        inbox / "msg-2.json": {"content": "look", "from": "captain"},
    }.items():
        path.write_text(json.dumps(content))
    agents.import_folder(store.agent("filed"), folder, agent="filed")


def find_damage(store: sync.Store) -> None:
    """A row that is set aside, and what a watchdog saw that nobody has answered."""
    state = store.agent("kept")
    finding = Finding("damage", "agent:kept main@1", "it is damaged", row=b"E\0".hex())
    Quarantine(handle_of(store), state.scope).add([finding])
    seen = Sighting(state.scope, AgentFailure("error_rate", "9 of 10 failed"))
    Sightings(handle_of(store)).add(seen)


def told(store: sync.Store) -> dict[str, Any]:
    """What the public classes read of it, in JSON."""
    clerk, kept = store.agent("clerk"), store.agent("kept")
    mailbox, machine = agents.Mailbox(clerk), agents.Machine(clerk, MACHINE)
    handovers, made = agents.Handovers(store), recovery.Recovery(store)
    policies = checkpoints.Policies(store, watch=False)
    found: dict[str, Callable[[], Any]] = {
        "effects": agents.Effects(clerk).all,
        "letters": mailbox.waiting,
        "set aside": mailbox.set_aside,
        "letters of the shop": agents.Mailbox(store.agent("shop")).waiting,
        "machine": machine.now,
        "transitions": machine.transitions,
        "drift": agents.Drift(clerk).status,
        "offers": lambda: handovers.offers("agent:billing"),
        "handovers": lambda: handovers.history("agent:triage"),
        "tasks": lambda: agents.AgentState(store.agent("billing")).ids("tasks"),
        "agents": agents.Agents(store).list,
        "loop": lambda: agents.check_loop(store.agent("counter")),
        "restarts": lambda: checkpoints.Retention(store).marked("agent:counter"),
        "policies": lambda: policies.list(kept),
        "marks": lambda: checkpoints.Retention(store).marked(kept),
        "schedules": checkpoints.Scheduler(store).schedules,
        "checkpoints": lambda: kept.checkpoints(),
        "dependencies": lambda: store.agent("other").checkpoints(),
        "recoveries": lambda: made.reports("agent:crashed"),
        "notices": made.notices,
        "collected": lambda: store.custom("queue").get("$shutdown/collected"),
        "tasks of the files": lambda: agents.AgentState(store.agent("filed")).ids("tasks"),
        "letters of the files": agents.Mailbox(store.agent("filed")).waiting,
        "drift of the files": agents.Drift(store.agent("filed")).status,
        "quarantine": Quarantine(handle_of(store), kept.scope).list,
        "sightings": recovery.Watchdog(store, made).unanswered,
        "reads": lambda: Audit(store).reads("agent:clerk"),
        "keys": lambda: {str(one.scope): keys(store, one.scope) for one in store.scopes().items},
    }
    return {name: plain(call()) for name, call in found.items()}


def keys(store: sync.Store, scope: Any) -> list[str]:
    """All keys of a scope, those of features first."""
    state = store.scope(scope)
    return [*state.keys("$"), *state.keys()]


def plain(found: Any) -> Any:
    """Whatever it is, as JSON."""
    if isinstance(found, (list, tuple)):
        return [plain(one) for one in found]
    if isinstance(found, dict):
        return {str(key): plain(one) for key, one in found.items()}
    fields: Iterable[str] = getattr(found, "__dataclass_fields__", ()) or getattr(
        found, "__struct_fields__", ()
    )
    if fields:
        return {name: plain(getattr(found, name)) for name in fields if name[0] != "_"}
    try:
        return msgspec.json.decode(msgspec.json.encode(found))
    except TypeError:
        return str(found)


def main() -> None:
    """Write the file."""
    url = golden.fresh_url()
    with sync.open(url, clock=golden.Hands()) as store:
        fill(store)
        assert store.verify().ok
        records, cells = golden.rows_of(url)
    with opened(records, cells) as store:
        FILE.write_text(json.dumps({"records": records, "cells": cells, "told": told(store)}))


def opened(records: dict[str, str], cells: dict[str, str]) -> sync.Store:
    """A store of nothing but these rows, at the time at which they were written."""
    url = golden.fresh_url()
    golden.put_rows(url, records, cells)
    return sync.open(url, create=False, clock=golden.Hands())


if __name__ == "__main__":
    main()
