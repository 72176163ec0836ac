"""What users do, end to end, beside what they would use instead, in the same run.

Each case runs in a process of its own, ours and theirs right after each other, on the same disk and
at the same durability: every commit is synced, unless a row says otherwise. Ours has a key, theirs
are not encrypted. A figure is the wall time of ours divided by theirs: below 1 we are faster.

The peers come from the dependency group `bench`, which `make bench` installs.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
from common import Place, Row, at, at_most, in_child, median, message, place, told, words

OURS = "Holdfast"
STEPS = ((30, 5), (300, 3), (1500, 1))
"""Supersteps of a graph, and how often it is run; the figure is of the run in the middle."""
TURNS = 1000
LIMITS = {(30, "SqliteSaver"): 1.0, (1500, "SqliteSaver"): 0.25, (1500, "InMemorySaver"): 0.8}


def run(quick: bool) -> list[Row]:
    """Graphs, loops, sessions and durable steps."""
    rows = [*graphs(quick), *loops(100 if quick else TURNS)]
    rows += sessions(100 if quick else TURNS)
    return [*rows, *durable_steps(50 if quick else 500)]


def measured(function: str, count: int, repeats: int = 3, **more: Any) -> float:
    """The median seconds of a case that is run in fresh places by processes of their own."""
    taken = []
    for _ in range(repeats):
        with place() as here:
            folder = str(here.folder.parent)
            taken.append(in_child(f"users:{function}", folder=folder, count=count, **more))
    return median(one["seconds"] for one in taken)


def beside(what: str, peer: str, ours: float, theirs: float, count: int, limit: float = 0) -> Row:
    """The row of a pair."""
    note = f"{ours / count * 1e3:.2f} ms each against {theirs / count * 1e3:.2f}"
    figure = f"{what}: time / {peer}"
    if not limit:
        return told(figure, ours / theirs, note=note)
    return at_most(figure, ours / theirs, limit, note=note)


# LangGraph


def graphs(quick: bool) -> Iterator[Row]:
    """Graphs whose one node goes on until it has said enough."""
    with postgres() as server:
        for steps, repeats in STEPS[: 1 if quick else None]:
            for durability in ("sync", "async"):
                case = {"count": steps, "repeats": repeats, "durability": durability}
                what = f"graph of {steps} supersteps, durability {durability}"
                ours = measured("graph", **case, saver=OURS)
                for peer in ("SqliteSaver", "InMemorySaver"):
                    theirs = measured("graph", **case, saver=peer)
                    limit = LIMITS.get((steps, peer), 0) if durability == "sync" else 0
                    yield beside(what, peer, ours, theirs, steps, limit)
                if server is not None and steps < 1500:  # PostgresSaver's alone takes minutes
                    ours = measured("graph", **case, saver=OURS, server=server)
                    theirs = measured("graph", **case, saver="PostgresSaver", server=server)
                    yield beside(f"{what}, PostgreSQL", "PostgresSaver", ours, theirs, steps)


@contextmanager
def postgres() -> Iterator[str | None]:
    """A PostgreSQL server of this run's own; None where none is installed."""
    kit = Path(__file__).parent.parent / "tests" / "store"
    sys.path.insert(0, str(kit))
    try:
        from postgres_kit import Server

        server = Server()
    except BaseException as error:  # the kit says so with an outcome of pytest's
        if isinstance(error, KeyboardInterrupt):
            raise
        print(f"without PostgreSQL: {error}", file=sys.stderr)
        yield None
        return
    try:
        yield server.url
    finally:
        server.remove()


def graph(
    folder: str, count: int, durability: str, saver: str, server: str | None = None
) -> dict[str, float]:
    """Run a graph of so many supersteps once."""

    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    def say(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage(words(260, len(state["messages"])))]}

    def on(state: Any) -> str:
        return "say" if len(state["messages"]) < count else END

    builder = StateGraph(MessagesState)
    builder.add_node("say", say)
    builder.add_edge(START, "say")
    builder.add_conditional_edges("say", on)
    with opened(saver, at(folder), server) as checkpointer:
        compiled = builder.compile(checkpointer=checkpointer)
        config = {"configurable": {"thread_id": "a"}, "recursion_limit": count + 5}
        start = time.perf_counter()
        compiled.invoke({"messages": []}, config, durability=durability)
        return {"seconds": time.perf_counter() - start}


