"""What the tests of the store share."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import holdfast
from holdfast import sync
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.wrappers import Counting
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core

SOURCE = str(Path(holdfast.__file__).parents[1])
PLACES = ["memory-plain", "memory-sealed", "sqlite-plain", "sqlite-sealed"]
SERVER_PLACES = ["postgres-sealed", "mongodb-sealed"]
ON_SERVER = {
    "test_backups_beside",
    "test_changes",
    "test_feed",
    "test_forks",
    "test_history",
    "test_leases",
    "test_redis",
    "test_state",
    "test_verify",
    "test_watch",
}
"""Files whose tests run on a server, too: those of the heart that take seconds there."""
ON_SLOW_SERVER = {"test_backups_beside", "test_forks", "test_state"}
"""Those for MongoDB, where it takes a quarter of a second to make a store."""
EVERYWHERE = {
    "tests/format",
    "tests/seal",
    "tests/storage",
    "tests/store/test_bodies",
    "tests/store/test_damaged",
    "tests/store/test_data_keys",
    "tests/store/test_erase",
    "tests/store/test_export_damage",
    "tests/store/test_killed_rotations",
    "tests/store/test_lookups_damage",
    "tests/store/test_master_rotation",
    "tests/store/test_processes",
    "tests/store/test_proofs",
    "tests/store/test_pruning",
    "tests/store/test_subjects",
    "tests/store/test_values",
    "tests/store/test_verify",
}
"""How the names of the files begin whose tests run in all places: those about bytes at rest."""
PLACE_ARGUMENTS = {
    "engine", "files", "forked", "made", "open_saver", "options", "pair", "place", "plain",
    "sealed", "shared", "store_url", "stores", "two", "world",
}  # fmt: skip
PLACE_VALUES = {
    *PLACES, "memory", "sqlite", "plain", "sealed", "encrypted", "async",
}  # fmt: skip
"""An argument of such a name with such a value says where a test runs, not what it tests."""
YES_OR_NO = {"shared", "stores"}
"""Those whose value may be yes or no, too: whether the store is encrypted."""
_numbers = itertools.count()
START = 1_700_000_000.0
"""Where the clock of `Hands` begins."""


class Hands:
    """A clock that is moved by hand: time passes, or the wall clock alone jumps."""

    def __init__(self) -> None:
        self.wall = START
        self.passed = 0.0
        self.clock = holdfast.Clock(lambda: self.wall, lambda: self.passed)

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.passed += seconds

    def time(self, seconds: float = 0) -> datetime:
        """The moment so many seconds after the start."""
        return datetime.fromtimestamp(START + seconds, UTC)


class Place:
    """Where one store lies. Every `open` is a handle of its own, as another process has one.

    Signer and key are files apart from the store. Durability is `normal`: these tests are about
    what is stored, and `make prove` is about power loss.
    """

    def __init__(self, engine: str, folder: Path, *, sealed: bool, server: Any = None) -> None:
        self.engine = engine
        self.sealed = sealed
        self.folder = folder
        name = f"test-{os.getpid()}-{next(_numbers)}"
        self.path = folder / "data" / "store.db"
        self.path.parent.mkdir(exist_ok=True)
        if server is not None:
            self.url = f"{server.place(name.replace('-', '_'))}&ring={self.path}.keys"
        else:
            self.url = f"memory:{name}" if engine == "memory" else f"sqlite:{self.path}"
        self.key = f"file:{folder / 'master.key'}" if sealed else None
        self.signer = f"file:{folder / 'signer.key'}"
        self._open: list[sync.Store] = []

    def options(self, **more: Any) -> dict[str, Any]:
        """Arguments of `open` for this place."""
        return {"key": self.key, "signer": self.signer, "durability": "normal"} | more

    def open(self, **more: Any) -> sync.Store:
        """A handle; closed when the test ends."""
        store = sync.open(self.url, **self.options(**more))
        self._open.append(store)
        return store

    def open_counting(self, **more: Any) -> tuple[sync.Store, Counting]:
        """A handle whose storage calls are counted."""
        counting = Counting(self.storage())
        core = open_core(self.url, storage=counting, **self.options(**more))
        store = sync.Store(StoreHandle(core))
        self._open.append(store)
        return store, counting

    def open_between(self, **more: Any) -> tuple[sync.Store, Between]:
        """A handle before one of whose commits something else can be done."""
        between: Any = Between(self.storage())
        core = open_core(self.url, storage=between, **self.options(**more))
        store = sync.Store(StoreHandle(core))
        self._open.append(store)
        return store, between

    def storage(self) -> Storage:
        """The rows themselves, as somebody sees them who can write the file."""
        return open_storage(self.url, durability="normal")

    def reopen(self, **more: Any) -> sync.Store:
        """Close all handles, then open the store again."""
        self.close()
        return self.open(**more)

    def close(self) -> None:
        """Close all handles."""
        while self._open:
            self._open.pop().close()

    def environment(self) -> dict[str, str]:
        """For processes that import holdfast."""
        paths = [SOURCE, *(p for p in sys.path if p.endswith("site-packages"))]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def confirm_all(state: sync.State) -> None:
    """Say of every restore that it was good: their backups are held no more."""
    checkpoints = sync.checkpoints.Checkpoints(state)
    for one in checkpoints.held():
        if one.why == "restore":
            checkpoints.confirm(one.checkpoint)


class Between:
    """A storage before one of whose commits, the next unless some are to pass, others do things."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.before: Callable[[], Any] | None = None
        self.passing = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def turn(self, *, durable: bool = True) -> AbstractContextManager[object]:
        """Others do not wait for it."""
        return nullcontext()

    def commit(self, batch: Batch) -> None:
        """Let the others go first, when it is time."""
        self.passing -= 1
        if self.passing < 0 and self.before is not None:
            before, self.before = self.before, None
            before()
        self._storage.commit(batch)


def free_port() -> int:
    """A port that is free, as is the one 10000 above it, for a server that is to be started.

    Below those that the system gives to connections: any of these could take it before the server.
    """
    chance = random.SystemRandom()  # not seeded, so that no two processes choose alike
    while True:
        port = chance.randrange(12_000, 22_000)
        try:
            for one in (port, port + 10_000):
                socket.create_server(("127.0.0.1", one)).close()
            return port
        except OSError:
            continue


def stop_process(pid: int) -> None:
    """Stop a process that this one started, and wait until it stands.

    A signal is only on its way when `kill` returns: what runs on another core does a little more.
    """
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def rows_of(storage: Storage, kind: bytes) -> list[tuple[bytes, bytes]]:
    """All rows of one kind."""
    found: list[tuple[bytes, bytes]] = []
    low = kind
    high = bytes([kind[0] + 1])
    while page := storage.scan(low, high, limit=1000):
        found += page
        low = page[-1][0] + b"\0"
    return found


def put_row(storage: Storage, key: bytes, row: bytes | None) -> None:
    """Change, add or (None) remove a row behind the store's back."""
    storage.commit(Batch(drops=[key]))
    if row is not None:
        storage.commit(Batch(puts=[(key, row)]))


def same(a: Any, b: Any) -> bool:
    """Equal with the same types, all the way down, mappings in the same order."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(
            type(k) is type(m) and same(a[k], b[m]) for k, m in zip(a, b, strict=True)
        )
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a.hex() == b.hex()
    if hasattr(a, "utcoffset"):
        return bool(a == b) and a.isoformat() == b.isoformat()
    return bool(a == b)
