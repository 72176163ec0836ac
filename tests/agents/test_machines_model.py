"""Machines against a plain model, and in several processes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from store_kit import Place

from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineState, MachineStep
from holdfast.errors import IncompleteTransitionError, TransitionRefusedError


class Killed(BaseException):
    """Stands for the end of the process."""


def count(step: MachineStep) -> dict[str, Any]:
    return {"n": step.data.get("n", 0) + 1}


def die(step: MachineStep) -> None:
    raise Killed


NOW, DATA = "$machine/main/now", "$machine/main/data"
WAYS = {"a": {"go": "b", "end": "c", "die": "c"}, "b": {"go": "a"}, "c": {"go": "a", "die": "b"}}
DEFINITION = MachineDefinition(
    "a",
    {
        name: MachineState(
            on={
                trigger: MachineArrow(to, work=die)
                if trigger == "die"
                else MachineArrow(to, action=count if trigger == "end" else None)
                for trigger, to in ways.items()
            }
        )
        for name, ways in WAYS.items()
    },
)


@dataclass
class Model:
    """A machine without a store: versions are kept whole."""

    state: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    log: list[tuple[str, str, bool]] = field(default_factory=list)
    versions: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    open: tuple[str, str] | None = None

    def move(self, to: str, data: dict[str, Any]) -> None:
        self.log.append((self.state, to, True))
        self.state, self.data = to, data
        self.versions.append((to, data))


class Machines(RuleBasedStateMachine):
    """Two handles on one machine, restores, kills; the model goes along.

    A third one looks, so that the two rest on what they last saw.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = sync.open("memory:")
        self.state = self.store.agent("1")
        *self.machines, self.looking = [
            sync.agents.Machine(self.state, DEFINITION) for _ in range(3)
        ]
        self.model = Model()
        self.saved: list[tuple[Any, str, dict[str, Any]]] = []

    def begin(self) -> None:
        if not self.model.state:
            self.model.move("a", {})

    @rule(trigger=st.sampled_from(["go", "end", "never"]), which=st.integers(0, 1))
    def fire(self, trigger: str, which: int) -> None:
        machine, model = self.machines[which], self.model
        if model.open:
            with pytest.raises(IncompleteTransitionError):
                machine.fire(trigger)
            return
        self.begin()
        to = WAYS[model.state].get(trigger)
        if to is None:
            with pytest.raises(TransitionRefusedError):
                machine.fire(trigger)
            model.log.append((model.state, "", False))
            return
        machine.fire(trigger)
        data = {**model.data, "n": model.data.get("n", 0) + 1} if trigger == "end" else model.data
        model.move(to, data)

    @precondition(lambda self: self.model.state in ("a", "c") and not self.model.open)
    @rule(which=st.integers(0, 1))
    def kill(self, which: int) -> None:
        with pytest.raises(Killed):
            self.machines[which].fire("die")
        self.model.open = (self.model.state, WAYS[self.model.state]["die"])

    @precondition(lambda self: self.model.open)
    @rule(which=st.integers(0, 1), how=st.sampled_from(["done", "roll_back"]))
    def settle(self, which: int, how: str) -> None:
        model = self.model
        assert model.open is not None
        origin, to = model.open
        if how == "done" and model.state != origin:
            with pytest.raises(TransitionRefusedError):
                self.machines[which].settle(how)
            return
        self.machines[which].settle(how)
        if how == "done":
            model.move(to, model.data)
        else:
            model.log.append((origin, to, False))
        model.open = None

    @precondition(lambda self: self.model.state and not self.model.open)
    @rule(which=st.integers(0, 1), n=st.integers(0, 9))
    def save(self, which: int, n: int) -> None:
        self.machines[which].save({"n": n})
        self.model.move(self.model.state, {"n": n})

    @precondition(lambda self: self.model.state and not self.model.open)
    @rule(which=st.integers(0, 1), data=st.data())
    def roll_back(self, which: int, data: st.DataObject) -> None:
        version = data.draw(st.integers(1, len(self.model.versions)))
        self.machines[which].roll_back(version)
        self.model.move(*self.model.versions[version - 1])

    @rule()
    def checkpoint(self) -> None:
        if self.model.state:
            self.saved.append((self.state.checkpoint(), self.model.state, self.model.data))

    @precondition(lambda self: self.saved)
    @rule(data=st.data(), whole=st.booleans())
    def restore(self, data: st.DataObject, whole: bool) -> None:
        point, state, kept = data.draw(st.sampled_from(self.saved))
        if whole:
            self.state.restore(point)
        else:
            sync.checkpoints.Checkpoints(self.state).restore(point, keys=[NOW, DATA])
        self.model.state, self.model.data = state, kept

    @invariant()
    def agree(self) -> None:
        machine, model = self.looking, self.model
        now = machine.now()
        assert (now.state if now else "") == model.state
        assert (now.data if now else {}) == model.data
        assert bool(now and now.pending) == bool(model.open)
        log = machine.transitions(limit=None)
        assert [(one.from_state, one.to_state, one.success) for one in log] == model.log
        assert machine.validate() == ()

    @invariant()
    def versions(self) -> None:
        for number, kept in enumerate(
            self.model.versions[-3:], max(0, len(self.model.versions) - 3)
        ):
            found = self.looking.version(number + 1)
            assert (found.state, found.data) == kept

    def teardown(self) -> None:
        self.store.close()


Machines.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestMachines = Machines.TestCase


WALK = """
import sys
from holdfast.agents import MachineDefinition, MachineState
from holdfast import sync
from holdfast.errors import Conflict
ring = MachineDefinition(
    "a", {"a": MachineState(on={"go": "b"}), "b": MachineState(on={"go": "a"})}
)
with sync.open(sys.argv[1], durability="normal") as store:
    machine = sync.agents.Machine(store.agent("1"), ring)
    made = 0
    while made < 25:
        try:
            print(machine.fire("go").version)
            made += 1
        except Conflict:
            pass
"""


@pytest.mark.spec("X28", "M75")
def test_processes_allocate_every_version_once(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    place.open().close()
    command = [sys.executable, "-c", WALK, place.url]
    walkers = [
        subprocess.Popen(command, env=place.environment(), stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    found = [int(line) for one in walkers for line in one.communicate(timeout=60)[0].split()]
    assert [one.returncode for one in walkers] == [0, 0, 0]
    assert sorted(found) == list(range(2, 77))
    ring = MachineDefinition(
        "a", {"a": MachineState(on={"go": "b"}), "b": MachineState(on={"go": "a"})}
    )
    machine = sync.agents.Machine(place.open().agent("1"), ring)
    assert machine.validate() == ()
    assert machine.replay(1).state == machine.transitions()[-2].to_state
    place.close()
