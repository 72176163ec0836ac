"""What the tests of replicas share."""

from __future__ import annotations

from holdfast import sync
from holdfast.storage import open_storage
from holdfast.storage.contract import LAST, Moment, Storage
from holdfast.store.commit.group import seen_in
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names import rowkinds
from holdfast.store.proof.verify_report import Finding

Rows = dict[bytes, bytes]


def all_of(storage: Moment) -> tuple[Rows, Rows]:
    """Records and cells of a storage, but those of what is on its way, and a replica's mark."""
    records: Rows = {}
    low = b""
    while page := storage.scan(low, LAST):
        records |= dict(page)
        low = page[-1][0] + b"\0"
    cells = dict(storage.cells(b"", LAST, limit=100_000))
    pins = [key for key in cells if key[:1] == b"P"]
    ahead = tuple(rowkinds.pinned(pin, kind) for pin in pins for kind in (b"V", b"N"))
    records = {key: row for key, row in records.items() if not key.startswith(ahead)}
    return records, {
        k: cell for k, cell in cells.items() if k != rowkinds.FOLLOWS and k not in pins
    }


def assert_same(store: sync.Store, url: str) -> None:
    """Every row of a replica is that of its store, byte for byte, and it verifies as that does."""
    replica = open_storage(url, create=False, read_only=True)
    try:
        here, there = all_of(store._core.storage), all_of(replica)
        for mine, theirs in zip(here, there, strict=True):
            odd = [key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key)]
            assert not odd, [rowkinds.describe(key) for key in sorted(odd)]
        assert findings(store, replica) == store.verify().findings
    finally:
        replica.close()


def findings(store: sync.Store, replica: Storage) -> list[Finding]:
    """What `verify` says of a replica, with the keys of its store."""
    seen = sync.Store(StoreHandle(seen_in(store._core, replica)))
    return seen.verify().findings
