"""Leases on the async face."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from holdfast.store.lease.lease import Lease
from holdfast.store.lease.lease_cells import LeaseInfo
from holdfast.store.lease.wait import Asking, check_name, given_back
from holdfast.store.names.blocks import async_block
from holdfast.store.names.threads import read_away, surely, to_the_end

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core


async def taken(asked: Asking) -> Lease:
    """The lease, once it can be had; `LeaseHeldError` if that takes too long."""
    while True:
        lease = await to_the_end(asked.take, undo=given_back)
        if lease is not None:
            return lease
        await asyncio.sleep(asked.pause())


class StoreLeasing:
    """The part of a store that gives leases."""

    _core: Core

    @async_block
    async def lease(
        self,
        name: str,
        *,
        duration: float = 30.0,
        wait: float | None = None,
        owner: str | None = None,
    ) -> AsyncIterator[Lease]:
        """Hold a lease inside the block; one holder at a time, in any number of processes.

        All that this thread or task, and tasks that it begins, write to the store inside the block
        is under the lease: once another has taken it over, it is refused with `LeaseLostError`,
        and nothing is written. The lease is renewed in the background. Another gets it when the
        block ends, when it has seen no renewal for `duration` seconds, or at once if the process is
        known to be gone. If it is held, it is waited for without end, or for `wait` seconds (0: not
        at all), then `LeaseHeldError`.
        `owner` is told to others (by default host and process).
        """
        asked = Asking(self._core, name, duration, wait, owner)
        lease = await taken(asked)
        try:
            with lease.fencing():
                yield lease
        finally:
            await surely(lease.release)

    async def leases(self) -> list[LeaseInfo]:
        """All leases that were ever taken, by their names."""
        return await read_away(self._core.leases.infos)

    async def break_lease(self, name: str) -> str | None:
        """Take a lease from its holder, whose changes are refused from now on; tells who it was.

        For operators: without asking the holder, which may be at work.
        """
        return await to_the_end(self._core.leases.break_, check_name(name))
