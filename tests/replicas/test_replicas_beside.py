"""Replicas on servers, beside writers, and by several who sync at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from backup_kit import fill, values
from replica_kit import assert_same
from store_kit import Between, Place, put_row, rows_of

from holdfast import sync
from holdfast.errors import ConfigurationError, Conflict, PrunedError
from holdfast.recovery import Configuration
from holdfast.replicas import replica_cell as claims
from holdfast.replicas import replica_sync as syncing
from holdfast.storage import open_storage

KILLED = """
import os, sys
from holdfast import sync
from holdfast.replicas import replica_cell as writing
writing.STILL = 0.05
writing.ROWS, left = 20, [int(sys.argv[3])]
before = writing.Writer.flush
def flush(self, **more):
    left[0] -= 1
    if left[0] < 0:
        os._exit(9)
    before(self, **more)
writing.Writer.flush = flush
with sync.open(sys.argv[1]) as store:
    sync.replicas.Replicas(store, [sys.argv[2]]).sync()
"""


@pytest.mark.parametrize("engine", ["postgres", "mongodb"])
def test_a_replica_on_a_server(engine: str, tmp_path: Path, request: Any) -> None:
    server = request.getfixturevalue(engine)
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    fill(store, 2, 10)
    url = server.place(f"replica_{os.getpid()}_{engine}")
    replicas = sync.replicas.Replicas(store, [url])
    assert replicas.sync().ok
    store.agent("agent-1").set("long", b"x" * 300_000)
    store.agent("agent-1").prune(8)
    store.erase("agent:agent-0")
    assert replicas.sync().ok
    assert_same(store, url)
    place.close()
    whole = values(place.open(read_only=True))
    place.close()
    sync.replicas.promote_replica(url)
    ring = f"{url}&ring={place.path}.keys"
    with sync.open(ring, create=False, key=place.key, signer=place.signer) as again:
        assert values(again) == whole
        again.agent("agent-1").set("goes", "on")
        assert again.verify().findings == []


def test_a_server_store_followed_into_a_file(postgres: Any, tmp_path: Path) -> None:
    place = Place("postgres", tmp_path, sealed=False, server=postgres)
    store = place.open()
    fill(store, 1, 10)
    url = f"sqlite:{tmp_path}/copy.db"
    replicas = sync.replicas.Replicas(store, [url])
    replicas.sync()
    store.agent("agent-0").set("more", 1)
    assert replicas.sync().ok
    assert_same(store, url)
    place.close()


def test_a_replica_beside_writers_and_others_who_sync(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    store, url = place.open(), f"sqlite:{tmp_path}/copy.db"
    writers = [place.open() for _ in range(2)]
    end = threading.Event()

    def write(number: int) -> None:
        state = writers[number].agent("shared")
        count = 0
        while not end.is_set():
            count += 1
            state.append("log", count)
            if count % 40 == 0:
                with suppress(Conflict, PrunedError):  # the other one prunes it, too
                    state.prune(state.log(limit=1)[0].sequence - 5)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        two = [sync.replicas.Replicas(one, [url]) for one in (store, place.open())]
        syncers = [threading.Thread(target=two[1].sync) for _ in range(10)]
        for syncer in syncers:
            syncer.start()
            (one,) = two[0].sync().replicas
            assert one.error is None or one.error.startswith(("Conflict", "RefusedError"))
            syncer.join(60)
    finally:
        end.set()
        for thread in threads:
            thread.join(60)
    assert two[0].sync().ok
    assert_same(store, url)
    place.close()


def test_who_is_overtaken_writes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the midst of it, while somebody else finishes and what it would send is erased."""
    place = Place("memory", tmp_path, sealed=False)
    store, url = place.open(), f"memory:overtaken-{tmp_path}"
    fill(store, 1, 5)
    good = open_storage(url)
    syncing.sync(store._core, good)
    store.agent("gone").set("secret", "x" * 100)
    slow = Between(good)

    def others() -> None:
        monkeypatch.setattr(claims, "STILL", 0.0)
        store.erase("agent:gone")
        syncing.sync(store._core, good)

    slow.before, slow.passing = others, 1
    with pytest.raises(Conflict, match="took this replica over"):
        syncing.sync(store._core, slow)  # type: ignore[arg-type]
    assert_same(store, url)
    place.close()


