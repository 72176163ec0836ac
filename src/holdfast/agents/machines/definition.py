"""What a machine is: its states, the arrows between them, and what has to hold.

haiku = MachineDefinition(
    initial="awaiting_topic",
    states={
        "awaiting_topic": MachineState(on={"topic": "generating"}),
        "generating": MachineState(on={"done": "complete"}),
        "complete": MachineState(on={"yes": "awaiting_topic", "no": "goodbye"}),
        "goodbye": MachineState(),
    },
)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from string import Template
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from holdfast.agents.machines.machine_records import wrong_with
from holdfast.agents.state.checks import problems, refusal_of, told
from holdfast.errors import InvalidInputError, MachineDefinitionError
from holdfast.store.inner import same
from holdfast.store.names.arguments import check_not_async, check_text, is_async

if TYPE_CHECKING:
    from holdfast.agents.machines.machine_records import MachineSnapshot


# ---- machine rules ------------------------------------------------------------------------------
# Rules for what triggers bring along and for a machine's data: what is wrong with it, as texts.
#
# Texts name fields, never what is in them.


LONGEST_MATCHED = 100_000
"""Characters of a text that a pattern is tried on; a longer one is refused unseen."""
MOST_PROBLEMS = 100


class MachineRule(msgspec.Struct, frozen=True):
    """What a field has to be. All that is given must hold.

    `field` is a path of names (`order.city`). `pattern` is a regular expression that the whole
    text has to match; `allow` a list of the only values that are allowed. A field that is absent
    or None is only refused if it is `required`. `message` is what people are told instead of our
    own words.
    """

    field: str
    pattern: str = ""
    allow: tuple[Any, ...] = ()
    required: bool = False
    message: str = ""

    def problem(self, content: Mapping[str, Any]) -> str | None:
        """What is wrong with the field in some content; None if nothing is."""
        value: Any = content
        for name in self.field.split("."):
            there = isinstance(value, Mapping) and name in value
            value = value[name] if there else None
        if value is None:
            found = "is missing" if self.required else None
        elif self.pattern and not isinstance(value, str):
            found = "is not text"
        elif self.pattern and len(value) > LONGEST_MATCHED:
            found = f"has more than {LONGEST_MATCHED} characters"
        elif self.pattern and not _compiled(self.pattern).fullmatch(value):
            found = "does not match its pattern"
        elif self.allow and not any(same(one, value) for one in self.allow):
            found = "is none of the allowed values"
        else:
            found = None
        return f"{self.field}: {self.message or found}" if found else None

    def wrong(self) -> str | None:
        """What is wrong with the rule itself; None if nothing is."""
        if not self.field or "" in self.field.split("."):
            return f"{self.field!r} is no field; write a name, or names with dots between"
        try:
            _compiled(self.pattern)
        except re.error as error:
            return f"the pattern of {self.field!r} cannot be read: {error}"
        return None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def broken(rules: Iterable[MachineRule], content: Mapping[str, Any]) -> list[str]:
    """What is wrong with some content by rules."""
    return [text for rule in rules if (text := rule.problem(content))]


def empty_names(content: Any, path: str = "data") -> Iterator[str]:
    """Where a mapping, at any depth, has an empty name, or one that is no text."""
    if isinstance(content, Mapping):
        for name, inner in content.items():
            if not isinstance(name, str) or not name.strip():
                yield f"{path}: a name is empty, or no text"
            else:
                yield from empty_names(inner, f"{path}.{name}")
    elif isinstance(content, list | tuple):
        for number, inner in enumerate(content):
            yield from empty_names(inner, f"{path}[{number}]")


# ---- definition ---------------------------------------------------------------------------------


RECOVERIES = ("ask", "complete", "roll_back")
MOST_STATES = 1000
_SPECIAL = '"#;:{}[]()<>|\\`&'
"""Characters that mean something to Mermaid."""
_FUNCTIONS = {"arrow": ("guard", "action", "work", "undo"), "state": ("enter", "exit", "check")}


class MachineArrow(msgspec.Struct, frozen=True):
    """Where a trigger leads, and what has to hold and to be done on the way.

    Functions are given a `MachineStep`. `guard` says whether the arrow may be followed now;
    `action` is run between leaving and entering, and what it changes is part of the transition.
    `work` is what takes long or reaches outside: the intent is stored before it, the outcome after
    it. If the process ends in between, `recover` says what becomes of it: `complete` (the work is
    done again, which must be safe), `roll_back` (`undo` is called, the machine stays where it was)
    or `ask` (the caller decides). Work that may have been done, and whose transition is not made,
    is undone; without an `undo`, the transition stays open.

    `accepts` are rules for what the trigger brings along, `keep` are fields of that which become
    data, `actors` who alone may follow the arrow. An arrow back to its own state must say `again`.
    """

    to: str
    guard: Any = None
    action: Any = None
    work: Any = None
    undo: Any = None
    recover: str = "ask"
    accepts: tuple[MachineRule, ...] = ()
    keep: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    again: bool = False

    def __post_init__(self) -> None:
        _refuse(_listed(self, accepts=MachineRule, keep=str, actors=str))


class MachineState(msgspec.Struct, frozen=True):
    """One state: what is said in it, what leads out of it, what holds of the data in it.

    `on` leads from triggers to states, or to `MachineArrow`s. `data` are fields that are added on
    entering, if they are not there. `prompt` may name fields of the data (`$topic`). `accepts` are
    rules for what any trigger brings along here, `rules` for the data while the machine is here;
    `check` is a function of the data that returns what is wrong with it, as texts. `enter` and
    `exit` are given a `MachineStep`. `only_from` are the states that alone may lead here.
    """

    on: dict[str, MachineArrow | str] = {}
    data: dict[str, Any] = {}
    prompt: str = ""
    accepts: tuple[MachineRule, ...] = ()
    rules: tuple[MachineRule, ...] = ()
    check: Any = None
    enter: Any = None
    exit: Any = None
    only_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _refuse(_listed(self, accepts=MachineRule, rules=MachineRule, only_from=str))


class MachineDefinition(msgspec.Struct, frozen=True):
    """States by their names, the first of them, and arrows that lead out of every state (`on`).

    Making one refuses what cannot work, with all that is wrong: `MachineDefinitionError.problems`.
    """

    initial: str
    states: dict[str, MachineState]
    on: dict[str, MachineArrow | str] = {}

    def __post_init__(self) -> None:
        found = _shape(self)
        if not found:  # an arrow may be given as the name of the state that it leads to
            states = {
                name: structs.replace(one, on=_arrows(one.on)) for name, one in self.states.items()
            }
            structs.force_setattr(self, "states", states)
            structs.force_setattr(self, "on", _arrows(self.on))
            found = list(_problems(self))
        _refuse(found)

    # asking

    def arrow(self, state: str, trigger: str) -> MachineArrow | None:
        """Where a trigger leads from a state; None if nowhere."""
        here = self.states.get(state)
        if here is None:
            return None
        found: Any = here.on.get(trigger)
        if found is None:
            found = self.on.get(trigger)
            if found is not None and found.to == state and not found.again:
                return None  # what leads here from everywhere does not lead here from here
        return found  # type: ignore[no-any-return]

    def arrows(self) -> Iterator[tuple[str, str, MachineArrow]]:
        """(state, trigger, arrow) of all arrows, those of every state included."""
        for state, here in self.states.items():
            for trigger in [*here.on, *(one for one in self.on if one not in here.on)]:
                arrow = self.arrow(state, trigger)
                if arrow is not None:
                    yield state, trigger, arrow

    def prompt(self, state: str, data: Mapping[str, Any]) -> str:
        """What is said in a state, with fields of the data filled in."""
        here = self.states.get(state)
        return Template(here.prompt).safe_substitute(data) if here is not None else ""

    def validate_state(self, snapshot: MachineSnapshot) -> tuple[str, ...]:
        """What is wrong with a snapshot of such a machine, as texts."""
        return tuple(wrong_with(self, snapshot))

    def validate_transition(self, origin: str, target: str) -> tuple[str, ...]:
        """What speaks against a transition from one state to another, as texts."""
        unknown = [f"there is no state {name!r}" for name in (origin, target) if name not in self]
        if unknown:
            return tuple(unknown)
        if not any(s == origin and a.to == target for s, _, a in self.arrows()):
            return (f"no arrow leads from {origin!r} to {target!r}",)
        return ()

    def validate_data(self, state: str, data: Any) -> tuple[str, ...]:
        """What is wrong with the data of a machine that is in a state, as texts."""
        if not isinstance(data, dict):
            return ("data is a mapping",)
        here = self.states.get(state)
        if here is None:
            return (f"there is no state {state!r}",)
        found = [*empty_names(data), *broken(here.rules, data)]
        if here.check is not None and not found:
            try:
                found += told(here.check(data), "data: its check")
            except Exception as error:
                found.append(f"data: its check raised {type(error).__name__}")
        return tuple(found[:MOST_PROBLEMS])

    def __contains__(self, state: object) -> bool:
        return state in self.states

    # drawing

    def mermaid(self, now: str | None = None) -> str:
        """A diagram in Mermaid's language; `now` is a state to be marked."""
        ids = {name: f"s{number}" for number, name in enumerate(self.states)}  # any name is shown
        lines = ["stateDiagram-v2"]
        lines += [f'    state "{_drawn(name)}" as {id}' for name, id in ids.items()]
        lines.append(f"    [*] --> {ids[self.initial]}")
        ends = dict.fromkeys(self.states)
        for origin, trigger, arrow in self.arrows():
            ends.pop(origin, None)
            signs = " ?" * (arrow.guard is not None) + " …" * (arrow.work is not None)
            lines.append(f"    {ids[origin]} --> {ids[arrow.to]} : {_drawn(trigger + signs)}")
        lines += [f"    {ids[name]} --> [*]" for name in ends]
        if now in ids:
            lines += ["    classDef now stroke-width:3px", f"    class {ids[now]} now"]
        return "\n".join(lines) + "\n"


