"""`holdfast agent mailbox`, `drift` and `run`."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from cli_kit import PROGRAM, Cli

from holdfast import sync

BOTS = """
import os
from holdfast import Agent, Worked, sync

class Counter(sync.Agent):
    persistent = ("count", "seen")
    def __init__(self, state):
        self.count, self.seen = 0, []
    def on_letter(self, mail):
        self.seen.append(mail.content)
    def step(self):
        self.count += 1
        return Worked(f"count {self.count}", progress=self.count, done=self.count % 4 == 0)

class Patient(Counter):
    def step(self):
        super().step()
        return Worked(idle=True)

class Slow(Agent):
    persistent = ("count",)
    def __init__(self, state):
        self.count = 0
    async def step(self):
        self.count += 1
        return Worked(done=self.count == 3)

class Stuck:
    def __init__(self, state):
        self.state = state
    def step(self):
        return Worked("search", "t", 0.5)

class Failing:
    def step(self):
        raise ValueError("a secret")

class Mixed(Agent):
    persistent = ("count",)
    count = 0
    def step(self):
        self.count += 1
        return Worked(done=self.count == 2)

def told(state) -> Slow:
    return Slow(state)

def untold(state):
    return Slow(state)

def counter(state):
    return Counter(state)

class Helped(Stuck):
    def step(self):
        drifted = self.state.checkpoints(type="recovery")
        return Worked("finish", done=True) if drifted else super().step()
"""


def fields(out: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in out.splitlines())


def test_the_mailbox(cli: Cli, agent: str) -> None:
    sent = cli("agent", "mailbox", "7", "--send", '{"ask": 1}', "--id", "a", "--sender", "me")
    assert sent.out == "a: waits\n"
    assert cli("agent", "mailbox", "7", "--send", '{"ask": 1}', "--id", "a", "--json").json == {
        "id": "a"
    }
    first, line = cli("agent mailbox agent:7").out.splitlines()
    assert first == "1 wait, 0 of 1 are processed, 0 set aside, 0 missed"
    assert line.split("\t")[:3] == ["1", "a", "me"]
    shown = cli("agent mailbox 7 --json").json
    assert shown["status"]["waiting"] == 1
    assert "content" not in shown["letters"][0]
    assert cli("agent mailbox 7 --json --reveal").json["letters"][0]["content"] == {"ask": 1}
    with sync.open("sqlite:holdfast.db") as store:
        mailbox = sync.Mailbox(store.agent("7"), attempts=1)
        try:
            with mailbox.next():
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    aside = cli("agent mailbox 7 --set-aside").out.splitlines()
    assert aside[0].startswith("0 wait, 1 of 1 are processed, 1 set aside")
    assert aside[1].endswith("1\tZeroDivisionError")
    assert cli("agent mailbox 7 --retry 1").out == "a: waits\n"
    again = cli("agent mailbox 7 --retry 1")
    assert again.code == 4
    assert "no letter 1 is set aside" in again.err
    assert cli("agent mailbox 7 --retry 1 --send 1").code == 2
    assert cli("agent mailbox nobody").code == 4
    assert cli("agent", "mailbox", "7", "--send", "{").code == 2


def test_drift(cli: Cli, agent: str) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        drift = sync.Drift(store.agent("7"))
        for _ in range(8):
            drift.note("search", task="t", progress=0.5, seconds=2.0)
    out = cli("agent drift 7").out
    shown = fields("\n".join(out.splitlines()[:7]))
    assert (shown["cycles"], shown["repeats"], shown["seconds"]) == ("8", "8", "2.0")
    assert "repetition" in out.splitlines()[7]
    found = cli("agent drift 7 --json").json
    assert found["status"]["stalled"] == 7
    [alarm] = found["alarms"]
    assert (alarm["kind"], alarm["details"]["actions"]) == ("repetition", ["search"])
    assert fields("\n".join(cli("agent drift 7 --reset").out.splitlines()[:7]))["repeats"] == "0"
    assert cli("agent drift nobody").code == 4


def test_run(program: Cli, agent: str, here: Path) -> None:
    (here / "bots.py").write_text(BOTS)
    program("agent", "mailbox", "7", "--send", '"hello"')
    ran = fields(program("agent run 7 bots:Counter").out)
    assert (ran["outcome"], ran["cycles"], ran["letters"]) == ("done", "4", "1")
    again = program("agent run 7 bots:Counter --json").json
    assert again["cycles"] == 4, "it went on from 4"
    assert again["metrics"]["saves_failed"] == 0
    assert again["metrics"]["saves"] >= again["metrics"]["commits"] > 0
    assert program("agent run 8 bots:Slow --json").json["outcome"] == "done"
    for id, name in ((11, "Mixed"), (12, "told"), (13, "untold --async"), (14, "counter")):
        assert program(f"agent run {id} bots:{name} --json").json["outcome"] == "done"
    unsaid = program("agent run 13 bots:untold")
    assert (unsaid.code, "bots:untold makes is async: add --async" in unsaid.err) == (2, True)
    drifted = program("agent run 9 bots:Stuck --json")
    assert (drifted.code, drifted.json["outcome"]) == (1, "drifted")
    assert "search" in drifted.json["alarms"][0]
    failed = program("agent run 10 bots:Failing --max-errors 1")
    assert failed.code == 1
    assert "agent:10: its program failed with ValueError; agent:10: recovery" in failed.err
    assert "a bug" not in failed.err
    (here / "broken.py").write_text("import nothing_of_that_name")
    broken = program("agent run 10 broken:Bot --json")
    assert broken.code == 1
    assert "broken cannot be imported: No module named 'nothing_of_that_name'" in broken.err
    for wrong in ("nobody:Bot", "bots:Nobody", "bots"):
        refused = program(f"agent run 7 {wrong}")
        assert (refused.code, refused.out) == (2, "")


def test_a_refresh_in_a_new_process(program: Cli, agent: str, here: Path) -> None:
    """The very same program begins again, and finds what it is to begin from."""
    (here / "bots.py").write_text(BOTS)
    ran = program("agent run 9 bots:Helped --new-process --json")
    assert (ran.code, ran.json["outcome"], ran.json["restarts"]) == (0, "done", 1)


def test_a_signal_ends_it(agent: str, here: Path) -> None:
    (here / "bots.py").write_text(BOTS)
    for runs, number in enumerate((signal.SIGTERM, signal.SIGINT), 1):
        process = subprocess.Popen(
            [*PROGRAM, *["agent", "run", "7", "bots:Patient", "--idle", "30"]],
            stdout=subprocess.PIPE,
            text=True,
        )
        with sync.open("sqlite:holdfast.db") as store:
            state = store.agent("7")
            end = time.monotonic() + 30
            while state.get("$agent/attached/count") != runs:  # one step, then it waits
                assert time.monotonic() < end
                time.sleep(0.02)
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
        assert (process.returncode, fields(out)["outcome"]) == (0, "stopped")


def test_check(cli: Cli, agent: str) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        store.agent("7").checkpoint("good")
        store.agent("8").set("k", 1)
    found = cli("agent check")
    assert found.code == 1
    assert "agent:8\t\t0\tthere is no checkpoint that could be restored" in found.out
    good = cli("agent check 7 --json")
    assert (good.code, good.json["agents"][0]["findings"]) == (0, [])
    assert "Nothing was found wrong." in cli("agent check 7 --markdown").out
    assert cli("agent check nobody").code == 4
