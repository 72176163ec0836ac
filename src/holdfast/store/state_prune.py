"""Pruning on both faces; what it does is loaded when it is first used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.store.names.threads import to_the_end

if TYPE_CHECKING:
    from holdfast.store.history.handle import LineHandle
    from holdfast.store.names.items import Pruned


class StatePruning:
    """Dropping the content of old entries: the blocking face."""

    _handle: LineHandle

    def prune(
        self,
        before: Any,
        *,
        keep: Iterable[Any] | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Pruned:
        """Drop the content of this timeline's entries before a point, whose state stays.

        Below it the states of checkpoints stay, all or those in `keep`, and of what restores and
        forks rest on. Refused, with `StillNeededError`, if `keep` leaves out one that is pinned,
        on hold or held (`Checkpoints.held`). Nothing else can be had from there again:
        `PrunedError` names the anchor, an entry that announces it before anything is dropped, so
        that `verify` tells it from damage. Done in small commits beside readers and writers; cut
        short, prune again. A dry run says what would go, without writing. For keeping secrets use
        `erase`: copies and free pages may still hold what is dropped here.
        """
        from holdfast.store.rules.checkpoint_marks import prune_unneeded

        return prune_unneeded(self._handle, before, keep=keep, dry_run=dry_run, reason=reason)


class AsyncStatePruning:
    """The same for the async face."""

    _handle: LineHandle

    async def prune(
        self,
        before: Any,
        *,
        keep: Iterable[Any] | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Pruned:
        """Drop the content of this timeline's entries before a point, whose state stays.

        Below it the states of checkpoints stay, all or those in `keep`, and of what restores and
        forks rest on. Refused, with `StillNeededError`, if `keep` leaves out one that is pinned,
        on hold or held (`Checkpoints.held`). Nothing else can be had from there again:
        `PrunedError` names the anchor, an entry that announces it before anything is dropped, so
        that `verify` tells it from damage. Done in small commits beside readers and writers; cut
        short, prune again. A dry run says what would go, without writing. For keeping secrets use
        `erase`: copies and free pages may still hold what is dropped here.
        """
        from holdfast.store.rules.checkpoint_marks import prune_unneeded

        return await to_the_end(
            prune_unneeded, self._handle, before, keep=keep, dry_run=dry_run, reason=reason
        )
