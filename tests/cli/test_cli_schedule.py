"""`holdfast schedule`."""

from __future__ import annotations

import signal
import subprocess
import time

from cli_kit import PROGRAM, Cli

from holdfast import sync
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch


def test_add_list_and_remove(cli: Cli, agent: str) -> None:
    assert (cli("schedule list").out, cli("schedule list --json").json) == ("", {"schedules": []})
    added = cli("schedule add agent:7 --every 300 --jitter 30")
    assert added.out.startswith("agent:7: every 300 s, jitter 30 s, next 20")
    words = ["--cron", "0 3 * * *", "--zone", "Europe/Berlin", "--name", "nightly"]
    made = cli("schedule", "add", "agent:7", *words, "--json").json
    assert (made["when"], made["runs"], made["failed"]) == ("0 3 * * * Europe/Berlin", 0, None)
    lines = cli("schedule list").out.splitlines()
    assert [line.split("\t")[:4] for line in lines] == [
        ["agent:7", "every 300 s, jitter 30 s", "agent:7", "0"],
        ["nightly", "0 3 * * * Europe/Berlin", "agent:7", "0"],
    ]
    assert cli("schedule list --json").json["schedules"][1] == made
    assert cli("schedule remove nightly").out == "nightly: removed\n"
    assert cli("schedule remove agent:7 --json").json == {"removed": "agent:7"}
    missing = cli("schedule remove nightly")
    assert missing.code == 4
    assert "there is no schedule 'nightly'; `holdfast schedule list` shows them" in missing.err


def test_what_cannot_be_meant_is_refused(cli: Cli, agent: str) -> None:
    for words in ("", "--every 60 --cron '0 3 * * *'", "--every 60 --zone UTC", "--every 0"):
        refused = cli(f"schedule add agent:7 {words}")
        assert (refused.code, refused.out) == (2, "")
    refused = cli("schedule add agent:7 --cron '0 3 * *'")
    assert "a cron expression has five fields" in refused.err
    assert cli("schedule list").out == ""


def test_run_once(cli: Cli, agent: str) -> None:
    cli("schedule add agent:7 --every 0.1")
    time.sleep(0.11)
    assert cli("schedule run --once").out == "agent:7\t1\tsaved\tmain@5\n"
    time.sleep(0.11)
    told = cli("schedule run --once --json").json
    (ran,) = told["runs"]
    assert (ran["outcome"], ran["checkpoint"], told["runner"]) == ("unchanged", None, True)
    with sync.open("sqlite:holdfast.db") as store:
        assert store.agent("7").checkpoints(type="scheduled")[0].sequence == 5


def test_run_once_is_one_document(cli: Cli, agent: str) -> None:
    """Whether nothing is due, or several."""
    assert cli("schedule run --once --json").json == {"runner": True, "runs": []}
    cli("key set agent:8 plan 1")
    cli("schedule add agent:7 --every 0.1")
    cli("schedule add agent:8 --every 0.1")
    time.sleep(0.11)
    ran = cli("schedule run --once --json").json["runs"]
    assert {one["schedule"]: one["outcome"] for one in ran} == dict.fromkeys(
        ["agent:7", "agent:8"], "saved"
    )


def test_run_until_it_is_told_to_end(cli: Cli, agent: str) -> None:
    cli("schedule add agent:7 --every 0.1")
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [*PROGRAM, "schedule", "run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"agent:7\t")
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
        assert (process.returncode, told) == (0, b"")
        with sync.open("sqlite:holdfast.db", read_only=True) as store:
            assert [info.owner for info in store.leases()] == [None], "it is given back"


def test_other_timelines_and_damage_are_shown(cli: Cli, agent: str) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        fork = store.scope(agent).fork("trial")
        scheduler = sync.checkpoints.Scheduler(store)
        scheduler.every(60, fork)
        scheduler.run_due()
    assert cli("schedule list --json").json["schedules"][0]["timeline"] == "trial"
    assert cli("schedule list").out.split("\t")[2] == f"{agent} trial"
    storage = open_storage("sqlite:holdfast.db")
    for key, row in storage.cells(b"CL", b"CU"):
        if len(key) in (18, 19):
            storage.commit(Batch(cells=[(key, row, row[:-1] + bytes([row[-1] ^ 1]))]))
    storage.close()
    (shown,) = cli("schedule list --json").json["schedules"]
    assert shown["name"].startswith("schedule (")
    assert shown["damage"]
    assert "damaged: lease (" in cli("lease list").out
    assert "`holdfast lease break`" in cli("schedule run --once").err
    assert cli(f"schedule remove {agent}/trial").code == 0
    assert cli("repair --yes").code == 0
    assert cli("lease list").out == ""
    assert cli("verify").code == 0
