"""Which letter of a list is meant by a number that was kept beside it.

Letters belong to `main`: a fork has no mailbox. `done` is state and goes back with it, while the
letters stay. Damage, or a revert, takes letters out of the middle of a list, so that those behind
it have other numbers. Therefore whatever is said of a letter says its id, too, and a number is
believed only if the letter there has that id:

    number, id    of the last one processed
    trail         number and id of the ones processed before it, the latest first
    missed        how many were trimmed before this state could process them

If none of these is in the list, nothing of it is processed: it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from math import inf
from typing import Any

from holdfast.agents.agent_keys import MAILBOX
from holdfast.store.inner import ChangeParts, LineHandle, Operation, Reader, handle_of, own_step
from holdfast.store.state import State

DONE, INBOX = MAILBOX + "done", MAILBOX + "inbox/"
MESSAGES, FIRST, CLEARED = INBOX + "messages", INBOX + "first", INBOX + "cleared"
SKIPPED, UNSENT = INBOX + "skipped/", "unsent"
TRIES, ASIDE, BEGUN = INBOX + "tries/", INBOX + "aside/", INBOX + "begun/"

PAGE = 500
TRAIL = 3
"""How many letters before the last one `done` remembers: it is found by them if that is lost."""


class Numbers:
    """The letters of a list by their numbers and ids."""

    def __init__(self, reader: Reader, first: int) -> None:
        self.first = first
        self._reader = reader

    @property
    def last(self) -> int:
        """The number of the last letter."""
        return self.first + self._reader.length(MESSAGES)

    def at(self, number: int) -> dict[str, Any] | None:
        """The letter with a number, as it is kept."""
        if number <= self.first:
            return None
        at = number - self.first
        found: list[dict[str, Any]] = list(self._reader.slice(MESSAGES, at - 1, at, False))
        return found[0] if found else None

    def find(self, id: str, number: int) -> int:
        """The number that a letter has here which had one; 0 if it is not here.

        A letter that was set aside and put behind all others is there twice.
        """
        item = self.at(number)
        if item is not None and item["id"] == id:
            return number
        best = at = 0
        while page := self._reader.slice(MESSAGES, at, at + PAGE, False):
            for place, one in enumerate(page, self.first + at + 1):
                fits = place <= number or not (best or one.get("again", False))
                if one["id"] == id and fits:
                    best = place
            at += len(page)
        return best


class Standing:
    """How far a mailbox is: which letters the state has processed, and which are not wanted."""

    def __init__(self, handle: LineHandle, get: Callable[[str, Any], Any] | None = None) -> None:
        self._reader = handle.reader
        get = get or self._get
        self.first: int = get(FIRST, 0)
        self.done: dict[str, Any] = get(DONE, {})
        self.numbers = Numbers(self._reader, self.first)
        self.cleared = self._cleared(Stretches(get(CLEARED, [])))
        self._skipped: dict[int, Any] | None = None
        self.found = self._processed()
        """The number of the last letter in the list that is processed; 0 if it is none of these."""
        self.number: int = self.found or min(self.done.get("number", 0), self.first)
        """The same; if the letters that are processed are trimmed, of the last of those."""

    def _get(self, key: str, default: Any) -> Any:
        return self._reader.get(key, default, None, False)

    # what is processed

    def _processed(self) -> int:
        if not self.done:
            return 0
        told = [(self.done["number"], self.done["id"]), *self.done.get("trail", [])]
        return next((at for number, id in told if (at := self.numbers.find(id, number))), 0)

    @property
    def missed(self) -> int:
        """How many were trimmed though the state has not processed them."""
        return int(self.done.get("missed", 0)) + self.cleared.left(self.number, self.first)

    def after(self, number: int, item: dict[str, Any]) -> dict[str, Any]:
        """`done` once a letter of the list is processed."""
        made: dict[str, Any] = {"number": number, "id": item["id"]}
        if self.done:
            last = [[self.done["number"], self.done["id"]], *self.done.get("trail", [])]
            made["trail"] = last[:TRAIL]
        if self.missed:
            made["missed"] = self.missed
        return made

    # what is not wanted

    def _cleared(self, kept: Stretches) -> Stretches:
        """The stretches that were cleared; each is where the last letter of it is.

        After a restore past damage the list may be an older one: letters that come then are new.
        """
        here: list[list[Any]] = []
        for low, high, *id in kept.kept:
            at = self.numbers.find(id[0], high) if id and high > self.first else high
            if at:
                here.append([max(low + at - high, 0), at, *id])
        return Stretches(here)

    @property
    def skipped(self) -> dict[int, Any]:
        """What is kept of those that are not processed at their place, by the number kept."""
        if self._skipped is None:
            self._skipped = skipped_of(self._reader)
        return self._skipped

    def skips(self, number: int, item: dict[str, Any] | None) -> bool:
        """Whether a letter is not to be processed at its place."""
        if item is None or not self.skipped:
            return False
        if number in self.skipped and skipped_id(self.skipped[number]) in ("", item["id"]):
            return True
        if item.get("again", False):  # it has the id of the one that was set aside
            return False
        return any(skipped_id(value) == item["id"] for value in self.skipped.values())


def skipped_of(reader: Reader) -> dict[int, Any]:
    """Numbers of letters that are not processed at their place, and why."""
    found = reader.items(SKIPPED, None, "", False)
    return {int(key.removeprefix(SKIPPED)): value for key, value in found}


def skipped_id(value: Any) -> str:
    """The id of a letter that is skipped; an earlier version kept none."""
    return str(value["id"]) if isinstance(value, dict) else ""


def is_unsent(value: Any) -> bool:
    """Whether a letter is skipped because it was taken back."""
    return bool(value.get(UNSENT)) if isinstance(value, dict) else value == UNSENT


# ---- mailbox ranges -----------------------------------------------------------------------------
# Stretches of letters' numbers that are not to be processed: removed all at once, or processed
# before they came here.
#
# They are kept as pairs (the number before the first, the last), in order, none touching another,
# mostly with the id of the last letter. A single number stands for all up to it.


class Stretches:
    """Stretches of numbers; changing them makes others."""

    def __init__(self, kept: list[list[Any]] | int) -> None:
        self.kept: list[list[Any]] = [[0, kept]] if isinstance(kept, int) else kept

    def end(self, number: int) -> int:
        """The last number of the stretch that one is in; 0 if it is in none."""
        return next((high for low, high, *_ in self.kept if low < number <= high), 0)

    def added(self, low: int, high: int, *id: str) -> Stretches:
        """With the numbers behind one and up to another, and the id of that one."""
        made: list[list[Any]] = []
        for one in sorted([*self.kept, [low, high, *id]], key=lambda one: one[:2]):
            if made and one[0] <= made[-1][1]:
                made[-1] = [made[-1][0], *max(made[-1][1:], one[1:])]
            else:
                made.append(one)
        return Stretches(made)

    def behind(self, number: int) -> Stretches:
        """Without those that end with it or before."""
        return Stretches([one for one in self.kept if one[1] > number])

    def between(self, number: int) -> Iterator[tuple[int, float]]:
        """What they leave behind a number, as such pairs; the last one has no end."""
        for low, high, *_ in self.behind(number).kept:
            if low > number:
                yield number, low
            number = high
        yield number, inf

    def left(self, low: int, high: int) -> int:
        """How many numbers behind one and up to another are in none."""
        return sum(
            int(min(stop, high)) - start for start, stop in self.between(low) if start < high
        )


# ---- letters of agents that go back -------------------------------------------------------------
# A letter that an agent sent while it processed another is sent again once that is processed again.
# So if both go back to before it, it is taken back: it stays in the list, so that no letter's
# number changes, and is skipped. If they return to a moment at which it was there, it is there
# again, and set aside if it was.


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
    """Let letters that are left after damage have numbers that none before them had; whether
    anything was done.

    The last one that was processed is known by its id. If it is lost itself, and those before it
    that are remembered, it is taken for the only one.
    """
    return own_step(state, partial(_mended, handle_of(state)), reason="letters were lost")


def _mended(handle: LineHandle, parts: ChangeParts) -> bool:
    part = parts.part(handle)
    standing = Standing(handle, part.get)
    done, numbers, first = standing.done, standing.numbers, standing.first
    number = done.get("number", 0)
    own = number > first  # else none of those that are kept here was processed
    last = standing.found or min(number - 1, numbers.last)
    told = [(high, "".join(id)) for _, high, *id in Stretches(part.get(CLEARED, [])).kept]
    told += [(one, skipped_id(value)) for one, value in standing.skipped.items()]
    places = [(one, id and numbers.find(id, one)) for one, id in told]
    lost = max([own * (number - last), *(one - (at or numbers.last) for one, at in places)])
    if own and lost > 0:
        item = numbers.at(last) or done
        processed = done | {"number": max(last, first) + lost, "id": item["id"]}
        part.operations.append(Operation("set", DONE, processed))
    if lost > 0:
        part.operations.append(Operation("set", FIRST, first + lost))
    return bool(lost > 0)
