"""What `verify` tells, and what its parts add to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec

from holdfast.errors import FormatError, KeyMissingError, PrunedError, StateIntegrityError
from holdfast.store.journal.ledger import ADVICE, Ledger
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds

DAMAGE = (StateIntegrityError, FormatError, KeyMissingError, PrunedError)
"""What a damaged row leads to: its format or key epoch may be what was hit, or it was pruned while
it was looked at, and then the scope is looked at again. A storage that cannot serve, or a key that
was retired, is no damage, and stops the check."""
PLACES = 10
"""Of which a text says the same."""
NAMED = 10
"""Keys that the text of a finding names; it has all of them as data."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: str
    """damage, chain, signature, root, feed, witness, identity, unaccounted, erasure, lookup,
    storage (what the engine itself finds)"""
    place: str
    message: str
    scope: str = ""
    keys: tuple[str, ...] = ()
    """Keys of the newest state that use what is damaged."""
    row: str = ""
    """The key of the row in storage, in hexadecimal, where it is about one row of a scope."""


@dataclass(frozen=True, slots=True)
class KnownLoss:
    """Entries that are lost, as an entry of their timeline tells: a recovery wrote it."""

    scope: str
    place: str
    """The entry that tells of it."""
    what: str
    row: str = ""
    """The key of the row in storage, in hexadecimal, where that is stated of one row."""

    def __str__(self) -> str:
        return "".join(told_together([self]))


def told_together(found: Iterable[Finding | KnownLoss]) -> list[str]:
    """Lines for people: what is said of several places is told of those that follow each other in
    storage at once, and at most `PLACES` times."""
    lines: list[str] = []
    for (before, behind), those in groupby(map(_parts, found), lambda parts: parts[::3]):
        same = list(those)
        runs = rowkinds.runs(bytes.fromhex(row) for _, _, row, _ in same if row)
        places = [rowkinds.describe_run(run) for run in runs]
        places += dict.fromkeys(place for _, place, row, _ in same if not row)
        lines += [before + place + behind for place in places[:PLACES]]
        if places[PLACES:]:
            lines.append(f"{before}{len(places) - PLACES} places more{behind}")
    return lines


def _parts(one: Finding | KnownLoss) -> tuple[str, str, str, str]:
    """What is said before the place, the place, its row, and what is said behind it."""
    scope = f"{one.scope}: " if one.scope else ""
    if isinstance(one, KnownLoss):
        row, place = one.row, rowkinds.describe(bytes.fromhex(one.row))
        if not row or not one.what.startswith(place):
            row = place = ""
        what = one.what.removeprefix(place)
        return f"known to be lost: {scope}", place, row, f"{what}, as {one.place} tells"
    if one.kind == "storage":  # the engine's own words name the place
        return "storage: ", f"{one.place}: {one.message}", "", ""
    keys = f" (keys: {', '.join(one.keys)})" if one.keys else ""
    return f"{one.kind}: {scope}", one.place, one.row, f": {one.message}{keys}"


