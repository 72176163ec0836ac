"""GreeterAgent: welcomes whoever writes, and has a haiku made for them.

A letter, `{"name": "Ann", "topic": "rain"}`, is a visit. The greeter says hello, hands the wish to
the poet, and when it comes back says where the poem is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.colleague import NOTHING, Colleague
from holdfast import sync
from holdfast.agents import Message, StepResult, Task


@dataclass
class Visit:
    """Who came, for what, and what became of it."""

    name: str
    topic: str
    answer: str = ""


def hello(prompt: str) -> str:
    """Stands for a model."""
    return f"Hello {prompt.removeprefix('Greet ')}, how good to see you!"


class GreeterAgent(Colleague):
    """Keeps its visits. They are saved with the letter that they came by, in one change."""

    role = "greeter"
    persistent = ("visits",)
    visits: dict[str, Visit]

    def __init__(self, store: sync.Store, model: Callable[[str], str] = hello) -> None:
        self.visits = {}
        self.model = model
        super().__init__(store)

    def validate_state(self) -> list[str]:
        return [f"visits.{id}: has no name" for id, one in self.visits.items() if not one.name]

    def on_letter(self, mail: sync.agents.Mail) -> None:
        name, topic = mail.content["name"], mail.content["topic"]
        if not isinstance(name, str) or not name:
            raise ValueError("a visitor has a name")
        self.visits[mail.letter.id] = Visit(name, topic)

    def step(self) -> StepResult:
        taken = self.take_offer()
        if taken is not None:
            return taken
        for id, visit in self.visits.items():
            if not visit.answer:
                return self._serve(id, visit)
        return NOTHING

    def _serve(self, id: str, visit: Visit) -> StepResult:
        last = self.last(id)
        here = self.typed.item("tasks", id) is not None
        if last is None or not (here or last.status == "accepted"):
            if not here:
                self._welcome(id, visit)
            if last is None or last.status != "offered":
                self.handovers.offer(self.state, "agent:poet", id, reason="a poem is wanted")
            return StepResult("welcome", task=id, progress=0.1)
        if last.status == "refused":
            visit.answer = f"Alas: {last.answer}."
            self.say(id, visit.answer, status="failed", error=last.answer)
        elif self.mine(last):
            result = self.typed.item("tasks", id).result
            visit.answer = result or f"Alas: {last.reason}."
            if result:
                self.say(id, visit.answer, status="completed", progress=1.0)
            else:
                self.say(id, visit.answer, status="failed", error=last.reason)
        else:
            return NOTHING  # it is with the others
        return StepResult("answer", task=id, progress=1.0)

    def _welcome(self, id: str, visit: Visit) -> None:
        # With a key, a call that was cut short may be made again; its result is kept.
        text = self.effects.call(
            "model", lambda _: self.model(f"Greet {visit.name}"), key=f"{id}-hello"
        )
        wish = f"A haiku about {visit.topic}, please."
        with self.typed.change() as change:
            change.append("conversation", Message(role="user", name=visit.name, content=wish))
            change.append("conversation", Message(role="assistant", name=self.role, content=text))
            change.put("tasks", id, Task(id=id, title=wish, data={"topic": visit.topic}))
