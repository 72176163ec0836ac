"""Runs: what each one saw of a thread before it writes, and who has to wait.

LangGraph tells a saver neither when a run begins nor when it ends. What it shows is enough: a
run reads the newest checkpoint (or one by its id) and then puts checkpoints on top of it, in the
same context; the last one triggers no further node.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from holdfast.errors import Conflict
from holdfast.integrations.langgraph.records import PULL, Record, Writes

_T = TypeVar("_T")
START = "__start__"
_TRIGGERS = ("branch:", "join:", "__pregel_tasks", START)
TASKS = "__pregel_tasks"
"""The channel that holds what was sent to nodes, in order."""
_PUSH = "~__pregel_push, "
_DONE = "done"
MOST_READINGS = 64
_LOOK = 0.25
MOST_REMEMBERED = 10_000


class _Reading(NamedTuple):
    """What a context has read of one namespace of a thread."""

    asked: frozenset[str | None] = frozenset()
    """Checkpoints asked for by id, listed, or named as the parent of one; None: the beginning."""
    empty: bool = False
    """It looked for the newest one and there was none."""


_Place = tuple[int, Any, str, str]
"""Saver, run (None outside of one), thread, namespace."""
_Readings = dict[_Place, _Reading]
_readings: ContextVar[_Readings | None] = ContextVar("holdfast_langgraph", default=None)
_NOTHING = _Reading()


class Sight:
    """What a run has read: on what it may rest what it writes.

    LangGraph copies the context into the threads and tasks that write for a run. A run is told from
    its caller, who may look at the thread meanwhile in the same context, by an object of its own
    in the config.
    """

    def __init__(self) -> None:
        self._me = id(self)

    def saw(
        self, thread: str, ns: str, config: Any, found: CheckpointTuple | None, *, asked: bool
    ) -> None:
        """A checkpoint was read: the newest, or (`asked`) one by its id."""
        place = (self._me, run_of(config), thread, ns)
        reading = _reading(place)
        ids = set(reading.asked)
        if found is None:
            empty = not asked or reading.empty
        else:
            empty = False
            if asked or place[1] is None:
                ids.add(parent_of(found))  # a copy of a checkpoint rests on its parent
            # Read as the newest, it must still be the newest when something is put on top of it.
            (ids.add if asked else ids.discard)(found.checkpoint["id"])
        _note(place, _Reading(frozenset(ids), empty))

    def listed(self, thread: str, ns: str, config: Any, ids: Iterable[str | None]) -> None:
        """Checkpoints were listed; None stands for a list that was empty."""
        place = (self._me, run_of(config), thread, ns)
        reading = _reading(place)
        _note(place, reading._replace(asked=reading.asked.union(ids)))

    def check(
        self, thread: str, ns: str, config: Any, parent: str | None, id: str, source: Any
    ) -> Callable[[Record | None], None]:
        """Refuses a checkpoint that does not rest on the newest one, unless that was asked for.

        Otherwise what another run put meanwhile, an input perhaps, would be passed over silently.
        What was read is told by the context that calls this, not by the one that checks.
        """
        reading = _reading((self._me, run_of(config), thread, ns))
        name = f"thread {thread!r}{f' ({ns})' if ns else ''}"

        def check(head: Record | None) -> None:
            if head is None:
                if parent is None:
                    return
                raise Conflict(
                    f"{name}: it was deleted since this run read checkpoint {parent}; nothing of "
                    "this step is stored. Invoke again to begin anew"
                )
            if parent == head.id or id == head.id or parent in reading.asked:
                return
            if parent is None and not reading.empty:
                return
            raise Conflict(
                f"{name}: another run put checkpoint {head.id} since this one read "
                f"{parent or 'the empty thread'}; nothing of this step is stored. "
                f"{_advice(source)}, give its checkpoint_id to branch off an older one, or let "
                "runs queue with HoldfastSaver(..., busy='wait')"
            )

        return check


def _advice(source: Any) -> str:
    if source == "input":
        return "Nor is this run's input: invoke again with it to go on from the newest state"
    return (
        "Look in the newest state for this run's input, which an earlier step stored and the other "
        "run may have passed over"
    )


def run_of(config: Any) -> Any:
    """An object that stands for the run that a config belongs to; None outside of a run."""
    runtime = config["configurable"].get("__pregel_runtime") if config else None
    return getattr(runtime, "control", None) if runtime is not None else None


def _reading(place: _Place) -> _Reading:
    return (_readings.get() or {}).get(place, _NOTHING)


def _note(place: _Place, reading: _Reading) -> None:
    known = dict(_readings.get() or {})
    known.pop(place, None)
    while len(known) >= MOST_READINGS:
        # What a run has read is what it is checked by: others go first.
        del known[next((other for other in known if other[1] is None), next(iter(known)))]
    _readings.set({**known, place: reading})


def parent_of(found: CheckpointTuple) -> str | None:
    """The id of the checkpoint before one."""
    return found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None


class Queue:
    """Lets one run at a time work on a thread, within this process.

    A run is over when its last checkpoint triggers nothing, when it stored an error or an
    interrupt, when its own objects are gone, or when it was silent for `patience` seconds. Should
    it go on after all, its next checkpoint is refused as a conflict: nothing is lost.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def enter(self, thread: str, config: dict[str, Any]) -> bool:
        """Whether the run that asks may go on now; it then has the thread to itself."""
        mark = _mark(config)
        if mark is None:
            return True
        with self._lock:
            run = self._runs.get(thread)
            if run is None or run.mark() is mark or not run.busy(self.patience):
                self._runs[thread] = _Run(mark)
                return True
        run.look_for_end()
        return False

    def noticed(self, thread: str, config: Any, *, over: bool) -> None:
        """A run wrote something, or failed to; perhaps its last. Only who has the turn counts."""
        with self._lock:
            run = self._runs.get(thread)
            if run is None or run.mark() is not _mark(config):
                return
            run.last = time.monotonic()
            if over:
                del self._runs[thread]


