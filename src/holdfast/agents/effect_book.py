"""The book of a state's effects: what both faces do, on whatever thread they do it.

Intent before, result after: `begin` commits that an attempt is started before the caller may do
anything, `finish` that it is done. Both rest on the record that they read, so that of two who begin
one effect at the same time one is refused, or repeats it with its idempotency key.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct, structs

from holdfast.agents.agent_keys import DONE, OPEN, OWN_EFFECTS
from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    EffectNotFoundError,
    EffectUnknownError,
    HoldfastError,
    InvalidInputError,
    MissingError,
    RefusedError,
    StateIntegrityError,
)
from holdfast.store.inner import (
    Book,
    BookPage,
    LineHandle,
    Operation,
    Running,
    ScopedChange,
    Timeline,
    check_ttl,
    loaded,
    moment,
    stored,
)
from holdfast.store.names.arguments import check_text
from holdfast.store.state import State

# ---- effect records -----------------------------------------------------------------------------
# Effects as data: what is known of something that must not happen twice.
#
# An effect has a name (mostly the tool's) and an id (mostly the call's). While it is not done, its
# record lies under `$effects/open/`, then under `$effects/done/`: what is unfinished is found
# without reading what is done. A record goes through these phases:
#
#     planned   it is meant to happen, and has not been begun
#     started   it was begun; if nobody is at work on it, whether it happened is unknown
#     done      it happened, and this is its result


MOST_NAME = 128
MOST_ID = 200
_MOST_KEY = 480
"""Characters of a name and an id as they stand in a key, which has at most 512."""
_SHORT = 200
_SHOWN = 16
"""Characters of one of them that is too long for that, of which a hash stands for the rest."""

PLANNED, STARTED, FINISHED = "planned", "started", "done"
UNREAD = DamagedRecordError.__name__
"""The error of a record that stands for one that could not be read any more."""


@dataclass(frozen=True)
class Effect:
    """What is known of an effect."""

    name: str
    id: str
    key: str | None
    """The idempotency key that its tool takes; None if it takes none."""
    status: str
    """planned (never started), running (in this process), unknown or done"""
    attempts: int
    about: Any = None
    """What was given when it was planned or begun, for whoever has to judge it."""
    result: Any = None
    error: str = ""
    """The kind of error with which its last attempt ended, if one is known."""
    planned_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    settled: bool = False
    """Whether somebody said how it ended, instead of the program that did it."""
    result_lost: bool = False
    """It is done, and its result was nothing that can be stored."""
    strays: int = 0
    """Attempts that ended after somebody had said that they never would; each happened besides."""

    @property
    def repeatable(self) -> bool:
        """Whether it may be begun, perhaps again, without asking anybody."""
        return self.status == PLANNED or (self.status == "unknown" and self.key is not None)

    def __str__(self) -> str:
        return f"{self.name} {self.id}" if self.id else self.name


class Record(Struct, kw_only=True):
    """An effect as it is stored."""

    name: str
    id: str
    phase: str
    key: str | None = None
    about: Any = None
    attempts: int = 0
    token: str = ""
    """Of the newest attempt: what tells it from others."""
    planned_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None
    error: str = ""
    settled: bool = False
    result_lost: bool = False
    strays: int = 0

    @property
    def unread(self) -> bool:
        """Whether all that is known of it is that there was a record."""
        return self.error == UNREAD and not self.token

    def shown(self, running: bool) -> Effect:
        """What a caller sees of it."""
        status = self.phase
        if self.phase == STARTED:
            status = "running" if running else "unknown"
        fields = structs.asdict(self)
        return Effect(
            status=status, **{n: v for n, v in fields.items() if n not in ("phase", "token")}
        )


@dataclass(frozen=True)
class Asked:
    """An effect as a caller names it."""

    name: str
    id: str
    key: str | None = None
    about: Any = None

    @classmethod
    def of(cls, name: Any, id: Any, key: Any, about: Any = None) -> Asked:
        """Checked. Without an id it is known by its idempotency key, or by its name alone."""
        check_text(name, "the name of an effect", MOST_NAME, least=1)
        if id is not None:
            check_text(id, "the id of an effect", MOST_ID, least=1)
        if key is not None:
            check_text(key, "the idempotency key of an effect", MOST_ID, least=1)
        return cls(name, id or key or "", key, about)

    def record(self, **more: Any) -> Record:
        """The record of one that is planned."""
        return Record(
            name=self.name, id=self.id, phase=PLANNED, key=self.key, about=self.about, **more
        )

    @property
    def place(self) -> str:
        """The end of its key: any text, in characters that may stand there."""
        texts = [self.name, self.id] if self.id else [self.name]
        whole = "/".join(map(_quoted, texts))
        return whole if len(whole) <= _MOST_KEY else "/".join(map(_shortened, texts))

    @property
    def open(self) -> str:
        """Its id while it is not done."""
        return "open/" + self.place

    @property
    def done(self) -> str:
        """Its id once it is done."""
        return "done/" + self.place

    def check(self, found: Record, encoded: Callable[[Any], bytes]) -> None:
        """Refuse another effect under the same id: its result would be taken for this one's."""
        if found.unread:
            return  # what it was is not known
        if found.key != self.key:
            raise InvalidInputError(
                f"the effect {self.name} {self.id} was begun with another idempotency key; "
                "give that one, or another id"
            )
        if self.about is None or found.about is None:
            return
        if encoded(found.about) != encoded(self.about):
            raise InvalidInputError(
                f"the effect {self.name} {self.id} was begun about something else; "
                "give another id to what is another effect"
            )


