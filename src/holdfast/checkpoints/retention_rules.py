"""Rules of retention: which checkpoints go, and what keeps them nevertheless."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.store.names.items import TYPES, Checkpoint

PRIORITIES = ("low", "medium", "high", "critical")
MADE_BY = "policy:"
"""Begins the tag of a checkpoint that a policy made; its id follows."""


@dataclass(frozen=True)
class RetentionRule:
    """When a checkpoint may go: it is over a limit, and nothing below keeps it.

    Several limits: `match="any"` takes one that is over any of them, `"all"` only one that is over
    all that are given. Without a limit nothing goes. Counts are of checkpoints of one timeline that
    share the rule: a type (with a trigger that has a rule of its own or not), or a policy.
    """

    max_age: timedelta | None = None
    max_count: int | None = None
    match: str = "any"
    min_count: int = 0
    """So many of the newest always stay."""
    min_importance: str | None = None
    """One of this priority (low, medium, high, critical) or above stays."""
    until_released: bool = False
    """Goes once it is released, whatever its age and number; a release once that is gone."""

    def __post_init__(self) -> None:
        if self.max_age is not None and (
            type(self.max_age) is not timedelta or self.max_age <= timedelta(0)
        ):
            raise InvalidInputError("max_age is a timedelta of more than 0")
        for name, least in (("max_count", 0), ("min_count", 0)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise InvalidInputError(f"{name} is a whole number of {least} or more")
        if self.match not in ("any", "all"):
            raise InvalidInputError("match is 'any' or 'all' of the limits")
        if self.min_importance is not None and self.min_importance not in PRIORITIES:
            raise InvalidInputError(f"min_importance is one of {', '.join(PRIORITIES)}")

    def over(self, number: int, age: timedelta | None) -> str:
        """Why one may go, that is the `number`-th newest: "", `count`, `age` or `count and age`.

        Without an age the clock cannot be trusted, and none counts as over.
        """
        limits: dict[str, bool] = {}
        if self.max_count is not None:
            limits["count"] = number >= self.max_count
        if self.max_age is not None:
            limits["age"] = age is not None and age > self.max_age
        if not limits or (self.match == "all" and not all(limits.values())):
            return ""
        return " and ".join(name for name, over in limits.items() if over)


DEFAULTS: Mapping[str, RetentionRule] = {
    "routine": RetentionRule(max_count=3),
    "recovery": RetentionRule(max_age=timedelta(days=7)),
    "pre_operation": RetentionRule(until_released=True),
    "post_operation": RetentionRule(until_released=True),  # when what it releases is gone
    "automatic:shutdown": RetentionRule(max_count=5),
}
"""By type; one with a trigger stands behind a colon. All other types stay, unless a checkpoint says
otherwise in its metadata (`retention`), as those of policies do."""


def rules_of(given: Mapping[str, RetentionRule] | None) -> dict[str, RetentionRule]:
    """The rules of all types: the default ones, and those given in their place."""
    found = dict(DEFAULTS)
    if given is None:
        return found
    for name, rule in given.items() if isinstance(given, Mapping) else [(given, given)]:
        if str(name).partition(":")[0] not in TYPES or not isinstance(rule, RetentionRule):
            raise InvalidInputError(
                "rules are holdfast.checkpoints.RetentionRule(...) by the type of checkpoints, "
                f"which is {', '.join(TYPES)}; a trigger may stand behind it: automatic:shutdown"
            )
        found[name] = rule
    return found


Group = tuple[str, ...]
"""What checkpoints that are counted together have in common."""


class RuleBook:
    """The rules of a scope's checkpoints: by type, and what each one says itself.

    What a checkpoint says (its metadata, or the policy that made it, as that is now) takes the
    place of a default rule. Beside a rule that was given for its type both are in force: it goes if
    either lets it go and neither keeps it.
    """

    def __init__(
        self, given: Mapping[str, RetentionRule] | None, policies: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._given = given or {}
        self._rules = rules_of(given)
        self._policies = policies
        """What policies say of their checkpoints, by their ids."""

    def of(self, one: Checkpoint) -> list[tuple[RetentionRule, Group]]:
        """The rules in force for a checkpoint, and with which others each counts it."""
        trigger = str(one.metadata.get("trigger", ""))
        name = f"{one.type}:{trigger}"
        if name not in self._rules:
            name = one.type
        policy = policy_of(one)
        own = _own(self._policies.get(policy, one.metadata.get("retention")))
        if own is None:
            return [(self._rules.get(name, RetentionRule()), (name,))]
        # Those of a policy are counted together, of whatever type they were when it made them.
        group = ("policy", policy) if policy else ("own", name, repr(own))
        found: list[tuple[RetentionRule, Group]] = [(own, group)]
        return [*found, (self._rules[name], (name,))] if name in self._given else found


def policy_of(one: Checkpoint) -> str:
    """The policy that made a checkpoint; empty if none did, whatever its metadata says."""
    id_ = str(one.metadata.get("policy", ""))
    return id_ if f"{MADE_BY}{id_}" in one.tags else ""


def _own(said: Any) -> RetentionRule | None:
    """What a checkpoint says itself; what cannot be used is no reason to remove it."""
    if not isinstance(said, Mapping):
        return None
    try:
        return RetentionRule(
            _age(said.get("max_age")),
            said.get("max_count"),
            min_count=said.get("min_count", 0),
        )
    except (InvalidInputError, TypeError, ValueError):
        return RetentionRule()


def _age(seconds: Any) -> timedelta | None:
    try:
        return timedelta(seconds=seconds) if seconds is not None else None
    except OverflowError:
        return None  # longer than anything lasts: by its age it never goes


def importance(one: Checkpoint) -> int:
    """The rank of a checkpoint's priority."""
    said = one.metadata.get("priority", "medium")
    return PRIORITIES.index(said) if said in PRIORITIES else 1