def _drawn(text: str) -> str:
    """Text that means nothing to Mermaid."""
    clean = "".join(one if one.isprintable() else " " for one in text)
    return "".join(f"#{ord(one)};" if one in _SPECIAL else one for one in clean)


def check_definition(definition: object, *, awaited: bool = False) -> None:
    """Refuse what is no definition, and, unless they are awaited, functions that are async."""
    if not isinstance(definition, MachineDefinition):
        raise InvalidInputError("Machine takes a MachineDefinition")
    parts: list[tuple[str, Any]] = [("state", one) for one in definition.states.values()]
    parts += [("arrow", arrow) for _, _, arrow in definition.arrows()]
    for kind, part in () if awaited else parts:
        for name in _FUNCTIONS[kind]:
            check_not_async(getattr(part, name), f"{name} of a machine")


def _refuse(texts: Iterable[str]) -> None:
    found = list(texts)
    if found:
        raise MachineDefinitionError(found[:MOST_PROBLEMS])


def _listed(of: Any, **kinds: type) -> Iterator[str]:
    """Fields that are no lists of what they have to be lists of."""
    for name, kind in kinds.items():
        given = getattr(of, name)
        if not isinstance(given, tuple | list) or not all(isinstance(one, kind) for one in given):
            yield f"{name} is a tuple of {kind.__name__}"


