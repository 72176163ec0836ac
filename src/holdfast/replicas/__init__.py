"""Replicas: other stores that hold the same rows as one, their source, and follow it.

- **Source**: the store that is written to. It does not know of its replicas.
- **Replica**: a storage with the source's rows, byte for byte. A cell in it says that it follows:
  who opens it as a store can read it, and write to it once it is promoted.
- **Sync**: bringing a replica up to one moment of the source.
- **Claim** (`replica_cell`): the right to write to a replica, which one process has at a time.
- **Commits** (`commits`): what the source has committed since, found by the feed.
- **Comparing** (`compare`): what was changed without the feed, found by reading both sides; of
  one scope if its count (`store.names.cells`) says so, of everything for a new replica or
  `full=True`.
- **Judging** (`compare`): which differences are taken over. Damage is not.

What is sent is sealed as it lies in the source. Each commit leaves the replica a store that opens
and verifies; cut short anywhere, the next sync goes on.
"""

from __future__ import annotations

from holdfast.exports import lazy, names_of

HOMES = {
    "holdfast.replicas.replica_sync": "ReplicaStatus SyncReport SyncedReplica",
    "holdfast.replicas.replicas": "Replicas promote_replica",
}
__all__ = names_of(HOMES)
__getattr__, __dir__ = lazy(__name__, HOMES)
