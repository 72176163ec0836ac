"""Ends that are no plain end: a kill after an answer, a deletion beside a run, a pruned past."""

from __future__ import annotations

import asyncio
import operator
import os
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

import langgraph.checkpoint.base.id as ids
import pytest
from graph_kit import compiled, said, thread
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import holdfast
from holdfast.errors import (
    Conflict,
    InvalidInputError,
    ScopeNotFoundError,
    StoreForkedError,
)
from holdfast.integrations.langgraph import HoldfastSaver


class Work(TypedDict):
    done: Annotated[list[str], operator.add]


class Killed(BaseException):
    """Ends a run as the end of its process would: nothing is recorded."""


def asking(saver: HoldfastSaver, *questions: str, die: bool = False) -> Any:
    def ask(state: Work) -> dict[str, Any]:
        found = [interrupt(question) for question in questions]
        if die:
            raise Killed
        return {"done": found}

    builder = StateGraph(Work)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    return builder.compile(checkpointer=saver)


def test_a_node_that_got_its_answer_may_have_run() -> None:
    with HoldfastSaver.open("memory:") as saver:
        asking(saver, "pay?").invoke({"done": []}, thread())
        assert saver.may_have_run(thread()) == [], "it waits"
        with pytest.raises(Killed):
            asking(saver, "pay?", die=True).invoke(Command(resume="yes"), thread())
        assert saver.may_have_run(thread()) == ["ask"]
        assert asking(saver, "pay?").invoke(None, thread())["done"] == ["yes"]
        assert saver.may_have_run(thread()) == []


def test_a_node_that_asks_again_waits_again() -> None:
    with HoldfastSaver.open("memory:") as saver:
        graph = asking(saver, "pay?", "sure?")
        graph.invoke({"done": []}, thread())
        graph.invoke(Command(resume="yes"), thread())
        assert saver.may_have_run(thread()) == []
        assert graph.invoke(Command(resume="of course"), thread())["done"] == ["yes", "of course"]


def test_a_subgraph_that_got_its_answer_may_have_run() -> None:
    def over(inner: Any, saver: HoldfastSaver) -> Any:
        builder = StateGraph(Work)
        builder.add_node("inner", inner)
        builder.add_edge(START, "inner")
        return builder.compile(checkpointer=saver)

    with HoldfastSaver.open("memory:") as saver:
        over(asking(None, "pay?"), saver).invoke({"done": []}, thread())  # type: ignore[arg-type]
        assert saver.may_have_run(thread()) == []
        with pytest.raises(Killed):
            graph = over(asking(None, "pay?", die=True), saver)  # type: ignore[arg-type]
            graph.invoke(Command(resume="yes"), thread())
        assert saver.may_have_run(thread()) == ["inner"]


# deleted beside a run


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_what_a_run_writes_after_its_thread_was_deleted_is_not_stored(
    tmp_path: Path, durability: str, again: bool
) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"

    async def main() -> None:
        async with HoldfastSaver.open(url) as saver, HoldfastSaver.open(url) as other:
            began, go = asyncio.Event(), asyncio.Event()

            async def work(state: Work) -> dict[str, Any]:
                began.set()
                await go.wait()
                return {"done": ["SECRET-OUTPUT"]}

            builder = StateGraph(Work)
            builder.add_node("work", work)
            builder.add_edge(START, "work")
            graph = builder.compile(checkpointer=saver)
            run = asyncio.create_task(
                graph.ainvoke({"done": ["in"]}, thread(), durability=durability)
            )
            await began.wait()
            while await saver.aget_tuple(thread()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await other.adelete_thread("one")
            if again:
                await compiled(other).ainvoke(said("anew"), thread())
            go.set()
            with pytest.raises(Conflict, match="deleted"):
                await run
            assert list(other.thread_ids()) == (["one"] if again else [])

    asyncio.run(main())
    assert b"SECRET-OUTPUT" not in (tmp_path / "threads.db").read_bytes()


class Overtaken(HoldfastSaver):
    """Puts the checkpoint of the first step only when its task has written."""

    written: asyncio.Event

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if metadata["step"] == 0:
            await self.written.wait()
        return await super().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, *task: Any) -> None:
        try:
            await super().aput_writes(config, writes, *task)
        finally:
            if "SECRET-OUTPUT" in str(writes):
                self.written.set()


