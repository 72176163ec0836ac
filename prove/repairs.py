"""Damaged files mended: a store's file damaged anywhere, then `holdfast repair`.

Bits flipped in random pages, in pages of the index, in headers of pages and in the schema's text;
the file cut off at any byte; up to a quarter of its pages gone; its first pages of an older time,
as in a copy that was made while others wrote. Each without a copy, with an older one and with a
current one. What is damaged is found, unless every row is there as it was. After the repair, with a
current copy every row is there; with an older one all but rows that exist nowhere else, each of
which the repair names or `verify` tells of; damage of the index and of the schema loses nothing
without any copy. No advice is given that was followed already. What cannot be healed can be stated
as lost, or the repair says that only a whole copy helps.
"""

from __future__ import annotations

import io
import os
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from itertools import repeat
from pathlib import Path
from typing import Any

import apsw

from holdfast import sync
from holdfast.storage.sqlite.files import PAGE
from holdfast.storage.sqlite.rebuild import look
from prove.common import Findings, Result, TooMany, folder, pick

KINDS = {
    "page": (8, 200, 2000),
    "index": (6, 100, 1000),
    "header": (4, 50, 500),
    "cut": (2, 20, 200),
    "gone": (2, 20, 200),
    "torn": (2, 20, 200),
}
SCHEMA = (2, 20, 200)
COPIES = ("none", "older", "current")
LEAF_INDEX, INNER_INDEX, LEAF_TABLE, INNER_TABLE = 10, 2, 13, 5
Rows = dict[tuple[str, bytes], bytes]


def _rows(path: Path) -> Rows:
    """Every row and cell, by the tables alone."""
    connection = apsw.Connection(str(path))
    try:
        return {
            (name, key): value
            for name in ("records", "cells")
            for key, value in connection.execute(f"SELECT k, v FROM {name} NOT INDEXED")
        }
    finally:
        connection.close()


def _made(place: Path) -> tuple[Rows, Rows]:
    """A store, a current and an older copy of it; the rows of the store and of the older one."""
    path = place / "store.db"

    def work(turns: range) -> None:
        with sync.open(f"sqlite:{path}", durability="normal") as store:
            for turn in turns:
                for name in "abcdef":
                    state = store.agent(name)
                    state.set("turn", turn)
                    state.set(f"text{turn % 3}", f"{turn} " * 400)
                    if turn % 7 == 0:
                        state.checkpoint(f"at {turn}")
            with store.lease("work", duration=60):
                pass

    work(range(20))
    older = _rows(path)
    for end in ("", ".sign"):
        shutil.copy(f"{path}{end}", f"{place / 'older.db'}{end}")
    work(range(20, 30))
    for end in ("", ".sign"):
        shutil.copy(f"{path}{end}", f"{place / 'current.db'}{end}")
    return _rows(path), older


def places(data: bytes, kind: str, draw: random.Random) -> int:
    """A byte to be damaged."""
    if kind == "schema":
        first = data.find(b"CREATE TABLE")
        return draw.randrange(first - 40, PAGE)
    index = [at for at in range(PAGE, len(data), PAGE) if data[at] in (LEAF_INDEX, INNER_INDEX)]
    page = draw.choice(index if kind == "index" else range(0, len(data), PAGE))
    return page + draw.randrange(12 if kind == "header" else PAGE)


