"""Revert and blame on the blocking face; what they do is loaded when they are first used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.store.history.blame import Blame
    from holdfast.store.history.handle import LineHandle, StoreHandle
    from holdfast.store.names.items import Reverted


class StateUndoing:
    """What a state can say of who wrote it, and undo."""

    _handle: LineHandle

    def revert(
        self,
        *,
        correlation: str | None = None,
        entries: Iterable[Any] | None = None,
        actor: str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Reverted:
        """Undo what some entries did: all of a correlation, those given, or all of an actor.

        Each key that they changed goes back to what it was before the first of them, in one new
        entry, which can be reverted in turn. A key that somebody else changed since is left alone
        and named in `left`, with their entry. Checkpoints, restores and forks stay.
        """
        from holdfast.store.history.revert import revert_state

        return revert_state(
            self._handle,
            correlation=correlation,
            entries=entries,
            actor=actor,
            dry_run=dry_run,
            reason=reason,
        )

    def blame(
        self,
        key: str,
        path: str | Sequence[str | int] | None = None,
        *,
        limit: int = 1000,
        reveal: bool = False,
    ) -> Blame:
        """Who wrote each part of a value: for each field and item the entry that gave it.

        `path` (`steps[3].done`, or `["steps", 3, "done"]`) asks for one part only. At most `limit`
        versions of the key are looked at; what is older than those is marked so. Values of class
        sensitive are masked, unless `reveal` is given.
        """
        from holdfast.store.history.blame import blame_value

        return blame_value(self._handle, key, path, limit, reveal)


class StoreUndoing:
    """Undoing over several scopes."""

    _handle: StoreHandle

    def revert(
        self, *, correlation: str, dry_run: bool = False, reason: str | None = None
    ) -> list[Reverted]:
        """Undo what a correlation did in all scopes, as one change; see `State.revert`."""
        from holdfast.store.history.revert_store import revert_store

        return revert_store(self._handle, correlation, dry_run=dry_run, reason=reason)
