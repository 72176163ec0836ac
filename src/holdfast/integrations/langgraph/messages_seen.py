"""Lists of messages as they were last put or read, to tell what is new in the next one.

`put` is given whole channels. What a channel held is kept as bytes; encoding the messages again
and comparing bytes finds every change, also one made in place, in a fraction of the time that
taking them apart would need. Objects are never compared by identity. A field that was set to what
it was already is no change: the message is equal, to pydantic too.

The encoder takes nothing but what msgpack gives back as it was, so that equal bytes are of equal
types. A message that holds something else, an artifact of a class perhaps, is taken apart: of it,
a digest of what would be stored is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import ormsgpack
from langchain_core.messages import BaseMessage

from holdfast.errors import HoldfastError

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
_comparables: dict[type, bool] = {}
Exact = Callable[[BaseMessage], bytes]
"""Gives a digest of all that would be stored of a message."""


class Kept:
    """A list of messages as it was last put or read, in a form that nobody else can change.

    It never changes itself, but for `places` while it is made: who reads a checkpoint builds its
    messages of it while the next one, with more of them, is put.
    """

    __slots__ = ("_classes", "_data", "_extras", "_odd", "_sets", "places")

    def __init__(
        self,
        classes: list[type],
        data: list[bytes],
        extras: list[bytes],
        sets: list[frozenset[str]],
        odd: frozenset[int],
        places: list[Any] | None = None,
    ) -> None:
        self._classes = classes
        self._data = data
        """Their fields, encoded, in chunks."""
        self._extras = extras
        """Extra fields of each, encoded; empty while no message has any."""
        self._sets = sets
        self._odd = odd
        """Positions of messages that are known by a digest."""
        self.places = places
        """Of the messages, while the list is short."""

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self._classes)

    @property
    def simple(self) -> bool:
        """Whether the bytes hold all: only data that msgpack gives back as it was."""
        return not self._odd

    @classmethod
    def of(cls, messages: list[BaseMessage], exact: Exact | None = None) -> Kept | None:
        """Messages to compare with later; None if they hold what cannot be compared this way.

        exact: without it, messages that have to be known by a digest are such.
        """
        return cls([], [], [], [], frozenset()).grown(messages, exact)

    @property
    def size(self) -> int:
        """Bytes held, roughly."""
        return sum(map(len, self._data)) + 100 * self.count

    def grown(self, value: list[Any], exact: Exact | None) -> Kept | None:
        """What to keep of a list that is this one or this one with more at its end, else None."""
        count = self.count
        classes = list(map(type, value))
        if classes[:count] != self._classes or not all(map(_comparable, set(classes[count:]))):
            return None
        odd = self._odd.union(n for n, one in enumerate(value[count:], count) if not _plain(one))
        if odd and exact is None:
            return None
        whole = count // CHUNK
        try:
            digests = {n: exact(value[n]) for n in odd} if exact is not None else {}
            chunks = _chunks(list(map(_fields, value)), digests)
            if any(next(chunks) != known for known in self._data[:whole]):
                return None
            tail = list(chunks)
            extras = _extras(value, digests)
        except (TypeError, ValueError, OverflowError, RecursionError, HoldfastError):
            return None
        if count % CHUNK and not _items(tail[0]).startswith(_items(self._data[whole])):
            return None
        known = self._extras or ([_NO_EXTRAS] * count if extras else [])
        if extras[:count] != known:
            return None
        sets = [*self._sets, *map(frozenset, map(_fields_set, value[count:]))]
        return Kept(classes, [*self._data[:whole], *tail], extras, sets, odd, self.places)

    def build(self) -> list[BaseMessage]:
        """The messages again, as new objects."""
        made: list[Any] = list(map(object.__new__, self._classes))
        _each(map(_set_fields, made, chain.from_iterable(map(_decode, self._data))))
        extras = map(_decode, self._extras or [_NO_EXTRAS] * len(made))
        _each(map(_set_extra, made, extras))
        _each(map(_set_set, made, map(set, self._sets)))
        _each(map(_set_private, made, [None] * len(made)))
        return made


def _comparable(kind: type) -> bool:
    """Whether all of an object of this class lies in its fields, extra fields and set of names."""
    found = _comparables.get(kind)
    if found is None:
        message = issubclass(kind, BaseMessage)
        found = _comparables[kind] = message and not getattr(kind, "__private_attributes__", None)
    return found


def _chunks(fields: list[Any], digests: dict[int, bytes]) -> Iterator[bytes]:
    """Fields of messages, encoded; of some, by their positions, digests are all there is."""
    for n, digest in digests.items():
        fields[n] = digest
    for start in range(0, len(fields), CHUNK):
        yield _encode(fields[start : start + CHUNK])


def _extras(value: list[Any], digests: dict[int, bytes]) -> list[bytes]:
    """The extra fields of each message, encoded, if any has some; digests tell of them, too."""
    if not any(map(_extra, value)):
        return []
    return [_NO_EXTRAS if n in digests else _encode(_extra(one)) for n, one in enumerate(value)]


def _items(data: bytes) -> bytes:
    """An encoded list without its length."""
    return data[3:] if data[0] == _LONG else data[1:]


def _plain(message: BaseMessage) -> bool:
    return simple(_fields(message)) and simple(_extra(message) or {})


def simple(plain: Any) -> bool:
    """Whether a value holds nothing but what msgpack gives back as it was."""
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
