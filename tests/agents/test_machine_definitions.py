"""Definitions of machines: in Python, as plain data, in YAML; what is wrong with one; drawings."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from machine_kit import HAIKU

from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineRule, MachineState
from holdfast.errors import MachineDefinitionError, MissingExtraError, TransitionRefusedError

YAML = r"""
initial: awaiting_topic
states:
  awaiting_topic:
    prompt: What shall it be about?
    on:
      topic:
        to: generating
        keep: [topic]
        accepts:
          - {field: topic, pattern: '\w[\w ]{0,40}', required: true, message: say it in a few words}
  generating:
    prompt: A haiku about $topic …
    data: {lines: []}
    on: {done: complete}
  complete:
    prompt: Another one?
    on: {yes: awaiting_topic, no: goodbye}
  goodbye:
"""


@pytest.mark.spec("X27")
def test_the_same_machine_from_yaml(store: sync.Store) -> None:
    """`on`, `yes` and `no` are words; YAML's older version takes them for truth values."""
    definition = MachineDefinition.from_yaml(YAML)
    assert definition == HAIKU
    machine = sync.agents.Machine(store.agent("poet"), definition)
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


def test_functions_are_named_in_plain_data(store: sync.Store) -> None:
    data = {
        "initial": "a",
        "states": {
            "a": {"on": {"go": {"to": "b", "guard": "may", "action": "note"}}, "check": "sound"},
            "b": {"enter": "note"},
        },
        "on": {"stop": {"to": "b", "action": "note"}},
    }
    functions = {
        "may": lambda step: step.input.get("please") is True,
        "note": lambda step: {"noted": step.data.get("noted", 0) + 1},
        "sound": lambda found: None,
    }
    machine = sync.agents.Machine(store.agent("1"), MachineDefinition.of(data, functions))
    with pytest.raises(TransitionRefusedError, match="its guard says no"):
        machine.fire("go")
    machine.fire("go", please=True)
    assert machine.now().data == {"noted": 2}  # type: ignore[union-attr]
    with pytest.raises(MachineDefinitionError) as wrong:
        MachineDefinition.of(data, {"note": print, "may": 7})  # type: ignore[dict-item]
    assert wrong.value.problems == (
        "a: check names 'sound', which is in no table of functions",
        "a go: guard is a function",
    )


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


BAD: list[Any] = [
    {},
    [],
    None,
    {"initial": "a"},
    {"initial": "a", "states": []},
    {"initial": "a", "states": {"a": 7}},
    {"initial": "a", "states": {"a": {"on": 7}}},
    {"initial": "a", "states": {"a": {"on": {"go": 7}}}},
    {"initial": "a", "states": {"a": {"no": {}}}},
    {"initial": "a", "states": {"a": {"rules": [{"pattern": "x"}]}}},
    {"initial": 7, "states": {"a": {}}},
    {"initial": "a", "states": {"a": {}}, "on": 7},
]


@pytest.mark.parametrize("data", BAD)
def test_plain_data_that_are_no_definition(data: Any) -> None:
    with pytest.raises(MachineDefinitionError):
        MachineDefinition.of(data)


def test_all_of_the_wrong_shape_is_told_with_its_place() -> None:
    wrong = {
        "initial": 1,
        "states": {
            "a": {"prompt": 5, "on": {"x": {"to": "b", "again": "yes"}, "y": 7, "z": {}}},
            "b": {"rules": [{"field": "x"}, {"pattern": "y"}, 5], "colour": "red"},
            "c": 5,
            3: {},
        },
    }
    with pytest.raises(MachineDefinitionError) as refused:
        MachineDefinition.of(wrong)
    places = [text.partition(": ")[0] for text in refused.value.problems]
    assert places == [
        "initial",
        "states.a.on.x.again",
        "states.a.on.y",
        "states.a.on.z.to",
        "states.a.prompt",
        "states.b.rules[1].field",
        "states.b.rules[2]",
        "states.b",
        "states.c",
        "states (a key)",
    ]


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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("initial: a\nstates: {a: {}, a: {}}", "line 2: 'a' is there twice"),
        ("a: &x {b: 1}\nc: *x", "aliases"),
        ("a: [", "line 1: "),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("? [1, 2]\n: 3", "found unhashable key"),
        ("just text", "a definition is a mapping"),
        ("initial: a\nstates: {a: {on: {go: true}}}", "states"),
    ],
)
def test_yaml_that_is_no_definition(text: str, problem: str) -> None:
    with pytest.raises(MachineDefinitionError, match=re.escape(problem)):
        MachineDefinition.from_yaml(text)


def test_yaml_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[yaml\]"):
        MachineDefinition.from_yaml(YAML)


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
