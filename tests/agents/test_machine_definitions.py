"""Definitions of machines: what is wrong with one; drawings."""

from __future__ import annotations

from typing import Any

import pytest
from machine_kit import HAIKU

from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineRule, MachineState
from holdfast.errors import MachineDefinitionError, TransitionRefusedError


@pytest.mark.spec("X27")
def test_a_machine_that_writes_poems(store: sync.Store) -> None:
    machine = sync.agents.Machine(store.agent("poet"), HAIKU)
    assert machine.start().prompt == "What shall it be about?"
    with pytest.raises(TransitionRefusedError, match="say it in a few words"):
        machine.fire("topic", topic="")
    machine.fire("topic", topic="rain")
    for trigger, state in (("done", "complete"), ("yes", "awaiting_topic")):
        assert machine.fire(trigger).to_state == state
    machine.fire("topic", topic="snow")
    machine.fire("done")
    assert machine.fire("no").to_state == "goodbye"
    with pytest.raises(TransitionRefusedError, match="nothing does"):
        machine.fire("yes")


def test_arrows_that_lead_out_of_every_state(store: sync.Store) -> None:
    definition = MachineDefinition(
        "a",
        {
            "a": MachineState(on={"go": "b"}),
            "b": MachineState(on={"stop": "a"}),
            "end": MachineState(),
        },
        on={"stop": "end"},
    )
    assert [(s, t, a.to) for s, t, a in definition.arrows()] == [
        ("a", "go", "b"),
        ("a", "stop", "end"),
        ("b", "stop", "a"),
    ]
    machine = sync.agents.Machine(store.agent("1"), definition)
    machine.fire("stop")
    with pytest.raises(TransitionRefusedError):  # from the end it does not lead to the end
        machine.fire("stop")


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(MachineDefinitionError) as wrong:
        MachineDefinition(
            "start",
            {
                "a": MachineState(
                    on={
                        "go": "nowhere",
                        "again": "a",
                        "work": MachineArrow("b", recover="complete"),
                        "bad": MachineArrow("b", recover="hope", guard=7),
                        "": "b",
                    },
                    rules=(MachineRule("x", pattern="("), MachineRule("a..b")),
                    data={"": 1},
                ),
                "b": MachineState(only_from=("c",)),
                "c": MachineState(only_from=("z",)),
            },
        )
    found = "\n".join(wrong.value.problems)
    for text in (
        "the initial state 'start' is not among the states",
        "a: the pattern of 'x' cannot be read",
        "a: 'a..b' is no field",
        "a: data: a name is empty",
        "a again: leads back to its own state; say again=True",
        "a go: leads to 'nowhere', which is no state",
        "a work: recover is complete, and no work is declared",
        "a bad: recover is ask, complete, roll_back, not 'hope'",
        "a bad: guard is a function",
        "a trigger is text of 1 to 128 characters",
        "a work: 'b' is entered from c only",
        "c: only_from names 'z', which is no state",
    ):
        assert text in found
    with pytest.raises(MachineDefinitionError, match="nothing leads to the state 'b'"):
        MachineDefinition("a", {"a": MachineState(), "b": MachineState()})


@pytest.mark.parametrize(
    "call",
    [
        lambda: MachineDefinition("a", {"a": {}}),  # type: ignore[dict-item]
        lambda: MachineDefinition("a", [MachineState()]),  # type: ignore[arg-type]
        lambda: MachineDefinition("a", {"a": MachineState(on={"go": 7})}),  # type: ignore[dict-item]
        lambda: MachineDefinition("a", {"a": MachineState(on=["b"])}),  # type: ignore[arg-type]
        lambda: MachineArrow("b", keep="topic"),  # type: ignore[arg-type]
        lambda: MachineArrow("b", accepts=({"field": "x"},)),  # type: ignore[arg-type]
        lambda: MachineState(rules=MachineRule("x")),  # type: ignore[arg-type]
        lambda: MachineState(only_from="a"),  # type: ignore[arg-type]
    ],
)
def test_python_that_is_no_definition(call: Any) -> None:
    with pytest.raises(MachineDefinitionError):
        call()


def test_mermaid() -> None:
    assert HAIKU.mermaid(now="complete") == (
        "stateDiagram-v2\n"
        '    state "awaiting_topic" as s0\n'
        '    state "generating" as s1\n'
        '    state "complete" as s2\n'
        '    state "goodbye" as s3\n'
        "    [*] --> s0\n"
        "    s0 --> s1 : topic\n"
        "    s1 --> s2 : done\n"
        "    s2 --> s0 : yes\n"
        "    s2 --> s3 : no\n"
        "    s3 --> [*]\n"
        "    classDef now stroke-width:3px\n"
        "    class s2 now\n"
    )


def test_any_name_can_be_drawn() -> None:
    name = 'a "b"; <c>: {d}\n'
    drawn = MachineDefinition(name, {name: MachineState()}).mermaid()
    assert 'state "a #34;b#34;#59; #60;c#62;#58; #123;d#125; " as s0' in drawn
