"""Stretches of letters' numbers that are not to be processed: removed all at once, or processed
before they came here.

They are kept as pairs (the number before the first, the last), in order, none touching another,
mostly with the id of the last letter. A single number stands for all up to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any


class Stretches:
    """Stretches of numbers; changing them makes others."""

    def __init__(self, kept: list[list[Any]] | int) -> None:
        self.kept: list[list[Any]] = [[0, kept]] if isinstance(kept, int) else kept

    def end(self, number: int) -> int:
        """The last number of the stretch that one is in; 0 if it is in none."""
        return next((high for low, high, *_ in self.kept if low < number <= high), 0)

    def added(self, low: int, high: int, *id: str) -> Stretches:
        """With the numbers behind one and up to another, and the id of that one."""
        made: list[list[Any]] = []
        for one in sorted([*self.kept, [low, high, *id]], key=lambda one: one[:2]):
            if made and one[0] <= made[-1][1]:
                made[-1] = [made[-1][0], *max(made[-1][1:], one[1:])]
            else:
                made.append(one)
        return Stretches(made)

    def behind(self, number: int) -> Stretches:
        """Without those that end with it or before."""
        return Stretches([one for one in self.kept if one[1] > number])

    def between(self, number: int) -> Iterator[tuple[int, float]]:
        """What they leave behind a number, as such pairs; the last one has no end."""
        for low, high, *_ in self.behind(number).kept:
            if low > number:
                yield number, low
            number = high
        yield number, inf

    def left(self, low: int, high: int) -> int:
        """How many numbers behind one and up to another are in none."""
        return sum(
            int(min(stop, high)) - start for start, stop in self.between(low) if start < high
        )
