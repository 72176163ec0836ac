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

import threading
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
    """A list of messages as it was last put or read, in a form that nobody else can change."""

    __slots__ = ("_classes", "_data", "_extras", "_lock", "_odd", "_sets", "places")

    def __init__(self) -> None:
        self._classes: list[type] = []
        self._data: list[bytes] = []
        """Their fields, encoded, in chunks; the last one may grow."""
        self._extras: list[Any] = []
        """Extra fields of each, encoded; empty while no message has any."""
        self._sets: list[frozenset[str]] = []
        self._odd: frozenset[int] = frozenset()
        """Positions of messages that are known by a digest."""
        self._lock = threading.Lock()
        self.places: list[Any] | None = None
        """Of the messages, while the list is short."""

    @property
    def simple(self) -> bool:
        """Whether the bytes hold all: only data that msgpack gives back as it was."""
        return not self._odd

    @classmethod
    def of(cls, messages: list[BaseMessage], exact: Exact | None = None) -> Kept | None:
        """Messages to compare with later; None if they hold what cannot be compared this way.

        exact: without it, messages that have to be known by a digest are such.
        """
        growth = cls().grown(messages, exact)
        return growth.kept() if growth is not None else None

    @property
    def size(self) -> int:
        """Bytes held, roughly."""
        return sum(map(len, self._data)) + 100 * len(self._classes)

    def grown(self, value: list[Any], exact: Exact | None) -> Growth | None:
        """What is new, if a list is this one or this one with more at its end, else None."""
        count = len(self._classes)
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
        more = list(map(frozenset, map(_fields_set, value[count:])))
        return Growth(self, count, classes[count:], tail, extras, more, odd)

    def grow(self, growth: Growth) -> None:
        """Take over what is new, once it is stored."""
        with self._lock:
            self._classes += growth.classes
            self._data[growth.start // CHUNK :] = growth.tail
            self._extras = growth.extras
            self._sets += growth.sets
            self._odd, self.places = growth.odd, growth.places

    def build(self) -> list[BaseMessage]:
        """The messages again, as new objects."""
        with self._lock:
            made: list[Any] = list(map(object.__new__, self._classes))
            _each(map(_set_fields, made, chain.from_iterable(map(_decode, self._data))))
            extras = map(_decode, self._extras or [_NO_EXTRAS] * len(made))
            _each(map(_set_extra, made, extras))
            _each(map(_set_set, made, map(set, self._sets)))
        _each(map(_set_private, made, [None] * len(made)))
        return made


class Growth:
    """What a list of messages has more than one that is kept."""

    __slots__ = ("_base", "classes", "extras", "odd", "places", "sets", "start", "tail")

    def __init__(
        self,
        base: Kept,
        start: int,
        classes: list[type],
        tail: list[bytes],
        extras: list[Any],
        sets: list[frozenset[str]],
        odd: frozenset[int],
    ) -> None:
        self._base = base
        self.start = start
        self.classes = classes
        self.tail = tail
        self.extras = extras
        self.sets = sets
        self.odd = odd
        self.places = base.places

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
