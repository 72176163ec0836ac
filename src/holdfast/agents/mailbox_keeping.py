"""Letters to an agent as they are kept, and the changes that send and process them: for both faces.

What came in is a fact of the world, and so is how often it failed; how far it was processed is the
agent's state. So under `$mailbox/`:

    done                  number and id of the last one processed; goes back with the state
    inbox/                sticky: no restore makes a letter unsent, or one that fails a new one
    inbox/messages        a list, oldest first
    inbox/first           how many were trimmed from its front
    inbox/cleared         stretches of numbers that nobody wants processed (`mailbox_stretches`)
    inbox/begun/NUMBER    that an attempt has begun, and what becomes of it if its process ends
    inbox/tries/NUMBER    how often one has failed so far, and when it may be tried again
    inbox/aside/NUMBER    one that failed too often
    inbox/skipped/NUMBER  that it is not to be processed at its place: it was set aside or removed,
                          or is `UNSENT`: it was taken back (`mailbox_going_back`)

A letter's number counts from 1 and never changes. A restore puts `done` back together with what
processing wrote, so that letters since then are processed again, on the state as it was then,
except those that were set aside or removed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Any

import msgspec

from holdfast.agents.keys import MAILBOX, own_change, sticky
from holdfast.agents.mailbox_stretches import Stretches
from holdfast.agents.retry_policy import RESTART, RetryPolicy
from holdfast.errors import Conflict, InvalidInputError, MissingError
from holdfast.store.arguments import check_count, check_text
from holdfast.store.cause import cause_now
from holdfast.store.gates import Operation
from holdfast.store.handles import ChangeParts, LineHandle, StoreHandle
from holdfast.store.history import Plan
from holdfast.store.outcomes import content_of
from holdfast.store.reading import moment
from holdfast.store.writing import ScopedChange

DONE, INBOX = MAILBOX + "done", MAILBOX + "inbox/"
MESSAGES, FIRST, CLEARED = INBOX + "messages", INBOX + "first", INBOX + "cleared"
TRIES, ASIDE, SKIPPED = INBOX + "tries/", INBOX + "aside/", INBOX + "skipped/"
BEGUN, UNSENT = INBOX + "begun/", "unsent"
PLAIN = RetryPolicy.every(5)
"""What a mailbox does about failures unless it is told otherwise."""
LOOKS = 100
"""How often the beginning of the list is read while others trim it."""
RERUNS = 5
"""How often a letter is processed again because of a `Conflict` before that counts as a failure."""
FIRST_PAUSE = 0.002
"""Seconds before the first of them; before each further one twice as many."""


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
    """The type of the last error."""
    kind: str = ""
    """What kind of failure that was, if it can be told: timeout, network_error …"""
    due: datetime | None = None
    """Not tried again before; those behind it wait for it."""


@dataclass(frozen=True, slots=True)
class MailboxStatus:
    """How far an agent has processed what was sent to it."""

    received: int
    processed: int
    """Those set aside or removed included."""
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
    by: str = ""
    """The scope that sent it while it processed a letter itself, in the same commit."""

    def letter(self, number: int, failed: dict[str, Any]) -> Letter:
        wait = failed.get("wait", 0.0)
        return Letter(
            number,
            self.id,
            self.content,
            self.sender,
            self.time or moment(0),
            failed.get("count", 0),
            failed.get("error", ""),
            failed.get("kind", ""),
            failed["at"] + timedelta(seconds=wait) if wait else None,
        )


def _letter(item: dict[str, Any], number: int, failed: dict[str, Any]) -> Letter:
    """A letter as it lies in the list, and what is known of its failures."""
    return _Kept(**item).letter(number, failed)


class Taken:
    """A letter while it is processed, and the change that will say so."""

    def __init__(self, letter: Letter, parts: ChangeParts, part: ScopedChange, first: int) -> None:
        self.letter = letter
        self.parts = parts
        self.part = part
        self.first = first


class Reruns:
    """How often one letter is processed again, at once, because of a `Conflict`.

    Somebody else may have been faster. Who gets it again and again was not: a function that writes
    what it has read, beside its change, conflicts with itself.
    """

    def __init__(self) -> None:
        self._number = self._count = 0

    def pause(self, taken: Taken, error: Exception) -> float | None:
        """Seconds after which a letter that ended so is processed again; None: it has failed."""
        if not isinstance(error, Conflict):
            return None
        if taken.letter.number != self._number:
            self._number, self._count = taken.letter.number, 0
        self._count += 1
        return FIRST_PAUSE * 2.0 ** (self._count - 1) if self._count <= RERUNS else None


class Box:
    """The mailbox of one timeline."""

    def __init__(self, handle: LineHandle, keep: int, retry: RetryPolicy | None = None) -> None:
        check_count(keep, "keep")
        if not isinstance(retry, RetryPolicy | None):
            raise InvalidInputError("retry is a RetryPolicy, as RetryPolicy.every(5) makes one")
        self._handle = handle
        self._keep = keep
        self._retry = retry or PLAIN

    # sending

    def plan_send(self, content: Any, sender: str, id: str | None) -> tuple[Plan, str]:
        """A change that adds a letter; under an id once, and refused if it says something else."""
        if id is not None:
            check_text(id, "the id of a letter", 200, least=1)
        parts = own_change(self, id=None if id is None else self._change_id(id))
        part = parts.part(self._handle)
        made = post(self._handle, part, content, sender, id)
        # Sent again it has another time: under its id it is the same letter all the same.
        part.looked = id is not None
        plan = parts.plan()
        assert plan is not None
        if id is not None:
            said = Operation("append", MESSAGES, content)
            place = self._handle.scope, self._handle.timeline, [said]
            plan[0].content = content_of(self._handle.core, [place])
        return plan, made

    def _change_id(self, id: str) -> str:
        """Ids of changes are those of a scope; each of its timelines has a mailbox of its own."""
        line = self._handle.reader.now()
        return f"{MAILBOX}{line.number if line is not None else 0}/{id}"

    # processing

    def take(self) -> Taken | None:
        """The next letter; None if none waits, or it is too early to try that one again.

        What this rests on is expected by its change.
        """
        for _ in range(LOOKS):
            parts = ChangeParts(StoreHandle(self._handle.core), cause_now(), None)
            part = parts.part(self._handle)
            first, number = _next(part)
            at = number - first
            found = self._handle.reader.slice(MESSAGES, at - 1, at, False)
            if self._handle.reader.get(FIRST, 0, None, False) == first:
                break
        else:
            raise Conflict(f"{self._handle.scope}: the mailbox was always trimmed; try again")
        if not found:
            return None
        failed = part.get(TRIES + str(number), {})
        if not self._is_due(failed):
            return None
        return Taken(_letter(found[0], number, failed), parts, part, first)

    def _is_due(self, failed: dict[str, Any]) -> bool:
        """Whether enough time has passed. By a clock that went back nobody knows: then it has."""
        if not failed.get("wait"):
            return True
        passed = moment(self._handle.core.clock.claimed()) - failed["at"]
        return not timedelta(0) <= passed < timedelta(seconds=failed["wait"])

    def plan_begin(self, taken: Taken) -> Plan | None:
        """That an attempt begins, if its end by the end of its process is to be told; else None.

        Nobody expects this key, so that of several who process a letter one succeeds, as ever.
        """
        if self._retry.kinds is None:
            return None
        attempt = taken.letter.tries + 1
        again = self._retry.again(RESTART, attempt)
        parts = own_change(self)
        note = {"attempt": attempt, "again": again, "wait": self._retry.pause(attempt)}
        parts.part(self._handle).set(BEGUN + str(taken.letter.number), note)
        return parts.plan()

    def plan_done(self, taken: Taken) -> Plan:
        """What processing wrote, and that it is done: one change."""
        letter = taken.letter
        note = taken.part.operations.append  # the caller's own methods refuse keys of this layer
        note(Operation("set", DONE, {"number": letter.number, "id": letter.id}))
        if letter.tries:
            note(Operation("delete", TRIES + str(letter.number)))
        if self._retry.kinds is not None:
            note(Operation("delete", BEGUN + str(letter.number)))
        over = letter.number - taken.first - self._keep
        if over > self._keep // 4:  # not with every letter
            note(Operation("trim", MESSAGES, {"before": over}))
            note(Operation("set", FIRST, taken.first + over))
            gone = [one for one in self._skipped() if one <= taken.first + over]
            for one in gone:
                note(Operation("delete", SKIPPED + str(one)))
            cleared = Stretches(self._handle.reader.get(CLEARED, [], None, False))
            left = cleared.behind(taken.first + over).kept
            if left != cleared.kept:
                note(Operation("set", CLEARED, left))
        plan = taken.parts.plan()
        assert plan is not None
        return plan

    def plan_failed(self, taken: Taken, error: BaseException) -> Plan | None:
        """That processing failed; the letter is set aside if it has failed too often.

        None if somebody else has processed it meanwhile.
        """
        taken.parts.end()
        letter, kind = taken.letter, self._retry.kind(error)
        parts = own_change(self)
        part = parts.part(self._handle)
        count = part.get(TRIES + str(letter.number), {}).get("count", 0) + 1
        failed = {"count": count, "error": type(error).__name__, "kind": kind}
        again, wait = self._retry.again(kind, count), self._retry.pause(count)
        # A restore meanwhile brings those before it back; then it is skipped when they are done.
        passes = not again and _next(part)[1] == letter.number
        if not self._fail(part, letter, failed, again, wait):
            return None
        if passes:
            part.set(DONE, {"number": letter.number, "id": letter.id})
        return parts.plan()

    def _fail(
        self, part: ScopedChange, letter: Letter, failed: dict[str, Any], again: bool, wait: float
    ) -> bool:
        """Note a failure; whether there was anything to note."""
        number = str(letter.number)
        if part.exists(BEGUN + number):
            part.delete(BEGUN + number)
        done = part.get(DONE, {}).get("number", 0)
        cleared = Stretches(part.get(CLEARED, []))
        if done >= letter.number or cleared.end(letter.number) or part.exists(SKIPPED + number):
            return False
        if again:
            now = moment(self._handle.core.clock.claimed())
            part.set(TRIES + number, failed | ({"at": now, "wait": wait} if wait else {}))
            return True
        item = {"id": letter.id, "content": letter.content, "sender": letter.sender}
        part.set(ASIDE + number, {"letter": item | {"time": letter.time}, "failed": failed})
        part.set(SKIPPED + number, True)
        part.delete(TRIES + number)
        return True

    def last_try(self, taken: Taken, error: BaseException) -> bool:
        """Whether a letter is set aside if it fails now, by this error."""
        return not self._retry.again(self._retry.kind(error), taken.letter.tries + 1)

    def plan_interrupted(self) -> tuple[Plan, list[str]] | None:
        """Attempts whose process ended before they did, as failures; the ids of those set aside.

        Asked for by whoever knows that nobody is at work on this mailbox. None if there are none.
        """
        begun = self._handle.reader.keys(BEGUN, None, "")
        if not begun:
            return None
        parts = own_change(self)
        part = parts.part(self._handle)
        letters = {letter.number: letter for letter in self.waiting(None)}
        aside = []
        for key in begun:
            number, note = int(key.removeprefix(BEGUN)), part.get(key)
            letter = letters.get(number)
            if letter is None or note is None:  # removed meanwhile
                part.delete(key)
                continue
            failed = {"count": note["attempt"], "error": "", "kind": RESTART}
            if self._fail(part, letter, failed, note["again"], note["wait"]) and not note["again"]:
                aside.append(letter.id)
        plan = parts.plan()
        return None if plan is None else (plan, aside)

    # removing

    def plan_remove(self, number: int) -> Plan:
        """A change after which nobody processes a letter that waits or was set aside."""
        check_count(number, "the number of a letter")
        parts = own_change(self)
        part = parts.part(self._handle)
        if part.exists(ASIDE + str(number)):
            part.delete(ASIDE + str(number))
        elif any(letter.number == number for letter in self.waiting(None)):
            part.get(DONE)  # it may be processed at this moment: then this is planned again
            part.set(SKIPPED + str(number), True)
            part.delete(TRIES + str(number))
        else:
            raise MissingError(
                f"{self._handle.scope}: no letter {number} waits or is set aside; look at "
                "waiting() and set_aside()"
            )
        plan = parts.plan()
        assert plan is not None
        return plan

    def plan_clear(self, *, failed_only: bool) -> tuple[Plan | None, int]:
        """A change that removes letters that were set aside, or all; and how many those are."""
        parts = own_change(self)
        part = parts.part(self._handle)
        aside = self._handle.reader.keys(ASIDE, None, "")
        gone = list(aside)
        status = self.status()
        if not failed_only and status.waiting:
            # Not of those before: what they wrote may be undone, and then they are wanted again.
            done = part.get(DONE, {}).get("number", 0)
            cleared = Stretches(part.get(CLEARED, []))
            part.set(CLEARED, cleared.added(done, status.received).kept)
            for prefix in (TRIES, SKIPPED):
                keys = self._handle.reader.keys(prefix, None, "")
                gone += [key for key in keys if int(key.removeprefix(prefix)) > done]
        for key in gone:
            part.delete(key)
        count = len(aside) + (0 if failed_only else status.waiting)
        return parts.plan(), count

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
        letter = item["letter"]
        post(self._handle, part, letter["content"], letter["sender"], letter["id"])
        plan = parts.plan()
        assert plan is not None
        return plan, letter["id"]

    # looking

    def waiting(self, limit: int | None) -> list[Letter]:
        """Letters that are not processed yet, the next one first."""
        reader = self._handle.reader
        first, done, cleared, _ = self._far()
        skipped = self._skipped()
        failed = {
            int(key.removeprefix(TRIES)): told for key, told in reader.items(TRIES, None, "", False)
        }
        waiting: list[Letter] = []
        for low, high in cleared.between(max(done, first)):
            if limit is not None:
                high = min(high, low + limit + len(skipped))
            stop = None if high == inf else int(high) - first
            items: Sequence[Any] = reader.slice(MESSAGES, low - first, stop, False)
            waiting += [
                _letter(item, number, failed.get(number, {}))
                for number, item in enumerate(items, low + 1)
                if number not in skipped
            ]
            if limit is not None and len(waiting) >= limit:
                break
        return waiting[:limit]

    def _far(self) -> tuple[int, int, Stretches, str | None]:
        """How many were trimmed, the last one processed, those that were cleared, its id."""
        found = self._handle.reader.get_many([FIRST, DONE, CLEARED], False)
        done = found.get(DONE, {})
        cleared = Stretches(found.get(CLEARED, []))
        return found.get(FIRST, 0), done.get("number", 0), cleared, done.get("id")

    def _skipped(self) -> set[int]:
        """Numbers of those that were set aside, or removed one by one."""
        keys = self._handle.reader.keys(SKIPPED, None, "")
        return {int(key.removeprefix(SKIPPED)) for key in keys}

    def set_aside(self) -> list[Letter]:
        """Letters that failed too often, oldest first."""
        found = [
            _letter(item["letter"], int(key.removeprefix(ASIDE)), item["failed"])
            for key, item in self._handle.reader.items(ASIDE, None, "", False)
        ]
        return sorted(found, key=lambda letter: letter.number)

    def status(self) -> MailboxStatus:
        """How far it is."""
        reader = self._handle.reader
        first, done, cleared, id = self._far()
        received = first + reader.length(MESSAGES)
        missed = cleared.left(done, first)
        at = max(done, first)
        skipped = [one for one in self._skipped() if one > at and not cleared.end(one)]
        waiting = cleared.left(at, received) - len(skipped)
        return MailboxStatus(
            received,
            received - missed - waiting,
            waiting,
            id,
            len(reader.keys(ASIDE, None, "")),
            missed,
        )


def _next(part: ScopedChange) -> tuple[int, int]:
    """How many were trimmed, and the number of the next letter, which may be yet to come.

    What this rests on is expected by the change.
    """
    first, cleared = part.get(FIRST, 0), Stretches(part.get(CLEARED, []))
    number = max(part.get(DONE, {}).get("number", 0), first) + 1
    while (end := cleared.end(number)) or part.exists(SKIPPED + str(number)):
        number = max(end, number) + 1
    return first, number


def post(
    handle: LineHandle,
    part: ScopedChange,
    content: Any,
    sender: str,
    id: str | None = None,
    by: str = "",
) -> str:
    """Note in a change, of whomever, that a letter goes into a mailbox; returns its id."""
    part._check_open()
    check_text(sender, "the sender of a letter", 256)
    id = id or os.urandom(8).hex()
    time = moment(handle.core.clock.claimed())
    part.operations += sticky(handle, INBOX)
    item = {"id": id, "content": content, "sender": sender, "time": time}
    item |= {"by": by} if by else {}
    part.operations.append(Operation("append", MESSAGES, [item]))
    return id
