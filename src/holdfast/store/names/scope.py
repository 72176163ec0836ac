"""Names: scopes and the keys of values."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache, partial

from holdfast.errors import InvalidKeyError, InvalidScopeError

KINDS = ("global", "agent", "workflow", "step", "session", "custom")
KEY_LENGTH = 256
SCOPED_LENGTH = 512
RESERVED = "$"
"""First character of keys that parts of Holdfast own; see `check_key`."""


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """A namespace of state: a plain value, made of a kind and an id.

    `Scope.parse("agent:7")` and `str(scope)` are each other's opposite. A step's id is the
    workflow's and its own, joined by `/`, each with `/` and `%` percent-encoded.
    """

    kind: str
    id: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidScopeError(
                f"unknown kind of scope {self.kind!r}; use one of {', '.join(KINDS)}"
            )
        if self.kind == "global":
            if self.id:
                raise InvalidScopeError(
                    "the global scope has no id; use custom:NAME for a namespace"
                )
            return
        _check_id(self.kind, self.id)

    @classmethod
    def parse(cls, text: str | Scope) -> Scope:
        """The scope that a text names; strict, an unknown form is refused. A scope is itself."""
        if isinstance(text, Scope):
            return text
        if not isinstance(text, str):
            raise InvalidScopeError(f"a scope is text such as 'agent:7', not {type(text).__name__}")
        kind, colon, rest = text.partition(":")
        if kind != "global" and not colon:
            raise InvalidScopeError(
                f"{text[:80]!r} is no scope; write KIND:ID, for example agent:7"
            )
        if text == "global:":
            raise InvalidScopeError("the global scope is written 'global'")
        return cls(kind, rest)

    @classmethod
    def step(cls, workflow: str, step: str) -> Scope:
        """The scope of one step of a workflow."""
        if not isinstance(workflow, str) or not isinstance(step, str):
            raise InvalidScopeError("a step is named by two texts, its workflow's id and its own")
        return cls("step", f"{escape(workflow)}/{escape(step)}")

    @property
    def workflow(self) -> str | None:
        """The workflow that a step belongs to."""
        if self.kind != "step":
            return None
        return unescape(self.id.split("/")[0])

    def __str__(self) -> str:
        return self.kind if self.kind == "global" else f"{self.kind}:{self.id}"


def escape(text: str) -> str:
    """A text as one part of several that are joined by `/`."""
    return text.replace("%", "%25").replace("/", "%2F")


def unescape(part: str) -> str:
    """The text of such a part."""
    return part.replace("%2F", "/").replace("%25", "%")


def _check_id(kind: str, text: str) -> None:
    if not isinstance(text, str):
        told = f"{str(text)[:40]!a}, not {type(text).__name__}"
        raise InvalidScopeError(f"the id of a scope of kind {kind} is text: {told}")
    if not text:
        raise InvalidScopeError(f"a scope of kind {kind} needs an id, for example {kind}:7")
    if len(text) > KEY_LENGTH:
        raise InvalidScopeError(
            f"the id of a scope has at most {KEY_LENGTH} characters; {text[:40]!a}... has "
            f"{len(text)}"
        )
    if text.startswith(RESERVED) and kind != "custom":
        raise InvalidScopeError(f"ids that begin with $ are reserved: {kind} {text[:40]!a}")
    problem = _problem(text)
    if problem:
        raise InvalidScopeError(f"the id {text[:40]!a} of a scope of kind {kind} {problem}")
    parts = text.split("/")
    if kind == "step" and (len(parts) != 2 or not all(parts)):
        raise InvalidScopeError(f"a step is named step:WORKFLOW/STEP, not {text[:40]!a}")


def _problem(text: str) -> str | None:
    for part, name in (("..", "'..'"), ("\\", "a backslash"), ("//", "'//'")):
        if part in text:
            return f"must not contain {name}"
    for character in text:
        if character in "\0\r\n" or unicodedata.category(character) == "Cc":
            return f"must not contain the control character U+{ord(character):04X}"
        if "\ud800" <= character <= "\udfff":
            return "must be valid Unicode"
    if unicodedata.normalize("NFC", text) != text:
        return "must be in Unicode normal form C (unicodedata.normalize('NFC', text))"
    return None


_plain = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-:@./$ ")


def check_key(key: str, *, owner: bool = False) -> str:
    """The key itself if it may be used, else a clear error.

    Keys are normalised to NFC, then have 1 to 256 characters (512 under a reserved prefix), and
    contain no `..`, `\\`, `//`, NUL, CR, LF or other control character. The prefix `__` and,
    except for parts of Holdfast (`owner`), `$` are reserved.
    """
    if type(key) is not str:
        raise InvalidKeyError(f"a key is text, not {type(key).__name__}")
    if not key:
        raise InvalidKeyError("a key must not be empty")
    if not key.isascii():
        key = unicodedata.normalize("NFC", key)  # what is stored is what has to fit
    if len(key) > (SCOPED_LENGTH if owner else KEY_LENGTH):
        raise InvalidKeyError(f"a key has at most {KEY_LENGTH} characters; this one has {len(key)}")
    if key[0] in "_$":
        if key.startswith(("__", "$$")):
            raise InvalidKeyError(f"the key {key[:40]!r} begins with a reserved prefix (__ or $$)")
        if key[0] == RESERVED and not owner:
            hint = "; state.declare() writes them" if key.startswith("$declared/") else ""
            raise InvalidKeyError(f"keys that begin with $ are reserved: {key[:40]!r}{hint}")
    if key[0] == "/" or key[-1] == "/":
        raise InvalidKeyError(f"the key {key[:40]!r} must not begin or end with '/'")
    common = _plain.issuperset(key) or (key[0] == RESERVED and _plain.issuperset(key[1:]))
    if common and ".." not in key and "//" not in key:
        return key
    problem = _problem(key)
    if problem:
        raise InvalidKeyError(f"the key {key[:40]!r} {problem}")
    return key


known_key = lru_cache(8192)(check_key)
"""The same for text, which most programs give again and again."""
owned_key = lru_cache(8192)(partial(check_key, owner=True))