class _Run:
    def __init__(self, mark: Any) -> None:
        self.mark = weakref.ref(mark)
        self.last = time.monotonic()
        self.look: float | None = None
        """When to look whether it is gone, while others wait."""

    def busy(self, patience: float) -> bool:
        return self.mark() is not None and time.monotonic() - self.last < patience

    def look_for_end(self) -> None:
        """Now and then, while somebody waits: what is left of a run that failed refers to itself,
        and is gone only once the collector has found it."""
        begun = time.monotonic()
        if self.look is not None and begun >= self.look:
            gc.collect()
            self.look = None
        if self.look is None:
            took = time.monotonic() - begun
            self.look = begun + max(_LOOK, 20 * took)


def _mark(config: dict[str, Any]) -> Any:
    """An object that lives as long as the run; None if it is not a run that reads."""
    runtime = config["configurable"].get("__pregel_runtime")
    return getattr(runtime, "stream_writer", None)


def triggered(record: Record) -> set[str]:
    """Nodes that a checkpoint makes run next, as far as its channels tell.

    Graphs that are not built by `StateGraph` have channels of any name: of theirs only the nodes
    that ran before are known, by what they had seen then.
    """
    found: set[str] = set()
    if not any(name.startswith(_TRIGGERS) for name in record.versions):
        return {
            node
            for node, seen in record.seen.items()
            if any(
                record.versions.get(name, version) != version
                for name, version in seen.items()
                if name in record.values
                or name in record.apart  # an empty channel triggers nothing
            )
        }
    for name in record.updated or ():
        if name.startswith("branch:to:"):
            found.add(name.removeprefix("branch:to:"))
        elif name.startswith("join:"):
            found.add(name.rpartition(":")[2])
        elif name == START:
            found.add(START)
    return found


def finished(checkpoint: Mapping[str, Any]) -> bool:
    """Whether a checkpoint triggers nothing more; not known of graphs of another make."""
    updated = checkpoint.get("updated_channels")
    if updated is None or any(name.startswith(_TRIGGERS) for name in updated):
        return False
    return any(name.startswith(_TRIGGERS) for name in checkpoint.get("channel_versions", ()))


def answered(calls: Iterable[Writes]) -> set[str]:
    """Paths of the tasks that stored something, or that wait for an answer.

    One that failed may have run, and so may one that was given the answer it waited for: LangGraph
    notes an answer before the task goes on, for the task itself or for whichever waits.
    """
    found: dict[str, str] = {}
    for call in calls:
        channels = {channel for _, channel, _ in call.items}
        if channels - {ERROR, INTERRUPT, RESUME}:
            found[call.path] = _DONE
        elif INTERRUPT in channels:
            found[call.path] = INTERRUPT
        elif RESUME in channels:
            waiting = [call.path] if call.path else list(found)
            found.update((path, "") for path in waiting if found.get(path) != _DONE)
    return {path for path, what in found.items() if what}


def unanswered(sends: list[Any], paths: set[str]) -> set[str]:
    """Nodes that something was sent to, but for the tasks that have these paths."""
    return {send.node for n, send in enumerate(sends) if f"{_PUSH}{n:010d}" not in paths}


def node_of(path: str) -> str:
    """The node that a task's path names."""
    return path.removeprefix(PULL)


def check_may_wait(thread: str) -> None:
    """A blocking call in a running loop would wait for what that loop has to do."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Conflict(
        f"thread {thread!r}: another run is at work on it, and a blocking call in a running event "
        "loop cannot wait for that; use ainvoke"
    )


def remember(known: dict[str, _T], name: str, what: _T, most: int = MOST_REMEMBERED) -> None:
    """Note something; what was noted first is forgotten."""
    known[name] = what
    while len(known) > most:
        known.pop(next(iter(known)), None)
