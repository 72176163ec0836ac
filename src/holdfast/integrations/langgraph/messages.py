"""Messages: each is stored once, in `parts`; what holds it refers to it by its number.

| form | where |
| --- | --- |
| message, or [message without its id, id] | an item of `parts` |
| number, [number, id] or [number] | a *place*: the message as it is stored, with another id, or
|   | without one (LangGraph gives an id to a message that has none after a task wrote it) |
| `m` of a place | a message anywhere in a value |
| `ms` of places | a short list of messages |
| `ms` of zeros, then places | a list of messages that has a key of its own, and grows |

UUIDs take 16 bytes.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import ormsgpack
from langchain_core.messages import BaseMessage

from holdfast.integrations.langgraph.objects import (
    MessageEntry,
    set_extra,
    set_fields,
    set_named,
    set_private,
)
from holdfast.integrations.langgraph.thread_records import long_id, short_id
from holdfast.integrations.langgraph.types import LISTED, MESSAGE, Types
from holdfast.seal.codec import Codec, Refusal, Typed
from holdfast.store.inner import WHOLE, Atom

MOST_KNOWN = 50_000

_Id = list[Any]
"""The id of a message, in a list of one; an empty list if it has none."""


class Parts:
    """The numbers of messages that are stored already, and those about to be."""

    def __init__(self, codec: Codec, types: Types) -> None:
        self._codec = codec
        self._types = types
        self._known: dict[bytes, int] = {}
        self.ids: dict[int, _Id] = {}
        """By the numbers of the messages that would be recognised, the ids they are stored with."""
        self.version = 0
        """Of the stored list that the numbers are of: a thread that was put back, or deleted and
        made again, has another one, in which they mean other messages."""
        self.length = 0
        self.atom: Callable[[bytes], Atom] | None = None
        """Makes of an encoded value what a change takes; None if others look at its values."""
        self.new: list[Any] = []
        self._new: dict[bytes, int] = {}
        self._new_ids: dict[int, _Id] = {}

    def begin(self, version: int, length: int) -> None:
        """Start from a list of that length; what was to be stored before is not.

        What is known of another version of the list is forgotten: it may be another list.
        """
        if version != self.version:
            self._known.clear()
            self.ids.clear()
        self.version, self.length = version, length
        self.again()

    def again(self) -> None:
        """Start from the list as it is known; what was to be stored before is not."""
        self.new = []
        self._new = {}
        self._new_ids = {}

    def ref(self, message: BaseMessage) -> Typed:
        """The plain form that stands for a message; it is stored with the change if it is new."""
        return Typed(MESSAGE, 1, self.place(message))

    def place(self, message: BaseMessage, *, plain: bool = False) -> Any:
        """The place of a message; it is stored with the change if it is new. `plain`: it is known
        to hold plain data only, and is not walked again."""
        entry, rest = self._types.known(type(message)), None
        try:
            fields = entry.to_plain(message) if entry is not None else None
            if entry is not None and (plain or simple(fields)):
                rest = Typed(entry.name, entry.version, fields)
        except (Refusal, AttributeError, KeyError, TypeError):
            rest = None  # what is wrong is told below
        plain = rest is not None  # nothing but plain data, as is known already
        rest = rest or self._types.plain(message)
        fields, id = rest.value, []
        if type(fields) is dict and type(fields.get("id", 0)) in (str, type(None)):
            id = [short_id(fields.pop("id"))]
        data = self._encoded(rest, plain=plain)
        digest = _digest(data)
        number = self._known.get(digest)
        if number is None:
            number = self._new.get(digest)
        if number is None:
            number = self.length + len(self.new)
            self._new[digest] = number
            self._new_ids[number] = id
            self.new.append(self._item(rest, id, data))
            return number
        stored = self.ids[number] if number in self.ids else self._new_ids[number]
        return number if id == stored else [number, *id]

    def _item(self, rest: Typed, id: _Id, data: bytes) -> Any:
        """What is stored of a message; mostly the bytes by which it was told from others."""
        encode, plain = self._codec.encode, self._codec.plain  # an id may have lone surrogates
        whole = _PAIR + data + encode(plain(id[0])) if id else data
        if self.atom is not None and len(whole) <= WHOLE:
            return self.atom(whole)
        return [rest, *id] if id else rest

    def stored(self, entry: int) -> None:
        """What was new is durable now, by that entry."""
        self._known |= self._new
        self.ids |= self._new_ids
        while len(self._known) > MOST_KNOWN:
            self.ids.pop(self._known.pop(next(iter(self._known))), None)
        if self.new:
            self.version, self.length = entry, self.length + len(self.new)
        self.again()

    def learn(self, number: int, part: Any) -> None:
        """A message that was read: it need not be stored again."""
        rest, self.ids[number] = _parted(part)
        self._known[_digest(self._encoded(rest))] = number

    def _encoded(self, part: Typed, *, plain: bool = False) -> bytes:
        try:
            if plain or simple(part.value):
                return self._codec.encode(part)
        except (OverflowError, UnicodeEncodeError):
            pass  # an int or a text that is stored otherwise
        return self._codec.encode(self._codec.plain(part))


_PAIR = b"\x92"
"""Begins a list of two items, in msgpack."""


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


def _parted(part: Any) -> tuple[Typed, _Id]:
    """A message as it is stored, and its id."""
    return (part[0], part[1:]) if type(part) is list else (part, [])


def whole(place: Any, part: Any) -> Typed:
    """The plain form of a message, of its place and what is stored there."""
    rest, id = _parted(part)
    if type(place) is list:
        id = place[1:]
    return Typed(rest.name, rest.version, {**rest.value, "id": long_id(id[0])}) if id else rest


def number_of(place: Any) -> int:
    """The number of a place."""
    return place if type(place) is int else place[0]


BEGIN = Typed(LISTED, 1, bytes(WHOLE))
"""The first item of a list of messages that has a key of its own. Places are so small that the
list would be a short value for a hundred turns, which is written whole whenever it grows; with this
it is long from the start, at the price of some bytes once: zeros compress well."""


def places_in(plain: Any) -> list[Any] | None:
    """The places of a stored list of messages, short or not; None if it is another value."""
    if type(plain) is list and plain and type(plain[0]) is Typed and plain[0].name == LISTED:
        return plain[1:]
    if type(plain) is Typed and plain.name == LISTED:
        return plain.value  # type: ignore[no-any-return]
    return None


def long_list(plain: Any) -> Any:
    """A stored list of messages with what stands for each; other values as they are."""
    places = places_in(plain)
    return plain if places is None else [Typed(MESSAGE, 1, place) for place in places]


def numbers(plain: Any, found: set[int]) -> None:
    """Gather the numbers of all parts that a value in plain form refers to."""
    places = places_in(plain)
    if places is not None:
        found.update(map(number_of, places))
    elif type(plain) is Typed:
        if plain.name == MESSAGE:
            found.add(number_of(plain.value))
        else:
            numbers(plain.value, found)
    elif type(plain) is list:
        for item in plain:
            numbers(item, found)
    elif type(plain) is dict:
        for item in plain.values():
            numbers(item, found)


def runs(found: set[int], gap: int = 16) -> list[tuple[int, int]]:
    """Ranges low..high that cover all numbers; those near each other are read together."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(found):
        if ranges and number - ranges[-1][1] <= gap:
            ranges[-1] = (ranges[-1][0], number + 1)
        else:
            ranges.append((number, number + 1))
    return ranges


