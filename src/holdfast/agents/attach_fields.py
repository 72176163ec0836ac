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


Known = bytes | tuple[int, bytes] | dict[str, bytes | None] | None
"""One field as it was saved, encoded: of a list, its length and its items one behind another; of a
field that lies apart, its items by names. None: it is written again, whatever it is."""


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
    found = reader.versioned((ATTACHED,))
    if not found:
        return Manifest()
    said, entry = found[ATTACHED]
    return Manifest(
        tuple(said["fields"]), frozenset(said["apart"]), said["version"], said["saves"], entry
    )


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields as they are stored, as plain data.

    If single keys come from another state (a recovery of damaged ones, a restore of some, a merge),
    a field may not be there, and the items of one that lies apart may be others than it names. Then
    it holds all that are there, and is written again.
    """

    values: dict[str, Any]
    torn: dict[str, Known]
    """What is known of fields that name others than are there."""

    def known(self, values: Mapping[str, Any]) -> dict[str, Known]:
        """What is to be remembered of fields that hold these values now."""
        return {name: known(name, value) for name, value in values.items()} | self.torn


def read_fields(reader: Reader, manifest: Manifest, wanted: Iterable[str] | None) -> Fields:
    """The stored values of fields, in their order; None means all."""
    chosen = manifest.fields if wanted is None else [n for n in wanted if n in manifest.fields]
    values: dict[str, Any] = {}
    torn: dict[str, Known] = {}
    for name in chosen:
        found = reader.get(field_key(name), MISSING, None, False)
        below = field_key(name) + "/"
        there = reader.items(below, None, "", False)
        items = {key.removeprefix(below): item for key, item in there}
        if found is MISSING and not items:
            continue
        values[name], whole = _agreed(found, items, name in manifest.apart)
        if not whole:
            torn[name] = dict.fromkeys(items)
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
            value = live.copy() if type(live) in (dict, list) else live
            before = self.fields.get(name)
            write = _items if _fits_apart(name, value, before) else _whole
            written, after[name] = write(name, value, before, to_store)
            operations += written
        for name in self.fields.keys() - values.keys():
            operations.append(Operation("delete", field_key(name)))
            operations += _without(name, self.fields[name])
        return operations, after


def known(name: str, value: Any) -> Known:
    """What is to be remembered of a field."""
    if _fits_apart(name, value, None):
        return {one: _encoded(part) for one, part in value.items()}
    return _in_short(value)


def _in_short(value: Any) -> bytes | tuple[int, bytes] | None:
    encoded = _encoded(value)
    if encoded is None or type(value) is not list:
        return encoded
    # Encoded, a list is a head, which follows from its length, and its items one behind another.
    length = len(value)
    return length, encoded[1 if length < 16 else 3 if length < 1 << 16 else 5 :]


def _fits_apart(name: str, value: Any, before: Known) -> bool:
    """Whether it is a long mapping whose names can be parts of keys; those before were."""
    if type(value) is not dict or len(value) < APART:
        return False
    below = field_key(name) + "/"
    new = value.keys() - before.keys() if isinstance(before, dict) else value.keys()
    try:
        return all(type(one) is str and check_key(below + one, owner=True) == below + one
                   for one in new)  # fmt: skip
    except InvalidKeyError:
        return False


def _whole(
    name: str, value: Any, before: Known, to_store: ToStore
) -> tuple[list[Operation], Known]:
    """What is to be written of a field that is one value, and what is known of it then."""
    now = _in_short(value)
    if now is not None and now == before:
        return [], now
    if isinstance(before, tuple) and isinstance(now, tuple):
        length, items = before
        if 0 < length < now[0] and now[1].startswith(items):  # no item is the beginning of another
            more = copied(value[length:])
            behind = _in_short(more)
            stored = [to_store(name, item, True) for item in more]
            if isinstance(behind, tuple):
                now = length + behind[0], items + behind[1]
            return [Operation("append", field_key(name), stored)], now
    if now is not None:
        value = copied(value)
        now = _in_short(value)
    whole = Operation("set", field_key(name), to_store(name, value, False))
    return [*_without(name, before), whole], now


def _items(
    name: str, value: dict[str, Any], before: Known, to_store: ToStore
) -> tuple[list[Operation], Known]:
    """The same of a field that lies apart."""
    below = field_key(name) + "/"
    old = before if isinstance(before, dict) else {}
    now = {one: _encoded(item) for one, item in value.items()}
    operations: list[Operation] = []
    for one, encoded in now.items():
        if encoded is not None and old.get(one) == encoded:
            continue
        item = value[one]
        if encoded is not None:
            item = copied(item)
            now[one] = _encoded(item)
        operations.append(Operation("set", below + one, to_store(name, item, True)))
    operations += [Operation("delete", below + one) for one in old if one not in now]
    was, names = list(old), list(now)
    if names[: len(was)] != was or None in old.values() or not was:
        operations.append(Operation("set", field_key(name), names))
    elif len(names) > len(was):
        operations.append(Operation("append", field_key(name), names[len(was) :]))
    return operations, now


def _without(name: str, before: Known) -> list[Operation]:
    """Remove the items of a field that lies apart no longer."""
    items = before if isinstance(before, dict) else ()
    return [Operation("delete", f"{field_key(name)}/{one}") for one in items]
