"""Procedures of recovery, as data that is checked whole: all that is wrong is listed.

Times are milliseconds, as in policies; in plain data also texts like "30s".
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from graphlib import CycleError, TopologicalSorter
from typing import Any

from holdfast.agents.state.checks import refusal_of
from holdfast.checkpoints.policy.policy import milliseconds
from holdfast.errors import (
    InvalidKeyError,
    ProcedureValidationError,
    UnknownStepTypeError,
)
from holdfast.store.names.arguments import check_text, read_yaml
from holdfast.store.names.scope import check_key

MOST_STEPS = 100
MOST_RETRIES = 100
LONGEST = 86_400_000.0
"""Milliseconds that a step or a procedure may be given: a day."""
STEP_TIMEOUT = 60_000.0
PROCEDURE_TIMEOUT = 300_000.0


@dataclass(frozen=True, slots=True)
class RecoveryStep:
    """One step: its type says what it does, `action` with what.

    Without `dependencies` it waits for the step before it; with an empty one, for none. A step that
    fails ends the attempt if it is `critical`; else it is recorded, and what depends on it is
    left out.
    """

    type: str
    id: str = ""
    """By default its type."""
    name: str = ""
    action: Mapping[str, Any] = field(default_factory=dict)
    validation: Mapping[str, Any] = field(default_factory=dict)
    """What its result must hold: names of fields and their values."""
    dependencies: tuple[str, ...] | None = None
    timeout: float = STEP_TIMEOUT
    critical: bool = True

    def __post_init__(self) -> None:
        _settle(self, "dependencies", "action", "validation")

    @property
    def key(self) -> str:
        """Its id, by which results and dependencies name it."""
        return self.id or self.type

    @property
    def title(self) -> str:
        """What people call it."""
        return self.name or self.key

    def texts(self, part: str) -> Iterator[str]:
        """What is wrong with its names, and with the kinds of its fields."""
        yield from _text(self.type, f"{part}: the type of a step")
        if self.id != "" or isinstance(self.type, str):
            yield from _id(self.id or self.type, f"{part}: the id of a step")
        yield from _text(self.name, f"{part}: the name of a step", 0)
        for name in ("action", "validation"):
            if not isinstance(getattr(self, name), Mapping):
                yield f"{part}: {name} is a mapping"
        needed = self.dependencies
        if needed is not None and not isinstance(needed, tuple):
            yield f"{part}: dependencies is a list of ids"
        elif not all(isinstance(one, str) for one in needed or ()):
            yield f"{part}: dependencies are ids of steps, which are texts"

    def data(self) -> dict[str, Any]:
        """Plain data, which `Procedure.of` reads."""
        found = {name: getattr(self, name) for name in ("type", "timeout", "critical")}
        for name in ("id", "name", "action", "validation"):
            if getattr(self, name):
                found[name] = getattr(self, name)
        if self.dependencies is not None:
            found["dependencies"] = list(self.dependencies)
        return found


def _settle(made: object, *names: str) -> None:
    """Lists become tuples, so that nobody changes them later, and mappings are copied."""
    for name in names:
        value = getattr(made, name)
        if isinstance(value, list):
            object.__setattr__(made, name, tuple(value))
        elif isinstance(value, Mapping):
            with suppress(Exception):  # what cannot be copied cannot be kept, and is refused later
                object.__setattr__(made, name, copy.deepcopy(dict(value)))


ROLLBACK = (RecoveryStep("restore_backup", timeout=120_000.0),)
"""How a procedure that says nothing about it is undone."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """The answer to some kinds of failure. `Recovery` checks it, and says all that is wrong."""

    id: str
    triggers: tuple[str, ...]
    """Kinds of failure that it answers; one with none is only used by its id."""
    steps: tuple[RecoveryStep, ...]
    name: str = ""
    validation: tuple[RecoveryStep, ...] = ()
    """Checks of the recovered state, after the steps: one that fails rolls the recovery back."""
    rollback: tuple[RecoveryStep, ...] = ()
    """What undoes an attempt that failed; without any, the state before it is put back."""
    timeout: float = PROCEDURE_TIMEOUT
    """For all attempts together, with the pauses between them."""
    retries: int = 0
    """Attempts after the first one."""
    backoff: float = 2000.0
    """Pause before the second attempt; it doubles with each, up to a minute."""

    def __post_init__(self) -> None:
        _settle(self, "triggers", "steps", "validation", "rollback")

    @property
    def title(self) -> str:
        """What people call it."""
        return self.name or self.id

    def parts(self) -> Iterator[tuple[str, tuple[RecoveryStep, ...]]]:
        """Its three lists of steps, with their names."""
        yield "steps", self.steps
        yield "validation", self.validation
        yield "rollback", self.rollback

    def needs(self, part: Sequence[RecoveryStep]) -> dict[str, tuple[str, ...]]:
        """For each step of a part the ids of those it waits for."""
        found: dict[str, tuple[str, ...]] = {}
        before: tuple[str, ...] = ()
        for step in part:
            found[step.key] = before if step.dependencies is None else step.dependencies
            before = (step.key,)
        return found

    def data(self) -> dict[str, Any]:
        """Plain data, which `Procedure.of` reads."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        steps = {name: [step.data() for step in part] for name, part in self.parts()}
        return {**found, "triggers": list(self.triggers), **steps}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Procedure:
        """A procedure of plain data, as in a configuration file.

        Times may be written like "30s"; a trigger is a text, or a mapping with its `type`. Without
        an id the name is taken.
        """
        if not isinstance(data, Mapping):
            raise ProcedureValidationError(["a procedure is a mapping"])
        problems: list[str] = []
        given = _fields(data, cls, "a procedure", problems)
        given = {"id": given.get("name", ""), "triggers": (), "steps": (), **given}
        if isinstance(given["triggers"], list | tuple):
            given["triggers"] = [_trigger(one, problems) for one in given["triggers"]]
        for name in ("steps", "validation", "rollback"):
            if isinstance(given.get(name), list | tuple):
                given[name] = [
                    RecoveryStep(**{"type": "", **_fields(one, RecoveryStep, "a step", problems)})
                    if isinstance(one, Mapping)
                    else one  # which is refused as no step
                    for one in given[name]
                ]
        found = cls(**given)
        if problems := problems + list(found._texts()):
            raise ProcedureValidationError(problems)
        return found

    @classmethod
    def from_yaml(cls, text: str) -> list[Procedure]:
        """The procedures of a YAML text; needs `holdfast[yaml]`.

        It is one procedure, a list of them, or a configuration that holds such a list as
        `procedures`, at whatever depth. Two of one id are refused.
        """
        found = _listed(read_yaml(text, ProcedureValidationError))
        if not found:
            raise ProcedureValidationError(["there are no procedures in it"])
        made = [cls.of(one) for one in found]
        if problems := twice("procedures", made):
            raise ProcedureValidationError(problems)
        return made

    def check(self, types: Collection[str]) -> None:
        """Refuse what cannot be used; `types` are the types of steps that there are."""
        if problems := list(self._texts()) or list(self._problems()):
            raise ProcedureValidationError(problems)
        if unknown := self.unknown(types):
            raise UnknownStepTypeError(
                f"procedure {self.id!r}: Unknown recovery step type: {', '.join(unknown)}; there "
                f"are {', '.join(sorted(types))}, and those that you register"
            )

    def unknown(self, types: Collection[str]) -> list[str]:
        """Types of its steps that are not among those given."""
        return sorted({step.type for _, part in self.parts() for step in part} - set(types))

    def _texts(self) -> Iterator[str]:
        """What is wrong with its names and lists; the rest is looked at if nothing is."""
        yield from _id(self.id, "the id of a procedure")
        yield from _text(self.name, "the name of a procedure", 0)
        if not isinstance(self.triggers, tuple):
            yield "triggers is a list"
        else:
            for trigger in self.triggers:
                yield from _text(trigger, "a trigger")
        for name, part in self.parts():
            if not isinstance(part, tuple) or not all(isinstance(s, RecoveryStep) for s in part):
                yield f"{name} is a list of steps"
                continue
            for step in part:
                yield from step.texts(name)

    def _problems(self) -> Iterator[str]:
        if not self.steps:
            yield "a procedure has at least one step"
        yield from _time(self.timeout, f"timeout of {self.id}")
        yield from _time(self.backoff, f"backoff of {self.id}", least=0)
        if type(self.retries) is not int or not 0 <= self.retries <= MOST_RETRIES:
            yield f"retries is a number from 0 to {MOST_RETRIES}"
        for name, part in self.parts():
            keys = [step.key for step in part]
            if len(part) > MOST_STEPS:
                yield f"{name}: at most {MOST_STEPS}, not {len(part)}"
            for key in sorted({key for key in keys if keys.count(key) > 1}):
                yield f"{name}: two have the id {key!r}; give them ids"
            for step in part:
                yield from _time(step.timeout, f"{name}: timeout of {step.key}")
                if type(step.critical) is not bool:
                    yield f"{name}: critical of {step.key} is True or False"
                for other in step.dependencies or ():
                    if other not in keys:
                        yield f"{name}: {step.key} depends on {other!r}, which is not there"
            try:
                TopologicalSorter(self.needs(part)).prepare()
            except CycleError as error:
                circle = " → ".join(reversed(error.args[1]))
                yield f"{name}: steps wait for each other: {circle}"


