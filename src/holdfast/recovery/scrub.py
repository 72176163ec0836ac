"""Scrubbing on the blocking face: a store verified in the background, a little at a time.

How far it is, and what it has found, is kept in the scope of notices: whichever process scrubs next
goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.errors import (
    InvalidInputError,
    LeaseHeldError,
    LeaseLostError,
    StoreClosedError,
)
from holdfast.recovery.failure_kinds import grouped, log
from holdfast.recovery.heal import Healed, check_copies, heal_all
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.records import book_of, given_core, notices_scope
from holdfast.recovery.recovery import Recovery
from holdfast.store.inner import LONGEST, Finding, StoreHandle, moment, verify_store
from holdfast.store.names.arguments import check_function, check_seconds
from holdfast.store.names.background import Background, Startable
from holdfast.store.names.face import calls, ends, faced, here, writes
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import called
from holdfast.store.store import Store

POSITION = "scrub"
LEASE = "recovery/scrub"


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """What one slice did."""

    entries: int
    """That were looked at."""
    findings: tuple[Finding, ...]
    """What is wrong and could not be healed."""
    healed: tuple[Healed, ...]
    finished: bool
    """Whether all of the store has been looked at since the pass began."""
    seconds: float


class ScrubStatus(Struct, kw_only=True):
    """How far the scrubbing of a store is."""

    passes: int = 0
    """How often all of it was looked at."""
    position: str | None = None
    """Where the next slice begins; None at the beginning."""
    damaged: int = 0
    """Findings of this pass, or the one before, that could not be healed."""
    healed: int = 0
    """Rows, ever."""
    finished_at: datetime | None = None
    """When the last pass ended."""


class ScrubPosition(ScrubStatus, kw_only=True):
    """The same as it is kept: `damaged` are findings of the pass before."""

    found: int = 0
    """Those of this pass so far."""
    # Kept by earlier versions, and not asked any more.
    known: list[str] = []
    seen: list[str] = []
    untold: list[str] = []


@faced
class Scrubber(Startable):
    """Verifies a store little by little, and heals what one of its copies still has.

    `copies` are other open stores of the same lineage. A slice takes about `budget` seconds, and
    every `interval` seconds there is one, inside the block or between `start` and `stop`; of
    several processes, one does it. Damaged rows are set aside; what cannot be healed is told to
    `found(findings)`, by each pass as long as it is so; what that raises is logged. Each slice
    reads the feed from its beginning, and nodes of the scope that it goes on with: give a large
    store a large budget, seldom. Of the rows that belong to no scope, those of the directory
    and of erased subjects are healed; the feed and those of change ids are verified alone. Without
    a copy, rows whose content follows from the rest are made again.
    """

    @calls("found")
    def __init__(
        self,
        store: Any,
        *,
        copies: Sequence[Any] = (),
        budget: float = 1.0,
        interval: float = 60.0,
        found: Callable[[Sequence[Finding]], Any] | None = None,
    ) -> None:
        self._core = given_core(store, "a scrubber")
        self._copies = tuple(given_core(one, "a scrubber") for one in copies)
        for core in (self._core, *self._copies):
            core.check_store()
        check_copies(self._core, self._copies)
        for name, value in (("budget", budget), ("interval", interval)):
            check_seconds(value, name)
            if not 0 < value <= LONGEST:
                raise InvalidInputError(f"{name} is more than 0 seconds, and a day at most")
        if found is not None:
            check_function(found, "found")
        self._handle = StoreHandle(self._core)
        self._book = book_of(self._handle.line(notices_scope()), ScrubPosition)
        self._budget = float(budget)
        self._found = found
        self._background = Background(self._core, "holdfast-scrub", interval, self.slice)

    @calls()
    @here(awaited=True)
    def start(self) -> None:
        """Scrub in a thread, until `stop` or the end of the store."""
        self._core.check_writable()
        self._background.start()

    @ends
    def stop(self) -> None:
        """Stop, after the slice at work."""
        self._background.stop()

    @calls()
    @writes
    def slice(self) -> Scrubbed | None:
        """Look at the next part of the store, now; None if another is at it."""
        try:
            with Store(self._handle).lease(LEASE, duration=max(30.0, 2 * self._budget), wait=0):
                return self._slice()
        except LeaseHeldError:  # another scrubs
            return None

    def status(self) -> ScrubStatus:
        """How far it is."""
        kept = self._book.get(POSITION) or ScrubPosition()
        told = {name: getattr(kept, name) for name in ScrubStatus.__struct_fields__}
        return ScrubStatus(**told | {"damaged": max(kept.damaged, kept.found)})

    def _slice(self) -> Scrubbed:
        copies = [Store(StoreHandle(one)) for one in self._copies]
        Recovery(Store(self._handle), copies=copies)._mend_notices()  # it keeps where it is there
        kept = self._book.get(POSITION) or ScrubPosition()
        report = verify_store(self._core, budget=self._budget, resume=kept.position)
        left, healed = heal_all(self._handle, report.findings, self._copies)
        for scope, those in grouped(left).items():
            log.error("found by scrubbing: %s: %s", scope or "store", "; ".join(map(str, those)))
            if scope:
                Quarantine(self._handle, Scope.parse(scope)).add(those)
        if left and self._found is not None:
            try:
                called(self._found, left)
            except (LeaseLostError, StoreClosedError):  # another goes on with it
                raise
            except Exception:  # theirs; scrubbing goes on
                log.warning("what scrubbing found is told again by the next pass", exc_info=True)
        kept.known = kept.seen = kept.untold = []
        kept.position, kept.healed = report.resume, kept.healed + len(healed)
        kept.found += len(left)
        finished = report.resume is None
        if finished:
            kept.finished_at = moment(self._core.clock.claimed())
            kept.damaged, kept.found, kept.passes = kept.found, 0, kept.passes + 1
        self._book.step(lambda page: page.put(POSITION, kept))
        return Scrubbed(report.entries, tuple(left), tuple(healed), finished, report.seconds)
