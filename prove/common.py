"""What the checks share: their result, scales, temporary folders and child processes."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHORT, NORMAL, LONG = 0, 1, 2
"""Scales: a few seconds for the test suite, about a minute a check, a soak."""
MOST_FINDINGS = 20
"""A broken store breaks everywhere: more than this many findings say nothing new."""


@dataclass
class Result:
    """What a check did and what it found; no findings means that the promise held."""

    figure: str
    scope: str
    seed: int
    findings: list[str] = field(default_factory=list)


class TooMany(Exception):
    """Enough was found."""


class Findings(list[str]):
    """Collects findings; raises `TooMany` when going on would say nothing new."""

    def note(self, text: str) -> None:
        """Keep one finding."""
        self.append(text)
        if len(self) >= MOST_FINDINGS:
            raise TooMany


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder, in memory where the system offers that: syncs cost nothing there."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="holdfast-prove-", dir=base))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def child_env(**more: str) -> dict[str, str]:
    """The environment for a child that must import the same holdfast as this process."""
    import holdfast

    source = str(Path(holdfast.__file__).parent.parent)
    paths = [source, str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PROVE_SRC": source, **more}


def python(*arguments: str) -> list[str]:
    """The command that runs this interpreter."""
    return [sys.executable, *arguments]


def pick(scale: int, short: int, normal: int, long: int) -> int:
    """The number that belongs to a scale."""
    return (short, normal, long)[scale]
