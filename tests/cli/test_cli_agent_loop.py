"""`holdfast agent mailbox`, `drift` and `run`."""

from __future__ import annotations

import base64
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cli_kit import PROGRAM, Cli

from holdfast import sync
from holdfast.agents import RetryPolicy

BOTS = """
import os
from holdfast.agents import Agent, StepResult
from holdfast import sync

class Counter(sync.agents.Agent):
    persistent = ("count", "seen")
    def __init__(self, state):
        self.count, self.seen = 0, []
    def on_letter(self, mail):
        self.seen.append(mail.content)
    def step(self):
        self.count += 1
        return StepResult(f"count {self.count}", progress=self.count, done=self.count % 4 == 0)

class Patient(Counter):
    def step(self):
        super().step()
        return StepResult(idle=True)

class Slow(Agent):
    persistent = ("count",)
    def __init__(self, state):
        self.count = 0
    async def step(self):
        self.count += 1
        return StepResult(done=self.count == 3)

class Stuck:
    def __init__(self, state):
        self.state = state
    def step(self):
        return StepResult("search", "t", 0.5)

class Failing:
    def step(self):
        raise ValueError("a secret")

class Mixed(Agent):
    persistent = ("count",)
    count = 0
    def step(self):
        self.count += 1
        return StepResult(done=self.count == 2)

def told(state) -> Slow:
    return Slow(state)

def untold(state):
    return Slow(state)

def counter(state):
    return Counter(state)

class Helped(Stuck):
    def step(self):
        drifted = self.state.checkpoints(type="recovery")
        return StepResult("finish", done=True) if drifted else super().step()

class Keyless(Helped):
    def step(self):
        assert "SECRET" not in os.environ
        return super().step()
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
        mailbox = sync.agents.Mailbox(store.agent("7"), retry=RetryPolicy.every(1))
        try:
            with mailbox.next():
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    aside = cli("agent mailbox 7 --set-aside").out.splitlines()
    assert aside[0].startswith("0 wait, 1 of 1 are processed, 1 set aside")
    assert aside[1].split("\t")[4:] == ["1", "ZeroDivisionError", ""]
    assert cli("agent mailbox 7 --retry 1").out == "a: waits\n"
    again = cli("agent mailbox 7 --retry 1")
    assert again.code == 4
    assert "no letter 1 is set aside" in again.err
    assert cli("agent mailbox 7 --retry 1 --send 1").code == 2
    assert cli("agent mailbox nobody").code == 4
    assert cli("agent", "mailbox", "7", "--send", "{").code == 2


@pytest.mark.spec("X36")
def test_letters_are_removed(cli: Cli) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        mailbox = sync.agents.Mailbox(store.agent("7"), retry=RetryPolicy())
        for name in ("bad", "b", "c", "d"):
            mailbox.send(name, id=name)
        with suppress(ValueError), mailbox.next():
            raise ValueError
        with suppress(TimeoutError), mailbox.next():
            raise TimeoutError
    [letter] = cli("agent mailbox 7 --limit 1 --json").json["letters"]
    assert (letter["id"], letter["kind"], letter["tries"]) == ("b", "timeout", 1)
    assert letter["due"] > letter["time"]
    assert cli("agent mailbox 7 --remove 3").out == "1 removed\n"
    assert "no letter 3 waits" in cli("agent mailbox 7 --remove 3").err
    assert cli("agent mailbox 7 --clear-failed --json").json == {"removed": 1}
    assert cli("agent mailbox 7 --clear-all").out == "2 removed\n"
    assert cli("agent mailbox 7 --json").json["status"]["waiting"] == 0
    assert "not both" in cli("agent mailbox 7 --clear-all --remove 1").err


def test_drift(cli: Cli, agent: str) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        drift = sync.agents.Drift(store.agent("7"))
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


@pytest.mark.parametrize("option", ["", "--key env:SECRET"])
def test_the_new_process_has_the_key_from_the_environment(
    program: Cli, here: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """The first one removed the variable when it read it, so that the agent has it not."""
    (here / "bots.py").write_text(BOTS)
    monkeypatch.setenv("SECRET", base64.b64encode(b"k" * 32).decode())
    if not option:
        monkeypatch.setenv("HOLDFAST_KEY", "env:SECRET")
    assert program(f"init {option}").code == 0
    ran = program(f"agent run 9 bots:Keyless --new-process --json {option}")
    assert ran.code == 0, ran.err
    assert (ran.json["outcome"], ran.json["restarts"]) == ("done", 1)


INTERRUPTED = """
import os, pathlib, signal
from holdfast.agents import StepResult

first = pathlib.Path("first")
if first.exists():  # the new process is being started
    os.kill(os.getpid(), signal.SIGTERM)
first.touch()

class Bot:
    def step(self):
        return StepResult("work")
"""


def test_a_signal_while_the_new_process_starts_ends_it_in_order(
    program: Cli, agent: str, here: Path
) -> None:
    (here / "interrupted.py").write_text(INTERRUPTED)
    ran = program("agent run 9 interrupted:Bot --new-process --refresh 0.01 --json")
    assert (ran.code, ran.json["outcome"]) == (0, "stopped")


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
            end = time.monotonic() + 60
            while state.get("$agent/attached/count") != runs:  # one step, then it waits
                assert time.monotonic() < end
                time.sleep(0.02)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, fields(out)["outcome"]) == (0, "stopped")


def test_a_known_id_with_another_content_is_refused(cli: Cli, agent: str) -> None:
    for _ in range(2):
        assert cli("agent", "mailbox", "7", "--send", '"one"', "--id", "x").code == 0
    other = cli("agent", "mailbox", "7", "--send", '"two"', "--id", "x")
    assert (other.code, "was used before" in other.err) == (2, True)
    assert cli("agent mailbox 7 --json --reveal").json["letters"][0]["content"] == "one"
    missing = cli("agent mailbox 7 --retry 7")
    assert (missing.code, "holdfast agent mailbox --set-aside" in missing.err) == (4, True)


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


@pytest.mark.spec("X52")
def test_an_agent_of_a_folder(cli: Cli, agent: str, tmp_path: Path) -> None:
    inbox = tmp_path / "x/runtime/agent_comms/agent_mailboxes/agent-1/inbox"
    inbox.mkdir(parents=True)
    (inbox / "a.json").write_text('{"ask": 1}')
    made = cli(f"agent import-folder 7 {tmp_path / 'x'} --from agent-1 --json").json
    assert (made["agent"], made["waiting"], made["changed"]) == ("7", 1, True)
    assert "taken up before" in cli(f"agent import-folder 7 {tmp_path / 'x'} --from agent-1").out
    assert cli("agent mailbox 7 --json").json["letters"][0]["id"] == "a.json"
    (inbox / "b.json").write_text("{")
    bad = cli(f"agent import-folder 7 {tmp_path / 'x'} --from agent-1")
    assert (bad.code, f"{inbox / 'b.json'}: is no JSON" in bad.err) == (2, True)
    assert cli(f"agent import-folder 7 {tmp_path / 'x'}").code == 2
