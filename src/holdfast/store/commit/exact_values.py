"""Values exactly as they are stored, from one change into another.

What is copied so keeps its subjects, its expiry and its class, wherever it goes: a value that was
read and written again would be open, and last for ever.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.seal.codec import Typed
from holdfast.seal.subject_parts import ID
from holdfast.store.commit.request import ScopedChange
from holdfast.store.journal.lifetime import Meta, read_meta, terms_of
from holdfast.store.names.scope import check_key
from holdfast.store.rules.classes import SENSITIVE, class_of
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.subjects import Kept, erased


class Exact(NamedTuple):
    """A value in plain form with its sealed parts as they are, and what is known of it."""

    value: Any
    meta: Meta


def exact(part: ScopedChange, key: str) -> Exact | None:
    """What is stored of a key, which must not change until the change is applied.

    What is sensitive by the rules of its scope, or by its name, stays so elsewhere.
    """
    found = part._stored(key)
    if found is None:
        return None
    line, slot = found
    value = line.ledger.value_of(key, line.settled(slot), line.ledger.codec.plain_reader)
    meta = read_meta(slot.meta)
    if class_of(key, slot.meta, line.declared) == SENSITIVE:
        meta = meta._replace(class_=SENSITIVE)
    return Exact(value, meta)


def put(part: ScopedChange, key: str, one: Exact) -> None:
    """Set a key to what was stored elsewhere."""
    part.operations.append(
        Operation("set", check_key(key, owner=True), one.value, terms_of(one.meta))
    )


def subject_of(part: ScopedChange, key: str, sealed: Typed) -> Kept:
    """Whom a value that is sealed as a whole is sealed for, to seal what becomes of it."""
    name = part._reader.core.subjects.name_of(sealed.value[:ID])
    if name is None:
        raise erased(part._reader.scope, key)
    return Kept(name, sealed.value[:ID])


def sensitive(part: ScopedChange, key: str) -> bool:
    """Whether a key is there and sensitive; this must not change until the change is applied."""
    found = part._stored(key)
    return found is not None and class_of(key, found[1].meta, found[0].declared) == SENSITIVE
