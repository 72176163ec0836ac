"""What a mailbox keeps, and which letter of its list is meant by a number kept beside it.

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

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.agents.agent_keys import MAILBOX, OWN_MAILBOX
from holdfast.store.inner import (
    Book,
    Books,
    LineHandle,
    Operation,
    Reader,
    ScopedChange,
    loaded,
    stored,
)
from holdfast.store.state import View

DONE, INBOX = MAILBOX + "done", MAILBOX + "inbox/"
MESSAGES, FIRST, CLEARED = INBOX + "messages", INBOX + "first", INBOX + "cleared"
SKIPPED, ASIDE, BEGUN = INBOX + "skipped/", INBOX + "aside/", INBOX + "begun/"

LIST, LAST = "inbox/messages", "done"
"""The ids of the list of letters, and of how far they are processed, in their books."""
PAGE = 500
TRAIL = 3
"""How many letters before the last one `done` remembers: it is found by them if that is lost."""


class LetterRecord(Struct, kw_only=True):
    """A letter as it lies in the list."""

    id: str
    content: Any
    sender: str = ""
    time: datetime | None = None
    by: str = ""
    """The scope that sent it while it processed a letter itself, in the same commit."""
    again: bool = False
    """Whether it was set aside, and is put behind all others."""


class DoneRecord(Struct, kw_only=True):
    """The last letter that is processed."""

    number: int
    id: str
    trail: list[Any] = []
    missed: int = 0


class FailedRecord(Struct, kw_only=True):
    """How often a letter has failed so far, and when it may be tried again."""

    count: int = 0
    error: str = ""
    kind: str = ""
    id: str = ""
    at: datetime | None = None
    wait: float = 0.0


class AsideRecord(Struct, kw_only=True):
    """A letter that failed too often: it, and the last failure, as these are stored."""

    letter: dict[str, Any]
    failed: dict[str, Any]


class BegunRecord(Struct, kw_only=True):
    """That an attempt has begun, and what becomes of the letter if its process ends."""

    attempt: int
    again: bool
    wait: float
    id: str = ""


class SkippedRecord(Struct, kw_only=True):
    """That a letter is not to be processed at its place."""

    id: str = ""
    unsent: bool = False
    """It was taken back."""
    aside: dict[str, Any] | None = None
    """What was set aside of one that was taken back."""


class Box(Books):
    """What a mailbox keeps; letters have their numbers as ids, but in the list."""

    def __init__(self, handle: LineHandle, part: ScopedChange | None = None) -> None:
        own = View(handle)
        super().__init__(own, part)
        self.letters = Book(own, OWN_MAILBOX, LetterRecord)
        self.dones = Book(own, OWN_MAILBOX, DoneRecord)
        self.tries = Book(own, OWN_MAILBOX, FailedRecord, under="inbox/tries/")
        self.aside = Book(own, OWN_MAILBOX, AsideRecord, under="inbox/aside/")
        self.begun = Book(own, OWN_MAILBOX, BegunRecord, under="inbox/begun/")
        self.skipped = Book(own, OWN_MAILBOX, SkippedRecord, under="inbox/skipped/")

    def at(self, number: int, first: int) -> LetterRecord | None:
        """The letter with a number, of a list from which so many were trimmed."""
        found = self.letters.slice(LIST, number - first - 1, number - first)
        return found[0] if found and number > first else None

    def find(self, id: str, number: int, first: int) -> int:
        """The number that a letter has here which had one; 0 if it is not here.

        A letter that was set aside and put behind all others is there twice.
        """
        item = self.at(number, first)
        if item is not None and item.id == id:
            return number
        best = at = 0
        while page := self.letters.slice(LIST, at, at + PAGE):
            for place, one in enumerate(page, first + at + 1):
                if one.id == id and (place <= number or not (best or one.again)):
                    best = place
            at += len(page)
        return best


class Standing:
    """How far a mailbox is: which letters the state has processed, and which are not wanted."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self.first: int = box.value(FIRST, 0)
        self.done: DoneRecord | None = box.of(box.dones).get(LAST)
        self.cleared: list[list[Any]] = []
        """The stretches that were cleared; each is where the last letter of it is."""
        self._skipped: dict[int, SkippedRecord] | None = None
        number = self.done.number if self.done is not None else 0
        places = (box.find(id, told, self.first) for told, id in self._told())
        self.number: int = next(filter(None, places), min(number, self.first))
        """The number of the last letter that is processed; if all those are trimmed, of the last of
        these."""
        kept: Any = box.value(CLEARED, [])
        stretches: list[list[Any]] = [[0, kept]] if isinstance(kept, int) else kept
        # After a restore past damage the list may be an older one: letters that come then are new.
        for low, high, *id in stretches:
            known = id and high > self.first
            at = box.find(id[0], high, self.first) if known else high
            if at:
                self.cleared.append([max(low + at - high, 0), at, *id])

    @property
    def last(self) -> int:
        """The number of the last letter."""
        return self.first + self._box.letters.length(LIST)

    def at(self, number: int) -> LetterRecord | None:
        """The letter with a number, as it is kept."""
        return self._box.at(number, self.first)

    # what is processed

    def _told(self) -> list[Any]:
        """Numbers and ids of the last letters that are processed, the latest first."""
        done = self.done
        return [[done.number, done.id], *done.trail] if done is not None else []

    @property
    def missed(self) -> int:
        """How many were trimmed though the state has not processed them."""
        known = self.done.missed if self.done is not None else 0
        return known + sum(1 for _ in self.wanted(self.number, self.first))

    def after(self, number: int, id: str) -> DoneRecord:
        """`done` once a letter of the list is processed."""
        return DoneRecord(number=number, id=id, trail=self._told()[:TRAIL], missed=self.missed)

    # what is not wanted

    def wanted(self, after: int, until: int | None = None) -> Iterator[int]:
        """Numbers behind one, and up to another, that were not cleared."""
        number = after + 1
        while until is None or number <= until:
            end = cleared_to(self.cleared, number)
            if not end:
                yield number
            number = max(end, number) + 1

    @property
    def skipped(self) -> dict[int, SkippedRecord]:
        """What is kept of those that are not processed at their place, by the number kept."""
        if self._skipped is None:
            self._skipped = {int(id): one for id, one in self._box.skipped.all().items()}
        return self._skipped

    def skips(self, number: int, item: LetterRecord | None) -> bool:
        """Whether a letter is not to be processed at its place."""
        if item is None or not self.skipped:
            return False
        if number in self.skipped and self.skipped[number].id in ("", item.id):
            return True
        if item.again:  # it has the id of the one that was set aside
            return False
        return any(one.id == item.id for one in self.skipped.values())


