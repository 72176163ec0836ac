"""Merging on both faces; what it does is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.store.names.threads import to_the_end

if TYPE_CHECKING:
    from holdfast.store.history.handle import LineHandle
    from holdfast.store.history.merge import Merged, Strategy


class StateMerging:
    """What a state can take over of another timeline: the blocking face."""

    _handle: LineHandle

    def merge(
        self,
        other: Any,
        *,
        strategy: Strategy = "ask",
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Merged:
        """Bring what another timeline of the scope (its name, a state, a point) became into this.

        What only one of the two changed since their newest common past is taken from that one:
        by key, inside of values by field and by item. It becomes one entry; the other timeline
        stays as it is, and merging it again brings only what is new.

        `strategy` decides what both changed in different ways: `ours`, `theirs`, `newest` (who
        wrote the key last), `both` (theirs beside ours, as NAME~theirs; ours of what Holdfast
        keeps under `$`), or a function that gets each `MergeConflict` and returns the value, or
        `DELETED`; it may be called again when somebody was faster, in another thread, and should
        have no effects of its own. With `ask` a merge that has conflicts changes nothing and raises
        `MergeConflictError`, which lists all of them. A dry run returns them, with the diff of what
        would change.
        """
        from holdfast.store.history.merge import merge_state

        return merge_state(self._handle, other, strategy=strategy, dry_run=dry_run, reason=reason)


class AsyncStateMerging:
    """The same for the async face."""

    _handle: LineHandle

    async def merge(
        self,
        other: Any,
        *,
        strategy: Strategy = "ask",
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Merged:
        """Bring what another timeline of the scope (its name, a state, a point) became into this.

        What only one of the two changed since their newest common past is taken from that one:
        by key, inside of values by field and by item. It becomes one entry; the other timeline
        stays as it is, and merging it again brings only what is new.

        `strategy` decides what both changed in different ways: `ours`, `theirs`, `newest` (who
        wrote the key last), `both` (theirs beside ours, as NAME~theirs; ours of what Holdfast
        keeps under `$`), or a function that gets each `MergeConflict` and returns the value, or
        `DELETED`; it may be called again when somebody was faster, in another thread, and should
        have no effects of its own. With `ask` a merge that has conflicts changes nothing and raises
        `MergeConflictError`, which lists all of them. A dry run returns them, with the diff of what
        would change.
        """
        from holdfast.store.history.merge import merge_state

        return await to_the_end(
            merge_state, self._handle, other, strategy=strategy, dry_run=dry_run, reason=reason
        )
