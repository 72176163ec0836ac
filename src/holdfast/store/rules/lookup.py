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
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self
from unicodedata import normalize

import msgspec

from holdfast.errors import DamagedRecordError, InvalidInputError, LimitExceededError
from holdfast.seal.codec import Typed
from holdfast.store.journal.declared import NOTHING, Declaration, Declared, Plan, PrefixDeclaration
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import behind, count_below
from holdfast.store.names.arguments import check_text, listed
from holdfast.store.names.scope import RESERVED, Scope
from holdfast.store.rules.classes import SENSITIVE, Classed, class_of
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

    def onto(self, plan: Plan, key: str) -> Plan:
        """Its terms are kept."""
        return plan._replace(lookups=(*plan.lookups, self)) if self.covers(key) else plan

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

    def most(self, slot: Slot) -> int:
        """How many terms a value can have at most, as far as can be said without reading it."""
        return slot.size() if any(EACH in steps for steps in self.paths) else 1  # a byte an item

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
            "declare it with rebuild=True: that makes it anew from the values",
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


# ---- terms --------------------------------------------------------------------------------------
# Terms as text that sorts as they do: what a lookup is sorted by.
#
# A term is None, a bool, an int, a float, a datetime with a zone, text or bytes. Types are never
# confused: each has its letter in front, so that 1, True, 1.0 and "1" are four terms, and a range
# stays within one type. Within a type, the order of the encoded text by code point is the order of
# the terms: numbers by size, moments by instant, text by code point, bytes by byte.
#
# | letter | term | then |
# | --- | --- | --- |
# | `0` | the value has no such part, or it is none of these types | |
# | `1` | None | |
# | `2` | bool | `0` or `1` |
# | `3` | int | sign, number of hexadecimal digits, digits; those of a negative one complemented |
# | `4` | float | 16 hexadecimal digits of its bits, flipped so that they sort; -0.0 as 0.0 |
# | `5` | nan, all of them | |
# | `6` | datetime | its microseconds since 1970 as an int: equal instants are equal terms |
# | `7` | text | itself, NUL escaped, ended by NUL |
# | `8` | bytes | hexadecimal digits, ended by NUL |
#
# What is longer than `LONG` is cut there and followed by a hash of the whole: equality stays exact,
# and only among those that begin alike for so long is the order not theirs. Each encoded term says
# where it ends, so that several in a row can be told apart.


LONG = 64
"""Characters of a text, bytes of bytes, and hexadecimal digits of a number that are kept."""
ABSENT = "0"
NONE, BOOL, INT, FLOAT, NAN, MOMENT, TEXT, BYTES = "12345678"

_END = "\0"
_CUT = "\0\xfe"
"""Behind what is cut; sorts behind the end of a text that is just as long, before all others."""
_HASH = 32
AFTER = "\x7f"
"""Behind a whole term stands another's letter or a slash: this sorts behind both, and before what
stands inside a longer text at its place."""
_odd = re.compile("[\0\ud7ff-\udfff]")
_START = datetime.fromtimestamp(0, UTC)
_MICROSECOND = timedelta(microseconds=1)
_bits = struct.Struct(">d").pack
_complement = str.maketrans("0123456789abcdef", "fedcba9876543210")


def encode_term(term: Any) -> str | None:
    """The text that stands for a term; None if it is of no type that can be one."""
    kind = type(term)
    if kind is str:
        return TEXT + _text(term)
    if kind is bool:
        return BOOL + ("1" if term else "0")
    if kind is int:
        return INT + _int(term)
    if kind is float and term != term:
        return NAN
    if kind is float:
        bits = int.from_bytes(_bits(term or 0.0), "big")
        return f"{FLOAT}{bits ^ (0xFFFFFFFFFFFFFFFF if bits >> 63 else 1 << 63):016x}"
    if term is None:
        return NONE
    if kind is datetime and term.tzinfo is not None:
        return MOMENT + _int((term - _START) // _MICROSECOND)
    if kind is bytes:
        end = _END if len(term) <= LONG else _CUT + _hash(term)
        return f"{BYTES}{term[:LONG].hex()}{end}"
    return None


def _text(text: str) -> str:
    head = text if len(text) <= LONG else text[:LONG]
    if _odd.search(head):
        head = _odd.sub(_escaped, head)
    if len(text) <= LONG:
        return head + _END
    return head + _CUT + _hash(text.encode("utf-8", "surrogatepass"))


def _escaped(found: re.Match[str]) -> str:
    """NUL, and halves of pairs: a stored text has none. The order stays that of code points."""
    character = found[0]
    if character == "\0":
        return "\0\xff"
    return "\ud7ff" + chr(ord(character) - 0xD7FF + 1)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH]


