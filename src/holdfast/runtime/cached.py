"""Values that are built again when they are too old, and two indexes of files made so.

sessions = Conversations("logs/")
sessions.get("session-9")          # from memory for a minute, then from the files again
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from msgspec import Struct, ValidationError, convert

from holdfast.errors import (
    ConfigurationError,
    HoldfastError,
    InvalidInputError,
    MissingError,
)
from holdfast.store.names.arguments import check_function, check_seconds, check_text, read_yaml

_T = TypeVar("_T")


class Cached(Generic[_T]):
    """A value that is built on demand, and again once it is older than `ttl` seconds.

    Nothing of it is stored: after a restart it is built from its source. Threads may share it; it
    is built by one of them while the others wait. What `build` raises is raised, and the next who
    asks tries again.
    """

    def __init__(self, build: Callable[[], _T], *, ttl: float | None = 60.0) -> None:
        check_function(build, "build")
        check_seconds(ttl, "ttl")
        self.ttl = ttl
        self.built_at: datetime | None = None
        """When the value was built; None if it was not yet."""
        self._build = build
        self._value: _T | None = None
        self._since = 0.0
        self._lock = threading.Lock()  # who asks while it is built waits, and builds it not again

    def get(self) -> _T:
        """The value; it is built if there is none, or it is too old."""
        with self._lock:
            # Not by the wall clock, which may jump.
            age = monotonic() - self._since
            if self.built_at is None or (self.ttl is not None and age >= self.ttl):
                value = self._build()
                self._value, self._since = value, monotonic()
                self.built_at = datetime.now(UTC)
            return self._value  # type: ignore[return-value]

    def forget(self) -> None:
        """Let it be built anew when it is next asked for."""
        with self._lock:
            self._value = self.built_at = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is known of the log of a session."""

    session: str
    path: Path
    messages: int
    first: Any
    """The time of its first and of its last message, as they say it; None if they do not."""
    last: Any
    unreadable: int = 0
    """Lines that are no JSON."""


class Conversations:
    """An index of response logs: a file a session, `SESSION.jsonl`, one JSON object a line.

    The files are the truth and are never written here. The index lives in memory for `ttl` seconds.
    """

    def __init__(self, folder: str | os.PathLike[str], *, ttl: float = 60.0) -> None:
        self.folder = _folder(folder)
        self.index = Cached(self._scan, ttl=ttl)
        """What is known of sessions by their names; `forget()` looks at the files anew."""

    def get(self, session: str) -> Conversation:
        """What is known of one session."""
        found = self.index.get().get(session)
        if found is None:
            raise MissingError(f"{self.folder} has no log of the session {session!r}")
        return found

    def messages(self, session: str) -> list[dict[str, Any]]:
        """All messages of a session, read from its file now, without lines that are no JSON."""
        return [one for one in _lines(self.get(session).path) if one is not None]

    def list(self) -> list[Conversation]:
        """All sessions that have a log, by their names."""
        return list(self.index.get().values())

    def _scan(self) -> dict[str, Conversation]:
        found = {}
        for path in sorted(filter(Path.is_file, self.folder.glob("*.jsonl"))):
            lines = list(_lines(path))
            good = [one for one in lines if one is not None]
            times = [one.get("timestamp") for one in good] or [None]
            bad = len(lines) - len(good)
            found[path.stem] = Conversation(path.stem, path, len(good), times[0], times[-1], bad)
        return found


def _lines(path: Path) -> Iterable[dict[str, Any] | None]:
    """The objects of a file; None for a line that is none, as a last one that is being written."""
    with path.open("rb") as file:
        for line in filter(bytes.strip, file):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            yield value if isinstance(value, dict) else None


class Composition(Struct, frozen=True):
    """What a YAML file says: its name, type and tags, and all of it."""

    path: Path
    data: MappingProxyType[str, Any]
    name: str
    type: str = ""
    tags: tuple[str, ...] = ()


class Compositions:
    """An index of YAML files by name, type and tag. The files are the truth.

    They are read when it is made and again once one of them has changed, come or gone. A file that
    cannot be read is named in `broken` and hides no other. Needs `holdfast[yaml]`.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = _folder(folder)
        self.broken: Mapping[str, str] = MappingProxyType({})
        """What is wrong with files, by their paths."""
        self._found: dict[tuple[Path, int, int], Composition | str] = {}
        self._named: dict[str, Composition] = {}
        self._lock = threading.Lock()  # of two that refresh, the later one reads what is new
        self.refresh()

    def refresh(self) -> int:
        """Read what has changed; how many files were read."""
        with self._lock:
            before, self._found = self._found, {}
            named: dict[str, Composition] = {}
            broken: dict[str, str] = {}
            for path in sorted(self.folder.rglob("*.y*ml")):
                if path.suffix not in (".yaml", ".yml") or not path.is_file():
                    continue
                stat = path.stat()
                stamp = (path, stat.st_mtime_ns, stat.st_size)
                one = self._found[stamp] = before.get(stamp) or _composition(path)
                if isinstance(one, str):
                    broken[str(path)] = one
                elif (first := named.setdefault(one.name, one)) is not one:
                    broken[str(path)] = f"{first.path} has the name {one.name!r} already"
            self._named, self.broken = named, MappingProxyType(broken)
            return len(self._found.keys() - before.keys())

    def list(self, *, type: str | None = None, tag: str | None = None) -> list[Composition]:
        """Compositions by their names: all, those of a type, those with a tag."""
        self.refresh()
        found = (one for _, one in sorted(self._named.items()))
        return [one for one in found if type in (None, one.type) and tag in (None, *one.tags)]

    def get(self, name: str) -> Composition:
        """One of them."""
        check_text(name, "the name of a composition", 200, least=1)
        self.refresh()
        if name not in self._named:
            raise MissingError(f"{self.folder} has no composition {name!r}")
        return self._named[name]


def _composition(path: Path) -> Composition | str:
    """What a file says, or what is wrong with it."""
    try:
        data = MappingProxyType(read_yaml(path.read_text(), ConfigurationError))
        said = {one: data[one] for one in ("name", "type", "tags") if one in data}
        return convert({"name": path.stem, **said, "path": path, "data": data}, Composition)
    except (HoldfastError, OSError, UnicodeDecodeError, TypeError, ValidationError) as error:
        return str(error)


def _folder(folder: str | os.PathLike[str]) -> Path:
    if not isinstance(folder, str | os.PathLike):
        raise InvalidInputError(f"a folder is a path, not {type(folder).__name__}")
    path = Path(folder)
    if not path.is_dir():
        raise InvalidInputError(f"{path} is no folder; make it first")
    return path
