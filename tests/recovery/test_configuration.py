"""One document sets an agent up: what it says is in force, what it cannot have is named."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import Configuration, sync
from holdfast.errors import ConfigurationError, InvalidInputError, PolicyValidationError

DOCUMENT = """
state_management:
  agent_id: "ai.kai.assistant.general"
  storage:
    primary:
      type: "postgresql"
      connection: "postgresql://user:pass@localhost:5432/kai_states"
      pool_size: 20
      timeout: 30000
    backup:
      type: "s3"
      bucket: "kai-agent-states"
      region: "us-west-2"
      encryption: true
    cache:
      type: "redis"
      connection: "redis://localhost:6379/2"
      ttl: "1h"
  checkpointing:
    policies:
      - name: "time_based"
        conditions:
          - type: "time_interval"
            threshold: 300000
            metric: "time_since_last_checkpoint"
            operator: "greater_than"
        frequency: {interval: 300000, jitter: 30000}
        retention: {max_age: "7d", max_count: 100}
        priority: "medium"
  recovery:
    procedures:
      - name: "mine"
        triggers: [{type: "agent_crash"}]
        steps:
          - {type: "locate_checkpoint", timeout: 60000}
          - {type: "restore_state", timeout: "2m"}
  synchronization: {enabled: true, strategy: "eventual_consistency"}
  integrity: {verification_level: "high", hash_algorithm: "SHA-256"}
  monitoring: {audit_logging: true, alert_thresholds: {checkpoint_failure_rate: 0.05}}
