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
from collections.abc import Callable, Iterable
from typing import Any

from langchain_core.messages import BaseMessage

from holdfast.errors import DamagedRecordError
from holdfast.integrations.langgraph.messages_seen import simple
from holdfast.integrations.langgraph.records import long_id, short_id
from holdfast.integrations.langgraph.types.types import LISTED, MESSAGE
from holdfast.seal.codec import Codec, Typed
from holdfast.store.tree.refs import WHOLE

MOST_KNOWN = 50_000

_Id = list[Any]
"""The id of a message, in a list of one; an empty list if it has none."""


class Parts:
    """The numbers of messages that are stored already, and those about to be."""

    def __init__(self, codec: Codec, take_apart: Callable[[Any], Any]) -> None:
        self._codec = codec
        self._take_apart = take_apart
        self._known: dict[bytes, int] = {}
        self.ids: dict[int, _Id] = {}
        """By the numbers of the messages that would be recognised, the ids they are stored with."""
        self.version = 0
        """Of the stored list that the numbers are of: a thread that was put back, or deleted and
        made again, has another one, in which they mean other messages."""
        self.length = 0
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
        return Typed(MESSAGE, 1, self.place(self._take_apart(message)))

    def place(self, message: Typed) -> Any:
        """The place of a message in plain form."""
        rest, id = _without_id(message)
        digest = self._digest(rest)
        number = self._known.get(digest)
        if number is None:
            number = self._new.get(digest)
        if number is None:
            number = self.length + len(self.new)
            self._new[digest] = number
            self._new_ids[number] = id
            self.new.append([rest, *id] if id else rest)
            return number
        stored = self.ids[number] if number in self.ids else self._new_ids[number]
        return number if id == stored else [number, *id]

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
        self._known[self._digest(rest)] = number

    def digest(self, message: BaseMessage) -> bytes:
        """Tells a message from all that would be stored otherwise."""
        return self._digest(self._take_apart(message))

    def _digest(self, part: Typed) -> bytes:
        try:
            data = self._codec.encode(part if simple(part.value) else self._codec.plain(part))
        except (OverflowError, UnicodeEncodeError):  # an int or a text that is stored otherwise
            data = self._codec.encode(self._codec.plain(part))
        return hashlib.sha256(data).digest()[:16]


def _without_id(message: Typed) -> tuple[Typed, _Id]:
    """A message without its id, as far as that is one; and the id."""
    fields = message.value
    if type(fields) is not dict or type(fields.get("id", 0)) not in (str, type(None)):
        return message, []
    rest = fields.copy()
    return Typed(message.name, message.version, rest), [short_id(rest.pop("id"))]


def _parted(part: Any) -> tuple[Typed, _Id]:
    """The same of a message as it is stored."""
    return (part[0], part[1:]) if type(part) is list else (part, [])


def whole(place: Any, part: Any) -> Typed:
    """The plain form of a message, of its place and what is stored there."""
    rest, id = _parted(part)
    if type(place) is list:
        id = place[1:]
    return Typed(rest.name, rest.version, {**rest.value, "id": long_id(id[0])}) if id else rest


def number_of(place: Any) -> int:
    """The number of a place."""
    number = place[0] if type(place) is list and place else place
    if type(number) is not int:
        raise DamagedRecordError("a thread refers to a message in an unknown way")
    return number


BEGIN = Typed(LISTED, 1, bytes(WHOLE))
"""The first item of a list of messages that has a key of its own. Places are so small that the
list would be a short value for a hundred turns, which is written whole whenever it grows; with this
it is long from the start, at the price of some bytes once: zeros compress well."""


def short_list(places: list[Any]) -> Typed:
    """A list of messages in one plain form."""
    return Typed(LISTED, 1, places)


def long_list(plain: Any) -> Any:
    """A stored list of messages, short or not, with what stands for each; other values as is."""
    if type(plain) is list and plain and type(plain[0]) is Typed and plain[0].name == LISTED:
        return [Typed(MESSAGE, 1, place) for place in plain[1:]]
    if type(plain) is Typed and plain.name == LISTED:
        return [Typed(MESSAGE, 1, place) for place in plain.value]
    return plain


def numbers(plain: Any, found: set[int]) -> None:
    """Gather the numbers of all parts that a value in plain form refers to."""
    if type(plain) is Typed:
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


def runs(found: Iterable[int], gap: int = 16) -> list[tuple[int, int]]:
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
