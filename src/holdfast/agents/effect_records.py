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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from msgspec import Struct, structs

from holdfast.agents.records import loaded
from holdfast.errors import DamagedRecordError, InvalidInputError
from holdfast.store.names.arguments import check_text
from holdfast.store.rules.owned_keys import DONE, OPEN

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


def record_of(data: Any) -> Record:
    """A record from what is stored."""
    return loaded(Record, data, "an effect")


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

    @property
    def place(self) -> str:
        """The end of its key: any text, in characters that may stand there."""
        texts = [self.name, self.id] if self.id else [self.name]
        whole = "/".join(map(_quoted, texts))
        return whole if len(whole) <= _MOST_KEY else "/".join(map(_shortened, texts))

    @property
    def open(self) -> str:
        """Where it is kept while it is not done."""
        return OPEN + self.place

    @property
    def done(self) -> str:
        """Where it is kept once it is done."""
        return DONE + self.place

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


def found_records(items: Mapping[str, Any]) -> list[Record]:
    """The records of some keys, those begun or planned first in front."""
    return sorted((record_of(data) for data in items.values()), key=_place)


def _place(record: Record) -> tuple[Any, ...]:
    """Where a record stands; of one that could not be read, nobody knows when it was begun."""
    begun = record.planned_at or record.started_at
    return begun is not None, begun, record.name, record.id
