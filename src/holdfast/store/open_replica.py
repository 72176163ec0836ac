"""What a store says of itself if it is a replica: a cell, which only the layer above writes."""

from __future__ import annotations

from holdfast.errors import ReadOnlyError, StoreNotFoundError
from holdfast.storage import shown
from holdfast.storage.contract import Storage
from holdfast.store.names import rowkinds


def check_replica(storage: Storage, url: str, *, read_only: bool) -> None:
    """Refuse to write to what another store is copied to, and to open what is not whole."""
    if not storage.cells(rowkinds.FOLLOWS, rowkinds.FOLLOWS + b"\0", limit=1):
        return
    if storage.get([rowkinds.meta(b"store")])[0] is None:
        raise StoreNotFoundError(
            f"the replica at {shown(url)} is not finished: it is no store yet. Sync it again"
        )
    if not read_only:
        raise ReadOnlyError(
            f"{shown(url)} is a replica, and follows another store: write to that, or open this "
            "one with read_only=True. If that store is lost, promote the replica first: "
            "promote_replica, or `holdfast replica promote`"
        )
