"""Copying a thread: its entries are made again in another scope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from holdfast.errors import Conflict
from holdfast.integrations.langgraph.records import (
    COPYING,
    RECENT,
    long_entries,
    run_of,
    short_entries,
)
from holdfast.integrations.langgraph.thread import Thread
from holdfast.store.cause import cause_now
from holdfast.store.change import Ticket
from holdfast.store.entries import Cause
from holdfast.store.gates import Operation
from holdfast.store.tracing import PATCHED, Trace, trace
from holdfast.store.writing import build_change

GROUP = 64
"""Entries that are committed together."""


def copy(source: Thread, target: Thread) -> None:
    """Make a target thread with all checkpoints and writes of the source, under the same ids.

    The target must be empty. A copy that was cut short is refused on reading; copying again or
    deleting the target mends it.
    """
    last = source.line.place()[2]
    if not last:
        return
    if target.namespaces() and not target.reader.exists(COPYING):
        raise Conflict(
            f"thread {target.id!r} has checkpoints already; delete it first, or copy to another"
        )
    places: dict[int, int] = {}
    sequence = target.line.place()[2]
    if sequence:
        _change(target, [[Operation("delete", key) for key in _all_keys(target)]])
        sequence += 1
    _change(target, [[Operation("set", COPYING, source.id)]])
    sequence += 1
    group: list[list[Operation]] = []
    for number, operations in _entries(source, last):
        sequence += 1
        places[number] = sequence
        group.append([_moved(operation, places) for operation in operations])
        if len(group) >= GROUP:
            _change(target, group)
            group = []
    _change(target, [*group, [Operation("delete", COPYING)]])


def _all_keys(thread: Thread) -> Iterator[str]:
    return (key for key in thread.reader.keys("") if key != COPYING)


def _entries(source: Thread, last: int) -> Iterator[tuple[int, list[Operation]]]:
    """(entry, operations) of all entries that changed keys; first the state, if it was pruned."""
    line = source.reader.now()
    pruned = line.floor.sequence if line is not None else 0
    if pruned:
        state = source.at(pruned).items("", None, "", True)
        yield pruned, [Operation("set", key, value) for key, value in state]
    steps: Iterable[Trace] = trace(source.line.history, None, pruned + 1, last)
    for number, group in groupby(steps, key=lambda step: step.sequence):
        operations: list[Operation] = []
        for step in group:
            if step.kind == "restore":
                operations = _whole(source, number)
            elif step.key:
                operations.append(_operation(source, step))
        if operations:
            yield number, operations


def _operation(source: Thread, step: Trace) -> Operation:
    value = step.value
    if value is PATCHED:
        value = source.at(step.sequence).get(step.key, None, None, True)
    return Operation(step.kind, step.key, value)


def _whole(source: Thread, number: int) -> list[Operation]:
    """All that differs after a restore, which names no keys."""
    before, after = source.at(number - 1), source.at(number)
    gone = set(before.keys()) - set(after.keys())
    changed = [Operation("set", key, value) for key, value in after.items("", None, "", True)]
    return [Operation("delete", key) for key in sorted(gone)] + changed


def _moved(operation: Operation, places: dict[int, int]) -> Operation:
    """The same operation, with entries named by their numbers in the target."""
    value = operation.value
    if value is None:
        return operation
    if operation.key.startswith("log"):
        value = [_lot(lot, places) for lot in value]
    elif operation.key.startswith("head"):
        value = [*value[:RECENT], _lot(value[RECENT], places), *value[RECENT + 1 :]]
    return Operation(operation.kind, operation.key, value)


def _lot(lot: Any, places: dict[int, int]) -> Any:
    return short_entries([places[entry] for entry in long_entries(lot) if entry in places])


def _change(target: Thread, groups: list[list[Operation]]) -> None:
    """Commit entries, one for each list of operations, in few commits."""
    tickets: list[Ticket] = []
    for operations in groups:
        change = build_change(
            target.core,
            [(target.scope, "main", operations, {}, None)],
            cause=_run(operations),
        )
        tickets.append(target.core.submit(change))
    for ticket in tickets:
        target.core.committer.drive(ticket)
        ticket.outcome()


def _run(operations: list[Operation]) -> Cause | None:
    """The run that put a checkpoint is the cause of its copy, too."""
    for operation in operations:
        if operation.key.startswith("head") and operation.value is not None:
            run = run_of(operation.value)
            return cause_now(correlation=run) if run else None
    return None
