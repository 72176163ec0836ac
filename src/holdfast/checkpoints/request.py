"""What can be asked of checkpoints, as data that is checked whole: all that is wrong is listed.

What is said of a checkpoint besides its name, type, tags and description stands in its metadata,
under the names of `OWN`; only what was given is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, TypeVar

from holdfast.checkpoints.policy.policy import PRIORITIES
from holdfast.errors import CheckpointValidationError, InvalidInputError, RestoreValidationError
from holdfast.store.names.arguments import (
    check_filters,
    check_flag,
    check_function,
    check_limit,
    check_moment,
    check_text,
    listed,
)
from holdfast.store.names.items import TYPES
from holdfast.store.names.scope import Scope, check_key

VERIFY = ("full", "references", "none")
DEPENDENCIES = ("exist", "unchanged", "ignore")
KEEP = ("max_age", "max_count", "min_count")
"""What the retention of one checkpoint can say: seconds, and numbers of its type."""
OWN = frozenset(
    (
        "trigger",
        "priority",
        "retention",
        "depends",
        "operation",
        "on_error",
        "group",
        "releases",
        "outcome",
        "restores",
        "set_aside",
    )
)
"""Names in the metadata of a checkpoint that are written here."""
_LONGEST = 256
_RESTS = "a state rests on states, checkpoints or entries"
_FROM = "the source is a state, or a scope as in 'agent:7'"


@dataclass(frozen=True)
class CheckpointRequest:
    """A checkpoint that is asked for."""

    name: str = ""
    type: str = "manual"
    trigger: str = ""
    """The event that it is made for."""
    tags: Sequence[str] = ()
    description: str = ""
    priority: str = "medium"
    """low, medium, high or critical"""
    retention: Mapping[str, Any] | None = None
    """max_age (seconds), max_count, min_count; what is left out follows from the type."""
    depends_on: Sequence[Any] = ()
    """States (or the names of their scopes), checkpoints or entries of other scopes that this state
    rests on, as they are now."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sync: bool = False
    """Whether it is brought to the peers, by the function that `Checkpoints` was given for it."""

    def __post_init__(self) -> None:
        _take(self, "tags", "depends_on")

    def problems(self) -> list[str]:
        """All that is wrong with it; empty if it can be used."""
        return _found(
            lambda: check_flag(self.sync, "sync"),
            lambda: one_of(self.type, TYPES, "a checkpoint is"),
            lambda: one_of(self.priority, PRIORITIES, "its priority is"),
            lambda: check_text(self.name, "the name of a checkpoint", _LONGEST),
            lambda: check_text(self.trigger, "the trigger of a checkpoint", _LONGEST),
            lambda: check_text(self.description, "the description of a checkpoint", 64 * 1024),
            *_each(self.tags, "tags", lambda tag: check_text(tag, "a tag", _LONGEST, least=1)),
            *_each(self.depends_on, "depends_on", lambda one: _check_place(one, _RESTS)),
            *_given(self.retention, _check_retention),
            lambda: _check_metadata(self.metadata),
        )

    def check(self) -> None:
        """Refuse what cannot be used, with all that is wrong."""
        if problems := self.problems():
            raise CheckpointValidationError(problems)

    def own(self) -> dict[str, Any]:
        """What the metadata says of it besides the caller's own."""
        priority = self.priority if self.priority != "medium" else ""
        said = {"trigger": self.trigger, "priority": priority}
        return {k: v for k, v in {**said, "retention": dict(self.retention or {})}.items() if v}