"""
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


def made(**more: Any) -> dict[str, Any]:
    """A configuration that can be set up anywhere."""
    primary = {"type": "memory"}
    return {"agent_id": "7", "storage": {"primary": primary}, **more}


@pytest.mark.spec("K254")
def test_the_documents_configuration_can_be_read_and_says_what_is_not_there() -> None:
    config = Configuration.from_yaml(DOCUMENT)
    assert config.agent_id == "ai.kai.assistant.general"
    assert [one.id for one in config.policies] == ["time_based"]
    assert [one.id for one in config.procedures] == ["mine"]
    with pytest.raises(ConfigurationError) as refused:
        sync.set_up(config)
    assert [text.partition(": ")[2].split(":")[0] for text in refused.value.problems] == [
        "storage.primary.type postgresql",
        "storage.backup.type s3",
        "storage.cache.type redis",
        "synchronization",
        "monitoring.alert_thresholds",
    ]


def test_connections_are_never_shown() -> None:
    data = {"type": "postgresql", "connection": "postgresql://user:secret@host/db", "timeout": "x"}
    with pytest.raises(ConfigurationError) as refused:
        Configuration.of(made(storage={"primary": data, "cache": {"type": "redis", "ttl": "1 h"}}))
    assert len(refused.value.problems) == 2
    assert "secret" not in str(refused.value)
    read = Configuration.of(made(storage={"primary": data | {"timeout": "30s"}}))
    assert "secret" not in str(read.unavailable)
    assert "secret" not in repr(read)
    keyed = Configuration.of(made(storage={"primary": {"key": "passphrase:secret"}}))
    assert keyed.key is not None
    assert "secret" not in repr(keyed)


@pytest.mark.spec("K265")
@pytest.mark.parametrize(
    ("text", "number"), [("500ms", 500), ("30s", 30_000), ("1h", 3_600_000), ("7d", 604_800_000)]
)
def test_durations_are_milliseconds_or_texts(text: str, number: int) -> None:
    def read(length: Any) -> Configuration:
        policy = OFTEN | {"frequency": {"interval": length}, "retention": {"max_age": length}}
        policy["conditions"] = [OFTEN["conditions"][0] | {"threshold": length}]
        step = {"type": "cleanup", "timeout": min(number, 30_000) if length == number else "30s"}
        procedure = {"id": "p", "triggers": [], "steps": [step], "timeout": 60_000}
        return Configuration.of(
            made(checkpointing={"policies": [policy]}, recovery={"procedures": [procedure]})
        )

    assert read(text).policies == read(number).policies
    assert read(text).policies[0].frequency.interval == number


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
        with sync.set_up(config, initial={"task": "first"}, steps=steps) as managed:
            report = managed.report
            assert (report.success, report.agent_id, report.created) == (True, "writer", created)
            assert report.current_state == f"main@{managed.state.place()[2]}"
            assert (report.storage_initialized, report.encrypted) == (True, False)
            assert report.checkpointing_enabled
            assert "often" in report.policies
            assert (report.recovery_configured, report.procedures[0]) == (True, "p")
            assert (report.sync_enabled, report.findings) == (False, ())
            assert managed.state.get("task") == ("first" if created else "later")
            if created:
                managed.state.set("task", "later")
                head = managed.state.place()[2]
            assert managed.recovery.recover(managed.state, "lost").procedure == "p"
    with sync.open(f"sqlite:{tmp_path / 'a.db'}") as store:
        later = [one for one in store.agent("writer").log(kind="set") if one.sequence > head]
        assert later == [], "what it has already is not written again"


@pytest.mark.spec("K70")
def test_what_is_damaged_is_found_and_nothing_is_written(place: Place) -> None:
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
        made(integrity={"verification_level": "high"}, checkpointing={"policies": [OFTEN]})
    )
    with sync.set_up(config, store=store) as managed:
        report = managed.report
        assert not report.success
        assert report.findings
        assert "found: " in str(report)
        assert (report.checkpointing_enabled, report.sync_enabled) == (False, False)
        assert "standard_recovery" in report.procedures
        assert managed.recovery.recover(managed.state, "corruption_detected").success
    with sync.set_up(config, store=store) as again:
        assert again.report.success
        assert again.report.findings, "what was damaged is still there, in the past"
        assert again.policies.get(again.state, "often") is not None
    assert store.agent("7").get("text")  # the store was given, and stays open


@pytest.mark.spec("K80")
def test_the_async_face() -> None:
    async def work() -> None:
        config = Configuration.of(made(checkpointing={"policies": [OFTEN]}))
        async with await holdfast.set_up(config, initial={"k": 1}) as managed:
            assert await managed.state.get("k") == 1
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
            async with await holdfast.set_up(config, store=store) as managed:
                assert managed.store is store
            await store.agent("7").set("k", 2)
            with pytest.raises(ConfigurationError):
                await holdfast.set_up(
                    Configuration.of(made(synchronization={"enabled": True})), store=store
                )

    asyncio.run(work())


WRONG: list[tuple[Any, str]] = [
    (7, "a configuration is a mapping"),
    ({}, "agent_id"),
    (made(colour="red"), "colour is none of"),
    (made(sync={}, synchronization={}), "are one section"),
    (made(storage={"primary": {"pool_size": 0}}), "pool_size"),
    (made(storage={"primary": {"durability": "some"}}), "full or normal"),
    (made(storage={"primary": {"key": 7}}), "storage.primary.key is a text"),
    (made(storage={"backup": {"encryption": "yes"}}), "encryption is true or false"),
    (made(checkpointing={"policies": {}}), "is a list"),
    (made(checkpointing={"policies": [{"id": "x"}]}), "policies 1: "),
    (made(recovery={"procedures": [7]}), "procedures 1: a procedure is a mapping"),
    (made(integrity={"tamper_detection": False}), "cannot be switched off"),
    (made(integrity={"hash_algorithm": "MD5"}), "SHA-256"),
    (made(monitoring={"audit_logging": False}), "journal"),
]


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
        with pytest.raises(InvalidInputError):
            sync.set_up(config, initial=initial)  # type: ignore[arg-type]
    demand = OFTEN | {"encryption": {"enabled": True, "algorithm": "AES-256-GCM"}}
    plain = Configuration.of(made(storage=storage, checkpointing={"policies": [demand]}))
    with pytest.raises(PolicyValidationError):
        sync.set_up(plain)
    sealed = {"primary": storage["primary"] | {"key": "passphrase:a long enough one"}}
    with pytest.raises(holdfast.HoldfastError):
        sync.set_up(Configuration.of(made(storage=sealed)))
    with sync.open(f"sqlite:{path}") as store:  # nobody holds it
        assert store.verify().ok


@pytest.mark.spec("K283", "K285")
def test_monitoring_counts_and_times_what_is_set_up() -> None:
    on = {"metrics_enabled": True, "performance_tracking": True}
    with sync.set_up(Configuration.of(made(monitoring=on))) as managed:
        assert managed.report.notes == ()
        managed.state.set("task", 1)
        told = managed.store.metrics()
        assert told.count("saves", outcome="saved") >= 1
        assert told.latency("saves").quantile(0.5) > 0
    off = {"metrics_enabled": False}
    assert Configuration.of(made(monitoring=off)).notes != ()  # it cannot be, and that is said
