"""What differs between two states, as data and for people.

Only parts of the two trees that differ are read. `MOST` changes are listed one by one; the rest is
counted, and its keys are named.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.seal.codec import Typed
from holdfast.store.names.items import MASK
from holdfast.store.tree.sequence import changes
from holdfast.store.tree.tree import Element, Node, Trees

MOST = 1000


class Deleted:
    """What `DELETED` is: it stands for a value where there is none."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DELETED"

    def __reduce__(self) -> str:
        return "DELETED"  # a copy of it is itself


DELETED = Deleted()
MISSING: Any = DELETED


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs."""

    key: str
    path: str
    """The key, then the way into the value, for people: `plan.steps[3].done`. Names that could be
    taken for something else are quoted (`plan['a.b']`); those that are numbers stand as `plan.5`.
    """
    kind: str
    """added, removed or changed"""
    before: Any = None
    after: Any = None
    steps: tuple[Any, ...] = ()
    """The way into the value as data: names in mappings and objects, numbers of items in lists.

    An item is counted in the newer list, one that was removed in the older one.
    """


@dataclass(slots=True)
class Diff:
    """All that differs between two points; empty (and false) if nothing does."""

    before: str
    after: str
    changes: list[Difference] = field(default_factory=list)
    omitted: int = 0
    """Changes that are not listed one by one because there are too many."""
    more: list[str] = field(default_factory=list)
    """Their keys."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.omitted)

    def __len__(self) -> int:
        return len(self.changes) + self.omitted

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.changes)

    @property
    def keys(self) -> list[str]:
        """All keys that differ."""
        return list(dict.fromkeys([*(change.key for change in self.changes), *self.more]))

    def omit(self, key: str) -> None:
        """Count a change of a key, without listing it."""
        self.omitted += 1
        if self.more[-1:] != [key]:
            self.more.append(key)

    def __str__(self) -> str:
        lines = [f"--- {self.before}", f"+++ {self.after}"]
        for change in self.changes:
            if change.kind == "added":
                lines.append(f"+ {change.path}: {shorten(change.after)}")
            elif change.kind == "removed":
                lines.append(f"- {change.path}: {shorten(change.before)}")
            else:
                before, after = contrast(change.before, change.after)
                lines.append(f"~ {change.path}: {before} → {after}")
        if self.omitted:
            lines.append(f"… and {self.omitted} more")
        return "\n".join(lines)


def shorten(value: Any, width: int = 80) -> str:
    """A value on one line, cut where it is long."""
    return _cut(_written(value), 0, width)


def _written(value: Any) -> str:
    """A value as text; Python writes no numbers of more than some thousand digits."""
    try:
        return repr(value)
    except ValueError:
        return f"<{type(value).__name__} with a number that is too long to be shown>"


def contrast(*values: Any) -> list[str]:
    """Values on one line each; of long ones that begin alike, what is around where they differ."""
    return contrasted([_written(value) for value in values])


