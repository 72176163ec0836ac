"""Messages: stored once, and recognised when a channel is put again.

`put` is given whole channels. What a channel held when it was last put or read is kept as bytes;
encoding the messages again and comparing bytes finds every change, also one made in place, in a
fraction of the time that taking them apart would need. Objects are never compared by identity.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec
from langchain_core.messages import BaseMessage

from holdfast.errors import DamagedRecordError
from holdfast.integrations.langgraph.records import long_id, short_id
from holdfast.integrations.langgraph.types import MESSAGE
from holdfast.seal.codec import Codec, Typed

REF = MESSAGE
"""Name of the plain form that stands for a message in `parts`: [number, id] or [number]."""
SHORT = "ms"
"""Name of the plain form of a short list of messages: their numbers and ids, flat."""
MOST_KNOWN = 50_000

_encode = msgspec.msgpack.Encoder().encode
_encode_into = msgspec.msgpack.Encoder().encode_into
_decode = msgspec.msgpack.Decoder().decode
_HEADER = b"\xdd\0\0\0\0"
"""Of a list of any length, in msgpack; the last four bytes are the length."""
_NO_EXTRAS = b"\x80"
_local = threading.local()
_comparables: dict[type, bool] = {}
MOST_BUFFER = 16 << 20


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


def short_list(refs: list[Typed]) -> Typed:
    """A list of refs as one plain form, which takes less room and time than one for each."""
    flat: list[Any] = []
    for ref in refs:
        flat += ref.value if len(ref.value) == 2 else (ref.value[0], False)
    return Typed(SHORT, 1, flat)


def long_list(plain: Any) -> Any:
    """The opposite of `short_list`; anything else as it is."""
    if type(plain) is not Typed or plain.name != SHORT:
        return plain
    flat = plain.value
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return [Typed(REF, 1, [number] if id is False else [number, id]) for number, id in pairs]


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

    __slots__ = ("_classes", "_data", "_extras", "_lengths", "_lock", "_sets", "refs", "simple")

    def __init__(self) -> None:
        self._classes: list[type] = []
        self._data = bytearray(_HEADER)
        self._extras: list[Any] = []
        """Extra fields of each, encoded; empty while no message has any."""
        self._sets: list[frozenset[str]] = []
        self._lengths: list[int] = []
        self._lock = threading.Lock()
        self.refs: list[Typed] | None = None
        """What stands for the messages, while the list is short."""
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
    def length(self) -> int:
        """How many messages there are."""
        return len(self._classes)

    @property
    def size(self) -> int:
        """Bytes held, roughly."""
        return len(self._data) + 100 * self.length

    def grown(self, value: list[Any]) -> Growth | None:
        """What is new, if a list is this one or this one with more at its end, else None."""
        count = len(self._classes)
        classes = list(map(type, value))
        if classes[:count] != self._classes or not all(map(_comparable, set(classes))):
            return None
        # A field that is set joins the set for good, so its length tells whether it changed.
        sets = list(map(_fields_set, value))
        if list(map(len, sets[:count])) != self._lengths:
            return None
        extras = list(map(_extra, value))
        buffer = _buffer()
        try:
            _encode_into(list(map(_fields, value)), buffer)
            encoded = list(map(_encode, extras)) if any(extras) else []
        except (TypeError, ValueError, OverflowError, RecursionError):
            return None
        start = _header(len(value))
        if not buffer.startswith(memoryview(self._data)[len(_HEADER) :], start):
            return None
        known = self._extras or ([_NO_EXTRAS] * count if encoded else [])
        if encoded[:count] != known:
            return None
        tail = bytes(buffer[start + len(self._data) - len(_HEADER) :])
        more = list(map(frozenset, sets[count:]))
        return Growth(self, classes[count:], tail, encoded, more)

    def grow(self, growth: Growth) -> None:
        """Take over what is new, once it is stored."""
        with self._lock:
            self._classes += growth.classes
            self._data += growth.tail
            self._data[1 : len(_HEADER)] = len(self._classes).to_bytes(4, "big")
            self._extras = growth.extras
            self._sets += growth.sets
            self._lengths += map(len, growth.sets)
            self.refs, self.simple = growth.refs, growth.simple

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

    __slots__ = ("_base", "classes", "extras", "refs", "sets", "simple", "tail")

    def __init__(
        self,
        base: Kept,
        classes: list[type],
        tail: bytes,
        extras: list[Any],
        sets: list[frozenset[str]],
    ) -> None:
        self._base = base
        self.classes = classes
        self.tail = tail
        self.extras = extras
        self.sets = sets
        self.refs = base.refs
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


def only_messages(value: Any) -> bool:
    """Whether a value is a list of messages and nothing else."""
    return type(value) is list and bool(value) and all(isinstance(v, BaseMessage) for v in value)


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
