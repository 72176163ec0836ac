"""HaikuAgent: writes a haiku about a topic, and has it published.

Where it is, is kept by a machine: awaiting_topic → generating → complete, and then the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.colleague import NOTHING, Colleague
from holdfast import sync
from holdfast.agents import (
    Handover,
    HandoverPackage,
    MachineArrow,
    MachineDefinition,
    MachineRule,
    MachineSnapshot,
    MachineState,
    MachineStep,
    StepResult,
)


def verses(topic: str) -> str:
    """Stands for a model."""
    return f"{topic} in the morning\nnobody has asked for it\nand yet here it is"


def three_lines(data: dict[str, Any]) -> list[str]:
    """What is wrong with a poem: a model answers what it likes."""
    lines = [line for line in str(data.get("haiku", "")).splitlines() if line.strip()]
    return [] if len(lines) == 3 else [f"a haiku has three lines, not {len(lines)}"]


class HaikuAgent(Colleague):
    """Keeps how many poems it wrote, and beside it the machine with the poem at work."""

    role = "poet"
    persistent = ("written",)
    written: list[str]

    def __init__(self, store: sync.Store, model: Callable[[str], str] = verses) -> None:
        self.written = []
        self.model = model
        super().__init__(store)
        self.machine = sync.agents.Machine(self.state, self.definition())

    def definition(self) -> MachineDefinition:
        """The states; interrupted work is done again, for a poem may be written twice."""
        topic = MachineRule("topic", pattern=r"\w[\w ]{0,40}", required=True)
        to_generating = MachineArrow("generating", accepts=(topic,), keep=("topic", "task"))
        to_complete = MachineArrow(
            "complete", work=self._compose, undo=self._forget, recover="complete"
        )
        return MachineDefinition(
            "awaiting_topic",
            {
                "awaiting_topic": MachineState(prompt="What about?", on={"topic": to_generating}),
                "generating": MachineState(prompt="About $topic …", on={"done": to_complete}),
                "complete": MachineState(
                    prompt="$haiku\nAnother one?",
                    check=three_lines,
                    on={"yes": "awaiting_topic", "no": "goodbye"},
                ),
                "goodbye": MachineState(prompt="Goodbye."),
            },
        )

    def _compose(self, step: MachineStep) -> dict[str, str]:
        return {"haiku": self.model(step.data["topic"])}

    def _forget(self, step: MachineStep) -> None:
        """A poem that is none leaves nothing in the world: the next attempt may be another one."""

    def validate_state(self) -> tuple[str, ...]:
        return self.machine.validate()

    def handle_recovery(self) -> None:
        self.machine.recover()

    def step(self) -> StepResult:
        now = self.machine.start()
        if now.state == "awaiting_topic":
            return self._await_topic()
        if now.state == "generating":
            self.machine.fire("done")
            return StepResult("write", task=now.data["task"], progress=0.3)
        return self._deliver(now)

    def _await_topic(self) -> StepResult:
        task = self.task()
        if task is None:
            return self.take_offer(self._can_write) or NOTHING
        last = self.last(task.id)
        if last is not None and last.status == "offered":  # before the agent was put back
            self.handovers.withdraw(self.state, last.id, reason="it is written anew")
        self.machine.fire("topic", topic=task.data["topic"], task=task.id)
        return StepResult("begin", task=task.id, progress=0.1)

    def _can_write(self, state: sync.State, package: HandoverPackage) -> str | None:
        topic = package.task.get("data", {}).get("topic")
        return None if self.machine.can("topic", topic=topic) else "that is no topic for a haiku"

    def _deliver(self, now: MachineSnapshot) -> StepResult:
        """To the git assistant to be published, from there back to who wanted it."""
        id, haiku = now.data["task"], now.data["haiku"]
        taken = self.take_offer(task=id)
        if taken is not None:
            return taken
        task, last = self.typed.item("tasks", id), self.last(id)
        assert last is not None, "tasks come by handovers"
        if task is None:
            if not (last.returns and last.status == "accepted"):
                return NOTHING  # it is with the others
            if id not in self.written:
                self.written.append(id)
            self.machine.fire("yes")
            return StepResult("deliver", task=id, progress=0.8)
        if task.data.get("poem") != haiku:
            self.say(id, haiku, data={**task.data, "poem": haiku}, progress=0.5)
        if last.status == "offered":
            return NOTHING  # it waits to be taken
        if task.result:
            self.handovers.give_back(self.state, id, reason="it is published")
        elif last.status == "refused" and not _before(last, now):
            self.handovers.give_back(self.state, id, reason=last.answer)
        else:
            self.handovers.offer(self.state, "agent:git", id, reason="to be published")
        return StepResult("deliver", task=id, progress=0.8)


def _before(handover: Handover, now: MachineSnapshot) -> bool:
    """Whether it was answered before this poem was written: the agent was put back since."""
    return handover.answered_at is not None and handover.answered_at < now.updated_at