def _quoted(text: str) -> str:
    return quote(text, safe=" :@").replace("..", "%2E%2E")


def _shortened(text: str) -> str:
    """A text whose characters take several each, in short if it is too long."""
    whole = _quoted(text)
    if len(whole) <= _SHORT:
        return whole
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{_quoted(text[:_SHOWN])}~{digest}"


def _place(record: Record) -> tuple[Any, ...]:
    """Where a record stands; of one that could not be read, nobody knows when it was begun."""
    begun = record.planned_at or record.started_at
    return begun is not None, begun, record.name, record.id


# ---- effect book --------------------------------------------------------------------------------


HOW = ("done", "repeat", "drop")
_running = Running()
"""Attempts that are at work in this process."""
Page = BookPage[Record]


@dataclass
class Attempt:
    """One attempt at an effect: begun, or not needed because it is done."""

    asked: Asked
    record: Record
    before: Record | None = None
    """What was known before it was begun."""

    @property
    def due(self) -> bool:
        """Whether it is to be done."""
        return self.record.phase != FINISHED


class EffectBook:
    """The effects of one state, of either face."""

    def __init__(self, handle: LineHandle, keep: Any = None) -> None:
        self._handle = handle
        self._records = Book(State(handle), OWN_EFFECTS, Record)
        self._keep = keep
        if keep is not None:
            check_ttl(keep)

    # what is known

    def effects(self, *, done: bool, plain: bool = False) -> list[Effect]:
        """All effects, or those that are not done; those begun or planned first in front."""
        found = self._records.all("" if done else "open/", plain=plain).values()
        return [self._shown(one) for one in sorted(found, key=_place)]

    def effect(self, asked: Asked) -> Effect | None:
        """One effect."""
        begun = self._records.get(asked.open)  # first: it may become done meanwhile
        found = self._records.get(asked.done) or begun
        return self._shown(found) if found is not None else None

    def _shown(self, record: Record) -> Effect:
        return record.shown(record.token in _running)

    def _now(self) -> Any:
        return moment(self._handle.core.clock.claimed())

    def _check(self, asked: Asked, found: Record) -> None:
        asked.check(found, self._encoded)

    def named(self, arguments: Mapping[str, Any]) -> str | None:
        """The id of a call by its arguments; None if it has none."""
        return hashlib.sha256(self._encoded(arguments)).hexdigest()[:32] if arguments else None

    def _encoded(self, value: Any) -> bytes:
        """A value as it is stored: what is compared so is the same, whatever `==` says of it."""
        codec = self._handle.core.codec
        return codec.encode(codec.plain(value))

    # what is written

    def plan(self, asked: Asked, into: ScopedChange | None = None) -> Effect:
        """Note that an effect is meant to happen, in a change of the caller's or one of its own."""

        def note(page: Page) -> Effect:
            found = page.get(asked.done) or page.get(asked.open)
            if found is not None:
                self._check(asked, found)
                return self._shown(found)
            record = asked.record(planned_at=self._now())
            self._put(page, record, asked)
            return self._shown(record)

        return self._records.step(note) if into is None else note(self._records.page(into))

    def begin(self, asked: Asked) -> Attempt:
        """Commit that an attempt is started, unless it is done, or nobody knows whether it is."""
        token = os.urandom(8).hex()

        def note(page: Page) -> Attempt:
            done = page.get(asked.done)
            if done is not None:
                self._check(asked, done)
                return Attempt(asked, done)
            found = page.get(asked.open)
            if found is not None:
                self._check(asked, found)
                if found.unread:  # a tool that takes a key is safe to ask again
                    found = structs.replace(found, key=asked.key, about=asked.about)
                self._refuse_unknown(found)
            base = found or asked.record()
            record = structs.replace(
                base,
                phase=STARTED,
                about=base.about if base.about is not None else asked.about,
                attempts=base.attempts + 1,
                token=token,
                started_at=self._now(),
                error="",
            )
            self._put(page, record, asked)
            return Attempt(asked, record, found)

        _running.add(token)
        begun = False
        try:
            attempt = self._records.step(note)
            begun = attempt.due
        finally:
            if not begun:
                _running.discard(token)
        return attempt

    def _refuse_unknown(self, found: Record) -> None:
        effect = self._shown(found)
        if effect.status == "running":
            raise EffectUnknownError(
                f"{self._handle.scope}: the effect {effect} is being done in this process just "
                "now; wait for it",
                effect,
            )
        if effect.status == "unknown" and not effect.repeatable:
            raise EffectUnknownError(
                f"{self._handle.scope}: the effect {effect} was begun before and did not say how "
                "it ended; find out whether it happened, then settle it as done, or to be repeated",
                effect,
            )

    def finish(self, attempt: Attempt, result: Any, writes: list[Operation]) -> Any:
        """Commit that it is done, with what the caller writes; the result that counts.

        It happened: so it is recorded even where its result, or what is to be written with it,
        cannot be, and that is an error besides.
        """
        try:
            return self._finish(attempt, result, writes)
        except Conflict:
            raise  # it says what became of it
        except HoldfastError as error:
            told = self._finish_without(attempt, result, writes, error)
            error.add_note(
                f"{self._handle.scope}: the effect {attempt.asked.name} happened, {told}"
            )
            raise
        finally:
            _running.discard(attempt.record.token)

    def _finish_without(
        self, attempt: Attempt, result: Any, writes: list[Operation], error: HoldfastError
    ) -> str:
        """Record as much of an effect as can be; what that is."""
        with suppress(HoldfastError):
            if not isinstance(error, RefusedError):  # storage failed, which it may do but once
                self._finish(attempt, result, writes)
                return "and is recorded as done"
        with suppress(HoldfastError):
            if writes:
                self._finish(attempt, result, [])
                return "and is recorded as done; what was to be written with it is not"
        with suppress(HoldfastError):
            self._finish(attempt, None, [], lost=True)
            return "and is recorded as done, without its result"
        return "which could not be recorded: its end is unknown now"

    def _finish(
        self, attempt: Attempt, result: Any, writes: list[Operation], *, lost: bool = False
    ) -> Any:
        asked = attempt.asked
        ended = structs.replace(
            attempt.record,
            phase=FINISHED,
            ended_at=self._now(),
            result=result,
            result_lost=lost,
        )
        stray = dropped = False

        def note(page: Page) -> Any:
            nonlocal stray, dropped
            dropped = False
            done, found = page.get(asked.done), page.get(asked.open)
            if done is not None and done.token == ended.token and not done.settled:
                return done.result  # it is recorded, and only that was not known
            if done is not None and asked.key is not None:
                # Another attempt with the same key was faster: one effect, written with it. But
                # who said that it is done has written nothing.
                dropped = done.settled and bool(writes)
                return done.result
            other = done or (found if found and found.token != ended.token else None)
            stray = other is not None and asked.key is None
            if stray:
                assert other is not None
                self._put(page, structs.replace(other, strays=other.strays + 1), asked)
                return None
            page.delete(asked.open)
            self._put(page, ended, asked)
            page.change.operations += writes
            return result

        given = self._records.step(note)
        if dropped:
            raise Conflict(
                f"{self._handle.scope}: the effect {asked.name} {asked.id} happened, after "
                "somebody had said that it is done: what was to be written with it is not; write "
                "it now if that is still meant",
                [DONE + asked.place],
            )
        if stray:
            raise Conflict(
                f"{self._handle.scope}: the effect {asked.name} {asked.id} happened, after "
                "somebody had said that it had not and would not: it is counted in `strays`",
                [DONE + asked.place],
            )
        return given

    def give_up(self, attempt: Attempt, error: BaseException, harmless: Any) -> None:
        """An attempt ended with an error: what that says of the effect is kept, if it can be.

        A harmless one says it of this attempt alone: what an earlier one did stays unknown.
        """
        phase = attempt.record.phase
        if isinstance(error, harmless):
            phase = attempt.before.phase if attempt.before is not None else PLANNED
        self._end(attempt, structs.replace(attempt.record, error=type(error).__name__, phase=phase))

    def withdraw(self, attempt: Attempt) -> None:
        """An attempt whose caller went away before it could do anything."""
        self._end(attempt, attempt.before)

    def _end(self, attempt: Attempt, record: Record | None) -> None:
        """Let a record stand for an attempt that is over, if it was one; what cannot be written
        stays as it is: begun, with an unknown end, which is true."""
        try:
            with suppress(HoldfastError):
                if attempt.due:
                    self._records.step(lambda page: self._replace(page, attempt, record))
        finally:
            _running.discard(attempt.record.token)

    def _replace(self, page: Page, attempt: Attempt, record: Record | None) -> None:
        found = page.get(attempt.asked.open)
        if found is None or found.token != attempt.record.token:
            return  # somebody has settled it meanwhile
        if record is None:
            page.delete(attempt.asked.open)
        else:
            self._put(page, record, attempt.asked)

    def settle(
        self, asked: Asked, how: str, result: Any = None, into: ScopedChange | None = None
    ) -> Effect:
        """Somebody says how an unfinished effect ended, in a change of theirs or one of its own."""
        if how not in HOW:
            raise InvalidInputError(f"an effect is settled as {', '.join(HOW)}")
        if result is not None and how != "done":
            raise InvalidInputError("only what is done has a result")

        def note(page: Page) -> Effect:
            found = page.get(asked.open)
            if found is None and how == "done":  # what came of it may still be said
                done = page.get(asked.done)
                found = done if done is not None and done.result_lost else None
            if found is None:
                raise EffectNotFoundError(
                    f"{self._handle.scope}: no unfinished effect {asked.name} {asked.id} is known; "
                    "unfinished() lists them"
                )
            if found.token in _running:
                raise InvalidInputError(
                    f"{self._handle.scope}: the effect {asked.name} {asked.id} is being done just "
                    "now; wait for it"
                )
            if found.phase != FINISHED:
                page.delete(asked.open)
            if how == "drop":
                return self._shown(found)
            if how == "repeat":
                record = structs.replace(found, phase=PLANNED, token="", settled=True)
            else:
                record = structs.replace(
                    found,
                    phase=FINISHED,
                    result=result,
                    result_lost=False,
                    settled=True,
                    ended_at=self._now(),
                )
            self._put(page, record, asked)
            return self._shown(record)

        return self._records.step(note) if into is None else note(self._records.page(into))

    def _put(self, page: Page, record: Record, asked: Asked) -> None:
        if record.phase == FINISHED:
            page.put(asked.done, record, ttl=self._keep)
        else:
            page.put(asked.open, record)


