"""What differs between two sequences, as the ranges to replace.

Patience: what occurs exactly once on both sides anchors the rest, so that a slid window, or
several far changes, cost what they changed. Effort is near linear, and what is done for each
item runs inside the interpreter's own functions; a stretch without anchors is compared only as
far as it is short, else it is replaced whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import compress, count
from operator import ne

Range = tuple[int, int, int, int]
"""(low, high) of the old sequence are replaced by (low, high) of the new one."""

_SHORT = 200
_NEAR = 64
"""How far behind its place an item is looked for by `nearby`."""
_FEW = 64
"""New items before it gives up."""
_CLOSE = 8
"""New items side by side that are taken for new without looking for them elsewhere."""


def nearby(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Range] | None:
    """The ranges, if few items are new and what stayed is near where it was; else None.

    For items that are long, so that comparing them is cheap and hashing is not.
    """
    found: list[Range] = []
    gone: list[Hashable] = []
    low = at = lost = 0
    while True:
        same = _agreeing(old, new, low, at)
        low, at = low + same, at + same
        if low == len(old) or at == len(new):
            break
        start, first = low, at
        while at < len(new):
            try:
                low = old.index(new[at], start, start + _NEAR)
                break
            except ValueError:
                if lost == _FEW or new[at] in gone:
                    return None
                at, lost = at + 1, lost + 1
        else:
            low = len(old)
        apart = at - first > _CLOSE or low == len(old)
        if apart and not set(old).isdisjoint(new[first:at]):
            return None
        gone += old[start:low]
        found.append((start, low, first, at))
    if low < len(old) or at < len(new):
        if not set(gone).isdisjoint(new[at:]):
            return None
        found.append((low, len(old), at, len(new)))
    return found


def _agreeing(old: Sequence[Hashable], new: Sequence[Hashable], low: int, at: int) -> int:
    """How many items are equal from two places on; looked at in ever longer pieces."""
    start, step = low, 32
    while True:
        mine, other = old[low : low + step], new[at : at + step]
        length = min(len(mine), len(other))
        same = next(_unequal(mine, other), length)
        low, at = low + same, at + same
        if same < step:
            return low - start
        step *= 2


def changes(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Range]:
    """The ranges in order; empty if the sequences are equal."""
    if len(old) == len(new):
        # Mostly a few items were changed where they stand, which needs no anchors to see.
        places = list(_unequal(old, new))
        if len(places) <= max(4, len(old) // 50):
            return _runs(places)
    found = nearby(old, new)
    return found if found is not None else aligned(old, new)


def aligned(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Range]:
    """The same for who asks what became of each item: one that moved is not taken for a change
    of all that it passed, however few those are."""
    return list(_compare(old, new, 0, 0))


def _unequal(old: Iterable[object], new: Iterable[object]) -> Iterator[int]:
    """The places at which two sequences differ, as far as both go."""
    return compress(count(), map(ne, old, new))


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


def _compare(old: Sequence[Hashable], new: Sequence[Hashable], a: int, c: int) -> Iterator[Range]:
    """The ranges of two stretches that begin at a and c."""
    length = min(len(old), len(new))
    start = next(_unequal(old, new), length)
    end = min(next(_unequal(reversed(old), reversed(new)), length), length - start)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    a, c = a + start, c + start
    if not old or not new:
        if old or new:
            yield (a, a + len(old), c, c + len(new))
        return
    here, there = _anchors(old, new)
    if not here:
        yield from _short(old, new, a, c)
        return
    low = first = 0
    for i, j in zip([*here, len(old)], [*there, len(new)], strict=True):
        if i > low or j > first:
            yield from _compare(old[low:i], new[first:j], a + low, c + first)
        low, first = i + 1, j + 1


def _anchors(old: Sequence[Hashable], new: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """Places, on each side, of the longest chain of items that occur once on both and rise."""
    here, there = _once(old), _once(new)
    common = list(filter(there.__contains__, here))
    low, first = list(map(here.__getitem__, common)), list(map(there.__getitem__, common))
    if first != sorted(first):
        chosen = _rising(first)
        low, first = [low[n] for n in chosen], [first[n] for n in chosen]
    return low, first


def _once(items: Sequence[Hashable]) -> dict[Hashable, int]:
    """The places of the items that occur once, in order."""
    places = dict(zip(items, count()))
    if len(places) < len(items):
        for item, times in Counter(items).items():
            if times > 1:
                del places[item]
    return places


def _rising(numbers: list[int]) -> list[int]:
    """Which numbers make the longest chain that rises."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        length = bisect_left(ends, number)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(number)
            last.append(place)
        else:
            ends[length] = number
            last[length] = place
    chosen: list[int] = []
    place = last[-1]
    while place >= 0:
        chosen.append(place)
        place = before[place]
    return chosen[::-1]


def _short(old: Sequence[Hashable], new: Sequence[Hashable], a: int, c: int) -> Iterator[Range]:
    if len(old) > _SHORT or len(new) > _SHORT:
        yield (a, a + len(old), c, c + len(new))
        return
    from difflib import SequenceMatcher  # here, because few changes need it and it loads slowly

    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield (a + i1, a + i2, c + j1, c + j2)
