"""`holdfast policy`."""

from __future__ import annotations

import time

import pytest
from cli_kit import Cli

from holdfast import sync


@pytest.mark.spec("K144", "K145")
def test_list_set_explain_remove(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        store.agent("7").set("plan", "x" * 100)
    listed = cli("policy list agent:7").out.splitlines()
    assert listed[0].split("\t") == [
        "default-state-change",
        "high",
        "state_change_ratio > 0.1",
        "event",
        "7 d, last 50",
        "off",
        "default",
    ]
    assert listed[1].split("\t")[3:5] == ["300 s + 30 s", "1 d, last 100"]
    done = cli(
        "policy set agent:7 often --when operation_count>=3 --when error_rate<0.5@10m "
        "--interval 5m --max-age 7d --priority critical"
    )
    assert done.out == (
        "agent:7 often: a checkpoint when operation_count ≥ 3 and error_rate < 0.5 within "
        "600000 ms\n"
    )
    data = cli("policy list agent:7 --json").json["policies"][0]
    assert (data["id"], data["source"], data["frequency"]["interval"]) == ("often", "own", 300_000)
    assert data["retention"] == {"max_age": 604_800_000, "max_count": None, "min_count": 0}
    assert data["effective"]["encryption"] == "off"
    found = cli("policy explain agent:7").out.splitlines()
    assert found[0] == "often\tno\toperation_count is 1, not ≥ 3"
    assert found[1].startswith("default-state-change\tyes\t")
    whole = cli("policy explain agent:7 --json").json["policies"][0]
    assert (whole["fires"], whole["readings"][0]["value"]) == (False, 1)
    assert cli("policy remove agent:7 often").out == "agent:7 often: removed\n"
    assert cli("policy set agent:7 default-state-change --off").out.endswith("switched off\n")
    assert "default-state-change (off)" in cli("policy list agent:7").out
    with sync.open("sqlite:holdfast.db") as store:
        assert store.agent("7").checkpoints() == []  # setting and explaining fire nothing


def test_policies_as_schedules(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        store.agent("7").set("plan", 1)
    cli(
        "policy set agent:7 often --when operation_count>=1 --interval 100 --min-count 2 "
        "--compression none"
    )
    data = cli("policy list agent:7 --json").json["policies"]
    own = next(one for one in data if one["id"] == "often")
    assert own["retention"]["min_count"] == 2
    assert own["compression"] == {"enabled": False, "algorithm": "lz4"}
    listed = [line.split("\t")[2] for line in cli("schedule list").out.splitlines()]
    assert listed == ["agent:7 by policy often"]
    time.sleep(0.11)
    (line,) = cli("schedule run --once").out.splitlines()
    assert line.split("\t")[2:] == ["saved", "main@3"]
    assert cli("schedule add agent:7 --every 60 --retention").out.startswith("retention/agent:7")
    shown = {one["name"]: one for one in cli("schedule list --json").json["schedules"]}
    assert shown["retention/agent:7"]["retention"]


def test_what_is_refused(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        store.agent("7").set("plan", 1)
    for words, text in (
        ("set agent:7 p", "it has no conditions"),
        ("set agent:7 p --when mood>3", "unknown metric 'mood'"),
        ("set agent:7 p --when nonsense", "is no condition"),
        ("set agent:7 p --when operation_count>x", "the threshold is a finite number"),
        ("set agent:7 p --when operation_count>1 --encrypted", "this store is plain"),
        ("set agent:7 p --when operation_count>1 --interval soon", "the interval is from 0 ms"),
        ("set session:7 p --when operation_count>1", "session:7 is no agent"),
    ):
        refused = cli(f"policy {words}")
        assert (refused.code, text in refused.err) == (2, True), refused.err
    refused = cli(
        "policy set agent:7 p --when mood>3 --when operation_count>x "
        "--interval soon --priority urgent"
    )
    for text in ("'mood'", "the threshold", "the interval", "'urgent'"):
        assert text in refused.err, refused.err
    assert "no conditions" not in refused.err
    assert cli("policy remove agent:7 default-time-based").code == 4
    assert cli("policy list agent:8").code == 4
    assert "mood" in cli("policy set agent:7 p --when mood>3 --metric mood").out
    assert "no value in this process" in cli("policy explain agent:7").out
