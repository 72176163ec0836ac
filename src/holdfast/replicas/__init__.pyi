# Written by scripts/stubs.py from the blocking classes; not to be edited.

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from holdfast.replicas.replica_sync import ReplicaStatus as ReplicaStatus
from holdfast.replicas.replica_sync import SyncedReplica as SyncedReplica
from holdfast.replicas.replica_sync import SyncReport as SyncReport
from holdfast.store.names.items import Checkpoint
from holdfast.store.store_async import Store

class Replicas:
    """Other stores that hold what a store holds, and follow it: `sqlite:/mnt/other/agents.db`, …

    Rows are sent as they lie in the store: sealed, if it is encrypted. Its ring is not sent: keep a
    copy of that where the replica would be opened without the store. `factor` is how many hold a
    checkpoint, the store itself included, before `hold` is content; all of them if it is left out.
    `interval` is how many seconds pass between two looks of a follower.

    A replica can be read by who opens it with `read_only=True`, and written to once it is promoted
    (`promote_replica`). Leases show in it as the store has them: held ones run out there as after a
    crash of their holder. Nothing is written to the store: one that was opened with
    `read_only=True` can be followed, too.
    """
    def __init__(
        self,
        store: Store,
        urls: Sequence[str | Path],
        *,
        factor: int | None = None,
        interval: float = 1.0,
    ) -> None: ...
    def __repr__(self) -> str: ...
    @property
    def urls(self) -> tuple[str, ...]:
        """Where they are, without passwords."""
    async def sync(self, *, full: bool = False, remake: str | None = None) -> SyncReport:
        """Bring all replicas up to now; those that are not there are made.

        Trouble with one does not keep the others from it: the report says what it is. Of what was
        copied before a sample is compared, so that damage is noticed in time and not at once. With
        `full=True` all rows of both sides are compared, instead of what has changed since. `remake`
        names a replica that is to become a copy of the store whatever it holds now.
        """
    async def status(self) -> list[ReplicaStatus]:
        """How far each replica is behind, or that it holds what the store does not.

        Nothing is written, and none is made.
        """
    async def hold(self, checkpoint: Checkpoint | None = None) -> int:
        """Bring the replicas up to now, and refuse unless enough of them hold it; how many do.

        For `Checkpoints(state, sync=replicas.hold)`: a checkpoint that is made with `sync=True` is
        synchronized once so many stores have it as `factor` says. One holds it if the sync found
        nothing damaged there, and the checkpoint's entry is in it.
        """
    async def copies(self) -> list[Store]:
        """The replicas as stores to be read, with the keys of this one: for `Recovery(copies=…)`.

        Those that cannot be opened now, or are not made yet, are left out. They are closed with the
        store.
        """
    async def start(self) -> None:
        """Follow in the background, until `stop` or the store is closed; a second call is none."""
    async def stop(self) -> None:
        """Follow no longer; what has not been sent by then is sent by the next sync."""
    def following(self) -> AbstractAsyncContextManager[Replicas]:
        """Follow as long as the block lasts; at its end the replicas are brought up to date."""

async def promote_replica(url: str | Path) -> None:
    """Make a store of its own of a replica: it can be written to, and follows no longer.

    For when the store that it follows is lost. If that comes back, it is not synced into this one
    any more; and what this one is given from now on, that does not have.
    """
