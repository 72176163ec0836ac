"""Copying a thread: its entries are made again in another scope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from holdfast.errors import Conflict
from holdfast.integrations import NEEDS
from holdfast.integrations.langgraph.thread import Thread
from holdfast.integrations.langgraph.thread_records import (
    COPYING,
    RECENT,
    long_entries,
    short_entries,
    whose,
)
from holdfast.store.inner import (
    PATCHED,
    Operation,
    Reader,
    Ticket,
    Trace,
    build_change,
    trace,
)
from holdfast.store.names.cause import Cause, cause_now

_RUNS = ("head", "writes", "late")
"""Keys that tell which run stored them; that of a checkpoint counts first."""
GROUP = 64
"""Entries that are committed together."""


def copy(source: Thread, target: Thread) -> None:
    """Make a target thread with all checkpoints and writes of the source, under the same ids.

    The target must be empty. A copy that was cut short is refused on reading; copying again or
    deleting the target mends it. Of two copies to one target at once, one gets `Conflict`.
    """
    last = source.line.place()[2]
    if not last:
        return
    source.check_whole(source.reader)
    # Before it is looked at: what is written to it from now on refuses what rests on the look.
    head = target.line.place()[2]
    if target.namespaces() and not target.reader.exists(COPYING):
        raise Conflict(
            f"thread {target.id!r} has checkpoints already; delete it first, or copy to another"
        )
    places: dict[int, int] = {}
    held = [*target.reader.keys(NEEDS), *target.reader.keys("")]
    left = [Operation("delete", key) for key in held if key != COPYING]
    begin = [*left, Operation("set", COPYING, source.id)]
    done = own = _change(target, [begin], head)
    group: list[list[Operation]] = []
    for number, operations in _entries(source, last):
        places[number] = done + len(group) + 1
        group.append([_moved(operation, places) for operation in operations])
        if len(group) >= GROUP:
            done = _change(target, group, done, own)
            group = []
    _change(target, [*group, [Operation("delete", COPYING)]], done, own)


def _entries(source: Thread, last: int) -> Iterator[tuple[int, list[Operation]]]:
    """(entry, operations) of all entries that changed keys; first the state, if it was pruned."""
    line = source.reader.now()
    pruned = line.floor.sequence if line is not None else 0
    if pruned:
        state = _items(source.at(pruned))
        yield pruned, [Operation("set", key, value) for key, value in state if key != COPYING]
    steps: Iterable[Trace] = trace(source.line.history, None, pruned + 1, last)
    for number, group in groupby(steps, key=lambda step: step.sequence):
        operations: list[Operation] = []
        for step in group:
            if step.kind == "restore":
                operations = _whole(source, number)
            elif step.key and step.key != COPYING:  # that of the target says how far this one is
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
    gone = {*before.keys(), *before.keys(NEEDS)} - {*after.keys(), *after.keys(NEEDS)}
    changed = [Operation("set", key, value) for key, value in _items(after)]
    found = [Operation("delete", key) for key in sorted(gone)] + changed
    return [operation for operation in found if operation.key != COPYING]


def _items(reader: Reader) -> list[tuple[str, Any]]:
    return [*reader.items(NEEDS, None, "", True), *reader.items("", None, "", True)]


def _moved(operation: Operation, places: dict[int, int]) -> Operation:
    """The same operation, with entries named by their numbers in the target."""
    value = operation.value
    if value is None:
        return operation
    if operation.key.startswith(NEEDS):
        value = places.get(value, min(places.values()))
    elif operation.key.startswith("log"):
        value = [_lot(lot, places) for lot in value]
    elif operation.key.startswith("head"):
        value = [*value[:RECENT], _lot(value[RECENT], places), *value[RECENT + 1 :]]
    return Operation(operation.kind, operation.key, value)


def _lot(lot: Any, places: dict[int, int]) -> Any:
    return short_entries([places[entry] for entry in long_entries(lot) if entry in places])


def _change(
    target: Thread, groups: list[list[Operation]], head: int, own: int | None = None
) -> int:
    """Commit entries behind a given one, one for each list of operations, in few commits.

    The number of the last one. `Conflict` if somebody else wrote to the thread, or began a copy
    since the entry `own` did: their numbers, which the copy names, would be others.
    """
    expects = {COPYING: own} if own is not None else {}
    tickets: list[Ticket] = []
    for number, operations in enumerate(groups):
        change = build_change(
            target.core,
            [(target.scope, "main", operations, expects, head + number)],
            cause=_run(operations),
        )
        tickets.append(target.core.submit(change))
    for ticket in tickets:
        target.core.committer.drive(ticket)
    try:
        return [ticket.outcome()[0].sequence for ticket in tickets][-1]
    except Conflict:
        # Copied entries name each other by numbers that are others now: it cannot go on.
        raise Conflict(
            f"thread {target.id!r} was written to while it was copied to, perhaps by another copy; "
            "look at what it is now, and delete it to copy again"
        ) from None


def _run(operations: list[Operation]) -> Cause | None:
    """The run that put a checkpoint, or wrote on top of one, is the cause of its copy, too."""
    for kind in _RUNS:
        for key, value in ((operation.key, operation.value) for operation in operations):
            if key.startswith(kind) and value is not None and (run := whose(key, value)):
                return cause_now(correlation=run)
    return None
