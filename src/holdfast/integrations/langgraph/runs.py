"""Runs: what each one saw of a thread before it writes, and which nodes it still has to run.

LangGraph does not tell a saver when a run begins. What it shows is enough: a run reads the newest
checkpoint (or one by its id) and then puts checkpoints on top of it, in the same context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from holdfast.errors import Conflict
from holdfast.integrations.langgraph.thread_records import PULL, Record, Writes
from holdfast.seal.codec import Typed

_T = TypeVar("_T")
_K = TypeVar("_K")
START = "__start__"
TASKS = "__pregel_tasks"
"""The channel that holds what was sent to nodes, in order."""
_PUSH = "~__pregel_push, "
_DONE = "done"
MOST_READINGS = 64
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
            advice = (
                "Nor is this run's input: invoke again with it to go on from the newest state"
                if source == "input"
                else "Look in the newest state for this run's input, which an earlier step stored "
                "and the other run may have passed over"
            )
            raise Conflict(
                f"{name}: another run put checkpoint {head.id} since this one read "
                f"{parent or 'the empty thread'}; nothing of this step is stored. "
                f"{advice}, give its checkpoint_id to branch off an older one, or let one run of a "
                "thread begin when the other has ended"
            )

        return check


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


def triggered(record: Record) -> set[str]:
    """Nodes that a checkpoint makes run next, as far as its channels tell: those of graphs that are
    built by `StateGraph` or `@entrypoint`."""
    found: set[str] = set()
    told = type(record.updated) is list  # not by `update_state`, nor by a fork
    for name in record.updated if told else [*record.values, *record.apart]:
        # No other channel makes a node run; and no node's name has a colon.
        node = name.rpartition(":")[2]
        runs = name == START or name.startswith(("branch:to:", "join:"))
        if runs and (told or _unseen(record, name, node)):
            found.add(node)
    return found


def _unseen(record: Record, channel: str, node: str) -> bool:
    """Whether a channel that holds something holds what a node has not seen yet."""
    if channel.startswith("join:"):
        # Those that came are held in a set; they wait for the others.
        held = record.values.get(channel)
        waits = channel.removeprefix("join:").rpartition(":")[0].count("+") + 1
        if type(held) is not Typed or type(held.value) is not list or len(held.value) < waits:
            return False
    seen = record.seen.get(node, {}).get(channel)
    return seen is None or bool(record.versions.get(channel, seen) > seen)


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


def nodes_left(record: Record, sent: list[str], paths: set[str]) -> list[str]:
    """Nodes that a checkpoint makes run, by its channels or by what was sent to them in this
    order; but for the tasks that have these paths."""
    found = triggered(record) - {*map(node_of, paths)}
    return sorted(
        found.union(node for n, node in enumerate(sent) if f"{_PUSH}{n:010d}" not in paths)
    )


def node_of(path: str) -> str:
    """The node that a task's path names."""
    return path.removeprefix(PULL)


def remember(known: dict[_K, _T], name: _K, what: _T) -> None:
    """Note something; what was noted first is forgotten."""
    known[name] = what
    while len(known) > MOST_REMEMBERED:
        known.pop(next(iter(known)), None)
