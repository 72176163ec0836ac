"""What an attached agent keeps, field by field, and what of it differs from what was saved.

Below `$agent/attached`:

    $agent/attached                 fields, which of them lie apart, version, count of saves
    $agent/attached/<field>         the field's value; of one that lies apart, its names in order
    $agent/attached/<field>/<name>  of one that lies apart (a long mapping), one item

In `<field>`, `/` and `%` are percent-encoded.

What was saved is remembered encoded. So finding what differs takes one encoding in C and one
comparison of bytes, and a list that has grown at its end is appended to. Two values that are
encoded alike count as the same: a tuple and a list, an enum's member and its value, the same moment
in two zones.

The agent may go on changing its lists and mappings meanwhile, in threads of its own: of what
differs, a copy is taken, and what is written and what is remembered are both made from that.

Every save writes the first key, and expects that nobody else has since the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.agents.agent_keys import ATTACHED
from holdfast.agents.state.checks import is_model
from holdfast.errors import InvalidInputError, InvalidKeyError
from holdfast.store.inner import MISSING, Operation, Reader, copied
from holdfast.store.names.scope import check_key, escape

APART = 32
"""Items from which on a mapping lies apart, a key each."""


def _hook(value: Any) -> Any:
    if is_model(type(value)):
        return value.model_dump()
    raise TypeError  # it is not compared, but written each time


_encoder = msgspec.msgpack.Encoder(enc_hook=_hook)


def _encoded(value: Any) -> bytes | None:
    """The value in short, to compare with; None if it cannot be encoded so."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


@dataclass(slots=True)
class Known:
    """One field as it was saved."""

    encoded: bytes | None = None
    length: int = -1
    """Of a list: how many items it had."""
    items: dict[str, bytes | None] | None = None
    """Of a field that lies apart."""
    torn: bool = False
    """Whether such a field names others than are there: then all of it is written again."""


@dataclass(slots=True)
class Manifest:
    """The first key, and its version."""

    fields: tuple[str, ...] = ()
    apart: frozenset[str] = frozenset()
    version: int = 1
    saves: int = 0
    entry: int = 0
    """The entry that wrote it; 0: there is none."""

    def data(self) -> dict[str, Any]:
        """What is stored."""
        return {
            "fields": list(self.fields),
            "apart": sorted(self.apart),
            "version": self.version,
            "saves": self.saves,
        }


def read_manifest(reader: Reader) -> Manifest:
    """What is stored of an attached agent."""
    line = reader.now()
    slot = reader.live(line, ATTACHED) if line is not None else None
    if line is None or slot is None:
        return Manifest()
    found = reader.value(line, ATTACHED, slot)
    return Manifest(
        tuple(found["fields"]),
        frozenset(found["apart"]),
        found["version"],
        found["saves"],
        line.version(slot),
    )


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields as they are stored, as plain data.

    If single keys come from another state (a recovery of damaged ones, a restore of some, a merge),
    a field may not be there, and the items of one that lies apart may be others than it names. Then
    it holds all that are there.
    """

    values: dict[str, Any]
    torn: dict[str, list[str]]
    """Fields that name others than are there, and the names of those that are."""


def read_fields(reader: Reader, manifest: Manifest, wanted: Iterable[str] | None) -> Fields:
    """The stored values of fields, in their order; None means all."""
    chosen = manifest.fields if wanted is None else [n for n in wanted if n in manifest.fields]
    values: dict[str, Any] = {}
    torn: dict[str, list[str]] = {}
    for name in chosen:
        found = reader.get(field_key(name), MISSING, None, False)
        below = field_key(name) + "/"
        there = reader.items(below, None, "", False)
        items = {key.removeprefix(below): item for key, item in there}
        if found is MISSING and not items:
            continue
        values[name], whole = _agreed(found, items, name in manifest.apart)
        if not whole:
            torn[name] = list(items)
    return Fields(values, torn)


def _agreed(found: Any, items: dict[str, Any], apart: bool) -> tuple[Any, bool]:
    """The value of a field, and whether its key and those of its items are of one state.

    What is there decides: the key of one that lies apart only says in which order its items are.
    """
    if isinstance(found, dict):  # of when it did not lie apart
        return found | items, not apart and not items
    if apart or found is MISSING:
        names = found if isinstance(found, list) else []
        value = {one: items[one] for one in names if one in items} | items
        return value, names == list(value)
    return found, not items


def field_key(name: str) -> str:
    """Where a field is kept. A `/` of its name is escaped: what is below a field is its items."""
    return f"{ATTACHED}/{escape(name)}"


def check_field(name: object) -> None:
    """Refuse what can be no field's name."""
    if type(name) is not str:
        raise InvalidInputError(f"the name of a field is text, not {type(name).__name__}")
    try:
        if name and check_key(field_key(name), owner=True) == field_key(name):
            return
        problem = "is empty, or not in Unicode normal form C"
    except InvalidKeyError as error:
        problem = f"cannot be part of a key: {error}"
    raise InvalidInputError(f"the name of a field {problem}: {name[:40]!r}")


