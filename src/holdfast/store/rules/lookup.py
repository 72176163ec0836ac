"""Lookups: finding keys by what their values hold.

A lookup is declared on a prefix, as data: which parts of a value are its terms. For every key and
every combination of its terms the index has one more key,

    $terms/NAME/ENCODED TERMS/KEY

with an empty value. These are written by the operations of the very entry that changes the value,
so a lookup is as new, as durable and as sealed as the values, and is forked, restored, adopted,
erased and read at any point of the past with them, by the same means. Readers need neither the
declaration nor the values to follow it. `$terms/` keys are seen by nobody else: not in get, keys,
log, watch or diff. Names of keys are no place for secrets: what is sensitive is in no lookup.

`$lookup/NAME` says how far a lookup is built, and for which declaration; it is state, too, so that
a state which is restored brings along what it says of its terms. Any change of the declaration
removes it in the same entry. Only while it is there do writers keep the terms; only when it says
that all is built are questions answered.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Self
from unicodedata import normalize

import msgspec

from holdfast.errors import DamagedRecordError, InvalidInputError, LimitExceededError
from holdfast.seal.codec import Typed
from holdfast.store.journal.declared import NOTHING, Declaration, Declared, PrefixDeclaration
from holdfast.store.journal.key_range import behind, count_below
from holdfast.store.names.arguments import check_text, listed
from holdfast.store.names.scope import RESERVED, Scope
from holdfast.store.rules.classes import SENSITIVE, Classed, class_of
from holdfast.store.rules.terms import ABSENT, encode_term, split_terms

if TYPE_CHECKING:
    from holdfast.store.journal.slot import Slot
    from holdfast.store.tree.tree import Node, Trees

TERMS = "$terms/"
BUILT = "$lookup/"
DERIVED = (TERMS, BUILT)
"""What keys begin with that are there because of others."""
MOST_FIELDS = 8
MOST_TERMS = 1000
"""Combinations of terms of one value: all of them have to fit into the entry that removes it."""
EACH = -1
"""The step of a path that stands for every item of a list."""

Steps = tuple[str | int, ...]
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d*)\]")
_encode = msgspec.msgpack.Encoder().encode


def derived(key: str) -> bool:
    """Whether a key is there because of others: part of a lookup, or how far that is built."""
    return key.startswith(DERIVED)


def passed_over(key: str, prefix: str) -> str | None:
    """What reserved keys begin with that are not listed, if this one does so.

    What parts of Holdfast keep is theirs, and listed only to who asks for it; what follows from
    other keys never is.
    """
    if not prefix:
        return RESERVED
    return next((home for home in DERIVED if key.startswith(home)), None)


def check_lookup_name(name: str) -> str:
    """The name in normal form, as keys are, if it can be one."""
    check_text(name, "the name of a lookup", 64, least=1)
    return normalize("NFC", name)


def count_keys(trees: Trees, root: Node) -> int:
    """How many keys an index has that are there of themselves."""
    return root.count - sum(count_below(trees, root, home) for home in DERIVED)


@dataclass(frozen=True, init=False)
class Lookup(PrefixDeclaration):
    """Find keys below a prefix by parts of their values.

    `terms` names the parts, in the order in which they sort: `{"status": "status", "due":
    "plan.due"}`, or only their paths. A path goes into mappings by name (`author.name`), into
    lists by number (`steps[0]`) or to each item (`tags[]`, at most one of the paths). A value that
    has none of the parts is not found; one that lacks some of them is, as long as nothing is
    asked about those.
    """

    kind: ClassVar[str] = "lookup"
    prefix: str = ""
    terms: Mapping[str, str] = field(default_factory=dict)
    called: str = ""

    def __init__(
        self, name: str, prefix: str = "", terms: Mapping[str, str] | Iterable[str] | str = ()
    ) -> None:
        name = check_lookup_name(name)
        if "/" in name:
            raise InvalidInputError("the name of a lookup has no '/'")
        for name_, value in (("prefix", prefix), ("called", name), ("terms", _named(terms))):
            object.__setattr__(self, name_, value)
        self.__post_init__()
        if not 1 <= len(self.terms) <= MOST_FIELDS:
            raise InvalidInputError(f"a lookup has 1 to {MOST_FIELDS} terms")
        if sum(EACH in steps for steps in self.paths) > 1:
            raise InvalidInputError("at most one term of a lookup takes each item of a list")
        _ = self.key  # refused now if the name cannot be part of a key

    @property
    def name(self) -> str:
        """What it is asked by."""
        return self.called

    def data(self) -> dict[str, Any]:
        """What is kept: plain data."""
        return {"name": self.called, "prefix": self.prefix, "terms": dict(self.terms)}

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Self:
        """The opposite of `data`."""
        return cls(**data)

    def beside(self, others: Sequence[Declaration]) -> Self:
        """The same, with the classes that are declared for some of its keys."""
        mine = [
            one
            for one in others
            if isinstance(one, Classed)
            and (one.prefix.startswith(self.prefix) or self.prefix.startswith(one.prefix))
        ]
        made = type(self)(self.called, self.prefix, self.terms)
        made.__dict__["_classes"] = Declared(mine)
        return made

    @cached_property
    def _classes(self) -> Declared:
        """What is declared of the class of keys that it is about."""
        return NOTHING

    def leaves_out(self, key: str, meta: bytes) -> bool:
        """Whether a key is sensitive: then it is in no lookup."""
        return class_of(key, meta, self._classes) == SENSITIVE

    @cached_property
    def paths(self) -> tuple[Steps, ...]:
        """The ways into a value, one for each term."""
        return tuple(_steps(path) for path in self.terms.values())

    @cached_property
    def fingerprint(self) -> bytes:
        """What stands in `$lookup/NAME` for all that its terms follow from but values: the
        declaration, and which keys it leaves out."""
        classes = [one.data() for one in self._classes.all]
        return hashlib.sha256(_encode([self.data(), classes])).digest()[:16]

    @cached_property
    def home(self) -> str:
        """What its keys begin with."""
        return f"{TERMS}{self.called}/"

    @cached_property
    def _mark(self) -> str:
        """What stands between terms and key, and the beginning of that."""
        return "/" + self.prefix

    @property
    def end(self) -> str:
        """What sorts behind all its keys."""
        return behind(self.home)

    def terms_in(self, name: str) -> list[str]:
        """The encoded terms that one of its keys holds."""
        return split_terms(name[len(self.home) :], len(self.terms))

    def key_in(self, name: str) -> str:
        """The key that one of its keys stands for."""
        at = name.find(self._mark, len(self.home))
        if name.find(self._mark, at + 1) < 0 <= at:  # what can be meant but the key, here?
            return name[at + 1 :]
        return name[len(self.home) + sum(map(len, self.terms_in(name))) + 1 :]

    @cached_property
    def by_items(self) -> bool:
        """Whether what is appended to a list adds terms, and changes none."""
        return all(type(steps[0]) is str or steps[0] == EACH for steps in self.paths)

    def most(self, slot: Slot) -> int:
        """How many terms a value can have at most, as far as can be said without reading it."""
        lists = max(steps.count(EACH) for steps in self.paths)
        if not lists:
            return 1
        length = slot.length() if lists == 1 and self.by_items else None
        return length if length is not None else slot.size()  # an item takes a byte at least

    @cached_property
    def whole(self) -> bytes:
        """What `$lookup/NAME` holds when all is built."""
        return _encode([self.fingerprint, None])

    @property
    def built(self) -> str:
        """The key that says how far it is built."""
        return BUILT + self.called

    def covers(self, key: str) -> bool:
        """Whether a key is one that it is about: those of parts of Holdfast only if it says so."""
        if not key or not key.startswith(self.prefix):
            return False  # what a merge notes of itself is under no key
        return key[0] != RESERVED or self.prefix[:1] == RESERVED

    def spans(self) -> list[tuple[str, str]]:
        """From where to where the keys lie that it is about."""
        if self.prefix:
            return [(self.prefix, behind(self.prefix))]
        return [("", RESERVED), (behind(RESERVED), behind(""))]

    def keys_of(self, key: str, found: list[list[str]]) -> frozenset[str]:
        """The keys that stand for a key, from the encoded terms that each path led to."""
        if not any(found):
            return frozenset()
        combined = product(*[terms or [ABSENT] for terms in found])
        return frozenset([f"{self.home}{''.join(terms)}/{key}" for terms in combined])

    def not_whole(self, scope: Scope, key: str) -> DamagedRecordError:
        """The error for a lookup that names a key which is not there."""
        return DamagedRecordError(
            f"{scope}: the lookup {self.name!r} names {key!r}, which is not there; "
            f"state.rebuild({self.name!r}) makes it anew from the values",
            f"lookup {self.name}",
        )

    def too_many(self, key: str) -> LimitExceededError:
        """The error for a value with more terms than an entry can hold."""
        return LimitExceededError(
            f"the value of {key!r} has more than {MOST_TERMS} terms for the lookup {self.name!r}; "
            "undeclare it, or keep the items under keys of their own"
        )


def _named(terms: Mapping[str, str] | Iterable[str] | str) -> dict[str, str]:
    if isinstance(terms, str):
        terms = [terms]
    if not isinstance(terms, Mapping):
        pairs = [(path, path) for path in listed(terms, "terms")]
    else:
        pairs = list(terms.items())
    found: dict[str, str] = {}
    for name, path in pairs:
        check_text(name, "the name of a term", 64, least=1)
        check_text(path, "the path of a term", 256, least=1)
        found[name] = path
    return found


def _steps(path: str) -> Steps:
    """The way into a value, taken apart."""
    found: list[str | int] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise InvalidInputError(
                f"{path[:80]!r} is no path; write author.name, steps[0] or tags[]"
            )
        found.append(match[1] or (int(match[2]) if match[2] else EACH))
        at = match.end()
    if found.count(EACH) > 2:
        raise InvalidInputError(f"{path[:80]!r} goes into more than two lists")
    return tuple(found)


def parts_at(value: Any, steps: Steps) -> Iterator[Any]:
    """The parts of a value, in plain form, that a path leads to."""
    for number, step in enumerate(steps):
        if type(value) is Typed:
            value = value.value
        if type(step) is str:
            if type(value) is not dict or step not in value:
                return
            value = value[step]
        elif type(value) is not list:
            return
        elif step == EACH:
            for item in value:
                yield from parts_at(item, steps[number + 1 :])
            return
        elif type(step) is int:
            if step >= len(value):
                return
            value = value[step]
    yield value


def terms_at(value: Any, steps: Steps) -> list[str]:
    """The encoded terms, each once, that a path into a value in plain form leads to."""
    if len(steps) == 1 and type(value) is dict:  # as most are
        text = encode_term(value[steps[0]]) if steps[0] in value else None
        return [text] if text is not None else []
    return encoded(parts_at(value, steps))


def encoded(parts: Iterable[Any]) -> list[str]:
    """The encoded terms among some parts, each once."""
    return list(dict.fromkeys(text for part in parts if (text := encode_term(part)) is not None))
