"""One document sets an agent up: what it says is in force, what it cannot have is named."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kai_kit import DOCUMENT
from store_kit import Between, Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.errors import (
    ConfigurationError,
    InvalidInputError,
    MissingExtraError,
    StoreClosedError,
)
from holdfast.recovery import Configuration

OFTEN: dict[str, Any] = {
    "id": "often",
    "conditions": [
        {
            "type": "time_interval",
            "metric": "time_since_last_checkpoint",
            "operator": "greater_than",
            "threshold": 300_000,
        }
    ],
}


PROCEDURE: dict[str, Any] = {"id": "p", "triggers": ["lost"], "steps": [{"type": "cleanup"}]}


def made(**more: Any) -> dict[str, Any]:
    """A configuration that can be set up anywhere."""
    primary = {"type": "memory"}
    return {"agent_id": "7", "storage": {"primary": primary}, **more}


@pytest.mark.spec("K254")
def test_the_documents_configuration_can_be_read_and_nothing_of_it_is_missing() -> None:
    config = Configuration.from_yaml(DOCUMENT)
    assert config.agent_id == "ai.kai.assistant.general"
    assert [one.id for one in config.policies] == ["time_based", "state_change"]
    assert [one.id for one in config.procedures] == ["standard_recovery"]
    with pytest.raises(ConfigurationError, match="the store is plain") as refused:
        sync.recovery.set_up(config)  # no key is there: before anything is asked of a server
    assert len(refused.value.problems) == 2  # of the policy, and of the backup


@pytest.mark.spec("K260")
@pytest.mark.usefixtures("cached_files")
def test_a_configuration_puts_a_cache_in_front_of_the_store(tmp_path: Path, redis: Any) -> None:
    config = Configuration.from_yaml(DOCUMENT)
    assert (config.cache, config.cache_ttl) == ("redis://localhost:6379/2", 3600)
    storage = {
        "primary": {"type": "sqlite", "connection": str(tmp_path / "a.db")},
        "cache": {"type": "redis", "connection": redis.url(2), "ttl": "1m"},
    }
    config = Configuration.of(made(storage=storage))
    long = {"text": "a sentence that repeats, " * 30}
    with sync.recovery.set_up(config, initial={"plan": long}) as managed:
        lineage = managed.store.stats()["lineage"]
    client = redis.client(2)
    (name,) = client.scan_iter(f"holdfast:{lineage}:*")
    assert 0 < client.pttl(name) <= 60_000
    with sync.recovery.set_up(config) as managed:
        assert managed.state.get("plan") == long
        assert managed.store.metrics().by("cache", "result", call="read") == {"hit": 1}
    with (
        sync.open(f"sqlite:{tmp_path / 'a.db'}") as store,
        sync.recovery.set_up(config, store=store) as one,
    ):
        assert any(note.startswith("storage.cache: the store that") for note in one.report.notes)
    right = {"type": "redis", "connection": redis.url(2)}
    for wrong in ("redis://user:secret@", "", 7):
        with pytest.raises(ConfigurationError, match=r"storage\.cache") as refused:
            Configuration.of(made(storage={"cache": right | {"connection": wrong}}))
        assert len(refused.value.problems) == 1
        assert "secret" not in str(refused.value)
    for wrong in ({"ttl": "31d"}, {"ttl": 0}, {"type": "memcached"}):
        with pytest.raises(ConfigurationError, match=r"storage\.cache") as refused:
            Configuration.of(made(storage={"cache": right | wrong}))
        assert len(refused.value.problems) == 1
        assert "secret" not in str(refused.value)


def test_connections_are_never_shown() -> None:
    data = {"type": "postgresql", "connection": "postgresql://user:secret@host/db", "timeout": "x"}
    with pytest.raises(ConfigurationError) as refused:
        Configuration.of(made(storage={"primary": data, "cache": {"type": "redis", "ttl": "1 h"}}))
    assert len(refused.value.problems) == 2
    assert "secret" not in str(refused.value)
    read = Configuration.of(made(storage={"primary": data | {"timeout": "30s"}}))
    assert "secret" not in repr(read)
    for more in ({"type": "sqlite"}, {"pool_size": 0}, {"connection": "postgresql:secret"}):
        with pytest.raises(ConfigurationError) as refused:
            Configuration.of(made(storage={"primary": data | {"timeout": 1} | more}))
        assert "secret" not in str(refused.value)
    url = "cassandra://user:secret@host/db"
    for data in ({"connection": url}, {"type": "sqlite", "connection": url}, {"type": url}):
        with pytest.raises(ConfigurationError, match="not available") as refused:
            Configuration.of(made(storage={"primary": data}))
        assert "secret" not in str(refused.value)
    keyed = Configuration.of(made(storage={"primary": {"key": "passphrase:secret"}}))
    assert keyed.key is not None
    assert "secret" not in repr(keyed)
    for backup in ({"bucket": "id:secret@b"}, {"endpoint": "https://id:secret@host:9000"}):
        read = Configuration.of(made(storage={"backup": {"bucket": "b"} | backup}))
        assert "secret" not in repr(read)


@pytest.mark.parametrize("name", ["pool_size", "timeout"])
def test_options_of_the_driver_are_not_taken_for_those_of_the_document(name: str) -> None:
    def read(query: str) -> Configuration:
        primary = {"connection": f"postgresql://host/db?{query}", name: 7}
        return Configuration.of(made(storage={"primary": primary}))

    theirs = f"connect_{name}=5&tcp_user_{name}=5"
    assert read(theirs).url == f"postgresql://host/db?{theirs}&{name}=7"
    for query in (f"{theirs}&{name}=8", f"{name}=8"):
        with pytest.raises(ConfigurationError, match=rf"primary\.{name} stands in the connection"):
            read(query)
    with pytest.raises(ConfigurationError, match=rf"primary\.connection: .* gives {name} twice"):
        read(f"{name}=8&{name}=9")


@pytest.mark.spec("K255", "K256", "K257", "K258")
def test_a_store_on_a_server_is_set_up_as_the_document_says(postgres: Any) -> None:
    config = Configuration.from_yaml(DOCUMENT)
    document = "postgresql://user:pass@localhost:5432/kai_states"
    assert config.url == f"{document}?pool_size=20&timeout=30000"
    connection = f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres?schema=configured"
    primary = {"type": "postgresql", "connection": connection, "pool_size": 20, "timeout": 30000}
    with sync.recovery.set_up(Configuration.of(made(storage={"primary": primary}))) as managed:
        address = managed.store._core.storage.address  # type: ignore[attr-defined]
        assert (address.pool_size, address.timeout) == (20, 30_000)
        managed.state.set("k", 1)
    primary |= {"connection": connection.replace("postgresql:", "postgres:"), "timeout": "5s"}
    with sync.recovery.set_up(Configuration.of(made(storage={"primary": primary}))) as managed:
        assert managed.store._core.storage.address.timeout == 5_000  # type: ignore[attr-defined]
        assert managed.state.get("k") == 1
    primary["connection"] += "&timeout=5"
    with pytest.raises(ConfigurationError, match="too"):
        Configuration.of(made(storage={"primary": primary}))


@pytest.mark.spec("L44")
@pytest.mark.parametrize("sealed", [False, True])
def test_a_plan_of_backups_is_for_the_scopes_that_it_names(tmp_path: Path, sealed: bool) -> None:
    primary = {"type": "sqlite", "connection": f"{tmp_path}/data.db"}
    if sealed:
        primary["key"] = f"file:{tmp_path}/master/key"
        (tmp_path / "master").mkdir()
    plan = {"type": "file", "path": f"{tmp_path}/copies", "keep": 2, "scopes": ["agent:team-*"]}
    folder = tmp_path / "copies" / "agent%3Ateam-1"
    storage = {"primary": primary, "backup": plan | {"interval": "1s"}}
    with sync.recovery.set_up(made(storage=storage)) as managed:
        for name in ("team-1", "other"):
            managed.store.agent(name).set("k", 0)
        for number in range(1, 5):
            managed.store.agent("team-1").set("k", number)
            managed.store.agent("team-1").checkpoint(f"c{number}")
            managed.store.agent("other").checkpoint(f"c{number}")
            newest = folder / f"{managed.store.agent('team-1').log(limit=1)[0].sequence:012}"
            end = time.monotonic() + 30
            while not newest.with_suffix(".holdfast").exists() and time.monotonic() < end:
                time.sleep(0.05)
            assert newest.with_suffix(".holdfast").exists()
    assert len(list(folder.iterdir())) == 2, "so many stay of each scope"
    assert [one.name for one in (tmp_path / "copies").iterdir()] == [folder.name]
    with sync.open(f"sqlite:{tmp_path}/new.db", key=primary.get("key")) as store:
        newest = max(folder.iterdir())
        sync.checkpoints.import_checkpoint(
            store.agent("copy"), newest, key=primary.get("key"), untrusted=True
        )
        assert store.agent("copy").get("k") == 4
    with pytest.raises(ConfigurationError, match=r"storage\.backup\.scopes is a list"):
        Configuration.of(made(storage={"backup": plan | {"scopes": []}}))
    with pytest.raises(ConfigurationError, match="scopes does not belong to type s3"):
        Configuration.of(made(storage={"backup": {"bucket": "b", "scopes": ["agent:*"]}}))


def test_backups_go_where_the_document_says(tmp_path: Path) -> None:
    folder = {"type": "file", "path": f"{tmp_path}/backups"}
    storage = {"primary": {"type": "memory"}, "backup": folder}
    with sync.recovery.set_up(made(storage=storage), start=False) as managed:
        assert managed.backups is not None
        assert managed.report.backup == f"dir:{tmp_path}/backups"
        assert managed.report.backup.startswith("dir:")
        (found,) = [managed.backups.create()]
        assert managed.backups.list() == [found]
    with sync.recovery.set_up(Configuration.of(made())) as managed:
        assert managed.backups is None
    for wrong, problem in (
        ({"type": "s3"}, "bucket is missing"),
        ({"type": "file"}, "path is missing"),
        ({"type": "s3", "bucket": 7}, "bucket is a text"),
        ({"bucket": "b", "path": "p"}, "path does not belong"),
        (folder | {"region": "r"}, "region does not belong"),
        (folder | {"encryption": 1}, "true or false"),
        (folder | {"colour": 1}, "colour"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            Configuration.of(made(storage={"backup": wrong}))
    for refused in ({"type": "tape"}, {"bucket": "B"}, folder | {"encryption": True}):
        with pytest.raises(ConfigurationError, match=r"storage\.backup"):
            sync.recovery.set_up(Configuration.of(made(storage=storage | {"backup": refused})))


def test_a_store_in_mongodb_is_set_up(mongodb: Any) -> None:
    primary = {"type": "mongodb", "connection": mongodb.place("configured"), "timeout": "20s"}
    with sync.recovery.set_up(Configuration.of(made(storage={"primary": primary}))) as managed:
        assert managed.store._core.storage.address.timeout == 20_000  # type: ignore[attr-defined]
        managed.state.set("k", 1)
    config = Configuration.of(made(storage={"primary": {"connection": "mongodb+srv://h/d"}}))
    assert config.url == "mongodb+srv://h/d"
    with pytest.raises(ConfigurationError, match="mongodb://USER"):
        Configuration.of(made(storage={"primary": {"type": "mongodb", "connection": "h"}}))


@pytest.mark.spec("K265")
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        ("30d", 2_592_000_000),
    ],
)
def test_durations_are_milliseconds_or_texts(text: str, number: int) -> None:
    def read(length: Any) -> Configuration:
        policy = OFTEN | {"frequency": {"interval": length}, "retention": {"max_age": length}}
        policy["conditions"] = [OFTEN["conditions"][0] | {"threshold": length}]
        step = {"type": "cleanup", "timeout": length}
        procedure = {"id": "p", "triggers": [], "steps": [step], "timeout": length}
        server = {"connection": "postgresql://localhost/x", "timeout": length}
        cache = {"type": "redis", "connection": "redis://localhost/1", "ttl": length}
        storage = {"primary": server, "cache": cache}
        return Configuration.of(
            made(
                storage=storage,
                checkpointing={"policies": [policy]},
                recovery={"procedures": [procedure]},
            )
        )

    assert read(text) == read(number)
    policy, procedure = read(text).policies[0], read(text).procedures[0]
    assert policy.frequency.interval == policy.retention.max_age == number
    assert policy.conditions[0].threshold == number
    assert procedure.timeout == procedure.steps[0].timeout == number
    for part in ("primary", "cache"):
        wrong = {"type": "memory", "timeout" if part == "primary" else "ttl": text + "?"}
        with pytest.raises(ConfigurationError, match=f"storage.{part}"):
            Configuration.of(made(storage={part: wrong}))


@pytest.mark.spec("K65", "K66", "K68", "K73", "K76")
def test_one_call_sets_an_agent_up_and_says_what_is_in_force(tmp_path: Path) -> None:
    data = {
        "state_management": {
            "agent_id": "writer",
            "storage": {"primary": {"type": "sqlite", "connection": str(tmp_path / "a.db")}},
            "checkpoint": {"policies": [OFTEN]},
            "recovery": {
                "procedures": [{"id": "p", "triggers": ["lost"], "steps": [{"type": "look"}]}]
            },
            "sync": {"enabled": False},
            "integrity": {"verification_level": "high"},
            "audit": {"audit_logging": True},
        }
    }
    config = Configuration.of(data)
    steps = {"look": lambda context, action: {"seen": True}}
    for created in (True, False):
        with sync.recovery.set_up(config, initial={"task": "first"}, steps=steps) as managed:
            report = managed.report
            assert (report.success, report.agent_id, report.created) == (True, "writer", created)
            told = managed.state.at(report.current_state)  # a policy may have fired since
            assert told.get("task") == managed.state.get("task")
            assert (report.storage_initialized, report.encrypted) == (True, False)
            assert report.checkpointing_enabled
            assert "often" in report.policies
            assert (report.recovery_configured, report.procedures[0]) == (True, "p")
            assert (report.sync_enabled, report.findings) == (False, ())
            assert managed.state.get("task") == ("first" if created else "later")
            if created:
                managed.state.set("task", "later")
                head = managed.state._handle.place()[2]
            assert managed.recovery.recover(managed.state, "lost").procedure == "p"
    with sync.open(f"sqlite:{tmp_path / 'a.db'}") as store:
        later = [one for one in store.agent("writer").log(kind="set") if one.sequence > head]
        assert later == [], "what it has already is not written again"


@pytest.mark.spec("K70")
@pytest.mark.parametrize("level", ["low", "medium", "high"])
def test_what_is_damaged_is_found_and_nothing_is_written(place: Place, level: str) -> None:
    store = place.open()
    state = store.agent("7")
    state.set("text", "x" * 3000)
    state.checkpoint("good")
    state.set("text", "y" * 3000)
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"V")[-1] if rows_of(storage, b"V") else rows_of(storage, b"E")[-1]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    store = place.open()
    config = Configuration.of(
        made(integrity={"verification_level": level}, checkpointing={"policies": [OFTEN]})
    )
    with sync.recovery.set_up(config, store=store, start=False) as managed:
        report = managed.report
        assert not report.success
        assert report.findings
        assert report.findings
        assert (report.checkpointing_enabled, report.sync_enabled) == (False, False)
        assert "standard_recovery" in report.procedures
        assert managed.recovery.recover(managed.state, "corruption_detected").success
    with sync.recovery.set_up(config, store=store) as again:
        assert again.report.success
        past = bool(again.report.findings)
        assert past is (level == "high"), "what was damaged is still there, in the past"
        assert again.policies.get(again.state, "often") is not None
    assert store.agent("7").get("text")  # the store was given, and stays open


@pytest.mark.spec("K70")
@pytest.mark.parametrize(("level", "success"), [("low", True), ("medium", False), ("high", False)])
def test_a_value_that_nobody_reads_is_looked_at_from_medium_on(
    place: Place, level: str, success: bool
) -> None:
    state = place.open().agent("7")
    state.set("text", "y" * 300_000)
    for n in range(600):  # until its index is saved: who opens it reads no more than what came then
        state.set("k", n)
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"V")[-1]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    config = Configuration.of(made(integrity={"verification_level": level}))
    with sync.recovery.set_up(config, store=place.open()) as managed:
        assert managed.report.success is success
        assert bool(managed.report.findings) is not success


@pytest.mark.spec("K78")
def test_what_is_damaged_later_is_found_in_the_background(place: Place) -> None:
    store = place.open()
    state = store.agent("7")
    state.set("text", "x" * 3000)
    config = Configuration.of(made(integrity={"scrub_interval": "10ms"}))
    with sync.recovery.set_up(config, store=store) as managed:
        assert managed.report.scrub_interval == 0.01
        assert managed.report.scrub_interval == 0.01
        assert managed.scrubber is not None
        _until(lambda: managed.scrubber.status().passes > 0)
        assert managed.scrubber.status().damaged == 0
        key, row = rows_of(place.storage(), b"E")[0]
        put_row(place.storage(), key, row[:-1] + bytes([row[-1] ^ 1]))
        _until(lambda: managed.scrubber.status().damaged > 0)
    passes = managed.scrubber.status().passes
    time.sleep(0.05)
    assert managed.scrubber.status().passes == passes, "it ends with what it was set up for"
    with sync.recovery.set_up(Configuration.of(made()), store=store) as managed:
        assert (managed.scrubber, managed.report.scrub_interval) == (None, None)


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.spec("K80")
def test_the_async_face() -> None:
    async def work() -> None:
        config = Configuration.of(
            made(checkpointing={"policies": [OFTEN]}, integrity={"scrub_interval": 20})
        )
        async with await holdfast.recovery.set_up(config, initial={"k": 1}) as managed:
            assert await managed.state.get("k") == 1
            assert managed.scrubber is not None
            await asyncio.to_thread(_until, lambda: managed.scrubber._blocking.status().passes > 0)
            report = managed.report
            assert (report.success, report.created, report.agent_id) == (True, True, "7")
            assert report.current_state.startswith("main@")
            assert report.storage_initialized
            assert report.checkpointing_enabled
            assert report.recovery_configured
            assert not report.sync_enabled
            assert "often" in report.policies
            assert abs(report.initialized_at / 1000 - time.time()) < 60
        async with holdfast.open("memory:other") as store:
            async with await holdfast.recovery.set_up(config, store=store) as managed:
                assert managed.store is store
            await store.agent("7").set("k", 2)
            section = {"enabled": True, "strategy": "consensus"}
            with pytest.raises(ConfigurationError, match="write eventual_consistency"):
                await holdfast.recovery.set_up(made(synchronization=section), store=store)

    asyncio.run(work())


WRONG: list[tuple[Any, str]] = [
    (7, "a configuration is a mapping"),
    ({}, "agent_id"),
    (made(colour="red"), "colour is none of"),
    (made(sync={}, synchronization={}), "are one section"),
    (made(storage={"primary": {"pool_size": 0}}), "pool_size"),
    (made(storage={"primary": {"pool_size": 2}}), "pool_size is for a server"),
    (made(storage={"primary": {"timeout": "1s"}}), "timeout is for a server"),
    (made(storage={"primary": {"durability": "some"}}), "full or normal"),
    (made(storage={"primary": {"key": 7}}), "storage.primary.key is a text"),
    (made(storage={"backup": {"encryption": "yes"}}), "encryption is true or false"),
    (made(checkpointing={"policies": {}}), "is a list"),
    (made(checkpointing={"policies": [{"id": "x"}]}), "policies 1: "),
    (made(recovery={"procedures": [7]}), "procedures 1: a procedure is a mapping"),
    (made(integrity={"tamper_detection": False}), "cannot be switched off"),
    (made(integrity={"hash_algorithm": "MD5"}), "SHA-256"),
    (made(integrity={"scrub_interval": "seldom"}), "scrub_interval is milliseconds"),
    (made(integrity={"scrub_interval": "2d"}), "a day at most"),
    (made(monitoring={"audit_logging": False}), "journal"),
    (made(audit={"audit_logging": False}), "journal"),
    (made(audit={"metrics_enabled": False}), "counts, which cannot be switched off"),
    (made(monitoring={"performance_tracking": False}), "times, which cannot be switched off"),
    (made(monitoring={"metrics_enabled": "yes"}), "metrics_enabled is true or false"),
    (made(checkpoint={"policies": {}}), "is a list"),
    (made(checkpointing={"policies": [OFTEN, OFTEN]}), "two have the id 'often'"),
    (made(recovery={"procedures": [PROCEDURE, PROCEDURE]}), "two have the id 'p'"),
    (made(storage={"primary": {"type": "memory", "connection": "sqlite:x"}}), "is of sqlite"),
    (made(storage={"primary": {"type": "sqlite", "connection": "memory:"}}), "is of memory"),
    ({"state_management": made(), "storage": {}}, "belongs into state_management"),
]


@pytest.mark.spec("K72")
@pytest.mark.parametrize(
    ("name", "other", "part"),
    [
        ("checkpointing", "checkpoint", {"policies": [OFTEN]}),
        ("synchronization", "sync", {"enabled": True}),
        ("monitoring", "audit", {"alert_thresholds": {"recovery_time": 1}}),
        ("integrity", "integrity", {"verification_level": "medium"}),
        ("recovery", "recovery", {"procedures": [PROCEDURE]}),
        ("storage", "storage", {"primary": {"type": "sqlite", "connection": "x"}}),
    ],
)
def test_sections_by_either_name(name: str, other: str, part: Any) -> None:
    told = Configuration.of(made(**{name: part}))
    assert told == Configuration.of(made(**{other: part}))
    assert told != Configuration.of(made()), "what it says is read"


def test_what_stands_beside_the_section_is_told() -> None:
    config = Configuration.of({"state_management": made(), "more": 1})
    assert config.notes == ("more: it stands beside state_management, and is not read",)


def test_of_several_who_set_an_agent_up_one_writes_what_it_begins_with(place: Place) -> None:
    between = Between(place.storage())
    here, there = place.open(storage=between), place.open()
    config = Configuration.of(made(checkpointing={"policies": [OFTEN]}))
    other = Configuration.of(made())

    def first() -> None:
        with sync.recovery.set_up(other, store=there, initial={"done": []}) as managed:
            assert managed.report.created
            managed.state.append("done", "work")

    between.before = first
    with sync.recovery.set_up(config, store=here, initial={"done": [], "task": 1}) as managed:
        assert not managed.report.created
        assert managed.state.keys() == ["done"]
        assert managed.state.get("done") == ["work"]
        assert "often" in managed.report.policies
    assert between.before is None


def test_what_is_refused_leaves_no_agent_behind() -> None:
    demand = OFTEN | {"id": "sealed", "encryption": {"enabled": True, "algorithm": "AES-256-GCM"}}
    config = Configuration.of(made(checkpointing={"policies": [OFTEN, demand]}))
    with sync.open("memory:") as store:
        with pytest.raises(
            ConfigurationError, match=r"policies sealed: encryption: .*HOLDFAST_KEY"
        ):
            sync.recovery.set_up(config, store=store, initial={"a": 1})
        for wrong in ({3: 1}, {"$policy/x": 1}, {"a": 1, "b": object()}):
            with pytest.raises(holdfast.HoldfastError):
                sync.recovery.set_up(Configuration.of(made()), store=store, initial=wrong)  # type: ignore[arg-type]
        assert store.scopes().items == []
        with sync.recovery.set_up(
            Configuration.of(made()), store=store, initial={"a": 1}
        ) as managed:
            assert (managed.report.created, managed.state.get("a")) == (True, 1)


def test_an_agent_whose_row_is_lost_is_not_taken_for_a_new_one(place: Place) -> None:
    store = place.open()
    config = Configuration.of(made(integrity={"verification_level": "high"}))
    with sync.recovery.set_up(config, store=store, initial={"task": None}) as managed:
        managed.state.set("task", "half done")
    place.close()
    storage = place.storage()
    for key, _ in rows_of(storage, b"D"):
        put_row(storage, key, None)
    store = place.open()
    with sync.recovery.set_up(config, store=store, initial={"task": None}) as managed:
        report = managed.report
        assert (report.success, report.created) == (False, False)
        assert "the directory does not name it" in report.findings[0]
    assert store.scopes().items == []


def test_a_store_that_is_given(tmp_path: Path) -> None:
    keyed = {"primary": {"type": "sqlite", "key": "passphrase:a long enough one"}}
    placed = {"primary": {"type": "sqlite", "connection": str(tmp_path / "a.db")}}
    with sync.open("memory:") as store:
        with pytest.raises(ConfigurationError, match="is not encrypted"):
            sync.recovery.set_up(Configuration.of(made(storage=keyed)), store=store)
        with sync.recovery.set_up(Configuration.of(made(storage=placed)), store=store) as managed:
            assert "the store that was given is used" in managed.report.notes[0]
        with sync.recovery.set_up(Configuration.of(made()), store=store) as managed:
            assert managed.report.notes == ()


def test_slips_of_set_up_itself() -> None:
    config = Configuration.of(made())
    wrong: list[dict[str, Any]] = [{"store": "sqlite:x"}, {"steps": [1]}, {"steps": {"my": 3}}]

    async def other() -> None:
        with sync.open("memory:") as store, pytest.raises(InvalidInputError, match="same face"):
            await holdfast.recovery.set_up(config, store=store)  # type: ignore[arg-type]
        async with holdfast.open("memory:") as opened:
            with pytest.raises(InvalidInputError, match="same face"):
                sync.recovery.set_up(config, store=opened)  # type: ignore[arg-type]

    asyncio.run(other())
    for given in wrong:
        with pytest.raises(InvalidInputError):
            sync.recovery.set_up(config, **given)


@pytest.mark.spec("K72")
@pytest.mark.parametrize(("data", "text"), WRONG)
def test_what_is_wrong_is_listed(data: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as refused:
        Configuration.of(data)
    assert refused.value.problems


def test_slips_of_set_up_leave_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    storage = {"primary": {"type": "sqlite", "connection": f"sqlite:{path}"}}
    for config, initial in (({}, None), (Configuration.of(made()), [1])):
        with pytest.raises((InvalidInputError, ConfigurationError)):
            sync.recovery.set_up(config, initial=initial)  # type: ignore[arg-type]
    demand = OFTEN | {"encryption": {"enabled": True, "algorithm": "AES-256-GCM"}}
    plain = Configuration.of(made(storage=storage, checkpointing={"policies": [demand]}))
    with pytest.raises(ConfigurationError, match="HOLDFAST_KEY"):
        sync.recovery.set_up(plain)
    assert not path.exists(), "no plain store is made for it"
    sync.open(f"sqlite:{path}").close()
    sealed = {"primary": storage["primary"] | {"key": "passphrase:a long enough one"}}
    with pytest.raises(holdfast.HoldfastError):
        sync.recovery.set_up(Configuration.of(made(storage=sealed)))
    with sync.open(f"sqlite:{path}") as store:  # nobody holds it
        assert store.verify().ok


def test_a_close_that_goes_wrong_or_is_cancelled_leaves_nothing_open() -> None:
    config = Configuration.of(made(integrity={"scrub_interval": "1h"}))

    def fail() -> None:
        raise ZeroDivisionError

    managed = sync.recovery.set_up(config)
    managed.scrubber.stop = managed.policies.close = fail  # type: ignore[union-attr,method-assign]
    with pytest.raises(ZeroDivisionError):
        managed.close()
    with pytest.raises(StoreClosedError):
        managed.state.set("k", 1)

    async def work() -> None:
        managed = await holdfast.recovery.set_up(config)
        closing = asyncio.create_task(managed.close())
        while not closing.done():  # in the middle of each part of it
            await asyncio.sleep(0)
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(InvalidInputError, match="policies are closed"):
            await managed.policies.report("agent:7", "error")
        with pytest.raises(StoreClosedError):
            await managed.state.set("k", 1)

    asyncio.run(work())


def test_set_up_that_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    primary = {"type": "sqlite", "connection": str(tmp_path / "a.db")}
    document = made(storage={"primary": primary}, integrity={"scrub_interval": 20})
    config = Configuration.of(document)

    async def set_up(pause: float) -> bool:
        async def begin() -> Any:
            return await holdfast.recovery.set_up(config, initial={"k": 1})

        task = asyncio.create_task(begin())
        await asyncio.sleep(pause)
        task.cancel()
        try:
            managed = await task
        except asyncio.CancelledError:
            return False
        assert await managed.state.get("k") == 1
        await managed.close()
        return True

    async def work() -> None:
        before = set(threading.enumerate())
        pause = 0.0
        while not await set_up(pause):
            left = {one.name for one in set(threading.enumerate()) - before}
            assert not {name for name in left if name.startswith("holdfast-")}
            pause = pause * 1.2 + 0.001

    asyncio.run(work())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("storage: {}\nstorage: {}", "line 2: 'storage' is there twice"),
        ("a: &x {b: 1}\nc: *x", "aliases"),
        ("a: [", "line 1: "),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("? [1, 2]\n: 3", "found unhashable key"),
    ],
)
def test_yaml_that_is_none(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        Configuration.from_yaml(text)


def test_yaml_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[yaml\]"):
        Configuration.from_yaml("storage: {}")
