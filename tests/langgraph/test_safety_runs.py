"""Runs do not undo each other, and the end of a process loses nothing that was recorded."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from graph_kit import SECONDS, answer, compiled, inputs, said, thread
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send

import holdfast
from holdfast.errors import Conflict
from holdfast.integrations.langgraph import HoldfastSaver


class Meeting(HoldfastSaver):
    """Lets two runs both read the thread before either of them writes."""

    def __init__(self, store: Any, **options: Any) -> None:
        super().__init__(store, **options)
        self.meeting: threading.Barrier | None = None

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        if self.meeting is not None and "__pregel_runtime" in config["configurable"]:
            self.meeting.wait(SECONDS)
        return found


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("fresh", [True, False], ids=["new thread", "old thread"])
def test_of_two_runs_that_read_the_same_state_one_gets_a_conflict(
    tmp_path: Path, durability: str, fresh: bool
) -> None:
    with holdfast.sync.open(f"sqlite:{tmp_path / 'threads.db'}") as store:
        saver = Meeting(store)
        graph = compiled(saver)
        if not fresh:
            graph.invoke(said("before"), thread())
        saver.meeting = threading.Barrier(2)

        def run(text: str) -> str | None:
            try:
                graph.invoke(said(text), thread(), durability=durability)
            except Conflict as conflict:
                assert "when the other has ended" in str(conflict), "it says what to do"
                return None
            return text

        with ThreadPoolExecutor(2) as pool:
            done = [text for text in pool.map(run, ["first", "second"]) if text]
        saver.meeting = None
        assert len(done) == 1
        assert inputs(saver) == ([] if fresh else ["before"]) + done
        # The one that was refused can be sent again.
        left = ({"first", "second"} - {*done}).pop()
        graph.invoke(said(left), thread())
        assert inputs(saver)[-2:] == [*done, left]


def test_a_run_that_was_overtaken_does_not_undo_what_came_between(tmp_path: Path) -> None:
    began, go = threading.Event(), threading.Event()

    def slow(state: MessagesState) -> dict[str, Any]:
        if state["messages"][-1].content == "slow":
            began.set()
            go.wait(SECONDS)
        return answer(state)

    with HoldfastSaver.open(f"sqlite:{tmp_path / 'threads.db'}") as saver:
        graph = compiled(saver, slow)
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(graph.invoke, said("slow"), thread(), durability="sync")
            assert began.wait(SECONDS)
            graph.invoke(said("quick"), thread())
            go.set()
            with pytest.raises(Conflict):
                late.result(SECONDS)
        assert inputs(saver) == ["slow", "quick"]


def test_time_travel_with_and_without_input(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    with HoldfastSaver.open(url) as saver:
        graph = compiled(saver)
        for text in ("first", "second", "third"):
            graph.invoke(said(text), thread())
        older = next(s for s in graph.get_state_history(thread()) if len(s.values["messages"]) == 2)
        to_run = next(s for s in graph.get_state_history(thread()) if s.next == ("answer",))
    with HoldfastSaver.open(url) as saver:  # ids that were noted elsewhere
        graph = compiled(saver)
        again = graph.invoke(None, to_run.config)
        assert [m.content for m in again["messages"][::2]] == ["first", "second", "third"]
        branch = graph.invoke(said("another"), older.config)
        assert [m.content for m in branch["messages"][::2]] == ["first", "another"]
        graph.update_state(older.config, said("edited"), as_node="answer")
        assert inputs(saver) == ["first", "edited"]
        graph.invoke(said("goes on"), thread())
        assert inputs(saver) == ["first", "edited", "goes on"]


def test_a_message_edited_in_place_is_stored(tmp_path: Path) -> None:
    def edits(state: MessagesState) -> dict[str, Any]:
        state["messages"][0].content = f"seen {len(state['messages'])}"
        return answer(state)

    url = f"sqlite:{tmp_path / 'threads.db'}"
    with HoldfastSaver.open(url) as saver:
        graph = compiled(saver, edits)
        for number in range(4):
            graph.invoke(said(f"input {number}"), thread())
    with HoldfastSaver.open(url) as saver:
        assert inputs(saver) == ["seen 7", "input 1", "input 2", "input 3"]
        past = [s.values["messages"] for s in compiled(saver).get_state_history(thread())]
        firsts = {messages[0].content for messages in past if messages}
        assert firsts >= {"seen 1", "seen 3", "seen 5", "seen 7"}, "older checkpoints have theirs"


# loops, stores and processes


def test_blocking_calls_work_in_a_running_loop(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"

    async def main() -> None:
        async with holdfast.open(url) as store:
            saver = HoldfastSaver(store)
            graph = compiled(saver)
            graph.invoke(said("blocking"), thread())
            await graph.ainvoke(said("async"), thread())
            graph.invoke(said("blocking again"), thread())
            assert inputs(saver) == ["blocking", "async", "blocking again"]

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_savers_of_both_kinds_see_each_other(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"

    async def main() -> None:
        with holdfast.sync.open(url) as blocking:
            async with holdfast.open(url) as awaited:
                one, other = HoldfastSaver(blocking), HoldfastSaver(awaited)
                same = HoldfastSaver(blocking)
                await compiled(other).ainvoke(said("async"), thread())
                await asyncio.to_thread(compiled(one).invoke, said("blocking"), thread())
                await compiled(same).ainvoke(said("same store"), thread())
                await compiled(other).ainvoke(said("async again"), thread())
                wanted = ["async", "blocking", "same store", "async again"]
                assert inputs(one) == inputs(other) == inputs(same) == wanted

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def python(folder: Path, source: str, *args: str) -> subprocess.Popen[str]:
    """A process that runs a program with the helpers of these tests."""
    program = folder / "program.py"
    program.write_text("from test_safety_runs import *\n" + textwrap.dedent(source))
    paths = [str(Path(__file__).parent), str(Path(holdfast.__file__).parent.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(program), *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


MANY = """
url, name = sys.argv[1:]
with HoldfastSaver.open(url) as saver:
    graph = compiled(saver)
    for number in range(8):
        graph.invoke(said(f"{name} {number}"), thread(name))
        while True:
            try:
                graph.invoke(said(f"{name} {number}"), thread("shared"))
                break
            except Conflict:
                # The input may have been taken before the run was overtaken.
                if f"{name} {number}" in inputs(saver, "shared"):
                    break
