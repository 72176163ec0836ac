"""`holdfast watch`: what others commit, as it comes."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from cli_kit import PROGRAM, Cli
from test_cli_program import on_terminal

from holdfast import sync


def test_from_the_start(cli: Cli, agent: str) -> None:
    done = cli("watch --since start --timeout 0")
    assert done.code == 0
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[1:6] for row in rows] == [
        ["agent:7", "main@1", "set", "plan", "tester"],
        ["agent:7", "main@2", "append", "talk", "tester"],
        ["agent:7", "main@3", "checkpoint", "", "tester"],
        ["agent:7", "main@4", "set", "plan", "tester"],
    ]


def test_scope_prefix_pattern_and_timeline(cli: Cli, agent: str) -> None:
    cli("key set agent:8 plan 1")
    cli(f"fork {agent} what-if")
    start = "--since start --timeout 0 --json"

    def entries(words: str) -> list[tuple[str, str, int]]:
        lines = map(json.loads, cli(f"watch {words} {start}").out.splitlines())
        return sorted((line["scope"], line["timeline"], line["entry"]) for line in lines)

    main = [(agent, "main", number) for number in (1, 2, 3, 4)]
    fork = [(agent, "what-if", 1)]
    assert entries(agent) == main + fork
    assert entries(f"{agent} --timeline what-if") == fork
    assert entries(f"{agent} --timeline main") == main
    assert entries(f"{agent} --prefix ta") == [(agent, "main", 2), *fork]
    assert entries("agent:8 --pattern p[a-m]an") == [("agent:8", "main", 1)]
    assert entries("--pattern p[m-z]an") == fork


def test_a_position_leads_on(cli: Cli, agent: str) -> None:
    lines = cli("watch --since start --timeout 0 --json").out.splitlines()
    seen = [json.loads(line) for line in lines]
    assert [one["operations"] for one in seen][1] == [{"kind": "append", "key": "talk"}]
    for number, one in enumerate(seen, 1):
        rest = cli("watch", "--timeout", "0", "--json", "--since", json.dumps(one["position"]))
        assert rest.out.splitlines() == lines[number:]
    assert cli("watch --timeout 0").out == ""


def test_past_what_was_pruned(cli: Cli, agent: str) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        for number in range(5):
            store.agent("7").set("plan", number)
        store.agent("7").prune(9)
        store.agent("7").set("later", 1)
        store.agent("8").set("other", 1)
    done = cli("watch --since start --timeout 0 --json")
    assert done.code != 0
    message = json.loads(done.err)["message"]
    assert "of main was pruned" in message
    assert "--past-pruned" in message
    assert "error.position" not in message
    seen = done.out.splitlines()
    while done.code != 0:
        position = json.loads(done.err)["message"].split("'")[1]
        done = cli("watch", "--timeout", "0", "--json", "--since", position)
        seen += done.out.splitlines()
    assert seen == cli("watch --since start --timeout 0 --json --past-pruned").out.splitlines()
    assert [json.loads(line)["scope"] for line in seen][-1] == "agent:8"


@pytest.mark.parametrize("form", ["text", "json"])
def test_others_are_heard_until_ctrl_c(agent: str, form: str) -> None:
    words = ["watch", agent, "--since", "start", *(["--json"] if form == "json" else [])]
    child = subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for _ in range(4):
        child.stdout.readline()  # now it is there and waits
    with sync.open("sqlite:holdfast.db", durability="normal") as store:
        store.agent("7").set("news", 1)
        line = child.stdout.readline()
        assert "news" in line
        assert form == "text" or json.loads(line)["entry"] == 5
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, "", "")


def test_on_a_terminal(agent: str) -> None:
    code, shown = on_terminal("watch", "--since", "start", "--timeout", "0")
    assert code == 0
    assert "main@4" in shown


@pytest.mark.parametrize(
    "words",
    [
        "watch nonsense:7",
        "watch --since yesterday",
        "watch --since 5",
        "watch --since '{\"3\": -1}'",
        "watch --since '{\"0\": 99999}'",
        "watch --timeout -1",
        "watch --timeline what-if",
        "watch --pattern ''",
    ],
)
def test_slips(cli: Cli, agent: str, words: str) -> None:
    done = cli(words)
    assert (done.code, done.out) == (2, "")
    assert done.err
    as_json = cli(words + " --json")
    assert as_json.code == 2
    assert as_json.error["message"]


def test_no_store(cli: Cli) -> None:
    assert cli("watch --timeout 0").code == 4
