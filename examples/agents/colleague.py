"""What the three agents have in common: where their things are kept, and how they are let work."""

from __future__ import annotations

from typing import Any, ClassVar

from holdfast import sync
from holdfast.agents import Handover, Message, StepResult, Task
from holdfast.errors import AgentValidationError, HandoverValidationError

NOTHING = StepResult(idle=True, done=True)
"""There is nothing to do: the loop ends. An agent that waits for work would not say `done`."""


class Colleague(sync.agents.Agent):
    """An agent that takes tasks from others, works on one at a time, and hands it on.

    A step that was cut short is done again, and so is all that was done after a checkpoint that the
    agent is put back to: what a step has to do is told by what is stored, not by an id that is used
    up. Handovers and effects are not put back; the step looks how they stand.
    """

    role: ClassVar[str]
    """The id of its scope: `agent:greeter`, `agent:poet`, `agent:git`."""

    def __init__(self, store: sync.Store) -> None:
        self.store = store
        self.state = store.agent(self.role)
        self.typed = sync.agents.AgentState(self.state)
        self.effects = sync.agents.Effects(self.state)
        self.handovers = sync.agents.Handovers(store)
        self.set_state(self.state)

    def task(self) -> Task | None:
        """The task at work."""
        found: Task | None = self.typed.get("tasks").current
        return found

    def last(self, task: str) -> Handover | None:
        """The newest handover of a task, by or to this agent."""
        found = self.handovers.history(self.state, task)
        return found[-1] if found else None

    def mine(self, handover: Handover) -> bool:
        """Whether a handover brought its task here."""
        return handover.status == "accepted" and handover.taker == self.state.scope

    def take_offer(self, check: Any = None, task: str = "") -> StepResult | None:
        """Answer the oldest offer: accept it, or refuse it by what the check says.

        With a task, only an offer of that one is meant.
        """
        for offer in self.handovers.offers(self.state):
            if task not in ("", offer.task):
                continue
            try:
                self.handovers.accept(self.state, offer.id, check=check)
            except HandoverValidationError:
                if offer in self.handovers.offers(self.state):
                    continue  # its giver is not ready: it stays, to be taken later
                return StepResult("refuse", task=offer.task)
            return StepResult("accept", task=offer.task)
        return None

    def say(self, task: str, text: str, **fields: Any) -> None:
        """Add to the conversation and change the task, as one entry, unless it is so already."""
        known = self.typed.item("tasks", task)
        if all(getattr(known, name) == value for name, value in fields.items()):
            return
        with self.typed.change() as change:
            change.append("conversation", Message(role="assistant", name=self.role, content=text))
            change.update_task(task, **fields)


def work(store: sync.Store, make: Any, **options: Any) -> int:
    """Let an agent work until it has nothing to do; how many cycles that were.

    If what is stored of it is not valid, it is put back to the last checkpoint in which it was.
    """
    agent: Colleague = make(store)

    def valid(state: sync.State) -> bool:
        found: Colleague = make(store)
        found.set_state(state)  # the one it may be put back to, not the one it has now
        found.restore_state()
        return True

    try:
        return sync.agents.run(lambda _: make(store), agent.state, signals=(), **options).cycles
    except AgentValidationError:
        report = sync.recovery.Recovery(store, validate=[valid]).recover(
            agent.state, "validation_failed"
        )
        if not report.success:
            raise
    agent.handovers.reconcile(agent.state)  # what was handed over since stays so
    return sync.agents.run(lambda _: make(store), agent.state, signals=(), **options).cycles


def work_together(store: sync.Store, *makes: Any, **options: Any) -> None:
    """Let agents work in turn, until none of them has anything to do."""
    while sum(work(store, make, **options) for make in makes):
        continue
