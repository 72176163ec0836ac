"""SQLite files across `os.fork()`.

SQLite notes once for the whole process which locks it holds on a file. A child inherits the notes,
but not the locks: what it opened itself would take for locked what only the parent has locked, and
would lose commits when the parent closes the file and takes the log away. So a child closes every
connection that it inherits before it can open one. That needs three things:

- no thread is inside SQLite when the process forks: a fork takes the locks under which connections
  are used, and waits for them up to `LONGEST`;
- nothing is half written: a rollback in the child would change memory that it shares with the
  parent, so that a connection in the middle of that is left open;
- closing moves no log, and so touches no file.

A connection that cannot be closed is left open for good, and its file cannot be opened there.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from typing import TypeAlias

import apsw

from holdfast.errors import StoreForkedError
from holdfast.storage.sqlite import guard as guard

LONGEST = 5.0
"""Seconds for which a fork waits for calls that are under way."""
_PATIENCE = 0.05
"""Seconds for the first try for each lock, then twice as many: see `_take`."""

AnyLock: TypeAlias = "threading.Lock | threading.RLock"

_gate = threading.Lock()
"""Held by whoever forks: nobody begins to use connections meanwhile."""
_users: weakref.WeakKeyDictionary[object, tuple[AnyLock, ...]] = weakref.WeakKeyDictionary()
_connections: weakref.WeakKeyDictionary[apsw.Connection, guard.Identity | None] = (
    weakref.WeakKeyDictionary()
)
_left: set[guard.Identity | None] = set()
"""Files of which this process has inherited connections that it could not close."""
_mine = threading.local()
"""What the thread that forks has taken."""


def join(user: object, *locks: AnyLock) -> None:
    """Note that `user` opens and uses connections under these locks only. Who calls this has
    locked what it uses first."""
    with _gate:
        _users[user] = locks


def opened(connection: apsw.Connection, path: str) -> None:
    """Note a connection, for a child that inherits it."""
    _connections[connection] = guard.identity(path)


def check(path: str) -> None:
    """Refuse a file whose locks this process cannot tell any more."""
    found = guard.identity(path)
    if found is not None and found in _left:
        raise StoreForkedError(
            f"{path!r} was being used when os.fork() made this process, which therefore cannot "
            "open it safely; fork while no call to the store is under way, or start the process "
            "with the method 'spawn'"
        )


def _before() -> None:
    _mine.taken, _mine.gated = None, False
    _mine.gated = _gate.acquire(timeout=LONGEST)
    if _mine.gated:
        _mine.taken = _take([lock for locks in list(_users.values()) for lock in locks])


def _take(locks: list[AnyLock]) -> list[AnyLock] | None:
    """All the locks, or None. Others take several in an order of theirs: whoever waits for one
    for long gives back what it has, and begins with that one."""
    taken: list[AnyLock] = []
    until, patience = time.monotonic() + LONGEST, _PATIENCE
    try:
        while True:
            for lock in locks:
                if not lock.acquire(timeout=max(0.0, min(patience, until - time.monotonic()))):
                    break
                taken.append(lock)
            else:
                return taken
            _give_back(taken)
            if time.monotonic() >= until:
                return None
            locks.remove(lock)
            locks.insert(0, lock)
            patience *= 2
    except BaseException:  # Ctrl-C
        _give_back(taken)
        raise


def _give_back(taken: list[AnyLock]) -> None:
    while taken:
        taken.pop().release()


def _in_parent() -> None:
    _give_back(_mine.taken or [])
    if _mine.gated:
        _gate.release()


def _in_child() -> None:
    global _gate
    _gate = threading.Lock()  # that of the parent is held here, and by nobody
    left = [c for c in list(_connections) if _mine.taken is None or not _closed(c)]
    _left.update(_connections[connection] for connection in left)
    for kept in (*left, *(list(_users) if left else ())):
        # Not even at exit: to let go of it would close it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    _give_back(_mine.taken or [])
    _connections.clear()
    _users.clear()
    guard.OPEN.clear()
    for lock in list(guard.LOCKS):
        lock.release()  # the parent keeps it


def _closed(connection: apsw.Connection) -> bool:
    """Close an inherited connection, if that is safe."""
    try:
        if connection.txn_state("main") == apsw.SQLITE_TXN_WRITE:
            return False
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close(True)
    except apsw.ConnectionClosedError:
        pass
    except apsw.Error:
        return False
    return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
