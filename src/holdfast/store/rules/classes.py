"""State classes: what a key holds, and how it is treated for that.

The class of a key is the one that its write named, else the one declared for the longest prefix
that fits, else the one that its name tells, else `standard`. A name alone makes no key ephemeral:
it never lowers what a write survives. docs/rules.md has the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from holdfast.errors import (
    InvalidValueError,
    NewerFormatError,
    StateIntegrityError,
)
from holdfast.seal.codec import Typed
from holdfast.store.journal.declared import NOTHING, Declared, Plan, PrefixDeclaration
from holdfast.store.journal.ledger import Ledger
from holdfast.store.journal.lifetime import check_class, read_meta
from holdfast.store.journal.slot import Slot
from holdfast.store.names.scope import RESERVED, unescape
from holdfast.store.names.threads import SHORT, Breath
from holdfast.store.rules.owned import TABLE
from holdfast.store.tree.split import Part

SENSITIVE, EXTERNAL, TRUSTED, STANDARD = "sensitive", "external", "trusted", "standard"

ANYWHERE = frozenset(
    (
        "apikey",
        "credential",
        "credentials",
        "passphrase",
        "passwd",
        "password",
        "passwords",
        "secret",
        "secrets",
    )
)
"""Words that make a key sensitive wherever they stand in it."""
AT_THE_END = (("token",), ("api", "key"), ("access", "key"), ("private", "key"))
"""Words that do so at the end of a part of it: `api_token`, but not `token_count`."""
OUTSIDE = ("external:", "external/", "user_input:", "user_input/")
"""What keys of external data begin with."""
DEPTH = 32
BYTES = 1 << 20
"""How deep and how long a value of class external may be."""

_PARTS = re.compile(r"[/:.~]")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_TELLING = sorted({*ANYWHERE, *(end[-1] for end in AT_THE_END)})
_PERHAPS = re.compile("|".join(_TELLING), re.IGNORECASE)


@dataclass(frozen=True)
class Classed(PrefixDeclaration):
    """Keys that begin with the prefix have a class, unless a write names another.

    The classes are trusted, standard, sensitive and external.
    """

    class_: str
    kind: ClassVar[str] = "class"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_class(self.class_)

    def onto(self, plan: Plan, key: str) -> Plan:
        """The class that its keys have."""
        return plan._replace(class_=self.class_) if key.startswith(self.prefix) else plan


def class_of(key: str, meta: bytes = b"", declared: Declared = NOTHING) -> str:
    """The class of a key."""
    named = read_meta(meta).class_ if meta else ""
    plan = None if named else declared.rule(key)
    if plan is None:
        return named or inferred(key)
    told = plan.class_ or inferred(key)
    return "ephemeral" if plan.ephemeral and not plan.class_ and told == STANDARD else told


def any_sensitive(leaves: Iterable[dict[str, bytes]], declared: Callable[[], Declared]) -> bool:
    """Whether one of some keys, each with its meta, is sensitive, or may be for all we know."""
    known: Declared | None = None
    breath = Breath(SHORT)
    for leaf in leaves:
        if not leaf:
            continue
        breath()
        if known is None:
            try:
                known = declared()
            except (StateIntegrityError, NewerFormatError):
                return True  # what cannot be read may say so
        # Whether keys have to be looked at one by one is told of all at once, and mostly no.
        if not known.of(Classed) and not any(leaf.values()):
            names = "\0".join(leaf).lower()
            if not any(word in names for word in _TELLING):
                continue
        if any(class_of(key, meta, known) == SENSITIVE for key, meta in leaf.items()):
            return True
    return False


@lru_cache(4096)
def inferred(key: str) -> str:
    """The class that a key's name tells, by whole words.

    Keys of Holdfast's parts are theirs, but some are named by users (`Owned`).
    """
    if key[0] == RESERVED:
        rule = TABLE.index.rule(key)
        if rule is None or not rule.named:
            return STANDARD
        key = unescape(key)
    if _PERHAPS.search(key) is None:  # hardly any key has one of these words
        return EXTERNAL if key.startswith(OUTSIDE) else STANDARD
    for part in _PARTS.split(key):
        words = [word.lower() for word in _WORDS.findall(part)]
        if not ANYWHERE.isdisjoint(words):
            return SENSITIVE
        if any(tuple(words[-len(end) :]) == end for end in AT_THE_END):
            return SENSITIVE
    return EXTERNAL if key.startswith(OUTSIDE) else STANDARD


# external


def check_external(
    ledger: Ledger, key: str, parts: Iterable[Part], size: int, within: int = 0
) -> None:
    """Refuse what data from outside may not be.

    `size` is that of all of the value, of which the parts lie `within` so many others.
    """
    where = f"{ledger.scope}: the value of {key!r}"
    if size > BYTES:
        raise InvalidValueError(f"{where} is external, and takes {size} bytes; at most {BYTES}")
    for part in parts:
        depth = _nested(ledger.splitter.plain_of(part))
        if depth is None:
            raise InvalidValueError(
                f"{where} is external, and holds an object of a registered type, or what is sealed "
                "for a subject; give plain data"
            )
        if depth + within > DEPTH:
            raise InvalidValueError(
                f"{where} is external, and nested {depth + within} deep; at most {DEPTH}: flatten "
                "it"
            )


def _nested(value: Any) -> int | None:
    """How deep a value is nested; None if it holds an object of a registered type."""
    if type(value) is Typed:
        return None
    if type(value) not in (dict, list):
        return 0
    depths = [_nested(part) for part in (value.values() if type(value) is dict else value)]
    known = [depth for depth in depths if depth is not None]
    return 1 + max(known, default=0) if len(known) == len(depths) else None


# several states, which say different things of a key's class


Rules = Sequence[Declared]
"""What is declared in each of some states."""


def sensitive(key: str, slots: Iterable[Slot | None], rules: Rules) -> bool:
    """Whether one of several values of a key is sensitive by one of the rules."""
    return any(
        class_of(key, slot.meta, declared) == SENSITIVE
        for slot in slots
        if slot is not None
        for declared in rules
    )


def class_by(key: str, meta: bytes, rules: Rules) -> str:
    """The class of a key by the first of the rules, unless another one says sensitive."""
    found = [class_of(key, meta, declared) for declared in rules]
    return SENSITIVE if SENSITIVE in found else found[0]
