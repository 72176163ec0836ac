"""`holdfast agent effects|settle|handovers`."""

from __future__ import annotations

from contextlib import suppress

import pytest
from cli_kit import Cli

from holdfast import sync
from holdfast.agents.agent_keys import CONVERSATION, task_key
from holdfast.store.inner import own_change


@pytest.fixture
def clerk(agent: str) -> str:
    """An agent with effects of every kind, and a task that it offers to another."""
    with sync.open("sqlite:holdfast.db") as store:
        state = store.agent("7")
        effects = sync.agents.Effects(state)
        effects.call("search", lambda _: {"hits": 3}, id="c1", about="what is secret")
        effects.plan("send", id="c2")
        parts = own_change(state)
        part = parts.part(state._handle)
        part.set(task_key("t1"), {"id": "t1"})
        part.append(CONVERSATION, {"role": "user", "content": "hello"})
        state._run(parts.plan())
        sync.agents.Handovers(store).hand_over(
            state, "agent:8", "t1", reason="about money", id="h1"
        )
        with suppress(ZeroDivisionError), effects.once("pay", id="c3") as effect:
            assert effect.due
            raise ZeroDivisionError
    return agent


def test_effects_are_listed(cli: Cli, clerk: str) -> None:
    rows = [line.split("\t") for line in cli("agent effects agent:7").out.splitlines()]
    assert [(row[0], row[1], row[2], row[7]) for row in rows] == [
        ("send", "c2", "planned", "nothing: the agent may begin it"),
        ("pay", "c3", "unknown", "settle it"),
    ]
    assert rows[1][6] == "ZeroDivisionError"
    assert len(cli("agent effects agent:7 --all").out.splitlines()) == 3
    found = cli("agent effects agent:7 --all --json").json["effects"]
    assert [one["status"] for one in found] == ["done", "planned", "unknown"]
    assert "secret" not in str(found)
    [first, *_] = cli("agent effects agent:7 --all --json --reveal").json["effects"]
    assert (first["about"], first["result"]) == ("what is secret", {"hits": 3})
    assert cli("agent effects 8").out == ""


def test_settled(cli: Cli, clerk: str) -> None:
    assert cli("agent settle agent:7 send c2 --drop").out == "agent:7 send c2: dropped\n"
    done = cli("agent", "settle", "agent:7", "pay", "c3", "--done", "--result", '{"paid": 5}')
    assert (done.code, done.out) == (0, "agent:7 pay c3: done\n")
    assert cli("agent effects agent:7 --json").json["effects"] == []
    with sync.open("sqlite:holdfast.db") as store:
        known = sync.agents.Effects(store.agent("7")).get("pay", id="c3")
        assert known is not None
        assert (known.result, known.settled) == ({"paid": 5}, True)
        assert store.agent("7").log(limit=1)[0].cause.actor == "tester"
    missing = cli("agent settle agent:7 pay c3 --repeat")
    assert (missing.code, missing.out) == (4, "")
    assert "`holdfast agent effects` lists them" in missing.err
    for words in ("", "--done --repeat", "--repeat --result 1", "--done --result {"):
        assert cli(f"agent settle agent:7 pay c3 {words}").code == 2


def test_settled_as_to_be_repeated(cli: Cli, clerk: str) -> None:
    shape = cli("agent settle agent:7 pay c3 --repeat --json").json
    assert (shape["how"], shape["effect"]["status"]) == ("repeat", "planned")


def test_handovers_are_listed(cli: Cli, clerk: str) -> None:
    for scope in ("agent:7", "agent:8"):
        [row] = [line.split("\t") for line in cli(f"agent handovers {scope}").out.splitlines()]
        assert row[:5] == ["h1", "t1", "agent:7", "agent:8", "accepted"]
        assert row[6:8] == ["1", "about money"]
    chain = cli("agent handovers agent:7 --task t1 --chain --json").json["handovers"]
    assert [(one["from"], one["to"], one["reason"]) for one in chain] == [
        ("agent:7", "agent:8", "about money")
    ]
    assert cli("agent handovers agent:8 --open").out == ""
    with sync.open("sqlite:holdfast.db") as store:
        sync.agents.Handovers(store).give_back("agent:8", "t1", reason="done")
    [row] = [line.split("\t") for line in cli("agent handovers 7 --open").out.splitlines()]
    assert row[4] == "offered"
    assert cli("agent handovers agent:8 --task other").out == ""
    refused = cli("agent handovers agent:8 --chain")
    assert (refused.code, "--task ID" in refused.err) == (2, True)


def test_a_contradiction_settles_nothing(cli: Cli, clerk: str) -> None:
    """Of two ends, the last word would count: what was done might be done again."""
    for words in ("--done --repeat", "--repeat --done", "--done --drop", "--repeat --drop --done"):
        refused = cli(f"agent settle agent:7 pay c3 {words}")
        assert (refused.code, refused.out) == (2, "")
        assert "one of --done, --repeat and --drop" in refused.err
    assert "unknown" in cli("agent effects agent:7").out
