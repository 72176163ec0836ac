"""Taking values apart, and putting back together only what changed.

A value is encoded once into atoms. What is short is one atom; a long list, mapping, text or
byte string is a branch: a tree whose elements are atoms or branches. An entry carries the
atoms in the order in which a small *shape* consumes them, so that the writer and every later
reader grow the same trees with the same code.

Shapes: `1` one atom; `[1, parts]` a list, `[2, keys, parts]` a mapping, `[3, n]` bytes and
`[4, n]` text in n chunks, `[5, name, version, shape]` a registered object. In `parts` a number
stands for so many atoms. A *patch* is a list of steps over the old elements: `[gap, remove, keys,
parts]` replaces a range, `[gap, patch]` changes one element inside.
"""

from __future__ import annotations

import hashlib
import marshal
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from holdfast.errors import DamagedRecordError, InvalidValueError, LimitExceededError
from holdfast.seal.codec import Codec, Typed
from holdfast.store import refs
from holdfast.store.building import Element
from holdfast.store.sequence import changes
from holdfast.store.trees import Node, Trees

CHUNK_LEAST, CHUNK_MOST = 4 * 1024, 32 * 1024
MAP_KEY = 256 * 1024
"""Most bytes of a mapping's key: a node with it has to fit into one record."""
MEMO_ITEMS = 16
"""A list of at least so many items is compared item by item with what was stored last."""

Feed = Iterator[tuple[bytes, Any]]
"""(ref, place) of an entry's atoms, in order."""


class Atom:
    """Encoded bytes of a value that is kept whole."""

    __slots__ = ("_data", "ref", "seen")

    def __init__(self, ref: bytes, data: bytes | None, seen: bytes | None = None) -> None:
        self.ref = ref
        self._data = data
        self.seen = seen

    def data(self, codec: Codec) -> bytes:
        """The bytes; made again for an item that was recognised without encoding it."""
        if self._data is None:
            assert self.seen is not None
            self._data = codec.encode(codec.plain(marshal.loads(self.seen)))
        return self._data


class Branch:
    """A value that is kept as a tree."""

    __slots__ = ("items", "kind", "ref", "typed")

    def __init__(self, kind: int, items: list[tuple[Any, Part]]) -> None:
        self.kind = kind
        self.items = items
        self.typed: tuple[str, int] | None = None
        self.ref: bytes | None = None


Part = Atom | Branch
Memo = dict[bytes, bytes]
"""Items of long lists of a key as they were stored last: marshalled bytes to ref. Marshalling
tells exact types apart and is much cheaper than checking, encoding and hashing again."""


