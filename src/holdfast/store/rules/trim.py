"""Trimming a list: the oldest items go, the rest is kept as it is.

Positions count from the first item that is there: after a trim of n items, what was at position
n is at 0. A trim returns how many items went, by which whoever holds positions can shift them.

In an entry it is what differs: a patch that removes items at the front, or, where so little is
left that a list is kept whole, that list. So it is cheap however long the list is, and a list
that was trimmed is the same as one that was set to what is left.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.store.names.arguments import check_count


def trim_of(keep_last: int | None, before: int | None) -> dict[str, int]:
    """What an operation says of a trim."""
    given = {"keep_last": keep_last, "before": before}
    found = {name: number for name, number in given.items() if number is not None}
    if len(found) != 1:
        raise InvalidInputError("trim takes keep_last= or before=, one of them")
    check_trim(found)
    return found


def check_trim(value: Any) -> None:
    """Refuse what says of no trim which items go."""
    if type(value) is not dict or list(value) not in (["keep_last"], ["before"]):
        raise InvalidInputError("a trim is {'keep_last': number} or {'before': position}")
    for name, number in value.items():
        check_count(number, name)


def going(length: int, trim: dict[str, int]) -> int:
    """How many items of a list go."""
    if "before" in trim:
        return min(trim["before"], length)
    return max(length - trim["keep_last"], 0)
