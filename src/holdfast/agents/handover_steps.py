"""Steps of a handover on their way: what a caller asks for, and what is looked at before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from holdfast.agents.handover_records import CONTEXTS, IN, OUT, Package, Record
from holdfast.errors import InvalidInputError
from holdfast.store.commit.request import ScopedChange
from holdfast.store.history.handle import ChangeParts
from holdfast.store.journal.lifetime import check_ttl
from holdfast.store.names.arguments import check_text


@dataclass(frozen=True)
class Asked:
    """How a caller wants a task to be handed over."""

    reason: str
    id: str | None
    context: str
    carry: Iterable[str]
    term: float | timedelta | None = None

    def check(self) -> None:
        """Refuse what cannot be meant."""
        check_text(self.reason, "the reason of a handover", least=1)
        if self.id is not None:
            check_text(self.id, "the id of a handover", 128, least=1)
        if self.context not in CONTEXTS:
            raise InvalidInputError(f"the context of a handover is {', '.join(CONTEXTS)}")

    def seconds(self) -> float | None:
        """How long the offer stands without an answer."""
        return check_ttl(self.term, "term") / 1_000_000 if self.term is not None else None


@dataclass
class Prepared:
    """A step that waits for what the caller's function says of it."""

    parts: ChangeParts
    giver: ScopedChange
    taker: ScopedChange
    record: Record
    package: Package
    start: int
    problems: list[str]
    """What is wrong with the taker's side."""
    known: bool = False
    """It was done before, under the same id."""

    def sides(self) -> tuple[tuple[ScopedChange, str], ...]:
        """Both agents' parts, and where each keeps its record."""
        return (self.giver, OUT), (self.taker, IN)
