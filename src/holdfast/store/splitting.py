"""Taking values apart: what is short is one atom, what is long is a branch of parts.

A value is checked and encoded once. Setting a long list again costs what changed in it: its
items are compared with those that were stored last, and only new ones are walked, encoded and
hashed. They are compared by content, never by identity: an item that the caller changed in place
is found.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import InvalidValueError, LimitExceededError
from holdfast.seal.codec import Codec, Typed
from holdfast.seal.sealer import write_varint
from holdfast.store import cutting, refs

MAP_KEY = 256 * 1024
"""Most bytes of a mapping's key: a node with it has to fit into one record."""
MEMO_ITEMS = 16
"""A list of at least so many items is compared item by item with what was stored last."""


class Atom(msgspec.Struct, gc=False, eq=False):
    """Encoded bytes of a value that is kept whole. A thousand of them are nothing to the garbage
    collector: they hold bytes alone."""

    ref: bytes
    encoded: bytes | None
    seen: bytes | None = None
    """The marshalled item of a long list, by which it is recognised."""

    def data(self, codec: Codec) -> bytes:
        """The bytes; made again for an item that was recognised without encoding it."""
        data = self.encoded
        if data is None:
            assert self.seen is not None
            data = codec.encode(codec.plain(marshal.loads(self.seen)))
        return data

    def slim(self) -> bool:
        """Let go of bytes that can be made again from what was seen; False if they cannot.

        Marshal writes a bytearray like bytes, so what holds bytes must not be recognised: the
        other would pass unchecked. Bytes have a header from C4 to C6, as have parts of some text.
        """
        data, seen = self.encoded, self.seen
        if data is None or seen is None:
            return False
        suspect = 0xC4 in data or 0xC5 in data or 0xC6 in data
        if suspect and _holds_bytes(marshal.loads(seen)):
            return False
        self.encoded = None
        return True


class Branch:
    """A value that is kept as a tree; only a mapping has keys."""

    __slots__ = ("keys", "kind", "parts", "ref", "typed")

    def __init__(self, kind: int, parts: list[Part], keys: list[Any] | None = None) -> None:
        self.kind = kind
        self.parts = parts
        self.keys = keys
        self.typed: tuple[str, int] | None = None
        self.ref: bytes | None = None


Part = Atom | Branch
Memo = dict[bytes, Atom]
"""Items of long lists of a key as they were stored last, by their marshalled bytes. Marshalling
tells exact types apart and is much cheaper than checking, encoding and hashing again."""


