"""What state layers have got wrong before, each by a test of its name.

Those of hooks, schemas, grants and redaction lie with these.
"""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
from backup_kit import restored, values
from store_kit import Place, rows_of

from holdfast import sync
from holdfast.errors import Conflict, Unavailable
from holdfast.seal import compress
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core

pytestmark = pytest.mark.spec("X49")

SCOPES = ("global", "agent:a", "workflow:w", "step:w/s", "session:s", "custom:c", "custom:a:b")


def fill_scopes(store: sync.Store, value: Any = 1) -> None:
    """Something in a scope of each kind."""
    for scope in SCOPES:
        store.scope(scope).set_many({"k": value, "gone later": 1})


def test_a_persistent_backend_with_default_settings_persists(tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path}/a.db") as store:
        store.agent("a").set("k", 1)
    with sync.open(f"sqlite:{tmp_path}/a.db") as store:
        assert store.agent("a").get("k") == 1


@pytest.mark.parametrize("prefix", ["benchmark:", "test:", "benchmark/", "test/"])
def test_no_prefix_is_magic(place: Place, prefix: str) -> None:
    first = place.open()
    for state in (first.agent("a"), first.custom(f"{prefix}c"), first.agent(f"{prefix}a")):
        state.set(f"{prefix}k", 1)
    second = place.open()  # as another process: what is kept in memory alone is not there
    for name in ("agent:a", f"custom:{prefix}c", f"agent:{prefix}a"):
        assert second.scope(name).get(f"{prefix}k") == 1
        assert len(second.scope(name).log()) == 1


def test_a_backup_holds_every_scope(place: Place, tmp_path: Path) -> None:
    store = place.open()
    fill_scopes(store)
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    found = restored(backups, backups.create(keys=True).id, place, "copy")
    assert values(found) == values(store)
    assert set(SCOPES) <= {str(one.scope) for one in found.scopes().items}
    found.close()


def test_backups_are_incremental_of_one_moment_and_record_deletions(
    place: Place, tmp_path: Path
) -> None:
    store = place.open()
    fill_scopes(store)
    store.agent("a").set("long", Random(7).randbytes(3_000_000))
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    first, before = backups.create(keys=True), values(store)
    store.agent("a").delete("gone later")
    store.agent("a").set("made later", 1)
    store.delete("custom:c")
    second, after = backups.create(keys=True), values(store)
    assert second.parent == first.id
    assert second.uploaded < first.uploaded / 5, "only what is new is sent"
    store.agent("a").set("even later", 1)
    for backup, expected in ((first, before), (second, after)):
        found = restored(backups, backup.id, place, f"copy-{backup.id}")
        assert values(found) == expected, "the moment of the backup: what came later is not there"
        found.close()


def test_retention_never_breaks_a_chain_of_backups(place: Place, tmp_path: Path) -> None:
    store = place.open()
    backups = sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    made = []
    for number in range(4):
        store.agent("a").set(f"k{number}", "x" * 10_000 * (number + 1))
        made.append(backups.create(keys=True))
    newest = values(store)
    assert len(backups.prune(1).deleted) == 3, "those that it was built on"
    [left] = backups.list()
    assert left.id == made[-1].id
    assert backups.verify(left.id).ok
    found = restored(backups, left.id, place, "copy")
    assert values(found) == newest
    found.close()


def test_retention_never_takes_what_a_restore_rests_on(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("k", 1)
    safe = state.checkpoint("safe")
    state.set("k", 2)
    done = state.restore(safe)
    head = state.log(limit=1)[0].sequence
    for _ in range(3):
        state.set("k", state.get("k") + 1)
    assert [one.reason for one in state.why_kept(done.backup)], "it says why it stays"
    state.prune(before=head + 2)
    assert state.at(done.backup).get("k") == 2


def test_what_is_stored_says_how_it_is_compressed(place: Place) -> None:
    text = ("a line that is worth compressing\n" * 2000).encode()
    for name in ("none", "lz4", "zstd"):
        method, packed = compress.squeeze(text, compress.NAMES[name])
        assert method == compress.NAMES[name], "it is told beside what is packed"
        assert compress.expand(method, packed, len(text)) == text
    state = place.open().agent("a")
    state.set("text", text)
    assert place.open().agent("a").get("text") == text


def test_encryption_is_real(tmp_path: Path) -> None:
    secret = "a sentence that nobody else may read"
    for sealed in (True, False):
        folder = tmp_path / str(sealed)
        folder.mkdir()
        place = Place("sqlite", folder, sealed=sealed)
        place.open().agent("a").set(secret, {"in": [secret] * 50, secret: 1})
        rows = rows_of(place.storage(), b"E")
        place.close()
        content = b"".join(one.read_bytes() for one in place.path.parent.iterdir())
        assert rows
        assert (secret.encode() in content) is not sealed


def test_an_atomic_update_compares_and_swaps(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("count", 0)
    version = state.item("count").version  # type: ignore[union-attr]
    other = place.open().agent("a")
    other.set("count", 10)
    with pytest.raises(Conflict):
        state.set("count", 1, if_version=version)
    assert state.get("count") == 10

    def add() -> None:
        mine = place.open().agent("a")
        for _ in range(20):
            mine.update("count", lambda value: value + 1)

    threads = [threading.Thread(target=add) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert state.get("count") == 70, "no update is lost"


def test_a_failing_storage_leaves_memory_not_ahead_of_disk(place: Place) -> None:
    place.open().agent("a").set("k", 1)
    faulty = Faulty(place.storage())
    store = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **place.options())))
    state = store.agent("a")
    assert state.get("k") == 1
    for call in (
        lambda: state.set("k", 2),
        lambda: state.delete("k"),
        lambda: state.append("list", 1),
        lambda: state.set("new", 1),
        lambda: state.checkpoint("c"),
    ):
        faulty.plan = (Fault("commit", faulty.calls["commit"] + 1),)
        with pytest.raises(Unavailable):
            call()
        faulty.plan = ()
        for seen in (state, place.open().agent("a")):
            assert dict(seen.items()) == {"k": 1}
            assert seen.checkpoints() == []
    state.set("k", 3)
    assert place.open().agent("a").get("k") == 3
    store.close()


def test_a_delete_removes_what_is_only_in_storage(place: Place) -> None:
    place.open().agent("a").set("k", 1)
    fresh = place.open()  # nothing of it is in memory
    assert fresh.agent("a").delete("k") is True
    assert place.open().agent("a").exists("k") is False


def test_ids_with_colons_do_not_collide(place: Place) -> None:
    store = place.open()
    pairs = [("a:b", "c"), ("a", "b:c")]
    for number, (id, key) in enumerate(pairs):
        store.agent(id).set(key, number)
        store.custom(id).set(key, number + 2)
        store.step(id, key).set("k", number + 4)
    again = place.open()
    assert [again.agent(id).get(key) for id, key in pairs] == [0, 1]
    assert [again.custom(id).get(key) for id, key in pairs] == [2, 3]
    assert [again.step(id, key).get("k") for id, key in pairs] == [4, 5]
    assert len(again.scopes().items) == 6