@dataclass(frozen=True)
class Locator:
    """Which checkpoint is meant: the newest of a timeline that fits all that is given."""

    id: str | None = None
    """TIMELINE@NUMBER; of any timeline of the scope"""
    name: str | None = None
    type: str | None = None
    tag: str | None = None
    trigger: str | None = None
    at: datetime | None = None
    """The last one that is not later than this time."""
    before: Any = None
    """The last one before this point: an entry's number, a time, a checkpoint or its name."""
    valid: bool = False
    """Only one that is whole: newer ones that are damaged are passed over."""

    def problems(self) -> list[str]:
        """All that is wrong with it; empty if it can be used."""
        return _found(
            lambda: check_filters(
                id=self.id, name=self.name, type=self.type, tag=self.tag, trigger=self.trigger
            ),
            *_given(self.type, lambda type_: one_of(type_, TYPES, "a checkpoint is")),
            *_given(self.at, lambda time: check_moment(time, "at")),
            *_given(
                self.before if isinstance(self.before, datetime) else None,
                lambda time: check_moment(time, "before"),
            ),
            lambda: check_flag(self.valid, "valid"),
        )

    def check(self) -> None:
        """Refuse what cannot be used, with all that is wrong."""
        if problems := self.problems():
            raise InvalidInputError(", ".join(problems))

    @property
    def empty(self) -> bool:
        """Whether it says nothing."""
        return self == Locator()

    def __str__(self) -> str:
        given = ((one.name, getattr(self, one.name)) for one in fields(self))
        said = {name: getattr(value, "id", value) for name, value in given if value}
        return ", ".join(f"{name} {value}" for name, value in said.items()) or "any"


@dataclass(frozen=True)
class RestoreRequest:
    """A restore that is asked for: to a point, or to the checkpoint that a locator finds."""

    point: Any = None
    where: Locator = field(default_factory=Locator)
    keys: Sequence[str] | None = None
    """Only these keys go back; with `prefixes`, those too. Without both, all do; lists of none are
    refused."""
    prefixes: Sequence[str] | None = None
    source: Any = None
    """The state, or the scope, that the point belongs to; without it, the one restored."""
    verify: str = "full"
    dependencies: str = "exist"
    """What must hold for what the checkpoint rests on: exist, unchanged, or ignore."""
    dry_run: bool = False
    if_head: int | None = None
    past_damage: bool = False
    reason: str | None = None
    validate: Callable[[Any], Any] | None = None
    """Asked about the restored state: what is not None or True puts the state before back."""

    def __post_init__(self) -> None:
        _take(self, "keys", "prefixes")

    def problems(self) -> list[str]:
        """All that is wrong with it; empty if it can be used."""
        return [
            *self.where.problems(),
            *self._together(),
            *_found(
                lambda: one_of(self.verify, VERIFY, "verify is"),
                lambda: one_of(self.dependencies, DEPENDENCIES, "dependencies is"),
                *_each(self.keys, "keys", lambda key: check_key(key, owner=True)),
                *_each(self.prefixes, "prefixes", _check_prefix),
                *_given(self.source, lambda one: _check_place(one, _FROM)),
                lambda: check_flag(self.dry_run, "dry_run"),
                lambda: check_flag(self.past_damage, "past_damage"),
                lambda: check_limit(self.if_head, "if_head"),
                *_given(self.reason, lambda reason: check_text(reason, "the reason")),
                *_given(self.validate, lambda function: check_function(function, "validate")),
            ),
        ]

    def check(self) -> None:
        """Refuse what cannot be used, with all that is wrong."""
        if problems := self.problems():
            raise RestoreValidationError(problems)

    @property
    def partial(self) -> bool:
        """Whether only some keys go back."""
        return self.keys is not None or self.prefixes is not None

    def _together(self) -> Iterator[str]:
        """What is wrong with fields beside each other."""
        if (self.point is None) == self.where.empty:
            yield "give a point, or say which checkpoint: one of the two"
        if self.partial and not self.keys and not self.prefixes:
            yield "keys and prefixes name nothing to restore; without both, the whole state is"
        if self.past_damage and (self.partial or self.source is not None):
            yield "past_damage is for a restore of the whole state from itself"
        if self.dry_run is True and self.validate is not None:
            yield (
                "a dry run restores nothing to validate; simulate(validate, …) runs it on what a "
                "restore would leave"
            )


def _take(request: Any, *names: str) -> None:
    """Take what some fields of a request give one by one, once: a generator has it only once."""
    for name in names:
        with suppress(InvalidInputError):  # what is nothing of the kind is told with the rest
            object.__setattr__(request, name, tuple(listed(getattr(request, name), name)))


