"""Undoing a correlation in all scopes of a store, as one change."""

from __future__ import annotations

from holdfast.errors import PointNotFoundError, TimelineNotFoundError
from holdfast.store.history.handle import StoreHandle
from holdfast.store.history.revert import Undoing, nobody, reverted
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_flag, check_text
from holdfast.store.names.items import Entry, Left, Reverted
from holdfast.store.names.scope import Scope
from holdfast.store.read.follow import Follower


def revert_store(
    handle: StoreHandle, correlation: str, *, dry_run: bool, reason: str | None
) -> list[Reverted]:
    """Undo the entries of a correlation in all scopes and timelines, as one change."""
    check_flag(dry_run, "dry_run")
    check_text(correlation, "a correlation", least=1)
    lost: list[Reverted] = []

    def look() -> list[Undoing]:
        lost.clear()
        found: dict[tuple[Scope, str], list[Entry]] = {}
        for entry in Follower(handle.core).correlated(correlation, None, None, None):
            found.setdefault((entry.scope, entry.timeline), []).append(entry)
        if not found:
            raise PointNotFoundError(nobody("this store", f"the correlation {correlation!r}"))
        made = []
        for (scope, timeline), those in found.items():
            line = handle.core.current(scope)
            before = line.ledger.before if line is not None else rowkinds.LAST_SEQUENCE
            there = {entry.sequence for entry in those if entry.sequence > before}
            why = "the scope was deleted since, and stays so"
            if there:
                try:
                    undoing = Undoing(handle.line(scope, timeline))
                    undoing.choose_numbers(there)
                    made.append(undoing)
                except TimelineNotFoundError:
                    there, why = set(), "the timeline was ended since, and stays so"
            if gone := [entry for entry in those if entry.sequence not in there]:
                entry = max(gone, key=lambda one: one.sequence)
                lost.append(Reverted(scope, timeline, [], [Left("", why, entry)], None, dry_run))
        return made

    done = reverted(look, dry_run, reason, f"correlation {correlation}")
    return sorted(done + lost, key=lambda one: (str(one.scope), one.timeline))
