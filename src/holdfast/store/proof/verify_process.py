"""Reading the saved nodes of a large scope in a second process, while its entries are read here.

That is a third of the work of verifying, and no entry is needed for it. The process gets the place
of the storage and the keys of that one scope through a pipe, and gives back what the nodes hash to
and what they lead to. It judges nothing: where anything is off, or it cannot do its work for
whatever reason, it gives nothing back, and the nodes are read here.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from holdfast.seal.codec import Codec, Unbuilt
from holdfast.seal.sealer import Commitments, KeySeal, PlainSeal, Seal
from holdfast.storage.sqlite.engine import SqliteStorage
from holdfast.storage.wrappers.cache import engine_of
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import safe_point
from holdfast.store.proof.verify_nodes import NodeCheck, Read
from holdfast.store.tree.node_cache import AtomCache, NodeCache

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core

LARGE = 50_000
"""Entries from which it pays: the process needs about as long to start as their nodes to read."""
PATIENCE = 10.0
"""Seconds for which it is waited for, beyond as long again as it has had."""
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from holdfast.store.proof.verify_process import serve; "
    "serve(sys.stdin.buffer, sys.stdout.buffer)"
)


class _Task(msgspec.Struct, array_like=True):
    path: str
    lineage: bytes
    scope: str
    number: int
    id: bytes
    commitment: bytes | None
    """The scope's commitment key; None in a plain store."""
    data: dict[int, bytes]
    epoch: int
    lines: list[tuple[int, int]]
    """Each timeline, and up to which entry it was pruned."""


class ReadBeside:
    """The nodes of one scope, as a second process reads them."""

    def __init__(self, core: Core, ledger: Ledger, lines: Sequence[tuple[int, int]]) -> None:
        """Start it; `possible` says whether that can be done."""
        engine = engine_of(core.storage)
        assert isinstance(engine, SqliteStorage)
        keys = core.ring.scope_keys(ledger.id) if core.ring is not None else None
        task = _Task(
            engine.path,
            core.lineage,
            str(ledger.scope),
            ledger.number,
            ledger.id,
            keys.commitment if keys is not None else None,
            keys.data if keys is not None else {},
            keys.epoch if keys is not None else 0,
            list(lines),
        )
        import subprocess  # few need it, and it takes long to load

        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *(one for one in sys.path if isinstance(one, str))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        pipe = self._process.stdin
        assert pipe is not None
        try:
            with pipe:
                pipe.write(msgspec.msgpack.encode(task))
        except BrokenPipeError:
            pass  # it ended at once, and gives nothing back
        self._data = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            self._data = pipe.read()

    def result(self) -> Read | None:
        """What it read, waited for; None if the nodes are to be read here.

        It is given as long again as it has had, and a little more: one that is stopped, or starved,
        must not hold up what can be done without it.
        """
        end = 2 * time.monotonic() - self._began + PATIENCE
        while self._listener.is_alive():
            safe_point()
            if time.monotonic() > end:
                return None
            self._listener.join(0.05)
        if self._process.wait():
            return None
        try:
            return msgspec.msgpack.decode(self._data, type=Read)
        except msgspec.MsgspecError:
            return None  # something or somebody else wrote there, too

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._listener.join()


def possible(core: Core) -> bool:
    """Whether a second process can read this store, and there is a processor for it."""
    name = os.path.basename(sys.executable or "")
    return (
        isinstance(engine_of(core.storage), SqliteStorage)
        and name.startswith(("python", "pypy"))  # else it is a program with Python inside
        and _processors() > 1
    )


def _processors() -> int:
    """Those that this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def reading(
    nodes: NodeCheck, lines: Sequence[tuple[int, int]], core: Core | None
) -> Iterator[Callable[[], bool]]:
    """Read the nodes of a scope: at once; or meanwhile, if a core is given and it can be done.

    What it gives is called when a timeline has been read. It waits for the nodes if they are on
    their way, and tells whether they came with this call.
    """
    if core is None or not possible(core):
        _read_here(nodes, lines)
        yield lambda: False
        return
    try:
        beside = ReadBeside(core, nodes.ledger, lines)
    except OSError:  # no interpreter any more, or no more processes or files
        _read_here(nodes, lines)
        yield lambda: False
        return
    nodes.away = True

    def arrived() -> bool:
        if not nodes.away:
            return False
        told = beside.result()
        if told is not None:
            nodes.take(told)
        else:
            nodes.away = False
            _read_here(nodes, lines)
        nodes.finish()
        return True

    try:
        yield arrived
    finally:
        beside.close()


def _read_here(nodes: NodeCheck, lines: Sequence[tuple[int, int]]) -> None:
    for line, _ in lines:
        nodes.read(line)
    nodes.finish()


class _Finding(Exception):
    """Something is off."""


class _Judge:
    """What stands in for the check that this is part of: the first finding ends it."""

    def find(self, *_: Any, **__: Any) -> None:
        raise _Finding


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Do one task, as the program of the second process."""
    task = msgspec.msgpack.decode(source.read(), type=_Task)
    storage = SqliteStorage(task.path, read_only=True)
    try:
        check: Any = _Judge()
        nodes = NodeCheck(check, _ledger(task, storage), dict(task.lines))
        for line, _ in task.lines:
            nodes.read(line)
        sink.write(msgspec.msgpack.encode(nodes.told))
    except _Finding:
        pass
    finally:
        storage.close()


def _ledger(task: _Task, storage: SqliteStorage) -> Ledger:
    writer = bytes(16)  # it writes nothing
    seal: Seal = PlainSeal(writer)
    if task.commitment is not None:
        seal = KeySeal(task.data, task.epoch, writer)
    return Ledger(
        Scope.parse(task.scope),
        task.number,
        task.id,
        before=0,
        tombstone=b"",
        lineage=task.lineage,
        storage=storage,
        seal=seal,
        commitments=Commitments(task.commitment),
        codec=Codec(Unbuilt()),
        nodes=NodeCache(),
        atoms=AtomCache(),
    )
