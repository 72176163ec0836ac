"""`holdfast entity`, `relation`, `events`, `queue`, `observe` and `runtime`."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_kit import PROGRAM, SOURCE, Cli

from holdfast import sync
from holdfast.sync.runtime import Events


def send(cli: Cli, name: str, **data: Any) -> Any:
    """What a name is answered with, from the command line."""
    return cli(f"runtime send {name} {shlex.quote(json.dumps(data))}").json


@pytest.fixture
def fleet(cli: Cli) -> str:
    """A store with two agents, one of which knows the other."""
    assert cli("init").code == 0
    for id, properties in (("a", {"load": 0.5, "name": "A"}), ("b", {"load": 2.0})):
        made = send(cli, "state:entity:create", type="agent", id=id, properties=properties)
        assert (made["id"], made["properties"]) == (id, properties)
    about = {"from": "a", "type": "knows", "to": "b", "metadata": {"since": 3}}
    assert send(cli, "state:relationship:create", **about)["from_id"] == "a"
    return "custom:fleet"


def test_entities(cli: Cli, fleet: str) -> None:
    lines = cli(f"entity list {fleet} --order -load").out.splitlines()
    assert [line.split("\t")[:2] for line in lines] == [["b", "agent"], ["a", "agent"]]
    found = cli(f"entity list {fleet} --type agent --where load=0.5 --json").json["entities"]
    assert [(one["id"], one["properties"]) for one in found] == [("a", {"load": 0.5, "name": "A"})]
    assert cli(f"entity list {fleet} --where 'load=\"0.5\"' --json").json["entities"] == []
    shown = cli(f"entity show {fleet} a --json").json
    assert [(one["type"], one["to"]) for one in shown["relationships"]] == [("knows", "b")]
    assert "knows" in cli(f"entity show {fleet} a").out
    send(cli, "state:entity:update", id="a", properties={"load": None, "x": 1})
    assert cli(f"entity show {fleet} a --json").json["properties"] == {"name": "A", "x": 1}
    refused = cli("""runtime send state:entity:create '{"type": "agent", "id": "a"}'""")
    assert (refused.code != 0, "the entity a is there" in refused.err) == (True, True)
    refused = cli("""runtime send state:entity:delete '{"id": "b", "restrict": true}'""")
    assert (refused.code != 0, "a knows b" in refused.err) == (True, True)
    assert send(cli, "state:entity:delete", id="b") is True
    assert cli(f"relation list {fleet} --json").json["relationships"] == []
    assert cli("runtime send state:entity:count").code == 4
    assert cli("runtime send state:entity:create '[]'").code == 2
    assert cli(f"entity list {fleet} --where load").code == 2
    assert cli(f"entity list {fleet} --at 7 --json").json["entities"] != []


def test_relationships(cli: Cli, fleet: str) -> None:
    found = cli(f"relation list {fleet} --from a --json").json["relationships"]
    assert [(one["from"], one["type"], one["to"], one["metadata"]) for one in found] == [
        ("a", "knows", "b", {"since": 3})
    ]
    assert cli(f"relation list {fleet} --to b").out.startswith("a\tknows\tb")


def test_events(cli: Cli, fleet: str) -> None:
    assert cli("events list --json").json == {"events": []}
    with sync.open("sqlite:holdfast.db") as store:
        log = Events(store)
        for n in range(3):
            log.emit(f"t{n}:x", {"n": n, "session_id": f"s{n % 2}"}, correlation="run")
    lines = cli("events list").out.splitlines()
    assert [line.split("\t")[1] for line in lines] == ["t2:x", "t1:x", "t0:x"]
    found = cli("events list t0:* t2:* --oldest --json").json["events"]
    assert [one["data"]["n"] for one in found] == [0, 2]
    found = cli("events chain run --json").json
    assert (len(found["events"]), found["event_types"]) == (3, ["t0", "t1", "t2"])
    assert len(send(cli, "monitor:get_session_events", session_id="s0")) == 2
    assert cli("events list --since 2099-01-01 --json").json["events"] == []
    assert cli("events list --since never").code == 2


def test_queues(cli: Cli, fleet: str) -> None:
    for data in ({"to": "ann"}, 2):
        pushed = shlex.quote(json.dumps({"queue_name": "mail", "data": data}))
        assert cli(f"runtime send async_state:push {pushed} --scope custom:work").code == 0
    found = cli("queue show custom:work mail --json").json
    assert [one["item"] for one in found["items"]] == [{"to": "ann"}, 2]
    assert cli("queue show custom:nothing mail").code == 4


def test_observations(cli: Cli, fleet: str) -> None:
    assert cli(f"observe list {fleet} --json").json["observations"] == []
    asked = {"events": ["x:*"], "filter": {"sampling_rate": 0.5}}
    id = send(cli, "observation:subscribe", observer="a", target="b", **asked)
    [one] = cli(f"observe list {fleet} --json").json["observations"]
    assert (one["id"], one["observer"], one["target"]) == (id, "a", "b")
    assert (one["events"], one["filter"]) == (["x:*"], {"sampling_rate": 0.5})
    assert send(cli, "observation:unsubscribe", id=id) is True
    assert cli(f"observe list {fleet}").out == ""


DAEMON = """
from holdfast.runtime import Entities, Events