@contextmanager
def opened(name: str, here: Place, server: str | None) -> Iterator[Any]:
    """A saver by its name."""
    if name == OURS:
        from holdfast.integrations.langgraph import HoldfastSaver

        ring = here.folder / "keys.ring"  # beside the server, as it asks for
        url = f"{server}&schema=s{time.time_ns()}&ring={ring}" if server else here.url
        with HoldfastSaver.open(url, key=here.key, durability="full") as saver:
            yield saver
    elif name == "InMemorySaver":
        from langgraph.checkpoint.memory import InMemorySaver

        yield InMemorySaver()
    elif name == "SqliteSaver":
        from langgraph.checkpoint.sqlite import SqliteSaver

        file = here.folder / "theirs.db"
        with closing(sqlite3.connect(file, check_same_thread=False)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            yield SqliteSaver(connection)
    else:
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(server) as saver:
            saver.setup()
            saver.delete_thread("a")
            yield saver


# an agent's loop


def loops(turns: int) -> Iterator[Row]:
    """Turns with an effect each, two messages, and a checkpoint every tenth."""
    ours, theirs = measured("turns", turns), measured("bare_turns", turns)
    what = f"{turns} turns with effects and checkpoints"
    yield beside(what, "plain SQLite with the same rows", ours, theirs, turns)


def turns(folder: str, count: int) -> dict[str, float]:
    """An agent of one's own loop, kept by Holdfast."""
    from holdfast.sync.agents import Effects

    with at(folder).sync() as store:
        state = store.agent("a")
        effects = Effects(state)
        start = time.perf_counter()
        for number in range(count):
            state.append("conversation", message(2 * number))
            with effects.once("search", id=f"call-{number}") as effect:
                effect.result = {"found": words(200, number)} if effect.due else None
                effect.append("conversation", message(2 * number + 1))
            if number % 10 == 9:
                state.checkpoint(f"turn {number}")
        return {"seconds": time.perf_counter() - start}


def bare_turns(folder: str, count: int) -> dict[str, float]:
    """The same rows in the same commits, by hand, with nothing checked or chained."""
    import json

    with bare(at(folder)) as put:
        start = time.perf_counter()
        for number in range(count):
            put([("message", json.dumps(message(2 * number)))])
            put([("effect", json.dumps({"id": f"call-{number}", "phase": "started"}))])
            found = {"id": f"call-{number}", "phase": "done", "found": words(200, number)}
            answer = json.dumps(message(2 * number + 1))
            put([("effect", json.dumps(found)), ("message", answer)])
            if number % 10 == 9:
                put([("checkpoint", json.dumps({"name": f"turn {number}"}))])
        return {"seconds": time.perf_counter() - start}


@contextmanager
def bare(here: Place) -> Iterator[Callable[[list[tuple[str, str]]], None]]:
    """A table in WAL mode; what it gives commits rows together."""
    with closing(apsw.Connection(str(here.folder / "bare.db"))) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, kind TEXT, data TEXT)")

        def put(rows: list[tuple[str, str]]) -> None:
            with connection:
                connection.executemany("INSERT INTO rows (kind, data) VALUES (?, ?)", rows)

        yield put


# sessions


def sessions(count: int) -> Iterator[Row]:
    """Items of a session appended one by one, then its end read."""
    ours, theirs = measured("session", count), measured("their_session", count)
    yield beside(
        f"{count} items appended to a session", "OpenAI's SQLiteSession", ours, theirs, count
    )


def session(folder: str, count: int) -> dict[str, float]:
    """A list of a session's state."""

    async def go() -> float:
        async with at(folder).open() as store:
            state = store.session("a")
            start = time.perf_counter()
            for number in range(count):
                await state.append("items", message(number))
            await state.tail("items", 50)
            return time.perf_counter() - start

    return {"seconds": asyncio.run(go())}


def their_session(folder: str, count: int) -> dict[str, float]:
    """The session of the OpenAI Agents SDK."""
    from agents import SQLiteSession

    async def go() -> float:
        kept = SQLiteSession("a", str(at(folder).folder / "theirs.db"))
        start = time.perf_counter()
        for number in range(count):
            await kept.add_items([message(number)])
        await kept.get_items(limit=50)
        return time.perf_counter() - start

    return {"seconds": asyncio.run(go())}


# durable steps


def durable_steps(count: int) -> Iterator[Row]:
    """Steps of a workflow that are not done again after a crash."""
    ours, theirs = measured("steps", count), measured("their_steps", count)
    yield beside(f"{count} durable steps", "DBOS on SQLite", ours, theirs, count)


def step(number: int) -> dict[str, Any]:
    """What a step gives."""
    return {"number": number, "text": words(300, number)}


def steps(folder: str, count: int) -> dict[str, float]:
    """Effects: each is noted before it is begun, and with its result when it is done."""
    from holdfast.sync.agents import Effects

    with at(folder).sync() as store:
        effects = Effects(store.workflow("a"))
        start = time.perf_counter()
        for number in range(count):
            effects.call("step", lambda _, number=number: step(number), id=f"step-{number}")
        return {"seconds": time.perf_counter() - start}


def their_steps(folder: str, count: int) -> dict[str, float]:
    """Steps of a DBOS workflow: each is noted with its result when it is done."""
    from dbos import DBOS

    file = at(folder).folder / "theirs.db"
    settings: Any = {"name": "bench", "system_database_url": f"sqlite:///{file}"}
    DBOS(config={**settings, "run_admin_server": False, "log_level": "ERROR"})
    done = DBOS.step()(step)

    @DBOS.workflow()
    def flow() -> None:
        for number in range(count):
            done(number)

    DBOS.launch()
    try:
        start = time.perf_counter()
        flow()
        return {"seconds": time.perf_counter() - start}
    finally:
        DBOS.destroy()
