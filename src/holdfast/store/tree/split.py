"""Taking values apart: what is short is one atom, what is long is a branch of parts.

A value is checked and encoded once. Setting a long list again costs what changed in it: its
items are compared with those that were stored last, and only new ones are walked, encoded and
hashed. They are compared by content, never by identity: an item that the caller changed in place
is found.
"""

from __future__ import annotations

import hashlib
import marshal
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.errors import InvalidValueError, LimitExceededError
from holdfast.seal.codec import MAP_KEY, Codec, Typed
from holdfast.seal.sealer import write_varint
from holdfast.store.tree import refs
from holdfast.store.tree.sequence import Range, nearby

_SIZES = [write_varint(size) for size in range(refs.WHOLE + 1)]
MEMO_ITEMS = 16
"""A list of at least so many items is compared item by item with what was stored last."""


class Atom(msgspec.Struct, gc=False, eq=False):
    """Encoded bytes of a value that is kept whole. A thousand of them are nothing to the garbage
    collector: they hold bytes alone."""

    ref: bytes
    encoded: bytes | None
    seen: bytes | None = None
    """The marshalled item of a long list, by which it is recognised."""

    def __repr__(self) -> str:
        return f"Atom({len(self.encoded or self.seen or b'')} bytes)"

    def data(self, codec: Codec) -> bytes:
        """The bytes; made again for an item that was recognised without encoding it."""
        data = self.encoded
        if data is None:
            assert self.seen is not None
            data = codec.encode(codec.plain(marshal.loads(self.seen)))
        return data


class Unlike:
    """Stands for an item that cannot be recognised: it is like no other."""

    __slots__ = ()

    def __len__(self) -> int:
        return 0


Seen = bytes | Unlike


class Branch:
    """A value that is kept as a tree; only a mapping has keys."""

    __slots__ = ("before", "items", "keys", "kind", "new", "parts", "ref", "seen", "spans", "typed")

    def __init__(self, kind: int, parts: list[Part], keys: list[Any] | None = None) -> None:
        self.kind = kind
        self.parts = parts
        self.keys = keys
        self.typed: tuple[str, int] | None = None
        self.ref: bytes | None = None
        self.seen: list[Seen] | None = None
        """Of a long list: its items as they are recognised. Marshalling tells exact types apart
        and is much cheaper than checking, encoding and hashing again."""
        self.before: Branch | None = None
        """What was kept of the value here before, if that helped to take this apart."""
        self.spans: list[Range] | None = None
        """What differs from a list before, if that is known."""
        self.new: list[int] | None = None
        """The places of the parts that were not there before; None: all."""
        self.items = 0
        """Of a whole value: how many items it has at most, at all depths."""

    def fresh(self) -> Sequence[int]:
        """The places of its parts that were not there before."""
        return range(len(self.parts)) if self.new is None else self.new


Part = Atom | Branch
_NEVER = Atom(b"", b"")
"""In the place of a part that is never recognised."""


