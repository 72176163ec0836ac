"""An agent fails in four ways and is put back each time.

    python examples/demo.py                 about five seconds
    python examples/demo.py --sabotage 3    breaks step 3 for real: the demo must fail there

Real processes and real files in a temporary folder. Every line with a tick is a claim that was
computed and compared just before; the first one that does not hold ends the demo with exit
code 1 and the number of the step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
from rich.console import Console

from holdfast import sync
from holdfast.errors import StateIntegrityError
from holdfast.store.names.items import Checkpoint

AGENT = "researcher-7"
CHARTER = "Find out why the tide gauge at Brest drifts. Cite every source. " * 8
TOPICS = ("sensor", "harbour wall", "datum", "clock", "survey of 1996", "satellite", "weather")
SECONDS = 60
Json = dict[str, Any]


# ---- the agent: a process of its own -------------------------------------------------------


def turn_of(number: int) -> Json:
    """What the agent learns in one turn."""
    topic = TOPICS[number % len(TOPICS)]
    ask = f"Turn {number}: what do we know about the {topic}?"
    told = f"The {topic} explains {number % 5} mm of the drift. " * 8 + f"(source {number})"
    return {
        "messages": [{"role": "user", "content": ask}, {"role": "assistant", "content": told}],
        "fact": {"topic": topic, "millimetres": number % 5, "why": told[:90]},
        "plan": {"goal": "explain the drift", "turn": number, "next": f"check source {number}"},
    }


def tell(**what: Any) -> None:
    """One line to the process that watches; it is all that it knows of us."""
    print(json.dumps(what), flush=True)


def work(url: str, key: str, first: int, last: int, lose: int) -> None:
    """Turns `first` to `last`: one change and one checkpoint each, acknowledged when durable."""
    with sync.open(url, key=key) as store, store.acting(AGENT, correlation="tide-study"):
        state = store.agent(AGENT)
        if not state.exists("charter"):
            state.set("charter", CHARTER)
        for number in range(first, last + 1):
            turn = turn_of(number)
            tell(begin=number)
            started = time.perf_counter()
            if number != lose:
                with state.change(reason=f"turn {number}") as change:
                    change.extend("conversation", turn["messages"])
                    change.set(f"memory/{number:04}", turn["fact"])
                    change.set("plan", turn["plan"])
            wrote = time.perf_counter()
            point = state.checkpoint(f"turn {number}", type="automatic")
            done = time.perf_counter()
            times = {"write": (wrote - started) * 1e3, "checkpoint": (done - wrote) * 1e3}
            tell(ack=number, turn=turn, id=point.id, root=point.root, times=times)


# ---- the demo ------------------------------------------------------------------------------


class BrokenError(Exception):
    """A claim does not hold."""


class Demo:
    """The steps, and what they know of each other."""

    def __init__(self, folder: Path, turns: int, kills: int, sabotage: int) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.folder = folder
        self.turns = turns
        self.kills = kills
        self.sabotage = sabotage
        self.file = folder / "store" / "agents.db"
        self.damaged = folder / "damaged" / "agents.db"
        self.key = f"file:{folder / 'keys' / 'agents.key'}"
        self.acked: list[Json] = []
        self.begun = 0
        self.victim = turns * 2 // 3
        self.costs: list[tuple[str, str]] = []
        for path in (self.file.parent, self.damaged.parent, folder / "keys"):
            path.mkdir()

    # telling

    def say(self, text: str) -> None:
        self.console.print(f"  {text}", style="dim")

    def claim(self, holds: bool, text: str) -> None:
        """Print a claim that was just computed; stop if it does not hold."""
        sign, style = ("✓", "green") if holds else ("✗", "bold red")
        self.console.print(f"  {sign} {text}", style=style, markup=False)
        if not holds:
            raise BrokenError(text)

    def cost(self, what: str, figure: str) -> None:
        self.costs.append((what, figure))

    # helpers

    @contextmanager
    def store(self, file: Path | None = None) -> Iterator[sync.Store]:
        with sync.open(f"sqlite:{file or self.file}", key=self.key, create=False) as store:
            yield store

    def agent(self, first: int, last: int, *, lose: int = 0) -> subprocess.Popen[str]:
        url, numbers = f"sqlite:{self.file}", [str(n) for n in (first, last, lose)]
        command = [sys.executable, __file__, "--agent", url, self.key, *numbers]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def listen(self, process: subprocess.Popen[str], until: Callable[[], bool]) -> None:
        """Read what the agent tells until something is so, or until it is silent for good."""
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):
                return  # killed while it was telling: it has told nothing
            told = json.loads(line)
            if "begin" in told:
                self.begun = told["begin"]
            else:
                self.acked.append(told)
            if until():
                return

    def expected(self, turns: list[Json]) -> dict[str, Any]:
        """The whole state after these turns, made from nothing but acknowledgements."""
        state: dict[str, Any] = {"charter": CHARTER}
        if turns:
            state["conversation"] = [m for told in turns for m in told["turn"]["messages"]]
            state["plan"] = turns[-1]["turn"]["plan"]
        return state | {f"memory/{told['ack']:04}": told["turn"]["fact"] for told in turns}

    def row(self, file: Path, sequence: int) -> bytes:
        """The stored bytes of an entry, from the database itself."""
        place = bytes(2) + sequence.to_bytes(5, "big")  # timeline main, entry; see docs/format.md
        entries = "SELECT k, v FROM records WHERE k >= x'45' AND k < x'46'"
        database = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            found = [row for key, row in database.execute(entries) if key[-7:] == place]
        finally:
            database.close()
        return bytes(found[0])

    def flip(self, file: Path, sequence: int) -> None:
        """Change one bit of one byte of the file, inside the sealed part of an entry."""
        row = self.row(file, sequence)
        content = bytearray(file.read_bytes())
        at = content.find(row) + len(row) - 24
        content[at] ^= 1
        file.write_bytes(content)
        self.say(f"byte {at:,} of {len(content):,} in {file.parent.name}/{file.name}: one bit over")

    # steps

    def step_1(self) -> None:
        """An agent works: a process of its own, a conversation that grows"""
        process = self.agent(1, self.turns, lose=self.turns // 2 if self.sabotage == 1 else 0)
        self.listen(process, lambda: False)
        code = process.wait(SECONDS)
        self.say(f"process {process.pid}: {self.turns} turns, each one change and one checkpoint")
        self.claim(code == 0, f"it ended by itself and acknowledged {len(self.acked)} turns")
        with self.store() as store:
            state = store.agent(AGENT)
            length, points = state.length("conversation"), state.checkpoints()
            found = dict(state.items())
        self.claim(length == 2 * self.turns, f"the conversation has {length} messages")
        self.claim(len(points) == self.turns, f"there are {len(points)} checkpoints to return to")
        self.claim(found == self.expected(self.acked), f"all {len(found)} keys are as acknowledged")
        times = [told["times"] for told in self.acked]
        for name in ("write", "checkpoint"):
            middle = statistics.median(t[name] for t in times)
            what = {"write": "one turn, durable", "checkpoint": "one checkpoint, signed, durable"}
            self.cost(what[name], f"{middle:.2f} ms in the median")

    def step_2(self) -> None:
        """It is killed in the middle of a change, without warning"""
        for number in range(1, self.kills + 1):
            for _ in range(20):  # until a kill falls between a beginning and its end
                if self.kill_one():
                    break
            at = self.begun
            self.claim(
                at == self.acked[-1]["ack"] + 1,
                f"kill {number}: SIGKILL with turn {at} begun and not acknowledged",
            )
            self.settle()

    def kill_one(self) -> bool:
        before = len(self.acked)
        first = self.acked[-1]["ack"] + 1
        last = first + 2 if self.sabotage == 2 else first + 10_000
        process = self.agent(first, last)
        self.listen(process, lambda: self.begun >= first + 2 and len(self.acked) > before)
        time.sleep(random.uniform(0, 0.002))
        if self.sabotage != 2:
            process.send_signal(signal.SIGKILL)
        self.listen(process, lambda: False)
        code = process.wait(SECONDS)
        assert process.stdout is not None
        process.stdout.close()
        if code != -signal.SIGKILL:
            self.claim(False, f"the process was killed (it ended with code {code})")
        return self.begun > self.acked[-1]["ack"]

    def settle(self) -> None:
        """The turn under way is there whole or not at all; if it is, the next agent goes on."""
        with self.store() as store:
            plan = store.agent(AGENT).get("plan")
        if plan["turn"] == self.begun:
            told = {"ack": self.begun, "turn": turn_of(self.begun), "id": "", "root": ""}
            self.acked.append(told)

    def step_3(self) -> None:
        """After the kills: what was acknowledged is there, nothing is half done"""
        if self.sabotage == 3:
            self.drop_newest()
        started = time.perf_counter()
        with self.store() as store:
            state = store.agent(AGENT)
            first = state.get("plan")
            self.cost("opening it after a kill, first read", f"{since(started):.1f} ms")
            expected, found = self.expected(self.acked), dict(state.items())
            there = found["conversation"][: len(expected["conversation"])]
            self.claim(
                there == expected["conversation"],
                f"{len(there)} messages: every one that was acknowledged, in order",
            )
            self.claim(
                first["turn"] * 2 == len(found["conversation"]) == 2 * (len(found) - 3),
                "plan, memory and conversation agree: no turn is there in part",
            )
            self.claim(found == expected, f"all {len(found)} keys are as acknowledged")
            started = time.perf_counter()
            report = store.verify()
            self.cost(f"verifying all {report.entries} entries", f"{since(started):.0f} ms")
        self.claim(report.ok, f"verify: {report.entries} entries, {report.signed} signatures, ok")

    def drop_newest(self) -> None:
        """Sabotage: remove the newest acknowledged turn behind the store's back."""
        database = apsw.Connection(str(self.file))
        entries = "SELECT k FROM records WHERE k >= x'45' AND k < x'46' ORDER BY k DESC LIMIT 3"
        for (key,) in list(database.execute(entries)):
            database.execute("DELETE FROM records WHERE k = ?", (key,))
        database.close()

    def step_4(self) -> None:
        """The agent goes wrong: a bad turn, undone by going back"""
        with self.store() as store:
            state = store.agent(AGENT)
            good, root = dict(state.items()), state.root()
            safe = state.checkpoint("before the bad turn", type="pre_operation")
            with store.acting(AGENT, reason="I should start afresh"), state.change() as change:
                for key in state.keys("memory/"):
                    change.delete(key)
                change.set("conversation", [])
                change.set("plan", {"goal": "sell seashells"})
            changes = state.diff(safe)
            lost = sum(change.kind == "removed" for change in changes)
            self.claim(lost >= len(good) - 3, f"the bad turn removed {lost} messages and memories")
            started = time.perf_counter()
            if self.sabotage != 4:
                result = state.restore(safe, reason="bad turn")
                self.cost(
                    f"restore, all {result.values_checked} values verified",
                    f"{since(started):.1f} ms",
                )
            self.claim(state.root() == root, f"the state's root is the same again: {root[:16]}…")
            self.claim(dict(state.items()) == good, f"all {len(good)} keys are as before")
            bad = state.at(result.backup).get("plan")
            self.claim(
                bad == {"goal": "sell seashells"},
                f"the bad turn is kept as {result.backup.id}: the restore could be undone",
            )

    def step_5(self) -> None:
        """A byte of the file is changed, on a copy, behind the store's back"""
        shutil.copy(self.file, self.damaged)
        shutil.copy(f"{self.file}.keys", f"{self.damaged}.keys")
        checkpoint = next(told["id"] for told in self.acked if told["ack"] == self.victim)
        if self.sabotage != 5:
            self.flip(self.damaged, sequence(checkpoint) - 1)  # the change that it follows
        hit = {"conversation", f"memory/{self.victim:04}"}
        with self.store(self.damaged) as store:
            report = store.verify()
            named = {key for finding in report.findings for key in finding.keys}
            self.claim(not report.ok, f"verify has findings; the first: {first_of(report)}")
            self.claim(named == hit, f"it names the keys that use it: {', '.join(sorted(named))}")
            state, refused = store.agent(AGENT), set()
            names = state.keys()
            for name in names:
                try:
                    state.get(name)
                except StateIntegrityError:
                    refused.add(name)
            read = len(names) - len(refused)
            self.claim(refused == hit, f"reading just these is refused; {read} other keys are fine")

    def step_6(self) -> None:
        """Recovery: the damaged copy returns to its last good state"""
        if self.sabotage == 6:
            self.flip(self.damaged, 1)
        with self.store(self.damaged) as store:
            state = store.agent(AGENT)
            good, passed = self.newest_good(state)
            self.claim(
                good is not None,
                f"the {passed} newest turns use the damaged entry and are refused; the next is ok",
            )
            assert good is not None
            turns = [told for told in self.acked if told["ack"] < self.victim]
            self.claim(
                good.name == f"turn {self.victim - 1}", f"restored: {good.id}, {good.name!r}"
            )
            self.claim(
                state.root() == turns[-1]["root"], "its root is the one acknowledged back then"
            )
            found = dict(state.items())
            self.claim(
                found == self.expected(turns), f"all {len(found)} keys read, as of that turn"
            )
            after = len(self.acked) - len(turns)
        self.say(f"the copy gave up the {after} turns after it; the original has them all:")
        with self.store() as store:
            report, state = store.verify(), store.agent(AGENT)
            whole = report.ok and dict(state.items()) == self.expected(self.acked)
        self.claim(whole, f"the original verifies and has all {len(self.acked)} turns")

    def newest_good(self, state: sync.State) -> tuple[Checkpoint | None, int]:
        """Restore the newest turn that verifies in full; how many were refused first."""
        points = state.checkpoints(type="automatic")
        for passed, point in enumerate(points):
            try:
                state.restore(point, reason="recovery from damage")
            except StateIntegrityError:
                continue
            return point, passed
        return None, len(points)

    def show_costs(self) -> None:
        said = sum(len(json.dumps(told["turn"])) for told in self.acked)
        last = next(told["id"] for told in reversed(self.acked) if told["id"])
        self.cost("a checkpoint in the file", f"{len(self.row(self.file, sequence(last)))} bytes")
        size = self.file.stat().st_size
        self.cost(f"what {len(self.acked)} turns told", f"{said:,} bytes of JSON")
        self.cost("the file, every version, encrypted", f"{size:,} bytes ({size / said:.1f} times)")
        self.console.print("\nWhat it cost, measured just now", style="bold")
        for what, figure in self.costs:
            self.console.print(f"  {what:<38} {figure}")

    def run(self) -> int:
        """All steps; the exit code."""
        steps = [self.step_1, self.step_2, self.step_3, self.step_4, self.step_5, self.step_6]
        for number, step in enumerate(steps, 1):
            self.console.print(f"\n{number}. {step.__doc__}", style="bold")
            try:
                step()
            except Exception as error:
                if not isinstance(error, BrokenError):
                    self.console.print(f"  ✗ {type(error).__name__}: {error}", markup=False)
                self.console.print(f"\nFAILED at step {number}", style="bold red")
                return 1
        self.show_costs()
        self.console.print(
            "\nEvery claim above was checked. Try: make demo SABOTAGE=3", style="bold"
        )
        self.show_next()
        return 0

    def show_next(self) -> None:
        """Three commands to go on with; the first two look at a copy of the store that stays."""
        kept = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
        for file in (self.file, f"{self.file}.keys", self.key.removeprefix("file:")):
            shutil.copy(file, kept)
        python, example = sys.executable, Path(__file__).with_name("quick_start_example.py")
        file, key = kept / self.file.name, f"file:{kept}/agents.key"
        look = [python, "-m", "holdfast", "--store", str(file), "--key", key]
        self.console.print("\nNext", style="bold")
        for what, words in (
            ("what the agent did last", [*look, "log", f"agent:{AGENT}", "--limit", "5"]),
            ("how healthy the store is, and why", [*look, "doctor"]),
            ("a program to begin with", [python, str(example)]),
        ):
            self.console.print(f"  {what}:\n    $ {shlex.join(words)}", markup=False)


def since(started: float) -> float:
    """Milliseconds since a moment."""
    return (time.perf_counter() - started) * 1e3


def sequence(id: str) -> int:
    """The entry's number in a checkpoint's id."""
    return int(id.partition("@")[2])


def first_of(report: Any) -> str:
    """The first finding, in short."""
    return f"{report.findings[0].kind}, {report.findings[0].place}" if report.findings else "none"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sabotage", type=int, default=0, choices=range(1, 7), metavar="1..6")
    parser.add_argument("--turns", type=int, default=120, help="turns before the first kill")
    parser.add_argument("--kills", type=int, default=3, help="how often the agent is killed")
    parser.add_argument("--agent", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        url, key, *numbers = options.agent
        work(url, key, *(int(number) for number in numbers))
        return 0
    os.environ.pop("HOLDFAST_KEY", None)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        demo = Demo(Path(folder), max(options.turns, 6), max(options.kills, 1), options.sabotage)
        return demo.run()


if __name__ == "__main__":
    sys.exit(main())