def _found(*checks: Callable[[], Any]) -> list[str]:
    """What the checks refuse."""
    problems = []
    for check in checks:
        try:
            check()
        except InvalidInputError as error:
            problems.append(str(error))
    return problems


def _each(
    items: Iterable[Any] | None, what: str, check: Callable[[Any], Any]
) -> list[Callable[[], Any]]:
    if items is None:
        return []
    try:
        return [lambda item=item: check(item) for item in listed(items, what)]  # type: ignore[misc]
    except InvalidInputError:
        return [lambda: listed(items, what)]


def _given(value: Any, check: Callable[[Any], Any]) -> list[Callable[[], Any]]:
    return [] if value is None else [lambda: check(value)]


def one_of(value: object, known: Sequence[str], what: str) -> None:
    """Refuse what is none of some words."""
    if value not in known:
        shown = repr(value) if isinstance(value, str) else type(value).__name__
        raise InvalidInputError(f"{what} {', '.join(known)}, not {shown}")


def _check_prefix(prefix: object) -> None:
    if not isinstance(prefix, str) or not prefix:
        raise InvalidInputError("a prefix is the beginning of keys, text that is not empty")
    check_key(prefix + "*", owner=True)


def _check_place(what: object, said: str) -> None:
    """Refuse what is no state, nor anything else that says of which scope it is."""
    if isinstance(what, str):
        Scope.parse(what)
    # What is made from a state, as `AgentState`, has its handle, and stands for it.
    elif not isinstance(what, Scope) and not hasattr(getattr(what, "_handle", what), "scope"):
        raise InvalidInputError(f"{said}, not a {type(what).__name__}")


def _check_metadata(metadata: object) -> None:
    if not isinstance(metadata, Mapping):
        raise InvalidInputError("the metadata of a checkpoint is a mapping")
    taken = sorted(str(name) for name in metadata if name in OWN)
    if taken:
        raise InvalidInputError(f"metadata cannot hold {', '.join(taken)}: those are fields")


def _check_retention(said: object) -> None:
    if not isinstance(said, Mapping) or not set(said) <= set(KEEP):
        raise InvalidInputError(f"retention is a mapping of {', '.join(KEEP)}")
    wrong = []
    for name, value in said.items():
        least = 0 if name == "min_count" else 1
        kinds = (int, float) if name == "max_age" else (int,)
        if type(value) not in kinds or not value >= least:
            unit = "seconds" if name == "max_age" else "a number"
            wrong.append(f"retention's {name} is {unit} of {least} or more")
    if wrong:
        raise InvalidInputError("; ".join(wrong))


# ---- request arguments --------------------------------------------------------------------------
# Requests from the arguments of a call: what both faces share.


_T = TypeVar("_T")
_WHERE = {one.name for one in fields(Locator)}


def checkpoint_request(request: Any, given: dict[str, Any]) -> CheckpointRequest:
    """A request from itself, or from a name and fields."""
    return _made(CheckpointRequest, request, given, CheckpointValidationError)


def locator(given: dict[str, Any]) -> Locator:
    """A locator from its fields."""
    return _made(Locator, given.pop("id", None), given, lambda wrong: InvalidInputError(*wrong))


def restore_request(request: Any, given: dict[str, Any]) -> RestoreRequest:
    """A request from itself, or from a point and fields, those of a locator among them."""
    if where := {name: given.pop(name) for name in given.keys() & _WHERE}:
        given["where"] = Locator(**where)
    return _made(RestoreRequest, request, given, RestoreValidationError)


def _made(
    kind: type[_T], first: Any, given: dict[str, Any], refused: Callable[[Any], Exception]
) -> _T:
    """What is given whole, or is made of its first field and others."""
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    if unknown := sorted(given.keys() - set(known)):
        raise refused([f"there is no {', '.join(unknown)} here; there is {', '.join(known)}"])
    if isinstance(first, kind) and given:
        raise refused(["give a request, or its fields: one of the two"])
    return first if isinstance(first, kind) else kind(first, **given)  # type: ignore[call-arg]
