"""What a configuration says of storage, copies, integrity and monitoring is so afterwards."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.errors import ConfigurationError, StateIntegrityError
from holdfast.recovery import Configuration
from holdfast.seal.signer import Signer
from holdfast.store.names import rowkinds


def read(**sections: Any) -> Configuration:
    return Configuration.of({"agent_id": "7", **sections})


def set_up(place: Place, **sections: Any) -> sync.recovery.Managed:
    """The agent 7 in this place."""
    return sync.recovery.set_up(read(**sections), store=place.open())


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.spec("K74", "K79")
def test_storage_is_made_and_the_agents_state_is_loaded_or_begun(tmp_path: Path) -> None:
    """Catches: an initial state that is not written, or is written over what is there."""
    path = tmp_path / "agents.db"
    config = read(storage={"primary": {"type": "sqlite", "connection": str(path)}})
    assert not path.exists()
    with sync.recovery.set_up(config, initial={"task": "first", "done": []}) as managed:
        assert (managed.report.storage_initialized, managed.report.created) == (True, True)
        assert path.read_bytes().startswith(b"SQLite format 3")
        assert [str(one.scope) for one in managed.store.scopes().items] == ["agent:7"]
        assert dict(managed.state.items()) == {"task": "first", "done": []}
        begun = managed.state.at(managed.report.current_state)
        assert begun.get("task") == "first"
        managed.state.append("done", "first")
        managed.state.delete("task")
    with sync.recovery.set_up(config, initial={"task": "again", "more": 1}) as managed:
        assert (managed.report.storage_initialized, managed.report.created) == (True, False)
        assert dict(managed.state.items()) == {"done": ["first"]}
        assert managed.state.at(managed.report.current_state).get("done") == ["first"]


@pytest.mark.spec("K69")
def test_what_keeps_copies_in_step_is_made_from_the_section_of_that_name(tmp_path: Path) -> None:
    """Catches: `replicas.start()` left out of setting up; urls or factor that are not handed on."""
    place = Place("sqlite", tmp_path, sealed=False)
    urls = [f"sqlite:{tmp_path}/{name}.db" for name in ("one", "two")]
    section = {"enabled": True, "replicas": urls, "replication_factor": 2}

    def copied() -> bool:
        copies = [sync.open(url, read_only=True) for url in urls]
        found = [copy.agent("7").get("task") for copy in copies]
        for copy in copies:
            copy.close()
        return found == [2, 2]

    with set_up(place, synchronization=section) as managed:
        assert managed.replicas is not None
        assert (managed.report.sync_enabled, managed.report.replicas) == (True, tuple(urls))
        managed.state.set("task", 2)
        until(copied)
        checkpoints = sync.checkpoints.Checkpoints(managed.state, sync=managed.replicas.hold)
        for copies in (2, 1):  # the store and one of them are enough
            assert checkpoints.create(f"on {copies}", sync=True).synchronized
            Path(f"{tmp_path}/two.db").unlink(missing_ok=True)
    for off in ({}, {"synchronization": section | {"enabled": False}}):
        with set_up(place, **off) as managed:
            assert (managed.replicas, managed.report.sync_enabled) == (None, False)
    place.close()


@pytest.mark.spec("K279")
@pytest.mark.parametrize(("level", "found"), [("high", True), ("medium", False), ("low", False)])
def test_a_high_level_verifies_all_that_is_stored_of_the_agent(
    place: Place, level: str, found: bool
) -> None:
    """Catches: `verification_level` that is not read, or a look at the newest state alone."""
    state = place.open().agent("7")
    state.set("text", "x" * 3000)
    state.set("text", "now")
    for number in range(600):  # until the index is saved: the newest state needs no old entry
        state.set("k", number)
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[0]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    with set_up(place, integrity={"verification_level": level}) as managed:
        assert (managed.report.verification, managed.report.success) == (level, True)
        assert bool(managed.report.findings) is found
    with set_up(place) as managed:
        assert managed.report.verification == "low"


@pytest.mark.spec("K280", "K281", "K282")
def test_tampering_signatures_and_hashes_are_verified_and_nothing_else_can_be_asked_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a row or a signature that is not checked; a hash that is not SHA-256; a switch that
    is taken for read and does nothing."""
    on = {
        "verification_level": "high",
        "tamper_detection": True,
        "signature_verification": True,
        "hash_algorithm": "SHA-256",
    }
    with set_up(place, integrity=on) as managed:
        assert managed.report.findings == ()
        managed.state.set("plan", "x" * 300)
        signed = managed.state.checkpoint("signed")
        sign = Signer.sign
        with monkeypatch.context() as patch:  # somebody who can write the store, without its key
            patch.setattr(Signer, "sign", lambda self, text: sign(self, b"another text"))
            managed.state.checkpoint("forged")
        managed.state.set("later", "y" * 300)
        ledger = managed.store._core.ledger(managed.state.scope)
        begun = b"holdfast/entry/1\0" + ledger.prefix
    place.close()
    with set_up(place, integrity=on) as managed:
        assert [one.partition(": ")[2] for one in managed.report.findings] == [
            "the signature does not fit"
        ]
        with pytest.raises(StateIntegrityError, match="the signature does not fit"):
            managed.state.restore("forged")
        managed.state.restore("signed")
    place.close()
    storage, number = place.storage(), ledger.number
    # Only the agent's: scopes lie in the order of random ids, and recovery has one of its own.
    rows = [(key, row) for key, row in rows_of(storage, b"E") if rowkinds.scope_of(key) == number]
    clear = {key: row[: 83 + 110] for key, row in rows if row[1]}  # envelopes of checkpoints
    digests = [hashlib.sha256(begun + key + one).hexdigest() for key, one in clear.items()]
    assert digests[0] == signed.hash, "SHA-256, as docs/format.md says"
    key, row = rows[-1]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    with set_up(place, integrity=on) as managed:
        assert not managed.report.success
    for name in ("tamper_detection", "signature_verification"):
        with pytest.raises(
            ConfigurationError, match=f"{name}: .* cannot be switched off: write true"
        ):
            read(integrity=on | {name: False})
    with pytest.raises(ConfigurationError, match="hash_algorithm is SHA-256"):
        read(integrity=on | {"hash_algorithm": "MD5"})


