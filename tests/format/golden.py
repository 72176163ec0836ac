"""Makes the small stores whose rows are kept in golden.json.

    python tests/format/golden.py     writes golden.json anew

Do that only while no release has been made with the format, or together with a new format
number and a reader of the old one: what is in golden.json stands in people's files.

Time and randomness are fixed. Randomness is drawn by who asks, so that the order in which parts
ask for it does not matter. Compression is off in the rows that are compared byte by byte,
because other versions of the compressors may give other bytes; rows written with it are kept
beside them and only read.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import msgspec

import holdfast
from holdfast import sync
from holdfast.checkpoints.schedule import Cron, Schedule, Schedules, done_until
from holdfast.seal.registry import Registry
from holdfast.seal.sealer import KeySeal, PlainSeal
from holdfast.seal.signer import Signer
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch

FILE = Path(__file__).with_name("golden.json")
FIRST, MASTER, NEXT = (
    hashlib.sha256(f"{which} master key of the golden stores".encode()).digest()
    for which in ("the first", "the", "the next")
)
"""Retired; the one to open them with; the one that they are being rotated to."""
VARIABLE = "HOLDFAST_GOLDEN_KEY"
RANDOM = ("seal.sealer", "seal.ring", "seal.signer", "seal.keys")
ASKS = {
    "Directory._make": "store.core",
    "KeySeal.seal": "seal.sealer",
    "Lanes.move": "store.feed",
    "Leases._freeing": "store.leasing",
    "Leases.take": "store.leasing",
    "Opening.found": "store.opening",
    "Opening.make": "store.opening",
    "Pruner.__init__": "store.pruner",
    "Pruner.take": "store.pruner",
    "Ring.add_epoch.<locals>.add": "seal.ring",
    "Ring.create": "seal.ring",
    "Ring.stage_scope": "seal.ring",
    "Schedules.put": "checkpoints.schedules",
    "Signer.generate": "seal.signer",
    "schedule": "checkpoints.schedules",
    "Subjects._make": "store.subjects",
    "Upload.__init__": "store.uploads",
    "Wrap.wrap": "seal.wrapping",
    "make_secret": "seal.files",
    "new_writer": "seal.sealer",
    "whole_file": "store.files",
}
"""Functions that ask for randomness, and under which name: those of when the files were made."""
LENGTHS = (20, 2000, 20000)
"""Of single records: so short that nothing is compressed, for lz4, for zstd."""
PLACE = b"place"
DATA_KEYS = {1: bytes(range(32))}
Rows = dict[str, str]

_numbers = itertools.count()


@dataclass
class Plan:
    """A registered type."""

    goal: str
    steps: list[str]


def registry() -> Registry:
    """Named types of the golden stores."""
    made = Registry()
    made.register(Plan, name="plan", version=3)
    return made


def noise(length: int, seed: bytes) -> bytes:
    """Bytes that look random and are always the same."""
    return hashlib.shake_256(seed).digest(length)


class Randomness:
    """Stands for os.urandom: by who asks and how often it has asked."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def __call__(self, length: int) -> bytes:
        function = sys._getframe(1).f_code.co_qualname
        name = f"holdfast.{ASKS.get(function, function)}"
        # One writer and one nonce's randomness for all: the content makes nonces differ.
        number = 0 if name == "holdfast.seal.sealer" else self.asked.get(name, 0)
        self.asked[name] = number + 1
        return noise(length, f"{name} {length} {number}".encode())


