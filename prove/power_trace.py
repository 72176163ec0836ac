"""Recording what a process does to files, and every state that a power loss may leave.

The model of the disk is the harshest that POSIX allows: what was written to a file since its
last sync may be there, be missing or be torn at the borders of its sectors, each write by
itself; a name made or removed may be there or not until its folder is synced. Of the `-shm`
file nothing is kept: SQLite makes it anew.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECTOR = 512
_CALLS = (
    "open,openat,creat,write,pwrite64,fsync,fdatasync,sync_file_range,rename,renameat,"
    "renameat2,link,linkat,unlink,unlinkat,truncate,ftruncate,pwritev,writev,fallocate"
)
_LINE = re.compile(r"(?:\[pid +)?(\d+)\]? +(\w+)\((.*)\) += +(-?\d+)")
_HEX = re.compile(r"\\x([0-9a-f]{2})")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(r"(\d+)<((?:\\x[0-9a-f]{2}|[^>])*)>")

Event = tuple[Any, ...]
"""("write", file, offset, data) ("cut", file, size) ("name", path, file) ("unname", path)
("sync", file) ("syncdir", folder) ("ack", number); a file is a number of our own."""


def record(command: list[str], env: dict[str, str], place: Path, timeout: float) -> list[Event]:
    """Run a command under strace; what it did below `place`, and its lines on stdout."""
    log = place.parent / f"{place.name}.strace"
    strace = ["strace", "-f", "-y", "-xx", "-qqq", "-s", str(1 << 24), "-o", str(log)]
    full = [*strace, "-e", f"trace={_CALLS}", *command]
    done = subprocess.run(full, env=env, capture_output=True, timeout=timeout, check=False)
    if done.returncode:
        raise RuntimeError(f"the recorded process failed: {done.stderr.decode()[-2000:]}")
    try:
        return Recording(place).read(log)
    finally:
        log.unlink()


def _plain(text: str) -> bytes:
    return bytes.fromhex("".join(_HEX.findall(text)))


def _path(text: str) -> str:
    return _plain(text).decode() if "\\x" in text else text


class Recording:
    """Turns strace's lines into events."""

    def __init__(self, place: Path) -> None:
        self.place = os.path.realpath(place)
        self.names: dict[str, int] = {}
        self.files = 0
        self.sizes: dict[int, int] = {}
        self.events: list[Event] = []
        self.pending: dict[str, str] = {}

    def read(self, log: Path) -> list[Event]:
        """All events of a log."""
        with log.open() as lines:
            for line in lines:
                self._line(line.rstrip("\n"))
        return self.events

    def _line(self, line: str) -> None:
        pid = line.split(" ", 1)[0]
        if line.endswith("<unfinished ...>"):
            self.pending[pid] = line[: -len("<unfinished ...>")]
            return
        if " resumed>" in line[:80]:
            line = self.pending.pop(pid) + line.split(" resumed>", 1)[1]
        match = _LINE.match(line)
        if match is None or int(match[4]) < 0:
            return
        name = match[2].rstrip("0123456789") if match[2] != "pwrite64" else "write"
        handler = getattr(self, f"_{_SAME.get(name, name)}", None)
        if handler is None:
            raise RuntimeError(f"the recorder does not know {match[2]}")
        handler(match[3], int(match[4]), match[2])

    def _ours(self, path: str) -> bool:
        return path.startswith(self.place + "/") and not path.endswith("-shm")

    def _new(self) -> int:
        self.files += 1
        self.sizes[self.files] = 0
        return self.files

    def _open(self, arguments: str, fd: int, _: str) -> None:
        path = _path(_TEXT.search(arguments)[1])  # type: ignore[index]
        if not self._ours(path):
            return
        if path not in self.names and "O_CREAT" in arguments:
            self.names[path] = self._new()
            self.events.append(("name", path, self.names[path]))
        elif "O_TRUNC" in arguments:
            self.events.append(("cut", self.names[path], 0))

    def _fd(self, arguments: str) -> tuple[int, str]:
        match = _FD.match(arguments)
        if match is None:
            raise RuntimeError(f"no file in {arguments[:80]}")
        return int(match[1]), _path(match[2])

    def _write(self, arguments: str, length: int, call: str) -> None:
        fd, path = self._fd(arguments)
        data = _plain(_TEXT.search(arguments)[1])[:length]  # type: ignore[index]
        if fd == 1:
            self.events.extend(("ack", int(text)) for text in data.split())
        elif self._ours(path):
            file = self.names[path]
            at = int(arguments.rsplit(", ", 1)[1]) if call == "pwrite64" else self.sizes[file]
            self.sizes[file] = max(self.sizes[file], at + len(data))
            self.events.append(("write", file, at, data))

    def _ftruncate(self, arguments: str, _: int, __: str) -> None:
        path = self._fd(arguments)[1]
        if self._ours(path):
            file, size = self.names[path], int(arguments.rsplit(", ", 1)[1])
            self.sizes[file] = size
            self.events.append(("cut", file, size))

    def _fsync(self, arguments: str, _: int, __: str) -> None:
        path = self._fd(arguments)[1]
        if path in self.names and self._ours(path):
            self.events.append(("sync", self.names[path]))
        elif os.path.isdir(path) or path == self.place:
            self.events.append(("syncdir", path))

    def _link(self, arguments: str, _: int, __: str) -> None:
        old, new = (_path(text) for text in _TEXT.findall(arguments))
        if self._ours(new):
            self.names[new] = self.names[old]
            self.events.append(("name", new, self.names[new]))

    def _rename(self, arguments: str, _: int, __: str) -> None:
        old, new = (_path(text) for text in _TEXT.findall(arguments))
        if self._ours(new):
            self.names[new] = self.names.pop(old)
            self.events += [("name", new, self.names[new]), ("unname", old)]

    def _unlink(self, arguments: str, _: int, __: str) -> None:
        path = _path(_TEXT.search(arguments)[1])  # type: ignore[index]
        if self._ours(path) and self.names.pop(path, None):
            self.events.append(("unname", path))


