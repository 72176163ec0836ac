"""Letters to an agent as they are kept, and the changes that send and process them: for both faces.

What came in is a fact of the world, and so is how often it failed; how far it was processed is the
agent's state. So under `$mailbox/`:

    done                  number and id of the last one processed; goes back with the state
    inbox/                sticky: no restore makes a letter unsent, or one that fails a new one
    inbox/messages        a list, oldest first
    inbox/first           how many were trimmed from its front
    inbox/tries/NUMBER    how often one has failed so far
    inbox/aside/NUMBER    one that failed too often
    inbox/skipped/NUMBER  that it is not to be processed at its place: it was set aside

A letter's number counts from 1 and never changes. A restore puts `done` back together with what
processing wrote, so that letters since then are processed again, on the state as it was then,
except those that were set aside.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from holdfast.agents.keys import MAILBOX, own_change, sticky
from holdfast.errors import Conflict, InvalidInputError, MissingError
from holdfast.store.arguments import check_count, check_text
from holdfast.store.cause import cause_now
from holdfast.store.gates import Operation
from holdfast.store.handles import ChangeParts, LineHandle, StoreHandle
from holdfast.store.history import Plan
from holdfast.store.reading import moment
from holdfast.store.writing import ScopedChange

DONE, INBOX = MAILBOX + "done", MAILBOX + "inbox/"
MESSAGES, FIRST = INBOX + "messages", INBOX + "first"
TRIES, ASIDE, SKIPPED = INBOX + "tries/", INBOX + "aside/", INBOX + "skipped/"
LOOKS = 100
"""How often the beginning of the list is read while others trim it."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One message to an agent."""

    number: int
    """Counts from 1 in the order in which they came."""
    id: str
    content: Any
    sender: str
    time: datetime
    tries: int = 0
    """How often processing it has failed."""
    error: str = ""
    """The kind of the last error."""


@dataclass(frozen=True, slots=True)
class MailboxStatus:
    """How far an agent has processed what was sent to it."""

    received: int
    processed: int
    """Those set aside included."""
    waiting: int
    last_processed_id: str | None
    set_aside: int
    """How many failed too often."""
    missed: int
    """How many were trimmed though the state, by a restore, has not processed them."""


class _Kept(msgspec.Struct, omit_defaults=True):
    """A letter in the list."""

    id: str
    content: Any
    sender: str = ""
    time: datetime | None = None

    def letter(self, number: int, tries: int = 0, error: str = "") -> Letter:
        time = self.time or moment(0)
        return Letter(number, self.id, self.content, self.sender, time, tries, error)


def _letter(item: dict[str, Any], number: int, tries: int = 0, error: str = "") -> Letter:
    return _Kept(**item).letter(number, tries, error)


class Taken:
    """A letter while it is processed, and the change that will say so."""

    def __init__(self, letter: Letter, parts: ChangeParts, part: ScopedChange, first: int) -> None:
        self.letter = letter
        self.parts = parts
        self.part = part
        self.first = first