class Splitter:
    """Takes values of one scope apart."""

    def __init__(
        self, codec: Codec, value_hash: Callable[[bytes], bytes], chunk_key: bytes
    ) -> None:
        self._codec = codec
        self._hash = value_hash
        self._chunk_key = chunk_key
        self._cut: re.Pattern[bytes] | None = None

    def atom(self, data: bytes) -> Atom:
        """An atom of encoded bytes."""
        return Atom(self.ref_of(data), data)

    def ref_of(self, data: bytes) -> bytes:
        """The ref of encoded bytes."""
        if len(data) <= refs.INLINE:
            return b"\0" + data
        return refs.by_hash(self._hash(data), len(data))

    def split(self, value: Any, memo: Memo | None = None) -> Part:
        """Atoms and branches of a value, which is checked on the way."""
        if memo:
            try:
                part = self._split_known(value, memo, 0)
            except InvalidValueError:
                part = None  # walked from the top, the error names the whole path
            if part is not None and self._within_limits(part):
                return part
        return self._split(self._codec.plain(value))

    def _within_limits(self, branch: Branch) -> bool:
        """Whether parts that were recognised, and so not counted, surely keep the limits."""
        limits = self._codec.limits
        count = _count(branch)
        if count > limits.items:
            return False
        return count * CHUNK_MOST <= limits.size or _size(branch) <= limits.size

    def _split(self, plain: Any) -> Part:
        kind = type(plain)
        if kind is dict or kind is list:
            if len(plain) <= refs.WHOLE:
                data = self._codec.encode(plain)
                if len(data) <= refs.WHOLE:
                    return self.atom(data)
            if kind is list:
                return self._listed(plain)
            return Branch(refs.MAP, [(_map_key(k), self._split(v)) for k, v in plain.items()])
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
        return self.atom(self._codec.encode(plain))

    def _listed(self, plain: list[Any]) -> Branch:
        """A long list; its items are noted so that setting it again can recognise them."""
        branch = Branch(refs.LIST, [(None, self._split(item)) for item in plain])
        if len(plain) >= MEMO_ITEMS:
            for item, (_, part) in zip(plain, branch.items, strict=True):
                if type(part) is Atom:
                    with suppress(ValueError):
                        part.seen = marshal.dumps(item, 2)
        return branch

    def _split_known(self, value: Any, memo: Memo, depth: int) -> Branch | None:
        """A branch made with the help of the memo, or None where that does not help."""
        kind = type(value)
        if depth > 32:
            return None
        if kind is list and len(value) >= MEMO_ITEMS:
            return self._whole(
                Branch(refs.LIST, [(None, self._known(item, memo)) for item in value])
            )
        if kind is dict and value:
            items: list[tuple[Any, Part]] = []
            for key, inner in value.items():
                if type(key) is not str or not key.isprintable():
                    return None
                part: Part | None = self._split_known(inner, memo, depth + 1)
                items.append((_map_key(key), part or self._split(self._codec.plain(inner))))
            return self._whole(Branch(refs.MAP, items))
        return None

    def _known(self, item: Any, memo: Memo) -> Part:
        try:
            seen = marshal.dumps(item, 2)
        except ValueError:
            return self._split(self._codec.plain(item))
        ref = memo.get(seen)
        if ref is not None:
            return Atom(ref, None, seen)
        part = self._split(self._codec.plain(item))
        if type(part) is Atom:
            part.seen = seen
        return part

    def _whole(self, branch: Branch) -> Branch | None:
        """The branch, unless it is so short that it has to be one atom."""
        total = 1
        for key, part in branch.items:
            if type(part) is Branch:
                return branch
            assert part.ref is not None
            total += refs.size_of(part.ref) + (len(key) if key is not None else 0)
            if total > refs.WHOLE:
                return branch
        return None

    def _chunks(self, kind: int, data: bytes) -> Branch:
        if self._cut is None:
            self._cut = _chunk_pattern(self._chunk_key)
        items: list[tuple[Any, Part]] = []
        start = 0
        while start < len(data):
            found = self._cut.search(data, start + CHUNK_LEAST, start + CHUNK_MOST)
            end = found.end() if found else min(start + CHUNK_MOST, len(data))
            items.append((None, self.atom(self._codec.encode(data[start:end]))))
            start = end
        return Branch(kind, items)

    def again(self, part: Part) -> Part:
        """A part that was taken apart under another scope's keys, under this one's."""
        return self._split(self._whole_plain(part))

    def _whole_plain(self, part: Part) -> Any:
        codec = self._codec
        if type(part) is Atom:
            return codec.plain(codec.plain_reader.decode(part.data(codec)))
        assert type(part) is Branch
        found = [self._whole_plain(item) for _, item in part.items]
        plain: Any = found
        if part.kind == refs.MAP:
            plain = {key: value for (key, _), value in zip(part.items, found, strict=True)}
        elif part.kind != refs.LIST:
            plain = b"".join(found)
            plain = plain.decode() if part.kind == refs.TEXT else plain
        return Typed(*part.typed, plain) if part.typed else plain

    def remember(self, part: Part, memo: Memo) -> int:
        """Note the items of long lists for the next time; returns the bytes held."""
        held = 0
        if type(part) is Branch:
            long = part.kind == refs.LIST and len(part.items) >= MEMO_ITEMS
            for _, item in part.items:
                if type(item) is Branch:
                    held += self.remember(item, memo)
                elif long and type(item) is Atom:
                    held += self._remember_item(item, memo)
        return held

    def _remember_item(self, atom: Atom, memo: Memo) -> int:
        seen = atom.seen
        # Without bytes it was recognised by this very memo. And marshal writes a bytearray like
        # bytes, so what may hold bytes (headers C4 to C6) must not be recognised: it would pass
        # unchecked.
        if seen is None or atom._data is None or _may_hold_bytes(atom._data):
            return 0
        memo[seen] = atom.ref
        return len(seen) + 120


def _may_hold_bytes(data: bytes) -> bool:
    return b"\xc4" in data or b"\xc5" in data or b"\xc6" in data


def _count(branch: Branch) -> int:
    inner = sum(_count(part) for _, part in branch.items if type(part) is Branch)
    return len(branch.items) + inner


def _size(branch: Branch) -> int:
    total = 0
    for _, part in branch.items:
        total += _size(part) if type(part) is Branch else refs.size_of(part.ref or b"\0")
    return total


