"""The life of a daemon: phases in their order, whatever a module does, and what answers by name."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
import holdfast.sync.runtime
from holdfast import sync
from holdfast.errors import (
    EntityExistsError,
    EntityNotFoundError,
    InvalidInputError,
    MissingError,
    RuntimeStartError,
)
from holdfast.runtime import (
    Entities,
    Events,
    Observations,
    Queue,
    Requests,
    Runtime,
    handles,
)
from holdfast.runtime.life_cycle import (
    API,
    CONTEXT,
    READY,
    SHUTDOWN,
    STARTUP,
    answers_of,
    parameters_of,
)


def run(place: Place, main: Callable[[holdfast.Store], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            await asyncio.wait_for(main(store), 60)

    asyncio.run(bounded())


class Recorder:
    """Writes down what it is told of, and fails or is slow where it is asked to."""

    def __init__(self, name: str, told: list[str], fails: str = "", slow: str = "") -> None:
        self.name, self.told, self.fails, self.slow = name, told, fails, slow

    async def _phase(self, phase: str) -> None:
        self.told.append(f"{phase} {self.name}")
        if phase == self.slow:
            await asyncio.sleep(0.1)
            self.told.append(f"{phase} {self.name} late")
        if phase == self.fails:
            raise OSError("no room")

    async def startup(self, runtime: Runtime) -> None:
        runtime.shared[self.name] = self
        await self._phase("startup")

    async def context(self, shared: dict[str, Any]) -> None:
        assert shared["store"] is shared["runtime"].store
        assert {"a", "b", "c"} <= shared.keys(), "all that have started are there"
        await self._phase("context")

    async def ready(self) -> None:
        await self._phase("ready")

    async def shutdown(self, runtime: Runtime) -> None:
        await self._phase("shutdown")


def three(told: list[str], **how: dict[str, str]) -> list[Recorder]:
    return [Recorder(name, told, **how.get(name, {})) for name in "abc"]


ORDER = [
    *(f"startup {one}" for one in "abc"),
    *(f"context {one}" for one in "abc"),
    *(f"ready {one}" for one in "abc"),
    *(f"shutdown {one}" for one in "cba"),
]


@pytest.mark.spec("S135", "S136", "S137", "S138", "S143")
def test_phases_run_in_order_and_the_end_the_other_way_round(plain: Place) -> None:
    async def main(store: holdfast.Store) -> None:
        told: list[str] = []
        runtime = Runtime(store, three(told))
        assert (runtime.phase, told) == ("", []), "making one begins nothing"
        async with runtime:
            assert runtime.phase == READY
            assert told == ORDER[:9]
        assert told == ORDER
        assert runtime.phase == SHUTDOWN

    run(plain, main)


@pytest.mark.spec("S143", "S137", "S138")
def test_a_slow_module_is_waited_for(plain: Place) -> None:
    async def main(store: holdfast.Store) -> None:
        told: list[str] = []
        slow = {"a": {"slow": "startup"}, "b": {"slow": "context"}, "c": {"slow": "ready"}}
        async with Runtime(store, three(told, **slow)):
            told.append("all ready")
        plainly = [one for one in told if not one.endswith("late")]
        assert plainly == [*ORDER[:9], "all ready", *ORDER[9:]]
        assert told.index("startup a late") < told.index("startup b")
        assert told.index("context b late") < told.index("context c")
        assert told.index("ready c late") < told.index("all ready")

    run(plain, main)


@pytest.mark.spec("S136", "S142", "S143")
@pytest.mark.parametrize("phase", ["startup", "context", "ready"])
def test_a_module_that_fails_stops_the_start_with_its_name(plain: Place, phase: str) -> None:
    async def main(store: holdfast.Store) -> None:
        told: list[str] = []
        with pytest.raises(
            RuntimeStartError, match=f"system:{phase}: the module b failed"
        ) as found:
            async with Runtime(store, three(told, b={"fails": phase})):
                told.append("never")
        assert (found.value.module, found.value.phase) == ("b", f"system:{phase}")
        assert "never" not in told
        ended = [one[-1] for one in told if one.startswith("shutdown")]
        assert ended == (["b", "a"] if phase == "startup" else ["c", "b", "a"])

    run(plain, main)


@pytest.mark.spec("S142")
def test_a_module_that_does_not_end_keeps_no_other_from_ending(plain: Place) -> None:
    async def main(store: holdfast.Store) -> None:
        told: list[str] = []
        with pytest.raises(RuntimeStartError, match="b failed with OSError: no room"):
            async with Runtime(store, three(told, b={"fails": "shutdown"})):
                pass
        assert told == ORDER

        class Stuck(Recorder):
            async def shutdown(self, runtime: Runtime) -> None:
                await asyncio.sleep(3600)

        class Offline(Recorder):
            async def shutdown(self, runtime: Runtime) -> None:
                raise TimeoutError("no answer")

        with pytest.raises(RuntimeStartError, match="d failed with TimeoutError: no answer"):
            async with Runtime(store, [*three(told), Offline("d", told)]):
                pass
        told.clear()
        modules = [*three(told), Stuck("d", told)]
        with pytest.raises(RuntimeStartError, match=r"d took longer than 0\.2 s"):
            async with Runtime(store, modules, timeout=0.2):
                pass
        assert told[-3:] == ORDER[-3:]

    run(plain, main)


HANGING = """
import asyncio, sys, threading
import holdfast
from holdfast.agents import RetryPolicy
from holdfast.runtime import Entities, Events, Observations, Requests, Runtime
url, kind = sys.argv[1:]
def plain(request):
    if request.attempt == 1:
        print("begun", flush=True)
        threading.Event().wait()
    return request.attempt
