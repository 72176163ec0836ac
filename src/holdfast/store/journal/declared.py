"""What the owner of a scope has declared: rules that every writer of the scope follows.

A declaration is state of the scope, the key `$declared/KIND/NAME` with plain data, so it is
journalled, sealed, forked, verified and erased like any other, every process learns of it by
following the entries, and a view of the past knows what was declared then. A restore leaves
declarations as they are.

Each kind of declaration lives in a file of its own, in `rules`; who opens stores names them all
(`KINDS`). What is declared is parsed when it is first asked for and again when an entry has touched
it; a scope without declarations pays for the look alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, TypeVar

from holdfast.errors import (
    DamagedIndexError,
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    NewerFormatError,
    StateIntegrityError,
)
from holdfast.store.names.scope import Scope, check_key

PREFIX = "$declared/"
OWN = (PREFIX, "$lookup/", "$terms/")
"""What no declaration is about: declarations themselves, and what follows from them."""
MOST_BYTES = 1024
"""Of one declaration, encoded: so short that its value is always a single atom."""


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

    def beside(self, others: Sequence[Declaration]) -> Self:
        """The same, where what else is declared matters to it."""
        return self

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Self:
        """The opposite of `data`."""
        return cls(**data)


@dataclass(frozen=True)
class PrefixDeclaration(Declaration):
    """A declaration about all keys that begin with a text."""

    prefix: str

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

    @property
    def name(self) -> str:
        """The prefix, and a star for what follows it."""
        return self.prefix + "*"


_Kind = TypeVar("_Kind", bound=Declaration)


class Declared:
    """All that is declared of a scope at one moment."""

    __slots__ = ("_kinds", "_prefixes", "all")

    def __init__(self, found: Sequence[Declaration] = ()) -> None:
        self.all = tuple([one.beside(found) for one in found])
        self._kinds: dict[type[Declaration], tuple[Any, ...]] = {}
        for one in self.all:
            self._kinds[type(one)] = (*self._kinds.get(type(one), ()), one)
        self._prefixes: dict[type[Declaration], tuple[str, ...]] = {}
        for kind, some in self._kinds.items():
            if issubclass(kind, PrefixDeclaration):
                self._prefixes[kind] = tuple(one.prefix for one in some)

    def __bool__(self) -> bool:
        return bool(self.all)

    def of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        """The declarations of one kind, in the order of their keys."""
        return self._kinds.get(kind, ())

    def prefixes(self, kind: type[PrefixDeclaration]) -> tuple[str, ...]:
        """The prefixes that declarations of one kind are about."""
        return self._prefixes.get(kind, ())


NOTHING = Declared()
KINDS: dict[str, type[Declaration]] = {}
"""The kinds of declarations that there are; they are made from what stands here."""


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
    kind = KINDS.get(key[len(PREFIX) :].partition("/")[0])
    if kind is None or type(data) is not dict:
        raise NewerFormatError(
            f"{scope}: {key!r} declares something that this version does not know; "
            "use the newest version of Holdfast"
        )
    try:
        return kind.of_data(data)
    except (HoldfastError, TypeError, ValueError):
        raise unreadable from None
