"""The mailbox of an agent, and the letters in it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdfast.agents.agent_keys import ALL_REQUESTS, MAILBOX, PENDING, REQUESTER
from holdfast.agents.mailbox_records import (
    CLEARED,
    FIRST,
    LAST,
    LIST,
    MESSAGES,
    PAGE,
    AsideRecord,
    BegunRecord,
    Box,
    FailedRecord,
    LetterRecord,
    SkippedRecord,
    Standing,
    cleared_to,
    with_cleared,
)
from holdfast.agents.retry import RESTART, RetryPolicy
from holdfast.errors import Conflict, InvalidInputError, MissingError
from holdfast.store.inner import (
    ChangeParts,
    LineHandle,
    Operation,
    Plan,
    ScopedChange,
    StoreHandle,
    content_of,
    handle_of,
    look,
    moment,
    own_change,
    own_step,
    own_steps,
    stored,
)
from holdfast.store.names.arguments import check_count, check_face, check_limit, check_text
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import (
    Blocks,
    Steps,
    ask,
    check,
    commit,
    faced,
    give,
    here,
    quick,
    read,
    step_block,
    steps,
    writes,
)
from holdfast.store.state import State

# ---- mailbox book -------------------------------------------------------------------------------
# Letters to an agent as they are kept, and the changes that send and process them: for both faces.
#
# What came in is a fact of the world, and so is how often it failed; how far it was processed is
# the agent's state. So under `$mailbox/`:
#
#     done                  the last one processed (`mailbox_records`); goes back with the state
#     inbox/                sticky: no restore makes a letter unsent, or one that fails a new one
#     inbox/messages        a list, oldest first
#     inbox/first           how many were trimmed from its front
#     inbox/cleared         stretches of numbers that nobody wants processed
#     inbox/begun/NUMBER    that an attempt has begun, and what becomes of it if its process ends
#     inbox/tries/NUMBER    how often one has failed so far, and when it may be tried again
#     inbox/aside/NUMBER    one that failed too often
#     inbox/skipped/NUMBER  that it is not to be processed at its place: it was set aside or
#                           removed, or is `UNSENT`: it was taken back (`mailbox_records`)
#
# Letters belong to `main`: on a fork there is no mailbox to be had (`on_main`).
#
# A letter's number counts from 1 and changes only if others before it are lost, by damage or a
# revert; so what is said of one says its id. A restore puts `done` back together with what
# processing wrote, so that letters since then are processed again, on the state as it was then,
# except those that were set aside or removed.


MAIN = "main"
KEPT = 1000
"""Letters that are processed and kept, unless a mailbox is told otherwise."""
PLAIN = RetryPolicy.every(5)
"""What a mailbox does about failures unless it is told otherwise."""
RERUNS = 5
"""How often a letter is processed again because of a `Conflict` before that counts as a failure."""
FIRST_PAUSE = 0.002
"""Seconds before the first of them; before each further one twice as many."""


class Reruns:
    """How often one letter is processed again, at once, because of a `Conflict`.

    Somebody else may have been faster. Who gets it again and again was not: a function that writes
    what it has read, beside its change, conflicts with itself.
    """

    def __init__(self) -> None:
        self._number = self._count = 0

    def pause(self, mail: Mail, error: Exception) -> float | None:
        """Seconds after which a letter that ended so is processed again; None: it has failed."""
        if not isinstance(error, Conflict):
            return None
        if mail.letter.number != self._number:
            self._number, self._count = mail.letter.number, 0
        self._count += 1
        return FIRST_PAUSE * 2.0 ** (self._count - 1) if self._count <= RERUNS else None


def on_main(handle: LineHandle) -> LineHandle:
    """Refuse another timeline than main."""
    if handle.timeline != MAIN:
        raise InvalidInputError(
            f"{handle.scope}: letters belong to main; the fork {handle.timeline!r} has no mailbox. "
            f"Take the state of main, store.scope({str(handle.scope)!r}), for letters"
        )
    return handle


def status_of(handle: LineHandle) -> MailboxStatus:
    """How far the mailbox of an agent is, or was at the point of a view."""
    box = Box(handle)
    standing = Standing(box)
    received, done = standing.last, standing.done
    waits = standing.wanted(max(standing.number, standing.first), received)
    waiting = sum(1 for number in waits if number not in standing.skipped)
    return MailboxStatus(
        received,
        received - standing.missed - waiting,
        waiting,
        done.id if done is not None else None,
        len(box.aside.all()),
        standing.missed,
    )


def _next(box: Box, standing: Standing) -> int:
    """The number of the next letter, which may be yet to come.

    What this rests on is expected by the change.
    """
    number = next(
        one
        for one in standing.wanted(max(standing.number, standing.first))
        if not standing.skipped or not standing.skips(one, standing.at(one))
    )
    box.page(box.skipped).exists(str(number))  # who removes it meanwhile goes first
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
    box = Box(on_main(handle), part)
    check_text(sender, "the sender of a letter", 256)
    id = id or os.urandom(8).hex()
    time = moment(handle.core.clock.claimed())
    letter = LetterRecord(id=id, content=content, sender=sender, time=time, by=by, again=again)
    box.page(box.letters).extend(LIST, [letter])
    return id


def note_tried(
    handle: LineHandle, part: ScopedChange, id: str, tries: int, active: RetryPolicy | None
) -> None:
    """Note in a change that the letter which it posts next has been tried elsewhere, so often.

    If it was at work there, by the policy `active`, whoever begins with the mailbox counts that.
    """
    box = Box(handle, part)
    number = str(Standing(box).first + part.length(MESSAGES) + 1)
    if tries:
        box.page(box.tries).put(number, FailedRecord(count=tries, id=id))
    if active:  # as one that was interrupted
        again = active.again(RESTART, tries + 1)
        begun = BegunRecord(id=id, attempt=tries + 1, again=again, wait=0.0)
        box.page(box.begun).put(number, begun)


def planned_once(parts: ChangeParts, line: LineHandle, said: Operation | None) -> Plan:
    """The plan of a change that sends a letter; if it has an id, of what is `said` under it.

    Sent again it has another time: under its id it is the same letter all the same.
    """
    parts.part(line).looked = said is not None
    plan = parts.plan()
    assert plan is not None
    if said is not None:
        plan[0].content = content_of(line.core, [(line.scope, line.timeline, [said])])
    return plan


# ---- mailbox ------------------------------------------------------------------------------------


@faced
class Mail:
    """A letter that is being processed; what `change` writes is committed together with that."""

    def __init__(self, letter: Letter, parts: ChangeParts, box: Box, standing: Standing) -> None:
        self._parts = parts
        self._box = box
        self._standing = standing
        self.letter: Letter = letter
        self.content: Any = letter.content
        self.change: ScopedChange = box.part
        """Writes to the agent's own state, in the same entry."""

    @here
    def send(self, to: State, content: Any) -> str:
        """Send a letter to another agent of this store, in the same commit; returns its id."""
        if not isinstance(to, State):
            raise InvalidInputError("a letter is sent to a state: store.agent(...)")
        part = self._parts.part(handle_of(to))
        own = str(self._box.line.scope)
        return post(handle_of(to), part, content, own, by=own)


