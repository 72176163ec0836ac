"""What a replica is said to hold is in it; what is erased meanwhile, or damaged, is not."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from backup_kit import fill
from replica_kit import assert_same
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.errors import InvalidInputError, ReadOnlyError, Unavailable
from holdfast.recovery import Configuration
from holdfast.replicas import replica_sync as syncing
from holdfast.replicas import replicas as replicas_module
from holdfast.storage import open_storage
from holdfast.storage.contract import Moment
from holdfast.storage.wrappers import Counting, Fault, Faulty
from holdfast.store.names import rowkinds


def until(condition: Callable[[], object]) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def damage(place: Place, key: bytes) -> None:
    put_row(place.storage(), key, b"rubbish")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Place]:
    place = Place("memory", tmp_path, sealed=False)
    yield place
    place.close()


def test_a_replica_without_the_checkpoint_does_not_count(memory: Place) -> None:
    """Not in the sync that finds it damaged, nor in those behind it, which find nothing new."""
    store, url = memory.open(), f"memory:held-{memory.folder}"
    state = store.agent("a")
    state.set("x", 1)
    replicas = sync.replicas.Replicas(store, [url])
    assert replicas.hold(state.checkpoint("whole")) == 1
    made = state.checkpoint("damaged")
    key = rows_of(memory.storage(), b"E")[-1][0]
    assert rowkinds.sequence_of(key) == made.sequence
    damage(memory, key)
    with pytest.raises(Unavailable, match=r"0 replicas hold it, 1 must.*damaged in"):
        replicas.hold(made)
    assert replicas.sync().ok
    with pytest.raises(Unavailable, match=r"0 replicas hold it, 1 must.*does not have it"):
        replicas.hold(made)
    assert replicas.hold() == 1
    with pytest.raises(InvalidInputError, match="Checkpoint"):
        replicas.hold("damaged")  # type: ignore[arg-type]


def test_a_replica_that_cannot_be_asked_does_not_count(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, url = memory.open(), f"memory:asked-{memory.folder}"
    made = store.agent("a").checkpoint("first")
    key = rows_of(memory.storage(), b"E")[-1][0]

    class Silent(Faulty):
        def get(self, keys: Any) -> Any:
            if key in keys:
                raise Unavailable("it does not answer")
            return self.inner.get(keys)

    storage = open_storage(url)
    syncing.sync(store._core, storage)
    monkeypatch.setattr(replicas_module, "open_storage", lambda *_, **__: Silent(storage))
    monkeypatch.setattr(syncing, "SAMPLE", 0)  # else it may be asked by the sync itself
    replicas = sync.replicas.Replicas(store, [url])
    assert replicas.sync().ok
    with pytest.raises(Unavailable, match="0 replicas hold it, 1 must"):
        replicas.hold(made)


def test_what_a_follower_finds_is_logged(memory: Place, caplog: pytest.LogCaptureFixture) -> None:
    store, url = memory.open(), f"memory:logged-{memory.folder}"
    store.agent("a").set("x", 1)
    replicas = sync.replicas.Replicas(store, [url], interval=0.01)
    replicas.sync()
    with caplog.at_level(logging.WARNING, "holdfast.background"):
        store.agent("a").set("x", 2)
        damage(memory, rows_of(memory.storage(), b"E")[-1][0])
        replicas.start()
        until(lambda: "damaged in the store" in caplog.text)
        replicas.stop()
    assert url in caplog.text


def test_what_setting_up_finds_is_in_the_report(tmp_path: Path) -> None:
    place, url = Place("sqlite", tmp_path, sealed=False), f"sqlite:{tmp_path}/copy.db"
    store = place.open()
    fill(store, 1, 5)
    damage(place, rows_of(place.storage(), b"E")[2][0])
    document = {"agent_id": "a", "synchronization": {"enabled": True, "replicas": [url]}}
    with sync.recovery.set_up(Configuration.of(document), store=place.reopen()) as managed:
        notes = "\n".join(managed.report.notes)
    assert f"replica {url}: " in notes
    assert "damaged in the store" in notes
    place.close()


def test_the_status_of_a_replica_that_is_ahead(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written and synced while it is asked for is no split."""
    store, url = memory.open(), f"memory:ahead-{memory.folder}"
    state = store.agent("a")
    state.set("x", 1)
    replicas = sync.replicas.Replicas(store, [url])
    replicas.sync()
    storage, before, others = open_storage(url), syncing.ends, [1]

    def ends(side: Moment) -> Any:
        if others:
            others.pop()
            state.set("x", 2)
            syncing.sync(store._core, storage)
        return before(side)

    monkeypatch.setattr(syncing, "ends", ends)
    (status,) = replicas.status()
    assert (status.whole, status.entries, status.error) == (True, 0, None)