def _arrows(on: Mapping[str, MachineArrow | str]) -> dict[str, MachineArrow | str]:
    return {
        trigger: MachineArrow(one) if isinstance(one, str) else one for trigger, one in on.items()
    }


def _shape(machine: MachineDefinition) -> list[str]:
    """What is of another type than it has to be: only Python's own checks come before."""
    if found := problems(dict[str, Any], machine.states, "states"):
        return found
    states = machine.states.items()
    found += [
        f"{name}: a state is made with MachineState(...)"
        for name, one in states
        if not isinstance(one, MachineState)
    ]
    on = [("on", machine.on)]
    on += [(f"{name}.on", one.on) for name, one in states if isinstance(one, MachineState)]
    for place, arrows in on:
        found += problems(dict[str, MachineArrow | str], arrows, place)
    if len(machine.states) > MOST_STATES:
        found.append(f"there are more than {MOST_STATES} states")
    return found


def _problems(machine: MachineDefinition) -> Iterator[str]:
    if machine.initial not in machine:
        yield f"the initial state {machine.initial!r} is not among the states"
    for name, state in machine.states.items():
        yield from refusal_of(check_text, name, "the name of a state", 128, least=1)
        yield from (f"{name}: {text}" for text in _bad_state(machine, state))
        for trigger, arrow in state.on.items():
            assert isinstance(arrow, MachineArrow)
            if arrow.to == name and not arrow.again:
                yield f"{name} {trigger}: leads back to its own state; say again=True if it may"
    for place, on in [("on", machine.on), *((n, s.on) for n, s in machine.states.items())]:
        for trigger, arrow in on.items():
            assert isinstance(arrow, MachineArrow)
            yield from refusal_of(check_text, trigger, "a trigger", 128, least=1)
            yield from (f"{place} {trigger}: {text}" for text in _bad_arrow(machine, arrow))
    for origin, trigger, arrow in machine.arrows():
        target = machine.states.get(arrow.to)
        if target is not None and target.only_from and origin not in target.only_from:
            alone = ", ".join(target.only_from)
            yield f"{origin} {trigger}: {arrow.to!r} is entered from {alone} only"
    if machine.initial in machine:
        reached, new = {machine.initial}, {machine.initial}
        while new:
            new = {arrow.to for origin, _, arrow in machine.arrows() if origin in new} - reached
            reached |= new
        unreached = [name for name in machine.states if name not in reached]
        yield from (f"nothing leads to the state {name!r}" for name in unreached)


def _bad_state(machine: MachineDefinition, state: MachineState) -> Iterator[str]:
    yield from (text for one in (*state.accepts, *state.rules) if (text := one.wrong()))
    unknown = [one for one in state.only_from if one not in machine]
    yield from (f"only_from names {one!r}, which is no state" for one in unknown)
    yield from empty_names(state.data)
    yield from _uncallable(state, "state")
    if is_async(state.check):
        yield "check is a plain function, not an `async def`: it only looks at the data"


def _bad_arrow(machine: MachineDefinition, arrow: MachineArrow) -> Iterator[str]:
    if arrow.to not in machine:
        yield f"leads to {arrow.to!r}, which is no state"
    if arrow.recover not in RECOVERIES:
        yield f"recover is {', '.join(RECOVERIES)}, not {arrow.recover!r}"
    if arrow.recover == "complete" and arrow.work is None:
        yield "recover is complete, and no work is declared that could be done again"
    yield from (text for one in arrow.accepts if (text := one.wrong()))
    yield from _uncallable(arrow, "arrow")


def _uncallable(of: Any, kind: str) -> Iterator[str]:
    for name in _FUNCTIONS[kind]:
        given = getattr(of, name)
        if given is not None and not callable(given):
            yield f"{name} is a function"