@faced
class Mailbox:
    """Letters to an agent, each processed once: what was done with it is in the same change.

    A letter that was sent is never lost, whoever crashes; one whose processing was cut short is
    the next one again. Any number of processes may send; several may process, and each letter is
    done by one of them. After a restore the letters that came since are still there, and those that
    were processed since are processed again, because what that wrote was undone: guard effects
    outside by the letter's id. The last `keep` processed ones are kept for that. What fails is
    tried again as `retry` says (without it: 5 times in all, whatever the failure is), then set
    aside, so that those behind it go on; it stays so in a restore.
    """

    def __init__(self, state: State, *, keep: int = KEPT, retry: RetryPolicy | None = None) -> None:
        check_face(state, State, "Mailbox")
        self._state = state
        self._storage = handle_of(state).core.storage
        check_count(keep, "keep")
        if not isinstance(retry, RetryPolicy | None):
            raise InvalidInputError("retry is a RetryPolicy, as RetryPolicy.every(5) makes one")
        self._handle = on_main(handle_of(state))
        self._keep = keep
        self._retry = retry or PLAIN

    @steps
    def send(self, content: Any, *, sender: str = "", id: str | None = None) -> Steps[str]:
        """Put a letter into the mailbox; returns its id. With an `id` it is sent once.

        Another content under a known id is refused with `ChangeIdError`.
        """
        if id is not None:
            check_text(id, "the id of a letter", 200, least=1)
        own = None if id is None else f"{MAILBOX}0/{id}"  # 0 is the number of main

        def planned() -> tuple[Plan, str]:
            parts = own_change(self, id=own)
            made = post(self._handle, parts.part(self._handle), content, sender, id)
            said = Operation("append", MESSAGES, content) if id is not None else None
            return planned_once(parts, self._handle, said), made

        plan, made = yield look(self._state, planned)
        yield commit(self._state, plan)
        return made  # type: ignore[no-any-return]

    @step_block
    def next(self) -> Blocks[Mail | None]:
        """The next letter; it is processed when the block ends without an error.

        None if none waits, or the next is one that failed and it is too early to try it again.

        If somebody else was faster, or changed what was read, the block ends with `Conflict`, and
        nothing of it was applied. An error in the block counts as a failed attempt, and so does
        what it wrote if that is refused.
        """
        mail = yield from self._take()
        if mail is None:
            yield give(None)
            return
        over = False
        try:
            yield give(mail)
            over = True
            yield from self._done(mail)
        except Exception as error:
            if not over or not isinstance(error, Conflict):
                yield from self._failed(mail, error)
            raise

    def _take(self) -> Steps[Mail | None]:
        mail, plan = yield look(self._state, self._taken)
        if plan is not None:
            yield commit(self._state, plan)
        return mail  # type: ignore[no-any-return]

    def _taken(self) -> tuple[Mail | None, Plan | None]:
        """The next letter; None if none waits, or it is too early to try that one again. And a
        change that tells that an attempt begins, if its end by that of its process is to be told.

        What the letter rests on is expected by its change. Nobody expects that it is begun, so that
        of several who process it one succeeds, as ever.
        """
        parts = ChangeParts(StoreHandle(self._handle.core), cause_now(), None)
        box = Box(self._handle, parts.part(self._handle))
        standing = Standing(box)
        number = _next(box, standing)
        found = standing.at(number)
        if found is None:
            return None, None
        failed = box.page(box.tries).get(str(number))
        if failed is not None and failed.at is not None and failed.id in ("", found.id):
            # By a clock that went back nobody knows whether enough time has passed: then it has.
            passed = moment(self._handle.core.clock.claimed()) - failed.at
            if timedelta(0) <= passed < timedelta(seconds=failed.wait):
                return None, None
        mail = Mail(letter_of(found, number, failed), parts, box, standing)
        if self._retry.kinds is None:
            return mail, None
        attempt, begun = mail.letter.tries + 1, own_change(self)
        again = self._retry.again(RESTART, attempt)
        wait = self._retry.pause(attempt)
        note = BegunRecord(id=found.id, attempt=attempt, again=again, wait=wait)
        box.begun.page(begun.part(self._handle)).put(str(number), note)
        return mail, begun.plan()

    def _done(self, mail: Mail) -> Steps[None]:
        plan = yield look(self._state, self._plan_done, mail, planned=True)
        yield commit(self._state, plan)

    def _plan_done(self, mail: Mail) -> Plan:
        """What processing wrote, and that it is done: one change."""
        letter, box, standing = mail.letter, mail._box, mail._standing
        first, number = standing.first, str(letter.number)
        box.page(box.dones).put(LAST, standing.after(letter.number, letter.id))
        if letter.tries:
            box.page(box.tries).delete(number)
        if self._retry.kinds is not None:
            box.page(box.begun).delete(number)
        over = letter.number - first - self._keep
        if over > self._keep // 4:  # not with every letter
            # The caller's own methods refuse keys of this layer.
            note = box.part.operations.append
            box.page(box.letters).trim(LIST, before=over)
            note(Operation("set", FIRST, first + over))
            for one in standing.skipped:
                if one <= first + over:
                    box.page(box.skipped).delete(str(one))
            left = [one for one in standing.cleared if one[1] > first + over]
            if left != self._handle.reader.get(CLEARED, []):
                note(Operation("set", CLEARED, left))
        plan = mail._parts.plan()
        assert plan is not None
        return plan

    def _failed(self, mail: Mail, error: BaseException) -> Steps[bool]:
        """Note that processing failed; whether it is tried again."""

        def note(parts: ChangeParts) -> Steps[bool]:
            return (yield look(self._state, self._note_failed, parts, mail, error))  # type: ignore[no-any-return]

        return (yield from own_steps(self._state, note))

    def _note_failed(self, parts: ChangeParts, mail: Mail, error: BaseException) -> bool:
        """That processing failed; the letter is set aside if it has failed too often.

        Nothing if somebody else has processed it meanwhile.
        """
        mail._parts.end()
        letter, kind = mail.letter, self._retry.kind(error)
        box = Box(self._handle, parts.part(self._handle))
        before = box.page(box.tries).get(str(letter.number)) or FailedRecord()
        count = before.count + 1 if before.id in ("", letter.id) else 1
        again, wait = self._retry.again(kind, count), self._retry.pause(count)
        failed = FailedRecord(count=count, error=type(error).__name__, kind=kind, wait=wait)
        standing = Standing(box)
        # A restore meanwhile brings those before it back; then it is skipped when they are done.
        passes = not again and _next(box, standing) == letter.number
        if self._fail(box, standing, letter, failed, again) and passes:
            box.page(box.dones).put(LAST, standing.after(letter.number, letter.id))
        return again

    def _fail(
        self, box: Box, standing: Standing, letter: Letter, failed: FailedRecord, again: bool
    ) -> bool:
        """Note a failure; whether there was anything to note."""
        number, skipped = str(letter.number), box.page(box.skipped)
        if box.page(box.begun).exists(number):
            box.page(box.begun).delete(number)
        skipped.exists(number)  # who removes it meanwhile goes first
        item = standing.at(letter.number)
        if item is None or item.id != letter.id or standing.number >= letter.number:
            return False
        if cleared_to(standing.cleared, letter.number) or standing.skips(letter.number, item):
            return False
        failed.id = letter.id
        if again:
            failed.at = moment(self._handle.core.clock.claimed()) if failed.wait else None
            box.page(box.tries).put(number, failed)
            return True
        failed.wait = 0.0
        aside = AsideRecord(letter=stored(item), failed=stored(failed))
        box.page(box.aside).put(number, aside)
        skipped.put(number, SkippedRecord(id=letter.id))
        box.page(box.tries).delete(number)
        return True

    @steps
    def process(self, function: Callable[[Mail], Any], *, limit: int | None = None) -> Steps[int]:
        """Process what waits, at most `limit` letters, by `function(mail)`; tells how many.

        The function runs again if somebody else was faster, or changed what it has read; after 5
        times in a row with the same letter that is an error like any other. An error ends this,
        after it has been counted. On the async face the function may be async.
        """
        yield check(function, "what processes letters")
        check_limit(limit)
        count, reruns = 0, Reruns()
        while limit is None or count < limit:
            mail = yield from self._take()
            if mail is None:
                break
            try:
                yield ask(function, mail, what="what processes letters")
                yield from self._done(mail)
            except Exception as error:
                pause = reruns.pause(mail, error)
                if pause is None:
                    yield from self._failed(mail, error)
                    raise
                yield read(time.sleep, pause)
            else:
                count += 1
        return count

    @quick
    def waiting(self, *, limit: int | None = None) -> list[Letter]:
        """Letters that are not processed yet, the next one first."""
        check_limit(limit)
        box = Box(self._handle)
        standing = Standing(box)
        failed = {int(id): told for id, told in box.tries.all().items()}
        first, waiting = standing.first, list[Letter]()
        at = max(standing.number, first)
        while page := box.letters.slice(LIST, at - first, at - first + PAGE):
            for number, item in enumerate(page, at + 1):
                if len(waiting) == limit:
                    return waiting
                if not cleared_to(standing.cleared, number) and not standing.skips(number, item):
                    waiting.append(letter_of(item, number, failed.get(number)))
            at += len(page)
        return waiting

    @quick
    def set_aside(self) -> list[Letter]:
        """Letters that failed too often, oldest first."""
        found = [
            letter_of(LetterRecord(**one.letter), int(id), FailedRecord(**one.failed))
            for id, one in Box(self._handle).aside.all().items()
        ]
        return sorted(found, key=lambda letter: letter.number)

    @writes
    def retry(self, number: int) -> str:
        """Put a letter that was set aside behind all others; returns its id."""

        def note(parts: ChangeParts) -> str:
            box = Box(self._handle, parts.part(self._handle))
            item = box.page(box.aside).get(str(number))
            if item is None:
                raise MissingError(
                    f"{self._handle.scope}: no letter {number} is set aside; look at set_aside()"
                )
            box.page(box.aside).delete(str(number))
            said = LetterRecord(**item.letter)
            if said.sender == REQUESTER:  # who answers requests looks only where one is marked
                index = parts.part(StoreHandle(self._handle.core).line(ALL_REQUESTS))
                index.set(PENDING + self._handle.scope.id, f"{said.id}/{number}")
            about = said.content, said.sender, said.id, said.by
            return post(self._handle, box.part, *about, again=True)

        return own_step(self, note)

    @writes
    def interrupted(self) -> list[str]:
        """Count attempts whose process ended before they did as failures (`daemon_restart`).

        For when a program starts, before anyone processes this mailbox: a loop and `boot` do it.
        Known of attempts that were made under a `retry` with kinds. Returns the ids of those that
        are set aside by it.
        """

        def count(parts: ChangeParts) -> list[str]:
            begun = Box(self._handle).begun.all()
            if not begun:
                return []
            box = Box(self._handle, parts.part(self._handle))
            standing, letters = Standing(box), {letter.number: letter for letter in self.waiting()}
            aside = []
            for id in begun:
                letter, note = letters.get(int(id)), box.page(box.begun).get(id)
                if letter is None or note is None or note.id not in ("", letter.id):  # it went
                    box.page(box.begun).delete(id)
                    continue
                failed = FailedRecord(count=note.attempt, kind=RESTART, wait=note.wait)
                if self._fail(box, standing, letter, failed, note.again) and not note.again:
                    aside.append(letter.id)
            return aside

        return own_step(self, count)

    @writes
    def remove(self, number: int) -> None:
        """Let nobody process a letter that waits or was set aside; it stays in the history."""
        check_count(number, "the number of a letter")

        def note(parts: ChangeParts) -> None:
            box, id = Box(self._handle, parts.part(self._handle)), str(number)
            if box.page(box.aside).exists(id):
                box.page(box.aside).delete(id)
            elif ids := [letter.id for letter in self.waiting() if letter.number == number]:
                box.page(box.dones).get(LAST)  # it may be processed just now: then this is again
                box.page(box.skipped).put(id, SkippedRecord(id=ids[0]))
                box.page(box.tries).delete(id)
            else:
                raise MissingError(
                    f"{self._handle.scope}: no letter {number} waits or is set aside; look at "
                    "waiting() and set_aside()"
                )

        own_step(self, note)

    @writes
    def clear_failed(self) -> int:
        """Remove what was set aside; tells how many letters. They stay in the history."""
        return own_step(self, lambda parts: self._clear(parts, failed_only=True))

    @writes
    def clear_all(self) -> int:
        """Remove what waits and what was set aside; tells how many letters."""
        return own_step(self, lambda parts: self._clear(parts, failed_only=False))

    def _clear(self, parts: ChangeParts, *, failed_only: bool) -> int:
        """Remove letters that were set aside, or all; how many those are."""
        box = Box(self._handle, parts.part(self._handle))
        aside, status = box.aside.all(), self.status()
        for id in aside:
            box.page(box.aside).delete(id)
        if failed_only or not status.waiting:
            return len(aside) + (0 if failed_only else status.waiting)
        # Not of those before: what they wrote may be undone, and then they are wanted again.
        standing = Standing(box)
        done, last = standing.number, standing.at(status.received)
        name = [last.id] if last is not None else []
        box.part.set(CLEARED, with_cleared(standing.cleared, done, status.received, *name))
        for one in (one for one in box.tries.all() if int(one) > done):
            box.page(box.tries).delete(one)
        for number in (number for number in standing.skipped if number > done):
            box.page(box.skipped).delete(str(number))
        return len(aside) + status.waiting

    @quick
    def status(self) -> MailboxStatus:
        """How many came, are processed, wait, are set aside or were missed."""
        return status_of(self._handle)


# ---- mailbox letters ----------------------------------------------------------------------------
# What a mailbox tells: its letters, and how far it is.


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


def letter_of(item: LetterRecord, number: int, failed: FailedRecord | None) -> Letter:
    """A letter as it lies in the list, and what is known of its failures."""
    if failed is None or failed.id not in ("", item.id):
        failed = FailedRecord()
    return Letter(
        number,
        item.id,
        item.content,
        item.sender,
        item.time or moment(0),
        failed.count,
        failed.error,
        failed.kind,
        failed.at + timedelta(seconds=failed.wait) if failed.at is not None else None,
    )
