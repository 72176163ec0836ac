"""What all measurements share: rows of the table, throw-away stores, clocks, child processes."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast import sync
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.wrappers import Counting

FOLDER: str | None = None
"""Where the stores are made; None is the system's folder for temporary files."""
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class Row:
    """One line of the table. `ok` is None where nothing is demanded."""

    figure: str
    limit: str
    measured: str
    ok: bool | None
    goal: bool = False


def at_most(figure: str, measured: float, limit: float, unit: str = "", **more: Any) -> Row:
    """A figure that must not exceed its limit."""
    return _row(figure, measured, "≤", limit, unit, measured <= limit, **more)


def at_least(figure: str, measured: float, limit: float, unit: str = "", **more: Any) -> Row:
    """A figure that must reach its limit."""
    return _row(figure, measured, "≥", limit, unit, measured >= limit, **more)


def told(figure: str, measured: float, unit: str = "", note: str = "") -> Row:
    """A figure that is only told."""
    return Row(figure, "", _with_note(show(measured, unit), note), None)


def _row(
    figure: str,
    measured: float,
    sign: str,
    limit: float,
    unit: str,
    ok: bool,
    *,
    goal: bool = False,
    note: str = "",
) -> Row:
    text = _with_note(show(measured, unit), note)
    return Row(figure, f"{sign} {show(limit, unit)}", text, ok, goal)


def _with_note(text: str, note: str) -> str:
    return f"{text} ({note})" if note else text


def show(number: float, unit: str = "") -> str:
    """A number with three significant digits."""
    if number and abs(number) < 100 and number != int(number):
        text = f"{number:.3g}"
    else:
        text = f"{number:,.0f}"
    return f"{text} {unit}".strip()


# stores


class ByKind(Counting):
    """Counts, besides, the bytes written by the kind of row (the first byte of its key)."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.kinds: Counter[str] = Counter()

    def commit(self, batch: Batch) -> None:
        """Commit, then count what was applied."""
        super().commit(batch)
        for key, row in batch.puts:
            self.kinds[chr(key[0])] += len(key) + len(row)

    def reset(self) -> None:
        """Start counting again from zero."""
        super().reset()
        self.kinds.clear()

    @property
    def saves(self) -> int:
        """Bytes of saved indexes and nodes."""
        return self.kinds["S"] + self.kinds["N"]


SYNC = 0.002
"""Seconds of a sync where one is added to the disk's own: virtual machines' may take a tenth
of that or ten times as much, and a ratio of commits says little on the first of them."""


class Synced(Counting):
    """A storage whose commits take `SYNC` longer."""

    def commit(self, batch: Batch) -> None:
        """Commit, and wait as for a disk."""
        super().commit(batch)
        time.sleep(SYNC)


class Place:
    """A folder with room for one store, and a key in another folder."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder, "store")
        self.folder.mkdir(exist_ok=True)
        self.url = f"sqlite:{self.folder / 'bench.db'}"
        self.key = f"file:{Path(folder, 'bench.key')}"
        self.counting: ByKind | None = None

    def options(
        self, durability: str = "full", *, counted: bool = False, synced: bool = False
    ) -> dict[str, Any]:
        """The arguments with which a store is opened here."""
        options: dict[str, Any] = {"key": self.key, "durability": durability}
        if counted:
            self.counting = ByKind(open_storage(self.url, durability=durability))
            options["storage"] = self.counting
        if synced:
            options["storage"] = Synced(open_storage(self.url, durability=durability))
        return options

    def sync(self, durability: str = "full", **how: bool) -> sync.Store:
        """The store through its blocking face."""
        return sync.open(self.url, **self.options(durability, **how))

    def open(self, durability: str = "full", *, counted: bool = False, **more: Any) -> Any:
        """The store through its async face."""
        options = self.options(durability, counted=counted, synced=more.pop("synced", False))
        return holdfast.open(self.url, **options, **more)

    def bytes(self) -> int:
        """Size of all files of the store and of its ring."""
        return sum(path.stat().st_size for path in self.folder.iterdir())


