"""Reasons for which an entry or a checkpoint does not go: one table, asked by all that remove.

A row says what is told of what is kept, how that ends, which deeds are refused because of it, and
which are done and leave it where it is. `store.upkeep.holds` finds what is kept, and asks the table
for each deed; nobody else decides. The order is that in which reasons are told.

Some are marks: keys of the main timeline, put there and taken back by the layer above, which no
restore takes back, whatever is declared (`sticky`), and no revert, but for a restart that was asked
for. The key of a mark ends with the checkpoint's id. Timelines may have names that no key can hold
as they are (`a..b`, accents that are signs of their own): of those it has the number, `@3@17`,
which no id looks like, since names have no `@`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.errors import StillNeededError
from holdfast.store.journal.directory import Directory
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.timeline import Found
from holdfast.store.rules.owned import TABLE

RESTART = "restart"
"""Marks a checkpoint from which an agent is to be started again, until that is done."""
PRUNE, RETENTION, END, DELETE, SWEEP = "prune", "retention", "end", "delete", "sweep"
"""What removes something: pruning by hand, retention, ending a timeline, deleting or erasing a
scope, and sweeping what was never finished."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is kept."""

    text: str
    """What is told of it; `{said}` is what somebody said, `{by}` who needs it."""
    until: str
    """What ends it."""
    refused: tuple[str, ...] = ()
    """Deeds that are refused if it would go."""
    left: tuple[str, ...] = (RETENTION,)
    """Deeds that leave it alone."""
    mark: bool = False
    """Whether there are keys that say so (`mark_prefix`)."""
    onward: bool = False
    """Whether all history behind it stays, too."""

    def stops(self, deed: str | None) -> bool:
        """Whether it is asked about for a deed; None: for any."""
        return deed is None or deed in self.refused or deed in self.left


REASONS = {
    "hold": Reason(
        "on hold: {said}",
        "lift that first (`Retention.lift`)",
        refused=(PRUNE, END, DELETE),
        mark=True,
    ),
    "pin": Reason(
        "pinned: {said}",
        "unpin it first (`Retention.unpin`)",
        refused=(PRUNE, END),
        mark=True,
    ),
    RESTART: Reason(
        "a restart: {said}",
        "let the agent be started again first",
        refused=(PRUNE, END),
        mark=True,
    ),
    "fork": Reason("a timeline starts from it", "end that timeline first (`Retention.end`)"),
    "operation": Reason(
        "its operation is not over",
        "let it end, or decide about it first (`Checkpoints.finish`)",
        refused=(PRUNE, END),
        onward=True,
    ),
    "restore": Reason(
        "the backup of a restore that is not confirmed",
        "confirm that first (`Checkpoints.confirm`)",
        refused=(PRUNE,),
    ),
    "recovery": Reason(
        "the state before a recovery that is not over",
        "let it end first (`Recovery.resume`, `Recovery.abandon`)",
        refused=(PRUNE,),
        onward=True,
    ),
    "dependency": Reason(
        "{by} rests on it",
        "let that checkpoint go, or delete its scope first",
        refused=(END,),
    ),
    "newest": Reason("it is the newest entry", "write something behind it"),
    "since": Reason(
        "an operation or recovery that began before it is not over",
        "let that end first",
    ),
    "source": Reason(
        "{by} began from it",
        "prune that one past it first, or end it",
        refused=(END,),
        left=(PRUNE,),
    ),
    "restored": Reason("a restore went back to it", "prune past that restore first", left=(PRUNE,)),
    "upload": Reason(
        "a long value is being written, which no entry names yet",
        "let its writer end; one that is gone is swept after a minute (`Store.sweep`)",
        left=(SWEEP,),
    ),
}


def mark_prefix(kind: str) -> str:
    """How the keys of marks of a kind begin."""
    return f"{TABLE.index.marks}{kind}/"


def marked_id(core: Directory, ledger: Ledger, key: str) -> str:
    """The id of the checkpoint that a mark is on."""
    timeline, _, number = key.split("/", 2)[2].rpartition("@")
    if timeline.startswith("@"):
        known = core.names(ledger).items()
        timeline = next((name for name, at in known if at == int(timeline[1:])), timeline)
    return f"{timeline}@{number}"


def check_unmarked(core: Directory, ledger: Ledger, keys: Callable[[str], Iterable[Found]]) -> None:
    """Refuse to end a scope, also in the commit that would do it, because of a mark that stops it.

    `keys` gives those of the main timeline that begin with something.
    """
    for name, reason in REASONS.items():
        for key, _ in keys(mark_prefix(name)) if reason.mark and DELETE in reason.refused else ():
            word = reason.text.partition(":")[0]
            raise StillNeededError(
                f"{ledger.scope}: {marked_id(core, ledger, key)} is {word}: {reason.until}, or "
                "erase it with despite_holds=True"
            )