def test_killed_between_any_two_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "STILL", 0.05)
    place = Place("sqlite", tmp_path, sealed=False)
    store = sync.open(place.url)
    url = f"sqlite:{tmp_path}/copy.db"
    sync.replicas.Replicas(store, [url]).sync()
    for left in range(8):
        fill(store, 2, 10)
        store.agent("agent-0").set("file", os.urandom(100_000))
        store.agent("agent-0").prune("filled")
        words = [sys.executable, "-c", KILLED, place.url, url, str(left)]
        done = subprocess.run(words, env=place.environment(), timeout=60, check=False)
        with sync.open(url, read_only=True) as copy:
            assert copy.verify().findings == []
        if done.returncode == 0:
            break
    assert left > 2
    assert sync.replicas.Replicas(store, [url]).sync().ok
    assert_same(store, url)
    store.close()


def document(**synchronization: Any) -> dict[str, Any]:
    return {"agent_id": "a", "synchronization": {"enabled": True, **synchronization}}


@pytest.mark.spec("K77", "K274", "K275", "K277", "K278")
def test_a_configuration_names_replicas(tmp_path: Path) -> None:
    place, url = Place("sqlite", tmp_path, sealed=False), f"sqlite:{tmp_path}/copy.db"
    lost = f"sqlite:{tmp_path}/no/folder.db"
    config = Configuration.of(
        document(
            replicas=[url, lost],
            replication_factor=2,
            strategy="eventual_consistency",
            consistency_level="eventual",
            conflict_resolution="timestamp_wins",
        )
    )
    with sync.recovery.set_up(config, store=place.open(), initial={"task": 1}) as managed:
        assert managed.report.sync_enabled
        assert managed.report.replicas == (url, lost)
        notes = "\n".join(managed.report.notes)
        assert f"replica {lost}" in notes
        assert managed.replicas is not None
        checkpoints = sync.checkpoints.Checkpoints(managed.state, sync=managed.replicas.hold)
        assert checkpoints.create("held", sync=True).synchronized
        assert managed.recovery.recover("agent:a", "corruption_detected").success
    place.close()
    for wrong, text in (
        ({"replicas": "sqlite:x.db"}, "a list of URLs"),
        ({"replicas": [url], "replication_factor": 3}, "its replicas are 2"),
        ({"replicas": [url], "replication_factor": 0}, "1 or more"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            Configuration.of(document(**wrong))
    for name in ("strategy", "consistency_level"):
        with pytest.raises(ConfigurationError, match=f"{name} strong: .* write eventual_consist"):
            sync.recovery.set_up(document(replicas=[url], **{name: "strong"}))
    with pytest.raises(
        ConfigurationError, match="conflict_resolution is timestamp_wins, or left out"
    ):
        Configuration.of(document(replicas=[url], conflict_resolution="the longest wins"))
    with pytest.raises(ConfigurationError, match="one place"):
        sync.recovery.set_up(Configuration.of(document(replicas=[url, url])))


@pytest.mark.spec("K276")
@pytest.mark.parametrize("wins", [True, False])
def test_of_an_agent_that_was_written_to_in_two_places_the_later_state_wins(
    tmp_path: Path, wins: bool
) -> None:
    """Catches: `timestamp_wins` that is taken and resolves nothing."""
    place, url = Place("sqlite", tmp_path, sealed=False), f"sqlite:{tmp_path}/copy.db"
    how = {"conflict_resolution": "timestamp_wins"} if wins else {}
    config = Configuration.of(document(replicas=[url], **how))
    first = {"task": "before"}
    with sync.recovery.set_up(config, store=place.open(), initial=first, start=False) as managed:
        managed.store.agent("b").set("task", "before")
        assert managed.synchronise().ok
        sync.replicas.promote_replica(url)
        managed.state.set("task", "here, and lost")
        assert managed.policies.wait(60)  # a checkpoint that came later would be the later entry
        with sync.open(url) as other:
            other.agent("a").set("task", "there")
            other.agent("b").set("task", "there, and lost")
            other.agent("c").set("task", "there alone")
        managed.store.agent("b").set("task", "here")
    with sync.recovery.set_up(config, store=place.reopen(), start=False) as managed:
        tasks = [managed.store.agent(one).get("task") for one in "abc"]
        if not wins:
            assert tasks == ["here, and lost", "here", None]
            assert any("ReplicaSplitError" in note for note in managed.report.notes)
            assert not managed.synchronise().ok
            place.close()
            return
        assert tasks == ["there", "here", "there alone"]
        (report,) = managed.recovery.reports("agent:a")
        assert (report.success, report.failure.kind) == (True, "network_partition")
        before = managed.state.at(report.steps[0][1].result["backup"])
        assert before.get("task") == "here, and lost"
        managed.state.set("task", "it follows again")
        assert managed.synchronise().ok
    place.close()
    with sync.open(url, read_only=True) as copy:
        assert [copy.agent(one).get("task") for one in "abc"] == [
            "it follows again",
            "here",
            "there alone",
        ]
        assert copy.verify().findings == []


@pytest.mark.parametrize("ring", [False, True])
def test_a_replica_ahead_of_a_store_that_was_put_back_gives_what_it_has(
    tmp_path: Path, ring: bool
) -> None:
    """Catches: a replica made anew though not all of its states could be had."""
    primary = {"connection": f"{tmp_path}/a.db", "key": f"file:{tmp_path}/keys/master"}
    (tmp_path / "keys").mkdir()
    synchronization = {
        "enabled": True,
        "replicas": [f"sqlite:{tmp_path}/copy.db"],
        "conflict_resolution": "timestamp_wins",
    }
    config = {
        "agent_id": "a",
        "storage": {"primary": primary},
        "synchronization": synchronization,
    }
    names = ["a.db", *(["a.db.keys"] if ring else [])]
    with sync.recovery.set_up(config, initial={"n": 1}, start=False) as managed:
        assert managed.synchronise().ok
    before = {name: (tmp_path / name).read_bytes() for name in names}
    with sync.recovery.set_up(config, start=False) as managed:
        managed.state.set("n", 2)
        managed.store.agent("b").set("n", 1)
        assert managed.synchronise().ok
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    with sync.recovery.set_up(config, start=False) as managed:
        assert managed.state.get("n") == 2
        (one,) = managed.synchronise().replicas
        if ring:  # without the key of the other agent its state cannot be had: so nothing goes
            assert "agent:b: KeyMissingError" in (one.error or "")
            assert (one.split, managed.report.notes != ()) == (True, True)
        else:
            assert (one.ok, managed.store.agent("b").get("n")) == (True, 1)


def test_recovery_heals_from_the_replicas_of_a_configuration(tmp_path: Path) -> None:
    place, url = Place("sqlite", tmp_path, sealed=False), f"sqlite:{tmp_path}/copy.db"
    store = place.open()
    fill(store, 1, 30)
    sync.replicas.Replicas(store, [url]).sync()
    newest, _ = rows_of(place.storage(), b"E")[-1]
    put_row(place.storage(), newest, b"rubbish")
    config = Configuration.of({**document(replicas=[url]), "agent_id": "agent-0"})
    with sync.recovery.set_up(config, store=place.reopen(), start=False) as managed:
        done = managed.recovery.recover("agent:agent-0", "corruption_detected")
        assert done.success
        assert managed.state.get("long") == list(range(20_000))
        assert managed.store.verify().findings == []
    place.close()
