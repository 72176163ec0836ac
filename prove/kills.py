"""kill -9 under load: several processes write one store and are killed at random moments.

After each round the store is opened again: it verifies without findings; every write that a
process had reported is there, at most the one under way beside it; a change over two scopes is
in both or in none; nothing is there twice. The next round goes on with the same store.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from pathlib import Path

from holdfast import sync
from holdfast.errors import HoldfastError
from prove.common import Findings, Result, TooMany, child_env, folder, pick, python

WRITERS = 3


def start(url: str, name: str, seed: int, level: str) -> subprocess.Popen[bytes]:
    """A writer; it reports on its stdout."""
    script = str(Path(__file__).with_name("kills_work.py"))
    command = python(script, url, name, str(seed), level)
    return subprocess.Popen(
        command, env=child_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def round_of(url: str, draw: random.Random, level: str) -> tuple[dict[str, int], list[str]]:
    """Let writers run and kill them; the last number that each reported, and what went wrong."""
    writers = {}
    wrong = []
    for number in range(WRITERS):
        name = f"w{number}"
        writers[name] = start(url, name, draw.randrange(1 << 30), level)
    try:
        for writer in writers.values():
            assert writer.stdout is not None
            writer.stdout.readline()  # it has opened the store
        for writer in draw.sample(list(writers.values()), len(writers)):
            time.sleep(draw.random() * 0.3)
            if writer.poll() is not None:
                wrong.append(f"a writer ended by itself: {writer.stderr.read()[-400:]!r}")  # type: ignore[union-attr]
            writer.kill()
    finally:
        for writer in writers.values():
            writer.kill()
    reported = {}
    for name, writer in writers.items():
        out = writer.communicate(timeout=30)[0]
        lines = out[: out.rfind(b"\n") + 1].split()
        reported[name] = int(lines[-1]) if lines else -1
    return reported, wrong


def examine(url: str, reported: dict[str, int], level: str) -> list[str]:
    """What is wrong with a store after its writers were killed."""
    wrong = []
    with sync.open(url, create=False, durability=level) as store:
        shared = Counter(tuple(item) for item in store.shared.get("all", []))
        for name, last in reported.items():
            count = store.agent(name).get("count", 0)
            if last >= 0 and not last <= count <= last + 1:
                wrong.append(f"{name} reported {last}, {count} is there")
            own = store.agent(name).get("own", [])
            if own != list(range(1, count + 1)):
                wrong.append(f"{name}: its own list does not hold 1 to {count}")
            if any(shared[(name, number)] != 1 for number in range(1, count + 1)):
                wrong.append(f"{name}: a change is in one scope and not once in the other")
        if sum(shared.values()) != sum(store.agent(n).get("count", 0) for n in reported):
            wrong.append("the shared list holds something that nobody counted")
        report = store.verify()
        wrong += [f"verify: {f.place}: {f.message}" for f in report.findings[:3]]
    return wrong


def run(seed: int, scale: int) -> Result:
    """Rounds of kills, alternating between both levels: they promise the same here."""
    findings = Findings()
    draw = random.Random(seed)
    rounds = pick(scale, 2, 15, 400)
    writes = 0
    with folder() as place:
        url = f"sqlite:{place / 'store.db'}"
        try:
            for number in range(rounds):
                level = ("full", "normal")[number % 2]
                reported, wrong = round_of(url, draw, level)
                wrong += examine(url, reported, level)
                writes = sum(max(last, 0) for last in reported.values())
                for text in wrong:
                    findings.note(f"round {number} ({level}): {text}")
        except HoldfastError as error:
            findings.append(f"the store does not open: {type(error).__name__}: {error}")
        except TooMany:
            pass
    figure = f"{rounds * WRITERS} kills"
    return Result(figure, f"{WRITERS} processes, {writes} changes over two scopes", seed, findings)
