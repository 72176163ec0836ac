"""Runs that wait for each other: the next begins when the one before it has ended, not sooner."""

from __future__ import annotations

import asyncio
import operator
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest
from graph_kit import SECONDS, compiled, inputs, said, thread
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from holdfast import sync
from holdfast.errors import Conflict
from holdfast.integrations.langgraph import HoldfastSaver


class Work(TypedDict):
    done: Annotated[list[str], operator.add]


def beside(saver: HoldfastSaver, **nodes: Any) -> Any:
    """A graph whose nodes all run in its first step."""
    builder = StateGraph(Work)
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(START, name)
    return builder.compile(checkpointer=saver)


def stored(saver: HoldfastSaver, channel: str) -> bool:
    found = saver.get_tuple(thread())
    writes = found.pending_writes if found is not None else None
    return any(name == channel for _, name, _ in writes or ())


def test_an_answer_waits_until_the_siblings_of_the_question_have_ended() -> None:
    ran: list[str] = []

    async def main() -> None:
        async with HoldfastSaver.open("memory:", busy="wait") as saver:
            go = asyncio.Event()

            async def slow(state: Work) -> dict[str, Any]:
                ran.append("slow")
                await go.wait()
                return {"done": ["slow"]}

            def ask(state: Work) -> dict[str, Any]:
                return {"done": [interrupt("?")]}

            graph = beside(saver, slow=slow, ask=ask)
            first = asyncio.create_task(graph.ainvoke({"done": ["in"]}, thread()))
            while not await asyncio.to_thread(stored, saver, "__interrupt__"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            second = asyncio.create_task(graph.ainvoke(Command(resume="yes"), thread()))
            await asyncio.sleep(0.1)
            go.set()
            assert "__interrupt__" in await first
            assert sorted((await second)["done"]) == ["in", "slow", "yes"]

    asyncio.run(asyncio.wait_for(main(), SECONDS))
    assert ran == ["slow"], "what the first run had begun is not run again"


def test_a_run_waits_until_the_siblings_of_a_node_that_failed_have_ended() -> None:
    ran: list[str] = []
    go = threading.Event()

    def slow(state: Work) -> dict[str, Any]:
        ran.append("slow")
        go.wait(SECONDS)
        return {"done": ["slow"]}

    def bad(state: Work) -> dict[str, Any]:
        ran.append("bad")
        if ran.count("bad") == 1:
            raise ZeroDivisionError
        return {"done": ["bad"]}

    with HoldfastSaver.open("memory:", busy="wait") as saver, ThreadPoolExecutor(2) as pool:
        graph = beside(saver, slow=slow, bad=bad)
        first = pool.submit(graph.invoke, {"done": ["in"]}, thread())
        while not stored(saver, "__error__"):
            pass
        second = pool.submit(graph.invoke, None, thread())
        with pytest.raises(TimeoutError):
            second.result(0.1)
        go.set()
        with pytest.raises(ZeroDivisionError):
            first.result(SECONDS)
        assert sorted(second.result(SECONDS)["done"]) == ["bad", "in", "slow"]
    assert sorted(ran) == ["bad", "bad", "slow"]


@pytest.mark.parametrize("how", ["blocking", "async"])
def test_who_was_asked_answers_at_once_and_an_error_that_is_kept_holds_nobody_up(how: str) -> None:
    def ask(state: Work) -> dict[str, Any]:
        answer = interrupt("?")
        if not kept:
            raise ZeroDivisionError
        return {"done": [answer]}

    kept: list[BaseException] = []
    with HoldfastSaver.open("memory:", busy="wait", patience=3600) as saver:
        graph = beside(saver, ask=ask)

        def blocking() -> Any:
            graph.invoke({"done": []}, thread())
            try:
                graph.invoke(Command(resume="good"), thread())
            except ZeroDivisionError as error:
                kept.append(error)
            return graph.invoke(None, thread())

        async def awaited() -> Any:
            await graph.ainvoke({"done": []}, thread())
            try:
                await graph.ainvoke(Command(resume="good"), thread())
            except ZeroDivisionError as error:
                kept.append(error)
            return await graph.ainvoke(None, thread())

        with ThreadPoolExecutor(1) as pool:
            work = blocking if how == "blocking" else lambda: asyncio.run(awaited())
            assert pool.submit(work).result(SECONDS)["done"] == ["good"]
    assert len(kept) == 1


def test_an_update_of_the_state_and_time_travel_wait_for_the_run_that_is_at_work() -> None:
    async def main() -> None:
        async with HoldfastSaver.open("memory:", busy="wait") as saver:
            begun, go = asyncio.Event(), asyncio.Event()

            async def slow(state: Work) -> dict[str, Any]:
                begun.set()
                await go.wait()
                return {"done": ["slow"]}

            graph = beside(saver, slow=slow)
            run = asyncio.create_task(graph.ainvoke({"done": ["in"]}, thread()))
            await begun.wait()
            while (older := await saver.aget_tuple(thread())) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            update = asyncio.create_task(graph.aupdate_state(thread(), {"done": ["update"]}))
            await asyncio.sleep(0.1)
            assert not update.done()
            go.set()
            assert (await run)["done"] == ["in", "slow"]
            await update
            begun.clear()
            go.clear()
            run = asyncio.create_task(graph.ainvoke({"done": ["on"]}, thread()))
            await begun.wait()
            back = asyncio.create_task(graph.ainvoke(None, older.config))
            await asyncio.sleep(0.1)
            go.set()
            assert (await run)["done"] == ["in", "slow", "update", "on", "slow"]
            assert (await back)["done"] == ["in", "slow"]
            said = [found.values["done"] async for found in graph.aget_state_history(thread())]
            assert ["in", "slow", "update"] in said

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_who_waited_in_vain_gets_the_conflict_not_who_has_the_turn() -> None:
    with HoldfastSaver.open("memory:", busy="wait", patience=0.2) as saver:
        graph = compiled(saver)
        stream = graph.stream(said("first"), thread(), stream_mode="values")
        next(stream)
        with pytest.raises(Conflict, match=r"waited 0\.2 seconds"):
            graph.invoke(said("second"), thread())
        list(stream)
        graph.invoke(said("third"), thread())
        stream = graph.stream(said("fourth"), thread(), stream_mode="values")
        next(stream)
        stream.close()
        graph.invoke(said("fifth"), thread())
        assert inputs(saver) == ["first", "third", "fourth", "fifth"]


def test_blocking_runs_in_all_threads_of_a_loop_do_not_cost_the_awaited_one_its_turn() -> None:
    """A plain function as a node of an awaited run needs one of the loop's own threads."""

    many = min(32, (os.cpu_count() or 1) + 4)
    begun: list[int] = []
    gave_up: list[str] = []
    beside: list[asyncio.Task[Any]] = []

    class First(HoldfastSaver):
        async def aget_tuple(self, config: Any) -> Any:
            found = await super().aget_tuple(config)
            if not beside:  # it is the turn of the awaited one now, and then all threads are taken
                beside.extend(asyncio.create_task(asyncio.to_thread(block)) for _ in range(many))
                while len(begun) < many:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            return found

    with sync.open("memory:") as store:
        graph = compiled(First(store, busy="wait", patience=5))

        def block() -> None:
            begun.append(1)
            try:
                graph.invoke(said("blocking"), thread())
            except Conflict as error:
                gave_up.append(str(error))

        async def main() -> None:
            found = await graph.ainvoke(said("awaited"), thread())
            assert found["messages"][0].content == "awaited"
            await asyncio.gather(*beside)

        asyncio.run(asyncio.wait_for(main(), SECONDS))
        # Whoever gives up first gives the awaited one its thread; others may come to their turn.
        assert gave_up
        assert all("waited 5 seconds" in text for text in gave_up)


def test_a_conflict_with_another_saver_does_not_advise_what_is_on_already() -> None:
    with sync.open("memory:") as store:
        saver, other = HoldfastSaver(store, busy="wait"), HoldfastSaver(store)

        def meddle(state: Work) -> dict[str, Any]:
            beside(other, plain=lambda state: {"done": ["other"]}).invoke({"done": []}, thread())
            return {"done": ["late"]}

        with pytest.raises(Conflict, match="queues no runs of other savers"):
            beside(saver, meddle=meddle).invoke({"done": []}, thread(), durability="sync")
