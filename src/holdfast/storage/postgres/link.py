"""Connections to a PostgreSQL server: what is sent, what comes back, and how long that may take.

A **link** is one connection. Statements go to the server in one flight, and their results come
back in one: a commit costs one round trip, and no lock waits for a client. Nothing is prepared
and no setting outlives a transaction, so that a pooler may give each transaction to another
connection of its own. Nothing is ever cancelled, because a cancelled COMMIT may have happened:
who has no time left closes the link.

The **pool** keeps links that are free. It has no threads of its own, and a server that cannot be
reached is told of at once.
"""

from __future__ import annotations

import selectors
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.errors import (
    DamagedRecordError,
    DiskFullError,
    ForeignSchemaError,
    HoldfastError,
    MissingExtraError,
    StorageReadOnlyError,
    StoreLockedError,
    Unavailable,
)
from holdfast.storage import contract
from holdfast.storage.server import PostgresAddress

try:
    import psycopg
    from psycopg import pq
except ImportError as error:
    raise MissingExtraError(
        "a store in PostgreSQL needs psycopg: pip install 'holdfast[postgres]'"
    ) from error

_BYTES, _BYTES_ARRAY, _INT8, _TEXT = 17, 1001, 20, 25
_READ = selectors.EVENT_READ
_BOTH = selectors.EVENT_READ | selectors.EVENT_WRITE

Param = tuple[int, bytes]
"""A parameter: the number of its type, and its bytes as the server sends them itself."""
Statement = tuple[str, Sequence[Param]]


def binary(value: bytes) -> Param:
    """Bytes as a parameter."""
    return _BYTES, value


def number(value: int) -> Param:
    """A whole number as a parameter."""
    return _INT8, struct.pack(">q", value)


def text(value: str) -> Param:
    """A text as a parameter."""
    return _TEXT, value.encode()


def array(values: Sequence[bytes | None]) -> Param:
    """A column of bytes, some of them perhaps null, as one parameter; not an empty one."""
    parts = [struct.pack(">iiiii", 1, int(None in values), _BYTES, len(values), 1)]
    for value in values:
        parts += (
            [struct.pack(">i", -1)] if value is None else [struct.pack(">i", len(value)), value]
        )
    return _BYTES_ARRAY, b"".join(parts)


class Lost(Exception):
    """The link broke, or no answer came in time; with the results that came before."""

    def __init__(self, why: str, results: Sequence[Result] = (), *, late: bool = False) -> None:
        super().__init__(why)
        self.results = results
        self.late = late


