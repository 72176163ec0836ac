"""What is known of a key besides its value: when it expires, its class, its schema's version.

Stored as *meta* in front of the key's ref in the index, so that the root covers it: a msgpack
array, trimmed, of

| field | what |
| --- | --- |
| 0 | when the key expires, 0 if never |
| 1 | the term by which each read puts that off, 0 if none does |
| 2 | the class that the write named, empty if it named none |
| 3 | the version of the schema that the value was checked by, 0 if by none |

Times are microseconds. A key without any of it has no meta, and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import DamagedIndexError, InvalidInputError
from holdfast.store.names.arguments import check_flag, check_moment
from holdfast.store.names.cause import Cause

CLASSES = ("ephemeral", "trusted", "standard", "sensitive", "external")
"""The state classes; see `classes`."""
LATEST = 253_402_300_799_000_000
"""The last second of the year 9999: what a datetime can say."""
READ = Cause("system", "read")
"""Why the expiry of a key was put off that was read."""
_START = datetime.fromtimestamp(0, UTC)
_MICROSECOND = timedelta(microseconds=1)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class Meta(NamedTuple):
    """What is known of a key besides its value."""

    expires: int = 0
    term: int = 0
    class_: str = ""
    schema: int = 0
    """The version of the schema that the value was checked by; 0 if by none."""

    def pack(self) -> bytes:
        """The bytes that stand in the index; none if there is nothing to say."""
        if self is NONE:
            return b""
        fields: list[Any] = list(self)
        while fields and not fields[-1]:
            fields.pop()
        return _encode(fields) if fields else b""

    def over(self, now: int) -> bool:
        """Whether the key has expired."""
        return 0 < self.expires <= now

    def due(self, now: int) -> bool:
        """Whether a read puts the expiry off: not before a tenth of the term has passed."""
        return bool(self.term) and now > self.expires - self.term + self.term // 10


NONE = Meta()


@lru_cache(1024)  # keys of one schema, or of one class, all have the same
def read_meta(meta: bytes) -> Meta:
    """The opposite of `Meta.pack`."""
    if not meta:
        return NONE
    try:
        return Meta(*_decode(meta))
    except (msgspec.MsgspecError, TypeError):
        raise DamagedIndexError("what an index says of a key cannot be read") from None


@dataclass(frozen=True, slots=True)
class Terms:
    """What a caller asks for besides the value. Counted from the moment of the commit."""

    ttl: int = 0
    """Microseconds until it expires."""
    expires: int = 0
    """When it expires, if that was given as a time."""
    term: int = 0
    """By how much a read puts it off; 0 if it does not."""
    class_: str = ""
    keep: bool = False
    """Whether the key keeps what it has."""
    schema: int = 0
    """Of what is stored as it was, and not checked again: the version that it was checked by; -1
    for none."""

    def meta(self, now: int, old: Meta) -> Meta:
        """What becomes known of a key that had `old`."""
        if self.keep:
            return old
        expires = self.expires
        if self.ttl:
            expires = min(now + self.ttl, LATEST)
        return Meta(expires, self.term, self.class_, max(self.schema, 0))


KEEP = Terms(keep=True)
NEVER = Terms()


def terms_of(meta: Meta) -> Terms | None:
    """What to ask for so that just this is known of a key, with the time at which it expires."""
    if not any(meta):
        return None
    return Terms(0, meta.expires, meta.term, meta.class_, schema=meta.schema)


def asked_terms(
    ttl: object = None, expires: object = None, sliding: object = False, class_: object = None
) -> Terms | None:
    """Terms as a caller gives them; None if it gives none."""
    if ttl is None and expires is None and sliding is False:
        return Terms(class_=check_class(class_)) if class_ is not None else None
    class_ = check_class(class_) if class_ is not None else ""
    if ttl is not None and expires is not None:
        raise InvalidInputError("give ttl= (how long) or expires= (until when), not both")
    check_flag(sliding, "sliding")
    if expires is None:
        if ttl is None:
            raise InvalidInputError("sliding=True needs ttl=, the term that a read begins anew")
        microseconds = check_ttl(ttl)
        return Terms(microseconds, 0, microseconds if sliding else 0, class_)
    if sliding:
        raise InvalidInputError("sliding=True needs ttl=; a time that is fixed cannot slide")
    check_moment(expires, "expires")
    assert isinstance(expires, datetime)
    moment = (expires - _START) // _MICROSECOND
    if moment <= 0:
        raise InvalidInputError("expires is a time after 1970")
    return Terms(0, moment, 0, class_)


def asked_expiry(ttl: object, expires: object, sliding: object) -> Terms:
    """Terms of a key whose value stays."""
    if ttl is None and expires is None:
        raise InvalidInputError("expire takes ttl= or expires=; `persist` lets a key never expire")
    return asked_terms(ttl, expires, sliding) or NEVER


def check_class(class_: object) -> str:
    """A class that keys can be given."""
    if not isinstance(class_, str) or class_ not in CLASSES:
        raise InvalidInputError(f"a state class is {', '.join(CLASSES)}")
    if class_ == "ephemeral":
        raise InvalidInputError(
            "ephemeral is no class of stored keys; declare the prefix holdfast.Ephemeral(...)"
        )
    return class_


def check_ttl(ttl: object, what: str = "ttl") -> int:
    """Microseconds of a time to live."""
    if isinstance(ttl, timedelta):
        found = ttl // _MICROSECOND
    elif isinstance(ttl, int | float) and type(ttl) is not bool and 0 < ttl <= LATEST / 1e6:
        found = int(ttl * 1_000_000)
    else:
        found = 0
    if not 0 < found <= LATEST:
        raise InvalidInputError(f"{what} is a number of seconds above 0, or a timedelta")
    return found
