"""Describing values in entries, and putting back together only what changed.

A value is taken apart into atoms and branches (see `split`): a branch is a tree whose
elements are atoms or branches. An entry carries the atoms in the order in which a small *shape*
consumes them, so that the writer and every later reader grow the same trees with the same code.

Shapes: `1` one atom; `[1, parts]` a list, `[2, keys, parts]` a mapping, `[3, n]` bytes and
`[4, n]` text in n chunks, `[5, name, version, shape]` a registered object; `[6, ref, place, upload,
packs, packs of nodes]` a value that was written ahead. In `parts` a number stands for so many
atoms. A *patch* is a list of steps over the old elements: `[gap, remove, keys, parts]` replaces a
range, `[gap, patch]` changes one element inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from datetime import datetime
from typing import Any, TypeVar

from holdfast.errors import DamagedRecordError
from holdfast.store.tree import refs
from holdfast.store.tree.sequence import Range, changes
from holdfast.store.tree.split import Atom, Branch, Part
from holdfast.store.tree.tree import Element, Node, Trees

AHEAD = 6
"""The shape of a value whose rows were written before the entry: it takes no atoms."""
Feed = Iterator[tuple[bytes, Any]]
"""(ref, place) of an entry's atoms, in order."""


# shapes: the writer's side


def emit(part: Part, atoms: list[Atom]) -> Any:
    """The shape of a part; its atoms are added in the order the shape consumes them."""
    if type(part) is Atom:
        atoms.append(part)
        return 1
    assert type(part) is Branch
    if part.kind in (refs.BYTES, refs.TEXT):
        atoms.extend(part.parts)  # type: ignore[arg-type]
        shape: list[Any] = [part.kind, len(part.parts)]
    elif part.kind == refs.LIST:
        shape = [refs.LIST, emit_parts(part.parts, atoms)]
    else:
        shape = [refs.MAP, part.keys, emit_parts(part.parts, atoms)]
    if part.typed:
        return [5, part.typed[0], part.typed[1], shape]
    return shape


def emit_parts(parts: list[Part], atoms: list[Atom]) -> list[Any]:
    """Shapes of consecutive parts, runs of atoms as one number."""
    shapes: list[Any] = []
    run = 0
    for part in parts:
        if type(part) is Atom:
            atoms.append(part)
            run += 1
            continue
        if run:
            shapes.append(run)
            run = 0
        shapes.append(emit(part, atoms))
    if run:
        shapes.append(run)
    return shapes


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
        if kind == AHEAD:
            return shape[1], tuple(shape[2])
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
            keys = part.keys or [None] * len(part.parts)
            found = [self.ref_of(inner) for inner in part.parts]
            root = self.trees.build([(k, r, None) for k, r in zip(keys, found, strict=True)])
            ref = refs.tree(part.kind, root.hash, root.count, root.size)
            part.ref = refs.typed(*part.typed, ref) if part.typed else ref
        return part.ref

    def difference(
        self, ref: bytes, location: Any, branch: Branch, atoms: list[Atom], same: bool | None = None
    ) -> list[Any] | None:
        """The patch that makes a stored tree equal to a branch; None if they are not alike.

        `same` says whether the stored tree is what the branch was compared with when it was
        taken apart; left out, that is found out.
        """
        if not _alike(ref, branch):
            return None
        if same is None:
            same = branch.before is not None and branch.before.ref == ref
        if same and branch.spans is not None:
            return _replacing(branch, branch.spans, atoms)
        hash_ = refs.read_tree(refs.bare(ref))[1]
        old = self.trees.all(self.trees.load(location, hash_))
        inside: set[int] = set()
        if branch.keys is not None:
            # A long value under the same key is compared inside; until then it counts as equal.
            stored = {e[0]: e[1] for e in old}
            old_ids: list[Any] = [(e[0], e[1]) for e in old]
            new_ids: list[Any] = []
            for number, (key, part) in enumerate(zip(branch.keys, branch.parts, strict=True)):
                if type(part) is Branch and _alike(stored.get(key, b"\0"), part):
                    inside.add(number)
                    new_ids.append((key, stored[key]))
                else:
                    new_ids.append((key, self.ref_of(part)))
        else:
            old_ids = [e[1] for e in old]
            new_ids = [part.ref or self.ref_of(part) for part in branch.parts]
        steps: list[Any] = []
        done = before = shift = 0
        end = (len(old), len(old), len(new_ids), len(new_ids))
        for span in [*changes(old_ids, new_ids), end]:
            if inside:
                equal = (n for n in range(before, span[0]) if n + shift in inside)
                done = self._steps_inside(steps, old, branch, equal, shift, done, atoms, same)
            done = self._steps(steps, old, branch, span, done, atoms, same)
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
        same: bool,
    ) -> int:
        """Steps into long values whose key stayed where it was."""
        for position in positions:
            part = branch.parts[position + shift]
            assert type(part) is Branch
            still = same and part.before is not None
            inner = self.difference(old[position][1], old[position][2], part, atoms, still)
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
        same: bool,
    ) -> int:
        """Steps for one changed range: inside an element where both sides are trees, else whole."""
        low, high, first, last = span
        keys = branch.keys
        while low < high and first < last:
            key, part = keys[first] if keys is not None else None, branch.parts[first]
            element = old[low]
            if element[0] != key or type(part) is not Branch or not _alike(element[1], part):
                break
            still = same and part.before is not None
            inner = self.difference(element[1], element[2], part, atoms, still)
            steps.append([low - done, inner])
            low += 1
            first += 1
            done = low
        if low == high and first == last:
            return done
        named = keys[first:last] if keys is not None else None
        steps.append([low - done, high - low, named, emit_parts(branch.parts[first:last], atoms)])
        return high