def only_messages(value: Any) -> bool:
    """Whether a value is a list of messages and nothing else."""
    if type(value) is not list or not value:
        return False
    return all(issubclass(kind, BaseMessage) for kind in set(map(type, value)))


# ---- messages seen ------------------------------------------------------------------------------
# Lists of messages as they were last put or read, to tell what is new in the next one.
#
# `put` is given whole channels. What a channel held is kept as bytes; encoding the messages again
# and comparing bytes finds every change, also one made in place, in a fraction of the time that
# taking them apart would need. Objects are never compared by identity. A field that was set to what
# it was already is no change: the message is equal, to pydantic too.
#
# The encoder takes nothing but what msgpack gives back as it was, so that equal bytes are of equal
# types. A list with a message that holds something else, an artifact of a class perhaps, is taken
# apart each time.


_encode = partial(
    ormsgpack.packb,
    option=ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID,
)
"""Refuses all types but those of `_SIMPLE`, lists, dicts with texts for keys, and bytes."""
_decode = msgspec.msgpack.Decoder().decode
CHUNK = 128
"""Messages that are encoded together: getting fresh memory for many at once costs more than
encoding them."""
_LONG = 0xDC
"""Begins a list of 16 items or more, in msgpack."""
_NO_EXTRAS = b"\x80"


