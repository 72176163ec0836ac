"""LangGraph's checkpoints: `HoldfastSaver` beside LangGraph's own `SqliteSaver`.

Both at the same durability (WAL, every commit synced), in the same run, in turn. LangGraph's saver
is not encrypted; ours is measured plain and with a key.
"""

from __future__ import annotations

import gc
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, NamedTuple, TypedDict

from common import (
    Place,
    Row,
    at,
    at_most,
    in_child,
    median,
    place,
    timed,
    told,
    words,
)
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from holdfast.integrations.langgraph import HoldfastSaver

OURS, KEYED, THEIRS = "ours", "ours with a key", "SqliteSaver"
MB = 1e6
TURNS = 1000
"""What is demanded is demanded of threads of this length; of shorter ones it is only told."""
ENOUGH = 250


def run(quick: bool) -> list[Row]:
    """1,000 turns of a conversation of 0.78 MB, then single calls at their end."""
    turns = 60 if quick else TURNS
    with place() as ours, place() as keyed, place() as theirs:
        places = {OURS: ours, KEYED: keyed, THEIRS: theirs}
        rows = [*grow(places, turns), *calls(places, turns, 3 if quick else 15)]
    rows += [*early(), *pending(10 if quick else 40)]
    for count in (60,) if quick else (300, 1500):
        rows += history(count)
    return [*rows, *steps(30 if quick else TURNS), *deltas(30 if quick else 200)]


# savers


