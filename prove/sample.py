"""A small store with every kind of row, what is in it, and every way to damage it."""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from holdfast import sync
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.store import long as write
from holdfast.store.journal import timeline
from holdfast.store.names import rowkinds as rows
from prove.ops import Op, Plain, carry_out

KEY = "HOLDFAST_PROVE_KEY"
Rows = dict[bytes, bytes]


def options(name: str, encrypted: bool) -> dict[str, Any]:
    """How a sample is opened: in a file if its name is a path, else in this process's memory."""
    os.environ.setdefault(KEY, base64.b64encode(bytes(range(32))).decode())
    engine = "sqlite" if "/" in name else "memory"
    return {"url": f"{engine}:{name}", "key": f"env:{KEY}" if encrypted else None}


def script() -> list[Op]:
    """Operations that leave rows of every kind, in several scopes, lines and incarnations."""
    text = "".join(f"line {n} of a long text\n" for n in range(330))
    table = [{"n": n, "text": f"item {n}"} for n in range(120)]
    both = [
        ("agent:a", "main", [("set", "k3", "both")]),
        ("session:s", "main", [("set", "k3", "both")]),
    ]
    return [
        ("set", "session:s", "main", "k1", "of the first life"),
        ("set", "session:s", "main", "k2", "of the first life only"),
        ("drop", "session:s"),
        ("set", "custom:gone", "main", "k1", "of a scope that was deleted for good"),
        ("drop", "custom:gone"),
        ("set", "agent:a", "main", "k1", {"plan": "ship", "step": 1}),
        ("set", "agent:a", "main", "text", text),
        ("append", "agent:a", "main", "log", {"role": "user", "content": "hello"}),
        ("set", "session:s", "main", "k1", "of the second life"),
        ("change", "id-1", both),
        ("checkpoint", "agent:a", "main", "c1"),
        ("set", "agent:a", "main", "table", table),
        ("append", "agent:a", "main", "table", {"n": 120, "text": "appended"}),
        ("delete", "agent:a", "main", "k1"),
        ("checkpoint", "agent:a", "main", "c2"),
        ("restore", "agent:a", "main", "c1"),
        ("fork", "agent:a", "main", "trial"),
        ("set", "agent:a", "trial", "k1", "tried"),
        ("write", "agent:a", "main", "long", 3 * text.encode()),
        ("set", "agent:a", "main", "k2", "after the restore"),
        ("change", "id-2", [("session:s", "main", [("append", "log", "x" * 40)])]),
    ]


@dataclass
class Sample:
    """A store as it should be."""

    name: str
    encrypted: bool
    ops: list[Op] = field(default_factory=script)
    model: Plain = field(default_factory=Plain)
    rows: Rows = field(default_factory=dict)
    ring: Rows = field(default_factory=dict)
    middle: Rows = field(default_factory=dict)
    """The rows as they were half way."""
    witness: str = ""
    storage: Storage = field(init=False)
    ring_storage: Storage = field(init=False)

    def build(self) -> Sample:
        """Make it. The handles stay open, and with them the memory."""
        often, timeline.DELTA_EVERY = timeline.DELTA_EVERY, 4
        short, write.SHORT = write.SHORT, 0
        try:
            self._build()
        finally:
            timeline.DELTA_EVERY, write.SHORT = often, short
        return self

    def _build(self) -> None:
        ops = self.ops
        url = options(self.name, self.encrypted)["url"]
        self.storage = open_storage(url)
        self.ring_storage = open_storage(url + ".keys")
        with sync.open(**options(self.name, self.encrypted)) as store:
            for number, op in enumerate(ops):
                carry_out(store, op)
                self.model.apply(op)
                if number == len(ops) // 2:
                    self.middle = all_rows(self.storage)
            self.witness = store.witness()
        self.rows = all_rows(self.storage)
        self.ring = all_rows(self.ring_storage)

    def open(self) -> sync.Store:
        """A fresh handle that knows nothing yet."""
        return sync.open(**options(self.name, self.encrypted), create=False)


def all_rows(storage: Storage) -> Rows:
    """Every record of a storage."""
    return dict(storage.scan(b"", b"\xff" * 64, limit=1_000_000))


def place(storage: Storage, changes: dict[bytes, bytes | None]) -> None:
    """Overwrite rows, or remove them, as no part of Holdfast ever does."""
    storage.commit(Batch(drops=list(changes)))
    storage.commit(Batch(puts=[(key, row) for key, row in changes.items() if row is not None]))


@dataclass(frozen=True)
class Damage:
    """Rows as somebody left them, and what is promised about that."""

    what: str
    changes: dict[bytes, bytes | None]
    stale: bool = False
    """Reads may show less or an older state; `verify` says so."""
    witnessed: bool = False
    """Only a witness shows it: what is left is a store as it once was."""
    ring: bool = False


def kind(key: bytes) -> str:
    """The letter of a row."""
    return key[:1].decode("latin-1")


