"""Owned prefixes: what becomes of a feature's keys when states are restored, merged or copied.

A feature that keeps records in scopes declares once which keys are its own, and by which rules they
go back, come together and are left alone. The store reads this table, and knows no feature:

    TODOS = Owned("todos/", restore=Owned.STAY, merge=Owned.UNION)

A declaration is in the table from then on; another one of the same keys is refused. Parts of a
prefix that have other rules are made from it, and have its rules where they say nothing else:

    PLANS = Owned("plans/*/")                   # `*` stands for one part of a key, here a name
    LOG = PLANS.part("log/", restore=Owned.STAY, revert=Owned.NEVER, why="it is a log")

Features of Holdfast declare in light modules, whose names are known (`OWNERS`): they are imported
when the table is first asked, so that it is complete in every process. A feature of a user's own is
in the table once its module is imported; that its records stay in a restore is told to the scope
with the first of them (`Sticky`), so that every process keeps to it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, ClassVar

from holdfast.errors import InvalidInputError
from holdfast.exports import OWNERS
from holdfast.store.journal.declared import OWN
from holdfast.store.names.scope import KEY_LENGTH, Scope, check_key

StandIn = Callable[[Any, Any, str], Any]
"""From a handle, the older state (a timeline) that a damaged key is taken from, and the key: the
operation that is written for it; None if what it held there will do."""


@dataclass(frozen=True, kw_only=True)
class Owned:
    """Keys that one feature owns, and what becomes of them.

    `prefix` ends with a slash; without one it is a single key.
    """

    # Of `restore`: the keys go back with the state; or they stay as they are, which the scope is
    # told with the first record; or they stay whatever the scope says.
    BACK: ClassVar[str] = "back"
    STAY: ClassVar[str] = "stay"
    ALWAYS: ClassVar[str] = "always"
    # Of `merge`: part by part, as any other value; or records that are not known here come along,
    # and those that are known stay as they are; or a key comes from one side as it is, and what
    # comes along with it from the same side.
    THREE_WAY: ClassVar[str] = "three-way"
    UNION: ClassVar[str] = "union"
    WHOLE: ClassVar[str] = "whole"
    # Of `revert`, beside BACK: not at all; or only if what was written to other scopes with it is
    # undone, too; or only what a record says, while whether it is there is left as it is.
    NEVER: ClassVar[str] = "never"
    TOGETHER: ClassVar[str] = "together"
    VALUE: ClassVar[str] = "value"
    # Of `copy`: the keys come with any copy of the state; or with one of the same scope alone; or
    # with none; or with any, also into a store that the scope moves to, where they would stay.
    ANYWHERE: ClassVar[str] = "anywhere"
    SCOPE: ClassVar[str] = "scope"
    NOWHERE: ClassVar[str] = "nowhere"
    MOVES: ClassVar[str] = "moves"

    prefix: str = field(kw_only=False)
    restore: str = BACK
    merge: str = THREE_WAY
    """`UNION` also counts when the state of another timeline is taken over whole: what happened
    there has happened."""
    phases: tuple[str, ...] = ("",)
    """Of `UNION`: how keys go on as a record moves from phase to phase; the rest of a key says
    which record it is. One that is known here in a later phase does not come back to an earlier."""
    along: str = ""
    """How the key begins that comes along with one of these, from the same state."""
    revert: str = BACK
    why: str = ""
    """What is said of a key that no revert takes back."""
    copy: str = ANYWHERE
    signal: str = ""
    """A key that is written again, as it is, where only some of these came from another state."""
    unreadable: StandIn | None = None
    """What stands for a record that cannot be read any more, where nothing was known of it before
    does not mean that it has not happened."""
    needs: bool = False
    """Whether values are numbers of entries of main from which on the state needs its past."""
    marks: bool = False
    """Whether keys mark checkpoints that stay: a kind, a slash, and the id of the checkpoint."""
    beside: bool = False
    """Whether they are kept beside each scope, in one of its own that is erased with it
    (`scope_beside`): that scope may be damaged, and they may tell of its content."""
    named: bool = False
    """Whether it is users who give the rest of the names, which may tell that values are secret."""
    whole: Owned | None = None
    """What it is a part of."""

    def __post_init__(self) -> None:
        _check(self)
        TABLE.add(self)

    def part(self, rest: str, **rules: Any) -> Owned:
        """Some of these keys, by how they go on: with the same rules but for those that are given.

        A part that needs its own is made before the table is asked, so with the whole.
        """
        return replace(self, prefix=self.prefix + rest, whole=self, **rules)

    def of(self, key: str) -> str:
        """The prefix that a key of these has: with a name for the star."""
        return self._split(key)[0]

    def id(self, key: str) -> str:
        """What a key of these has behind the prefix."""
        return self._split(key)[1]

    def sticky(self, key: str) -> str:
        """How keys begin that restores leave alone with this one; empty if they do not."""
        if self.restore != self.STAY:
            return ""
        return self.whole.sticky(key) or self.of(key) if self.whole is not None else self.of(key)

    def scope_beside(self, scope: Scope) -> Scope:
        """The scope that keeps these beside another one."""
        name = f"{self.prefix}{scope}"
        if len(name) > KEY_LENGTH:
            name = self.prefix + hashlib.sha256(str(scope).encode()).hexdigest()
        return Scope("custom", name)

    def phase(self, key: str) -> int:
        """In which phase the record of a key is, by its place in `phases`."""
        rest = self.id(key)
        return max((at for at, one in enumerate(self.phases) if rest.startswith(one)), default=0)

    def in_phase(self, key: str, phase: int) -> str:
        """The key of the same record in another phase."""
        prefix, rest = self._split(key)
        return prefix + self.phases[phase] + rest.removeprefix(self.phases[self.phase(key)])

    def _split(self, key: str) -> tuple[str, str]:
        before, star, after = self.prefix.partition("*")
        if star:
            before += key[len(before) :].partition("/")[0] + after
        return before, key[len(before) :]

    def __str__(self) -> str:
        return self.prefix


_CHOICES = {
    "restore": (Owned.BACK, Owned.STAY, Owned.ALWAYS),
    "merge": (Owned.THREE_WAY, Owned.UNION, Owned.WHOLE),
    "revert": (Owned.BACK, Owned.NEVER, Owned.TOGETHER, Owned.VALUE),
    "copy": (Owned.ANYWHERE, Owned.SCOPE, Owned.NOWHERE, Owned.MOVES),
}
_FORM = re.compile(r"[^*]+(?:(?<=/)\*/[^*]*)?")


def _check(owned: Owned) -> None:
    """Refuse what cannot be meant."""
    if not isinstance(owned.prefix, str) or not _FORM.fullmatch(owned.prefix):
        raise InvalidInputError("Owned takes how keys begin, such as 'todos/' or 'plans/*/notes/'")
    check_key(owned.prefix + "x", owner=True)
    if owned.prefix.startswith(OWN):
        raise InvalidInputError(f"{owned.prefix!r}: {', '.join(OWN)} are the store's own")
    for name, known in _CHOICES.items():
        if getattr(owned, name) not in known:
            raise InvalidInputError(f"{owned}: {name} is {', '.join(known)}")
    if (owned.revert != Owned.BACK) != bool(owned.why):
        raise InvalidInputError(f"{owned}: why= says why a revert leaves keys, and only that")
    usual = owned.restore != Owned.ALWAYS and owned.copy == Owned.ANYWHERE
    more = owned.merge == Owned.UNION or owned.needs or owned.marks or owned.beside
    if "*" in owned.prefix and (more or not usual):
        raise InvalidInputError(f"{owned}: such rules are for a prefix without a star")


# ---- the table ----------------------------------------------------------------------------------


class Table:
    """All declarations of this process, and what is asked of them together."""

    def __init__(self) -> None:
        self.entries: dict[str, Owned] = {}
        self._lock = threading.RLock()  # modules are imported, and declare, in several threads
        self._full = False
        self._index: Index | None = None

    def add(self, owned: Owned) -> None:
        """Take up a declaration; refused if others are of some of the same keys."""
        with self._lock:
            known = self.entries.get(owned.prefix)
            for one in self.entries.values() if known is None else [known]:
                if one != owned and _overlaps(one, owned):
                    raise InvalidInputError(
                        f"the keys {owned} are declared already, by Owned({one.prefix!r}): a "
                        "feature has keys of its own, and declares them once"
                    )
            self.entries[owned.prefix] = owned
            self.forget()

    def forget(self) -> None:
        """Let what was made of the entries be made again."""
        self._index = None

    @property
    def index(self) -> Index:
        """All entries, for questions; those of Holdfast are imported for the first one."""
        found = self._index
        if found is not None:
            return found
        if not self._full:
            # Without the lock: another thread that is just importing one of these waits for it, to
            # add what the module declares, while this one would wait for the module.
            for name in OWNERS:
                import_module(name)
            self._full = True
        with self._lock:  # what is added meanwhile is in it, or forgets it
            found = self._index = Index(list(self.entries.values()))
        return found


def _overlaps(one: Owned, other: Owned) -> bool:
    """Whether two declarations are of the same keys, and not parts of one whole."""
    if one.prefix == other.prefix:
        return True
    ends = [(text.prefix.partition("*")[0], _root(text)) for text in (one, other)]
    (a, first), (b, second) = sorted(ends, key=lambda end: len(end[0]))
    return first != second and b.startswith(a) and (a.endswith("/") or a == b)


def _root(one: Owned) -> Owned:
    return _root(one.whole) if one.whole is not None else one


class Index:
    """The entries of the table, in the forms that they are asked for."""

    def __init__(self, entries: list[Owned]) -> None:
        self.entries = sorted(entries, key=lambda one: len(one.prefix), reverse=True)
        self._pattern = _pattern(one.prefix for one in self.entries)
        led = [one for one in self.entries if one.along]
        self._led = led
        self._first = {one[0] for one in (*(e.prefix for e in entries), *(e.along for e in led))}
        """How keys begin at all that are owned, or come along: most are told by that."""
        self._leaders = _pattern(one.along for one in led)
        self.sticky = lru_cache(8192)(
            lambda key: rule.sticky(key) if (rule := self.rule(key)) else ""
        )
        """How keys begin that restores leave alone with a key; empty if they do not."""

    def rule(self, key: str) -> Owned | None:
        """The declaration that says most of a key."""
        if key[:1] not in self._first:
            return None
        found = self._pattern.match(key)
        return self.entries[(found.lastindex or 0) - 1] if found is not None else None

    def along(self, key: str) -> str | None:
        """The key that comes along with one, from the same state."""
        one = self.rule(key)
        return _as(one.prefix, one.along, key) if one is not None and one.along else None

    def leader(self, key: str) -> str | None:
        """The key that one comes along with."""
        if key[:1] not in self._first:
            return None
        found = self._leaders.match(key)
        if found is None:
            return None
        one = self._led[(found.lastindex or 0) - 1]
        return _as(one.along, one.prefix, key)

    @cached_property
    def always(self) -> tuple[str, ...]:
        """What stays in every restore."""
        return self._prefixes("restore", Owned.ALWAYS)

    @cached_property
    def union(self) -> tuple[Owned, ...]:
        """What happened, wherever that was."""
        return tuple(one for one in self.entries if one.merge == Owned.UNION)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """What says that a state needs its past."""
        return self._prefixes("needs", True)

    @cached_property
    def beside(self) -> tuple[Owned, ...]:
        """What is kept beside other scopes."""
        return tuple(one for one in self.entries if one.beside and one.whole is None)

    @cached_property
    def marks(self) -> str:
        """Below which checkpoints are marked."""
        return self._prefixes("marks", True)[0]

    def left_behind(self, *, own: bool) -> tuple[str, ...]:
        """What no copy of a state has; or, unless it is of its `own` scope, that of another."""
        some = self._prefixes("copy", Owned.NOWHERE)
        return some if own else (*some, *self._prefixes("copy", Owned.SCOPE))

    @cached_property
    def moves(self) -> tuple[str, ...]:
        """What comes along into another store, though it stays in restores."""
        return self._prefixes("copy", Owned.MOVES)

    def _prefixes(self, name: str, value: Any) -> tuple[str, ...]:
        return tuple(sorted(one.prefix for one in self.entries if getattr(one, name) == value))


def _pattern(prefixes: Iterable[str]) -> re.Pattern[str]:
    """Finds which of some prefixes a key has, by the number of the group."""
    made = [re.escape(one).replace(r"\*", "[^/]+") for one in prefixes]
    return re.compile("|".join(f"({one}{'' if one[-1] == '/' else '$'})" for one in made) or "(?!)")


def _as(prefix: str, other: str, key: str) -> str:
    """A key with another prefix: the same name for the star, and the same rest."""
    before, star, after = prefix.partition("*")
    if star:
        name = key[len(before) :].partition("/")[0]
        before, other = before + name + after, other.replace("*", name)
    return other + key[len(before) :]


TABLE = Table()