def twice(place: str, made: Sequence[Any]) -> list[str]:
    """Which ids stand for two of them: only one could be in force."""
    ids = [one.id for one in made]
    return [f"{place}: two have the id {id_!r}" for id_ in dict.fromkeys(ids) if ids.count(id_) > 1]


def _listed(data: Any) -> Sequence[Any]:
    if isinstance(data, Mapping):
        return [data] if "steps" in data else _named_procedures(data)
    return data if isinstance(data, list) else []


def _named_procedures(data: Mapping[Any, Any]) -> Sequence[Any]:
    """What stands in a document as `procedures`; its other lists are of something else."""
    if "procedures" in data:
        return _listed(data["procedures"])
    inside = (_named_procedures(part) for part in data.values() if isinstance(part, Mapping))
    return next(filter(None, inside), [])


def _text(value: object, what: str, least: int = 1) -> list[str]:
    return refusal_of(check_text, value, what, 200, least=least)


def _id(value: Any, what: str) -> list[str]:
    """What is wrong with an id: it becomes a part of keys, so their rules hold for it."""
    problems = _text(value, what)
    if not problems:
        try:
            if check_key(f"x/{value}") != f"x/{value}":
                problems = [f"{what} must be in Unicode normal form C"]
        except InvalidKeyError as error:
            problems = [f"{what} follows the rules of keys: {error}"]
    return problems


