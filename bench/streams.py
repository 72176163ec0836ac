"""Long values: how fast they go in and out, beside copying the file, and in how much memory."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

from common import Place, Row, at, at_most, in_child, median, place, told

PIECE = 1 << 20
MEMORY = 100
"""MB of the whole process, interpreter included."""


def run(quick: bool) -> list[Row]:
    """1 GB (quick: 64 MB) in and out, the same once more, and with a small edit."""
    size = 64 if quick else 1024
    with place() as here:
        folder = str(here.folder.parent)
        _make(here, size)
        copies = [_copied(here) for _ in range(3 if quick else 1)]
        wrote = in_child("streams:write", folder=folder)
        read = in_child("streams:read", folder=folder)
        again = in_child("streams:write", folder=folder)
        _edit(here)
        edited = in_child("streams:write", folder=folder)
    copy = size / median(copies)
    name = f"{size} MB"
    return [
        at_most(f"{name} written: memory of the process", wrote["memory"], MEMORY, "MB"),
        at_most(f"{name} read: memory of the process", read["memory"], MEMORY, "MB"),
        _speed(f"{name} written", size / wrote["seconds"], copy),
        _speed(f"{name} read", size / read["seconds"], copy),
        at_most(f"the same {name} once more: stored", again["stored"] / 1e6, 0.5, "MB"),
        at_most(f"{name} with ten bytes put in: stored", edited["stored"] / 1e6, 1, "MB"),
        told(f"{name} copied as a file, with fsync", copy, "MB/s"),
    ]


def _speed(name: str, speed: float, copy: float) -> Row:
    return told(name, speed, "MB/s", note=f"{copy / speed:.1f} times as long as copying the file")


def _source(here: Place) -> Path:
    return here.folder.parent / "source.bin"


def _make(here: Place, size: int) -> None:
    draw = random.Random(1)
    with _source(here).open("wb") as file:
        for _ in range(size):
            file.write(draw.randbytes(PIECE))


def _edit(here: Place) -> None:
    """Put ten bytes into the middle of the file."""
    source, made = _source(here), here.folder.parent / "edited.bin"
    half = source.stat().st_size // 2
    with source.open("rb") as old, made.open("wb") as new:
        for start in range(0, half, PIECE):
            new.write(old.read(min(PIECE, half - start)))
        new.write(b"ten bytes!")
        shutil.copyfileobj(old, new, PIECE)
    made.replace(source)


def _copied(here: Place) -> float:
    """Seconds to copy the file and bring the copy to the disk."""
    target = here.folder.parent / "copy.bin"
    begun = time.perf_counter()
    with _source(here).open("rb") as old, target.open("wb") as new:
        while piece := old.read(PIECE):
            new.write(piece)
        new.flush()
        os.fsync(new.fileno())
    seconds = time.perf_counter() - begun
    target.unlink()
    return seconds


def write(folder: str) -> dict[str, Any]:
    """Put the file into a store, in a process of its own."""
    here = at(folder)
    with here.sync(counted=True) as store:
        state = store.agent("a")
        begun = time.perf_counter()
        state.put_file("file", _source(here))
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "stored": here.counting.bytes_written}


def read(folder: str) -> dict[str, Any]:
    """Read it piece by piece, and compare it with the file."""
    here = at(folder)
    spent = 0.0
    with (
        here.sync() as store,
        store.agent("a").open_read("file") as file,
        _source(here).open("rb") as source,
    ):
        while expected := source.read(PIECE):
            begun = time.perf_counter()
            found = file.read(PIECE)
            spent += time.perf_counter() - begun
            if found != expected:
                raise RuntimeError("something else was read")
    return {"seconds": spent}
