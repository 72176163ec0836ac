"""Expiry on the async face."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.store.history.handle import LineHandle
from holdfast.store.journal.lifetime import NEVER, Terms, asked_expiry
from holdfast.store.names.threads import here_or_away, to_the_end
from holdfast.store.upkeep.expiry import sweep_state

if TYPE_CHECKING:
    from holdfast.store.commits_async import Pump


class StateLasting:
    """How long the keys of a state last."""

    _handle: LineHandle
    _pump: Pump

    async def expire(
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
        return await self._last(key, asked_expiry(ttl, expires, sliding))

    async def persist(self, key: str) -> int:
        """Let a key never expire; returns the entry's number, as `expire` does."""
        return await self._last(key, NEVER)

    async def _last(self, key: str, terms: Terms) -> int:
        storage = self._handle.core.storage
        plan = await here_or_away(storage, self._handle.plan_expire, key, terms)
        if plan is None:
            return (await here_or_away(storage, self._handle.place))[2]
        return await self._pump.commit(plan)  # type: ignore[no-any-return]

    async def sweep(self, *, limit: int | None = None) -> int:
        """Remove keys that have expired, `limit` at most; tells how many.

        They read as absent without it. Each step looks at some thousand keys, not at values, and
        writes one entry (actor `system`); the state before can be travelled to, as always.
        """
        return await to_the_end(sweep_state, self._handle, limit)
