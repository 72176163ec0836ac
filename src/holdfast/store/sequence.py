"""What differs between two sequences, as the ranges to replace.

Patience: what occurs exactly once on both sides anchors the rest, so that a slid window, or
several far changes, cost what they changed. Effort is near linear; a stretch without anchors
is compared only as far as it is short, else it is replaced whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence

Range = tuple[int, int, int, int]
"""(low, high) of the old sequence are replaced by (low, high) of the new one."""

_SHORT = 200


def changes(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Range]:
    """The ranges in order; empty if the sequences are equal."""
    if len(old) == len(new):
        # Mostly a few items were changed where they stand, which needs no anchors to see.
        places = [n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        if len(places) <= max(4, len(old) // 50):
            return _runs(places)
    return list(_compare(old, new, 0, len(old), 0, len(new)))


def _runs(places: list[int]) -> list[Range]:
    """Neighbouring places as ranges."""
    found: list[Range] = []
    for place in places:
        if found and found[-1][1] == place:
            low = found[-1][0]
            found[-1] = (low, place + 1, low, place + 1)
        else:
            found.append((place, place + 1, place, place + 1))
    return found


def _compare(
    old: Sequence[Hashable], new: Sequence[Hashable], a: int, b: int, c: int, d: int
) -> Iterator[Range]:
    while a < b and c < d and old[a] == new[c]:
        a += 1
        c += 1
    while a < b and c < d and old[b - 1] == new[d - 1]:
        b -= 1
        d -= 1
    if a == b or c == d:
        if a < b or c < d:
            yield (a, b, c, d)
        return
    anchors = _anchors(old, new, a, b, c, d)
    if not anchors:
        yield from _short(old, new, a, b, c, d)
        return
    for i, j in anchors:
        if i < a or j < c:
            continue  # already taken in by an equal run before it
        yield from _compare(old, new, a, i, c, j)
        a, c = i + 1, j + 1
        while a < b and c < d and old[a] == new[c]:
            a += 1
            c += 1
    yield from _compare(old, new, a, b, c, d)


def _anchors(
    old: Sequence[Hashable], new: Sequence[Hashable], a: int, b: int, c: int, d: int
) -> list[tuple[int, int]]:
    """The longest rising chain of items that occur once on each side."""
    once: dict[Hashable, int] = {}
    for i in range(a, b):
        once[old[i]] = -1 if old[i] in once else i
    where: dict[Hashable, int] = {}
    for j in range(c, d):
        where[new[j]] = -1 if new[j] in where else j
    pairs = [(once[item], j) for item, j in where.items() if j >= 0 and once.get(item, -1) >= 0]
    pairs.sort(key=lambda pair: pair[1])
    return _rising(pairs)


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, (i, _) in enumerate(pairs):
        place = bisect_left(ends, i)
        before.append(last[place - 1] if place else -1)
        if place == len(ends):
            ends.append(i)
            last.append(number)
        else:
            ends[place] = i
            last[place] = number
    chain: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]


def _short(
    old: Sequence[Hashable], new: Sequence[Hashable], a: int, b: int, c: int, d: int
) -> Iterator[Range]:
    if b - a > _SHORT or d - c > _SHORT:
        yield (a, b, c, d)
        return
    from difflib import SequenceMatcher  # here, because few changes need it and it loads slowly

    matcher = SequenceMatcher(None, old[a:b], new[c:d], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            yield (a + i1, a + i2, c + j1, c + j2)
