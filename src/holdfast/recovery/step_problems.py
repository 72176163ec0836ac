"""What may be wrong with the steps of a procedure, so far as they are of types that are there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holdfast.recovery.context import StepFunction
from holdfast.recovery.procedure import Procedure
from holdfast.recovery.steps import STEPS

LOCATED = frozenset(("verify_integrity", "restore_state"))
"""Types that rest on what locate_checkpoint found."""
_FIELDS = {
    "backup_current": ("budget",),
    "locate_checkpoint": ("strategies",),
    "validate_state": ("keys",),
    "notify_systems": ("message",),
}
"""What the actions of steps take that are there without being registered."""


def action_problems(
    procedure: Procedure, types: Mapping[str, StepFunction], strategies: Collection[str]
) -> Iterator[str]:
    """What is wrong with the actions of the steps that are there without being registered, and
    with their order."""
    yield from _order_problems(procedure, types)
    for name, part in procedure.parts():
        for step in part:
            if types.get(step.type) is not STEPS.get(step.type):
                continue  # the user's own says itself what it takes
            taken = _FIELDS.get(step.type, ())
            for other in sorted(str(one) for one in step.action.keys() - set(taken)):
                takes = f"it takes {', '.join(taken)}" if taken else "it takes nothing"
                yield f"{name}: {step.key}: {other} is no field of its action: {takes}"
            for field, problem in (
                ("strategies", _strategies_problem),
                ("keys", _keys_problem),
                ("budget", _budget_problem),
                ("message", _message_problem),
            ):
                wrong = problem(step.action[field], strategies) if field in step.action else ""
                if wrong:
                    yield f"{name}: {step.key}: {field} {wrong}"


def _order_problems(procedure: Procedure, types: Mapping[str, StepFunction]) -> Iterator[str]:
    """Steps that rest on a state that was located, and do not wait for that."""
    found = {step.key for step in procedure.steps if step.type == "locate_checkpoint"}
    for name, part in procedure.parts():
        needs = procedure.needs(part)
        for step in part:
            if step.type not in LOCATED or types.get(step.type) is not STEPS.get(step.type):
                continue
            before = {one.key for one in procedure.steps} if name != "steps" else set[str]()
            waiting = [step.key] if name == "steps" else []
            while waiting:
                more = set(needs.get(waiting.pop(), ())) - before
                before |= more
                waiting += more
            if not before & found:
                yield f"{name}: {step.key} rests on a step of type locate_checkpoint before it"


def _strategies_problem(given: Any, known: Collection[str]) -> str:
    if not isinstance(given, list | tuple) or not given:
        return "is a list of names of strategies"
    unknown = [name for name in given if not isinstance(name, str) or name not in known]
    names = ", ".join(map(repr, unknown))
    return f"has no strategy called {names}; there are {', '.join(known)}" if unknown else ""


def _keys_problem(given: Any, known: Collection[str]) -> str:
    del known
    good = isinstance(given, list | tuple) and all(isinstance(key, str) for key in given)
    return "" if good else "is a list of keys"


def _budget_problem(given: Any, known: Collection[str]) -> str:
    del known
    good = type(given) in (int, float) and given >= 0
    return "" if good else "is a number of seconds"


def _message_problem(given: Any, known: Collection[str]) -> str:
    del known
    return "" if isinstance(given, str) else "is a text"