"""


def test_two_processes_on_one_store(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    children = [python(tmp_path, MANY, url, name) for name in ("a", "b")]
    for child in children:
        child.communicate(timeout=SECONDS)
        assert child.returncode == 0
    with HoldfastSaver.open(url) as saver:
        for name in ("a", "b"):
            wanted = [f"{name} {number}" for number in range(8)]
            assert inputs(saver, name) == wanted
            shared = [text for text in inputs(saver, "shared") if text.startswith(name)]
            assert shared == wanted, "each input once, in its order"
    with holdfast.sync.open(url) as store:
        assert store.verify().ok


# killed


BRANCHES = """
import operator, signal, time
from typing import Annotated, TypedDict

url, effects, die = sys.argv[1:]

class Work(TypedDict):
    done: Annotated[list[str], operator.add]

with HoldfastSaver.open(url) as saver:
    def effect(name):
        with open(effects, "a") as file:
            file.write(name + "\\n")

    def quick(state):
        effect("quick")
        return {"done": ["quick"]}

    def slow(state):
        effect("slow")
        if die == "die":
            written = []
            while ["quick"] not in written:  # until `quick` is recorded
                time.sleep(0.01)
                found = saver.get_tuple(thread())
                written = [value for _, _, value in found.pending_writes] if found else []
            os.kill(os.getpid(), signal.SIGKILL)
        return {"done": ["slow"]}

    builder = StateGraph(Work)
    for node in (quick, slow):
        builder.add_node(node)
        builder.add_edge(START, node.__name__)
    graph = builder.compile(checkpointer=saver)
    found = graph.invoke({"done": []} if die == "die" else None, thread())
    print(",".join(sorted(found["done"])))
"""


def test_killed_between_an_effect_and_its_record(tmp_path: Path) -> None:
    url, effects = f"sqlite:{tmp_path / 'threads.db'}", tmp_path / "effects"
    child = python(tmp_path, BRANCHES, url, str(effects), "die")
    child.communicate(timeout=SECONDS)
    assert child.returncode == -9
    assert sorted(effects.read_text().split()) == ["quick", "slow"]
    with HoldfastSaver.open(url) as saver:
        assert saver.may_have_run(thread()) == ["slow"]
    child = python(tmp_path, BRANCHES, url, str(effects), "resume")
    out, _ = child.communicate(timeout=SECONDS)
    assert out.strip() == "quick,slow"
    ran = effects.read_text().split()
    assert (ran.count("quick"), ran.count("slow")) == (1, 2), "what was recorded is not run again"
    with HoldfastSaver.open(url) as saver:
        assert saver.may_have_run(thread()) == []


def test_resuming_says_in_the_log_what_may_have_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    child = python(tmp_path, BRANCHES, url, str(tmp_path / "effects"), "die")
    child.communicate(timeout=SECONDS)

    def quick(state: Any) -> dict[str, Any]:
        raise AssertionError("it is recorded")

    def slow(state: Any) -> dict[str, Any]:
        return {}

    builder = StateGraph(MessagesState)
    for node in (quick, slow):
        builder.add_node(node)
        builder.add_edge(START, node.__name__)
    with HoldfastSaver.open(url) as saver, caplog.at_level(logging.WARNING):
        builder.compile(checkpointer=saver).invoke(None, thread())
    ours = [record for record in caplog.records if record.name.startswith("holdfast")]
    warnings = [record.getMessage() for record in ours]
    assert len(warnings) == 1
    assert "slow" in warnings[0]
    assert "quick" not in warnings[0]


def test_tasks_that_were_sent_are_named(tmp_path: Path) -> None:
    seen: list[Any] = []

    def work(order: str) -> dict[str, Any]:
        if order == "bad":
            raise ZeroDivisionError
        return {"messages": []}

    builder = StateGraph(MessagesState)
    builder.add_node("plan", lambda state: {"messages": []})
    builder.add_node("work", work)
    builder.add_node("check", lambda order: seen.append(order))
    builder.add_edge(START, "plan")
    orders = [Send("work", "bad"), Send("check", "x" * 1000)]
    builder.add_conditional_edges("plan", lambda state: orders, ["work", "check"])
    url = f"sqlite:{tmp_path / 'threads.db'}"
    with HoldfastSaver.open(url) as saver, pytest.raises(ZeroDivisionError):
        builder.compile(checkpointer=saver).invoke(said("go"), thread(), durability="sync")
    with HoldfastSaver.open(url) as saver:
        left = set(saver.may_have_run(thread()))
    assert "work" in left
    assert left <= {"work", "check"}
