"""Expiry on the async face."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from holdfast.store.cancelling import to_the_end
from holdfast.store.expiring import sweep_state
from holdfast.store.handles import LineHandle
from holdfast.store.history import Plan
from holdfast.store.lifetimes import NEVER, asked_expiry


class StateLasting:
    """How long the keys of a state last."""

    _handle: LineHandle
    _run: Callable[[Plan], Any]

    async def expire(
        self,
        key: str,
        ttl: float | timedelta | None = None,
        *,
        expires: datetime | None = None,
        sliding: bool = False,
    ) -> int:
        """Let a key expire after `ttl` seconds or at a time; its value and version stay.

        Returns the entry's number. A key that is absent is refused with `MissingError`. With
        `sliding`, each read of the value begins the term anew (written after a tenth of it).
        """
        plan = self._handle.plan_expire(key, asked_expiry(ttl, expires, sliding))
        return await self._run(plan)  # type: ignore[no-any-return]

    async def persist(self, key: str) -> int:
        """Let a key never expire; returns the entry's number."""
        return await self._run(self._handle.plan_expire(key, NEVER))  # type: ignore[no-any-return]

    async def sweep(self, *, limit: int | None = None) -> int:
        """Remove keys that have expired, `limit` at most; tells how many.

        They read as absent without it. Each step looks at some thousand keys, not at values, and
        writes one entry (actor `system`); the state before can be travelled to, as always.
        """
        return await to_the_end(sweep_state, self._handle, limit)
