"""Asking for a lease and waiting for it."""

from __future__ import annotations

import time
from typing import Protocol

from holdfast.errors import InvalidInputError, InvalidKeyError, LeaseHeldError
from holdfast.store.lease.lease import Lease, Leases
from holdfast.store.lease.process import shown, this_process
from holdfast.store.names.arguments import check_seconds, check_text, is_seconds
from holdfast.store.names.scope import check_key
from holdfast.store.names.threads import safe_point, to_the_end

SHORTEST, LONGEST = 0.1, 86_400.0
"""Seconds that a lease may last without a beat."""
FIRST_LOOK, LAST_LOOK = 0.001, 0.05
"""Seconds between two looks at a lease that is held: at first, and after some time."""


class Lending(Protocol):
    """An open store, as far as it has leases."""

    @property
    def leases(self) -> Leases:
        """Those of it."""
        ...


class Asking:
    """Somebody who wants a lease, and waits for it if need be."""

    def __init__(
        self,
        core: Lending,
        name: str,
        duration: float,
        wait: float | None,
        owner: str | None,
        along: str | None = None,
    ) -> None:
        self._core = core
        self._along = along
        self._name = check_name(name)
        if not is_seconds(duration, SHORTEST, LONGEST):
            raise InvalidInputError(f"duration is {SHORTEST} to {LONGEST:.0f} seconds")
        check_seconds(wait, "wait")
        if owner is not None:
            check_text(owner, "the owner of a lease", 256, least=1)
            if shown(owner) != owner:
                raise InvalidInputError(
                    "the owner of a lease ends like the name under which a process holds leases, "
                    "and would be taken for one; leave it out, or give another"
                )
        self._duration = float(duration)
        self._owner = owner or this_process()
        self._wait = wait
        self._end = time.monotonic() + wait if wait is not None else None
        self._pause = FIRST_LOOK

    def take(self) -> Lease | None:
        """The lease; None if it is to be waited for."""
        lease = self._core.leases.take(self._name, self._duration, self._owner, self._along)
        if lease is None and self._end is not None and time.monotonic() >= self._end:
            raise LeaseHeldError(
                f"another holds the lease {self._name!r}; it was waited for {self._wait:g} s: "
                "try again later, or let an operator break it if its holder is gone"
            )
        return lease

    def pause(self) -> float:
        """Seconds until the next look."""
        pause, self._pause = self._pause, min(2 * self._pause, LAST_LOOK)
        left = self._end - time.monotonic() if self._end is not None else pause
        return max(min(pause, left), 0)


def check_name(name: str) -> str:
    """The name of a lease, which follows the rules of keys."""
    try:
        return check_key(name)
    except InvalidKeyError as error:
        raise InvalidInputError(f"the name of a lease follows the rules of keys: {error}") from None


def taken(asked: Asking) -> Lease:
    """The lease, once it can be had; `LeaseHeldError` if that takes too long."""
    while (lease := asked.take()) is None:
        safe_point()
        time.sleep(asked.pause())
    return lease


async def taken_async(asked: Asking) -> Lease:
    """The same in an event loop, which goes on meanwhile."""
    import asyncio

    while True:
        lease = await to_the_end(asked.take, undo=given_back)
        if lease is not None:
            return lease
        await asyncio.sleep(asked.pause())


def given_back(lease: Lease | None) -> None:
    """Undo a `take`."""
    if lease is not None:
        lease.release()
