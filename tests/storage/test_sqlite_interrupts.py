"""What a signal's handler raises, Ctrl-C before all, at the worst moments of the SQLite engine."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast.storage.contract import Batch
from holdfast.storage.sqlite.engine import SqliteStorage, Turn

ROWS = [(b"a", b"1"), (b"b", b"2")]
KEYS = [b"a", b"b"]


class Interrupting:
    """A connection or a cursor; an interrupt comes when a statement was executed, as often as
    told."""

    def __init__(self, inner: Any, sql: str, times: int = 1) -> None:
        self._inner, self._sql, self.times = inner, sql, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def execute(self, sql: str, *values: Any) -> Any:
        return self._after(sql, self._inner.execute(sql, *values))

    def executemany(self, sql: str, *values: Any) -> Any:
        return self._after(sql, self._inner.executemany(sql, *values))

    def _after(self, sql: str, result: Any) -> Any:
        if self.times and sql.startswith(self._sql):
            self.times -= 1
            raise KeyboardInterrupt
        return result


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[SqliteStorage, SqliteStorage]]:
    """Two handles on one file; the second gives up soon if the first holds it."""
    path = str(tmp_path / "store.db")
    one, other = SqliteStorage(path), SqliteStorage(path)
    other._busy_seconds = 0.0
    one.commit(Batch(puts=ROWS))
    yield one, other
    one.close()
    other.close()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("sql", ["BEGIN", "SELECT", "COMMIT"])
def test_read_of_several_rows(
    pair: tuple[SqliteStorage, SqliteStorage], sql: str, times: int
) -> None:
    """Later reads show what others wrote since, also if interrupts come one upon the other."""
    one, other = pair
    broken = Interrupting(one._reading._connection, sql, times)
    one._reading._connection = broken  # type: ignore[assignment]
    for _ in range(times):
        with pytest.raises(KeyboardInterrupt):
            one.get(KEYS)
    other.commit(Batch(puts=[(b"c", b"3")], drops=[b"a"]))
    assert broken.times == 0
    assert one.get([b"a"]) == [None]
    assert one.get([*KEYS, b"c"]) == [None, b"2", b"3"]
    assert one.scan(b"a", b"z") == [(b"b", b"2"), (b"c", b"3")]
    other.commit(Batch(drops=[b"b"]))
    assert one.get(KEYS) == [None, None]


@pytest.mark.parametrize("keys", [KEYS, KEYS[:1]])
def test_interrupt_where_a_read_is_ended(
    pair: tuple[SqliteStorage, SqliteStorage], keys: list[bytes]
) -> None:
    """What is open still is ended by the next read, whichever it is."""
    one, other = pair
    inner = one._reading._connection
    inner.execute("BEGIN")
    inner.execute("SELECT 1 FROM records").fetchall()
    other.commit(Batch(drops=KEYS))
    one._reading._connection = Interrupting(inner, "ROLLBACK")  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        one.get(keys)
    assert one.get(keys) == [None] * len(keys)


def commit(storage: SqliteStorage) -> None:
    storage.commit(Batch(puts=[(b"mine", b"")], absent=[b"other"], drops=[b"a"]))


def commit_in_turn(storage: SqliteStorage) -> None:
    with storage.turn():
        commit(storage)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("write", [commit, commit_in_turn])
@pytest.mark.parametrize("sql", ["BEGIN", "SELECT", "INSERT", "DELETE", "PRAGMA incr"])
def test_write(
    pair: tuple[SqliteStorage, SqliteStorage],
    sql: str,
    write: Callable[[SqliteStorage], None],
    times: int,
) -> None:
    """Nothing of it is applied, nobody else is kept from writing."""
    one, other = pair
    one._write_cursor = Interrupting(one._write_cursor, sql, times)  # type: ignore[assignment]
    for number in range(times):
        with pytest.raises(KeyboardInterrupt):
            write(one)
        other.commit(Batch(puts=[(b"%d" % number, b"")]))
    assert one.get([b"mine", b"a"]) == [None, b"1"]
    write(one)
    assert other.get([b"mine", b"a"]) == [b"", None]


@pytest.mark.parametrize("write", [commit, commit_in_turn])
def test_what_an_interrupt_left_is_not_committed(
    pair: tuple[SqliteStorage, SqliteStorage], write: Callable[[SqliteStorage], None]
) -> None:
    """Where the rollback itself was interrupted, the next one who writes rolls back."""
    one, other = pair
    one._write_cursor.execute("BEGIN IMMEDIATE")
    one._write_cursor.execute("INSERT INTO records VALUES(x'00', x'00')")
    write(one)
    assert other.get([b"\0", b"mine"]) == [None, b""]


@pytest.mark.parametrize("name", ["_finish", "_rollback", "_begin"])
def test_interrupt_at_the_first_step_of(
    pair: tuple[SqliteStorage, SqliteStorage], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads of the process can write, and the same one, too."""
    one, other = pair
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(one, name, interrupt)
        with one.turn():
            one.commit(Batch(puts=[(b"mine", b"")], present=[b"not there"] * (name != "_finish")))
    assert can_write(one, b"thread")
    one.commit(Batch(puts=[(b"same", b"")]))
    other.commit(Batch(puts=[(b"other", b"")]))


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def can_write(storage: SqliteStorage, key: bytes) -> bool:
    """Whether another thread can."""
    thread = threading.Thread(target=storage.commit, args=(Batch(puts=[(key, b"")]),), daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()


def interrupt_at(code: Any, event: str, number: int) -> None:
    """Raise in the given function: when it is called, or before its given line."""
    seen = 0

    def trace(frame: FrameType, what: str, _: object) -> Any:
        nonlocal seen
        if frame.f_code is not code:
            return None
        if what == event:
            seen += 1
            if seen == number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)


TURN = Turn
STEPS = [
    (TURN.__enter__, "call", 1),
    *((TURN.__enter__, "line", number) for number in range(1, 5)),
    *((TURN.__exit__, "line", number) for number in range(2, 4)),
    (SqliteStorage.version, "call", 1),
    *((SqliteStorage.version, "line", number) for number in range(1, 6)),
]
"""Not before a line that only gives back what is held: Python lets a handler run behind calls of C
functions, where functions begin and where loops go round, and nowhere else."""


@pytest.mark.parametrize(("function", "event", "number"), STEPS)
def test_interrupt_at_a_step(
    pair: tuple[SqliteStorage, SqliteStorage], function: Any, event: str, number: int
) -> None:
    """The lock that keeps other threads from writing is not left taken."""
    one, other = pair
    before = sys.gettrace()
    try:
        interrupt_at(function.__code__, event, number)
        one.version()
        with one.turn():
            pass
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    assert can_write(one, b"thread")
    one.commit(Batch(puts=[(b"same", b"")]))
    other.commit(Batch(puts=[(b"other", b"")]))
