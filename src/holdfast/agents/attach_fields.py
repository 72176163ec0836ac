"""What an attached agent keeps, field by field, and what of it differs from what was saved.

Below `$agent/attached`:

    $agent/attached                 fields, version, count of saves
    $agent/attached/<field>         the field's value

An earlier version kept the items of a long mapping as a key each, `<field>/<name>`, and their names
in order as the field's value (`apart`); such a field becomes one value with the next save.

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


def _hook(value: Any) -> Any:
    if is_model(type(value)):
        return value.model_dump()
    raise TypeError  # it is not compared, but written each time


_encoder = msgspec.msgpack.Encoder(enc_hook=_hook)
Known = bytes | tuple[int, bytes] | None
"""One field as it was saved, encoded: of a list, its length and its items one behind another.
None: it is written again, whatever it is."""


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
        told = {"fields": list(self.fields), "apart": sorted(self.apart)}
        return {**told, "version": self.version, "saves": self.saves}


def read_manifest(reader: Reader) -> Manifest:
    """What is stored of an attached agent."""
    found = reader.versioned((ATTACHED,))
    if not found:
        return Manifest()
    said, entry = found[ATTACHED]
    fields, apart = tuple(said["fields"]), frozenset(said["apart"])
    return Manifest(fields, apart, said["version"], said["saves"], entry)


def read_fields(reader: Reader, manifest: Manifest, wanted: Iterable[str] | None) -> dict[str, Any]:
    """The stored values of fields as plain data, in their order; None means all.

    One may not be there, if a single key came from another state.
    """
    chosen = manifest.fields if wanted is None else [n for n in wanted if n in manifest.fields]
    found = {name: reader.get(field_key(name), MISSING, None, False) for name in chosen}
    for name in manifest.apart.intersection(found):
        below, names = field_key(name) + "/", found[name]
        items = {key[len(below) :]: one for key, one in reader.items(below, None, "", False)}
        listed = names if isinstance(names, list) else []
        found[name] = {one: items[one] for one in listed if one in items} | items
    return {name: value for name, value in found.items() if value is not MISSING}


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

    @classmethod
    def of(cls, manifest: Manifest, values: Mapping[str, Any]) -> Saved:
        """What is to be remembered where these values are stored."""
        apart = manifest.apart
        return cls(manifest, {n: None if n in apart else _in_short(v) for n, v in values.items()})

    def differing(
        self, values: Mapping[str, Any], to_store: ToStore
    ) -> tuple[list[Operation], dict[str, Known]]:
        """What has to be written so that values are stored; and what is known then."""
        operations: list[Operation] = []
        after: dict[str, Known] = {}
        for name, live in values.items():
            value = live.copy() if type(live) in (dict, list) else live
            written, after[name] = _written(name, value, self.fields.get(name), to_store)
            operations += written
        gone = [field_key(name) for name in self.fields.keys() - values.keys()]
        return [*operations, *(Operation("delete", key) for key in gone)], after


def _in_short(value: Any) -> bytes | tuple[int, bytes] | None:
    """The value in short, to compare with; None if it cannot be encoded so."""
    try:
        encoded = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    if type(value) is not list:
        return encoded
    # Encoded, a list is a head, which follows from its length, and its items one behind another.
    length = len(value)
    return length, encoded[1 if length < 16 else 3 if length < 1 << 16 else 5 :]


def _written(
    name: str, value: Any, before: Known, to_store: ToStore
) -> tuple[list[Operation], Known]:
    """What is to be written of a field, and what is known of it then."""
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
    return [Operation("set", field_key(name), to_store(name, value, False))], now
