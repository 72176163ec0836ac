"""Emptying the engine's logs of what was removed: a row that is gone still lies in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core

IN_LOGS = (
    "logs of the engine (for SQLite, the -wal files), because somebody went on reading there: the "
    "same call again, or the next erase, empties them once they are free, and so does closing the "
    "store everywhere; a database server keeps its own for as long as it is set to"
)
"""What is said if a storage could not settle."""


def settle(core: Core, *, data: bool = True) -> bool:
    """Empty the logs of the ring and, if rows went from there too, of the data.

    Whether all could be.
    """
    storages = [core.ring.storage] if core.ring is not None else []
    storages += [core.storage] if data else []
    return False not in [storage.settle() for storage in storages]
