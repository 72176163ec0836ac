"""Damage below the rows: bits of SQLite's own bytes flipped, in headers, cell pointers and keys.

What a row holds is sealed; what SQLite keeps around it is not: the headers of pages, where on its
page each row begins, how long and of which class key and value are, and the index of the keys. In
a small store in a file, plain and encrypted, one bit of that is flipped. Then a fresh handle reads
everything and writes, and another one verifies. Calls fail with errors of Holdfast only, `verify`
not at all. As SQLite finds rows by its index, a read may show an older state, and a write may be
acknowledged on top of it; but then `verify` names a finding.

Nothing is written onto a damaged index, and no older state read from it: in a store with many
scopes, whose index has several levels, any bit of an index page is flipped. Then a fresh handle
reads and writes each of its scopes, and a new one. What was read is the newest, what was
acknowledged is the entry behind the true newest one, no key has two rows, and every row that was
there still is, as the table itself says.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import apsw

from holdfast import sync
from holdfast.errors import StateIntegrityError
from holdfast.storage.sqlite.files import PAGE
from prove.common import Findings, Result, TooMany, folder, pick
from prove.flips import guarded, looks, reads
from prove.sample import Sample, options

LEAF_INDEX, LEAF_TABLE, INNER_INDEX, INNER_TABLE = 10, 13, 2, 5
HEADER = 30
"""Bytes from a cell's beginning in which all that SQLite keeps of a row lies, and its key."""
SCHEMA = 120
"""The same for rows that say which tables there are: all of such a row."""


def own_bytes(data: bytes) -> Iterator[int]:
    """Places of the bytes that are SQLite's, not a row's."""
    for page in range(0, len(data), PAGE):
        at = page + (100 if page == 0 else 0)
        kind = data[at]
        yield from range(page, at)
        if kind not in (LEAF_INDEX, LEAF_TABLE, INNER_INDEX, INNER_TABLE):
            continue
        head = 12 if kind in (INNER_INDEX, INNER_TABLE) else 8
        cells = int.from_bytes(data[at + 3 : at + 5], "big")
        yield from range(at, at + head + 2 * cells)
        for number in range(cells):
            pointer = at + head + 2 * number
            start = page + int.from_bytes(data[pointer : pointer + 2], "big")
            size = HEADER if page else SCHEMA
            yield from range(start, min(start + size, page + PAGE))


def inspect(where: dict[str, Any], sample: Sample) -> Iterator[str]:
    """What is wrong with a damaged store."""
    opened, store, wrong = guarded(lambda: sync.open(**where, create=False))
    if wrong:
        yield f"open: {wrong}"
    if not opened:
        return
    false = []
    with store:
        for what, read, truth in reads(sample.model):
            returned, value, wrong = guarded(lambda read=read: read(store))
            if wrong:
                yield f"reading {what}: {wrong}"
            elif returned and value != truth:
                false.append(what)
        wrongs = [guarded(look)[2] for look in looks(store)]
        state = store.scope("agent:a")
        returned, _, wrong = guarded(lambda: state.set("written", "on top"))
        yield from filter(None, [*wrongs, wrong])
    opened, store, wrong = guarded(lambda: sync.open(**where, create=False))
    yield from filter(None, [wrong])
    if not opened:
        return
    with store:
        if returned:
            kept, value, wrong = guarded(lambda: store.scope("agent:a").get("written"))
            yield from filter(None, [wrong])
            if kept and value != "on top":
                false.append("what was written on top")
        yield from _verify(store, false)


def _verify(store: sync.Store, false: list[str]) -> Iterator[str]:
    try:
        report = store.verify()
    except StateIntegrityError as error:
        yield f"verify was stopped by {type(error).__name__}: {error}"
        return
    except Exception as error:
        yield f"verify failed with {type(error).__name__}: {error}"
        return
    if false and not report.findings:
        yield f"{false[0]} was read wrong, and verify found nothing"