class Box:
    """The mailbox of one timeline."""

    def __init__(self, handle: LineHandle, keep: int, attempts: int) -> None:
        check_count(keep, "keep")
        check_count(attempts, "attempts")
        if attempts == 0:
            raise InvalidInputError("a letter is tried at least once: attempts is 1 or more")
        self._handle = handle
        self._keep = keep
        self._attempts = attempts

    # sending

    def plan_send(self, content: Any, sender: str, id: str | None) -> tuple[Plan, str]:
        """A change that adds a letter."""
        if id is not None:
            check_text(id, "the id of a letter", 200, least=1)
        parts = own_change(self, id=None if id is None else self._change_id(id))
        part = parts.part(self._handle)
        made = post(self._handle, part, content, sender, id)
        # Sent again it has another time: under its id it is the same letter all the same.
        part.looked = id is not None
        plan = parts.plan()
        assert plan is not None
        return plan, made

    def _change_id(self, id: str) -> str:
        """Ids of changes are those of a scope; each of its timelines has a mailbox of its own."""
        line = self._handle.reader.now()
        return f"{MAILBOX}{line.number if line is not None else 0}/{id}"

    # processing

    def take(self) -> Taken | None:
        """The next letter; None if none waits. What this rests on is expected by its change."""
        for _ in range(LOOKS):
            parts = ChangeParts(StoreHandle(self._handle.core), cause_now(), None)
            part = parts.part(self._handle)
            first, done = part.get(FIRST, 0), part.get(DONE, {})
            at = max(done.get("number", 0) - first, 0)
            while part.exists(SKIPPED + str(first + at + 1)):
                at += 1
            found = self._handle.reader.slice(MESSAGES, at, at + 1, False)
            if self._handle.reader.get(FIRST, 0, None, False) == first:
                break
        else:
            raise Conflict(f"{self._handle.scope}: the mailbox was always trimmed; try again")
        if not found:
            return None
        number = first + at + 1
        tries = part.get(TRIES + str(number), {})
        letter = _letter(found[0], number, tries.get("count", 0), tries.get("error", ""))
        return Taken(letter, parts, part, first)

    def plan_done(self, taken: Taken) -> Plan:
        """What processing wrote, and that it is done: one change."""
        letter = taken.letter
        note = taken.part.operations.append  # the caller's own methods refuse keys of this layer
        note(Operation("set", DONE, {"number": letter.number, "id": letter.id}))
        if letter.tries:
            note(Operation("delete", TRIES + str(letter.number)))
        over = letter.number - taken.first - self._keep
        if over > self._keep // 4:  # not with every letter
            note(Operation("trim", MESSAGES, {"before": over}))
            note(Operation("set", FIRST, taken.first + over))
            gone = [one for one in self._skipped() if one <= taken.first + over]
            for one in gone:
                note(Operation("delete", SKIPPED + str(one)))
        plan = taken.parts.plan()
        assert plan is not None
        return plan

    def plan_failed(self, taken: Taken, error: BaseException) -> Plan | None:
        """That processing failed; the letter is set aside if it has failed too often.

        None if somebody else has processed it meanwhile.
        """
        letter, kind = taken.letter, type(error).__name__
        number = str(letter.number)
        parts = own_change(self)
        part = parts.part(self._handle)
        done, count = part.get(DONE, {}), part.get(TRIES + number, {}).get("count", 0) + 1
        if done.get("number", 0) >= letter.number or part.exists(SKIPPED + number):
            return None
        if count < self._attempts:
            part.set(TRIES + number, {"count": count, "error": kind})
        else:
            item = {"id": letter.id, "content": letter.content, "sender": letter.sender}
            item |= {"time": letter.time, "tries": count, "error": kind}
            part.set(ASIDE + number, item)
            part.set(SKIPPED + number, True)
            part.set(DONE, {"number": letter.number, "id": letter.id})
            part.delete(TRIES + number)
        return parts.plan()

    def last_try(self, taken: Taken) -> bool:
        """Whether a letter is set aside if it fails now."""
        return taken.letter.tries + 1 >= self._attempts

    def plan_retry(self, number: int) -> tuple[Plan, str]:
        """A change that puts a letter that was set aside to the end of the list."""
        parts = own_change(self)
        part = parts.part(self._handle)
        item = part.get(ASIDE + str(number))
        if item is None:
            raise MissingError(
                f"{self._handle.scope}: no letter {number} is set aside; look at set_aside()"
            )
        part.delete(ASIDE + str(number))
        post(self._handle, part, item["content"], item["sender"], item["id"])
        plan = parts.plan()
        assert plan is not None
        return plan, item["id"]

    # looking

    def waiting(self, limit: int | None) -> list[Letter]:
        """Letters that are not processed yet, the next one first."""
        reader = self._handle.reader
        found = reader.get_many([FIRST, DONE], False)
        first = found.get(FIRST, 0)
        at = max(found.get(DONE, {}).get("number", 0) - first, 0)
        skipped = self._skipped(first + at)
        stop = None if limit is None else at + limit + len(skipped)
        items: Sequence[Any] = reader.slice(MESSAGES, at, stop, False)
        tries = {
            int(key.removeprefix(TRIES)): (told["count"], told["error"])
            for key, told in reader.items(TRIES, None, "", False)
        }
        waiting = [
            _letter(item, number, *tries.get(number, ()))
            for number, item in enumerate(items, first + at + 1)
            if number not in skipped
        ]
        return waiting[:limit]

    def _skipped(self, after: int = 0) -> set[int]:
        """Numbers of those that were set aside, behind one."""
        keys = self._handle.reader.keys(SKIPPED, None, "")
        return {number for key in keys if (number := int(key.removeprefix(SKIPPED))) > after}

    def set_aside(self) -> list[Letter]:
        """Letters that failed too often, oldest first."""
        found = [
            _letter(item, int(key.removeprefix(ASIDE)), item.pop("tries"), item.pop("error"))
            for key, item in self._handle.reader.items(ASIDE, None, "", False)
        ]
        return sorted(found, key=lambda letter: letter.number)

    def status(self) -> MailboxStatus:
        """How far it is."""
        reader = self._handle.reader
        found = reader.get_many([FIRST, DONE], False)
        first, done = found.get(FIRST, 0), found.get(DONE, {})
        received = first + reader.length(MESSAGES)
        number = done.get("number", 0)
        missed = max(first - number, 0)
        skipped = len(self._skipped(number + missed))
        return MailboxStatus(
            received,
            number + skipped,
            received - number - missed - skipped,
            done.get("id"),
            len(reader.keys(ASIDE, None, "")),
            missed,
        )


def post(
    handle: LineHandle, part: ScopedChange, content: Any, sender: str, id: str | None = None
) -> str:
    """Note in a change, of whomever, that a letter goes into a mailbox; returns its id."""
    check_text(sender, "the sender of a letter", 256)
    id = id or os.urandom(8).hex()
    time = moment(handle.core.clock.claimed())
    part.operations += sticky(handle, INBOX)
    item = {"id": id, "content": content, "sender": sender, "time": time}
    part.operations.append(Operation("append", MESSAGES, [item]))
    return id
