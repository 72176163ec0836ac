"""Effects as data: what is known of something that must not happen twice.

An effect has a name (mostly the tool's) and an id (mostly the call's). While it is not done, its
record lies under `$effects/open/`, then under `$effects/done/`: what is unfinished is found
without reading what is done. A record goes through these phases:

    planned   it is meant to happen, and has not been begun
    started   it was begun; if nobody is at work on it, whether it happened is unknown
    done      it happened, and this is its result
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct, structs

from holdfast.agents.agent_keys import DONE, OPEN, OWN_EFFECTS
from holdfast.errors import (
    DamagedRecordError,
    MissingError,
    StateIntegrityError,
)
from holdfast.store.inner import (
    Book,
    LineHandle,
    Operation,
    Running,
    Timeline,
    loaded,
    stored,
)
from holdfast.store.names.arguments import check_text
from holdfast.store.state import State

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


class _Known(Struct, kw_only=True, frozen=True):
    """What is told of an effect, and stored of it."""

    name: str
    id: str
    key: str | None = None
    """The idempotency key that its tool takes; None if it takes none."""
    attempts: int = 0
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


class Effect(_Known, kw_only=True, frozen=True):
    """What is known of an effect."""

    status: str
    """planned (never started), running (in this process), unknown or done"""

    @property
    def repeatable(self) -> bool:
        """Whether it may be begun, perhaps again, without asking anybody."""
        return self.status == PLANNED or (self.status == "unknown" and self.key is not None)

    def __str__(self) -> str:
        return f"{self.name} {self.id}" if self.id else self.name


class Record(_Known, kw_only=True, frozen=True):
    """An effect as it is stored."""

    phase: str
    token: str = ""
    """Of the newest attempt: what tells it from others."""

    @property
    def unread(self) -> bool:
        """Whether all that is known of it is that there was a record."""
        return self.error == UNREAD and not self.token

    def shown(self) -> Effect:
        """What a caller sees of it."""
        status = self.phase
        if self.phase == STARTED:
            status = "running" if self.token in running else "unknown"
        return Effect(status=status, **{n: getattr(self, n) for n in _Known.__struct_fields__})


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


def _quoted(text: str) -> str:
    return quote(text, safe=" :@").replace("..", "%2E%2E")


def _shortened(text: str) -> str:
    """A text whose characters take several each, in short if it is too long."""
    whole = _quoted(text)
    if len(whole) <= _SHORT:
        return whole
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{_quoted(text[:_SHOWN])}~{digest}"


running = Running()
"""Attempts that are at work in this process."""


class EffectBook(Book[Record]):
    """The records of the effects of one state."""

    def __init__(self, handle: LineHandle) -> None:
        super().__init__(State(handle), OWN_EFFECTS, Record)

    def effects(self, *, done: bool, plain: bool = False) -> list[Effect]:
        """All effects, or those that are not done; those begun or planned first in front."""

        def place(record: Record) -> tuple[Any, ...]:
            begun = record.planned_at or record.started_at
            return begun is not None, begun, record.name, record.id  # one that is unread has none

        found = self.all("" if done else "open/", plain=plain).values()
        return [one.shown() for one in sorted(found, key=place)]

    def effect(self, asked: Asked) -> Effect | None:
        """One effect."""
        begun = self.get(asked.open)  # first: it may become done meanwhile
        found = self.get(asked.done) or begun
        return found.shown() if found is not None else None


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
    data = None
    try:  # what stood there before the entry that wrote the damaged one
        if (slot := handle.history.points.line().slot(key)) is not None:
            data = handle.view(slot.sequence - 1).reader.get(OPEN + place, None, None, False)
    except (MissingError, StateIntegrityError):
        pass  # what is known is then that there was a record
    if data is None:
        name, _, id = place.partition("/")
        record = Record(name=unquote(name), id=unquote(id), phase=STARTED, error=UNREAD)
    else:
        record = loaded(Record, data, "an effect")
        record = structs.replace(record, phase=STARTED, token=record.token or os.urandom(8).hex())
    return Operation("set", OPEN + place, stored(record))
