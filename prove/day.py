"""A long day: four processes work on two hundred agents for minutes, and nothing grows with it.

Three of them set, append, read, checkpoint, restore (and confirm), fork and end forks, and one of
these makes backups; the fourth runs retention (`Keep(count=60)`, three checkpoints of a type). Each
tells every few seconds how much memory it has, how long a read takes and how long a run of
retention; the file's size is told by entry. After the first fifth of the time, which is a minute of
the whole run, the mean of the last fifth may be a quarter above that of the second one, no more.
Nothing fails but with a conflict, and the whole store verifies afterwards.

What stays of a pruned entry, its envelope and its row of the feed, is in the file's size: so that
is judged by the bytes that an entry costs, not as a whole.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from prove.common import Findings, Result, child_env, folder, pick, python

AGENTS, WORKERS, EVERY = 200, 3, 2.0
MORE = 1.25
"""How much more than in the second fifth of the time the last one may have."""
BARS = " ▁▂▃▄▅▆▇█"


def run(seed: int, scale: int) -> Result:
    """Work for seconds, or for minutes; judged only if that is long enough."""
    seconds = pick(scale, 6, 30, 300)
    findings = Findings()
    with folder() as place:
        told = _worked(place, seconds, seed)
        drawn = _drawn(told)
        for line in drawn:
            print(f"  {line}")
        for one in told:
            findings += one.get("errors", [])
        if seconds >= 300:
            findings += _grown(told)
        findings += _verified(place / "store.db")
    done = sum(one["done"] for one in told)
    scope = f"{seconds} s, {WORKERS + 1} processes, {AGENTS} agents: memory, get, retention, file"
    return Result(f"{done} operations", scope, seed, findings)


def _worked(place: Path, seconds: int, seed: int) -> list[dict[str, Any]]:
    """What each process told: samples, how much it did, and what failed."""
    from holdfast import Keep, sync

    path = place / "store.db"
    with sync.open(f"sqlite:{path}", durability="normal") as store:
        for number in range(AGENTS):
            store.agent(str(number)).declare(Keep(count=60))
    command = python("-m", "prove.day", str(path), str(seconds))
    children = [
        subprocess.Popen(
            [*command, str(number), str(seed)], stdout=subprocess.PIPE, env=child_env(), text=True
        )
        for number in range(WORKERS + 1)
    ]
    answers = [child.communicate(timeout=seconds * 3 + 120)[0] for child in children]
    failed = [f"a process ended with {child.returncode}" for child in children if child.returncode]
    told: list[dict[str, Any]] = [json.loads(answer) for answer in answers if answer]
    return told or [{"samples": [], "done": 0, "errors": failed}]


FIGURES = {"memory": "MB", "get": "ms", "retention": "ms", "entry": "bytes an entry"}


def _series(told: list[dict[str, Any]], figure: str) -> list[float]:
    """A figure of all processes over time: the mean of those that have it."""
    rows = [[one.get(figure) for one in process["samples"]] for process in told]
    found = []
    for moment in range(min((len(row) for row in rows), default=0)):
        here = [row[moment] for row in rows if row[moment] is not None]
        if here:
            found.append(fmean(here))
    return found


def _drawn(told: list[dict[str, Any]]) -> list[str]:
    lines = []
    for figure, unit in FIGURES.items():
        series = _series(told, figure)
        if series:
            most = max(series) or 1
            bars = "".join(BARS[round(value / most * 8)] for value in series)
            lines.append(f"{figure:<10}{bars} {series[0]:.2f} to {series[-1]:.2f} {unit}")
    return lines


def _grown(told: list[dict[str, Any]]) -> list[str]:
    """Which figures go on growing behind the first fifth of the time."""
    found = []
    for figure, unit in FIGURES.items():
        series = _series(told, figure)
        fifth = len(series) // 5
        early, late = fmean(series[fifth : 2 * fifth]), fmean(series[-fifth:])
        if late > MORE * early:
            found.append(f"{figure} grew from {early:.2f} to {late:.2f} {unit}")
    return found


def _verified(path: Path) -> list[str]:
    from holdfast import sync

    with sync.open(f"sqlite:{path}", durability="normal") as store:
        return [f"verify: {one.place}: {one.message}" for one in store.verify().findings[:3]]


class Worker:
    """One of the processes."""

    def __init__(self, path: str, number: int, seed: int) -> None:
        from holdfast import sync
        from holdfast.checkpoints import RetentionRule
        from holdfast.sync.backup import Backups
        from holdfast.sync.checkpoints import Checkpoints, Retention

        self.path, self.number = path, number
        self.store = sync.open(f"sqlite:{path}", durability="normal")
        rule = RetentionRule(max_count=3)
        self.retention = Retention(self.store, rules={"manual": rule, "recovery": rule})
        self.backups = Backups(self.store, Path(f"{path}.backups")) if number == 1 else None
        self.checkpoints = Checkpoints
        self.draw = random.Random(seed * 100 + number)
        self.done = 0
        self.reads: list[float] = []
        self.runs: list[float] = []

    def step(self) -> None:
        """Do one thing."""
        self.done += 1
        state, dice = self.store.agent(str(self.draw.randrange(AGENTS))), self.draw.random()
        began = time.perf_counter()
        if self.number == 0:
            self.retention.run(state, confirm=True)
            self.runs.append(time.perf_counter() - began)
        elif dice < 0.3:
            state.get(f"k{self.draw.randrange(40)}")
            self.reads.append(time.perf_counter() - began)
        elif dice < 0.7:
            text = "x" * self.draw.randrange(200)
            state.set(f"k{self.draw.randrange(40)}", {"number": self.done, "text": text})
        elif dice < 0.85:
            state.append("log", {"number": self.done, "text": "y" * 80})
            if self.draw.random() < 0.1:
                state.trim("log", keep_last=50)
        elif dice < 0.94:
            state.checkpoint(f"{self.done}")
        elif dice < 0.97:
            found = state.checkpoints(limit=2)
            if found:
                self.checkpoints(state).confirm(state.restore(found[-1]))
        elif dice < 0.9995 or self.backups is None:
            name = f"trial-{self.number}-{self.done}"
            state.fork(name).set("k1", self.done)
            self.retention.end(state, name)
        else:
            self.backups.create()

    def entries(self) -> int:
        """How many there are, by those of every tenth agent."""
        newest = (self.store.agent(str(at)).log(limit=1) for at in range(0, AGENTS, 10))
        return 10 * sum(found[0].sequence for found in newest if found)

    def sample(self, entries: int) -> dict[str, float | None]:
        """How things are now."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        reads, runs = (1000 * median(each) if each else None for each in (self.reads, self.runs))
        self.reads, self.runs = [], []
        size = os.path.getsize(self.path)
        return {
            "memory": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
            "get": reads,
            "retention": runs,
            "entry": size / entries if entries else None,
        }


def work(path: str, seconds: float, number: int, seed: int) -> dict[str, Any]:
    """Work for a while; what this process has to tell."""
    from holdfast.errors import Conflict, HoldfastError, MissingError, PrunedError, StillNeededError

    worker = Worker(path, number, seed)
    errors: list[str] = []
    samples: list[dict[str, float | None]] = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds and len(errors) < 5:
        if passed >= EVERY * (len(samples) + 1):
            samples.append(worker.sample(worker.entries() if number == 0 else 0))
        try:
            worker.step()
        except (Conflict, MissingError, PrunedError, StillNeededError):
            continue  # others were faster
        except HoldfastError as error:
            errors.append(f"process {number}: {type(error).__name__}: {error}")
    worker.store.close()
    return {"samples": samples, "done": worker.done, "errors": errors}


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(json.dumps(work(arguments[0], float(arguments[1]), int(arguments[2]), int(arguments[3]))))
