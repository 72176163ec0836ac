"""A LangGraph agent is killed at work, and another process finishes it.

    python examples/langgraph_agent.py

Real processes, a real file, no network and no key of any provider: the model is a fake that
always answers the same. The agent books a journey: it plans, books train and hotel side by side,
and writes a report. Each booking is an effect on the world, here a line in a file. The process
is killed (SIGKILL) when the hotel is booked and the booking not yet recorded, the worst moment
there is. Every line with a tick is compared with what really happened.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from holdfast import sync
from holdfast.integrations.langgraph import HoldfastSaver

THREAD: Any = {"configurable": {"thread_id": "journey-7"}}
TASK = "Book me a journey to Brest: train and hotel."
SECONDS = 60
Node = Callable[[MessagesState], dict[str, Any]]


# ---- the agent: a process of its own -------------------------------------------------------


def build(saver: HoldfastSaver, effects: Path, die: bool) -> Any:
    """plan → train and hotel, side by side → report."""

    def effect(name: str) -> None:
        with effects.open("a") as file:
            file.write(f"{name}\n")

    def model(text: str) -> AIMessage:
        return GenericFakeChatModel(messages=iter([AIMessage(text)])).invoke(TASK)

    def plan(_: MessagesState) -> dict[str, Any]:
        effect("planned")
        return {"messages": [model("First the train, and at the same time a hotel.")]}

    def train(_: MessagesState) -> dict[str, Any]:
        effect("train booked")
        return {"messages": [AIMessage("The train is booked: 08:52.")]}

    def hotel(_: MessagesState) -> dict[str, Any]:
        effect("hotel booked")
        if die:
            until(lambda: recorded(saver) == ["train"])
            os.kill(os.getpid(), signal.SIGKILL)
        return {"messages": [AIMessage("The hotel is booked: two nights.")]}

    def report(state: MessagesState) -> dict[str, Any]:
        effect("report written")
        return {"messages": [model(f"Done, after {len(state['messages'])} messages. Bon voyage!")]}

    builder = StateGraph(MessagesState)
    for node in (plan, train, hotel, report):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "train")
    builder.add_edge("plan", "hotel")
    builder.add_edge(["train", "hotel"], "report")
    builder.add_edge("report", END)
    return builder.compile(checkpointer=saver)


def recorded(saver: HoldfastSaver) -> list[str]:
    """Nodes that the newest checkpoint triggers and whose results are stored already."""
    open_nodes = saver.may_have_run(THREAD)
    return [node for node in ("train", "hotel") if node not in open_nodes]


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that other threads of this process do."""
    end = time.monotonic() + SECONDS
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)


def work(url: str, key: str, effects: str, *, resume: bool) -> None:
    """One run of the graph: from the start, or from where the thread stands."""
    with HoldfastSaver.open(url, key=key) as saver:
        graph = build(saver, Path(effects), die=not resume)
        graph.invoke(None if resume else {"messages": [HumanMessage(TASK)]}, THREAD)


# ---- the story -----------------------------------------------------------------------------


class Story:
    """What is done, said and checked."""

    def __init__(self, folder: Path) -> None:
        for name in ("store", "keys"):
            (folder / name).mkdir()
        self.url = f"sqlite:{folder / 'store' / 'agents.db'}"
        self.key = f"file:{folder / 'keys' / 'agents.key'}"
        self.effects = folder / "effects.txt"

    def run(self) -> None:
        """All of it."""
        say("\n1. The agent begins, and is killed when the hotel is booked")
        done = self.process()
        check(
            done.returncode == -signal.SIGKILL, "the process was killed, with no chance to clean up"
        )
        check(
            self.times("train booked") == self.times("hotel booked") == 1, "both were booked, once"
        )

        say("\n2. What the store knows of it")
        with HoldfastSaver.open(self.url, key=self.key) as saver:
            found = saver.may_have_run(THREAD)
        check(
            found == ["hotel"], f"saver.may_have_run(config) says {found}: look before you resume"
        )

        say("\n3. Another process resumes the thread")
        done = self.process("--resume")
        check(done.returncode == 0, "it finished")
        check("stored nothing: hotel." in done.stderr, f"it warned: {done.stderr.strip()}")
        check(
            self.times("planned") == self.times("train booked") == 1,
            "plan and train did not run again",
        )
        check(self.times("hotel booked") == 2, "hotel did, as said: nothing had recorded it")
        check(self.times("report written") == 1, "the report was written")

        say("\n4. The thread, as anybody may read and verify it")
        with HoldfastSaver.open(self.url, key=self.key) as saver:
            state = build(saver, self.effects, die=False).get_state(THREAD)
            for message in state.values["messages"]:
                say(f"    {message.type}: {message.content}")
            check(state.next == (), "nothing is left to do")
        with sync.open(self.url, key=self.key) as store:
            check(store.verify().ok, "the whole store verifies")

    def process(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, __file__, "--agent", self.url, self.key, str(self.effects)]
        return subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def times(self, effect: str) -> int:
        return self.effects.read_text().splitlines().count(effect)


def say(text: str) -> None:
    print(text, flush=True)


def check(holds: bool, claim: str) -> None:
    """Say what was found to hold; end if it does not."""
    say(f"  {'✓' if holds else '✗'} {claim}")
    if not holds:
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--agent", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        work(*options.agent, resume=options.resume)
        return
    os.environ.pop("HOLDFAST_KEY", None)
    with tempfile.TemporaryDirectory(prefix="holdfast-langgraph-") as folder:
        Story(Path(folder)).run()


if __name__ == "__main__":
    main()
