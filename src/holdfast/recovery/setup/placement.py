"""Where a store and its secrets lie, and whether there is room: what only its arguments tell."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FEW = 1 << 30
"""Bytes free below which the disk is called nearly full; and a tenth of it."""
_NONE = 100 << 20
"""Bytes free below which it is called full: a long value may not fit any more."""

Remark = tuple[str, str, int, str]
"""Kind, what it is, points, what to do."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What a store was opened with; only files are looked at, and their content never."""

    url: str = ""
    key: str | None = None
    signer: str | None = None
    durability: str = "full"

    def concerns(self) -> Iterator[Remark]:
        """What is wrong with it."""
        engine, _, path = self.url.partition(":")
        if engine == "memory":
            what = "the store is in memory: all of it ends with the process"
            yield "in_memory", what, 30, "open sqlite:PATH instead"
        if self.durability == "normal":
            what = "durability is normal: a power loss may take the last acknowledged writes"
            yield "durability", what, 5, "open it with durability full"
        if engine != "sqlite" or not path:
            return
        folder = Path(path).parent.resolve()
        yield from _beside(folder, "key", self.key, 10)
        yield from _beside(folder, "signer", self.signer, 5)
        yield from _room(folder, path)


def _beside(folder: Path, what: str, source: str | None, points: int) -> Iterator[Remark]:
    kind, _, name = (source or "").partition(":")
    if kind == "file" and Path(name).expanduser().parent.resolve() == folder:
        text = f"the {what} file lies in the same folder as the store: who copies it has both"
        yield f"{what}_beside_store", text, points, f"move the {what} file to another disk"


def _room(folder: Path, path: str) -> Iterator[Remark]:
    try:
        disk = shutil.disk_usage(folder)
        size = os.path.getsize(path)
    except OSError:
        return  # opening the store has said so already
    step = "make room: holdfast retention run, holdfast sweep, or a larger disk"
    if disk.free < _NONE:
        yield "disk_full", f"{disk.free >> 20} MiB are free on the disk", 30, step
    elif disk.free < min(_FEW, disk.total // 10) or disk.free < size // 10:
        yield "disk_nearly_full", f"{disk.free >> 20} MiB are free on the disk", 10, step
