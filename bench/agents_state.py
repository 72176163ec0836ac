"""Agents: what saving one costs of which little has changed, and what idle ones take."""

from __future__ import annotations

import random
import string
import time
from typing import Any

from common import Row, at_most, in_child, median, peak_memory, place, told

from holdfast.sync.agents import attach

AGENTS = 10_000
_letters = random.Random(7)


def run(quick: bool) -> list[Row]:
    """Saving, idle agents."""
    return [*saving(10 if quick else 50), *idle(1000 if quick else AGENTS)]


def _text(length: int) -> str:
    return "".join(_letters.choices(string.ascii_letters + "   ", k=length))


class Talker:
    """An agent with about 1 MB: 70 % in its conversation, 30 % in what it knows."""

    def __init__(self) -> None:
        self.step = 0
        self.conversation = [self._message(number) for number in range(1000)]
        self.facts = {f"fact-{n:03}": {"text": _text(900), "n": n} for n in range(330)}

    def _message(self, number: int) -> dict[str, Any]:
        return {"role": "user", "content": _text(650), "id": f"m{number}"}

    def work(self) -> None:
        """Change 1 % of it."""
        self.step += 1
        self.conversation += [self._message(len(self.conversation)) for _ in range(7)]
        for number in _letters.sample(range(330), 3):
            self.facts[f"fact-{number:03}"]["text"] = _text(900)


FIELDS = ("step", "conversation", "facts")


def saving(rounds: int) -> list[Row]:
    """CPU of a save after 1 % has changed, of one that finds nothing, and of taking it up again."""
    spent, nothing = [], []
    with place() as here:
        with here.sync("normal") as store:
            agent = Talker()
            kept = attach(agent, store.agent("a"), fields=FIELDS)
            kept.start()
            for _ in range(rounds):
                agent.work()
                begun = time.process_time()
                kept.save()
                done = time.process_time()
                kept.save()
                spent.append(done - begun)
                nothing.append(time.process_time() - done)
            kept.stop()
        with here.sync("normal") as store:
            agent = Talker()
            begun = time.process_time()
            attach(agent, store.agent("a"), fields=FIELDS).restore()
            restored = time.process_time() - begun
    return [
        at_most("save of a 1 MB agent, 1 % changed: CPU", median(spent) * 1e3, 2, "ms"),
        told("the same, nothing changed", median(nothing) * 1e3, "ms"),
        told("taking it up again in a new process", restored * 1e3, "ms"),
    ]


class Idler:
    """A small agent that waits."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.conversation = [{"role": "user", "content": f"hello {number}"}]


def idle(count: int) -> list[Row]:
    """Memory of a process in which agents were started and paused."""
    found = in_child("agents_state:wait", count=count)
    return [
        at_most(f"{count:,} idle agents in one process", found["memory"], 200, "MB"),
        told("of that, for each of them", (found["memory"] - found["before"]) * 1e3 / count, "kB"),
    ]


def wait(count: int) -> dict[str, float]:
    """Start and pause so many agents; what the process took before."""
    with place() as here, here.sync("normal") as store:
        before = peak_memory()
        kept = []
        for number in range(count):
            state = store.agent(f"agent-{number}")
            kept.append(attach(Idler(number), state, fields=("number", "conversation")))
            kept[-1].start()
            kept[-1].pause()
        if any(one.status != "paused" for one in kept):
            raise RuntimeError("an agent is not idle")
    return {"before": before}