# ---- stretches of letters that were cleared -----------------------------------------------------
# Numbers of letters that were removed all at once, or processed before they came here. They are
# kept as pairs (the number before the first, the last), in order, none touching another, mostly
# with the id of the last letter. A single number stands for all up to it.


def cleared_to(cleared: list[list[Any]], number: int) -> int:
    """The last number of the stretch that one is in; 0 if it is in none."""
    return next((high for low, high, *_ in cleared if low < number <= high), 0)


def with_cleared(cleared: list[list[Any]], low: int, high: int, *id: str) -> list[list[Any]]:
    """With the numbers behind one and up to another, and the id of that one."""
    made: list[list[Any]] = []
    for one in sorted([*cleared, [low, high, *id]], key=lambda one: one[:2]):
        if made and one[0] <= made[-1][1]:
            made[-1] = [made[-1][0], *max(made[-1][1:], one[1:])]
        else:
            made.append(one)
    return made


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
    before, here = _skipped(then), _skipped(now)
    received = then.get(FIRST, 0) + then.length(MESSAGES)
    operations: list[Operation] = []
    count = 0
    for number, item in enumerate(now.get(MESSAGES) or (), now.get(FIRST, 0) + 1):
        if item.get("by", "") not in members:
            continue
        key, aside = SKIPPED + str(number), ASIDE + str(number)
        known, failed = here.get(number), now.get(aside)
        unsent = known is not None and known.unsent
        if number <= received and not (number in before and before[number].unsent):
            if known is not None and unsent and known.aside is not None:
                operations.append(Operation("set", aside, known.aside))
                operations.append(Operation("set", key, stored(SkippedRecord(id=item["id"]))))
            elif unsent:
                operations.append(Operation("delete", key))
        elif not unsent and (known is None or failed is not None):  # else somebody removed it
            count += 1
            note = SkippedRecord(id=item["id"], unsent=True, aside=failed)
            operations += [Operation("delete", aside), Operation("set", key, stored(note))]
    return operations, count


def _skipped(reader: Reader) -> dict[int, SkippedRecord]:
    """Letters that are not processed at their place, by their numbers."""
    found = ((key.removeprefix(SKIPPED), value) for key, value in reader.items(SKIPPED))
    return {int(number): loaded(SkippedRecord, value, SKIPPED) for number, value in found}
