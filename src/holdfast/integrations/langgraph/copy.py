"""Threads as rows: what a checkpoint consists of, and putting it into another thread."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from holdfast.errors import Conflict
from holdfast.integrations.langgraph import put
from holdfast.integrations.langgraph.history import tuple_of
from holdfast.integrations.langgraph.runs import parent_of
from holdfast.integrations.langgraph.thread import Past, Thread
from holdfast.integrations.langgraph.thread_records import COPYING, Space
from holdfast.store.inner import Operation, build_change


class Write(NamedTuple):
    """One thing that a task wrote on top of a checkpoint."""

    task: str
    path: str
    idx: int
    channel: str
    value: Any
    run: str | None = None
    """Whose it is, if not of the run that put the checkpoint."""


class Row(NamedTuple):
    """A checkpoint with all that belongs to it."""

    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    parent: str | None
    writes: list[Write]
    """By task path, task and index."""


def rows(thread: Thread) -> Iterator[tuple[Space, Row]]:
    """All checkpoints of a thread with their namespaces, in the order of putting."""
    # From the newest back, as the past is read in pages; what they hold is read one by one.
    found = [(space, loaded) for space in thread.namespaces() for loaded in Past(thread, space)]
    for space, loaded in sorted(found, key=lambda one: one[1].entry):
        one = tuple_of(thread, space, loaded, thread.values(space, loaded))
        checkpoint: Any = one.checkpoint
        writes: dict[tuple[str, int], Write] = {}
        """What is stored on top of it; see `merged` for which of two counts."""
        for call in loaded.calls:
            for index, channel, plain in call.items if call.checkpoint == loaded.record.id else []:
                if index < 0 or (call.task, index) not in writes:
                    value = thread.build(plain, loaded.entry)
                    held = Write(call.task, call.path, index, channel, value, call.run)
                    writes[call.task, index] = held
        yield space, Row(checkpoint, {**one.metadata}, parent_of(one), [*writes.values()])


def put_row(thread: Thread, space: Space, row: Row) -> None:
    """Make a checkpoint the newest of a namespace, whatever it rests on, with its writes."""
    put.put(thread, space, row.checkpoint, row.metadata, row.parent, lambda _: None)
    put_writes(thread, space, row.checkpoint["id"], row.writes)


def put_writes(thread: Thread, space: Space, id: str, writes: list[Write]) -> None:
    """Write on top of a checkpoint."""
    for (task, path, run), group in groupby(writes, lambda one: (one.task, one.path, one.run)):
        items = [(write.idx, write.channel, write.value) for write in group]
        put.put_writes(thread, space, id, items, task, path, run)


def copy(source: Thread, target: Thread) -> None:
    """Make a target thread with all checkpoints and writes of the source, under the same ids.

    The target must be empty. A copy that was cut short is refused on reading: delete it, and copy
    again. Of two copies to one target at once, one gets `Conflict`.
    """
    if not source.namespaces():
        return
    if target.namespaces():
        raise Conflict(
            f"thread {target.id!r} has checkpoints already; delete it first, or copy to another"
        )
    target.partial = True
    begun = _mark(target, Operation("set", COPYING, source.id), 0)
    for space, row in rows(source):
        put_row(target, space, row)
    _mark(target, Operation("delete", COPYING), begun)
    target.partial = False


def _mark(target: Thread, operation: Operation, version: int) -> int:
    """Note that a thread is being copied to, or no more; the entry that says so."""
    change = (target.scope, "main", [operation], {COPYING: version}, None)
    return target.core.run(build_change(target.core, [change]))[0].sequence
