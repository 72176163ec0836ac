"""Expiry on the blocking face."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.store.journal.lifetime import NEVER, Terms, asked_expiry

if TYPE_CHECKING:
    from holdfast.store.history.checkpoint import Plan
    from holdfast.store.history.handle import LineHandle


class StateLasting:
    """How long the keys of a state last."""

    _handle: LineHandle
    _run: Callable[[Plan], Any]

    def expire(
        self,
        key: str,
        ttl: float | timedelta | None = None,
        *,
        expires: datetime | None = None,
        sliding: bool = False,
    ) -> int:
        """Let a key expire after `ttl` seconds or at a time; its value and version stay.

        Returns the entry's number, that of the newest one if there is nothing to change. A key
        that is absent is refused with `MissingError`. With `sliding`, each read of the value
        begins the term anew (written after a tenth of it).
        """
        return self._last(key, asked_expiry(ttl, expires, sliding))

    def persist(self, key: str) -> int:
        """Let a key never expire; returns the entry's number, as `expire` does."""
        return self._last(key, NEVER)

    def _last(self, key: str, terms: Terms) -> int:
        plan = self._handle.plan_expire(key, terms)
        return self._run(plan) if plan is not None else self._handle.place()[2]

    def sweep(self, *, limit: int | None = None) -> int:
        """Remove keys that have expired, `limit` at most; tells how many.

        They read as absent without it. Each step looks at some thousand keys, not at values, and
        writes one entry (actor `system`); the state before can be travelled to, as always.
        """
        from holdfast.store.upkeep.expiry import sweep_state

        return sweep_state(self._handle, limit)
