"""Looking back: listing checkpoints, and what delta channels got on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, repeat
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, DeltaChannelHistory, PendingWrite

from holdfast.errors import PointNotFoundError, PrunedError, StateIntegrityError
from holdfast.integrations.langgraph.put import RECORDS
from holdfast.integrations.langgraph.runs import TASKS, answered, nodes_left
from holdfast.integrations.langgraph.thread import PAGE, Loaded, Past, Thread
from holdfast.integrations.langgraph.thread_records import Space, deltas_in, merged
from holdfast.store.names.arguments import check_limit

DELTAS = 16
"""Checkpoints that are read together on the way back to a stored value."""


def listed(
    places: list[tuple[Thread, Space]],
    id: str | None,
    before: str | None,
    filter: dict[str, Any] | None,
    limit: int | None,
) -> Iterator[tuple[Thread, Space, Loaded]]:
    """Checkpoints of these places that fit, the newest id first."""
    check_limit(limit)
    page = min(limit, PAGE) if limit and not filter and id is None else PAGE
    pasts = [Past(*place, page=max(1, page)) for place in places]
    if id is not None:
        lines = [iter([loaded] if (loaded := past.get(id)) else []) for past in pasts]
    else:
        lines = [_older(past, before) for past in pasts]
    order = merge(
        *(zip(repeat(place), line) for place, line in zip(places, lines, strict=True)),
        key=lambda item: item[1].record.id,
        reverse=True,
    )
    fits = (
        (*place, loaded)
        for place, loaded in order
        if (before is None or loaded.record.id < before)
        and (not filter or filter.items() <= RECORDS.build(loaded.record.metadata).items())
    )
    return islice(fits, limit)


def _older(past: Past, before: str | None) -> Iterator[Loaded]:
    """Checkpoints in the order of their ids, the newest first."""
    order: Sequence[int]
    if past.mixed:
        order = sorted(range(len(past)), key=lambda position: past.record(position).id)
    else:
        order = range(len(past) if before is None else past.first_not_before(before))
    return (past.at(position) for position in reversed(order))


def delta_history(
    thread: Thread, space: Space, id: str | None, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """For each channel the nearest stored value before a checkpoint, and the writes since."""
    past = Past(thread, space, page=DELTAS, known=thread.past.get(space.ns))
    thread.past[space.ns] = past
    target = (past.get(id) if id else past.at(-1)) if past else None
    wanted = set(channels)
    writes: dict[str, list[PendingWrite]] = {name: [] for name in channels}
    seeds: dict[str, Any] = {}
    loaded = _before(past, target, wanted) if target else None
    while loaded is not None and wanted:
        for write in reversed(merged(loaded.calls, loaded.record.id)):
            if write[1] in wanted:
                writes[write[1]].append(write)
        here = wanted & {*loaded.record.values, *loaded.record.apart}
        if here:
            held = thread.values(space, loaded)
            seeds |= {name: held[name] for name in here}
            wanted -= here
        loaded = _before(past, loaded, wanted)
    result: dict[str, DeltaChannelHistory] = {}
    for name in channels:
        found = writes[name][::-1]
        built = thread.build([value for _, _, value in found], target.entry) if target else []
        made = [(task, of, value) for (task, of, _), value in zip(found, built, strict=True)]
        result[name] = {"writes": made}
        if name in seeds:
            result[name]["seed"] = seeds[name]
    return result


def _before(past: Past, loaded: Loaded, wanted: set[str]) -> Loaded | None:
    """The checkpoint that one rests on; refused if channels that are made of it were pruned."""
    before = past.parent(loaded)
    if before is None and loaded.record.parent is not None and wanted & deltas_in(loaded.record):
        line = past.thread.reader.now()
        if line is not None and line.floor.number:
            raise PrunedError(
                f"{past.thread.scope}: delta channels cannot be put together, for what checkpoint "
                f"{loaded.record.id} rests on was pruned; if a restore led here, restore its backup"
            )
    return before


# ---- thread tuples ------------------------------------------------------------------------------
# Checkpoints in the form that LangGraph takes.


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


class Listed(CheckpointTuple):
    """A checkpoint whose values are read when it is looked at: who lists hundreds mostly wants
    their ids, steps and times. The store has to be open still."""

    _read: Callable[[], dict[str, Any]] | None = None

    def whole(self) -> Listed:
        """The same, with its values."""
        if self._read is not None:
            held: Any = tuple.__getitem__(self, _CHECKPOINT)
            held["channel_values"] = self._read()
            self._read = None
        return self

    @property
    def checkpoint(self) -> Any:
        """The checkpoint with its values."""
        return self[_CHECKPOINT]

    def __getitem__(self, at: Any) -> Any:
        return tuple.__getitem__(self.whole(), at)

    def __iter__(self) -> Iterator[Any]:
        return tuple.__iter__(self.whole())

    def __eq__(self, other: object) -> bool:
        return CheckpointTuple(*self) == (tuple(other) if isinstance(other, Listed) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = CheckpointTuple.__hash__

    def __reduce__(self) -> Any:
        return CheckpointTuple, (*self,)

    def __repr__(self) -> str:
        return repr(CheckpointTuple(*self))


_CHECKPOINT = CheckpointTuple._fields.index("checkpoint")
_UNREAD: Any = object()
"""In the place of values: who looks past Python, as encoders do, cannot take it for some."""


def tuple_listed(thread: Thread, space: Space, loaded: Loaded) -> Listed:
    """The same of a checkpoint that was listed before: what cannot be read of a thread that was
    deleted since is no damage."""

    def alive(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (PointNotFoundError, StateIntegrityError):  # or is it damage? its number tells
            thread.check_life(loaded.life)
            raise

    made = Listed(*alive(lambda: tuple_of(thread, space, loaded, _UNREAD)))
    made._read = lambda: alive(lambda: thread.values(space, loaded))
    return made


def open_nodes(thread: Thread, space: Space, loaded: Loaded) -> list[str]:
    """Nodes that a checkpoint makes run and that have stored nothing."""
    record = loaded.record
    calls = [call for call in loaded.calls if call.checkpoint == record.id]
    sent: list[str] = []
    if TASKS in record.values or TASKS in record.apart:
        sent = [send.node for send in thread.values(space, loaded)[TASKS]]
    return nodes_left(record, sent, answered(calls))
