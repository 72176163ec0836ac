"""`holdfast agent transitions`."""

from __future__ import annotations

import pytest
from cli_kit import Cli

from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineState
from holdfast.errors import TransitionRefusedError


class Killed(BaseException):
    """Stands for the end of the process."""


def die(step: object) -> None:
    raise Killed


DEFINITION = MachineDefinition(
    "draft",
    {
        "draft": MachineState(on={"review": "reviewed"}),
        "reviewed": MachineState(on={"publish": MachineArrow("published", work=die)}),
        "published": MachineState(),
    },
)


@pytest.mark.spec("M86")
def test_where_machines_are_and_how_they_got_there(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        store.agent("9").set("plan", 1)
        machine = sync.agents.Machine(store.agent("7"), DEFINITION, "article")
        with pytest.raises(TransitionRefusedError):
            machine.fire("publish")
        machine.fire("review")
        with pytest.raises(Killed):
            machine.fire("publish")
        sync.agents.Machine(store.agent("7"), DEFINITION, "other").start()
    shown = cli("agent transitions agent:7 --machine article")
    rows = [line.split("\t") for line in shown.out.splitlines()]
    assert [[row[0], *row[2:7]] for row in rows] == [
        ["1", "start", "", "", "draft", "1"],
        ["2", "step", "publish", "draft", "", "1"],
        ["3", "step", "review", "draft", "reviewed", "2"],
    ]
    assert "TransitionRefusedError" in rows[1][7]
    assert "article: reviewed, version 2\n" in shown.err
    assert "article: publish is being worked on since" in shown.err
    data = cli("agent transitions agent:7 --json").json
    assert [one["machine"] for one in data["machines"]] == ["article", "other"]
    article = data["machines"][0]
    assert (article["state"], article["version"]) == ("reviewed", 2)
    assert (article["interrupted"]["trigger"], article["interrupted"]["attempt"]) == ("publish", 1)
    assert [one["success"] for one in article["transitions"]] == [True, False, True]
    failed = cli("agent transitions agent:7 --failed --machine article --json").json
    assert [one["number"] for one in failed["machines"][0]["transitions"]] == [2]
    since = cli("agent transitions agent:7 --since 3 --machine article")
    assert len(since.out.splitlines()) == 1
    assert len(cli("agent transitions agent:7 --limit 1").out.splitlines()) == 2
    assert "agent:9 has no state machine" in cli("agent transitions 9").err
    about = cli("agent show 7")
    assert "machine article: reviewed, on its way to published or interrupted" in about.out
    assert cli("agent show 7 --json").json["machines"] == {
        "article": {"state": "reviewed", "to": "published"},
        "other": {"state": "draft", "to": None},
    }


def test_any_id_of_an_agent_and_any_scope_is_taken(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        for scope in ("agent:team:8", "agent:a/b", "workflow:9"):
            sync.agents.Machine(store.scope(scope), DEFINITION).start()
    known = {"team:8": "agent:team:8", "a/b": "agent:a/b", "workflow:9": "workflow:9"}
    for given, scope in {**known, **{scope: scope for scope in known.values()}}.items():
        found = cli(f"agent transitions {given} --json").json
        assert (found["scope"], len(found["machines"])) == (scope, 1)


def test_what_is_refused(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        sync.agents.Machine(store.agent("7"), DEFINITION, "article").start()
    missing = cli("agent transitions agent:7 --machine nothing")
    assert missing.code == 4
    assert "it has: article" in missing.err
    assert cli("agent transitions agent:8").code == 4
    assert cli("agent transitions agent:7 --since soon").code == 2
