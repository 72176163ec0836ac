"""Messages: stored once, and recognised when a channel is put again.

`put` is given whole channels. What a channel held when it was last put or read is kept as bytes;
encoding the messages again and comparing bytes finds every change, also one made in place, in a
fraction of the time that taking them apart would need. Objects are never compared by identity.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from langchain_core.messages import BaseMessage

from holdfast.errors import DamagedRecordError
from holdfast.integrations.langgraph.records import long_id, short_id
from holdfast.integrations.langgraph.types import MESSAGE
from holdfast.seal.codec import Codec, Typed

REF = MESSAGE
"""Name of the plain form that stands for a message in `parts`: [number, id] or [number]."""
MOST_KNOWN = 50_000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Parts:
    """The numbers of messages that are stored already, and those about to be."""

    def __init__(self, codec: Codec, take_apart: Callable[[Any], Any]) -> None:
        self._codec = codec
        self._take_apart = take_apart
        self._known: dict[bytes, int] = {}
        self.numbers: set[int] = set()
        """Of the messages that would be recognised."""
        self.length = 0
        self.new: list[Typed] = []
        self._new: dict[bytes, int] = {}

    def begin(self, length: int) -> None:
        """Start from a list of that length; what was to be stored before is not."""
        if length < self.length:
            self._known.clear()  # a thread deleted and made again, or put back
            self.numbers.clear()
        self.length = length
        self.new = []
        self._new = {}

    def ref(self, message: BaseMessage) -> Typed:
        """The plain form that stands for a message; it is stored with the change if it is new."""
        whole: Typed = self._take_apart(message)
        fields = whole.value
        if type(fields) is not dict or "id" not in fields:
            return self._ref(whole, [])
        rest = {name: value for name, value in fields.items() if name != "id"}
        return self._ref(Typed(whole.name, whole.version, rest), [short_id(fields["id"])])

    def _ref(self, part: Typed, id: list[Any]) -> Typed:
        digest = _digest(self._codec.encode(self._codec.plain(part)))
        number = self._known.get(digest)
        if number is None:
            number = self._new.get(digest)
        if number is None:
            number = self.length + len(self.new)
            self._new[digest] = number
            self.new.append(part)
        return Typed(REF, 1, [number, *id])

    def stored(self) -> None:
        """What was new is durable now."""
        self._known |= self._new
        self.numbers.update(self._new.values())
        while len(self._known) > MOST_KNOWN:
            self.numbers.discard(self._known.pop(next(iter(self._known))))
        self.begin(self.length + len(self.new))

    def learn(self, number: int, part: Typed) -> None:
        """A message that was read: it need not be stored again."""
        self._known[_digest(self._codec.encode(self._codec.plain(part)))] = number
        self.numbers.add(number)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


def whole(ref: Typed, part: Typed) -> Typed:
    """The plain form of a message, put together of its part and its id."""
    if len(ref.value) == 1:
        return part
    return Typed(part.name, part.version, {**part.value, "id": long_id(ref.value[1])})


def numbers(plain: Any, found: set[int]) -> None:
    """Gather the numbers of all parts that a value in plain form refers to."""
    if type(plain) is Typed:
        if plain.name == REF:
            if type(plain.value) is not list or type(plain.value[0]) is not int:
                raise DamagedRecordError("a thread refers to a message in an unknown way")
            found.add(plain.value[0])
        else:
            numbers(plain.value, found)
    elif type(plain) is list:
        for item in plain:
            numbers(item, found)
    elif type(plain) is dict:
        for item in plain.values():
            numbers(item, found)


def runs(found: Iterable[int], gap: int = 16) -> list[tuple[int, int]]:
    """Ranges low..high that cover all numbers; those near each other are read together."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(found):
        if ranges and number - ranges[-1][1] <= gap:
            ranges[-1] = (ranges[-1][0], number + 1)
        else:
            ranges.append((number, number + 1))
    return ranges


