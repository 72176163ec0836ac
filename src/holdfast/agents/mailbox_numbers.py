"""Which letter of a list is meant by a number that was kept beside it.

`done` is state: it goes wherever the state goes, to other timelines (adopt, merge, a restore) and
other agents, while the letters stay where they are. And damage, or a revert, takes letters out of
the middle of a list, so that those behind it have other numbers. Therefore whatever is said of a
letter says its id, too, and a number is believed only if the letter there has that id; else the
letter is looked for by its id. `done` counts, for each timeline whose letters the state has
processed, how far:

    number, id    of the last one processed
    line          the timeline that it was sent to
    trail         number and id of the ones processed before it, the latest first
    others        the last one of each other timeline: number and id
    missed        how many were trimmed before this state could process them

What that says nothing of is not processed: it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.agents.agent_keys import MAILBOX
from holdfast.agents.mailbox_ranges import Stretches
from holdfast.store.history.handle import LineHandle
from holdfast.store.read.reader import Reader
from holdfast.store.rules.owned_keys import MAILBOX_DONE

DONE, INBOX = MAILBOX_DONE, MAILBOX + "inbox/"
MESSAGES, FIRST, CLEARED = INBOX + "messages", INBOX + "first", INBOX + "cleared"
SKIPPED, UNSENT = INBOX + "skipped/", "unsent"

PAGE = 500
TRAIL = 3
"""How many letters before the last one `done` remembers: it is found by them if that is lost."""
FEW = 10
"""As many letters are looked up one by one; for more the whole list is read."""


def line_of(handle: LineHandle) -> str:
    """What a timeline's letters are marked with."""
    line = handle.reader.now()
    return f"{handle.scope}/{line.number if line is not None else 0}"


class Numbers:
    """The letters of a list by their numbers and ids, as far as they are asked for."""

    def __init__(self, reader: Reader, first: int) -> None:
        self.first = first
        self._reader = reader
        self._known: list[tuple[str, str, bool]] | None = None

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

    def whole(self) -> list[tuple[str, str, bool]]:
        """Of each letter the id, the timeline that it was sent to, whether it is a `retry`."""
        if self._known is None:
            self._known = []
            while page := self._reader.slice(
                MESSAGES, len(self._known), len(self._known) + PAGE, False
            ):
                self._known += [
                    (item["id"], item.get("line", ""), item.get("again", False)) for item in page
                ]
        return self._known

    def find(self, id: str, number: int) -> int:
        """The number that a letter has here which had one; 0 if it is not here.

        A letter that was set aside and put behind all others is there twice.
        """
        if self._known is None:
            item = self.at(number)
            if item is not None and item["id"] == id:
                return number
        best = 0
        for at, (one, _, again) in enumerate(self.whole(), self.first + 1):
            if one == id and (at <= number or not (best or again)):
                best = at
        return best

    def ends(self) -> dict[str, int]:
        """The last number of each timeline that letters were sent to."""
        return {line: at for at, (_, line, _) in enumerate(self.whole(), self.first + 1)}


class Standing:
    """How far a mailbox is: which letters the state has processed, and which are not wanted."""

    def __init__(self, handle: LineHandle, get: Callable[[str, Any], Any]) -> None:
        reader = handle.reader
        self.first: int = get(FIRST, 0)
        self.done: dict[str, Any] = get(DONE, {})
        self.numbers = Numbers(reader, self.first)
        self.found = self._processed()
        """The number of the last letter in the list that is processed; 0 if it is none of these."""
        self.number: int = self.found or self._trimmed(line_of(handle))
        self.cleared = self._cleared(get(CLEARED, []))
        self._skipped: dict[int, Any] | None = None
        self._reader = reader

    # what is processed

    def _processed(self) -> int:
        """The last letter that `done` says is processed, here."""
        if not self.done:
            return 0
        marks = marks_of(self.done)
        number, id = marks[self.done.get("line", "")]
        item = self.numbers.at(number)
        if item is not None and item["id"] == id:
            return number
        known = {one for one, _, _ in self.numbers.whole()}
        told = [*marks.values(), *self.done.get("trail", [])]
        best = max([0, *(self.numbers.find(one, at) for at, one in told if one in known)])
        for line, end in self.numbers.ends().items():
            # The timeline that these were sent to has more letters, and is further than these.
            if line and line in marks and marks[line][1] not in known and end < marks[line][0]:
                best = max(best, end)
        return best

    def _trimmed(self, line: str) -> int:
        """How many of those that are trimmed are processed, if none of the others is."""
        marks = marks_of(self.done)
        own = marks.get(line) or marks.get("")
        if own is not None:
            return min(own[0], self.first)
        number: int = self.done.get("number", 0)
        return number if number <= self.first else 0

    @property
    def missed(self) -> int:
        """How many were trimmed though the state has not processed them."""
        return int(self.done.get("missed", 0)) + self.cleared.left(self.number, self.first)

    def after(self, number: int, item: dict[str, Any]) -> dict[str, Any]:
        """`done` once a letter of the list is processed."""
        line = item.get("line", "")
        made = {"number": number, "id": item["id"]} | ({"line": line} if line else {})
        if self.done:
            marks = marks_of(self.done)
            last = [list(marks[self.done.get("line", "")]), *self.done.get("trail", [])]
            made["trail"] = last[:TRAIL]
            marks.pop(line, None)
            if marks:
                made["others"] = {one: list(mark) for one, mark in marks.items()}
        if self.missed:
            made["missed"] = self.missed
        return made

    # what is not wanted

    def _cleared(self, kept: list[list[Any]] | int) -> Stretches:
        """The stretches that were cleared; each is where the last letter of it is."""
        cleared = Stretches(kept)
        if not any(len(one) > 2 for one in cleared.kept):
            return cleared
        here: list[list[Any]] = []
        for one in cleared.kept:
            low, high, id = one[0], one[1], one[2:]
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

    def skips(self, number: int) -> bool:
        """Whether a letter is not to be processed at its place."""
        if not self.skipped:
            return False
        item = self.numbers.at(number)
        if item is None:
            return False
        if number in self.skipped and _id(self.skipped[number]) in ("", item["id"]):
            return True
        return any(
            _id(value) == item["id"] and self.numbers.find(item["id"], one) == number
            for one, value in self.skipped.items()
        )

    def skipped_here(self) -> dict[int, int]:
        """The number that each of them has here, by the number kept; 0 if it is not here."""
        if len(self.skipped) > FEW:
            self.numbers.whole()
        return {
            one: self.numbers.find(_id(value), one) if _id(value) else one
            for one, value in self.skipped.items()
        }


def marks_of(done: dict[str, Any]) -> dict[str, tuple[int, str]]:
    """The last letter processed of each timeline: its number and id."""
    if not done:
        return {}
    marks = {line: (number, id) for line, (number, id) in done.get("others", {}).items()}
    return marks | {done.get("line", ""): (done["number"], done["id"])}


def skipped_of(reader: Reader) -> dict[int, Any]:
    """Numbers of letters that are not processed at their place, and why."""
    found = reader.items(SKIPPED, None, "", False)
    return {int(key.removeprefix(SKIPPED)): value for key, value in found}


def _id(value: Any) -> str:
    """The id of a letter that is skipped; an earlier version kept none."""
    return str(value["id"]) if isinstance(value, dict) else ""


def is_unsent(value: Any) -> bool:
    """Whether a letter is skipped because it was taken back."""
    return bool(value.get(UNSENT)) if isinstance(value, dict) else value == UNSENT
