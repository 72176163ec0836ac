"""`--ttl`, `holdfast key expire`, `holdfast key persist` and `holdfast sweep`."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from cli_kit import Cli

from holdfast import Classed, Lookup, sync


def seconds_left(cli: Cli, key: str) -> float | None:
    """How long a key lasts from now on."""
    text = cli(f"key get agent:7 {key} --json").json["expires"]
    if text is None:
        return None
    return (datetime.fromisoformat(text) - datetime.now(UTC)).total_seconds()


def test_ttl_expire_persist(cli: Cli) -> None:
    cli("key set agent:7 k 1 --create --ttl 2h")
    assert 7100 < (seconds_left(cli, "k") or 0) <= 7200
    assert "expires in 0:15:00" in cli("key expire agent:7 k 15m --sliding").out
    assert 800 < (seconds_left(cli, "k") or 0) <= 900
    assert cli("key persist agent:7 k --json").json["entry"] == 3
    assert seconds_left(cli, "k") is None
    assert cli("key expire agent:7 none 5").code == 4
    assert "has no key 'none'" in cli("key persist agent:7 none").err


@pytest.mark.parametrize("text", ["", "x", "-5", "1y", "1h30m", "9999999999999d"])
def test_a_time_that_is_none(cli: Cli, text: str) -> None:
    done = cli("key", "set", "agent:7", "k", "1", "--create", "--ttl", text)
    assert done.code == 2
    assert "15m, 2h, 7d" in done.err


def test_no_time_at_all_is_refused(cli: Cli) -> None:
    assert "ttl is a number of seconds above 0" in cli("key set agent:7 k 1 --create --ttl 0").err


@pytest.mark.spec("M83")
def test_sweep(cli: Cli) -> None:
    for number in range(3):
        cli(f"key set agent:{number} k 1 --create --ttl 0.05")
    cli("key set agent:0 stays 1")
    time.sleep(0.06)
    assert cli("key list agent:0 --json").json["keys"] == ["stays"]
    assert cli("sweep agent:0").out == "1 expired key removed\n"
    assert cli("sweep --limit 1 --json").json["keys"] == 1
    assert cli("sweep").out.splitlines()[0] == "1 expired key removed"
    assert cli("sweep agent:0 --json").json["keys"] == 0
    assert "leave the scope out" in cli("sweep agent:0 --wait").err
    assert "no scope agent:none" in cli("sweep agent:none").err
    assert cli("verify").code == 0


def test_sensitive_values_are_shown_on_demand(cli: Cli) -> None:
    cli("key set agent:7 api_token '\"s3cr3t\"' --create")
    cli("key set agent:7 note '\"s3cr3t\"' --class sensitive")
    cli("key", "set", "agent:7", "secrets", '{"s3cr3t": 1}')
    cli("key set agent:7 plan 1")
    for command in (
        "key get agent:7 api_token",
        "key get agent:7 note --json",
        "show agent:7",
        "show agent:7 --json",
        "diff agent:7 0",
        "diff agent:7 0 --json",
    ):
        masked = cli(command)
        assert "s3cr3t" not in masked.out + masked.err, command
        assert "$sensitive" in masked.out, command
        assert "s3cr3t" in cli(f"{command} --reveal").out, command
    for command in (
        "revert agent:7 --entry 2 --dry-run",
        "restore agent:7 1 --dry-run",
        "log agent:7",
    ):
        shown = cli(command)
        assert shown.code == 0, shown
        assert "s3cr3t" not in shown.out + shown.err
    assert "--reveal" in cli("key get agent:7 note --text").err
    assert cli("key get agent:7 note --json").json["class"] == "sensitive"
    assert cli("key set agent:7 plan 1 --class secret").code == 2
    assert cli("show agent:7 --json").json["state"]["plan"] == 1
    refused = cli("key", "set", "agent:7", "other", '{"$sensitive": true}')
    assert refused.code != 0, "a mask is no value"


def test_sensitive_values_are_not_shown_by_queries_merges_and_fetches(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        state = store.agent("7")
        state.declare(Lookup("by_kind", terms="kind"))
        state.set("api_token", {"kind": "x", "text": "s3cr3t"})
        state.set("plan", {"kind": "x"})
        state.set("file_token", b"s3cr3t")
        trial = state.fork("trial")
        state.set("api_token", {"kind": "x", "text": "s3cr3t one"})
        trial.set("api_token", {"kind": "x", "text": "s3cr3t two"})
    for command in (
        "query agent:7 by_kind kind=x",
        "query agent:7 by_kind kind=x --json",
        "merge agent:7 trial",
        "merge agent:7 trial --json",
        "merge agent:7 trial --strategy theirs --dry-run",
        "key fetch agent:7 file_token",
    ):
        done = cli(command)
        assert "s3cr3t" not in done.out + done.err, command
    found = cli("query agent:7 by_kind kind=x --json").json["found"]
    assert found == [{"key": "plan", "value": {"kind": "x"}}], "what is sensitive is in no lookup"
    assert "--reveal" in cli("key fetch agent:7 file_token").err
    assert cli("key fetch agent:7 file_token --reveal").code == 0


def test_what_is_sensitive_for_one_of_two_states_is_shown_for_neither(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        state = store.agent("7")
        state.set("billing/card", "s3cr3t")
        state.checkpoint("before")
        other = state.fork("other")
        state.declare(Classed("billing/", "sensitive"))
        state.set("billing/card", "s3cr3t now")
        other.set("billing/card", "s3cr3t there")
        other.set("billing/new", "s3cr3t there")
    for command in (
        "restore agent:7 before --dry-run",
        "restore agent:7 before --dry-run --json",
        "diff agent:7 main@4 main@2",
        "diff agent:7 0 main@2 --json",
        "diff agent:7 other@2 main@4",
        "show agent:7 --at before",
        "key get agent:7 billing/card --at before",
        "merge agent:7 other",
        "merge agent:7 other --strategy theirs --dry-run --json",
        "merge agent:7 other --strategy theirs",
        "show agent:7",
    ):
        done = cli(command)
        assert "s3cr3t" not in done.out + done.err, command
        assert "billing" in done.out or "sensitive" in done.err, command