# ---- effect stand ins ---------------------------------------------------------------------------
# Records of effects that cannot be read any more.
#
# A recovery gives a damaged key what it held at an older point, where an effect that was begun
# since has no record. That would make it one that never happened, and it would be done again. So it
# is known from then on as one that was begun and whose end is unknown.


def unknown(handle: LineHandle, source: Timeline, key: str) -> Operation | None:
    """The record that stands for one that cannot be read; None if the one of then says enough."""
    if key.startswith(DONE) and source.slot(key) is not None:
        return None
    place = key.removeprefix(DONE).removeprefix(OPEN)
    record = _before(handle, key, OPEN + place)
    if record is None:
        name, _, id = place.partition("/")
        record = Record(name=unquote(name), id=unquote(id), phase=STARTED, error=UNREAD)
    else:
        token = record.token or os.urandom(8).hex()
        record = structs.replace(record, phase=STARTED, token=token)
    return Operation("set", OPEN + place, stored(record))


def _before(handle: LineHandle, key: str, place: str) -> Record | None:
    """The record before the entry that wrote a damaged one, if it can be read."""
    try:
        slot = handle.history.points.line().slot(key)
        if slot is None:
            return None
        data = handle.view(slot.sequence - 1).reader.get(place, None, None, False)
    except (MissingError, StateIntegrityError):  # what is known is then that there was a record
        return None
    return loaded(Record, data, "an effect") if data is not None else None
