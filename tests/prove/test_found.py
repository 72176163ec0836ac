"""What the proofs have found once, each as small as it can be shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import DamagedRecordError, TimelineNotFoundError, Unavailable
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.storage.sqlite.engine import SqliteStorage
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names import rowkinds
from holdfast.store.open import open_core
from holdfast.sync import Store


def faulty(name: str) -> tuple[Faulty, Store]:
    storage = Faulty(open_storage(f"memory:{name}"))
    return storage, Store(StoreHandle(open_core(f"memory:{name}", storage=storage)))


def fail_next(storage: Faulty, call: str, later: int = 1) -> None:
    storage.plan = (Fault(call, storage.calls[call] + later),)


def test_failed_look_at_a_lane_leaves_the_feed_whole() -> None:
    storage, store = faulty("found-lane")
    fail_next(storage, "scan", 2)  # the directory, then the lane's end
    with pytest.raises(Unavailable):
        store.agent("a").set("k", 1)
    store.agent("a").set("k", 2)
    assert store.verify().findings == []


def test_checkpoint_that_returned_no_error_needs_no_read_after_its_commit() -> None:
    storage, store = faulty("found-checkpoint")
    state = store.agent("a")
    state.set("k", 1)
    before = storage.calls["get"]
    made = state.checkpoint("c")
    assert storage.calls["get"] == before
    assert state.checkpoints() == [made]
    restored = state.restore(made)
    assert restored.backup in state.checkpoints()


def test_failed_fork_leaves_no_timeline_to_write_to() -> None:
    storage, store = faulty("found-fork")
    state = store.agent("a")
    state.set("k", 1)
    fail_next(storage, "commit")
    with pytest.raises(Unavailable):
        state.fork("trial")
    with pytest.raises(TimelineNotFoundError):
        state.on("trial").set("k", 2)
    assert state.fork("trial").get("k") == 1
    assert store.verify().findings == []


@pytest.fixture
def sealed(tmp_path: Path) -> dict[str, Any]:
    """How an encrypted store is opened; its key lies in a folder of its own."""
    (tmp_path / "keys").mkdir()
    return {"url": f"sqlite:{tmp_path / 'store.db'}", "key": f"file:{tmp_path / 'keys' / 'key'}"}


def test_interrupted_creation_is_finished(
    sealed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = SqliteStorage.commit

    def only_the_ring(self: SqliteStorage, batch: Batch) -> None:
        if any(key.startswith(b"Mstore") for key, _ in batch.puts):
            raise Unavailable("cut short")
        commit(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStorage, "commit", only_the_ring)
        with pytest.raises(Unavailable):
            sync.open(**sealed)
    with sync.open(**sealed) as store:
        store.agent("a").set("k", 1)
    with sync.open(**sealed) as store:
        assert store.agent("a").get("k") == 1
        assert store.verify().findings == []


def test_ring_in_use_is_not_taken_over(sealed: dict[str, Any], tmp_path: Path) -> None:
    with sync.open(**sealed) as store:
        store.agent("a").set("k", 1)
    (tmp_path / "store.db").unlink()
    with pytest.raises(DamagedRecordError, match="put the store's file back"):
        sync.open(**sealed)


def test_handle_follows_a_scope_that_another_made_again() -> None:
    url = "memory:found-again"
    with sync.open(url) as first, sync.open(url) as second:
        first.agent("a").set("k", 1)
        first.agent("a").fork("old")
        assert [line.name for line in second.agent("a").timelines()] == ["main", "old"]
        first.delete("agent:a")
        first.agent("a").set("k", 2)
        first.agent("a").fork("new")
        assert second.agent("a").on("new").get("k") == 2
        assert [line.name for line in second.agent("a").timelines()] == ["main", "new"]


def test_stale_handle_deletes_all_lines_of_the_scope_that_is_there() -> None:
    url = "memory:found-delete"
    with sync.open(url) as first, sync.open(url) as second:
        second.agent("a").set("k", 1)
        first.delete("agent:a")
        first.agent("a").set("k", 2)
        trial = first.agent("a").fork("trial")
        second.delete("agent:a")
        assert trial.get("k") is None
        assert first.verify().findings == []


@pytest.mark.parametrize("kind", [b"I", b"R"])
@pytest.mark.parametrize("added", [False, True])
def test_verify_accounts_for_ids_and_correlations(kind: bytes, added: bool) -> None:
    url = f"memory:found-{kind.decode()}-{added}"
    with sync.open(url) as store:
        with store.agent("a").change(id="once", correlation="run") as change:
            change.set("k", 1)
        storage = store._core.storage
        key, row = storage.scan(kind, rowkinds.after(kind))[0]
        if added:
            storage.commit(Batch(puts=[(key[:-1] + bytes([key[-1] ^ 1]), row)]))
        else:
            storage.commit(Batch(drops=[key]))
        assert store.verify().findings != []


def test_verify_compares_the_directory_with_the_last_entry() -> None:
    with sync.open("memory:found-end") as store:
        store.agent("a").set("k", 1)
        store.delete("agent:a")
        assert store.verify().findings == []
        storage = store._core.storage
        ended = next(key for key, _ in storage.scan(b"D", b"E") if key[21] == 1)
        storage.commit(Batch(drops=[ended]))
        assert [finding.kind for finding in store.verify().findings] == ["chain"]


def test_contradicting_feed_is_damage_and_not_an_endless_loop() -> None:
    with sync.open("memory:found-feed") as store:
        for number in range(3):
            store.agent("a").set("k", number)
        storage = store._core.storage
        (first, a), (second, b) = storage.scan(b"F", b"G")[:2]
        storage.commit(Batch(drops=[first, second]))
        storage.commit(Batch(puts=[(first, b), (second, a)]))
        with pytest.raises(DamagedRecordError):
            list(store.feed())


def test_flipped_epoch_of_an_entry_is_damage() -> None:
    with sync.open("memory:found-epoch") as store:
        store.agent("a").set("k", 1)
        storage = store._core.storage
        key, row = storage.scan(b"E", b"F")[0]
        storage.commit(Batch(drops=[key]))
        storage.commit(Batch(puts=[(key, row[:18] + bytes([row[18] ^ 0x80, 0]) + row[20:])]))
        assert [finding.kind for finding in store.verify().findings][:1] == ["damage"]
    with sync.open("memory:found-epoch") as store, pytest.raises(DamagedRecordError):
        store.agent("a").get("k")


def test_damaged_checkpoint_does_not_say_which_one_was_before() -> None:
    with sync.open("memory:found-previous") as store:
        state = store.agent("a")
        for number in range(4):
            state.set("k", number)
            state.checkpoint(f"c{number}")
        storage = store._core.storage
        key, row = storage.scan(b"E", b"F")[5]  # the checkpoint c2; the last byte of its statement
        storage.commit(Batch(drops=[key]))
        storage.commit(Batch(puts=[(key, row[:192] + bytes([row[192] ^ 3]) + row[193:])]))
    with sync.open("memory:found-previous") as store:
        names = [checkpoint.name for checkpoint in store.agent("a").checkpoints()]
        assert names == ["c3", "c1", "c0"]


def test_outage_while_verifying_is_no_finding() -> None:
    storage, store = faulty("found-outage")
    store.agent("a").set("k", "x" * 10_000)
    for call in ("get", "scan"):
        fail_next(storage, call)
        with pytest.raises(Unavailable):
            store.verify()


def test_correlation_over_the_border_of_a_block_is_found() -> None:
    with sync.open("memory:found-block") as store:
        state = store.agent("a")
        for number in range(rowkinds.BLOCK - 3):
            state.set("k", number)
        safe = state.checkpoint("safe")
        state.set("k", "bad")
        with store.acting("prover", correlation="undo"):
            state.restore(safe)
        assert [entry.sequence for entry in store.correlated("undo")] == [
            rowkinds.BLOCK,
            rowkinds.BLOCK + 1,
        ]
        assert store.verify().findings == []


def test_who_has_the_store_open_goes_on_behind_damage_that_another_recovered(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    with sync.open(url) as first, sync.open(url) as old:
        first.agent("a").set("k", 1)
        first.agent("a").checkpoint("good")
        assert old.agent("a").get("k") == 1
        first.agent("a").set("k", 2)  # the other has not seen this
        storage = open_storage(url)
        key, row = storage.scan(b"E", b"F")[-1]
        storage.commit(Batch(drops=[key]))
        storage.commit(Batch(puts=[(key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])]))
        with sync.open(url) as fresh:
            assert sync.recovery.Recovery(fresh).recover("agent:a", "hash_mismatch").success
            fresh.agent("a").set("k", 3)
        assert old.agent("a").get("k") == 3
    storage.close()