async def waits(request):
    if request.attempt == 1:
        print("begun", flush=True)
        await asyncio.sleep(3600)
    return request.attempt
async def main():
    async with holdfast.open(url) as store:
        entities, log = Entities(store.custom("fleet")), Events(store)
        never = lambda *_: threading.Event().wait()
        worker = {"plain": plain, "async": waits}[kind]
        requests = Requests(store, worker, retry=RetryPolicy(delay=0.01))
        observations = Observations(entities, log, deliver=never)
        async with Runtime(store, [entities, log, requests, observations], timeout=1):
            for id in "ab":
                if not await entities.exists(id):
                    await entities.create("agent", id=id)
            await observations.subscribe("a", "b")
            log.emit("tool:call", {"agent_id": "b"})
            ticket = await requests.submit("s", 1, id="r")
            try:
                print(await requests.result(ticket, timeout=1), flush=True)
            except TimeoutError:
                pass
    print("ended", flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_worker_or_an_observer_without_an_end_keeps_no_daemon_from_ending(
    tmp_path: Path, kind: str
) -> None:
    """What was under way is tried again after the next start."""
    place, told = Place("sqlite", tmp_path, sealed=False), []
    for _ in range(2):
        words = [sys.executable, "-c", HANGING, place.url, kind]
        done = subprocess.run(words, env=place.environment(), capture_output=True, timeout=60)
        told.append((done.returncode, done.stdout.decode().split()))
        assert b"RuntimeStartError" not in done.stderr, done.stderr
    assert told == [(0, ["begun", "ended"]), (0, ["2", "ended"])]


def test_what_can_be_no_module_is_refused_and_so_is_a_second_entry(plain: Place) -> None:
    async def main(store: holdfast.Store) -> None:
        for one in (None, Recorder, "fleet"):
            with pytest.raises(InvalidInputError, match="a module is an object"):
                Runtime(store, [one])
        runtime = Runtime(store)
        async with runtime:
            with pytest.raises(InvalidInputError, match="entered once"):
                await runtime.__aenter__()
        with pytest.raises(InvalidInputError, match="entered once"):
            await runtime.__aenter__()

    run(plain, main)


def test_a_start_that_takes_too_long_or_is_cancelled_is_ended(plain: Place) -> None:
    async def main(store: holdfast.Store) -> None:
        class Stuck(Recorder):
            async def ready(self) -> None:
                await asyncio.sleep(3600)

        for timeout in (0.1, 3600.0):
            told: list[str] = []
            runtime = Runtime(store, [*three(told), Stuck("d", told)], timeout=timeout)
            if timeout < 1:
                with pytest.raises(RuntimeStartError, match="took longer"):
                    await runtime.__aenter__()
            else:
                task = asyncio.create_task(runtime.__aenter__())
                await asyncio.sleep(0.1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert [one[-1] for one in told if one.startswith("shutdown")] == ["d", "c", "b", "a"]

    run(plain, main)


@pytest.mark.spec("S139", "S140", "S141", "S142")
def test_phases_are_events_for_handlers_and_the_log(plain: Place) -> None:
    async def main(store: holdfast.Store) -> None:
        told: list[str] = []

        class Told:
            @handles(STARTUP)
            def first(self, data: dict[str, Any]) -> None:
                told.append(data["phase"])

            @handles(CONTEXT)
            async def second(self, data: dict[str, Any]) -> None:
                told.append(data["phase"])

            third = handles(READY)(lambda _, data: told.append(data["phase"]))
            last = handles(SHUTDOWN)(lambda _, data: told.append(data["phase"]))

        async with Runtime(store, [Events(store), Told()]):
            pass
        wanted = ["system:startup", "system:context", "system:ready", "system:shutdown"]
        assert told == wanted
        again = Events(store)
        assert [one.event_name for one in await again.query("system:*")] == wanted, "flushed"

    run(plain, main)


class Keeper:
    """Takes part in the checkpoint of the end."""

    name = "keeper"

    def __init__(self, told: list[str], held: Any = None) -> None:
        self.told, self.held = told, held

    async def ready(self) -> None:
        self.told.append("ready keeper")

    def collect(self) -> Any:
        return self.held

    def restore(self, kept: Any) -> None:
        self.told.append(f"restored {kept}")


@pytest.mark.spec("S143", "S138", "S79")
def test_what_was_kept_is_restored_once_and_only_when_all_are_ready(place: Place) -> None:
    async def first(store: holdfast.Store) -> None:
        async with Runtime(store, [Keeper([], {"waits": [1, 2]})]):
            pass

    told: list[str] = []

    class Last(Recorder):
        async def context(self, shared: dict[str, Any]) -> None:
            await self._phase("context")

    async def again(store: holdfast.Store) -> None:
        modules = [Keeper(told), Last("a", told, slow="ready")]
        async with Runtime(store, modules):
            told.append("begun")

    run(place, first)
    run(place, again)
    assert told[-4:] == ["ready a late", "restored {'waits': [1, 2]}", "begun", "shutdown a"]
    told.clear()
    run(place, again)
    assert not [one for one in told if one.startswith("restored {")], "once"


def test_of_two_modules_of_one_name_both_keep_what_they_have_or_none_begins(plain: Place) -> None:
    class Other(Keeper):
        name = "other"

    async def main(store: holdfast.Store) -> None:
        with pytest.raises(InvalidInputError, match="two modules are called keeper"):
            Runtime(store, [Keeper([], 1), Keeper([], 2)])
        async with Runtime(store, [Keeper([], 1), Other([], 2)]):
            pass
        told: list[str] = []
        async with Runtime(store, [Other(told), Keeper(told)]):
            assert sorted(told)[-2:] == ["restored 1", "restored 2"]

    run(plain, main)


@pytest.mark.spec("S66", "S64", "S145", "S138")
def test_requests_in_memory_are_submitted_again_behind_ready(place: Place) -> None:
    order: list[str] = []

    async def worker(request: Any) -> Any:
        order.append(f"worked at {request.id}")
        return request.content

    class Watch:
        async def ready(self) -> None:
            await asyncio.sleep(0.2)
            order.append("ready")

    async def first(store: holdfast.Store) -> None:
        requests = Requests(store, worker, memory=True)
        runtime = Runtime(store, [requests])
        async with runtime:
            await requests.stop()
            await requests.submit("s", 7, id="r7")

    async def second(store: holdfast.Store) -> None:
        requests = Requests(store, worker, memory=True)
        async with Runtime(store, [requests, Watch()]):
            assert await requests.result("s/r7", timeout=30) == 7

    run(place, first)
    assert order == []
    run(place, second)
    assert order == ["ready", "worked at r7"]


@pytest.mark.spec("S56", "S63", "S65")
def test_what_the_shutdown_let_finish_is_not_done_again_by_the_next_life(place: Place) -> None:
    """What is at work has its time to end; only what is left then is kept."""
    done: list[tuple[str, int]] = []

    async def life(store: holdfast.Store, *asked: str) -> None:
        begun, free = asyncio.Event(), asyncio.Event()

        async def worker(request: Any) -> None:
            begun.set()
            await free.wait()
            done.append((request.id, request.attempt))

        class Last:
            async def shutdown(self) -> None:
                free.set()  # only now, so all is at work, or waits, when the end begins

        requests = Requests(store, worker, memory=True, concurrency=1)
        async with Runtime(store, [requests, Last()]):
            for id in asked:
                await requests.submit("s", id, id=id)
            await asyncio.wait_for(begun.wait(), 30)

    run(place, lambda store: life(store, "r1", "r2"))
    assert ("r1", 1) in done
    run(place, lambda store: life(store, "r3"))
    run(place, lambda store: life(store, "r4"))
    assert len(done) == len({id for id, _ in done}), done


# ---- what answers by name -----------------------------------------------------------------------


@pytest.mark.spec("X29", "X30")
def test_entities_answer_by_name(plain: Place) -> None:
    async def main(store: holdfast.Store) -> None:
        runtime = Runtime(store, [Entities(store.custom("fleet"))])
        send = runtime.send
        async with runtime:
            made = await send("state:entity:create", {"type": "agent", "properties": {"load": 1}})
            assert made["id"].startswith("agent_")
            assert made["created_at_iso"].endswith("+00:00")
            assert isinstance(made["created_at"], float)
            await send("state:entity:create", {"type": "agent", "id": "b"})
            with pytest.raises(EntityExistsError):
                await send("state:entity:create", {"type": "agent", "id": "b"})
            some = [{"type": "t", "id": "c"}, {"type": "t", "id": "d"}]
            assert len(await send("state:entity:bulk_create", {"entities": some})) == 2
            changed = await send("state:entity:update", {"id": "b", "properties": {"x": 1}})
            assert changed["properties"] == {"x": 1}
            edge = {"from": "b", "to": "c", "type": "knows", "metadata": {"n": 1}}
            assert (await send("state:relationship:create", edge))["metadata"] == {"n": 1}
            got = await send("state:entity:get", {"id": "b", "include": ["relationships"]})
            assert [one["to_id"] for one in got["relationships"]] == ["c"]
            found = await send(
                "state:entity:query",
                {"type": "t", "where": {}, "order_by": None, "limit": 1, "include": ["properties"]},
            )
            assert [one["id"] for one in found] == ["c"]
            asked = {"from": "b", "type": "knows"}
            assert len(await send("state:relationship:query", asked)) == 1
            graph = await send(
                "state:graph:traverse",
                {"from": "c", "direction": "both", "types": ["knows"], "depth": 2,
                 "include_entities": True},
            )  # fmt: skip
            assert graph["ids"] == ["c", "b"]
            assert graph["entities"]["b"]["properties"] == {"x": 1}
            asked = {"target": "entities", "group_by": "type", "where": {}}
            assert await send("state:aggregate:count", asked) == {"agent": 2, "t": 2}
            gone = {"from": "b", "to": "c", "type": "knows"}
            assert await send("state:relationship:delete", gone) is True
            assert await send("state:entity:delete", {"id": "b"}) is True
            with pytest.raises(EntityNotFoundError):
                await send("state:entity:get", {"id": "b"})

    run(plain, main)


@pytest.mark.spec("X31", "X33", "X35")
def test_queues_events_and_observations_answer_by_name(plain: Place) -> None:
    async def main(store: holdfast.Store) -> None:
        entities, log = Entities(store.custom("fleet")), Events(store)
        observations = Observations(entities, log)
        runtime = Runtime(
            store, [entities, log, Queue(store.custom("fleet"), "mail"), observations]
        )
        send = runtime.send
        async with runtime:
            push = {"queue_name": "q", "data": {"n": 1}, "ttl_seconds": 60}
            assert await send("async_state:push", push) == 1
            await send("async_state:push", {**push, "data": 2})
            assert await send("async_state:get_queue", {"queue_name": "q"}) == [{"n": 1}, 2]
            assert await send("async_state:pop", {"queue_name": "q", "count": 1}) == [{"n": 1}]
            await send("async_state:expire_queue", {"queue_name": "q", "ttl_seconds": 60})
            assert await send("async_state:delete", {"queue_name": "q"}) == 1
            for id in "ab":
                await entities.create("agent", id=id)
            log.emit("x:y", {"agent_id": "b", "session_id": "s"}, client="c", correlation="r")
            asked = {"event_patterns": ["x:*"], "client_id": "c", "limit": 5, "reverse": True}
            [event] = await send("monitor:get_events", asked)
            assert event["event_name"] == "x:y"
            assert event["timestamp_iso"].endswith("+00:00")
            chain = await send("monitor:get_correlation_chain", {"correlation_id": "r"})
            assert (chain["duration_ms"], chain["event_types"]) == (0.0, ["x"])
            assert len(await send("monitor:get_session_events", {"session_id": "s"})) == 1
            assert (await send("monitor:get_stats"))["emitted"] >= 1
            wanted = {"observer": "a", "target": "b", "events": ["x:*"], "filter": {}}
            id = await send("observation:subscribe", wanted)
            log.emit("x:z", {"agent_id": "b"})
            assert [one["id"] for one in await send("observation:list")] == [id]
            assert len(await send("observation:query", {"limit": 10})) == 1
            assert (await send("observation:analyze", {"analysis_type": "frequency"}))["total"] == 1
            assert len(await send("observation:replay", {"speed": 0})) == 1
            assert await send("observation:unsubscribe", {"id": id}) is True
            assert await send("monitor:clear_log") > 0

    run(plain, main)


@pytest.mark.spec("S135")
def test_handlers_register_by_decorator_and_priorities_are_an_order(plain: Place) -> None:
    async def main(store: holdfast.Store) -> None:
        calls: list[str] = []

        class Mine:
            @handles("mine:do", priority="low")
            async def last(self, data: dict[str, Any]) -> str:
                calls.append("low")
                return f"did {data['what']}"

            @handles("mine:do", priority="highest")
            def first(self, data: dict[str, Any]) -> None:
                calls.append("highest")

        class Other:
            @handles("mine:do")
            def between(self, data: dict[str, Any]) -> None:
                calls.append("normal")

        async with Runtime(store, [Mine(), Other()]) as runtime:
            assert await runtime.send("mine:do", {"what": "it"}) == "did it"
            assert calls == ["highest", "normal", "low"]
        with pytest.raises(InvalidInputError):
            handles("x", priority="urgent")
        with pytest.raises(InvalidInputError):
            handles("x")("no function")
        with pytest.raises(InvalidInputError):
            handles("")

    run(plain, main)


BAD: list[tuple[str, Any]] = [
    ("state:entity:create", {}),
    ("state:entity:create", {"type": 5}),
    ("state:entity:create", {"type": "t", "colour": 1}),
    ("state:entity:create", [1]),
    ("state:entity:create", {"type": "t", "id": "a/b"}),
    ("state:entity:query", {"order_by": "x; DROP TABLE entities"}),
    ("state:entity:query", {"limit": "1"}),
    ("state:relationship:create", {"from": "a", "to": "a", "type": "t"}),
    ("state:relationship:create", {"from": "a", "type": "t"}),
    ("state:graph:traverse", {"from": "a", "depth": 6}),
    ("monitor:get_events", {"limit": -1}),
    ("monitor:query", {"query": "SELECT * FROM events"}),
    ("async_state:push", {"data": 1}),
    ("async_state:push", {"queue": "q"}),
]


@pytest.mark.spec("X29", "X33")
@pytest.mark.parametrize(("name", "data"), BAD)
def test_what_is_sent_wrongly_is_refused_with_what_it_takes(
    plain: Place, name: str, data: Any
) -> None:
    async def main(store: holdfast.Store) -> None:
        fleet = store.custom("fleet")
        runtime = Runtime(store, [Entities(fleet), Events(store), Queue(fleet, "mail")])
        async with runtime:
            await runtime.send("state:entity:create", {"type": "t", "properties": {"x": 1}})
            with pytest.raises(InvalidInputError):
                await runtime.send(name, data)
            with pytest.raises(MissingError, match="did you mean state:entity:create"):
                await runtime.send("state:entity:creat", {})
            with pytest.raises(MissingError, match="nobody here answers"):
                await runtime.send("quite:other")

    run(plain, main)


def test_it_runs_until_it_is_told_to_stop_or_by_a_signal(plain: Place) -> None:
    async def main(store: holdfast.Store) -> None:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        async with Runtime(store, three(told)) as runtime:
            loop.call_later(0.05, runtime.stop)
            await runtime.forever()
        async with Runtime(store, three(told)) as runtime:
            loop.call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
            await runtime.forever()
        assert told == ORDER * 2
        for wrong in ({"timeout": -1}, {"modules": 5}):
            with pytest.raises(InvalidInputError):
                Runtime(store, **wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError):
            Runtime("store")  # type: ignore[arg-type]

    run(plain, main)


def test_the_guide_has_all_names_with_their_parameters() -> None:
    page = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text()
    for kind, names in API.items():
        for name, usage in names.items():
            must, may = parameters_of(getattr(holdfast.sync.runtime, kind), usage)
            assert f"| `{name}` | {', '.join(must)} | {', '.join(may)} |" in page


def test_parameters_that_a_name_does_not_take_are_refused_with_those_that_it_takes() -> None:
    with sync.open("memory:") as store:
        queue = holdfast.sync.runtime.Queue(store.custom("work"), "mail")
        log = holdfast.sync.runtime.Events(store)
        wrong = {
            "queue_name is missing": {"name": "mail"},
            "x.*queue_name$": {"queue_name": "a", "x": 1},
        }
        for told, given in wrong.items():
            with pytest.raises(InvalidInputError, match=told):
                answers_of(queue)["async_state:get_queue"](given)
        with pytest.raises(InvalidInputError, match="it takes event_patterns"):
            answers_of(log)["monitor:query"]({"x": 1})