ToStore = Callable[[str, Any, bool], Any]
"""(field, value, whether it is an item of the field's value) -> what is stored of it."""


@dataclass(slots=True)
class Saved:
    """What was saved last, as far as this process knows."""

    manifest: Manifest = field(default_factory=Manifest)
    fields: dict[str, Known] = field(default_factory=dict)

    def differing(
        self, values: Mapping[str, Any], to_store: ToStore
    ) -> tuple[list[Operation], dict[str, Known]]:
        """What has to be written so that values are stored; and what is known then."""
        operations: list[Operation] = []
        after: dict[str, Known] = {}
        for name, live in values.items():
            value = dict(live) if type(live) is dict else live
            before = self.fields.get(name, Known())
            after[name] = now = known(name, value, before)
            write = _items if now.items is not None else _whole
            operations += write(name, value, before, now, to_store)
        for name in self.fields.keys() - values.keys():
            operations.append(Operation("delete", field_key(name)))
            operations += _without(name, self.fields[name])
        return operations, after


def known(name: str, value: Any, before: Known | None = None) -> Known:
    """What is to be remembered of a field."""
    if _fits_apart(name, value, before.items if before is not None else None):
        return Known(items={one: _encoded(part) for one, part in value.items()})
    encoded = _encoded(value)
    if encoded is None or type(value) is not list:
        return Known(encoded)
    return Known(encoded, _length(encoded))


def _fits_apart(name: str, value: Any, before: Mapping[str, Any] | None) -> bool:
    """Whether it is a long mapping whose names can be parts of keys; those before were."""
    if type(value) is not dict or len(value) < APART:
        return False
    below = field_key(name) + "/"
    new = value.keys() - before.keys() if before else value.keys()
    try:
        return all(type(one) is str and check_key(below + one, owner=True) == below + one
                   for one in new)  # fmt: skip
    except InvalidKeyError:
        return False


def _whole(name: str, value: Any, before: Known, now: Known, to_store: ToStore) -> list[Operation]:
    """What is to be written of a field that is one value; `now` becomes what is known of that."""
    if now.encoded is None:
        return [*_without(name, before), _set(name, value, to_store)]
    if before.encoded == now.encoded:
        return []
    if before.encoded is not None and 0 < before.length < now.length and _grew(before, now):
        more = copied(value[before.length : now.length])
        if _behind(before, now) == (_encoded(more) or b"")[_head(len(more)) :]:
            stored = [to_store(name, item, True) for item in more]
            return [Operation("append", field_key(name), stored)]
    whole = copied(value)
    told = known(name, whole)
    now.encoded, now.length = told.encoded, told.length
    return [*_without(name, before), _set(name, whole, to_store)]


def _set(name: str, value: Any, to_store: ToStore) -> Operation:
    return Operation("set", field_key(name), to_store(name, value, False))


def _grew(before: Known, now: Known) -> bool:
    """Whether a list begins with all that it was.

    Encoded, a list is a head, which follows from its length, and its items one behind another;
    no item is the beginning of another.
    """
    old, new = before.encoded or b"", now.encoded or b""
    return new.startswith(old[_head(before.length) :], _head(now.length))


def _behind(before: Known, now: Known) -> bytes:
    """The encoded items of a list behind those that it had."""
    old, new = before.encoded or b"", now.encoded or b""
    return new[_head(now.length) + len(old) - _head(before.length) :]


def _length(encoded: bytes) -> int:
    """How many items a list has, by its encoding: the list itself may have grown since."""
    if encoded[0] < 0xA0:
        return encoded[0] & 0x0F
    return int.from_bytes(encoded[1 : 3 if encoded[0] == 0xDC else 5])


def _head(length: int) -> int:
    """Bytes before the first item of a list."""
    if length < 16:
        return 1
    return 3 if length < 1 << 16 else 5


def _items(
    name: str, value: dict[str, Any], before: Known, now: Known, to_store: ToStore
) -> list[Operation]:
    """What is to be written of a field that lies apart; `now` becomes what is known of that."""
    below = field_key(name) + "/"
    old, new = before.items or {}, now.items or {}
    operations: list[Operation] = []
    for one, encoded in new.items():
        if encoded is not None and old.get(one) == encoded:
            continue
        item = value[one]
        if encoded is not None:
            item = copied(item)
            new[one] = _encoded(item)
        operations.append(Operation("set", below + one, to_store(name, item, True)))
    operations += [Operation("delete", below + one) for one in old if one not in new]
    was, names = list(old), list(new)
    if before.items is None or before.torn or names[: len(was)] != was:
        operations.append(Operation("set", field_key(name), names))
    elif len(names) > len(was):
        operations.append(Operation("append", field_key(name), names[len(was) :]))
    return operations


def _without(name: str, before: Known) -> list[Operation]:
    """Remove the items of a field that lies apart no longer."""
    return [Operation("delete", f"{field_key(name)}/{one}") for one in before.items or ()]