HEADER = 40
"""Bytes at the beginning of a row in which every bit has a meaning of its own."""


def flips(found: Rows, step: int, start: int, *, ring: bool = False) -> Iterator[Damage]:
    """One bit changed: with step 1 every bit, else one of each `step` bits, and all bits of the
    header of one row of each kind."""
    number = start
    whole = {kind(key): key for key in found}
    for key, row in found.items():
        for bit in range(len(row) * 8):
            number += 1
            if number % step == 0 or (bit < HEADER * 8 and whole[kind(key)] == key):
                byte = bytearray(row)
                byte[bit // 8] ^= 1 << bit % 8
                name = _name(key, ring)
                yield Damage(f"{name} bit {bit} flipped", {key: bytes(byte)}, ring=ring)


def _name(key: bytes, ring: bool) -> str:
    return f"ring row {kind(key)}" if ring else rows.describe(key)


def drops(found: Rows, *, ring: bool = False) -> Iterator[Damage]:
    """Each row missing. What lists scopes, lines and entries may then show less."""
    for key in found:
        stale = not ring and kind(key) in "DTEFIR"
        yield Damage(f"{_name(key, ring)} dropped", {key: None}, stale=stale, ring=ring)


def swaps(found: Rows, *, ring: bool = False) -> Iterator[Damage]:
    """Each pair of rows of one kind exchanged."""
    for a, b in combinations(sorted(found), 2):
        if kind(a) == kind(b) and found[a] != found[b]:
            name = f"{_name(a, ring)} and {_name(b, ring)} swapped"
            yield Damage(name, {a: found[b], b: found[a]}, ring=ring)


def replays(found: Rows, twin: Rows) -> Iterator[Damage]:
    """Genuine rows where they do not belong: a place that is free, or another store's."""
    for key, row in found.items():
        for free in _free_places(key, found):
            if row:
                yield Damage(f"{rows.describe(key)} again as {rows.describe(free)}", {free: row})
    theirs = {k: sorted(key for key in twin if kind(key) == k) for k in "MDTEVSNFI"}
    for letter, keys in theirs.items():
        mine = sorted(key for key in found if kind(key) == letter)
        for own, other in zip(mine, keys, strict=False):
            if found[own] != twin[other]:
                name = f"{rows.describe(own)} of another store in its place"
                yield Damage(name, {own: twin[other]})
            if other not in found:
                name = f"{rows.describe(other)} of another store added"
                yield Damage(name, {other: twin[other]})


def _free_places(key: bytes, found: Rows) -> list[bytes]:
    """Places of the same kind that are free: the next one, on this and on other lines, there or
    not; and beside it, under a key that is cut or has a byte more."""
    letter = kind(key)
    if letter in "ESVN":
        lines = {k[:9] for k in found if kind(k) == "E"}
        size = len(key) - 9
        places = []
        for line in lines:
            mine = [k for k in found if k[:9] == key[:1] + line[1:]]
            last = max(mine)[9:] if mine else bytes(size)
            next_ = (int.from_bytes(last, "big") + 1).to_bytes(size, "big")
            places.append(key[:1] + line[1:] + next_)
        none = key[:7] + (max(int.from_bytes(line[7:], "big") for line in lines) + 1).to_bytes(
            2, "big"
        )
        return [*places, none + key[9:], key[:-1], key + b"\0"]
    next_key = (int.from_bytes(key, "big") + 1).to_bytes(len(key), "big")
    if letter == "D":
        next_key = key[:17] + (int.from_bytes(key[17:21], "big") + 1).to_bytes(4, "big") + b"\0"
    if letter == "M":
        next_key = key + b"2"
    return [next_key] if next_key not in found else []


def put_back(sample: Sample) -> Iterator[Damage]:
    """Older states, whole and in part."""
    later = {key: None for key in sample.rows if key not in sample.middle}
    yield Damage("the whole store put back", dict(later), stale=True, witnessed=True)
    for number in {key[:7][1:] for key in sample.rows if kind(key) == "E"}:
        mine = {key: None for key in later if kind(key) in "EVSNT" and key[1:7] == number}
        if mine:
            yield Damage(f"scope {number.hex()} put back", dict(mine), stale=True)
    feed = {key: None for key in later if kind(key) == "F"}
    yield Damage("the feed put back", dict(feed), stale=True)


def damages(sample: Sample, twin: Sample, step: int, draw: random.Random) -> Iterator[Damage]:
    """All of it; flips are thinned out by `step`."""
    yield from drops(sample.rows)
    yield from swaps(sample.rows)
    yield from replays(sample.rows, twin.rows)
    yield from put_back(sample)
    yield from flips(sample.rows, step, draw.randrange(step))
    if sample.encrypted:
        yield from drops(sample.ring, ring=True)
        yield from swaps(sample.ring, ring=True)
        yield from flips(sample.ring, step, draw.randrange(step), ring=True)
