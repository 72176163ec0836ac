"""What is there after a call was cancelled, again and again: all of it, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cancel_kit import Middle, Slow

import holdfast
from holdfast import sync
from holdfast.agents import StepResult
from holdfast.checkpoints import RetentionRule
from holdfast.errors import InvalidInputError
from holdfast.storage import open_storage

LAST = 5
"""The commit of this import that is the restore."""
Test = Callable[[holdfast.Store, Middle], Awaitable[None]]


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[tuple[holdfast.Store, Middle]]:
    middle = Middle()
    storage = Slow(open_storage("memory:"), middle)
    async with holdfast.open("memory:", storage=storage, commit="thread") as store:
        yield store, middle


def run(test: Test) -> None:
    async def inside() -> None:
        async with opened() as (store, middle):
            await test(store, middle)
            assert (await store.verify()).findings == []

    asyncio.run(inside())


async def cut(
    middle: Middle, call: Awaitable[Any], names: tuple[str, ...] = ("commit",), number: int = 1
) -> None:
    """Cancel a call in the middle."""

    async def task() -> None:
        await call

    running = asyncio.create_task(task())
    middle.cancels(running, names, number)
    with pytest.raises(asyncio.CancelledError):
        await running


def descriptors(path: Path) -> int:
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{number}").startswith(str(path))
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="nowhere to look")
def test_an_opening_leaves_nothing_open(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "store.db"
        async with holdfast.open(f"sqlite:{path}") as store:
            await store.agent("1").set("k", 1)
        for turns in range(20):
            task = asyncio.ensure_future(holdfast.open(f"sqlite:{path}").__aenter__())
            for _ in range(turns):
                await asyncio.sleep(0)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).close()
            assert descriptors(path) == 0

    asyncio.run(test())


def test_an_opening_that_nobody_has_is_closed() -> None:
    async def test() -> None:
        middle = Middle()
        storage = Slow(open_storage("memory:"), middle)
        await cut(middle, holdfast.open("memory:", storage=storage).__aenter__())
        assert storage.calls["close"] == 1

    asyncio.run(test())


@pytest.mark.parametrize("number", [1, 2, 3, 4, LAST])
def test_an_import_is_taken_over_or_not_and_never_later(number: int, tmp_path: Path) -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        one, two = store.agent("1"), store.agent("2")
        for part in range(4):
            async with one.change() as change:
                for key in range(600):
                    change.set(f"k/{part}/{key}", "v" * 100)
        await one.checkpoint("full")
        await holdfast.checkpoints.export_checkpoint(one, tmp_path / "x")
        await two.set("own", "precious")
        await cut(
            middle, holdfast.checkpoints.import_checkpoint(two, tmp_path / "x"), number=number
        )
        keys = await two.keys()
        if number == LAST:
            assert len(keys) == 2400
        else:
            assert keys == ["own"]
            assert [line.name for line in await two.timelines()] == ["main"]

    run(test)


def test_an_export_leaves_no_file(tmp_path: Path) -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        state = store.agent("1")
        for key in range(50):
            await state.set(f"k/{key}", "v" * 2000)
        await state.checkpoint("c")
        await cut(
            middle, holdfast.checkpoints.export_checkpoint(state, tmp_path / "x"), ("get", "scan")
        )
        assert os.listdir(tmp_path) == []

    run(test)


def test_a_restore_that_nobody_validated_is_put_back() -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        state = store.agent("1")
        await state.set("x", "then")
        await state.checkpoint("good")
        await state.set("x", "now")
        checkpoints = holdfast.checkpoints.Checkpoints(state)
        await cut(middle, checkpoints.restore("good", validate=lambda _: False))
        assert await state.get("x") == "now"
        assert await checkpoints.held() == []

    run(test)


@pytest.mark.spec("S75")
@pytest.mark.parametrize("how", ["state", "request", "shutdown"])
def test_a_checkpoint_that_is_being_saved_is_saved(how: str) -> None:
    """Cancelled in the middle, however often, the task ends behind it: it is there, and whole."""

    async def test(store: holdfast.Store, middle: Middle) -> None:
        state = store.agent("1")
        await state.set("x", 1)

        async def saves() -> None:
            if how == "state":
                await state.checkpoint("kept")
            elif how == "request":
                await holdfast.checkpoints.Checkpoints(state).create("kept")
            else:
                async with holdfast.checkpoints.ShutdownCheckpoints(store, [state], signals=()):
                    pass

        await cut(middle, saves())
        assert not middle.busy
        (kept,) = await state.checkpoints()
        assert kept.name == ("shutdown" if how == "shutdown" else "kept")
        assert (await holdfast.checkpoints.Checkpoints(state).inspect(kept)).integrity.valid
        await state.set("x", 2)
        await state.restore(kept)
        assert await state.get("x") == 1

    run(test)


def test_an_operation_that_never_began_holds_nothing() -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        state = store.agent("1")
        await state.set("x", 1)
        checkpoints = holdfast.checkpoints.Checkpoints(state)

        async def operation() -> None:
            async with checkpoints.operation("o"):
                raise AssertionError("it was cancelled before")

        await cut(middle, operation())
        assert await checkpoints.held() == []
        await state.set("x", 2)
        assert (await state.log(limit=1))[0].cause.operation is None

    run(test)


def test_files_stop_at_the_next_piece(tmp_path: Path) -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        state = store.agent("1")
        await cut(middle, state.put_file("endless", "/dev/urandom"), number=2)
        assert not await state.exists("endless")
        (tmp_path / "source").write_bytes(os.urandom(8 << 20))
        await state.put_file("long", tmp_path / "source")
        target = tmp_path / "target"
        target.write_text("what was there")
        await cut(middle, state.get_file("long", target), ("get", "scan"))
        assert target.read_text() == "what was there"
        assert sorted(os.listdir(tmp_path)) == ["source", "target"]
        assert (await store.sweep()).waiting == 0

    run(test)


def test_a_cancelled_write_ends_the_stream() -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        state = store.agent("1")
        with pytest.raises(InvalidInputError, match="a write was cancelled"):
            async with state.open_write("k") as file:
                await file.write(b"a" * 2_000_000)
                await cut(middle, file.write(os.urandom(8_000_000)))
                await file.write(b"b")
        assert not await state.exists("k")

    run(test)


@pytest.mark.parametrize("number", [1, 2])
def test_a_lease_is_given_back(number: int) -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        async def hold() -> None:
            async with store.lease("l"):
                pass

        await cut(middle, hold(), number=number)
        assert [one.owner for one in await store.leases()] == [None]
        async with store.lease("l", wait=0):
            pass

    run(test)


class Counter(holdfast.agents.Agent):
    """Counts until it is stopped."""

    persistent = ("n",)
    n = 0

    async def step(self) -> StepResult:
        """Count."""
        self.n += 1
        await asyncio.sleep(0.001)
        return StepResult(f"step {self.n}")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_loop_gives_its_lease_back(number: int) -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        state = store.agent("1")
        await cut(middle, holdfast.agents.run(Counter, state, signals=()), number=number)
        assert [one.owner for one in await store.leases()] == [None]

    run(test)


def test_a_loop_that_waits_for_its_lease_can_be_stopped() -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        loop = holdfast.agents.Loop(store.agent("1"), Counter, signals=())
        outside = contextvars.copy_context()
        async with store.lease("agent/1"):
            running = asyncio.create_task(loop.run(), context=outside)
            await asyncio.sleep(0.05)
            loop.stop()
            async with asyncio.timeout(60):
                assert (await running).outcome == "stopped"

    run(test)


def test_an_attachment_knows_what_was_saved() -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        class Thing:
            def __init__(self) -> None:
                self.x = ["1"]

        thing, state = Thing(), store.agent("1")
        async with holdfast.agents.attach(thing, state, fields=["x"]) as kept:
            thing.x.append("2")
            await cut(middle, kept.save())
            thing.x.append("3")
        assert await state.get("$agent/attached/x") == ["1", "2", "3"]

    run(test)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_agent_that_was_not_spawned_does_not_run(number: int) -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        agents = holdfast.agents.Agents(store, {"": lambda _: Counter()})
        await agents.register("1")
        spawning = asyncio.create_task(agents.spawn("1"))
        middle.cancels(spawning, number=number)
        with contextlib.suppress(asyncio.CancelledError):
            await spawning
        [info] = await agents.list()
        assert (info.status == "running") == (not spawning.cancelled())
        assert (info.owner is None) == spawning.cancelled()

    run(test)


def test_a_retention_run_stops_and_is_finished_by_the_next() -> None:
    async def test(store: holdfast.Store, middle: Middle) -> None:
        state = store.agent("1")
        for number in range(400):
            await state.set("x", number)
            await state.checkpoint(f"c{number}", type="routine")
        retention = holdfast.checkpoints.Retention(
            store, rules={"routine": RetentionRule(max_count=1)}
        )
        await cut(middle, retention.run(state, confirm=True), number=3)
        [left] = await retention.run(state, confirm=True)
        assert left.entries
        assert len(await state.checkpoints()) == 1

    run(test)


def test_leaving_the_agents_ends_their_loops() -> None:
    class Noticed(Counter):
        async def step(self) -> StepResult:
            begun.set()
            return await super().step()

    begun = asyncio.Event()

    async def test(store: holdfast.Store, middle: Middle) -> None:
        async with holdfast.agents.Agents(store, {"": lambda _: Noticed()}) as agents:
            await agents.register("1")
            running = asyncio.create_task(agents.run("1", signals=()))
            await asyncio.wait_for(begun.wait(), 60)
        [info] = await holdfast.agents.Agents(store).list()
        assert (info.status, info.owner) == ("stopped", None)
        assert (await running).outcome == "stopped"

    run(test)


def test_leaving_the_agents_ends_their_loops_on_the_blocking_face() -> None:
    class Blocking(sync.agents.Agent):
        persistent = ("n",)
        n = 0

        def step(self) -> StepResult:
            self.n += 1
            begun.set()
            return StepResult(f"step {self.n}")

    begun = threading.Event()
    outcomes: list[str] = []
    with sync.open("memory:") as store:
        with sync.agents.Agents(store, {"": lambda _: Blocking()}) as agents:
            agents.register("1")
            thread = threading.Thread(
                target=lambda: outcomes.append(agents.run("1", signals=()).outcome)
            )
            thread.start()
            assert begun.wait(60)
        [info] = sync.agents.Agents(store).list()
        assert (info.status, info.owner) == ("stopped", None)
        thread.join(60)
    assert outcomes == ["stopped"]
