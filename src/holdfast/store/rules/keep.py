"""Keep: how much past a scope has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

from holdfast.errors import InvalidInputError
from holdfast.store.journal.declared import Declaration, Declared


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
        if isinstance(self.count, str):
            raise InvalidInputError(
                "Keep is for all of a scope, and takes no prefix: put what has another past into "
                "a scope of its own; store.change() writes both together"
            )
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