class Splitter:
    """Takes values of one scope apart."""

    def __init__(
        self, codec: Codec, value_hash: Callable[[bytes], bytes], chunk_key: bytes
    ) -> None:
        self._codec = codec
        self._plain = codec.plain
        self._encode = codec.encode
        self._hash = value_hash
        self._chunk_key = chunk_key
        self._cutter: cutting.Cutter | None = None

    def atom(self, data: bytes) -> Atom:
        """An atom of encoded bytes."""
        return Atom(self.ref_of(data), data)

    def ref_of(self, data: bytes) -> bytes:
        """The ref of encoded bytes."""
        size = len(data)
        if size <= refs.INLINE:
            return b"\0" + data
        return b"\1" + self._hash(data) + write_varint(size)

    def split(self, value: Any, memo: Memo | None = None) -> Part:
        """Atoms and branches of a value, which is checked on the way."""
        if memo:
            try:
                part = self._split_known(value, memo, 0)
            except InvalidValueError:
                part = None  # walked from the top, the error names the whole path
            if part is not None and self._within_limits(part):
                return part
        return self._split(self._plain(value))

    def _within_limits(self, branch: Branch) -> bool:
        """Whether parts that were recognised, and so not counted, surely keep the limits."""
        limits = self._codec.limits
        count = _count(branch)
        if count > limits.items:
            return False
        return count * cutting.MOST <= limits.size or _size(branch) <= limits.size

    def _split(self, plain: Any) -> Part:
        kind = type(plain)
        if kind is dict or kind is list:
            if len(plain) <= refs.WHOLE:
                data = self._encode(plain)
                if len(data) <= refs.WHOLE:
                    return Atom(self.ref_of(data), data)
            if kind is list:
                return self._listed(plain)
            keys = [_map_key(key) for key in plain]
            return Branch(refs.MAP, [self._split(part) for part in plain.values()], keys)
        if kind is str and len(plain) * 4 > refs.LONG:
            text = plain.encode()
            if len(text) > refs.LONG:
                return self._chunks(refs.TEXT, text)
        elif kind is bytes and len(plain) > refs.LONG:
            return self._chunks(refs.BYTES, plain)
        elif kind is Typed:
            inner = self._split(plain.value)
            if type(inner) is Branch and inner.typed is None:
                inner.typed = (plain.name, plain.version)
                return inner
        return self.atom(self._encode(plain))

    def _listed(self, plain: list[Any]) -> Branch:
        """A long list; its items are noted so that setting it again can recognise them."""
        parts = [self._split(item) for item in plain]
        if len(plain) >= MEMO_ITEMS:
            for part, seen in zip(parts, _marshalled(plain), strict=True):
                if type(part) is Atom:
                    part.seen = seen
        return Branch(refs.LIST, parts)

    def _split_known(self, value: Any, memo: Memo, depth: int) -> Branch | None:
        """A branch made with the help of the memo, or None where that does not help."""
        kind = type(value)
        if depth > 32:
            return None
        if kind is list and len(value) >= MEMO_ITEMS:
            return self._whole(Branch(refs.LIST, self._known(value, memo)))
        if kind is dict and value:
            keys: list[Any] = []
            parts: list[Part] = []
            for key, inner in value.items():
                if type(key) is not str or not key.isprintable():
                    return None
                keys.append(_map_key(key))
                part: Part | None = self._split_known(inner, memo, depth + 1)
                parts.append(part or self._split(self._plain(inner)))
            return self._whole(Branch(refs.MAP, parts, keys))
        return None

    def _known(self, items: list[Any], memo: Memo) -> list[Part]:
        """The parts of a list: those of the memo where it has the item."""
        items = items.copy()  # the caller's other threads may change theirs
        marshalled = _marshalled(items)
        parts: list[Any] = list(map(memo.get, marshalled))  # type: ignore[arg-type]
        for place, known in enumerate(parts):
            if known is None:
                part = parts[place] = self._split(self._plain(items[place]))
                if type(part) is Atom:
                    part.seen = marshalled[place]
        return parts

    def _whole(self, branch: Branch) -> Branch | None:
        """The branch, unless it is so short that it has to be one atom."""
        total = 1 + sum(len(key) for key in branch.keys or ())
        for part in branch.parts:
            if type(part) is Branch:
                return branch
            assert part.ref is not None
            total += refs.size_of(part.ref)
            if total > refs.WHOLE:
                return branch
        return None

    def _chunks(self, kind: int, data: bytes) -> Branch:
        parts: list[Part] = []
        start = 0
        while start < len(data):
            part, start = self.chunk(data, start)
            parts.append(part)
        return Branch(kind, parts)

    def chunk(self, data: bytes, start: int) -> tuple[Atom, int]:
        """The chunk of long bytes that begins at `start`, and where it ends.

        What lies `cutting.MOST` bytes behind the start, or further, has no say in it.
        """
        cutter = self._cutter = self._cutter or cutting.Cutter(self._chunk_key)
        end = cutter.end(data, start)
        return self.atom(self._encode(data[start:end])), end

    def again(self, part: Part) -> Part:
        """A part that was taken apart under another scope's keys, under this one's."""
        return self._split(self.plain_of(part))

    def plain_of(self, part: Part) -> Any:
        """The value in plain form that was taken apart."""
        codec = self._codec
        if type(part) is Atom:
            return codec.plain(codec.plain_reader.decode(part.data(codec)))
        assert type(part) is Branch
        found = [self.plain_of(inner) for inner in part.parts]
        plain: Any = found
        if part.keys is not None:
            plain = dict(zip(part.keys, found, strict=True))
        elif part.kind != refs.LIST:
            plain = b"".join(found)
            plain = plain.decode() if part.kind == refs.TEXT else plain
        return Typed(*part.typed, plain) if part.typed else plain

    def remember(self, part: Part, memo: Memo) -> int:
        """Note the items of long lists for the next time; returns the bytes held."""
        held = 0
        if type(part) is Branch:
            for inner in part.parts:
                if type(inner) is not Atom:
                    held += self.remember(inner, memo)
                elif inner.encoded is not None and inner.slim():
                    assert inner.seen is not None
                    memo[inner.seen] = inner
                    held += len(inner.seen) + 200
        return held


def _marshalled(items: list[Any]) -> list[bytes | None]:
    """Each item in exact bytes; None for one that cannot be marshalled, such as a datetime."""
    dumps = marshal.dumps
    try:
        return [dumps(item, 2) for item in items]
    except ValueError:
        return [_dumped(item) for item in items]


def _dumped(item: Any) -> bytes | None:
    try:
        return marshal.dumps(item, 2)
    except ValueError:
        return None


def _holds_bytes(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return any(map(_holds_bytes, value.values()))
    return any(map(_holds_bytes, value)) if kind is list else kind is bytes


def _count(branch: Branch) -> int:
    inner = sum([_count(part) for part in branch.parts if type(part) is Branch])
    return len(branch.parts) + inner


def _size(branch: Branch) -> int:
    total = 0
    for part in branch.parts:
        total += _size(part) if type(part) is Branch else refs.size_of(part.ref or b"\0")
    return total


def _map_key(key: Any) -> Any:
    if type(key) is str:
        if len(key) * 4 > MAP_KEY and len(key.encode()) > MAP_KEY:
            raise LimitExceededError(f"a key of a mapping takes over {MAP_KEY} bytes; shorten it")
    elif type(key) is not int:
        raise InvalidValueError("a long mapping has a key that is neither text nor a number")
    return key


def array_header(count: int) -> bytes:
    """What stands before the encoded items of a list."""
    if count < 16:
        return bytes([0x90 | count])
    return (
        b"\xdc" + count.to_bytes(2, "big") if count < 65536 else b"\xdd" + count.to_bytes(4, "big")
    )


def read_array_header(data: bytes) -> tuple[int, int] | None:
    """(number of items, where the first begins) of an encoded list; None if it is no list."""
    first = data[0]
    if 0x90 <= first < 0xA0:
        return first & 15, 1
    if first in (0xDC, 0xDD):
        end = 3 if first == 0xDC else 5
        return int.from_bytes(data[1:end], "big"), end
    return None
