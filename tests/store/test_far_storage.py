"""Storage that waits for a network is never called by the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import holdfast
from holdfast import runtime
from holdfast.errors import MissingError
from holdfast.storage.batch import Life
from holdfast.storage.memory import MemoryStorage


class Noting(Life):
    """Every call comes by here."""

    def __init__(self, calls: list[tuple[str, int]]) -> None:
        super().__init__()
        self._calls = calls

    def check(self) -> None:
        self._calls.append(("call", threading.get_ident()))
        super().check()


class Far(MemoryStorage):
    """Says that it waits for a network, and notes which thread calls it."""

    limits = replace(MemoryStorage.limits, embedded=False)

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        super().__init__()
        self._life = Noting(self.calls)

    def turn(self) -> AbstractContextManager[object]:
        self.calls.append(("turn", threading.get_ident()))
        return super().turn()


async def use(store: Any, folder: Path) -> None:
    """A little of everything that is awaited."""
    a, b = store.agent("a"), store.agent("b")
    await a.set("k", 1)
    await a.append("l", 1)
    await a.extend("l", [2, 3])
    await a.trim("l", keep_last=2)
    await a.expire("k", 1000)
    await a.persist("k")
    assert [await a.get("k"), await a.tail("l", 5), await a.keys()] == [1, [2, 3], ["k", "l"]]
    await a.item("k")
    await a.items()
    await a.update("k", lambda value: value + 1)
    async with a.change(reason="both") as change:
        change.set("z", await change.get("k"))
    async with store.change(id="once") as change:
        change[b].set("k", await change[a].get("z"))
        await change[a].keys()
    point = await a.checkpoint("safe")
    await a.delete("z")
    await a.diff(point)
    await a.restore(point)
    trial = await a.fork("trial")
    await trial.set("k", 5)
    await a.merge(trial)
    await a.log()
    await a.root()
    await a.declare(holdfast.Sticky("done"))
    await a.put_file("file", folder / "file")
    async with store.lease("turn"):
        await a.set("k", 3)
    position = await store.position()
    assert [entry async for entry in store.feed()]
    await b.set("k", 4)
    watch = await asyncio.to_thread(store.watch, since=position, timeout=0.1)
    assert [entry.scope.id async for entry in watch] == ["b"]
    await use_agents(store)
    await use_runtime(store)
    await store.verify()
    await store.stats()
    await store.scopes()
    await store.delete("agent:b")
    await store.erase("agent:a")
    await store.sweep()


class Kept:
    """An agent, of a kind."""

    x = 0


async def use_agents(store: Any) -> None:
    """The same for what agents have."""
    state = store.agent("worker")
    mailbox = holdfast.agents.Mailbox(state, retry=holdfast.agents.RetryPolicy(kinds=()))
    for number in range(6):
        await mailbox.send(number, id=str(number))
    assert await mailbox.process(lambda mail: mail.change.set("last", mail.content), limit=1) == 1
    with suppress(ZeroDivisionError):
        async with mailbox.next():
            raise ZeroDivisionError
    assert [one.number for one in await mailbox.set_aside()] == [2]
    assert await mailbox.retry(2) == "1"
    await mailbox.remove(3)
    assert await mailbox.interrupted() == []
    assert await mailbox.clear_failed() == 0
    assert len(await mailbox.waiting()) == 4
    assert await mailbox.clear_all() == 4
    assert (await mailbox.status()).waiting == 0
    drift = holdfast.agents.Drift(state)
    assert await drift.note("look") == []
    assert (await drift.status()).cycles == 1
    assert await drift.alarms() == []
    await drift.reset()
    agents = holdfast.agents.Agents(store, {"kept": lambda _: Kept()}, fields={"kept": ["x"]})
    await agents.register("worker", kind="kept")
    assert await agents.identity("worker") is not None
    assert len(await agents.list()) == 1
    for missing in (agents.spawn, agents.run):
        with suppress(MissingError):
            await missing("nobody")


async def use_runtime(store: Any) -> None:
    """The same for what a daemon has; `emit` is not awaited, and waits for nothing all the same."""
    entities, log = runtime.Entities(store.custom("fleet")), runtime.Events(store)
    observations = runtime.Observations(entities, log)
    requests = runtime.Requests(store, lambda request: request.content)
    parts = [entities, log, observations, requests]
    async with runtime.Runtime(store, parts):
        assert await requests.result(await requests.submit("s", 1), timeout=30) == 1
        for id in ("critic", "writer", "other"):
            await entities.create("agent", id=id)
        for id in ("writer", "other"):
            await observations.subscribe("critic", id)
        await entities.delete("writer")
        log.emit("tool:call", {"agent_id": "writer"})
        log.emit("agent:terminated", {"agent_id": "other"})
        until = time.monotonic() + 30
        while await observations.list() or await entities.count("observation_subscription"):
            assert time.monotonic() < until
            await asyncio.sleep(0.01)


def test_no_call_that_is_awaited_holds_the_event_loop(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)

    async def main() -> Far:
        far = Far()
        async with holdfast.open("memory:", storage=far, durability="normal") as store:
            await use(store, tmp_path)
        return far

    far = asyncio.run(main())
    assert len(far.calls) > 300
    here = threading.get_ident()
    assert [name for name, thread in far.calls if thread == here] == []


def test_what_was_meant_is_what_it_was_when_asked() -> None:
    """Values are encoded in a thread, while their owners go on with them."""

    async def changed(asked: Any, value: dict[str, Any]) -> None:
        task = asyncio.ensure_future(asked)
        await asyncio.sleep(0)
        value["rows"][0]["n"] = -1
        value["rows"].append({"n": (1,)})
        await task

    async def test() -> None:
        async with holdfast.open("memory:", storage=Far()) as store:
            state = store.agent("a")
            for _ in range(20):
                for name, ask in (("set", state.set), ("append", state.append)):
                    value = {"rows": [{"n": n} for n in range(200)]}
                    await changed(ask(name, value), value)
                value = {"rows": [{"n": n} for n in range(200)]}
                await changed(state.extend("extend", [value]), value)
                meant = {"rows": [{"n": n} for n in range(200)]}
                assert await state.get("set") == meant
                assert await state.tail("append", 1) == await state.tail("extend", 1) == [meant]

    asyncio.run(test())