@dataclass(slots=True)
class Report:
    """What `verify` found and how much it looked at."""

    findings: list[Finding] = field(default_factory=list)
    losses: list[KnownLoss] = field(default_factory=list)
    """What was lost before, and a recovery has answered: that is no finding any more."""
    scopes: int = 0
    erased: int = 0
    """Scopes of which only the tombstone should be left."""
    unswept: int = 0
    """Scopes and subjects whose erase is under way, was not waited for or was cut short: `sweep`,
    or erasing again, ends that. While there are any, change rows that nothing accounts for are not
    found."""
    timelines: int = 0
    entries: int = 0
    checkpoints: int = 0
    signed: int = 0
    values: int = 0
    saves: int = 0
    feed_rows: int = 0
    unfinished: int = 0
    """Long values that are being written, or were given up; `sweep` clears those away."""
    leases: int = 0
    pruned: int = 0
    """Entries of which only the envelope is left; an anchor says so."""
    pruning: int = 0
    """Scopes whose pruning is under way or was cut short; prune again to finish that."""
    subjects: int = 0
    subjects_erased: int = 0
    """Those whose sealed values nobody can read any more; that is no damage."""
    seconds: float = 0.0
    trust: str = ""
    """Whose key vouched for the checkpoints, and what that is worth."""
    resume: str | None = None
    """Give this to `verify(resume=)` to go on; None if it is finished."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found; true of what was looked at."""
        return not self.findings

    @property
    def exit_code(self) -> int:
        """0 all is well, 1 something was found, 3 stopped by the budget with nothing found."""
        return 1 if self.findings else 3 if self.resume else 0

    def __str__(self) -> str:
        looked = (
            f"{self.entries} entries of {self.scopes} scopes, {self.values} values, "
            f"{self.checkpoints} checkpoints ({self.signed} signed), {self.feed_rows} feed rows "
            f"in {self.seconds:.2f} s"
        )
        noted = (
            (self.erased, "scopes erased"),
            (self.unswept, "erases are not finished; sweep does that"),
            (self.unfinished, "long values are not finished; that is no damage"),
            (self.pruned, "entries are pruned, as anchors say"),
            (self.pruning, "scopes are being pruned; prune again what was cut short"),
        )
        lines = [looked, *(f"{count} {text}" for count, text in noted if count)]
        if self.trust:
            lines.append(self.trust)
        lines += told_together(self.losses) + told_together(self.findings)
        if self.findings:
            lines.append(f"{len(self.findings)} findings")
        if self.resume:
            lines.append(f"stopped by the budget; resume with {self.resume!r}")
        if self.ok and not self.resume:
            lines.append("nothing was found")
        return "\n".join(lines)


class Findings:
    """What was found so far: the parts of the check add to it."""

    def __init__(self) -> None:
        self.report = Report()

    def find(
        self, kind: str, place: str, message: str, scope: str = "", keys: Any = (), row: bytes = b""
    ) -> None:
        """Note a finding; an error says its place and what to do, too, which is said elsewhere."""
        message = message.removeprefix(f"{scope}: ").removeprefix(f"{place}: ").removesuffix(ADVICE)
        found = Finding(kind, place, message, scope, tuple(keys), row.hex())
        self.report.findings.append(found)

    def row(self, kind: str, key: bytes, message: str, ledger: Ledger | None = None) -> None:
        """Note a finding about one row, of a scope if one is given."""
        scope = str(ledger.scope) if ledger is not None else ""
        self.find(kind, rowkinds.describe(key), message, scope, row=key)

    def stray(self, key: bytes, what: str = "row") -> None:
        """Note a row, or a cell, that belongs nowhere."""
        self.find("unaccounted", rowkinds.describe(key), f"nothing accounts for this {what}")

    @contextmanager
    def noting(
        self, key: bytes, ledger: Ledger | None = None, *, cell: bool = False
    ) -> Iterator[None]:
        """Around what opens a row, or a cell: that it is damaged is a finding, and no end."""
        scope, row = str(ledger.scope) if ledger is not None else "", b"" if cell else key
        try:
            yield
        except (*DAMAGE, msgspec.DecodeError) as error:
            self.find("damage", rowkinds.describe(key), str(error), scope, row=row)

    def name_keys(
        self, ledger: Ledger, timelines: list[int], damaged: Callable[[Slot], bool]
    ) -> None:
        """Add the finding that names the keys of timelines whose slots are damaged."""
        found: set[str] = set()
        for number in timelines:
            # If the state itself cannot be read, the findings say why.
            with suppress(*DAMAGE):
                line = Timeline(ledger, number).load()
                found |= {key for key, slot in line.scan() if damaged(line.settled(slot))}
        keys = sorted(found)
        if keys:
            some = ", ".join(keys[:NAMED])
            message = f"{len(keys)} keys of the newest state use damaged records: {some}"
            self.find("damage", f"keys of {ledger.scope}", message, str(ledger.scope), keys)
