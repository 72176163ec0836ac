"""Asking for a lease and waiting for it; leases on the blocking face."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.errors import InvalidInputError, InvalidKeyError, LeaseHeldError
from holdfast.store.lease.lease import Lease
from holdfast.store.lease.lease_cells import LeaseInfo
from holdfast.store.lease.process import shown, this_process
from holdfast.store.names.arguments import check_seconds, check_text, is_seconds
from holdfast.store.names.blocks import block
from holdfast.store.names.scope import check_key
from holdfast.store.names.threads import safe_point

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core

SHORTEST, LONGEST = 0.1, 86_400.0
"""Seconds that a lease may last without a beat."""
FIRST_LOOK, LAST_LOOK = 0.001, 0.05
"""Seconds between two looks at a lease that is held: at first, and after some time."""


class Asking:
    """Somebody who wants a lease, and waits for it if need be."""

    def __init__(
        self,
        core: Core,
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


def given_back(lease: Lease | None) -> None:
    """Undo a `take`."""
    if lease is not None:
        lease.release()


class StoreLeasing:
    """The part of a store that gives leases."""

    _core: Core

    @block
    def lease(
        self,
        name: str,
        *,
        duration: float = 30.0,
        wait: float | None = None,
        owner: str | None = None,
    ) -> Iterator[Lease]:
        """Hold a lease inside the block; one holder at a time, in any number of processes.

        All that this thread or task, and tasks that it begins, write to the store inside the block
        is under the lease: once another has taken it over, it is refused with `LeaseLostError`,
        and nothing is written. The lease is renewed in the background. Another gets it when the
        block ends, when it has seen no renewal for `duration` seconds, or at once if the process is
        known to be gone. If it is held, it is waited for without end, or for `wait` seconds (0: not
        at all), then `LeaseHeldError`.
        `owner` is told to others (by default host and process).
        """
        lease = taken(Asking(self._core, name, duration, wait, owner))
        try:
            with lease.fencing():
                yield lease
        finally:
            lease.release()

    def leases(self) -> list[LeaseInfo]:
        """All leases that were ever taken, by their names."""
        return self._core.leases.infos()

    def break_lease(self, name: str) -> str | None:
        """Take a lease from its holder, whose changes are refused from now on; tells who it was.

        For operators: without asking the holder, which may be at work.
        """
        return self._core.leases.break_(check_name(name))
