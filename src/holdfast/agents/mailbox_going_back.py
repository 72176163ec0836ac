"""Mailboxes of agents that go back: together with others, or to a state that lacks letters.

A letter that an agent sent while it processed another is sent again once that is processed again.
So if both go back to before it, it is taken back: it stays in the list, for a letter's number never
changes, and is skipped. If they return to a moment at which it was there, it is there again.

What damage has taken out of the list is not there to be numbered. Then the others are numbered so
that those count as processed that were: by the id of the last one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holdfast.agents.keys import own_change
from holdfast.agents.mailbox_keeping import (
    ASIDE,
    BEGUN,
    CLEARED,
    DONE,
    FIRST,
    MESSAGES,
    SKIPPED,
    TRIES,
    UNSENT,
)
from holdfast.agents.mailbox_stretches import Stretches
from holdfast.store.blocking import State
from holdfast.store.gates import Operation
from holdfast.store.handles import LineHandle
from holdfast.store.reading import Reader

PAGE = 500


def letters_taken_back(
    now: Reader, then: Reader, members: Collection[str]
) -> tuple[list[Operation], int]:
    """What lets a mailbox fit a moment to which its agent and `members` return, and how many
    letters that takes back. Only those that a member sent while it processed another."""
    skipped = _skipped(now)
    before, here = _unsent(_skipped(then)), _unsent(skipped)
    first = now.get(FIRST, 0, None, False)
    received = then.get(FIRST, 0, None, False) + then.length(MESSAGES)
    aside = set(now.keys(ASIDE, None, ""))
    operations: list[Operation] = []
    count = 0
    low = min([received, *((before ^ here) or {received})])
    for number, item in _letters(now, max(low, first + 1)):
        wanted = number > received or number in before
        if item.get("by", "") not in members or wanted == (number in here):
            continue
        fails = ASIDE + str(number) in aside
        if number in skipped and wanted and not fails:
            continue  # somebody removed it
        count += wanted
        key = SKIPPED + str(number)
        operations.append(Operation("set", key, UNSENT) if wanted else Operation("delete", key))
        if wanted and fails:  # it fails again, if it does, when it comes
            operations.append(Operation("delete", ASIDE + str(number)))
    return operations, count


def _skipped(reader: Reader) -> dict[int, Any]:
    """Numbers of letters that are not processed at their place, and why."""
    found = reader.items(SKIPPED, None, "", False)
    return {int(key.removeprefix(SKIPPED)): value for key, value in found}


def _unsent(skipped: Mapping[int, Any]) -> set[int]:
    """Those that are taken back."""
    return {number for number, value in skipped.items() if value == UNSENT}


def _letters(reader: Reader, number: int) -> Iterator[tuple[int, Any]]:
    """Letters from one on."""
    at = number - reader.get(FIRST, 0, None, False) - 1
    while page := reader.slice(MESSAGES, at, at + PAGE, False):
        yield from enumerate(page, number)
        at, number = at + len(page), number + len(page)


def mend_numbers(state: State) -> bool:
    """Let the letters that are left fit what is kept of how far they are processed.

    The last one that was processed has its number again; if it is lost itself, it is taken for the
    only one. Whether anything was done.
    """
    handle = state._handle
    parts = own_change(state, reason="letters were lost")
    part = parts.part(handle)
    done, first = part.get(DONE, {}), part.get(FIRST, 0)
    length = handle.reader.length(MESSAGES)
    number = done.get("number", 0)
    new = first
    if number > first:
        new = number - _processed(handle, done["id"], number - first, length)
    cleared = Stretches(part.get(CLEARED, []))
    new = max(new, cleared.last - length)  # none that comes is one of those cleared
    if new != first:
        part.operations.append(Operation("set", FIRST, new))
    for prefix in (SKIPPED, TRIES, BEGUN):  # of lost ones: nothing is to come upon new ones
        for key in handle.reader.keys(prefix, None, ""):
            if int(key.removeprefix(prefix)) > new + length:
                part.operations.append(Operation("delete", key))
    plan = parts.plan()
    if plan is None:
        return False
    state._run(plan)
    return True


def _processed(handle: LineHandle, id: str, count: int, length: int) -> int:
    """How many letters of the list are processed: up to the one with an id, which was the
    `count`th."""
    found = handle.reader.slice(MESSAGES, count - 1, count, False)
    if found and found[0]["id"] == id:
        return count
    at = best = 0
    while at < count or not best:
        page = handle.reader.slice(MESSAGES, at, at + PAGE, False)
        if not page:
            break
        for item in page:
            at += 1
            if item["id"] == id and (at <= count or not best):
                best = at
    return best or min(count - 1, length)