def _replacing(branch: Branch, spans: list[Range], atoms: list[Atom]) -> list[Any]:
    """The patch of a list of which it is known what differs."""
    steps: list[Any] = []
    done = 0
    for low, high, first, last in spans:
        new = emit_parts(branch.parts[first:last], atoms)
        steps.append([low - done, high - low, None, new])
        done = high
    return steps


def _alike(ref: bytes, branch: Branch) -> bool:
    """Whether both are trees of one kind, inside the same registered type if any."""
    typed = None
    if ref[0] == refs.TYPED:
        name, version, ref = refs.read_typed(ref)
        typed = (name, version)
    return ref[0] == refs.TREE and ref[1] == branch.kind and typed == branch.typed


# ---- value copy ---------------------------------------------------------------------------------
# A copy of a value that nobody else can change, and how long a value is at first sight.


_T = TypeVar("_T")
_ATOMS = frozenset((str, int, float, bool, type(None), bytes, datetime))
"""Types whose values nobody can change."""
_OBJECT = 64
"""What an object counts for: as much as the shortest mappings."""


def copied(value: _T) -> _T:
    """A value of its own: `deepcopy`, five times as fast for plain data.

    What cannot be copied is given as it is: who takes it apart says what is wrong with it.
    """
    try:
        return _copied(value, deepcopy)  # type: ignore[no-any-return]
    except Exception:  # it holds itself, is too deep, or is no data (a lock, a generator)
        return value


def copied_plain(value: _T) -> _T | None:
    """The same if it is plain data; None if not: that is copied more slowly than it is encoded."""
    try:
        return _copied(value, _no_copy)  # type: ignore[no-any-return]
    except Exception:
        return None


def _copied(value: Any, other: Callable[[Any], Any]) -> Any:
    kind = type(value)
    if kind is dict:
        made = value.copy()
        for key, item in value.items():
            if type(item) not in _ATOMS:
                made[key] = _copied(item, other)
        return made
    if kind is list:
        return [item if type(item) in _ATOMS else _copied(item, other) for item in value]
    return value if kind in _ATOMS else other(value)


def _no_copy(value: Any) -> Any:
    raise TypeError(type(value))


def is_longer(value: Any, size: int) -> bool:
    """Whether a value takes more than so many bytes; no more than those are looked at.

    Of objects it is not known.
    """
    try:
        return _left(value, size) < 0
    except RecursionError:  # it is too deep, or holds itself: who takes it apart says so
        return False


def _left(value: Any, size: int) -> int:
    """What is left of a size behind a value; less than 0 if it is longer."""
    kind = type(value)
    if kind is str or kind is bytes:
        return size - len(value)
    if kind is not dict and kind is not list:
        return size - _OBJECT
    for item in value if kind is list else value.values():
        kind = type(item)
        if kind is str:  # as most are: here without a further call
            size -= 8 + len(item)
        elif kind in _ATOMS and kind is not bytes:
            size -= 8
        else:
            size = _left(item, size - 8)
        if size < 0:
            break
    return size