@contextmanager
def place() -> Iterator[Place]:
    """An empty place that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=FOLDER) as folder:
        yield Place(folder)


# data

_random = random.Random(7)
_WORDS = ["".join(_random.choices("etaoinshrdlucm", k=_random.randint(2, 9))) for _ in range(2000)]


def words(size: int, seed: int) -> str:
    """Text of about this many bytes, made of 2,000 words: it compresses a little, as prose does."""
    return " ".join(random.Random(seed).choices(_WORDS, k=size // 5))[:size].ljust(size, "x")


def message(number: int, size: int = 550) -> dict[str, Any]:
    """A message of a conversation, of about `size` encoded bytes."""
    return {
        "role": ("user", "assistant")[number % 2],
        "content": words(size - 60, number),
        "number": number,
        "tokens": size // 4,
    }


def encoded(value: Any) -> int:
    """Bytes of a value as MessagePack."""
    return len(_encode(value))


# clocks


def timed(function: Callable[[], Any]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def cpu(function: Callable[[], Any]) -> float:
    """Seconds of CPU, of all threads, that a call takes."""
    start = time.process_time()
    function()
    return time.process_time() - start


def quantile(values: Iterable[float], part: float) -> float:
    """The value below which this part of all values lies; 1.0 gives the greatest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def median(values: Iterable[float]) -> float:
    """The value in the middle."""
    return quantile(values, 0.5)


def in_turns(count: int, *calls: Callable[[int], object]) -> list[float]:
    """The median seconds of each call, where all have the same weather."""
    taken: list[list[float]] = [[] for _ in calls]
    for number in range(count):
        for call, seconds in zip(calls, taken, strict=True):
            seconds.append(timed(partial(call, number)))
    return [median(seconds) for seconds in taken]


class LoopGaps:
    """`async with LoopGaps() as gaps`: how long the event loop was late, each time, in seconds.

    `collecting` are the times that Python's garbage collection took meanwhile.
    """

    def __init__(self, step: float = 0.001) -> None:
        self.step = step
        self.late: list[float] = []
        self.collecting: list[float] = []
        self._begun = 0.0

    async def __aenter__(self) -> LoopGaps:
        gc.callbacks.append(self._collected)
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        gc.callbacks.remove(self._collected)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _collected(self, phase: str, _: object) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._begun = now
        else:
            self.collecting.append(now - self._begun)

    async def _watch(self) -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(self.step)
            self.late.append(max(0.0, time.perf_counter() - start - self.step))


async def writers(count: int, seconds: float, work: Callable[[int, int], Awaitable[Any]]) -> Load:
    """So many tasks that call `work(writer, number)` one after the other until the time is over."""
    load = Load()
    end = time.perf_counter() + seconds

    async def one(writer: int) -> None:
        number = 0
        last = time.perf_counter()
        while last < end:
            await work(writer, number)
            number += 1
            now = time.perf_counter()
            load.longest = max(load.longest, now - last)
            last = now
        load.done += number

    start = time.perf_counter()
    await asyncio.gather(*(one(writer) for writer in range(count)))
    load.seconds = time.perf_counter() - start
    return load


@dataclass
class Load:
    """What writers reached."""

    done: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.done / self.seconds


# child processes


def peak_memory() -> float:
    """Most memory that this process ever held, in MB.

    On Linux not from `getrusage`: that figure survives exec, so a child would report the size
    of the process that started it.
    """
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1 << 20 if sys.platform == "darwin" else 1024)


def start_child(function: str, **arguments: Any) -> subprocess.Popen[str]:
    """Start `MODULE:FUNCTION(**arguments)` in a process of its own; end it with `answer`."""
    runner = Path(__file__).with_name("run.py")
    command = [sys.executable, str(runner), "--child", function, json.dumps(arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(child: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a child; what its function returned, and `memory`, its peak in MB."""
    out, _ = child.communicate()
    if child.returncode:
        raise RuntimeError(f"a child process failed with exit code {child.returncode}")
    return json.loads(out.splitlines()[-1])  # type: ignore[no-any-return]


def in_child(function: str, **arguments: Any) -> dict[str, Any]:
    """Run `MODULE:FUNCTION(**arguments)` in a process of its own."""
    return answer(start_child(function, **arguments))


def at(folder: str) -> Place:
    """The place that a parent process made: its folder is above that of the store."""
    return Place(folder)
