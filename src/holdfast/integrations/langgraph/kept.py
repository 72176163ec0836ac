"""Lists of messages as they were last put or read, to tell what is new in the next one.

`put` is given whole channels. What a channel held is kept as bytes; encoding the messages again
and comparing bytes finds every change, also one made in place, in a fraction of the time that
taking them apart would need. Objects are never compared by identity. A field that was set to what
it was already is no change: the message is equal, to pydantic too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec
from langchain_core.messages import BaseMessage

_encode = msgspec.msgpack.Encoder().encode
_encode_into = msgspec.msgpack.Encoder().encode_into
_decode = msgspec.msgpack.Decoder().decode
_HEADER = b"\xdd\0\0\0\0"
"""Of a list of any length, in msgpack; the last four bytes are the length."""
_NO_EXTRAS = b"\x80"
_local = threading.local()
_comparables: dict[type, bool] = {}
MOST_BUFFER = 16 << 20


class Kept:
    """A list of messages as it was last put or read, in a form that nobody else can change."""

    __slots__ = ("_classes", "_data", "_extras", "_lock", "_sets", "places", "simple")

    def __init__(self) -> None:
        self._classes: list[type] = []
        self._data = bytearray(_HEADER)
        self._extras: list[Any] = []
        """Extra fields of each, encoded; empty while no message has any."""
        self._sets: list[frozenset[str]] = []
        self._lock = threading.Lock()
        self.places: list[Any] | None = None
        """Of the messages, while the list is short."""
        self.simple = True
        """Whether the bytes hold all: only data that msgpack gives back as it was."""

    @classmethod
    def of(cls, messages: list[BaseMessage], simple: bool) -> Kept | None:
        """Messages to compare with later; None if they hold what cannot be compared this way."""
        growth = cls().grown(messages)
        if growth is None:
            return None
        growth.simple = simple
        return growth.kept()

    @property
    def size(self) -> int:
        """Bytes held, roughly."""
        return len(self._data) + 100 * len(self._classes)

    def grown(self, value: list[Any]) -> Growth | None:
        """What is new, if a list is this one or this one with more at its end, else None."""
        count = len(self._classes)
        classes = list(map(type, value))
        if classes[:count] != self._classes or not all(map(_comparable, set(classes[count:]))):
            return None
        buffer = _buffer()
        try:
            _encode_into(list(map(_fields, value)), buffer)
            encoded = list(map(_encode, map(_extra, value))) if any(map(_extra, value)) else []
        except (TypeError, ValueError, OverflowError, RecursionError):
            return None
        start = _header(len(value))
        if not buffer.startswith(memoryview(self._data)[len(_HEADER) :], start):
            return None
        known = self._extras or ([_NO_EXTRAS] * count if encoded else [])
        if encoded[:count] != known:
            return None
        tail = bytes(buffer[start + len(self._data) - len(_HEADER) :])
        more = list(map(frozenset, map(_fields_set, value[count:])))
        return Growth(self, count, classes[count:], tail, encoded, more)

    def grow(self, growth: Growth) -> None:
        """Take over what is new, once it is stored."""
        with self._lock:
            self._classes += growth.classes
            self._data += growth.tail
            self._data[1 : len(_HEADER)] = len(self._classes).to_bytes(4, "big")
            self._extras = growth.extras
            self._sets += growth.sets
            self.places, self.simple = growth.places, growth.simple

    def build(self) -> list[BaseMessage]:
        """The messages again, as new objects."""
        with self._lock:
            made: list[Any] = list(map(object.__new__, self._classes))
            _each(map(_set_fields, made, _decode(self._data)))
            extras = map(_decode, self._extras or [_NO_EXTRAS] * len(made))
            _each(map(_set_extra, made, extras))
            _each(map(_set_set, made, map(set, self._sets)))
        _each(map(_set_private, made, [None] * len(made)))
        return made


class Growth:
    """What a list of messages has more than one that is kept."""

    __slots__ = ("_base", "classes", "extras", "places", "sets", "simple", "start", "tail")

    def __init__(
        self,
        base: Kept,
        start: int,
        classes: list[type],
        tail: bytes,
        extras: list[Any],
        sets: list[frozenset[str]],
    ) -> None:
        self._base = base
        self.start = start
        self.classes = classes
        self.tail = tail
        self.extras = extras
        self.sets = sets
        self.places = base.places
        self.simple = base.simple

    def kept(self) -> Kept:
        """The list with what is new; to be called once that is stored."""
        self._base.grow(self)
        return self._base


def _comparable(kind: type) -> bool:
    """Whether all of an object of this class lies in its fields, extra fields and set of names."""
    found = _comparables.get(kind)
    if found is None:
        message = issubclass(kind, BaseMessage)
        found = _comparables[kind] = message and not getattr(kind, "__private_attributes__", None)
    return found


def _buffer() -> bytearray:
    """Room to encode into; kept, because fresh memory costs more than encoding."""
    found: bytearray | None = getattr(_local, "buffer", None)
    if found is None or len(found) > MOST_BUFFER:
        found = _local.buffer = bytearray()
    return found


def simple(plain: Any) -> bool:
    """Whether a value in plain form holds nothing but what msgpack gives back as it was."""
    kind = type(plain)
    if kind is dict:
        return all(type(key) is str and simple(item) for key, item in plain.items())
    if kind is list:
        return all(map(simple, plain))
    return kind in _SIMPLE


_SIMPLE = frozenset((str, int, float, bool, type(None)))
_fields = attrgetter("__dict__")
_extra = attrgetter("__pydantic_extra__")
_fields_set = attrgetter("__pydantic_fields_set__")
_base = next(kind for kind in BaseMessage.__mro__ if "__dict__" in vars(kind))
_set_fields = vars(_base)["__dict__"].__set__
_set_extra = BaseMessage.__pydantic_extra__.__set__  # type: ignore[union-attr]
_set_set = BaseMessage.__pydantic_fields_set__.__set__  # type: ignore[attr-defined]
_set_private = BaseMessage.__pydantic_private__.__set__  # type: ignore[union-attr]


def _each(work: Iterable[Any]) -> None:
    for _ in work:
        pass


def _header(count: int) -> int:
    """Bytes before the items of an encoded list."""
    return 1 if count < 16 else 3 if count < 65536 else 5