def _time(value: object, what: str, least: float = 1) -> Iterator[str]:
    if type(value) not in (int, float) or not least <= value <= LONGEST:  # type: ignore[operator]
        yield f"{what} is {least:g} to {LONGEST:.0f} milliseconds, or a text like 0.5s or 10m"


def _fields(data: Mapping[Any, Any], kind: type, what: str, problems: list[str]) -> dict[str, Any]:
    """What is said of the fields of a class, times as milliseconds; others are problems."""
    known = {one.name for one in fields(kind)}
    problems += sorted(f"{name} is no field of {what}" for name in data.keys() - known)
    times = {"timeout", "backoff"}
    return {
        name: milliseconds(value) if name in times else value
        for name, value in data.items()
        if name in known
    }


def _trigger(data: Any, problems: list[str]) -> Any:
    if not isinstance(data, Mapping):
        return data
    others = sorted(str(name) for name in data if name != "type")
    problems += [f"triggers: {name} is no field of a trigger, which has a type" for name in others]
    return data.get("type", "")


# Procedures that are there without being set.

BACKUP = RecoveryStep("backup_current", timeout=30_000.0)
LOCATE = RecoveryStep("locate_checkpoint", timeout=60_000.0)
VERIFY = RecoveryStep("verify_integrity", timeout=30_000.0)
RESTORE = RecoveryStep("restore_state", timeout=120_000.0)
VALIDATE = RecoveryStep("validate_state", timeout=60_000.0)
TRACK = RecoveryStep("update_tracking", timeout=30_000.0)
NOTIFY = RecoveryStep("notify_systems", timeout=30_000.0, critical=False)
CLEAN = RecoveryStep("cleanup", timeout=30_000.0, critical=False)
SETTLE = RecoveryStep("settle_transitions", timeout=120_000.0)
STANDARD = Procedure(
    "standard_recovery",
    ("agent_crash", "corruption_detected"),
    (BACKUP, LOCATE, VERIFY, RESTORE, VALIDATE),
    timeout=300_000.0,
    retries=3,
)
"""Exactly the steps, times and retries that its name stands for."""
_RESTORED = (BACKUP, LOCATE, VERIFY, RESTORE, VALIDATE, TRACK)
_ALL = (*_RESTORED, NOTIFY, CLEAN)
FAILED_TRANSITION = Procedure(
    "failed_transition",
    ("failed_transition",),
    (*_RESTORED, SETTLE, NOTIFY, CLEAN),  # nothing critical behind it undoes what was completed
    name="a failed transition",
    retries=3,
)
BUILT_IN = (
    STANDARD,
    Procedure(
        "damaged_state",
        (
            "state_corruption",
            "hash_mismatch",
            "signature_invalid",
            "structure_invalid",
            "data_inconsistent",
            "partial_corruption",
            "validation_failed",
        ),
        _ALL,
        name="a damaged state",
        retries=3,
    ),
    Procedure("lost_storage", ("storage_failure",), _ALL, name="storage that lost rows", retries=3),
    FAILED_TRANSITION,
    Procedure("drifted_agent", ("drift", "error_rate"), _ALL, name="drift", retries=1),
    Procedure(
        "interrupted_handover",
        ("interrupted_handover",),
        _ALL,
        name="an interrupted handover",
        retries=3,
    ),
    Procedure(
        "restart",
        ("missed_beats", "memory_leak", "network_partition", "unknown"),
        _ALL,
        name="an agent that is not heard",
        retries=3,
    ),
)
