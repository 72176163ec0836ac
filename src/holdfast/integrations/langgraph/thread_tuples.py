"""Checkpoints in the form that LangGraph takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple

from holdfast.errors import StateIntegrityError
from holdfast.integrations.langgraph.history import Listed, Unread
from holdfast.integrations.langgraph.put import RECORDS
from holdfast.integrations.langgraph.runs import TASKS, answered, node_of, triggered, unanswered
from holdfast.integrations.langgraph.thread import Loaded, Thread
from holdfast.integrations.langgraph.thread_records import Space


def config_of(thread_id: Any, ns: str, id: str) -> RunnableConfig:
    """What names a checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id}}


def tuple_of(
    thread: Thread,
    space: Space,
    loaded: Loaded,
    values: dict[str, Any],
    config: RunnableConfig | None = None,
) -> CheckpointTuple:
    """A checkpoint for LangGraph, of what is stored and its values."""
    record = loaded.record
    build = RECORDS.build
    checkpoint = {
        "v": record.v,
        "id": record.id,
        "ts": record.ts,
        "channel_values": values,
        "channel_versions": build(record.versions),
        "versions_seen": build(record.seen),
        **({"updated_channels": build(record.updated)} if record.updated is not False else {}),
        **(build(record.more) if record.more else {}),
    }
    return CheckpointTuple(
        config or config_of(thread.id, space.ns, record.id),
        cast(Checkpoint, checkpoint),
        build(record.metadata),
        config_of(thread.id, space.ns, record.parent) if record.parent else None,
        thread.pending(loaded),
    )


def tuple_later(thread: Thread, space: Space, loaded: Loaded) -> CheckpointTuple:
    """The same, with values that are read when the checkpoint is looked at."""

    def read() -> dict[str, Any]:
        with _alive(thread, loaded):
            return thread.values(space, loaded)

    with _alive(thread, loaded):
        found = tuple_of(thread, space, loaded, cast(dict[str, Any], Unread()))
    return Listed.of(found, read)


@contextmanager
def _alive(thread: Thread, loaded: Loaded) -> Iterator[None]:
    """What cannot be read of a thread that was deleted since is no damage."""
    try:
        yield
    except StateIntegrityError:
        thread.check_life(loaded.life)
        raise


def open_nodes(thread: Thread, space: Space, loaded: Loaded) -> list[str]:
    """Nodes that a checkpoint makes run and that have stored nothing."""
    record = loaded.record
    calls = [call for call in loaded.calls if call.checkpoint == record.id]
    done = answered(calls)
    found = triggered(record) - {*map(node_of, done)}
    if TASKS in record.values or TASKS in record.apart:
        found |= unanswered(thread.values(space, loaded)[TASKS], done)
    return sorted(found)
