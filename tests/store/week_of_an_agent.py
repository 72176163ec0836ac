"""An agent works for a week, in a real store on a clock that is driven; what it did is recorded.

    PYTHONPATH=src:tests/store python tests/store/week_of_an_agent.py

writes `week_of_an_agent.json`, the recording that the tests of the optimizer lead through policies.
The agent answers requests on working days: it plans, calls tools, takes notes, forgets what is
done, makes a checkpoint before each deployment, and goes back to it when that fails.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from holdfast import Clock, sync
from holdfast.checkpoints import PolicyRecording

WEEK = Path(__file__).with_name("week_of_an_agent.json")
MONDAY = 1_699_833_600.0
WORDS = [
    "the",
    "report",
    "of",
    "last",
    "week",
    "shows",
    "that",
    "more",
    "tickets",
    "were",
    "closed",
    "than",
    "opened",
    "by",
    "us",
]


class Agent:
    """Works on requests; every wait is one of the driven clock."""

    def __init__(
        self, store: sync.Store, at: list[float], policies: sync.checkpoints.Policies
    ) -> None:
        self.state = store.agent("a")
        self.policies = policies
        self.at = at
        self.chance = random.Random(7)

    def wait(self, seconds: float) -> None:
        """Let time pass, in steps, so that policies fire at their time."""
        assert self.policies.wait(60)
        end, quiet = self.at[0] + seconds, self.at[0] + 3000  # by then no alarm is left
        while self.at[0] < end:
            self.at[0] = min(end, self.at[0] + 20) if self.at[0] < quiet else end
            assert self.policies.wait(60)

    def text(self, least: int, most: int) -> str:
        return " ".join(self.chance.choices(WORDS, k=self.chance.randint(least, most)))

    def week(self) -> None:
        for day in range(5):
            self.wait(max(0.0, day * 86_400 + 8 * 3600 + self.chance.random() * 3600 - self.at[0]))
            for request in range(self.chance.randint(4, 8)):
                self.answer(f"{day}-{request}")
                self.wait(self.chance.expovariate(1 / 2400))

    def answer(self, name: str) -> None:
        state, chance = self.state, self.chance
        state.append("messages", {"role": "user", "content": self.text(10, 60)})
        self.wait(2)
        steps = chance.randint(2, 7)
        state.set("plan", {"request": name, "steps": [self.text(4, 12) for _ in range(steps)]})
        for step in range(steps):
            self.wait(chance.expovariate(1 / 45))
            state.set(f"results/{name}/{step}", {"tool": "search", "found": self.text(20, 400)})
            self.wait(chance.expovariate(1 / 20))
            with state.change() as change:
                change.append("messages", {"role": "tool", "content": self.text(5, 30)})
                change.set("progress", {"request": name, "step": step})
            if chance.random() < 0.3:
                self.wait(1)
                state.set(f"notes/{chance.randint(0, 40)}", self.text(10, 80))
        self.wait(1)
        if chance.random() < 0.2:
            self.deploy(name)
        self.wait(5)
        state.append("messages", {"role": "assistant", "content": self.text(30, 200)})
        self.wait(1)
        with state.change() as change:
            for step in range(steps - 1):
                change.delete(f"results/{name}/{step}")

    def deploy(self, name: str) -> None:
        before = self.state.checkpoint(f"before {name}", type="pre_operation")
        self.wait(1)
        for part in range(self.chance.randint(3, 10)):
            self.state.set(f"deployed/{part}", self.text(10, 50))
            self.wait(self.chance.expovariate(1 / 15))
        if self.chance.random() < 0.4:
            self.state.restore(before)


def main() -> None:
    """Live the week under the default policies, and keep the recording."""
    at = [0.0]
    clock = Clock(lambda: MONDAY + at[0], lambda: at[0])
    with (
        sync.open("memory:a-week", clock=clock) as store,
        sync.checkpoints.Policies(store) as policies,
    ):
        Agent(store, at, policies).week()
        assert policies.errors() == ()
        recording = sync.checkpoints.Optimizer(store).record("agent:a")
    data = recording.data()
    steps = ",\n".join(json.dumps(step, separators=(",", ":")) for step in data.pop("steps"))
    head = json.dumps(data)[:-1]
    WEEK.write_text(f'{head}, "steps": [\n{steps}\n]}}\n')


def recorded() -> PolicyRecording:
    """The week as it is kept."""
    return PolicyRecording.of(json.loads(WEEK.read_text()))


if __name__ == "__main__":
    main()