def _damage(data: bytes, older: bytes, kind: str, draw: random.Random) -> tuple[bytes, str]:
    """A file's content, damaged, and where."""
    if kind == "torn":
        end = draw.randint(1, len(older) // PAGE) * PAGE
        return older[:end] + data[end:], f"older up to page {end // PAGE}"
    if kind == "cut":
        end = draw.randrange(len(data))
        return data[:end], f"behind byte {end}"
    made = bytearray(data)
    if kind == "gone":
        pages = draw.sample(range(len(data) // PAGE), draw.randint(2, len(data) // PAGE // 4))
        for page in pages:
            made[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
        return made, f"pages {sorted(pages)}"
    at, bit = places(data, kind, draw), draw.randrange(8)
    made[at] ^= 1 << bit
    return made, f"bit {bit} of byte {at % PAGE} of page {at // PAGE}"


def _holdfast(path: Path, *words: str) -> tuple[int, str]:
    """Run a command here; its exit code and all that it says."""
    from holdfast.cli.main import main

    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main([*words, "--store", str(path)])
    return code, said.getvalue()


def _repaired(path: Path, kind: str, copy: str, truth: Rows, older: Rows) -> Iterator[str]:
    """What is wrong with the repair of a damaged file."""
    try:
        noticed = bool(look(str(path)))
    except Exception as error:
        noticed = True
        if type(error).__name__ not in ("NotAStoreError", "ForeignSchemaError"):
            yield f"looking at it failed with {type(error).__name__}: {error}"
    before = _holdfast(path, "verify")
    if not noticed and before[0] == 0:
        if _rows(path) != truth:
            yield "a row is another, and nothing was found"
        return
    with_copy = [] if copy == "none" else ["--copy", f"sqlite:{path.parent / copy}.db"]
    code, said = _holdfast(path, "repair", "--yes", *with_copy)
    if code not in (0, 1):
        if copy != "none" or kind in ("index", "schema"):
            yield f"repair ended with {code}: {said[-300:]}"
        return
    if with_copy and "(--copy)" in said:
        yield f"a copy was given, and is asked for: {said[-300:]}"
    now = _rows(path)
    missing = [key for key, row in truth.items() if key[0] == "records" and now.get(key) != row]
    if copy == "current" or (copy == "none" and kind in ("index", "schema")):
        if missing or code:
            yield f"{len(missing)} rows are not as they were, exit {code}: {said[-300:]}"
        return
    again, told = _holdfast(path, "verify")
    if kind == "torn" and missing and not again and "lost" not in said + told:
        yield f"{len(missing)} rows are of an older time, and nobody says so: {said[-300:]}"
    if copy == "older":
        held = [key for key in missing if older.get(key) == truth[key]]
        if held:
            yield f"{len(held)} rows that the older copy has are not healed: {said[-300:]}"
        if missing and not again and "lost" not in said + told:
            yield f"{len(missing)} rows are gone, and nobody says so: {said[-300:]}"
    if again:
        code, said = _holdfast(path, "repair", "--yes", "--accept-loss", *with_copy)
        known = "whole copy of the store" in said or "no strategy serves" in said
        if code and not known:
            yield f"there is no way back: {said[-300:]}"


def damaged(copy: str, seed: int, scale: int) -> tuple[int, list[str]]:
    """How many files were damaged and mended with a copy of one kind, and what was found."""
    findings, count = Findings(), 0
    draw = random.Random(f"{seed} {copy}")
    with folder() as place:
        truth, older = _made(place)
        files = {path: path.read_bytes() for path in place.iterdir()}
        main = place / "store.db"
        work = [kind for kind in KINDS for _ in range(pick(scale, *KINDS[kind]))]
        work += ["schema"] * pick(scale, *SCHEMA)
        try:
            for kind in work:
                for path in place.iterdir():
                    if path not in files:
                        path.unlink()
                for path, data in files.items():
                    path.write_bytes(data)
                data, where = _damage(files[main], files[place / "older.db"], kind, draw)
                main.write_bytes(data)
                count += 1
                for wrong in _repaired(main, kind, copy, truth, older):
                    findings.note(f"{kind}, copy {copy}: {where}: {wrong}")
        except TooMany:
            pass
    return count, findings


def run(seed: int, scale: int) -> Result:
    """Damage and mend with each kind of copy."""
    os.environ.pop("HOLDFAST_KEY", None)
    with ProcessPoolExecutor(2) as pool:
        parts: list[Any] = list(pool.map(damaged, COPIES, repeat(seed), repeat(scale)))
    count = sum(part[0] for part in parts)
    scope = "bits, ends and pages of files; without, with an older and a current copy"
    return Result(
        f"{count} files mended", scope, seed, [text for part in parts for text in part[1]]
    )
