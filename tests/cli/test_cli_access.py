"""`holdfast access`, and what the command line does not show."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Cli

import holdfast
from holdfast import sync
from holdfast.schemas import Schema, Text
from holdfast.sync.access import SSN, Access, Protection


def test_grant_check_show_and_revoke(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        store.agent("a").set("plan", 1)
    made = cli("access grant ann agent:a read --prefix notes/ --below")
    assert made.out == "ann may read agent:a keys notes/* and below\n"
    cli("access grant bob agent:* read_write --until 2999-01-01T00:00:00+00:00")
    assert cli("access check bob agent:a write").code == 0
    denied = cli("access check ann agent:a write --json")
    assert denied.code == 1
    assert denied.json["allowed"] is False
    assert "access.grant('ann', 'agent:a', 'write') is missing" in denied.json["why"]
    assert cli("access check ann agent:a read --key notes/1").code == 0
    assert cli("access check ann agent:a read --key plan").code == 1
    assert len(cli("access show agent:a --json").json["grants"]) == 2
    assert cli("access revoke ann agent:a --prefix notes/").code == 0
    again = cli("access revoke ann agent:a --prefix notes/")
    assert again.code != 0
    assert "has no such grant" in again.err
    assert cli("access grant ann nobody:* read").code != 0
    assert cli("access grant ann agent:a read --until 1999-01-01T00:00:00+00:00").code != 0
    with sync.open("sqlite:holdfast.db") as store:
        assert [one.principal for one in Access(store).list()] == ["bob"]
        reasons = [one.cause.reason or "" for one in store.custom("$access").log()]
    assert any(one.startswith("revoke: ann") for one in reasons), "it is all in the journal"


CONFIGURATION = """
agent_id: a
storage:
  primary: {connection: holdfast.db}
  backup:
    - {path: copies, interval: 1h, keep: 24}
    - {path: exports, scopes: ["agent:a"]}
"""


@pytest.mark.spec("L44", "L45", "L41")
def test_show_lists_the_rules_of_one_scope_and_of_no_other(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        for name in ("a", "b"):
            store.agent(name).set("plan", 1)
        schema = Schema("profile", version=1, prefix="profiles/", fields={"name": Text()})
        store.agent("a").declare(schema, holdfast.Keep(count=10))
        store.agent("a").set("profiles/ann", {"name": "Ann"})
        sync.checkpoints.Scheduler(store).every(3600, store.agent("b"), name="hourly")
        Access(store).grant("ann", "agent:a", "read")
        Access(store).grant("bob", "workflow:w", "read", below=True)
    cli("policy set agent:a mine --when operation_count>=3 --max-count 7 --max-age 2d")
    cli("policy set agent:a rest --off")
    a, b = (cli(f"access show agent:{name} --json").json for name in "ab")
    assert a["grants"] == ["ann may read agent:a"]
    assert b["grants"] == []
    assert "schema: prefix profiles/, name profile, version 1" in a["rules"]
    assert "keep: count 10" in a["rules"]
    assert b["rules"] == []
    assert a["migrations"] == ["profile to version 1: completed, 1 of version 1"]
    assert b["migrations"] == []
    assert "mine (own): keeps 2 d, last 7" in a["policies"]
    assert "rest (own, off): keeps all" in a["policies"]
    assert not [one for one in b["policies"] if one.startswith("mine")]
    assert (len(a["schedules"]), len(b["schedules"])) == (0, 1)
    step = cli("access show step:w/1 --json").json
    assert (step["below"], step["grants"]) == (
        ["workflow:w"],
        ["bob may read workflow:w and below"],
    )
    shown = cli("access show agent:a").out
    assert "  ann may read agent:a\n" in shown
    assert "migrations:\n  profile to version 1: completed, 1 of version 1\n" in shown
    assert "=" not in shown, "it is text, not how Python writes objects"
    Path("agent.yaml").write_text(CONFIGURATION)
    a, b = (cli(f"access show agent:{name} --config agent.yaml --json").json for name in "ab")
    assert b["backups"] == ["every 3600 s, 24 kept: the whole store"]
    assert a["backups"] == [*b["backups"], "every 86400 s, all kept: signed exports of agent:a"]


def test_what_is_kept_from_people_is_not_printed(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        store.agent("a").set("note", {"text": "ssn 123-45-6789", "n": 1})
        store.agent("a").set("plain", "123-45-6789")
        first = store.agent("a").checkpoint("first of 123-45-6789")
        store.agent("a").fork("other").set("note", {"text": "other 123-45-6789"})
        with store.acting(reason="call 123-45-6789"):
            store.agent("a").set("note", {"text": "now 987-65-4321", "n": 1})
    assert "123-45-6789" in cli("key get agent:a plain").out, "nothing was said of it yet"
    with sync.open("sqlite:holdfast.db") as store:
        Protection(store, redact=[SSN]).keep()
    for command in (
        "key get agent:a note",
        "key get agent:a note --json",
        "key get agent:a plain --text",
        f"diff agent:a {first.id}",
        f"diff agent:a {first.id} --json",
        "show agent:a",
        "show agent:a --json",
        "blame agent:a note",
        "log agent:a",
        "checkpoint list agent:a",
        "checkpoint list agent:a --json",
        "merge agent:a other",
        "merge agent:a other --json",
    ):
        found = cli(command)
        assert found.code == (5 if "merge" in command else 0), found.err
        assert "123-45" not in found.out, command
        assert "987-65" not in found.out, command
        assert "[redacted]" in found.out, command
    assert "987-65-4321" in cli("key get agent:a note --reveal").out
    with sync.open("sqlite:holdfast.db") as store:
        assert store.agent("a").get("plain") == "123-45-6789"
