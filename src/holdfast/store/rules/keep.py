"""Keep: how much past a scope has; and trimming: how much of a list stays."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

from holdfast.errors import InvalidInputError
from holdfast.store.journal.declared import Declaration, Declared
from holdfast.store.names.arguments import check_count


@dataclass(frozen=True)
class Keep(Declaration):
    """How much of a timeline's past is kept: `Keep(count=1000)` entries, `Keep(age=timedelta(7))`.

    `Keep(count=0)` keeps none: only the newest state. Without any, all is kept. What is older is
    pruned when `Retention` runs, not at once; checkpoints stay as their own rules say.
    """

    kind: ClassVar[str] = "keep"
    count: int | None = None
    """Entries behind the floor."""
    age: timedelta | None = None

    def __post_init__(self) -> None:
        if (self.count is None) == (self.age is None):
            raise InvalidInputError("Keep takes a count of entries or an age, one of the two")
        if self.count is not None and (type(self.count) is not int or self.count < 0):
            raise InvalidInputError("the count of Keep is a whole number of 0 or more")
        if self.age is not None and (type(self.age) is not timedelta or self.age <= timedelta(0)):
            raise InvalidInputError("the age of Keep is a timedelta of more than 0")

    @property
    def name(self) -> str:
        """There is one for the whole scope."""
        return "past"

    def data(self) -> dict[str, Any]:
        """The age in seconds."""
        return {"count": self.count, "age": self.age.total_seconds() if self.age else None}

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Self:
        """The opposite of `data`."""
        age = data["age"]
        return cls(data["count"], timedelta(seconds=age) if age is not None else None)


def kept_past(declared: Declared) -> Keep | None:
    """What is declared of a timeline's past; None if all of it is kept."""
    found = declared.of(Keep)
    return found[0] if found else None


# ---- trim ---------------------------------------------------------------------------------------
# Trimming a list: the oldest items go, the rest is kept as it is.
#
# Positions count from the first item that is there: after a trim of n items, what was at position
# n is at 0. A trim returns how many items went, by which whoever holds positions can shift them.
#
# In an entry it is what differs: a patch that removes items at the front, or, where so little is
# left that a list is kept whole, that list. So it is cheap however long the list is, and a list
# that was trimmed is the same as one that was set to what is left.


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
