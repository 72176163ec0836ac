"""Letters to an agent as they are kept, and the changes that send and process them: for both faces.

What came in is a fact of the world, and so is how often it failed; how far it was processed is the
agent's state. So under `$mailbox/`:

    done                  the last one processed (`mailbox_numbers`); goes back with the state
    inbox/                sticky: no restore makes a letter unsent, or one that fails a new one
    inbox/messages        a list, oldest first
    inbox/first           how many were trimmed from its front
    inbox/cleared         stretches of numbers that nobody wants processed (`mailbox_ranges`)
    inbox/begun/NUMBER    that an attempt has begun, and what becomes of it if its process ends
    inbox/tries/NUMBER    how often one has failed so far, and when it may be tried again
    inbox/aside/NUMBER    one that failed too often
    inbox/skipped/NUMBER  that it is not to be processed at its place: it was set aside or removed,
                          or is `UNSENT`: it was taken back (`mailbox_restores`)

A letter's number counts from 1 and changes only if others before it are lost, by damage or a
revert; so what is said of one says its id. A restore puts `done` back together with what
processing wrote, so that letters since then are processed again, on the state as it was then,
except those that were set aside or removed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from math import inf
from typing import Any

from holdfast.agents.agent_keys import MAILBOX, own_change, sticky
from holdfast.agents.mailbox_letters import Letter, MailboxStatus, letter_of
from holdfast.agents.mailbox_numbers import (
    CLEARED,
    DONE,
    FIRST,
    INBOX,
    MESSAGES,
    SKIPPED,
    UNSENT,
    Standing,
    line_of,
)
from holdfast.agents.mailbox_ranges import Stretches
from holdfast.agents.retry import RESTART, RetryPolicy
from holdfast.errors import Conflict, InvalidInputError, MissingError
from holdfast.store.commit.outcome import content_of
from holdfast.store.commit.request import ScopedChange
from holdfast.store.history.checkpoint import Plan
from holdfast.store.history.handle import ChangeParts, LineHandle, StoreHandle
from holdfast.store.names.arguments import check_count, check_text
from holdfast.store.names.cause import cause_now
from holdfast.store.read.reader import moment
from holdfast.store.rules.gates import Operation

__all__ = [
    "ASIDE",
    "BEGUN",
    "CLEARED",
    "DONE",
    "FIRST",
    "INBOX",
    "MESSAGES",
    "SKIPPED",
    "TRIES",
    "UNSENT",
    "Box",
    "Letter",
    "MailboxStatus",
    "Reruns",
    "Taken",
    "post",
]

TRIES, ASIDE, BEGUN = INBOX + "tries/", INBOX + "aside/", INBOX + "begun/"
PLAIN = RetryPolicy.every(5)
"""What a mailbox does about failures unless it is told otherwise."""
LOOKS = 100
"""How often the beginning of the list is read while others trim it."""
RERUNS = 5
"""How often a letter is processed again because of a `Conflict` before that counts as a failure."""
FIRST_PAUSE = 0.002
"""Seconds before the first of them; before each further one twice as many."""


class Taken:
    """A letter while it is processed, and the change that will say so."""

    def __init__(
        self,
        letter: Letter,
        item: dict[str, Any],
        parts: ChangeParts,
        part: ScopedChange,
        standing: Standing,
    ) -> None:
        self.letter = letter
        self.item = item
        self.parts = parts
        self.part = part
        self.standing = standing


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

    def _planned(self, parts: ChangeParts) -> Plan | None:
        """A change of what is kept about letters; None if nothing was noted.

        A restore leaves it alone, also if the letters themselves came with a state from elsewhere.
        """
        part = parts.part(self._handle)
        if not part.empty:
            part.operations += sticky(self._handle, INBOX)
        return parts.plan()

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
            standing = Standing(self._handle, part.get)
            number = _next(part, standing)
            found = standing.numbers.at(number)
            if self._handle.reader.get(FIRST, 0, None, False) == standing.first:
                break
        else:
            raise Conflict(f"{self._handle.scope}: the mailbox was always trimmed; try again")
        if found is None:
            return None
        failed = part.get(TRIES + str(number), {})
        if not self._is_due(failed, found["id"]):
            return None
        return Taken(letter_of(found, number, failed), found, parts, part, standing)

    def _is_due(self, failed: dict[str, Any], id: str) -> bool:
        """Whether enough time has passed. By a clock that went back nobody knows: then it has."""
        if not failed.get("wait") or failed.get("id", id) != id:
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
        wait = self._retry.pause(attempt)
        note = {"id": taken.letter.id, "attempt": attempt, "again": again, "wait": wait}
        parts.part(self._handle).set(BEGUN + str(taken.letter.number), note)
        return self._planned(parts)

    def plan_done(self, taken: Taken) -> Plan:
        """What processing wrote, and that it is done: one change."""
        letter = taken.letter
        note = taken.part.operations.append  # the caller's own methods refuse keys of this layer
        first = taken.standing.first
        note(Operation("set", DONE, taken.standing.after(letter.number, taken.item)))
        if letter.tries:
            note(Operation("delete", TRIES + str(letter.number)))
        if self._retry.kinds is not None:
            note(Operation("delete", BEGUN + str(letter.number)))
        over = letter.number - first - self._keep
        if over > self._keep // 4:  # not with every letter
            note(Operation("trim", MESSAGES, {"before": over}))
            note(Operation("set", FIRST, first + over))
            for one, at in taken.standing.skipped_here().items():
                if (at or one) <= first + over:
                    note(Operation("delete", SKIPPED + str(one)))
            cleared = Stretches(self._handle.reader.get(CLEARED, [], None, False))
            left = taken.standing.cleared.behind(first + over).kept
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
        before = part.get(TRIES + str(letter.number), {})
        count = before.get("count", 0) + 1 if before.get("id", letter.id) == letter.id else 1
        failed = {"count": count, "error": type(error).__name__, "kind": kind}
        again, wait = self._retry.again(kind, count), self._retry.pause(count)
        standing = Standing(self._handle, part.get)
        item = standing.numbers.at(letter.number)
        # A restore meanwhile brings those before it back; then it is skipped when they are done.
        passes = not again and _next(part, standing) == letter.number
        if not self._fail(part, standing, letter, failed, again, wait):
            return None
        if passes and item is not None:
            part.set(DONE, standing.after(letter.number, item))
        return self._planned(parts)

    def _fail(
        self,
        part: ScopedChange,
        standing: Standing,
        letter: Letter,
        failed: dict[str, Any],
        again: bool,
        wait: float,
    ) -> bool:
        """Note a failure; whether there was anything to note."""
        number = str(letter.number)
        if part.exists(BEGUN + number):
            part.delete(BEGUN + number)
        part.exists(SKIPPED + number)  # who removes it meanwhile goes first
        item = standing.numbers.at(letter.number)
        if item is None or item["id"] != letter.id or standing.number >= letter.number:
            return False
        if standing.cleared.end(letter.number) or standing.skips(letter.number):
            return False
        failed = failed | {"id": letter.id}
        if again:
            now = moment(self._handle.core.clock.claimed())
            part.set(TRIES + number, failed | ({"at": now, "wait": wait} if wait else {}))
            return True
        part.set(ASIDE + number, {"letter": item, "failed": failed})
        part.set(SKIPPED + number, {"id": letter.id})
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
        standing = Standing(self._handle, part.get)
        letters = {letter.number: letter for letter in self.waiting(None)}
        aside = []
        for key in begun:
            number, note = int(key.removeprefix(BEGUN)), part.get(key)
            letter = letters.get(number)
            if letter is None or note is None or note.get("id", letter.id) != letter.id:  # it went
                part.delete(key)
                continue
            failed = {"count": note["attempt"], "error": "", "kind": RESTART}
            again, wait = note["again"], note["wait"]
            if self._fail(part, standing, letter, failed, again, wait) and not again:
                aside.append(letter.id)
        plan = self._planned(parts)
        return None if plan is None else (plan, aside)

    # removing

    def plan_remove(self, number: int) -> Plan:
        """A change after which nobody processes a letter that waits or was set aside."""
        check_count(number, "the number of a letter")
        parts = own_change(self)
        part = parts.part(self._handle)
        if part.exists(ASIDE + str(number)):
            part.delete(ASIDE + str(number))
        elif ids := [letter.id for letter in self.waiting(None) if letter.number == number]:
            part.get(DONE)  # it may be processed at this moment: then this is planned again
            part.set(SKIPPED + str(number), {"id": ids[0]})
            part.delete(TRIES + str(number))
        else:
            raise MissingError(
                f"{self._handle.scope}: no letter {number} waits or is set aside; look at "
                "waiting() and set_aside()"
            )
        plan = self._planned(parts)
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
            standing = Standing(self._handle, part.get)
            done, last = standing.number, standing.numbers.at(status.received)
            id = [last["id"]] if last is not None else []
            part.set(CLEARED, standing.cleared.added(done, status.received, *id).kept)
            tries = self._handle.reader.keys(TRIES, None, "")
            gone += [key for key in tries if int(key.removeprefix(TRIES)) > done]
            here = standing.skipped_here().items()
            gone += [SKIPPED + str(one) for one, at in here if at > done]
        for key in gone:
            part.delete(key)
        count = len(aside) + (0 if failed_only else status.waiting)
        return self._planned(parts), count

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
        by = letter.get("by", "")
        post(self._handle, part, letter["content"], letter["sender"], letter["id"], by, again=True)
        plan = parts.plan()
        assert plan is not None
        return plan, letter["id"]

    # looking

    def waiting(self, limit: int | None) -> list[Letter]:
        """Letters that are not processed yet, the next one first."""
        reader = self._handle.reader
        standing = Standing(self._handle, self._get)
        first, skipped = standing.first, set(standing.skipped_here().values())
        failed = {
            int(key.removeprefix(TRIES)): told for key, told in reader.items(TRIES, None, "", False)
        }
        waiting: list[Letter] = []
        for low, high in standing.cleared.between(max(standing.number, first)):
            if limit is not None:
                high = min(high, low + limit + len(skipped))
            stop = None if high == inf else int(high) - first
            items: Sequence[Any] = reader.slice(MESSAGES, low - first, stop, False)
            waiting += [
                letter_of(item, number, failed.get(number, {}))
                for number, item in enumerate(items, low + 1)
                if number not in skipped
            ]
            if limit is not None and len(waiting) >= limit:
                break
        return waiting[:limit]

    def _get(self, key: str, default: Any) -> Any:
        return self._handle.reader.get(key, default, None, False)

    def set_aside(self) -> list[Letter]:
        """Letters that failed too often, oldest first."""
        found = [
            letter_of(item["letter"], int(key.removeprefix(ASIDE)), item["failed"])
            for key, item in self._handle.reader.items(ASIDE, None, "", False)
        ]
        return sorted(found, key=lambda letter: letter.number)

    def status(self) -> MailboxStatus:
        """How far it is."""
        standing = Standing(self._handle, self._get)
        received, cleared = standing.numbers.last, standing.cleared
        at = max(standing.number, standing.first)
        here = standing.skipped_here().values()
        skipped = [one for one in here if one > at and not cleared.end(one)]
        waiting = cleared.left(at, received) - len(skipped)
        return MailboxStatus(
            received,
            received - standing.missed - waiting,
            waiting,
            standing.done.get("id"),
            len(self._handle.reader.keys(ASIDE, None, "")),
            standing.missed,
        )


def _next(part: ScopedChange, standing: Standing) -> int:
    """The number of the next letter, which may be yet to come.

    What this rests on is expected by the change.
    """
    number = max(standing.number, standing.first) + 1
    while (end := standing.cleared.end(number)) or standing.skips(number):
        number = max(end, number) + 1
    part.exists(SKIPPED + str(number))  # who removes it meanwhile goes first
    return number


def post(
    handle: LineHandle,
    part: ScopedChange,
    content: Any,
    sender: str,
    id: str | None = None,
    by: str = "",
    *,
    again: bool = False,
) -> str:
    """Note in a change, of whomever, that a letter goes into a mailbox; returns its id."""
    part._check_open()
    check_text(sender, "the sender of a letter", 256)
    id = id or os.urandom(8).hex()
    time = moment(handle.core.clock.claimed())
    part.operations += sticky(handle, INBOX)
    item = {"id": id, "content": content, "sender": sender, "time": time, "line": line_of(handle)}
    item |= {"by": by} if by else {}
    item |= {"again": True} if again else {}
    part.operations.append(Operation("append", MESSAGES, [item]))
    return id