def _map_key(key: Any) -> Any:
    if type(key) is str:
        if len(key) * 4 > MAP_KEY and len(key.encode()) > MAP_KEY:
            raise LimitExceededError(f"a key of a mapping takes over {MAP_KEY} bytes; shorten it")
    elif type(key) is not int:
        raise InvalidValueError("a long mapping has a key that is neither text nor a number")
    return key


def _chunk_pattern(key: bytes) -> re.Pattern[bytes]:
    """Where long bytes are cut: twelve bytes in a row, each from a secret half of all bytes.

    Keyed, so that the lengths of sealed chunks do not fingerprint known content; a pattern, so
    that the search runs at the speed of the regular expression engine.
    """
    classes = []
    for number in range(12):
        order = hashlib.shake_256(key + bytes([number])).digest(256)
        half = sorted(range(256), key=lambda byte, o=order: (o[byte], byte))[:128]  # type: ignore[misc]
        classes.append(b"[" + b"".join(b"\\x%02x" % byte for byte in half) + b"]")
    return re.compile(b"".join(classes), re.DOTALL)


# shapes: the writer's side


def emit(part: Part, atoms: list[Atom]) -> Any:
    """The shape of a part; its atoms are added in the order the shape consumes them."""
    if type(part) is Atom:
        atoms.append(part)
        return 1
    assert type(part) is Branch
    if part.kind in (refs.BYTES, refs.TEXT):
        atoms.extend(item for _, item in part.items)  # type: ignore[misc]
        shape: list[Any] = [part.kind, len(part.items)]
    elif part.kind == refs.LIST:
        shape = [refs.LIST, emit_parts(part.items, atoms)]
    else:
        shape = [refs.MAP, [key for key, _ in part.items], emit_parts(part.items, atoms)]
    if part.typed:
        return [5, part.typed[0], part.typed[1], shape]
    return shape


def emit_parts(items: list[tuple[Any, Part]], atoms: list[Atom]) -> list[Any]:
    """Shapes of consecutive parts, runs of atoms as one number."""
    parts: list[Any] = []
    run = 0
    for _, part in items:
        if type(part) is Atom:
            atoms.append(part)
            run += 1
            continue
        if run:
            parts.append(run)
            run = 0
        parts.append(emit(part, atoms))
    if run:
        parts.append(run)
    return parts


