"""The process whose writes are recorded: `power_work.py FOLDER plain|encrypted MODE SEED LENGTH`.

It creates a store, carries out operations of every kind, closes and opens it again, and says on
stdout how many operations have returned. MODE is a level of durability, or `off`: then SQLite
does not sync at all.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from holdfast import sync
from holdfast.storage.sqlite import files
from holdfast.store.journal import timeline
from prove.ops import Generator, Op, carry_out

SAVE_EVERY = 5
"""Entries between two saves of the index, so that a short run has many."""
LOG_PAGES = 12
"""Pages of SQLite's log after which it is moved into the database, for the same reason."""


def operations(seed: int, length: int) -> list[Op]:
    """What the process does: each kind once in a fixed order, then at random."""
    generator = Generator(seed, scopes=("agent:a", "session:s:1", "global"))
    both = [("agent:a", "main", [("set", "k1", 1)]), ("global", "main", [("append", "log", 1)])]
    ops: list[Op] = [
        ("set", "agent:a", "main", "k0", {"n": 0}),
        ("append", "agent:a", "main", "log", "first"),
        ("change", "id-first", both),
        ("checkpoint", "agent:a", "main", "c0"),
        ("delete", "agent:a", "main", "k0"),
        ("restore", "agent:a", "main", "c0"),
        ("fork", "agent:a", "main", "trial"),
        ("set", "agent:a", "trial", "k4", generator.value()),
        ("adopt", "agent:a", "main", "trial"),
        ("reopen",),
        ("drop", "global"),
        ("set", "global", "main", "k0", "again"),
    ]
    for op in ops:
        generator.model.apply(op)
    while len(ops) < length:
        ops.append(generator.next())
    return ops


def options(folder: Path, mode: str) -> dict[str, Any]:
    """How the store of a recorded run is opened."""
    url = f"sqlite:{folder / 'store.db'}"
    key = f"file:{folder / 'keys' / 'master.key'}" if mode == "encrypted" else None
    return {"url": url, "key": key}


def without_sync() -> None:
    """The control: nothing is ever synced by SQLite."""
    configure = files.configure

    def careless(connection: Any, path: str, *, full: bool) -> None:
        configure(connection, path, full=full)
        connection.execute("PRAGMA synchronous=OFF").fetchall()

    files.configure = careless


def main(place: str, mode: str, level: str, seed: str, length: str) -> None:
    """Carry out the operations; number n on stdout says that n of them have returned."""
    timeline.DELTA_EVERY = SAVE_EVERY
    files.WAL_PAGES = LOG_PAGES
    if level == "off":
        without_sync()
        level = "full"
    how = options(Path(place), mode)

    def say(number: int) -> None:
        os.write(1, b"%d\n" % number)

    store = sync.open(**how, durability=level)
    say(0)
    for number, op in enumerate(operations(int(seed), int(length)), 1):
        if op[0] == "reopen":
            store.close()
            store = sync.open(**how, durability=level)
        else:
            carry_out(store, op)
        say(number)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