def _int(number: int) -> str:
    digits = f"{abs(number):x}"
    length = f"{len(digits):x}"
    text = f"{len(length)}{length}{digits[:LONG]}"
    text = "1" + text if number >= 0 else "0" + text.translate(_complement)
    return text + _hash(digits.encode()) if len(digits) > LONG else text


def split_terms(text: str, count: int) -> list[str]:
    """The encoded terms, `count` of them, that a text begins with."""
    found = []
    at = 0
    for _ in range(count):
        end = _end_of(text, at)
        found.append(text[at:end])
        at = end
    return found


def _end_of(text: str, at: int) -> int:
    """Where the encoded term that begins at a position ends."""
    kind = text[at]
    if kind in (ABSENT, NONE, NAN):
        return at + 1
    if kind == BOOL:
        return at + 2
    if kind == FLOAT:
        return at + 17
    if kind in (INT, MOMENT):
        return _int_end(text, at + 1)
    end = text.index(_END, at)
    while text[end + 1 : end + 2] == "\xff":
        end = text.index(_END, end + 2)
    if text[end + 1 : end + 2] == _CUT[1]:
        return end + 2 + _HASH
    return end + 1


def _int_end(text: str, at: int) -> int:
    head = text[at + 1 : at + 11]
    if text[at] == "0":
        head = head.translate(_complement)
    size = int(head[0], 16)
    digits = int(head[1 : 1 + size], 16)
    return at + 2 + size + (digits if digits <= LONG else LONG + _HASH)


def equal_bounds(term: Any) -> tuple[str, str]:
    """The bounds between which, the upper one left out, just this term lies."""
    text = _must_be_term(term)
    return text, text + AFTER


def begins_bounds(text: Any) -> tuple[str, str]:
    """The bounds of all texts (or bytes) that begin with one."""
    if type(text) not in (str, bytes) or len(text) > LONG:
        raise InvalidInputError(f"a beginning is text or bytes of at most {LONG}")
    low = _must_be_term(text)[: -len(_END)]
    return low, behind(low)


def range_bounds(gt: Any, ge: Any, lt: Any, le: Any, missing: object) -> tuple[str, str]:
    """The bounds of a range; `missing` stands for a side that is not given."""
    given = {"gt": gt, "ge": ge, "lt": lt, "le": le}
    given = {name: side for name, side in given.items() if side is not missing}
    if not given or given.keys() >= {"gt", "ge"} or given.keys() >= {"lt", "le"}:
        raise InvalidInputError("a range takes gt or ge, lt or le, or one of each")
    texts = {name: _must_be_term(side) for name, side in given.items()}
    kinds = {text[0] for text in texts.values()}
    if len(kinds) > 1 or kinds & {NONE, NAN}:
        raise InvalidInputError("the bounds of a range are of one type, and neither None nor nan")
    for side in given.values():
        if type(side) in (str, bytes) and len(side) > LONG:
            raise InvalidInputError(f"a bound is text or bytes of at most {LONG}")
        if type(side) is int and abs(side) >= 16**LONG:
            raise InvalidInputError(f"a bound is a number of at most {LONG} hexadecimal digits")
    kind = kinds.pop()
    low = texts["gt"] + AFTER if "gt" in texts else texts.get("ge", kind)
    high = texts["le"] + AFTER if "le" in texts else texts.get("lt", behind(kind))
    return low, high


def _must_be_term(term: Any) -> str:
    if type(term) is datetime and term.tzinfo is None:
        raise InvalidInputError("a moment needs a zone, for example datetime.now(UTC)")
    text = encode_term(term)
    if text is None:
        raise InvalidInputError(
            f"{type(term).__name__} is no term; terms are None, bool, int, float, text, bytes and "
            "datetimes with a zone"
        )
    return text