class Kept:
    """A list of messages as it was last put or read, in a form that nobody else can change.

    It never changes itself, but for `places` while it is made: who reads a checkpoint builds its
    messages of it while the next one, with more of them, is put.
    """

    __slots__ = ("_classes", "_data", "_extras", "_sets", "places")

    def __init__(
        self,
        classes: list[type],
        data: list[bytes],
        extras: list[bytes],
        sets: list[frozenset[str]],
        places: list[Any] | None = None,
    ) -> None:
        self._classes = classes
        self._data = data
        """Their fields, encoded, in chunks."""
        self._extras = extras
        """Extra fields of each, encoded; empty while no message has any."""
        self._sets = sets
        self.places = places
        """Of the messages, while the list is short."""

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self._classes)

    @classmethod
    def of(cls, messages: list[BaseMessage]) -> Kept | None:
        """Messages to compare with later; None if they hold what cannot be compared this way."""
        return cls([], [], [], []).grown(messages)

    @classmethod
    def stored(cls, types: Types, places: list[Any], parts: dict[int, Any]) -> Kept | None:
        """Messages as they are stored; None if one has to be built to be known.

        Making the bytes first, and all objects of these at one stroke, takes half of the time of
        building them one by one and taking them apart again.
        """
        entries: dict[str, Any] = {}
        classes: list[type] = []
        fields: list[dict[str, Any]] = []
        sets: list[frozenset[str]] = []
        for place in places:
            part = parts[place if type(place) is int else number_of(place)]
            rest, *id = part if type(part) is list else (part,)
            entry = entries.get(rest.name)
            if entry is None:
                entry = entries[rest.name] = types.named(rest.name)
                if not isinstance(entry, MessageEntry) or not _comparable(entry.cls):
                    return None
            given, shape = rest.value, entry.shape
            if rest.version != entry.version or shape is None or not simple(given):
                return None
            if type(place) is list:
                id = place[1:]
            if id:
                given = {**given, "id": id[0] if type(id[0]) is str else long_id(id[0])}
            made = {**shape, **given}
            if len(made) != len(shape) or not entry.required <= given.keys():
                return None
            classes.append(entry.cls)
            fields.append(made)
            sets.append(frozenset(given))
        try:
            data = [_encode(fields[n : n + CHUNK]) for n in range(0, len(fields), CHUNK)]
        except (TypeError, ValueError, OverflowError):
            return None  # a text or an int that this encoder does not take
        return cls(classes, data, [], sets)

    def grown(self, value: list[Any]) -> Kept | None:
        """What to keep of a list that is this one or this one with more at its end, else None."""
        count = len(self._classes)
        classes = list(map(type, value))
        if classes[:count] != self._classes or not all(map(_comparable, set(classes[count:]))):
            return None
        for new in value[count:]:
            if not simple(_fields(new)) or (_extra(new) and not simple(_extra(new))):
                return None
        whole = count // CHUNK
        try:
            fields = list(map(_fields, value))
            chunks = (_encode(fields[n : n + CHUNK]) for n in range(0, len(fields), CHUNK))
            if any(next(chunks) != known for known in self._data[:whole]):
                return None
            tail = list(chunks)
            extras = list(map(_encode, map(_extra, value))) if any(map(_extra, value)) else []
        except (TypeError, ValueError, OverflowError, RecursionError):
            return None  # one that is known was changed in place, to hold something else
        if count % CHUNK and not _items(tail[0]).startswith(_items(self._data[whole])):
            return None
        known = self._extras or ([_NO_EXTRAS] * count if extras else [])
        if extras[:count] != known:
            return None
        sets = [*self._sets, *map(frozenset, map(_fields_set, value[count:]))]
        return Kept(classes, [*self._data[:whole], *tail], extras, sets, self.places)

    def build(self, count: int | None = None) -> list[BaseMessage]:
        """The messages again, or the first so many, as new objects."""
        made: list[Any] = list(map(object.__new__, self._classes[:count]))
        _each(map(set_fields, made, chain.from_iterable(map(_decode, self._data))))
        extras = map(_decode, self._extras or [_NO_EXTRAS] * len(made))
        _each(map(set_extra, made, extras))
        _each(map(set_named, made, map(set, self._sets)))
        _each(map(set_private, made, [None] * len(made)))
        return made


@cache
def _comparable(kind: type) -> bool:
    """Whether all of an object of this class lies in its fields, extra fields and set of names."""
    return issubclass(kind, BaseMessage) and not kind.__private_attributes__


def _items(data: bytes) -> bytes:
    """An encoded list without its length."""
    return data[3:] if data[0] == _LONG else data[1:]


def simple(plain: Any, depth: int = 8) -> bool:
    """Whether a value holds nothing but what msgpack gives back as it was, in few levels.

    The loops ask again what a call would: it is done for every field of every message.
    """
    kind = type(plain)
    if kind is dict:
        for key, item in plain.items():
            inner = type(item)
            if type(key) is not str:
                return False
            if inner in _SIMPLE or (not item and inner in _CONTAINERS):
                continue
            if not depth or not simple(item, depth - 1):
                return False
        return True
    if kind is list:
        return all(type(item) in _SIMPLE or (depth and simple(item, depth - 1)) for item in plain)
    return kind in _SIMPLE


_SIMPLE = frozenset((str, int, float, bool, type(None)))
_CONTAINERS = (dict, list)
_fields = attrgetter("__dict__")
_extra = attrgetter("__pydantic_extra__")
_fields_set = attrgetter("__pydantic_fields_set__")


_each = partial(deque[Any], maxlen=0)
"""Does what an iterator does, and keeps nothing of it."""