def modules(store):
    return [Entities(store.custom("fleet")), Events(store)]
"""


def test_a_daemon_runs_until_it_is_told_to_end(cli: Cli, fleet: str) -> None:
    Path("fleet.py").write_text(DAEMON)
    daemon = subprocess.Popen(
        [*PROGRAM, "runtime", "run", "fleet:modules"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert daemon.stdout is not None
    assert daemon.stdout.readline().startswith("ready\tEntities, Events")
    daemon.send_signal(signal.SIGTERM)
    rest = daemon.communicate(timeout=60)[0]
    assert (daemon.returncode, rest.startswith("stopped")) == (0, True)
    found = cli("events list 'system:*' --json").json["events"]
    assert found[0]["event"] == "system:shutdown"
    assert len(found) == 4
    assert cli("runtime run fleet").code == 2
    assert cli("runtime run fleet:nothing").code == 2


def test_requests_are_seen_without_their_worker(cli: Cli, fleet: str) -> None:
    assert send(cli, "completion:sessions") == []
    assert send(cli, "completion:submit", session_id="s1", request={"a": 1}).startswith("s1/")
    assert send(cli, "completion:sessions") == ["s1"]
    [waiting] = send(cli, "completion:waiting", session_id="s1")
    assert waiting["content"] == {"a": 1}
    assert cli("agent mailbox session:s1 --json").json["status"]["waiting"] == 1
    assert "there is no scope agent:s1" in cli("agent mailbox s1").err
    for name in ("completion:active", "monitor:get_stats", "observation:list"):
        refused = cli(f"runtime send {name}")
        assert (refused.code, "memory of a daemon's process" in refused.err) == (2, True)


def test_hints_are_of_the_command(cli: Cli, fleet: str) -> None:
    refused = cli(f"entity list {fleet} --where role=critic")
    assert (refused.code, "--text" in refused.err) == (2, False)
    assert """'role="critic"' of a text""" in refused.err
    assert "--text" not in cli("runtime send state:entity:create '{bad'").err
    assert "for plain text add --text" in cli("key set agent:7 x bad").err


BROKEN = """
def boom(store):
    raise ValueError("no fleet")


def wrong():
    return []


async def late(store):
    return 5
"""


def test_what_makes_the_modules_fails_as_the_users_own(cli: Cli, fleet: str) -> None:
    Path("broken_fleet.py").write_text(BROKEN)
    told = cli("runtime run broken_fleet:boom")
    assert told.code == 1
    assert "ValueError: no fleet" in told.err
    assert "broken_fleet.py, line 3" in told.err
    told = cli("runtime run broken_fleet:wrong")
    assert (told.code, "TypeError: wrong() takes 0 positional arguments" in told.err) == (1, True)
    told = cli("runtime run broken_fleet:late")
    assert (told.code, "not 5" in told.err) == (2, True)
