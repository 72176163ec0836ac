"""Every public call of the async face that changes something, cancelled in the middle.

Each is cancelled, three times, while its first or second commit is on its way (or the first reads
of what only writes a file). When the task is told so, nothing of it may be at work any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cancel_kit import Middle, Slow
from store_kit import SOURCE

import holdfast
from holdfast import Lookup
from holdfast.checkpoints import Condition, Policy, RetentionRule
from holdfast.errors import RefusedError
from holdfast.recovery.procedure import BUILT_IN
from holdfast.seal.signer import Signer
from holdfast.storage import open_storage

POLICY = Policy("mine", (Condition("operation_count", "operation_count", "greater_than", 5),))


class World:
    """A store with something of everything in it."""

    def __init__(self, store: holdfast.Store, middle: Middle, folder: Path) -> None:
        self.store = store
        self.middle = middle
        self.folder = folder
        self.state = store.agent("1")
        self.checkpoints = holdfast.checkpoints.Checkpoints(self.state)
        self.retention = holdfast.checkpoints.Retention(
            store, rules={"routine": RetentionRule(max_count=1)}
        )
        self.recovery = holdfast.recovery.Recovery(store)
        self.groups = holdfast.checkpoints.CheckpointGroups(store)
        self.policies = holdfast.checkpoints.Policies(store, watch=False)
        self.scheduler = holdfast.checkpoints.Scheduler(store)
        self.effects = holdfast.agents.Effects(self.state)
        self.agents = holdfast.agents.Agents(store, {"": lambda _: Kept()}, fields={"": ["x"]})
        self.source = folder / "source"
        self.made: Any = None

    async def fill(self) -> World:
        """Write what calls need."""
        self.source.write_bytes(b"0123456789" * 300_000)
        if not (self.folder / "other").exists():
            Signer.create(self.folder / "other")
        state = self.state
        for number in range(30):
            await state.set(f"k/{number}", {"n": number})
        await state.set("a", 1, subject="user:1")
        await state.extend("list", range(10))
        await state.put_file("file", self.source)
        await state.set("old", 1, ttl=0.001)
        await state.set("brief", 1, ttl=600)
        with self.store.acting(correlation="c"):
            await state.set("undone", 1)
        for number in range(5):
            await state.set("x", number)
            self.made = await state.checkpoint(f"c{number}", type="routine")
        await state.set("x", "now")
        other = await state.fork("other")
        await other.set("theirs", 1)
        await state.fork("spare")
        await self.store.agent("2").set("x", 1)
        await self.agents.register("3")
        return self

    async def operation(self) -> None:
        async with self.checkpoints.operation("o"):
            await self.state.set("x", "in it")
            raise ValueError

    async def lease(self) -> None:
        async with self.store.lease("l"):
            pass

    async def write(self) -> None:
        async with self.state.open_write("long") as file:
            for _ in range(4):
                await file.write(b"0123456789" * 150_000)

    async def change(self) -> None:
        async with self.store.change() as change:
            change[self.state].set("x", 1)
            change[self.store.agent("2")].set("x", 1, subject="user:2")

    async def imported(self) -> None:
        path = self.folder / "export"
        await holdfast.checkpoints.export_checkpoint(self.state, path, plain=True)
        await holdfast.checkpoints.import_checkpoint(self.store.agent("2"), path)

    async def attached(self) -> None:
        async with holdfast.agents.attach(Kept(), self.store.agent("4"), fields=["x"]) as kept:
            kept.agent.x.append(2)
            await kept.save()

    async def once(self) -> None:
        async with self.effects.once("mail", id="1") as doing:
            if doing.due:
                doing.result = 1

    async def tail(self) -> None:
        async with holdfast.checkpoints.ShutdownCheckpoints(self.store, signals=()):
            await self.state.set("x", 2)


class Kept:
    """An agent."""

    def __init__(self) -> None:
        self.x = [1]


Call = Callable[[World], Awaitable[Any]]
COMMITS: dict[str, Call] = {
    # of a state
    "State.set": lambda w: w.state.set("x", 1, subject="user:3"),
    "State.set_many": lambda w: w.state.set_many({"x": 1, "y": 2}),
    "State.undo": lambda w: w.state.undo(),
    "State.append": lambda w: w.state.append("list", 1),
    "State.extend": lambda w: w.state.extend("list", [1]),
    "State.delete": lambda w: w.state.delete("x"),
    "State.update": lambda w: w.state.update("n", lambda _: 1),
    "State.trim": lambda w: w.state.trim("list", keep_last=2),
    "State.expire": lambda w: w.state.expire("x", 100),
    "State.persist": lambda w: w.state.persist("brief"),
    "State.checkpoint": lambda w: w.state.checkpoint("new"),
    "State.cosign": lambda w: w.state.cosign(w.made, signer=f"file:{w.folder}/other"),
    "State.restore": lambda w: w.state.restore("c1"),
    "State.adopt": lambda w: w.state.adopt("other"),
    "State.fork": lambda w: w.state.fork("new"),
    "State.merge": lambda w: w.state.merge("other"),
    "State.revert": lambda w: w.state.revert(correlation="c"),
    "State.declare": lambda w: w.state.declare(Lookup("l", "k/", terms="n")),
    "State.undeclare": lambda w: _then(
        w, w.state.declare(Lookup("l", "k/", terms="n")), lambda: w.state.undeclare(
            Lookup("l", "k/", terms="n")
        )
    ),
    "State.sweep": lambda w: w.state.sweep(),
    "State.prune": lambda w: w.state.prune("c3", keep=[]),
    "State.put_file": lambda w: w.state.put_file("long", w.source),
    "State.open_write": World.write,
    # of a store
    "Store.change": World.change,
    "Store.lease": World.lease,
    "Store.break_lease": lambda w: _then(w, w.lease(), lambda: w.store.break_lease("l")),
    "Store.delete": lambda w: w.store.delete("agent:1"),
    "Store.erase": lambda w: w.store.erase("agent:1"),
    "Store.erase_subject": lambda w: w.store.erase_subject("user:1"),
    "Store.revert": lambda w: w.store.revert(correlation="c"),
    "Store.sweep": lambda w: w.store.sweep(),
    "Store.rotate": lambda w: w.store.rotate("agent:1"),
    "Store.reseal": lambda w: _then(
        w, w.store.rotate("agent:1"), lambda: w.store.reseal("agent:1")
    ),
    "Store.begin_rotation": lambda w: w.store.begin_rotation(f"file:{w.folder}/new.key"),
    "Store.finish_rotation": lambda w: _then(
        w, w.store.begin_rotation(f"file:{w.folder}/new.key"), w.store.finish_rotation
    ),
    "Store.rotate_master": lambda w: w.store.rotate_master(f"file:{w.folder}/new.key"),
    # of checkpoints
    "Checkpoints.create": lambda w: w.checkpoints.create("new"),
    "Checkpoints.restore": lambda w: w.checkpoints.restore("c1", validate=lambda _: False),
    "Checkpoints.confirm": lambda w: _then(
        w, w.checkpoints.restore("c1"), lambda: w.checkpoints.confirm(w.made)
    ),
    "Checkpoints.recover": lambda w: w.checkpoints.recover(name="c1"),
    "Checkpoints.simulate": lambda w: w.checkpoints.simulate(lambda state: state.set("x", 9), "c1"),
    "Checkpoints.operation": World.operation,
    "CheckpointGroups.create": lambda w: w.groups.create([w.state, "agent:2"], "group"),
    "CheckpointGroups.restore": lambda w: _then(
        w, w.groups.create([w.state, "agent:2"], "group"), lambda: w.groups.restore(w.made)
    ),
    "ShutdownCheckpoints": World.tail,
    "Retention.run": lambda w: w.retention.run(w.state, confirm=True),
    "Retention.end": lambda w: w.retention.end(w.state, "spare"),
    "Retention.pin": lambda w: w.retention.pin(w.made),
    "Retention.hold": lambda w: w.retention.hold(w.made, "why"),
    "Retention.clear": lambda w: w.retention.clear(w.made),
    "Policies.set": lambda w: w.policies.set(w.state, POLICY),
    "Policies.schedule": lambda w: w.policies.schedule(w.state),
    "Scheduler.every": lambda w: w.scheduler.every(60, w.state),
    "Scheduler.cron": lambda w: w.scheduler.cron("0 3 * * *", w.state),
    "Scheduler.remove": lambda w: _then(
        w, w.scheduler.every(60, w.state, name="s"), lambda: w.scheduler.remove("s")
    ),
    "import_checkpoint": World.imported,
    # of agents
    "Agents.register": lambda w: w.agents.register("5"),
    "Agents.spawn": lambda w: w.agents.spawn("3"),
    "Agents.stop": lambda w: _then(w, w.agents.spawn("3"), lambda: w.agents.stop("3")),
    "Attached": World.attached,
    "Effects.once": World.once,
    "Effects.plan": lambda w: w.effects.plan("mail", id="1"),
    "Recovery.keep": lambda w: w.recovery.keep(BUILT_IN[0]),
    "Recovery.drop": lambda w: _then(
        w, w.recovery.keep(BUILT_IN[0]), lambda: w.recovery.drop(BUILT_IN[0].id)
    ),
    "Recovery.recover": lambda w: w.recovery.recover(w.state, "agent_crash"),
    "Recovery.recover_each": lambda w: w.recovery.recover_each(
        [w.state, w.store.agent("2")], "agent_crash"
    ),
}  # fmt: skip
READS: dict[str, Call] = {
    "State.get_file": lambda w: w.state.get_file("file", w.folder / "out"),
    "State.export_chain": lambda w: w.state.export_chain(w.folder / "out"),
    "export_checkpoint": lambda w: holdfast.checkpoints.export_checkpoint(
        w.state, w.folder / "out", plain=True
    ),
}
"""Those that write a file."""


async def _then(world: World, first: Awaitable[Any], call: Callable[[], Awaitable[Any]]) -> Any:
    """A call that rests on another, which is not cancelled."""
    number, world.middle.left = world.middle.left, 0
    world.made = await first
    world.middle.left = number
    return await call()


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[World]:
    """A new world."""
    middle = Middle()
    storage = Slow(open_storage("memory:"), middle)
    keys = {"key": f"file:{folder}/key", "signer": f"file:{folder}/signer"}
    async with holdfast.open("memory:", storage=storage, commit="thread", **keys) as store:
        ring = store._core.ring
        assert ring is not None
        ring.storage = Slow(ring.storage, middle)
        yield await World(store, middle, folder).fill()


async def cut_short(world: World, call: Call, names: tuple[str, ...], number: int) -> bool:
    """Cancel a call in the middle; tells whether it was."""
    middle = world.middle

    async def run() -> None:
        await call(world)

    task = asyncio.create_task(run())
    middle.cancels(task, names, number)
    with contextlib.suppress(asyncio.CancelledError, ValueError, RefusedError):
        await task
    assert not middle.busy, "something of it is at work"
    commits = middle.commits
    await asyncio.sleep(0.04)
    assert middle.commits == commits, "something of it went on"
    return task.cancelled()


@pytest.mark.parametrize("name", [*COMMITS, *READS])
def test_nothing_is_at_work_when_the_task_is_told(name: str, tmp_path: Path) -> None:
    async def test(number: int) -> bool:
        async with opened(tmp_path) as world:
            names = ("commit",) if name in COMMITS else ("get", "scan")
            found = await cut_short(world, (COMMITS | READS)[name], names, number)
            assert (await world.store.verify()).findings == []
            held = [one.name for one in await world.store.leases() if one.owner is not None]
            assert not found or held == []
            return found

    assert asyncio.run(test(1))
    asyncio.run(test(2))


def test_every_call_that_changes_something_is_here() -> None:
    reads = """
        blame checkpoints class_of declared diff exists find get get_many history item items keys length
        log prove read_range replay root slice tail timelines correlated keyring leases position
        scopes stats subjects verify witness held inspect locate of plan marked health
        kept notices procedures report reports select statistics why_kept
    """
    alike = "add_key close finish lift unpin deliver recover_group resume"
    saved, recovery = holdfast.checkpoints, holdfast.recovery
    for face in (
        *(holdfast.State, holdfast.Store, recovery.Recovery),
        *(saved.Checkpoints, saved.CheckpointGroups, saved.Retention),
    ):
        kind = face.__name__
        methods = inspect.getmembers(face, inspect.iscoroutinefunction)
        names = {name for name, _ in methods if not name.startswith("_")}
        assert {f"{kind}.{name}" for name in names - {*reads.split(), *alike.split()}} <= {
            *COMMITS,
            *READS,
        }, kind


def test_threads_are_used_in_one_place() -> None:
    """So that the rule holds for every call."""
    found = [
        path.name
        for path in Path(SOURCE, "holdfast").rglob("*.py")
        if re.search(r"to_thread|run_in_executor|shield\(", path.read_text())
    ]
    assert found == ["threads.py"]