class Splitter:
    """Takes values of one scope apart."""

    def __init__(
        self, codec: Codec, value_hash: Callable[[bytes], bytes], chunk_key: bytes
    ) -> None:
        self._codec = codec
        self._examined = codec.examined
        self._encode = codec.encode
        self._hash = value_hash
        self._chunk_key = chunk_key
        self._cutter: Cutter | None = None

    def atom(self, data: bytes) -> Atom:
        """An atom of encoded bytes."""
        return Atom(self.ref_of(data), data)

    def ref_of(self, data: bytes) -> bytes:
        """The ref of encoded bytes."""
        size = len(data)
        if size <= refs.INLINE:
            return b"\0" + data
        return b"\1" + self._hash(data) + write_varint(size)

    def split(self, value: Any, known: Branch | None = None) -> Part:
        """Atoms and branches of a value, which is checked on the way.

        `known` is what was stored last in its place, and was remembered. An atom is taken as it is:
        who made it has checked what it holds.
        """
        if type(value) is Atom:
            return value
        if known is not None:
            counts = [known.items]
            try:
                part = self._split_known(value, known, 1, counts)
            except InvalidValueError:
                part = None  # walked from the top, the error names the whole path
            if part is not None:
                part.items = sum(counts)
                if self._within_limits(part):
                    return part
        plain, raw, least, items = self._examined(value)
        whole = self._split(plain, raw, least)
        if type(whole) is Branch:
            whole.items = items
        return whole

    def split_item(self, value: Any) -> Part:
        """The same of an item of a list."""
        if type(value) is Atom:
            return value
        return self._split(*self._examined(value, 2)[:3])

    def _within_limits(self, branch: Branch) -> bool:
        """Whether parts that were recognised, and so not counted, surely keep the limits."""
        limits = self._codec.limits
        if branch.items > limits.items:
            return False
        count = count_parts(branch)
        return count * CHUNK_MOST <= limits.size or _size(branch) <= limits.size

    def _split(self, plain: Any, raw: bool, least: int = 0) -> Part:
        """A value in plain form, taken apart.

        `raw` says that there may be bytes in it, `least` how many bytes it takes at least.
        """
        kind = type(plain)
        if kind is dict or kind is list:
            if least <= refs.WHOLE and len(plain) <= refs.WHOLE:
                data = self._encode(plain)
                if len(data) <= refs.WHOLE:
                    return Atom(self.ref_of(data), data)
            if kind is list:
                return self._listed(plain, raw)
            keys = [_map_key(key) for key in plain]
            parts = [self._split(part, raw, _least(part)) for part in plain.values()]
            return Branch(refs.MAP, parts, keys)
        if kind is str and len(plain) * 4 > refs.LONG:
            text = plain.encode()
            if len(text) > refs.LONG:
                return self._chunks(refs.TEXT, text)
        elif kind is bytes and len(plain) > refs.LONG:
            return self._chunks(refs.BYTES, plain)
        elif kind is Typed:
            inner = self._split(plain.value, raw, _least(plain.value))
            if type(inner) is Branch and inner.typed is None:
                inner.typed = (plain.name, plain.version)
                return inner
        return self.atom(self._encode(plain))

    def _listed(self, plain: list[Any], raw: bool) -> Branch:
        """A long list; its items are noted so that setting it again can recognise them."""
        parts: list[Part] = []
        encode, hash_, low, high = self._encode, self._hash, refs.INLINE, refs.WHOLE
        for item in plain:
            if type(item) is dict:  # as most are: here without further calls, for they are many
                data = encode(item)
                size = len(data)
                if low < size <= high:
                    parts.append(Atom(b"\1" + hash_(data) + _SIZES[size], data))
                    continue
            parts.append(self._split(item, raw))
        branch = Branch(refs.LIST, parts)
        if len(plain) >= MEMO_ITEMS:
            branch.seen = _marshalled(plain)
            for place, (part, seen) in enumerate(zip(parts, branch.seen, strict=True)):
                if raw or type(part) is not Atom or type(seen) is not bytes:
                    _note(branch.seen, place, part, raw)
                else:
                    part.seen = seen
        return branch

    def _split_known(
        self, value: Any, known: Branch, depth: int, counts: list[int]
    ) -> Branch | None:
        """A branch made with the help of the one before, or None where that does not help.

        To `counts` go the items that it may have beyond those of before. What is gone is not taken
        off: that would cost more than a walk over the whole value now and then, when the sum has
        come to the limit.
        """
        kind = type(value)
        if depth > 32:
            return None
        if kind is list and known.seen is not None and len(value) >= MEMO_ITEMS:
            return self._whole(self._known(value, known, known.seen, depth, counts))
        if kind is dict and value and known.keys is not None:
            stored = dict(zip(known.keys, known.parts, strict=True))
            keys: list[Any] = []
            parts: list[Part] = []
            for key, inner in value.items():
                if type(key) is not str or not key.isprintable():
                    return None
                keys.append(_map_key(key))
                was, part = stored.get(key), None
                if type(was) is Branch:
                    part = self._split_known(inner, was, depth + 1, counts)
                parts.append(part or self._fresh(inner, depth + 1, counts)[0])
            branch = Branch(refs.MAP, parts, keys)
            branch.before = known
            return self._whole(branch)
        return None

    def _fresh(self, value: Any, depth: int, counts: list[int]) -> tuple[Part, bool]:
        """A part that was not there before, and whether there are bytes in it."""
        plain, raw, least, items = self._examined(value, depth)
        counts.append(1 + items)
        return self._split(plain, raw, least), raw

    def _known(
        self, items: list[Any], known: Branch, before: list[Seen], depth: int, counts: list[int]
    ) -> Branch:
        """A list: with parts of the one before where it has the item."""
        items = items.copy()  # the caller's other threads may change theirs
        seen = _marshalled(items)
        spans = nearby(before, seen)
        parts: list[Any]
        if spans is None:  # much is new, or has moved
            parts = list(map(dict(zip(before, known.parts, strict=True)).get, seen))
            new = [place for place, part in enumerate(parts) if part is None]
            if len(set(seen)) < len(seen):  # n bytes have fewer than n items
                counts += [refs.size_of(part.ref) for part in parts if part is not None]
        else:
            parts, new, same, done = [], [], [], 0
            for low, high, first, last in [*spans, (len(before), 0, 0, 0)]:
                parts += known.parts[done:low]
                same += before[done:low]  # their hashes are known, if anybody needed them
                parts += [None] * (last - first)
                same += seen[first:last]
                new += range(first, last)
                done = high
            seen = same
        for place in new:
            parts[place], raw = self._fresh(items[place], depth + 1, counts)
            _note(seen, place, parts[place], raw)
        branch = Branch(refs.LIST, parts)
        branch.seen, branch.before, branch.new = seen, known, new
        if all(type(parts[place]) is Atom for place in new):
            branch.spans = spans  # else a long item may be an old one, or differ in little
        return branch

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

        What lies `CHUNK_MOST` bytes behind the start, or further, has no say in it.
        """
        cutter = self._cutter = self._cutter or Cutter(self._chunk_key)
        end = cutter.end(data, start)
        return self.atom(self._encode(data[start:end])), end

    def again(self, part: Part) -> Part:
        """A part that was taken apart under another scope's keys, under this one's."""
        return self._split(self.plain_of(part), raw=True)

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


def remembered(part: Part) -> tuple[Branch, int] | None:
    """What to keep of a value, so that it helps with the next one in its place, and the bytes that
    takes: its long lists and the way to them. None if it cannot help."""
    if type(part) is not Branch or part.typed:
        return None
    if part.seen is not None:
        parts = part.parts.copy()
        for place in part.fresh():  # the others were kept from the list before
            inner = parts[place]
            if type(inner) is Atom and inner.seen is not None:
                inner.encoded = None  # it can be made again from what was seen
            else:
                parts[place] = _NEVER
        known = Branch(refs.LIST, parts)
        known.seen = part.seen
        held = 200 * len(part.seen) + sum(map(len, part.seen))
    else:
        inside = zip(part.keys or (), part.parts, strict=False)
        found = [(key, remembered(inner)) for key, inner in inside if type(inner) is Branch]
        kept = [(key, *made) for key, made in found if made is not None]
        if not kept:
            return None
        known = Branch(refs.MAP, [one[1] for one in kept], [one[0] for one in kept])
        held = sum(len(str(one[0])) + 200 + one[2] for one in kept)
    known.ref = part.ref
    known.items = part.items
    return known, held


def _marshalled(items: list[Any]) -> list[Seen]:
    """Each item in exact bytes; what cannot be marshalled, such as a datetime, is like nothing."""
    dumps = marshal.dumps
    try:
        return [dumps(item, 2) for item in items]
    except ValueError:
        return [_dumped(item) for item in items]


def _dumped(item: Any) -> Seen:
    try:
        return marshal.dumps(item, 2)
    except ValueError:
        return Unlike()


def _note(seen: list[Seen], place: int, part: Part, raw: bool) -> None:
    """Note by what an item is recognised, if it is.

    Marshal writes a bytearray like bytes, so what holds bytes must not be: the other would pass
    unchecked.
    """
    data = seen[place]
    if type(part) is Atom and type(data) is bytes and not (raw and _holds_bytes(part, data)):
        part.seen = data
    else:
        seen[place] = Unlike()


def _holds_bytes(atom: Atom, seen: bytes) -> bool:
    # Bytes have a header from C4 to C6, as have parts of some text.
    data = atom.encoded or b""
    suspect = 0xC4 in data or 0xC5 in data or 0xC6 in data
    return suspect and _has_bytes(marshal.loads(seen))


def _has_bytes(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return any(map(_has_bytes, value.values()))
    return any(map(_has_bytes, value)) if kind is list else kind is bytes


def count_parts(part: Part) -> int:
    """Parts at all depths; within one that was there before they are not counted."""
    if type(part) is not Branch:
        return 1
    parts = part.parts
    inner = [one for place in part.fresh() if type(one := parts[place]) is Branch]
    return len(parts) + sum(map(count_parts, inner))


def _size(branch: Branch) -> int:
    total = 0
    for part in branch.parts:
        total += _size(part) if type(part) is Branch else refs.size_of(part.ref or b"\0")
    return total


def _least(plain: Any) -> int:
    """How many bytes a container takes at least: a look at what it begins with."""
    kind = type(plain)
    if kind is str or kind is bytes:
        return len(plain)
    if kind is not list and kind is not dict:
        return 1
    total = 1
    for part in plain if kind is list else plain.values():
        if total > refs.WHOLE:
            break
        total += _least(part)
    return total


def _map_key(key: Any) -> Any:
    if type(key) is str:
        if len(key) * 4 > MAP_KEY and len(key.encode()) > MAP_KEY:
            raise LimitExceededError("a long key")  # walked from the top, the error has a path
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


# ---- chunks -------------------------------------------------------------------------------------
# Where long text and bytes are cut into chunks.
#
# A cut follows from the few bytes before it, so that an insertion moves the chunks that it touches
# and leaves the others as they were. It is keyed, so that the lengths of sealed chunks do not
# fingerprint known content.
#
# What is wanted is a hash of every window of some 32 bytes, of low entropy as text has it, at the
# speed of C. Multiplying the bytes, read as one long number, by a secret number of sixteen bytes
# gives each byte a keyed sum of the sixteen before it; doing so twice with a secret substitution
# before each gives a window of 32 that no regularity of the content survives. (A pattern of byte
# classes, found by a regular expression, took longer and left most of a plain English text uncut.)


CHUNK_LEAST, CHUNK_MOST = 4 * 1024, 32 * 1024
"""Bytes of a chunk; the last one may be shorter."""
_BLOCK = 4 * 1024
_BEFORE = 64
"""Bytes read before a block. More than the window, because carries come from further back; one
that would come from beyond is rare and merely moves a cut."""
_CUT = re.compile(rb"\x00[\x00-\x0f]", re.DOTALL)
"""One place in 4,096."""


class Cutter:
    """Finds the cuts of one scope."""

    def __init__(self, key: bytes) -> None:
        self._rounds = [_round(key, number) for number in range(2)]

    def end(self, data: bytes, start: int) -> int:
        """Where the chunk that begins at `start` ends. Looks at most `CHUNK_MOST` bytes ahead."""
        last = min(start + CHUNK_MOST, len(data))
        for block in range(start + CHUNK_LEAST, last, _BLOCK):
            mixed = self._mix(data[block - _BEFORE : min(block + _BLOCK, last)])
            found = _CUT.search(mixed, _BEFORE)
            if found:
                return block - _BEFORE + found.end()
        return last

    def _mix(self, data: bytes) -> bytes:
        size = len(data)
        for box, factor in self._rounds:
            product = int.from_bytes(data.translate(box), "little") * factor
            data = product.to_bytes(size + 16, "little")[:size]
        return data


def _round(key: bytes, number: int) -> tuple[bytes, int]:
    """A substitution of bytes and an odd factor of sixteen bytes."""
    secret = hashlib.shake_256(key + bytes([number])).digest(16 + 4 * 256)
    order = sorted(range(256), key=lambda byte: (secret[16 + 4 * byte : 20 + 4 * byte], byte))
    return bytes(order), int.from_bytes(secret[:16], "little") | 1


class MemoCache:
    """What long values of keys looked like, so that setting them again compares faster."""

    def __init__(self, capacity: int = 16 << 20) -> None:
        self._capacity = capacity
        self._held = 0
        self._memos: OrderedDict[tuple[int, str], tuple[Branch, int]] = OrderedDict()

    def get(self, scope: int, key: str) -> Branch | None:
        """What a key was set to last."""
        found = self._memos.get((scope, key))
        return found[0] if found else None

    def note(self, scope: int, parts: dict[str, Branch]) -> None:
        """Keep what keys have been set to; those that were set longest ago make room."""
        for key, part in parts.items():
            name = (scope, key)
            self._held -= self._memos.pop(name, (None, 0))[1]
            made = remembered(part)
            if made is not None:
                self._memos[name] = made
                self._held += made[1]
            while self._held > self._capacity and self._memos:
                self._held -= self._memos.popitem(last=False)[1][1]