def damaged(encrypted: bool, seed: int, scale: int) -> tuple[int, int, list[str]]:
    """(damages, bits that are SQLite's, findings) of one kind of store."""
    findings = Findings()
    draw = random.Random(seed)
    with folder() as place:
        sample = Sample(str(place / "store.db"), encrypted).build()
        sample.storage.close()
        sample.ring_storage.close()
        files = {path: path.read_bytes() for path in place.iterdir()}
        main = place / "store.db"
        bits = [(at, bit) for at in sorted(set(own_bytes(files[main]))) for bit in range(8)]
        chosen = draw.sample(bits, min(len(bits), pick(scale, 60, 1000, 20_000)))
        count = 0
        try:
            for at, bit in [(-1, 0), *chosen]:
                _restore(place, files)
                if at >= 0:
                    data = bytearray(files[main])
                    data[at] ^= 1 << bit
                    main.write_bytes(data)
                count += 1
                for wrong in inspect(options(str(main), encrypted), sample):
                    mode = "encrypted" if encrypted else "plain"
                    where = f"bit {bit} of byte {at % PAGE} of page {at // PAGE}"
                    findings.note(f"{mode}: {where}: {wrong}")
        except TooMany:
            pass
        return count, len(bits), findings


SCOPES, TURNS = 40, 20
NAMES = [f"agent:a{number}" for number in range(SCOPES)]


def _table(path: Path) -> list[tuple[bytes, bytes]]:
    """Every row, by the table alone."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return list(connection.execute("SELECT k, v FROM records NOT INDEXED"))
    finally:
        connection.close()


def _many(path: Path) -> dict[str, int]:
    """A store whose index has two levels; the newest entry of each scope."""
    with sync.open(f"sqlite:{path}", durability="normal") as store:
        for turn in range(TURNS):
            for name in NAMES:
                store.scope(name).set("turn", turn)
        return {name: store.scope(name).log(limit=1)[0].sequence for name in NAMES}


def _onto(path: Path, newest: dict[str, int], before: list[tuple[bytes, bytes]]) -> Iterator[str]:
    """What is wrong with writes to a store whose index is damaged."""
    opened, store, wrong = guarded(
        lambda: sync.open(f"sqlite:{path}", create=False, durability="normal")
    )
    yield from filter(None, [wrong])
    if not opened:
        return
    with store:
        for name, last in [*newest.items(), ("agent:new", 0)]:
            state = store.scope(name)
            returned, read, wrong = guarded(lambda state=state: state.get("turn"))
            yield from filter(None, [wrong])
            if returned and read != (TURNS - 1 if last else None):
                yield f"an older state of {name} was read without an error"
            done, written, wrong = guarded(lambda state=state: state.set("turn", "on top"))
            yield from filter(None, [wrong])
            if done and written != last + 1:
                yield f"entry {written} of {name} was written onto an older state"
    after = _table(path)
    if len(dict(after)) != len(after):
        yield "two rows have one key"
    if not set(before) <= set(after):
        yield "a row is gone"


def written_onto(seed: int, scale: int) -> tuple[int, int, list[str]]:
    """(damages, bits of index pages, findings) of one store with many scopes."""
    findings = Findings()
    draw = random.Random(seed)
    with folder() as place:
        main = place / "store.db"
        newest = _many(main)
        files = {path: path.read_bytes() for path in place.iterdir()}
        before, data = _table(main), files[main]
        pages = [at for at in range(PAGE, len(data), PAGE) if data[at] in (LEAF_INDEX, INNER_INDEX)]
        count = pick(scale, 24, 200, 5000)
        try:
            for _ in range(count):
                _restore(place, files)
                page = draw.choice(pages)
                # The first bytes of a page are few, and do the most: each third one is among them.
                at = page + draw.randrange(PAGE if draw.randrange(3) else 40)
                bit = draw.randrange(8)
                main.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
                for wrong in _onto(main, newest, before):
                    where = f"bit {bit} of byte {at % PAGE} of page {at // PAGE}"
                    findings.note(f"index: {where}: {wrong}")
        except TooMany:
            pass
        return count, len(pages) * PAGE * 8, findings


def _restore(place: Path, files: dict[Path, bytes]) -> None:
    for path in place.iterdir():
        if path not in files:
            path.unlink()
    for path, data in files.items():
        path.write_bytes(data)


def run(seed: int, scale: int) -> Result:
    """Damage a plain and an encrypted store."""
    with ProcessPoolExecutor(2) as pool:
        onto = pool.submit(written_onto, seed, scale)
        parts = list(pool.map(damaged, (False, True), (seed, seed), (scale, scale)))
        parts.append(onto.result())
    count, bits = sum(part[0] for part in parts), sum(part[1] for part in parts)
    scope = f"a sample of {bits} bits that are SQLite's own, plain and encrypted, and of an index"
    return Result(f"{count} damages", scope, seed, [text for part in parts for text in part[2]])
