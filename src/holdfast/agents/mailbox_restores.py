"""Mailboxes of agents that go back: together with others, or to a state that lacks letters.

A letter that an agent sent while it processed another is sent again once that is processed again.
So if both go back to before it, it is taken back: it stays in the list, so that no letter's number
changes, and is skipped. If they return to a moment at which it was there, it is there again, and
set aside if it was.

What damage has taken out of the list is not there to be numbered. Then the others are numbered so
that those count as processed that were: by the id of the last one. A mailbox does that by itself
whenever it is looked at (`mailbox_numbers`); here it is written down while it is known that no
letter is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holdfast.agents.agent_keys import own_change
from holdfast.agents.mailbox import ASIDE, BEGUN, TRIES
from holdfast.agents.mailbox_numbers import (
    CLEARED,
    DONE,
    FIRST,
    MESSAGES,
    PAGE,
    SKIPPED,
    UNSENT,
    Numbers,
    Standing,
    Stretches,
    is_unsent,
    skipped_of,
)
from holdfast.store.inner import Operation, Reader, ScopedChange, handle_of
from holdfast.store.state import State


def letters_taken_back(
    now: Reader, then: Reader, members: Collection[str]
) -> tuple[list[Operation], int]:
    """What lets a mailbox fit a moment to which its agent and `members` return, and how many
    letters that takes back. Only those that a member sent while it processed another."""
    skipped = skipped_of(now)
    before, here = _unsent(skipped_of(then)), _unsent(skipped)
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
        key, failed = SKIPPED + str(number), ASIDE + str(number)
        if wanted:
            note = {"id": item["id"], UNSENT: True}
            if fails:  # it is set aside if it comes back; sent again, it is another one
                note["aside"] = now.get(failed, None, None, False)
                operations.append(Operation("delete", failed))
            operations.append(Operation("set", key, note))
        elif isinstance(skipped[number], dict) and "aside" in skipped[number]:
            operations.append(Operation("set", failed, skipped[number]["aside"]))
            operations.append(Operation("set", key, {"id": item["id"]}))
        else:
            operations.append(Operation("delete", key))
    return operations, count


def _unsent(skipped: Mapping[int, Any]) -> set[int]:
    """Those that are taken back."""
    return {number for number, value in skipped.items() if is_unsent(value)}


def _letters(reader: Reader, number: int) -> Iterator[tuple[int, Any]]:
    """Letters from one on."""
    at = number - reader.get(FIRST, 0, None, False) - 1
    while page := reader.slice(MESSAGES, at, at + PAGE, False):
        yield from enumerate(page, number)
        at, number = at + len(page), number + len(page)


def mend_numbers(state: State) -> bool:
    """Let what is kept of letters fit those that are left; whether anything was done.

    The last one that was processed has its number again. If it is lost itself, and those before
    it that are remembered, it is taken for the only one.
    """
    handle = handle_of(state)
    parts = own_change(state, reason="letters were lost")
    part = parts.part(handle)
    standing = Standing(handle, part.get)
    done, old, note = standing.done, standing.first, part.operations.append
    length, number = standing.numbers.last - old, done.get("number", 0)
    own = number > old
    count = standing.found - old if standing.found else min(number - old - 1, length) * own
    new = max(number - count, old) if own else old
    stretches = Stretches(part.get(CLEARED, [])).kept
    for _, high, *id in stretches:  # none that comes is one of those
        if not id or not standing.numbers.find(id[0], high):
            new = max(new, high - length)
    now = Numbers(handle.reader, new)
    if new != old:
        note(Operation("set", FIRST, new))
    if own:
        item = now.at(new + count) or done
        last = {"number": new + count, "id": item["id"]}
        if done | last != done:
            note(Operation("set", DONE, done | last))
    fitting = _cleared(stretches, now)
    if fitting != stretches:
        note(Operation("set", CLEARED, fitting))
    _renumber(handle.reader, part, now)
    plan = parts.plan()
    if plan is None:
        return False
    state._run(plan)
    return True


def _cleared(stretches: list[list[Any]], now: Numbers) -> list[list[Any]]:
    """Stretches that were cleared, by the numbers of now; one whose last letter is lost stays."""
    made = Stretches([])
    for low, high, *id in stretches:
        at = (now.find(id[0], high) if id else 0) or high
        last = now.at(at)
        made = made.added(max(low + at - high, 0), at, *([last["id"]] if id and last else id))
    return made.kept


def _renumber(reader: Reader, part: ScopedChange, now: Numbers) -> None:
    """What is kept of single letters is kept under their numbers of now; of lost ones it goes."""
    for prefix in (SKIPPED, TRIES, BEGUN, ASIDE):
        old = dict(reader.items(prefix, None, "", False))
        new = {}
        for key, value in old.items():
            number = int(key.removeprefix(prefix))
            kept = value["letter"] if prefix == ASIDE else value
            id = kept.get("id") if isinstance(kept, dict) else None
            at = now.find(id, number) if id else number if number <= now.last else 0
            if at or prefix == ASIDE:  # that is the letter itself
                new[prefix + str(at or number)] = value
        for key in old.keys() | new.keys():
            if key not in new:
                part.operations.append(Operation("delete", key))
            elif key not in old or new[key] is not old[key]:
                part.operations.append(Operation("set", key, new[key]))
