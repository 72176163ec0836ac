"""A lost lease stops also what is no change to a scope: signatures, keys, erasing, sweeping."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.errors import LeaseLostError
from holdfast.seal.signer import Signer
from holdfast.storage import open_storage
from holdfast.storage.contract import Storage
from holdfast.store.names.rowkinds import LEASES

WRITES: dict[str, Callable[[sync.Store, Path], Any]] = {
    "cosign": lambda store, folder: store.agent("1").cosign("safe", signer=f"file:{folder / 'c'}"),
    "begin_rotation": lambda store, folder: store.begin_rotation(f"file:{folder / 'next.key'}"),
    "rotate": lambda store, _: store.rotate("agent:1"),
    "rotate_all": lambda store, _: store.rotate(),
    "reseal": lambda store, _: store.reseal("agent:2"),
    "reseal_all": lambda store, _: store.reseal(),
    "erase": lambda store, _: store.erase("agent:1"),
    "erase what was deleted": lambda store, _: store.erase("agent:3"),
    "erase_subject": lambda store, _: store.erase_subject("user:1"),
    "sweep": lambda store, _: store.sweep(),
    "prune": lambda store, _: store.agent("1").prune(1),
    "a schedule": lambda store, _: sync.checkpoints.Scheduler(store).every(
        600, store.agent("1"), name="new"
    ),
    "remove a schedule": lambda store, _: sync.checkpoints.Scheduler(store).remove("old"),
}


@pytest.fixture(params=["memory", "sqlite"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A place for an encrypted store."""
    made = Place(request.param, tmp_path, sealed=True)
    yield made
    made.close()


def stored(place: Place) -> list[Any]:
    """All records of the store and of its ring, and all cells but the leases."""

    def records(storage: Storage) -> list[Any]:
        try:
            cells = storage.cells(b"", b"\xff" * 64, limit=100_000)
            found = storage.scan(b"", b"\xff" * 64, limit=100_000)
            return found + [cell for cell in cells if not cell[0].startswith(LEASES)]
        finally:
            storage.close()

    found = [records(place.storage()), records(open_storage(f"{place.url}.keys"))]
    assert all(found)
    return found


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("known", [True, False], ids=["known", "not yet known"])
def test_nothing_is_written_to_store_or_ring(
    sealed: Place, tmp_path: Path, write: Callable[[sync.Store, Path], Any], known: bool
) -> None:
    Signer.create(tmp_path / "c")
    one, two = sealed.open(), sealed.open()
    for name in ("1", "2", "3"):
        one.agent(name).set("k", name)
    one.agent("1").checkpoint("safe")
    one.rotate("agent:2")  # so that there is something to reseal
    one.delete("agent:3")
    one.agent("2").set("about", "them", subject="user:1")
    sync.checkpoints.Scheduler(one).every(600, one.agent("1"), name="old")
    with one.lease("job", duration=60) as lease:
        two.break_lease("job")
        before = stored(sealed)
        if known:
            lease.beat()
        with pytest.raises(LeaseLostError, match="'job' of term 1"):
            write(one, tmp_path)
        assert stored(sealed) == before
        assert not (tmp_path / "next.key").exists()
    write(one, tmp_path)  # without the lease it is done
    assert two.verify().findings == []


def test_what_is_under_way_stops_when_the_lease_is_lost(
    sealed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Erasing and resealing write in steps: each expects the lease."""
    from holdfast.store.upkeep import rotate

    monkeypatch.setattr(rotate, "SLICE", 2)
    one, two = sealed.open(), sealed.open()
    for n in range(20):
        one.agent("1").set("k", n)
    one.rotate("agent:1")
    again = rotate.sealed_again
    seen: list[bytes] = []

    def losing(ledger: Any, key: bytes, row: bytes, epoch: int) -> bytes | None:
        seen.append(key)
        if len(seen) == 7:
            two.break_lease("job")
        return again(ledger, key, row, epoch)

    monkeypatch.setattr(rotate, "sealed_again", losing)
    with one.lease("job", duration=60), pytest.raises(LeaseLostError):
        one.reseal("agent:1")
    assert len(seen) in (7, 8)  # no further than the slice at work
    assert one.keyring().data_keys == 2, "the old key stays: not everything is sealed again"
    assert one.reseal("agent:1")[0].keys_removed == 1
    assert two.verify().findings == []