_SAME = {
    "openat": "open",
    "creat": "open",
    "fdatasync": "fsync",
    "linkat": "link",
    "renameat": "rename",
    "unlinkat": "unlink",
}


@dataclass
class Disk:
    """What is surely on the disk, and what may be."""

    files: dict[int, bytes] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    pending: list[Event] = field(default_factory=list)
    acks: int = -1
    """The number of the last line that the process wrote; -1 before the first."""
    syncs: int = 0

    def step(self, event: Event) -> None:
        """Take one event into account."""
        kind = event[0]
        if kind == "ack":
            self.acks = event[1]
        elif kind == "sync":
            self._settle(lambda e: e[0] in ("write", "cut") and e[1] == event[1])
        elif kind == "syncdir":
            self._settle(lambda e: e[0] in ("name", "unname") and _folder(e[1]) == event[1])
        else:
            self.pending.append(event)

    def _settle(self, mine: Any) -> None:
        done = [event for event in self.pending if mine(event)]
        self.pending = [event for event in self.pending if not mine(event)]
        self.files, self.names = applied(self.files, self.names, done)
        self.syncs += 1


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def applied(
    files: dict[int, bytes], names: dict[str, int], events: list[Event]
) -> tuple[dict[int, bytes], dict[str, int]]:
    """Files and names after some events."""
    files, names = dict(files), dict(names)
    changed: dict[int, bytearray] = {}
    for event in events:
        if event[0] == "name":
            names[event[1]] = event[2]
        elif event[0] == "unname":
            names.pop(event[1], None)
        else:
            data = changed.setdefault(event[1], bytearray(files.get(event[1], b"")))
            if event[0] == "cut":
                del data[event[2] :]
                data.extend(bytes(event[2] - len(data)))
            else:
                data.extend(bytes(max(0, event[2] - len(data))))
                data[event[2] : event[2] + len(event[3])] = event[3]
    return files | {file: bytes(data) for file, data in changed.items()}, names


def torn(event: Event, draw: random.Random) -> list[Event]:
    """A write of which only some sectors reached the disk."""
    _, file, at, data = event
    sectors = range(at // SECTOR, (at + len(data) - 1) // SECTOR + 1)
    way = draw.randrange(3)
    cut = draw.choice(sectors)
    kept = [s for s in sectors if (s < cut, s > cut, draw.random() < 0.5)[way]]
    found: list[Event] = []
    for sector in kept:
        low, high = max(at, sector * SECTOR), min(at + len(data), (sector + 1) * SECTOR)
        found.append(("write", file, low, data[low - at : high - at]))
    return found


def choices(pending: list[Event], most: int, draw: random.Random) -> Iterator[list[Event]]:
    """Subsets of what is pending: none, all, all but one, only one, torn, at random."""
    yield []
    if not pending:
        return
    yield list(pending)
    ways: list[Any] = [("but", n) for n in range(len(pending))]
    ways += [("only", n) for n in range(len(pending))]
    writes = [n for n, event in enumerate(pending) if event[0] == "write"]
    ways += [("torn", n) for n in writes] * 2 + [("random", 0)] * (2 * len(pending))
    draw.shuffle(ways)
    for way, number in ways[:most]:
        if way == "but":
            yield pending[:number] + pending[number + 1 :]
        elif way == "only":
            yield [pending[number]]
        elif way == "torn":
            later = [e for e in pending[number + 1 :] if draw.random() < 0.5]
            yield pending[:number] + torn(pending[number], draw) + later
        else:
            yield [part for e in pending for part in _maybe(e, draw)]


def _maybe(event: Event, draw: random.Random) -> list[Event]:
    roll = draw.random()
    if roll < 0.45:
        return [event]
    if roll < 0.6 and event[0] == "write":
        return torn(event, draw)
    return []