class Kept:
    """A list of messages as it was last put or read, in a form that nobody else can change."""

    __slots__ = ("classes", "data", "extras", "refs", "sets", "simple")

    def __init__(self) -> None:
        self.classes: list[type] = []
        self.data = b""
        self.extras = b""
        self.sets: list[frozenset[str]] = []
        self.refs = 0
        """How many messages there are."""
        self.simple = True
        """Whether the bytes hold all: only data that msgpack gives back as it was."""

    @classmethod
    def of(cls, messages: list[BaseMessage], simple: bool) -> Kept | None:
        """Messages to compare with later; None if they hold what cannot be compared this way."""
        made = cls()
        state = _state(messages)
        if state is None:
            return None
        made.classes, made.data, made.extras, made.sets = state
        made.refs = len(messages)
        made.simple = simple
        return made

    @property
    def size(self) -> int:
        """Bytes held, roughly."""
        return len(self.data) + 100 * self.refs

    def grown(self, value: list[Any]) -> tuple[Kept, int] | None:
        """(what the list is now, how many are as before) if it only grew, else None."""
        count = self.refs
        if len(value) < count or list(map(type, value[:count])) != self.classes:
            return None
        state = _state(value)
        if state is None:
            return None
        now = Kept()
        now.classes, now.data, now.extras, now.sets = state
        now.refs, now.simple = len(value), self.simple
        if not now.data.startswith(self.data) or not now.extras.startswith(self.extras):
            return None
        return (now, count) if now.sets[:count] == self.sets else None

    def build(self) -> list[BaseMessage]:
        """The messages again, as new objects."""
        fields = _decode(_array(self.refs) + self.data)
        extras = _decode(_array(self.refs) + self.extras)
        made: list[Any] = list(map(object.__new__, self.classes))
        _each(map(_set_fields, made, fields))
        _each(map(_set_extra, made, extras))
        _each(map(_set_set, made, map(set, self.sets)))
        _each(map(_set_private, made, [None] * len(made)))
        return made


def _state(messages: list[Any]) -> tuple[list[type], bytes, bytes, list[frozenset[str]]] | None:
    """Classes, fields, extra fields and names of set fields; None if they cannot be told."""
    classes = list(map(type, messages))
    if not all(issubclass(kind, BaseMessage) for kind in set(classes)):
        return None
    if any(message.__pydantic_private__ is not None for message in messages):
        return None
    try:
        skip = _header(len(messages))
        data = _encode([message.__dict__ for message in messages])[skip:]
        extras = _encode([message.__pydantic_extra__ for message in messages])[skip:]
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return classes, data, extras, [*map(frozenset, [m.__pydantic_fields_set__ for m in messages])]


def simple(plain: Any) -> bool:
    """Whether a value in plain form holds nothing but what msgpack gives back as it was."""
    kind = type(plain)
    if kind is dict:
        return all(type(key) is str and simple(item) for key, item in plain.items())
    if kind is list:
        return all(map(simple, plain))
    return kind in _SIMPLE


_SIMPLE = frozenset((str, int, float, bool, type(None)))
_fields = next(kind for kind in BaseMessage.__mro__ if "__dict__" in vars(kind))
_set_fields = vars(_fields)["__dict__"].__set__
_set_extra = BaseMessage.__pydantic_extra__.__set__  # type: ignore[union-attr]
_set_set = BaseMessage.__pydantic_fields_set__.__set__  # type: ignore[attr-defined]
_set_private = BaseMessage.__pydantic_private__.__set__  # type: ignore[union-attr]


def _each(work: Iterable[Any]) -> None:
    for _ in work:
        pass


def _header(count: int) -> int:
    return 1 if count < 16 else 3 if count < 65536 else 5


def _array(count: int) -> bytes:
    if count < 16:
        return bytes([0x90 | count])
    short = count < 65536
    return (b"\xdc" if short else b"\xdd") + count.to_bytes(2 if short else 4, "big")
