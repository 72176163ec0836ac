"""What the owner of a scope has declared: rules that every writer of the scope follows.

A declaration is state of the scope, the key `$declared/KIND/NAME` with plain data, so it is
journalled, sealed, forked, verified and erased like any other, every process learns of it by
following the entries, and a view of the past knows what was declared then. A restore leaves
declarations as they are.

Each kind of declaration lives in a file of its own, in `rules`; who opens stores names them all
(`KINDS`). What is declared is parsed when it is first asked for and again when an entry has touched
it. What follows from it for writes to a key is one `Plan`, made once for each key; a write that
nothing is declared of pays for one look.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from holdfast.errors import (
    DamagedIndexError,
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    NewerFormatError,
    StateIntegrityError,
)
from holdfast.exports import RULES
from holdfast.store.names.scope import RESERVED, Scope, check_key

PREFIX = "$declared/"
OWN = (PREFIX, "$lookup/", "$terms/")
"""What no declaration is about: declarations themselves, and what follows from them."""
MOST_BYTES = 1024
"""Of one declaration, encoded: so short that its value is always a single atom."""
PLANS = 4096
"""Keys of a scope whose plans are remembered."""


class Plan(NamedTuple):
    """What is declared that concerns writes to one key."""

    check: CheckingDeclaration | None = None
    class_: str = ""
    lookups: tuple[Any, ...] = ()
    ephemeral: bool = False


_NO_PLAN = Plan()


class Declaration(ABC):
    """Base of what can be declared. Kinds are frozen dataclasses whose making checks them.

    Within a scope there is one declaration of each kind and name; declaring another in its place
    replaces it.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def name(self) -> str:
        """What tells it from others of its kind; the end of its key."""

    @property
    def key(self) -> str:
        """Where it is kept."""
        return f"{PREFIX}{self.kind}/{self.name}"

    def data(self) -> dict[str, Any]:
        """What is kept: plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def along(self) -> dict[str, Any]:
        """Keys and values that are written together with it, where they are not there."""
        return {}

    def check_fit(
        self, read: Callable[[str], Any], known: Callable[[], Sequence[Declaration]]
    ) -> bool:
        """Refuse what does not fit what is declared, and stored, already; `read` gives values.

        True if it was declared before and a later one has taken its place, which stays.
        """
        return False

    def beside(self, others: Sequence[Declaration]) -> Self:
        """The same, where what else is declared matters to it."""
        return self

    def onto(self, plan: Plan, key: str) -> Plan:
        """The plan for a key with what this adds; of those of one kind, longer prefixes come
        later."""
        return plan

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Self:
        """The opposite of `data`."""
        return cls(**data)


@dataclass(frozen=True)
class PrefixDeclaration(Declaration):
    """A declaration about all keys that begin with a text."""

    prefix: str
    not_empty: ClassVar[str] = ""
    """Why the prefix is not empty; empty if it may be."""

    def __post_init__(self) -> None:
        if not isinstance(self.prefix, str):
            raise InvalidInputError(f"{type(self).__name__} takes the beginning of keys, a text")
        # Keys do not end with a slash, which prefixes mostly do: what stands for "all that
        # follows" makes a key of them, to the same rules.
        object.__setattr__(self, "prefix", check_key(self.prefix + "*", owner=True)[:-1])
        check_key(self.key, owner=True)
        begins = self.prefix and any(own.startswith(self.prefix) for own in OWN)
        if begins or self.prefix.startswith(OWN):
            raise InvalidInputError(
                f"{type(self).__name__} takes a prefix that leaves {', '.join(OWN)} alone, which "
                f"{self.prefix!r} does not"
            )
        if self.not_empty and not self.prefix:
            raise InvalidInputError(
                f"{type(self).__name__} takes a prefix that is not empty: {self.not_empty}"
            )

    @property
    def name(self) -> str:
        """The prefix, and a star for what follows it."""
        return self.prefix + "*"


@dataclass(frozen=True)
class CheckingDeclaration(PrefixDeclaration):
    """A declaration that looks at values before they are written, and says of which version they
    are; read again later, an older one may be led to what it is now."""

    def onto(self, plan: Plan, key: str) -> Plan:
        """Values that parts of Holdfast keep are theirs."""
        mine = key.startswith(self.prefix) and key[:1] != RESERVED
        return plan._replace(check=self) if mine else plan

    def admit(
        self, scope: Scope, key: str, value: Any, read: Callable[[str], Any], *, items: bool = False
    ) -> int:
        """Refuse a value in plain form by raising; else the version that is noted beside it.

        With `items` it is what is added to a list. `read` gives values of the scope's own keys.
        """
        return 0

    def leads(self, version: int, read: Callable[[str], Any]) -> bool:
        """Whether values of a version are led to what they are now when they are read."""
        return False

    def led(self, key: str, value: Any, version: int, read: Callable[[str], Any]) -> Any:
        """What a value of an older version is now."""
        return value


_Kind = TypeVar("_Kind", bound=Declaration)


class Declared:
    """All that is declared of a scope at one moment."""

    __slots__ = ("_kinds", "_plans", "_prefixes", "all", "checks")

    def __init__(self, found: Sequence[Declaration] = ()) -> None:
        self.all = tuple([one.beside(found) for one in found])
        self.checks = any(isinstance(one, CheckingDeclaration) for one in self.all)
        self._kinds: dict[type[Declaration], tuple[Any, ...]] = {}
        for one in self.all:
            self._kinds[type(one)] = (*self._kinds.get(type(one), ()), one)
        self._prefixes: dict[type[Declaration], tuple[str, ...]] = {}
        for kind, some in self._kinds.items():
            if issubclass(kind, PrefixDeclaration):
                self._prefixes[kind] = tuple(one.prefix for one in some)
        self._plans: dict[str, Plan | None] = {}

    def __bool__(self) -> bool:
        return bool(self.all)

    def of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        """The declarations of one kind, in the order of their keys."""
        return self._kinds.get(kind, ())

    def rule(self, key: str) -> Plan | None:
        """The plan for writes to a key; None if nothing that is declared concerns them."""
        if not self.all:
            return None
        if key not in self._plans:
            plan = _NO_PLAN
            for one in sorted(self.all, key=lambda one: len(getattr(one, "prefix", ""))):
                plan = one.onto(plan, key)
            if len(self._plans) >= PLANS:
                self._plans.clear()
            self._plans[key] = plan if plan != _NO_PLAN else None
            return plan if plan != _NO_PLAN else None  # another thread may clear it meanwhile
        return self._plans.get(key)

    def check_of(self, key: str) -> CheckingDeclaration | None:
        """What looks at values of a key; of several, the one with the longest prefix."""
        plan = self.rule(key)
        return plan.check if plan is not None else None

    def prefixes(self, kind: type[PrefixDeclaration]) -> tuple[str, ...]:
        """The prefixes that declarations of one kind are about."""
        return self._prefixes.get(kind, ())


NOTHING = Declared()
KINDS: dict[str, type[Declaration]] = {}
"""The kinds of declarations that there are; they are made from what stands here."""


def _kind(name: str) -> type[Declaration] | None:
    """A kind by its name; those of layers above are imported when they are first met."""
    if name not in KINDS and name in RULES:
        module, _, cls = RULES[name].partition(":")
        KINDS[name] = getattr(import_module(module), cls)
    return KINDS.get(name)


def parse_declared(
    scope: Scope, keys: Iterable[tuple[str, Any]], read: Callable[[Any], Any]
) -> Declared:
    """What is declared, from keys in order and what reads the value of each."""
    found = [_parse(scope, key, slot, read) for key, slot in keys]
    return Declared(found) if found else NOTHING


def _parse(scope: Scope, key: str, slot: Any, read: Callable[[Any], Any]) -> Declaration:
    unreadable = DamagedRecordError(
        f"{scope}: what {key!r} declares cannot be read; declare it again"
    )
    try:
        data = read(slot)
    except DamagedIndexError:
        raise  # the entries give it again
    except StateIntegrityError:  # of a rule that is lost nobody may go on as if there were none
        raise unreadable from None
    kind = _kind(key[len(PREFIX) :].partition("/")[0])
    if kind is None or type(data) is not dict:
        raise NewerFormatError(
            f"{scope}: {key!r} declares something that this version does not know; "
            "use the newest version of Holdfast"
        )
    try:
        return kind.of_data(data)
    except (HoldfastError, TypeError, ValueError):
        raise unreadable from None
