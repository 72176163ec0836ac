"""What lies inside values and is nobody's business: sealed, hashed, or not shown.

protection = Protection(store, redact=[SSN, CARD], encrypt=["password"], hash=["user_id"])
state.set("profile", {"user_id": "u-17", "password": "…"})

`encrypt` and `hash` are done on the way in, by a gate: a field of that name, at any depth, is
sealed inside its value, as parts that are sealed for a subject are, and read back whole by who may
read the key; or replaced by a keyed hash. `redact` is done on the way out alone, where people look:
it never changes the data of the owner.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from msgspec import Struct

from holdfast.access.grants import PROTECTION
from holdfast.errors import InvalidInputError, InvalidValueError
from holdfast.seal.codec import altered
from holdfast.store.inner import Book, Gate, GateRequest, core_of
from holdfast.store.names.arguments import check_face, check_text, listed
from holdfast.store.names.face import faced, here, writes
from holdfast.store.names.items import LongValue
from holdfast.store.names.patterns import SEARCHED, Expression
from holdfast.store.names.scope import RESERVED, Scope
from holdfast.store.store import Store

SSN = r"\b\d{3}-\d{2}-\d{4}\b"
CARD = r"\b\d{16}\b"
REDACTED = "[redacted]"
HASHED = "hashed:"
_DONE = re.compile(HASHED + "[0-9a-f]{32}")
SUBJECT = "protected/"
"""How the names of subjects begin that fields are sealed for, one of each scope."""


class ProtectionRecord(Struct):
    """What is kept for those who look from elsewhere."""

    redact: list[str]
    fields: list[str]


class Redaction:
    """What is not shown: texts that fit patterns, and fields of some names."""

    def __init__(self, patterns: Iterable[str], fields: Iterable[str] = ()) -> None:
        self._patterns = [Expression(one) for one in patterns]
        self._fields = frozenset(fields)
        most = min((one.most for one in self._patterns), default=SEARCHED[0])
        # What every pattern looks through; a longer text is cut where a word ends.
        self._pieces = re.compile(rf"(?s).{{1,{most}}}(?=[ \n\t,;]|\Z)|.{{1,{most}}}")

    def __call__(self, value: Any, steps: Sequence[Any] = ()) -> Any:
        """A value as it may be shown; `steps` lead to it. The very same if nothing is hidden."""
        if value is not None and not self._fields.isdisjoint(s for s in steps if type(s) is str):
            return REDACTED
        return altered(value, self._shown)

    def _shown(self, name: Any, part: Any) -> Any:
        if name in self._fields and part is not None:
            return REDACTED
        if type(part) is int and any(one.found(str(part)) for one in self._patterns):
            return REDACTED
        if type(part) is not str:
            return part
        done = []
        for piece in self._pieces.findall(part):
            for one in self._patterns:
                piece = one.replaced(piece, REDACTED)
            done.append(piece)
        return "".join(done)


@faced
class Protection:
    """Protects fields inside values by their names, and what people are shown by patterns.

    It stands from when it is made until `stop`, for what is written and shown through this open
    store; each process that writes has its own. What was written before stays as it was. Keys that
    parts of Holdfast own (`$…`), and bytes, are left alone. Gates that were added before see
    fields open, later ones see them sealed.
    """

    def __init__(
        self,
        store: Store,
        *,
        redact: Iterable[str] = (),
        encrypt: Iterable[str] = (),
        hash: Iterable[str] = (),
    ) -> None:
        check_face(store, Store, "Protection")
        self._redact = _names(redact, "redact")
        self._encrypt = frozenset(_names(encrypt, "encrypt"))
        self._hash = frozenset(_names(hash, "hash"))
        if both := self._encrypt & self._hash:
            raise InvalidInputError(f"{min(both)!r} is either encrypted or hashed, not both")
        self._core = core_of(store)
        if self._encrypt and self._core.ring is None:
            raise InvalidInputError(
                "the store is not encrypted, so no field can be sealed in it; create one with "
                "key= and copy the scopes there (an export of a checkpoint, then an import), or "
                "leave encrypt= out"
            )
        self._core.check_store()
        self._rules = Book(store.custom("$access"), PROTECTION, ProtectionRecord)
        self._redaction = Redaction(self._redact, self._encrypt)
        self._gate = _Protecting(self)
        if self._encrypt or self._hash:
            self._core.gates.add(self._gate)
        self._core.redact = self._redaction
        if self._encrypt:
            self._core.subjects.resealed = SUBJECT

    @here(awaited=True)
    def stop(self) -> None:
        """Protect and redact no more through this open store; what is sealed stays so."""
        self._core.gates.remove(self._gate)
        if self._core.redact is self._redaction:
            self._core.redact = None
        if self._encrypt:
            self._core.subjects.resealed = None

    @writes
    def keep(self) -> None:
        """Let the command line, too, redact by these patterns and names; the last call counts."""
        record = ProtectionRecord(list(self._redact), sorted(self._encrypt))
        self._rules.step(lambda page: page.put("rules", record), reason="what is redacted")

    @here
    def redacted(self, value: Any) -> Any:
        """A value as people may see it: what fits a pattern, and what is encrypted, is hidden."""
        return self._redaction(self._core.codec.plain(value))

    def protect_value(self, value: Any, scope: str | Scope = "global") -> Any:
        """A value as it would be stored in a scope: fields sealed and hashed, nothing redacted.

        Sealed parts are opened by the store they were sealed in, and by no other.
        """
        return self._protected(self._core.codec.plain(value), Scope.parse(scope))

    def hashed(self, value: Any, scope: str | Scope) -> str:
        """What a field that is hashed holds for a value in a scope, to look for it or compare."""
        codec = self._core.codec
        ledger = self._core.ledger(Scope.parse(scope), create=not self._core.read_only)
        # In a plain store nothing is keyed: what the scope alone has stands in front.
        data = ledger.page_key + codec.encode(codec.plain(value))
        return HASHED + ledger.tag(b"protect", data).hex()

    def _protected(self, value: Any, scope: Scope) -> Any:
        """A value in plain form with its fields protected; the very same if there are none."""

        def change(name: Any, part: Any) -> Any:
            done = name in self._hash and type(part) is str and _DONE.fullmatch(part)
            if part is None or done:
                return part  # one that was read comes back when its value is updated
            if name in self._hash:
                return self.hashed(part, scope)
            if name in self._encrypt:
                return self._core.subjects.part(subject_of(scope), part)
            return part

        return altered(value, change)


class _Protecting(Gate):
    """The gate that protection stands in; also what is of class trusted has fields."""

    access = True

    def __init__(self, protection: Protection) -> None:
        self._protection = protection

    def before(self, request: GateRequest) -> GateRequest:
        """The request with its fields protected."""
        asked, scope = list(request.operations), request.scope
        for at, one in enumerate(asked):
            if one.kind not in ("set", "append") or one.key.startswith(RESERVED):
                continue
            if not isinstance(one.value, LongValue | bytes):
                with suppress(InvalidValueError):  # refused behind this, with the place of it
                    plain = self._protection._core.codec.plain(one.value)
                    made = self._protection._protected(plain, scope)
                    asked[at] = one if made is plain else replace(one, value=made)
        return replace(request, operations=asked)


def subject_of(scope: Scope) -> str:
    """Whom the fields of a scope are sealed for; a long name is shortened, and stays its own."""
    name = f"{SUBJECT}{scope}"
    return name if len(name) <= 256 else SUBJECT + hashlib.sha256(name.encode()).hexdigest()


def kept_redaction(store: Store) -> Redaction | None:
    """What `keep` said last, for those who show what is in a store; None if nothing is."""
    record = Book(store.custom("$access"), PROTECTION, ProtectionRecord).get("rules")
    return Redaction(record.redact, record.fields) if record is not None else None


def _names(given: Iterable[str], what: str) -> tuple[str, ...]:
    found = tuple(listed(given, what))
    for one in found:
        check_text(one, f"what {what} names", 1000, least=1)
    return found