HOWS: list[dict[str, Any]] = [{}, {"full": True}, {"remake": True}]


@pytest.mark.parametrize("how", HOWS, ids=["follow", "full", "remake"])
@pytest.mark.parametrize("what", ["known", "new", "pruned"])
@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_erased_behind_the_moment_goes_with_the_next_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], what: str, sealed: bool
) -> None:
    place = Place("memory", tmp_path, sealed=sealed)
    store, url = place.open(), f"memory:erased-{tmp_path}"
    fill(store, 1, 5)
    storage = open_storage(url)
    gone = store.agent("gone")
    gone.set("secret", "x" * 100)
    if what != "new":
        syncing.sync(store._core, storage)
    for number in range(5):
        gone.set(f"secret/{number}", "x" * 100)
    if what == "pruned":
        syncing.sync(store._core, storage)
        gone.prune(5)
    before = store._core.storage.moment

    @contextmanager
    def moment() -> Iterator[Moment]:
        with before() as found:
            monkeypatch.setattr(store._core.storage, "moment", before)
            store.erase("agent:gone")
            yield found

    monkeypatch.setattr(store._core.storage, "moment", moment)
    ledger = store._core.known(gone.scope)
    assert ledger is not None
    assert not syncing.sync(store._core, storage, **how).findings
    assert not syncing.sync(store._core, storage).findings
    found = [key for kind in rowkinds.OF_SCOPE for key, _ in rows_of(storage, kind)]
    assert not [key for key in found if rowkinds.scope_of(key) == ledger.number]
    assert any(rowkinds.state_of(key) == rowkinds.ERASED for key, _ in rows_of(storage, b"D"))
    assert_same(store, url)
    place.close()


def test_copies_that_cannot_be_read_are_closed(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory.open()
    urls = [f"memory:copies-{number}-{memory.folder}" for number in range(2)]
    replicas = sync.replicas.Replicas(store, urls)
    replicas.sync()
    opened: list[Counting] = []

    def counted(url: str, **how: Any) -> Any:
        faults = [Fault("get", onward=True)] if url == urls[0] else []
        opened.append(Counting(Faulty(open_storage(url, **how), faults)))
        return opened[-1]

    monkeypatch.setattr(replicas_module, "open_storage", counted)
    assert len(replicas.copies()) == 1
    assert [one.calls["close"] for one in opened] == [1, 0]
    memory.close()
    assert [one.calls["close"] for one in opened] == [1, 1]


def test_an_agent_that_is_set_up_has_each_replica_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, url = Place("sqlite", tmp_path, sealed=False), f"sqlite:{tmp_path}/copy.db"
    opened: list[str] = []

    def counted(url: str, **how: Any) -> Any:
        if how.get("read_only"):
            opened.append(url)
        return open_storage(url, **how)

    monkeypatch.setattr(replicas_module, "open_storage", counted)
    document = {
        "agent_id": "a",
        "synchronization": {"enabled": True, "replicas": [url]},
        "integrity": {"scrub_interval": 60_000},
    }
    with sync.recovery.set_up(Configuration.of(document), store=place.open()) as managed:
        assert managed.scrubber is not None
    assert opened == [url]
    place.close()


def test_a_store_that_is_only_read_can_be_followed(tmp_path: Path) -> None:
    """Nothing is written to it; what would have to be is refused when it is started."""
    place, url = Place("sqlite", tmp_path, sealed=False), f"sqlite:{tmp_path}/copy.db"
    writer = place.open()
    writer.agent("a").set("x", 1)
    reader = place.open(read_only=True)
    replicas = sync.replicas.Replicas(reader, [url], interval=0.01)
    replicas.start()
    until(lambda: replicas.status()[0].whole)
    writer.agent("a").set("x", 2)
    until(lambda: replicas.status()[0].entries == 0)
    replicas.stop()
    with sync.open(url, read_only=True) as copy:
        assert copy.agent("a").get("x") == 2
    for what in (sync.recovery.Scrubber(reader), sync.recovery.Watchdog(reader)):
        with pytest.raises(ReadOnlyError):
            what.start()
    place.close()
