"""`holdfast agent list`, `show` and `state`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cli_kit import Cli
from test_cli_recovery import damage

from holdfast import Operation, sync
from holdfast.agents import Message, Task
from holdfast.sync.agents import Agents, AgentState, attach


class Counter:
    def __init__(self) -> None:
        self.count = 3


KINDS: dict[str, Any] = {"counter": lambda identity: Counter()}


def filled() -> None:
    with sync.open("sqlite:holdfast.db") as store:
        agents = Agents(store, KINDS, fields={"counter": ["count"]})
        agents.register("7", kind="counter", name="Seven", version="1.2")
        agents.spawn("7")
        agent = AgentState(store.agent("7"))
        agent.append("conversation", *(Message(role="user", content=n) for n in range(5)))
        agent.put("tasks", "t", Task(id="t"))
        agents.close()
        attach(Counter(), store.agent("8"), fields=["count"]).start()
        store.agent("9").set("plain", 1)
        store.agent("7").checkpoint("then")
        agent.append("conversation", Message(role="user", content="later"))


def test_list(cli: Cli) -> None:
    filled()
    assert cli("agent list").out.splitlines() == [
        "7\tSeven\tcounter\t1.2\tstopped\t",
        "8\t\t\t\trunning\t",
        "9\t\t\t\tcreated\t",
    ]
    assert [one["id"] for one in cli("agent list --json").json["agents"]] == ["7", "8", "9"]
    assert cli("agent list --kind counter --json").json["agents"][0]["identity"]["name"] == "Seven"
    more = cli("agent list --limit 1")
    assert (more.out.count("\n"), more.err) == (1, "there may be more: --after 7\n")
    assert cli("agent list --after 7").out.startswith("8\t")
    nobody = cli("agent list --prefix x")
    assert (nobody.out, nobody.err) == ("", "agents: none\n")
    assert cli("agent list --prefix x --json").json == {"agents": []}


def test_show(cli: Cli) -> None:
    filled()
    shown = cli("agent show 7").out
    for line in ("agent: 7", "name: Seven", "status: stopped", "run by: nobody", "tasks\t1"):
        assert line in shown
    whole = cli("agent show agent:7 --json").json
    assert whole["components"]["conversation"] == 6
    assert (whole["life"]["status"], whole["problems"]) == ("stopped", [])
    with sync.open("sqlite:holdfast.db") as store:
        handle = store.agent("7")._handle
        operation = Operation("set", "$agent/current_task", "gone")
        store.agent("7")._run(handle._plan([operation], handle._version))
    assert "wrong: current_task: there is no task 'gone'" in cli("agent show 7").err
    assert "status: running" in cli("agent show 8").out
    assert "status: created" in cli("agent show 9").out
    missing = cli("agent show 10")
    assert (missing.code, "there is no scope agent:10" in missing.err) == (4, True)


def test_state(cli: Cli) -> None:
    filled()
    assert cli("agent state 7 conversation --tail 1").json == [{"role": "user", "content": "later"}]
    assert cli("agent state 7 conversation --tail 1 --at then").json[0]["content"] == 4
    assert cli("agent state 7 attached").json == {"count": 3}
    assert set(cli("agent state 7").json) == {
        "identity",
        "conversation",
        "tasks",
        "execution_state",
        "attached",
    }
    whole = cli("agent state 7 tasks --json").json
    assert whole["components"]["tasks"]["pending"] == [{"id": "t"}]
    assert cli("agent state 7 goals").code == 4
    wrong = cli("agent state 7 nothing")
    assert (wrong.code, "there are identity" in wrong.err) == (2, True)
    assert cli("agent state").code == 2


def test_state_of_an_agent_of_which_a_field_was_put_back(cli: Cli) -> None:
    """What is there is shown."""
    with sync.open("sqlite:holdfast.db") as store:
        state, counter = store.agent("7"), Counter()
        many: Any = {f"k{n}": n for n in range(40)}
        counter.count = many
        state.set("k", 1)
        before = state.checkpoint()
        attach(counter, state, fields=["count"]).save()
    assert cli("agent state 7 attached").json["count"].keys() == many.keys()
    with sync.open("sqlite:holdfast.db") as store:
        keys = ["$agent/attached/count"]
        sync.checkpoints.Checkpoints(store.agent("7")).restore(before.id, keys=keys)
    assert cli("agent state 7 attached").code == 4, "there is nothing"
    assert cli("agent show 7").code == 0


class Login:
    def __init__(self) -> None:
        self.api_token = "s3cr3t-1"
        self.password = {f"k{n}": "s3cr3t-2" for n in range(40)}
        self.notes = {f"n{n}": n for n in range(40)}
        self.session_token = "s3cr3t-3"
        self.plan = "shown"


def test_what_is_sensitive_is_masked(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        attach(Login(), store.agent("7"), fields=[*vars(Login())]).save()
        agent = AgentState(store.agent("7"))
        agent.put("session_memory", "db/password", "s3cr3t-4")
        agent.put("tasks", "token", Task(id="token", title="s3cr3t-5"))
        agent.put("tasks", "t", Task(id="t"))
        store.agent("7").checkpoint("then")
    mask = {"$sensitive": True}
    for more in ("", " --at then"):
        shown = cli(f"agent state 7{more}")
        assert "s3cr3t" not in shown.out
        attached = shown.json["attached"]
        assert (attached["api_token"], attached["password"]) == (mask, mask)
        assert (attached["plan"], attached["notes"]["n3"]) == ("shown", 3)
        assert attached["session_token"] == mask
        assert shown.json["session_memory"] == {"db/password": mask}
        assert shown.json["tasks"]["pending"] == [{"id": "t"}, mask]
        assert all(f"s3cr3t-{n}" in cli(f"agent state 7 --reveal{more}").out for n in range(1, 6))
    for key in ("attached/api_token", "attached/password", "memory/session/db/password"):
        hidden = cli(f"key get agent:7 $agent/{key}")
        assert (hidden.json, "--reveal" in hidden.err) == (mask, True)
    assert "s3cr3t" not in cli("show agent:7 --prefix $agent/").out
    assert "s3cr3t" not in cli("agent show 7 --json").out


def test_export(cli: Cli, here: Path) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        state = store.agent("e")
        state.set("k", 1)
        state.checkpoint("one", type="routine")
        state.checkpoint("two")
    (here / "files").mkdir()
    path = cli("agent export e one -o files").out.strip()
    assert json.loads((here / path).read_text())["checkpoint_type"] == "routine"
    made = cli("agent export e --json").json
    assert json.loads((here / made["file"]).read_text())["checkpoint_type"] == "manual"
    assert cli("agent export nobody").code == 4
    assert cli("agent export e -o nowhere").code == 2


def test_one_that_is_damaged_hides_no_other(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store, Agents(store) as agents:
        for id in "123":
            agents.register(id, name=f"name {id}")
    damage(b"E", 0)
    found = cli("agent list")
    assert found.code == 6
    assert [line.split("\t")[0] for line in found.out.splitlines()] == ["1", "2", "3"]
    assert found.out.count("name") == 2
    assert "holdfast verify" in found.err
    shown = cli("agent list --json").json["agents"]
    assert [one["status"] for one in shown].count("damaged") == 1
    assert [one["id"] for one in shown if "damage" in one] == [
        one["id"] for one in shown if one["status"] == "damaged"
    ]