class Result:
    """What the server said to one statement."""

    __slots__ = ("_found",)

    def __init__(self, found: pq.abc.PGresult) -> None:
        self._found = found

    @property
    def failed(self) -> bool:
        """Whether the statement, or one before it in the flight, failed."""
        good = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
        return self._found.status not in good

    @property
    def done(self) -> bytes | None:
        """The name of what was done: COMMIT, or ROLLBACK where that was asked for in vain."""
        return self._found.command_status

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows, each value as the server's bytes."""
        found = self._found
        get, columns = found.get_value, range(found.nfields)
        return [tuple(get(row, column) for column in columns) for row in range(found.ntuples)]

    @property
    def severity(self) -> str:
        """ERROR ends the transaction, FATAL and PANIC the connection."""
        field = pq.DiagnosticField.SEVERITY_NONLOCALIZED
        return (self._found.error_field(field) or b"").decode()

    @property
    def code(self) -> str:
        """The five characters that name the error."""
        return (self._found.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()

    def error(self) -> HoldfastError:
        """The error in our words. Nothing was applied."""
        field = pq.DiagnosticField.MESSAGE_PRIMARY
        message = (self._found.error_field(field) or b"").decode(errors="replace")
        kind, advice = _CODES.get(self.code, (Unavailable, "nothing was applied; try again"))
        return kind(f"PostgreSQL: {message} ({self.code}); {advice}")


_CODES: dict[str, tuple[type[HoldfastError], str]] = {
    "53100": (DiskFullError, "no room is left on the server's disk: free some space"),
    "55P03": (StoreLockedError, "another program keeps the store locked: wait, or end it"),
    "25006": (StorageReadOnlyError, "the server takes no writes: give the address of the primary"),
    "55000": (Unavailable, "the server is no primary now: give the address of the primary"),
    "42501": (StorageReadOnlyError, "the role lacks rights: grant it all on schema and tables"),
    "42P01": (ForeignSchemaError, "a table is missing: restore the database from a backup"),
    "42703": (ForeignSchemaError, "a column is missing: restore the database from a backup"),
    "3F000": (ForeignSchemaError, "the schema is missing: restore the database from a backup"),
    "XX001": (DamagedRecordError, "the database is damaged: restore it from a backup"),
    "XX002": (DamagedRecordError, "an index is damaged: REINDEX it, and run verify"),
}


class Link:
    """One connection, used by one thread at a time."""

    def __init__(self, address: PostgresAddress) -> None:
        try:
            connection = psycopg.connect(
                address.conninfo, autocommit=True, prepare_threshold=None, **address.defaults()
            )
        except psycopg.Error as error:
            raise Unavailable(
                f"no connection to {address}: {address.hide(str(error))}; check that the server "
                "runs and takes this user"
            ) from None
        self._pid = contract.process_number
        self._connection = connection
        notices: list[str | None] = []
        connection.add_notice_handler(lambda one: notices.append(one.severity_nonlocalized))
        self._notices = notices
        self._pg = connection.pgconn
        self._pg.enter_pipeline_mode()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pg.socket, _READ)
        self.spoiled = False
        """It is not as it was left: broken, in the middle of a flight or of a transaction."""

    def flight(self, statements: Sequence[Statement], deadline: float) -> list[Result]:
        """Send statements, and wait for all results. Behind one that fails, none is run.

        `Lost` if the link breaks or the deadline passes: any of them may have been run then.
        """
        self.spoiled = True
        self._notices.clear()
        results: list[Result] = []
        try:
            for sql, params in statements:
                self._pg.send_query_params(
                    sql.encode(),
                    [value for _, value in params],
                    param_types=[kind for kind, _ in params],
                    param_formats=[pq.Format.BINARY] * len(params),
                    result_format=pq.Format.BINARY,
                )
            self._pg.pipeline_sync()
            while self._pg.flush():
                if self._wait(_BOTH, deadline) & _READ:
                    self._pg.consume_input()
            self._receive(results, deadline)
        except psycopg.Error as error:
            text = str(error).strip() or "the connection broke"
            raise Lost(text.splitlines()[0], results) from None
        except TimeoutError:
            raise Lost("no answer came in time", results, late=True) from None
        self.spoiled = self.warned or any(result.failed for result in results)
        return results

    def _receive(self, results: list[Result], deadline: float) -> None:
        while True:
            while self._pg.is_busy():
                self._wait(_READ, deadline)
                self._pg.consume_input()
            found = self._pg.get_result()
            if found is not None and found.status == pq.ExecStatus.PIPELINE_SYNC:
                return
            if found is not None:
                results.append(Result(found))
            if self._pg.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError("the connection was closed")

    def ask(self, sql: str, params: Sequence[Param], deadline: float) -> list[tuple[Any, ...]]:
        """The rows that one statement gives."""
        (result,) = self.flight([(sql, params)], deadline)
        if result.failed:
            raise result.error()
        return result.rows()

    def _wait(self, events: int, deadline: float) -> int:
        self._selector.modify(self._pg.socket, events)
        ready = self._selector.select(max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        return ready[0][1]

    @property
    def warned(self) -> bool:
        """Whether the server gave a warning in the flight made last."""
        return "WARNING" in self._notices

    def quiet(self) -> bool:
        """Whether a free link is as it was left; a server that went away has closed it."""
        with suppress(psycopg.Error, OSError):
            self._selector.modify(self._pg.socket, _READ)
            return not self._selector.select(0)
        return False

    def close(self) -> None:
        """End the connection; what the server is doing for it may go on. In a forked child it
        stays: it is the parent's."""
        if self._pid == contract.process_number:
            self._selector.close()
            self._connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_selector"):
            self.close()


def unreachable(address: PostgresAddress, lost: Lost) -> Unavailable:
    """The error for a link that broke before anything was asked for, or while reading."""
    return Unavailable(f"{address} cannot be reached: {lost}; nothing was applied, try again")


class Pool:
    """Up to so many links at once; those that are free are kept. `welcome` may refuse a new one."""

    def __init__(self, address: PostgresAddress, welcome: Callable[[Link], None]) -> None:
        self._address = address
        self._welcome = welcome
        self._free: list[Link] = []
        self._lock = threading.Lock()  # of the free ones; for moments only
        self._places = threading.BoundedSemaphore(address.pool_size)  # who finds none waits
        self._closed = False

    def deadline(self) -> float:
        """When a call that begins now has to be over."""
        return time.monotonic() + self._address.timeout / 1000

    @contextmanager
    def link(self, deadline: float, *, fresh: bool = False) -> Iterator[Link]:
        """A link. With `fresh`, those that are free are taken for broken."""
        if not self._places.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise Unavailable(
                f"all {self._address.pool_size} connections to {self._address} are in use; give a "
                "larger pool_size, or a longer timeout"
            )
        try:
            if fresh:
                self.empty()
            taken = self._take()
            link = taken or Link(self._address)
            try:
                if taken is None:
                    try:
                        self._welcome(link)
                    except Lost as lost:
                        raise unreachable(self._address, lost) from None
                yield link
            finally:
                self._give(link)
        finally:
            self._places.release()

    def _take(self) -> Link | None:
        while True:
            with self._lock:
                link = self._free.pop() if self._free else None
            if link is None or link.quiet():
                return link
            link.close()

    def _give(self, link: Link) -> None:
        with self._lock:
            if not self._closed and not link.spoiled:
                self._free.append(link)
                return
        link.close()

    def empty(self) -> None:
        """Close the links that are free."""
        with self._lock:
            free, self._free = self._free, []
        for link in free:
            link.close()

    def close(self) -> None:
        """Close the links that are free, and every other one when it is given back."""
        with self._lock:
            self._closed = True
        self.empty()