class Hands(holdfast.Clock):
    """A clock that stands still until it is moved, however often it is asked."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0
        super().__init__(lambda: self.time, lambda: 0.0)

    def move(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        self.time += seconds


@contextmanager
def frozen(*, compress: bool) -> Iterator[Hands]:
    """Fixed randomness and time, frequent saves of the index, early uploads."""
    random = Randomness()
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(mock.patch("os.urandom", random))
        for module in RANDOM:
            enter(mock.patch(f"holdfast.{module}._random", random))
        enter(mock.patch("holdfast.store.journal.timeline.DELTA_EVERY", 6))
        enter(mock.patch("holdfast.store.long.SHORT", 20_000))
        if not compress:
            enter(mock.patch("holdfast.seal.sealer.squeeze", lambda data: (0, data)))
        yield Hands()


def key(master: bytes) -> str:
    """A master key as `open` takes it."""
    os.environ[VARIABLE] = base64.b64encode(master).decode()  # removed again once it is read
    return f"env:{VARIABLE}"


def options(encrypted: bool, master: bytes = MASTER) -> dict[str, Any]:
    """How a golden store is opened."""
    return {"registry": registry(), **({"key": key(master)} if encrypted else {})}


def fill(store: sync.Store, clock: Hands) -> None:
    """Every kind of row, operation and value."""
    agent, shared = store.agent("golden"), store.shared
    agent.set("small", [None, True, -1, 1.5, "text", b"bytes", {"a": 1, 2: "b"}])
    odd = [1 << 70, "\ud800", datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)]
    agent.set("odd", odd, ttl=timedelta(days=365_000), sliding=True)
    agent.set("plan", Plan("ship", [f"step {number}" for number in range(150)]))
    agent.extend("messages", [{"role": "user", "content": "m" * 30 + str(n)} for n in range(90)])
    agent.append("messages", {"role": "assistant", "content": "done"})
    clock.move()
    agent.set("text", "".join(chr(0x61 + byte % 26) for byte in noise(16_500, b"text")) + "é")
    agent.set("bytes", noise(16_500, b"bytes"), expires=datetime(3000, 1, 1, tzinfo=UTC))
    agent.set("map", {f"key {number}": number for number in range(200)})
    with store.acting("tester", correlation="run-1", reason="golden"):
        safe = agent.checkpoint("safe", type="manual", tags=["a", "b"], metadata={"n": 1})
        agent.set("map", {f"key {number}": number * (number != 100) for number in range(200)})
        with store.change(id="change-1") as change:
            change[agent].delete("small")
            change[shared].set("flag", True)
    with store.change() as change:
        change[shared].set("seen", change[agent].exists("plan"))
    clock.move(-3600)
    trial = agent.fork("trial", at=safe)
    trial.set("only here", 1)
    with TemporaryDirectory() as folder:
        Signer.create(f"{folder}/signer")
        agent.cosign(safe, signer=f"file:{folder}/signer")
    agent.restore(safe, reason="back")
    for name in ("first", "first and more"):  # the second is named, for the most part, by places
        with agent.open_write("long") as file:
            file.write(noise(24_000, b"long") + name.encode())
    agent.merge(trial)
    trial.set("only here", 2)
    agent.merge(trial)
    for number in range(14):
        agent.set(f"count/{number % 5}", number)
        clock.move()
    follow_rules(store.workflow("rules"))
    prune_some(store.custom("pruned"))
    agent.set("note", "hunter2" * 50, class_="sensitive")
    store.session("gone").set("x", 1)
    store.delete("session:gone")
    store.session("gone").set("x", 2)
    store.session("erased").set("x", 3)
    store.erase("session:erased")


def follow_rules(state: sync.State) -> None:
    """Declarations, a restore that leaves sticky keys alone, and trims of both forms."""
    state.declare(holdfast.Sticky("done/"))
    state.set("done/1", "before")
    state.extend("list", [f"item {number} " + "x" * 40 for number in range(60)])
    safe = state.checkpoint("rules")
    state.set("done/2", "since")
    state.delete("done/1")
    state.trim("list", keep_last=40)
    state.trim("list", keep_last=2)
    state.restore(safe)


def prune_some(state: sync.State) -> None:
    """Entries that lost their content, and two states below the floor."""
    for number in range(30):
        state.set(f"k{number % 4}", f"{number} " + "x" * 100)
        if number in (8, 16):
            state.checkpoint(f"c{number}")
    state.prune(26)
    state.prune(28, keep=["c8"])


def seal_for_subjects(store: sync.Store) -> None:
    """Values for two persons, one of whom is erased."""
    state = store.custom("people")
    state.set("short", "of Ada", subject="ada")
    state.set("long", noise(16_500, b"sealed"), subject="ada")
    state.append("both", {"said": "by Ada"}, subject="ada")
    state.append("both", {"said": "by Eve"}, subject="eve")
    store.erase_subject("eve")


def turn_keys(store: sync.Store) -> None:
    """A retired master, one that is being rotated, and data keys: rotated, and resealed."""
    store.rotate_master(key(MASTER))
    store.rotate("agent:golden")
    store.agent("golden").set("count/0", "under the new key")
    store.rotate("session:gone")
    store.reseal("session:gone")
    store.begin_rotation(key(NEXT))


def facts(store: sync.Store) -> dict[str, Any]:
    """What a reader must find, in JSON."""
    agent = store.agent("golden")
    point = agent.checkpoints()[-1]
    texts = {key: repr(value) for key, value in agent.items()}
    return {
        "identity": store.identity(),
        "scopes": [str(info.scope) for info in store.scopes().items],
        "values": {key: hashlib.sha256(text.encode()).hexdigest() for key, text in texts.items()},
        "heads": {info.name: info.head for info in agent.timelines()},
        "root": agent.root(),
        "class": agent.item("note").class_,  # type: ignore[union-attr]
        "expires": {key: str(agent.item(key).expires) for key in texts},  # type: ignore[union-attr]
        "checkpoint": [point.id, point.name, point.root, point.hash, point.signed_by],
        "trial": store.agent("golden").on("trial").get("only here"),
        "again": store.session("gone").get("x"),
        "rules": [[key, len(value)] for key, value in store.workflow("rules").items()],
        "pruned": [store.custom("pruned").at(at).get("k1") for at in ("c8", 28)],
        "correlated": [[str(e.scope), e.sequence] for e in store.correlated("run-1")],
    }


def files(store: sync.Store) -> dict[str, str]:
    """What leaves the store, in hexadecimal."""
    agent = store.agent("golden")
    with TemporaryDirectory() as folder:
        agent.export_chain(f"{folder}/chain", feed=True)
        chain = Path(folder, "chain").read_bytes()
    proof = agent.prove("plan", at="safe").to_bytes()
    absent = agent.prove("nothing").to_bytes()
    found = {"proof": proof, "absent": absent, "chain": chain, "witness": store.witness().encode()}
    return {name: data.hex() for name, data in found.items()}


def rows_of(url: str) -> tuple[Rows, Rows]:
    """Records and cells of a storage, in hexadecimal."""
    storage = open_storage(url)
    everything = (b"", b"\xff" * 64)
    records = storage.scan(*everything, limit=100_000)
    cells = storage.cells(*everything, limit=100_000)
    return {k.hex(): v.hex() for k, v in records}, {k.hex(): v.hex() for k, v in cells}


def put_rows(url: str, records: Rows, cells: Rows) -> None:
    """The opposite of `rows_of`."""
    puts = [(bytes.fromhex(k), bytes.fromhex(v)) for k, v in records.items()]
    swaps = [(bytes.fromhex(k), None, bytes.fromhex(v)) for k, v in cells.items()]
    open_storage(url).commit(Batch(puts=puts, cells=list(swaps)))


def fresh_url() -> str:
    """A storage in memory that nobody has used."""
    return f"memory:golden-{next(_numbers)}"


def schedule(store: sync.Store) -> None:
    """Two schedules, added one after the other; neither has run. One is of a job: they are gone."""
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(300, "agent:golden", jitter=30)
    now, when = store._core.clock.claimed(), Cron("0 3 * * *", "Europe/Berlin")
    done = done_until(now // 1_000_000)
    job = Schedule("report", os.urandom(16), when, None, "main", "report", at=now, done=done)
    Schedules(store._core).cells.replace("report", lambda _: msgspec.msgpack.encode(job))


def make(*, encrypted: bool, compress: bool) -> dict[str, Any]:
    """A golden store: its rows, those of its ring, and what is in it."""
    url = fresh_url()
    with (
        frozen(compress=compress) as clock,
        sync.open(url, clock=clock, **options(encrypted, FIRST)) as store,
    ):
        fill(store, clock)
        if encrypted:
            seal_for_subjects(store)
            turn_keys(store)
        assert store.verify().ok
        found = facts(store)
        left = files(store)
        with store.lease("free", owner="tester"):
            pass
        with store.lease("job", duration=30, owner="tester") as lease:
            lease.beat()
            schedule(store)
            cells = rows_of(url)[1]
    made: dict[str, Any] = {"records": rows_of(url)[0], "facts": found, "cells": cells}
    made["files"] = left
    if encrypted:
        made["ring"], made["ring_cells"] = rows_of(f"{url}.keys")
    return made


def seals() -> tuple[PlainSeal, KeySeal]:
    """The seals of single golden records."""
    writer = bytes(range(16))
    return PlainSeal(writer), KeySeal(DATA_KEYS, 1, writer)


def sealed(length: int) -> list[str]:
    """Records of so many letters, sealed plain and encrypted."""
    content = b"a" * length
    with frozen(compress=True):
        return [seal.seal(PLACE, content, bytes(32)).hex() for seal in seals()]


def make_all() -> dict[str, Any]:
    """Both golden stores; of the rows written with compression only those that differ."""
    made: dict[str, Any] = {"seals": {length: sealed(length) for length in LENGTHS}}
    for name, encrypted in (("plain", False), ("encrypted", True)):
        one = make(encrypted=encrypted, compress=False)
        other = make(encrypted=encrypted, compress=True)
        pairs = other["records"].items()
        one["compressed"] = {k: v for k, v in pairs if one["records"].get(k) != v}
        assert other["facts"] == one["facts"]
        assert one["records"].keys() == other["records"].keys()
        made[name] = one
    return made


if __name__ == "__main__":
    FILE.write_text(json.dumps(make_all(), indent=0) + "\n")
    print(f"wrote {FILE.name}: {FILE.stat().st_size} bytes")