def test_what_a_task_writes_sooner_than_its_checkpoint_is_not_stored_either(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"

    async def main() -> None:
        async with holdfast.open(url) as store, HoldfastSaver.open(url) as other:
            saver = Overtaken(store)
            saver.written, go = asyncio.Event(), asyncio.Event()

            async def work(state: Work) -> dict[str, Any]:
                await go.wait()
                return {"done": ["SECRET-OUTPUT"]}

            builder = StateGraph(Work)
            builder.add_node("work", work)
            builder.add_edge(START, "work")
            graph = builder.compile(checkpointer=saver)
            run = asyncio.create_task(graph.ainvoke({"done": ["in"]}, thread()))
            while await other.aget_tuple(thread()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await other.adelete_thread("one")
            go.set()
            with pytest.raises(Conflict, match="deleted"):
                await run
            assert list(other.thread_ids()) == []

    asyncio.run(asyncio.wait_for(main(), 60))
    assert b"SECRET-OUTPUT" not in (tmp_path / "threads.db").read_bytes()


def test_what_was_listed_of_a_deleted_thread_is_no_damage(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    with HoldfastSaver.open(url) as saver, HoldfastSaver.open(url) as other:
        for number in range(30):
            compiled(saver).invoke(said(f"{number}"), thread())
        found, later = saver.list(thread()), saver.list(thread())
        assert next(found) == next(later)
        other.delete_thread("one")
        with pytest.raises(ScopeNotFoundError):
            list(found)
        compiled(other).invoke(said("anew"), thread())
        with pytest.raises(ScopeNotFoundError, match="was deleted since"):
            list(later)


# pruned


@pytest.mark.parametrize("behind", [False, True], ids=["between", "up to the newest"])
def test_a_thread_whose_past_was_pruned_goes_on(behind: bool) -> None:
    with holdfast.sync.open("memory:") as store:
        saver = HoldfastSaver(store)
        graph = compiled(saver)
        scope = store.custom("langgraph/one")
        for number in range(6):
            graph.invoke(said(f"{number}"), thread())
            if number == 2:
                kept = scope.checkpoint("kept")
        before = list(graph.get_state_history(thread()))
        if behind:
            scope.set("unrelated", 1)
            kept = scope.checkpoint("kept")
        scope.prune(kept)
        after = list(graph.get_state_history(thread()))
        assert len(after) == (1 if behind else 9)
        assert [state.values for state in after] == [state.values for state in before[: len(after)]]
        saver.copy_thread("one", "two")
        copied = list(graph.get_state_history(thread("two")))
        assert [state.values for state in copied] == [state.values for state in after]
        saver.prune(["one"])
        graph.invoke(said("on"), thread())
        assert len(list(graph.get_state_history(thread()))) == (3 if behind else 4)
        assert store.verify().ok


# clocks


def test_a_clock_that_went_back_hides_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    offset = 0
    now = time.time_ns
    monkeypatch.setattr(ids.time, "time_ns", lambda: now() + offset)
    with HoldfastSaver.open("memory:") as saver:
        graph = compiled(saver)
        for number, seconds in enumerate((0, -3600, 0, -7200, 10)):
            offset = seconds * 10**9
            monkeypatch.setattr(ids, "_last_v6_timestamp", None)
            graph.invoke(said(f"{number}"), thread())
        found = [one.checkpoint["id"] for one in saver.list(thread())]
        assert found == sorted(found, reverse=True)
        assert len(found) == 15
        pages: list[str] = []
        while True:
            config = thread()
            config["configurable"]["checkpoint_id"] = pages[-1] if pages else "~"
            page = saver.list(thread(), before=config, limit=2)
            more = [one.checkpoint["id"] for one in page]
            if not more:
                break
            pages += more
        assert pages == found


# bad input


def test_what_cannot_be_meant_is_refused() -> None:
    with HoldfastSaver.open("memory:") as saver:
        graph = compiled(saver)
        graph.invoke(said("x"), thread())
        with pytest.raises(InvalidInputError, match="limit"):
            list(saver.list(thread(), limit=-1))
        with pytest.raises(InvalidInputError, match="thread_ids"):
            saver.prune("one", strategy="delete")
        with pytest.raises(InvalidInputError, match="run_ids"):
            saver.delete_for_runs("one")
        with pytest.raises(InvalidInputError, match="needs a thread"):
            saver.get_tuple({"configurable": {"thread_id": None}})
        lost = thread()
        lost["configurable"]["checkpoint_id"] = "1f1e13c1-12cc-6422-8000-69f58f1834bc"
        with pytest.raises(Conflict, match="has no checkpoint"):
            graph.invoke(said("y"), lost)
        assert len(saver.get_tuple(thread()).checkpoint["channel_values"]["messages"]) == 2  # type: ignore[union-attr]


def test_a_thread_that_was_emptied_can_be_copied_to() -> None:
    with HoldfastSaver.open("memory:") as saver:
        graph = compiled(saver)
        graph.invoke(said("x"), thread())
        graph.invoke(said("y"), {**thread("two"), "metadata": {"run_id": "r"}})
        saver.delete_for_runs(["r"])
        saver.copy_thread("one", "two")
        assert graph.get_state(thread("two")).values == graph.get_state(thread()).values


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is needed")
def test_async_calls_in_a_forked_process_say_so(tmp_path: Path) -> None:
    with HoldfastSaver.open(f"sqlite:{tmp_path / 'threads.db'}") as saver:
        graph = compiled(saver)
        asyncio.run(graph.ainvoke(said("x"), thread()))
        child = os.fork()
        if not child:
            code = 1
            try:
                asyncio.run(asyncio.wait_for(graph.ainvoke(said("y"), thread()), 60))
            except StoreForkedError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