class Grower:
    """Grows trees from shapes and patches; the same code for writing and for replaying."""

    def __init__(self, trees: Trees) -> None:
        self.trees = trees

    def grow(self, shape: Any, feed: Feed) -> tuple[bytes, Any]:
        """(ref, location) of the value that a shape describes."""
        if shape == 1:
            return next(feed)
        kind = shape[0]
        if kind == 5:
            ref, location = self.grow(shape[3], feed)
            return refs.typed(shape[1], shape[2], ref), location
        if kind in (refs.BYTES, refs.TEXT):
            elements = self.elements(None, [shape[1]], feed)
        elif kind == refs.LIST:
            elements = self.elements(None, shape[1], feed)
        elif kind == refs.MAP:
            elements = self.elements(shape[1], shape[2], feed)
        else:
            raise DamagedRecordError("an entry describes a value in a way that is not known")
        root = self.trees.build(elements)
        return refs.tree(kind, root.hash, root.count, root.size), root

    def elements(self, keys: list[Any] | None, parts: list[Any], feed: Feed) -> list[Element]:
        """The elements that consecutive shapes describe."""
        found: list[Element] = []
        for part in parts:
            if type(part) is int:
                for _ in range(part):
                    ref, location = next(feed)
                    found.append((None, ref, location))
            else:
                ref, location = self.grow(part, feed)
                found.append((None, ref, location))
        if keys is None:
            return found
        return [(k, e[1], e[2]) for k, e in zip(keys, found, strict=True)]

    def patch(self, ref: bytes, location: Any, steps: list[Any], feed: Feed) -> tuple[bytes, Node]:
        """The value after a patch."""
        if ref[0] == refs.TYPED:
            name, version, inner = refs.read_typed(ref)
            inner, root = self.patch(inner, location, steps, feed)
            return refs.typed(name, version, inner), root
        kind, hash_, _, _ = refs.read_tree(ref)
        old = self.trees.load(location, hash_)
        hunks: list[tuple[int, int, list[Element]]] = []
        position = 0
        for step in steps:
            position += step[0]
            if len(step) == 2:
                element = next(self.trees.slice(old, position, position + 1))
                changed, node = self.patch(element[1], element[2], step[1], feed)
                hunks.append((position, 1, [(element[0], changed, node)]))
                position += 1
            else:
                hunks.append((position, step[1], self.elements(step[2], step[3], feed)))
                position += step[1]
        root = self.trees.splice(old, hunks)
        return refs.tree(kind, root.hash, root.count, root.size), root

    def extend(self, ref: bytes, location: Any, elements: list[Element]) -> tuple[bytes, Node]:
        """A list's tree with elements added at its end."""
        kind, hash_, count, _ = refs.read_tree(ref)
        root = self.trees.splice(self.trees.load(location, hash_), [(count, 0, elements)])
        return refs.tree(kind, root.hash, root.count, root.size), root

    # comparing: the writer's side

    def ref_of(self, part: Part) -> bytes:
        """The ref that a part will have."""
        if part.ref is None:
            assert type(part) is Branch
            root = self.trees.build([(key, self.ref_of(item), None) for key, item in part.items])
            ref = refs.tree(part.kind, root.hash, root.count, root.size)
            part.ref = refs.typed(*part.typed, ref) if part.typed else ref
        return part.ref

    def difference(
        self, ref: bytes, location: Any, branch: Branch, atoms: list[Atom]
    ) -> list[Any] | None:
        """The patch that makes a stored tree equal to a branch; None if they are not alike."""
        if not _alike(ref, branch):
            return None
        kind, hash_, _, _ = refs.read_tree(refs.bare(ref))
        old = self.trees.all(self.trees.load(location, hash_))
        inside: set[int] = set()
        if kind == refs.MAP:
            # A long value under the same key is compared inside; until then it counts as equal.
            stored = {e[0]: e[1] for e in old}
            old_ids: list[Any] = [(e[0], e[1]) for e in old]
            new_ids: list[Any] = []
            for number, (key, part) in enumerate(branch.items):
                if type(part) is Branch and _alike(stored.get(key, b"\0"), part):
                    inside.add(number)
                    new_ids.append((key, stored[key]))
                else:
                    new_ids.append((key, self.ref_of(part)))
        else:
            old_ids = [e[1] for e in old]
            new_ids = [self.ref_of(part) for _, part in branch.items]
        steps: list[Any] = []
        done = before = shift = 0
        end = (len(old), len(old), len(new_ids), len(new_ids))
        for span in [*changes(old_ids, new_ids), end]:
            if inside:
                equal = (n for n in range(before, span[0]) if n + shift in inside)
                done = self._steps_inside(steps, old, branch, equal, shift, done, atoms)
            done = self._steps(steps, old, branch, span, done, atoms)
            before, shift = span[1], span[3] - span[1]
        return steps

    def _steps_inside(
        self,
        steps: list[Any],
        old: list[Element],
        branch: Branch,
        positions: Iterable[int],
        shift: int,
        done: int,
        atoms: list[Atom],
    ) -> int:
        """Steps into long values whose key stayed where it was."""
        for position in positions:
            part = branch.items[position + shift][1]
            assert type(part) is Branch
            inner = self.difference(old[position][1], old[position][2], part, atoms)
            if inner:
                steps.append([position - done, inner])
                done = position + 1
        return done

    def _steps(
        self,
        steps: list[Any],
        old: list[Element],
        branch: Branch,
        span: tuple[int, int, int, int],
        done: int,
        atoms: list[Atom],
    ) -> int:
        """Steps for one changed range: inside an element where both sides are trees, else whole."""
        low, high, first, last = span
        keyed = branch.kind == refs.MAP
        while low < high and first < last:
            key, part = branch.items[first]
            element = old[low]
            if element[0] != key or type(part) is not Branch or not _alike(element[1], part):
                break
            inner = self.difference(element[1], element[2], part, atoms)
            steps.append([low - done, inner])
            low += 1
            first += 1
            done = low
        if low == high and first == last:
            return done
        items = branch.items[first:last]
        keys = [key for key, _ in items] if keyed else None
        steps.append([low - done, high - low, keys, emit_parts(items, atoms)])
        return high


def _alike(ref: bytes, branch: Branch) -> bool:
    """Whether both are trees of one kind, inside the same registered type if any."""
    typed = None
    if ref[0] == refs.TYPED:
        name, version, ref = refs.read_typed(ref)
        typed = (name, version)
    return ref[0] == refs.TREE and ref[1] == branch.kind and typed == branch.typed