@contextmanager
def saver_at(name: str, here: Place) -> Iterator[Any]:
    """A saver on its store, opened and closed."""
    if name == THEIRS:
        file = here.folder / "theirs.db"
        with closing(sqlite3.connect(file, check_same_thread=False)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            yield SqliteSaver(connection)
        return
    key = here.key if name == KEYED else None
    with HoldfastSaver.open(here.url, key=key, durability="full") as saver:
        yield saver


def human(number: int) -> HumanMessage:
    """What a person says in a turn."""
    return HumanMessage(words(130, number), id=f"human-{number}-{number * 7919:024}")


def answer(state: Any) -> dict[str, Any]:
    """What the model says in a turn."""
    return {"messages": [AIMessage(words(260, 7 * len(state["messages"])))]}


def compiled(saver: Any, schema: Any = MessagesState) -> Any:
    """A graph with one node."""
    builder = StateGraph(schema)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def thread(id: str) -> dict[str, Any]:
    """The config of a thread."""
    return {"configurable": {"thread_id": id, "checkpoint_ns": ""}}


def talk(graph: Any, count: int, **options: Any) -> int:
    """So many turns; the bytes of all messages as LangGraph's own serialiser writes them."""
    found: Any = {}
    for number in range(count):
        found = graph.invoke({"messages": [human(number)]}, thread("a"), **options)
    return len(JsonPlusSerializer().dumps_typed(found["messages"])[1])


# bytes


def grow(places: dict[str, Place], turns: int) -> Iterator[Row]:
    """A conversation with one checkpoint a turn."""
    for name, here in places.items():
        yield from filled(name, here, turns, f"{turns} turns, one checkpoint each", "exit")


def steps(turns: int) -> Iterator[Row]:
    """The same graph as it comes: three checkpoints and two writes a turn."""
    for name in (KEYED, THEIRS):
        # Theirs would take more than a gigabyte.
        count = min(turns, ENOUGH) if name == THEIRS else turns
        with place() as here:
            yield from filled(name, here, count, f"{count} turns, default durability", "async")


def filled(name: str, here: Place, turns: int, what: str, durability: str) -> Iterator[Row]:
    """What a conversation takes on disk, after it is closed, and in time."""
    with saver_at(name, here) as saver:
        start = time.perf_counter()
        size = talk(compiled(saver), turns, durability=durability)
        took = time.perf_counter() - start
    figure = f"{what}: {name}: files / messages"
    note = f"{size / MB:.2f} MB take {here.bytes() / MB:.2f}; {took / turns * 1e3:.1f} ms a turn"
    if name == THEIRS or turns < TURNS:
        yield told(figure, here.bytes() / size, note=note)
    else:
        yield at_most(figure, here.bytes() / size, 3, note=note)


# single calls


class Cost(NamedTuple):
    """Seconds of a call: on the clock, and of CPU, which a busy machine or disk disturbs less."""

    wall: float
    cpu: float


def costs(work: Callable[[], Any]) -> tuple[Cost, Any]:
    """What a call costs, and what it returns."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu), found


class Line:
    """The end of a thread, to which checkpoints are put as LangGraph does it."""

    def __init__(self, saver: Any, id: str = "a") -> None:
        self.saver = saver
        self.id = id
        found = saver.get_tuple(thread(id))
        self.config: dict[str, Any] = found.config if found else thread(id)
        self.step = (found.metadata["step"] if found else -1) + 1
        self.last: dict[str, Any] = found.checkpoint if found else {}
        self.messages: list[AnyMessage] = self.values.get("messages", [])

    @property
    def values(self) -> dict[str, Any]:
        """Channels of the last checkpoint."""
        return self.last.get("channel_values", {})  # type: ignore[no-any-return]

    def put(self) -> Cost:
        """One more turn in a new list, as `add_messages` makes it; what the put alone costs."""
        number = len(self.messages)
        ids = {"id": str(uuid6(clock_seq=self.step))}
        said = [human(number), AIMessage(words(260, number), **ids)]
        self.messages = [*self.messages, *said]
        versions = self.last.get("channel_versions", {})
        next_version = self.saver.get_next_version(max(versions.values(), default=None), None)
        channels = {"__start__", "messages", "branch:to:answer"}
        new = dict.fromkeys(sorted(channels), next_version)
        checkpoint = {
            "v": 4,
            **ids,
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": {**self.values, "messages": self.messages},
            "channel_versions": {**versions, **new},
            "versions_seen": {
                "__input__": {},
                "__start__": {"__start__": next_version},
                "answer": {"branch:to:answer": next_version},
            },
            "updated_channels": ["messages"],
        }
        metadata = {"source": "loop", "step": self.step, "parents": {}}
        cost, self.config = costs(lambda: self.saver.put(self.config, checkpoint, metadata, new))
        self.step += 1
        self.last = checkpoint
        return cost


Times = dict[str, list[Cost]]


def in_turn(names: Any, rounds: int, work: Callable[[str], Cost]) -> Times:
    """The same work for all, in turn, so that a slow minute slows all of them."""
    times: Times = {name: [] for name in names}
    for _ in range(rounds):
        for name in times:
            times[name].append(work(name))
    return times


def calls(places: dict[str, Place], turns: int, rounds: int) -> Iterator[Row]:
    """put, get_tuple and list, warm; then in processes just started."""
    with (
        saver_at(OURS, places[OURS]) as ours,
        saver_at(KEYED, places[KEYED]) as keyed,
        saver_at(THEIRS, places[THEIRS]) as theirs,
    ):
        savers = {OURS: ours, KEYED: keyed, THEIRS: theirs}
        lines = {name: Line(saver) for name, saver in savers.items()}
        for line in lines.values():
            line.put()
        gc.collect()
        puts = in_turn(savers, rounds, lambda name: lines[name].put())
        whole = turns >= TURNS
        yield from compared(f"put at turn {turns}, warm", puts, 0.25 if whole else None)
        gets = in_turn(savers, rounds, lambda n: costs(lambda: savers[n].get_tuple(thread("a")))[0])
        yield from compared(f"newest state at turn {turns}, warm", gets, 0.2 if whole else None)
        yield from listing(savers, 200 if whole else 50, whole)
    yield from started(places, turns, rounds // 3)


def started(places: dict[str, Place], turns: int, rounds: int) -> Iterator[Row]:
    """The same in processes just started."""
    times: dict[str, Times] = {what: {name: [] for name in places} for what in ("put", "get")}
    for _ in range(rounds):
        for name, here in places.items():
            folder = str(here.folder.parent)
            found = in_child("langgraph_saver:child", folder=folder, name=name)
            for what in times:
                times[what][name].append(Cost(*found[what]))
    both = {
        name: [Cost(g.wall + p.wall, g.cpu + p.cpu) for g, p in zip(gets, puts, strict=True)]
        for (name, gets), puts in zip(times["get"].items(), times["put"].values(), strict=True)
    }
    whole = turns >= TURNS
    what = f"at turn {turns}, process just started"
    yield from compared(f"put {what}", times["put"], 0.5 if whole else None)
    yield from compared(f"newest state {what}", times["get"], 1.0 if whole else None)
    yield from compared("newest state and put, process just started", both, None)


def listing(savers: dict[str, Any], count: int, whole: bool) -> Iterator[Row]:
    """Checkpoints of a long thread."""

    ways: dict[str, Callable[[Any], Any]] = {
        f"list {count} checkpoints": lambda one: one.metadata,
        "the same, and look at their values": lambda one: one.checkpoint["channel_values"],
    }
    for what, look in ways.items():

        def list_(name: str) -> Cost:
            found = savers[name].list(thread("a"), limit=count)
            return costs(lambda: sum(bool(look(one)) for one in found))[0]  # noqa: B023

        yield from compared(what, in_turn(savers, 1, list_), 0.2 if whole else None)


def child(folder: str, name: str) -> dict[str, Cost]:
    """A process just started: it reads the thread, as LangGraph does before a put, and puts."""
    with saver_at(name, at(folder)) as saver:
        if name == THEIRS:
            saver.setup()
        get, line = costs(lambda: Line(saver))
        return {"get": get, "put": line.put()}


def compared(what: str, times: Times, most: float | None, kind: str = "CPU") -> Iterator[Row]:
    """What ours costs, of theirs: demanded of the one with a key, told of the plain one."""
    wall = {name: median(cost.wall for cost in found) * 1e3 for name, found in times.items()}
    cpu = {name: median(cost.cpu for cost in found) * 1e3 for name, found in times.items()}
    chosen = cpu if kind == "CPU" else wall
    for name in (OURS, KEYED):
        note = f"CPU {cpu[name]:.2f} and {cpu[THEIRS]:.2f} ms"
        note += f"; {wall[name]:.2f} and {wall[THEIRS]:.2f} on the clock"
        figure = f"{what}: {kind}, {name} / {THEIRS}"
        ratio = chosen[name] / chosen[THEIRS]
        if most is None or name == OURS:
            yield told(figure, ratio, note=note)
        else:
            yield at_most(figure, ratio, most, note=note)


@contextmanager
def all_savers() -> Iterator[dict[str, Any]]:
    """All three, each in a place of its own."""
    with ExitStack() as stack:
        names = (OURS, KEYED, THEIRS)
        yield {
            name: stack.enter_context(saver_at(name, stack.enter_context(place())))
            for name in names
        }


def early() -> Iterator[Row]:
    """A put at the tenth turn, in several threads."""
    with all_savers() as savers:
        times: Times = {name: [] for name in savers}
        for number in range(12):
            lines = {name: Line(saver, f"t{number}") for name, saver in savers.items()}
            in_turn(lines, 9, lambda name: lines[name].put())  # noqa: B023
            for name, found in in_turn(lines, 3, lambda name: lines[name].put()).items():  # noqa: B023
                times[name] += found
    yield from compared("put at turn 10, warm", times, 1.3)


def pending(rounds: int) -> Iterator[Row]:
    """What a task wrote, outside of a run: no checkpoint follows that it could go along with."""
    with all_savers() as savers:
        lines = {name: Line(saver) for name, saver in savers.items()}

        def write(name: str) -> Cost:
            lines[name].put()
            writes = [("messages", [AIMessage(words(260, lines[name].step))])]
            config = lines[name].config
            return costs(lambda: savers[name].put_writes(config, writes, "task"))[0]

        yield from compared("put_writes alone", in_turn(savers, rounds, write), 3, "time")


def history(count: int) -> Iterator[Row]:
    """The ten newest states of a graph that has said so much, one message a step."""
    with all_savers() as savers:
        graphs = {}
        for name, saver in savers.items():
            builder = StateGraph(MessagesState)
            builder.add_node("answer", answer)
            builder.add_edge(START, "answer")
            builder.add_conditional_edges("answer", partial(goes_on, count))
            graph = graphs[name] = builder.compile(checkpointer=saver)
            # Theirs would store all of it at each step: most is there before.
            known = max(0, count - 15) if name == THEIRS else 0
            said = [AIMessage(words(260, 7 * number), id=f"a{number}") for number in range(known)]
            graph.update_state(thread("a"), {"messages": said}, as_node=START)
            graph.invoke(None, {**thread("a"), "recursion_limit": count + 5}, durability="sync")

        def look(name: str) -> Cost:
            return costs(lambda: [*graphs[name].get_state_history(thread("a"), limit=10)])[0]

        most = {300: 1.1, 1500: 0.4}.get(count)
        yield from compared(f"history of 10 at {count} messages", in_turn(graphs, 5, look), most)


def goes_on(count: int, state: Any) -> str:
    """Whether a graph goes on until it has said so much."""
    return "answer" if len(state["messages"]) < count else END


# delta channels


def joined(state: list[Any], writes: list[list[Any]]) -> list[Any]:
    """All that was written, in order."""
    return [*state, *(item for write in writes for item in write)]


class Deltas(TypedDict):
    """A conversation in a delta channel."""

    messages: Annotated[list[AnyMessage], DeltaChannel(joined)]


def deltas(turns: int) -> Iterator[Row]:
    """The same conversation in a channel of which LangGraph itself stores only what was added."""
    sizes: dict[str, int] = {}
    times: dict[str, float] = {}
    for name in (OURS, KEYED, THEIRS):
        with place() as here:
            with saver_at(name, here) as saver:
                graph = compiled(saver, Deltas)
                times[name] = timed(lambda: talk(graph, turns))  # noqa: B023
            sizes[name] = here.bytes()
    what = f"{turns} turns, delta channel"
    for name in (OURS, KEYED):
        note = f"{sizes[name] / MB:.2f} and {sizes[THEIRS] / MB:.2f} MB"
        yield at_most(
            f"{what}: files, {name} / {THEIRS}", sizes[name] / sizes[THEIRS], 1, note=note
        )
        note = f"{times[name] / turns * 1e3:.1f} and {times[THEIRS] / turns * 1e3:.1f} ms a turn"
        ratio = times[name] / times[THEIRS]
        if name == OURS:
            yield at_most(f"{what}: time, {name} / {THEIRS}", ratio, 1, note=note)
        else:
            yield told(f"{what}: time, {name} / {THEIRS}", ratio, note=note)