def contrasted(texts: Sequence[str], width: int = 80) -> list[str]:
    """The same of texts: all that two of them show alike is cut where it is long."""
    found = []
    for number, text in enumerate(texts):
        others = [other for at, other in enumerate(texts) if at != number and other != text]
        alike = max((_alike(text, other) for other in others), default=0)
        found.append(_cut(text, alike - width // 4 if alike > width * 3 // 4 else 0, width))
    return found


def _cut(text: str, start: int, width: int) -> str:
    """So much of a text, with signs where it is cut."""
    if len(text) <= width:
        return text
    start = min(start, len(text) - width + 1)
    if start <= 0:
        return text[: width - 1] + "…"
    rest = text[start:]
    return "…" + (rest if len(rest) < width else rest[: width - 2] + "…")


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


_PLAIN = re.compile(r"[^\W\d][\w/:@$-]*")


def into(path: str, name: Any) -> str:
    """The way on from a path to what a mapping holds under a name."""
    quoted = isinstance(name, str) and not _PLAIN.fullmatch(name)
    return f"{path}[{name!r}]" if quoted else f"{path}.{name}"


def differing(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Keys of which two timelines in memory say different things, above their trees."""
    return {key for key in {**before, **after} if before.get(key, 0) != after.get(key, 0)}


def tree_changes(
    trees: Trees, old: Node, new: Node, prefix: str = ""
) -> Iterator[tuple[str, Element | None, Element | None]]:
    """(key, old element, new element) wherever two indexes differ, in key order.

    With a prefix, of the keys that begin with it; what lies apart from them is not read.
    """
    left, right = [(old.level + 1, _top(old))], [(new.level + 1, _top(new))]
    while left or right:
        if left and right and _same_part(left[-1], right[-1]):
            left.pop()
            right.pop()
            continue
        if left and (not right or left[-1][0] >= right[-1][0]) and left[-1][0]:
            _unfold(trees, left, prefix)
            continue
        if right and right[-1][0]:
            _unfold(trees, right, prefix)
            continue
        a = left[-1][1] if left else None
        b = right[-1][1] if right else None
        if b is None or (a is not None and a[0] < b[0]):
            left.pop()
            assert a is not None
            yield a[0], a, None
        elif a is None or b[0] < a[0]:
            right.pop()
            yield b[0], None, b
        else:
            left.pop()
            right.pop()
            yield a[0], a, b


def _same_part(left: tuple[int, Element], right: tuple[int, Element]) -> bool:
    """Whether two subtrees, or two leaf elements, are equal."""
    level, element = left
    if level != right[0] or element[1] != right[1][1]:
        return False
    return level > 0 or bool(element[0] == right[1][0])


def _top(node: Node) -> Element:
    return (None, node.hash, node)


def _unfold(trees: Trees, stack: list[tuple[int, Element]], prefix: str) -> None:
    level, element = stack.pop()
    elements: Sequence[Element] = trees.load(element[2], element[1]).elements
    if prefix:
        # A child stands under the last key in it. So the first one whose key is behind the prefix
        # may still begin with keys that have it; none that follow can.
        first = last = bisect_left(elements, prefix, key=lambda element: element[0])
        while last < len(elements) and elements[last][0].startswith(prefix):
            last += 1
        elements = elements[first : last if level == 1 else last + 1]
    stack.extend((level - 1, child) for child in reversed(elements))


def value_changes(
    key: str, path: str, before: Any, after: Any, found: Diff, steps: tuple[Any, ...] = ()
) -> None:
    """Add what differs between two values, at any depth; of objects in plain form, by field."""
    if before is after:
        return
    if len(found.changes) >= MOST:
        if not same(before, after):
            found.omit(key)
        return
    if before is MISSING:
        found.changes.append(Difference(key, path, "added", None, after, steps))
    elif after is MISSING:
        found.changes.append(Difference(key, path, "removed", before, None, steps))
    elif type(before) is dict and type(after) is dict:
        for name in {**before, **after}:
            old, new = before.get(name, MISSING), after.get(name, MISSING)
            if not same(old, new):
                value_changes(key, into(path, name), old, new, found, (*steps, name))
        if [name for name in before if name in after] != [name for name in after if name in before]:
            changed = Difference(key, path, "changed", before, after, steps)  # the order
            found.changes.append(changed)
    elif type(before) is list and type(after) is list:
        ours, theirs = [identity(item) for item in before], [identity(item) for item in after]
        for low, high, first, last in changes(ours, theirs):
            for offset in range(max(high - low, last - first)):
                was = before[low + offset] if low + offset < high else MISSING
                now = after[first + offset] if first + offset < last else MISSING
                number = first + offset if now is not MISSING else low + offset
                value_changes(key, f"{path}[{number}]", was, now, found, (*steps, number))
    elif (
        type(before) is type(after) is Typed
        and (before.name, before.version) == (after.name, after.version)
        and type(before.value) is type(after.value) is dict
    ):
        value_changes(key, path, before.value, after.value, found, steps)
    elif not same(before, after):
        found.changes.append(Difference(key, path, "changed", before, after, steps))


def masked_changes(key: str, before: Any, after: Any, found: Diff) -> None:
    """Add that two values differ, without showing what they are or where."""
    if before is MISSING or after is MISSING:
        was, now = (value if value is MISSING else MASK for value in (before, after))
        value_changes(key, key, was, now, found)
    elif not same(before, after):
        found.changes.append(Difference(key, key, "changed", MASK, MASK))


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same, types included (1 is not True is not 1.0)."""
    return a is b or identity(a) == identity(b)


def identity(value: Any) -> Any:
    """Something hashable that is equal just for values that are the same.

    Flat, each container with its length before its parts: Python's stack would end at tuples as
    deep in each other as values may be.
    """
    if type(value) not in _NESTED:
        return _atom(value)
    found: list[Any] = []
    left = [value]
    while left:
        one = left.pop()
        if type(one) is dict:
            found.append((dict, *one))
            left += one.values()
        elif type(one) is list:
            found.append((list, len(one)))
            left += one
        elif type(one) is Typed:
            found.append((Typed, one.name, one.version))
            left.append(one.value)
        else:
            found.append(_atom(one))
    return tuple(found)


_NESTED = (dict, list, Typed)


def _atom(value: Any) -> Any:
    if type(value) is float:
        return (float, value.hex())
    if type(value) is datetime:
        return (datetime, repr(value))  # equal instants in two zones are two values
    try:
        hash(value)
    except TypeError:
        return (type(value), repr(value))
    return (type(value), value)