@pytest.mark.spec("K283", "K285")
def test_monitoring_counts_and_times_what_is_set_up() -> None:
    """Catches: a meter that counts nothing, or no seconds; `false` that is accepted."""
    flags = {"metrics_enabled": True, "performance_tracking": True}
    with sync.open("memory:") as store:
        before = time.perf_counter()
        with sync.recovery.set_up(read(monitoring=flags), store=store) as managed:
            assert managed.report.notes == ()
            managed.policies.close()  # so that nobody but this test writes
            at_first = store.metrics().count("saves", outcome="saved")
            for number in range(5):
                managed.state.set("task", number)
            managed.recovery.recover(managed.state, "agent_crash")
            told = store.metrics()
        took = time.perf_counter() - before
        assert told.count("saves", outcome="saved") >= at_first + 5
        assert told.count("recoveries", failure="agent_crash", outcome="succeeded") == 1
        assert 0 < told.latency("saves").quantile(0.5) < took
        assert 0 < told.latency("saves").seconds < took * 2
    for name in flags:
        with pytest.raises(ConfigurationError, match=f"{name}: .* cannot be switched off"):
            read(monitoring=flags | {name: False})


@pytest.mark.spec("K284")
def test_with_audit_logging_all_that_is_done_is_in_the_log_with_who_and_why(place: Place) -> None:
    """Catches: causes that an entry does not hold; a log that can be changed unseen; `false`."""
    with set_up(place, monitoring={"audit_logging": True}) as managed:
        managed.policies.close()
        state = managed.state
        with managed.store.acting("ann", reason="a new plan"):
            state.set("plan", 1)
            safe = state.checkpoint("safe")
        with managed.store.acting("ben", reason="not that one"):
            state.delete("plan")
            state.restore(safe)
        told = [(one.kinds, one.cause.actor, one.cause.reason) for one in reversed(state.log())]
        assert told == [
            (("set",), "ann", "a new plan"),
            (("checkpoint",), "ann", "a new plan"),
            (("delete",), "ben", "not that one"),
            (("checkpoint",), "ben", "not that one"),  # of the state before
            (("restore",), "ben", "not that one"),
        ]
    place.close()
    storage = place.storage()
    key, _ = rows_of(storage, b"E")[1]
    put_row(storage, key, None)
    assert not place.open().verify().ok
    with pytest.raises(ConfigurationError, match="cannot be switched off"):
        read(monitoring={"audit_logging": False})
