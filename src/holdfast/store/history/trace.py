"""What entries wrote: values as the journal holds them, without building older states.

Looking at many points one after the other by `at` would fold the index once for each; entries
that set a key whole, or append to it, hold the value themselves.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import DamagedRecordError
from holdfast.seal.codec import Codec, Typed
from holdfast.store.history.checkpoint import History
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names import rowkinds
from holdfast.store.tree import refs
from holdfast.store.tree.value import AHEAD

_decode_pack = msgspec.msgpack.Decoder(list[bytes]).decode

PATCHED: Any = object()
"""Stands for a value that an entry changed in parts, or that was written ahead of it: `at` its
sequence has it whole."""


class Trace(NamedTuple):
    """One operation of an entry."""

    sequence: int
    kind: str
    """set, append, delete; or the kind of an entry that names no key (restore, checkpoint …)"""
    key: str
    value: Any
    """What was set, the list of what was appended, None, or `PATCHED`"""


def trace(
    history: History, keys: Container[str] | None, low: int, high: int | None = None
) -> Iterator[Trace]:
    """Operations of entries low..high on these keys (None: on all), oldest first.

    Objects of registered types are given as `Typed`. Each entry is checked as on every read.
    """
    ledger: Ledger | None = None
    for row_key, _, body in history.entries(newest_first=False, low=low, high=high):
        ledger = ledger or history.points.line().ledger
        sequence = rowkinds.sequence_of(row_key)
        atoms = iter(_atoms(ledger, row_key, body))
        codec = ledger.codec.plain_reader
        for op in body.ops:
            kind = op[0]
            if kind == entry.META:
                continue
            if kind > entry.DELETE:
                yield Trace(sequence, entry.NAMES.get(kind, "?"), "", None)
                continue
            wanted = keys is None or op[1] in keys
            if kind == entry.PATCH:
                _pass_over(op[2], atoms)
                value = PATCHED
            elif kind == entry.SET and op[2] != 1 and op[2][0] == AHEAD:
                value = PATCHED
            elif kind == entry.DELETE:
                value = None
            else:
                parts = op[2] if kind == entry.APPEND else [op[2]]
                found = _values(parts, atoms, codec if wanted else None)
                value = found if kind == entry.APPEND else found[0]
            if wanted:
                yield Trace(sequence, entry.NAMES[kind], op[1], value)


def _atoms(ledger: Ledger, row_key: bytes, body: Body) -> list[bytes]:
    """All atoms of an entry, those in its packs too."""
    if not body.packs:
        return body.atoms
    found = list(body.atoms)
    line = rowkinds.line(b"V", ledger.number, rowkinds.line_of(row_key))
    sequence = rowkinds.sequence_of(row_key)
    keys = [rowkinds.pack(line, sequence, ordinal + 1) for ordinal in range(len(body.packs))]
    for key, row, commitment in zip(keys, ledger.storage.get(keys), body.packs, strict=True):
        plain = ledger.open_row(key, row)
        if ledger.commit_pack(plain) != commitment:
            raise ledger.damage(key, "it is not the one that its entry commits to")
        found.extend(_decode_pack(plain))
    return found


def _values(parts: list[Any], atoms: Iterator[bytes], codec: Codec | None) -> list[Any]:
    """The values that shapes describe; without a codec the atoms are only passed over."""
    found: list[Any] = []
    for part in parts:
        if type(part) is int:
            for _ in range(part):
                data = next(atoms)
                found.append(codec.decode(data) if codec else None)
        else:
            found.append(_value(part, atoms, codec))
    return found


def _value(shape: list[Any], atoms: Iterator[bytes], codec: Codec | None) -> Any:
    kind = shape[0]
    if kind == 5:
        return Typed(shape[1], shape[2], _value(shape[3], atoms, codec))
    if kind == refs.LIST:
        return _values(shape[1], atoms, codec)
    if kind == refs.MAP:
        return dict(zip(shape[1], _values(shape[2], atoms, codec), strict=True))
    if kind in (refs.BYTES, refs.TEXT):
        chunks = _values([shape[1]], atoms, codec)
        if codec is None:
            return None
        data = b"".join(chunks)
        return data if kind == refs.BYTES else data.decode()
    raise DamagedRecordError("an entry describes a value in a way that is not known")


def _pass_over(steps: list[Any], atoms: Iterator[bytes]) -> None:
    """Take the atoms of a patch."""
    for step in steps:
        if len(step) == 2:
            _pass_over(step[1], atoms)
        else:
            _values(step[3], atoms, None)
