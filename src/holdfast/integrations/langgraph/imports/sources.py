"""Where threads are imported from: the tables of LangGraph's SQLite and PostgreSQL savers.

A source is never written to, and may be in use: a thread is read as it was at one moment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import apsw

from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
    StoreNotFoundError,
    Unavailable,
)
from holdfast.integrations.langgraph.imports.unpack import Unpacker
from holdfast.integrations.langgraph.types.types import Types

Place = tuple[str, str]
"""(namespace, id) of a checkpoint."""


class Write(NamedTuple):
    """One thing that a task wrote on top of a checkpoint."""

    task: str
    path: str
    idx: int
    channel: str
    value: Any


class Row(NamedTuple):
    """A checkpoint as the source has it."""

    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    parent: str | None
    writes: list[Write]
    """By task path, task and index."""


class Source(Protocol):
    """What an import needs of a source."""

    name: str
    """For people; without a password."""

    def threads(self) -> list[str]:
        """Ids of all threads that have a checkpoint."""

    def moment(self) -> Any:
        """A context in which what is read belongs together."""

    def places(self, thread: str) -> list[Place]:
        """All checkpoints of a thread, in the order of their ids."""

    def row(self, thread: str, place: Place) -> Row:
        """One checkpoint with its pending writes."""

    def strays(self, thread: str) -> int:
        """How many writes are on top of checkpoints that are not there; nobody ever reads them."""

    def close(self) -> None:
        """Let go of it."""


def open_source(url: str, types: Types | None = None, *, fields: bool = False) -> Source:
    """`sqlite:PATH`, a bare path, or `postgresql://…`.

    types: which classes may be built; those of the saver that will read the threads.
    fields: take objects of classes that are not there as their bare fields.
    """
    unpacker = Unpacker(types or Types(), fields=fields)
    if url.startswith(("postgres://", "postgresql://")):
        from holdfast.integrations.langgraph.imports.sources_postgres import PostgresSource

        return PostgresSource(url, unpacker)
    return SqliteSource(url.removeprefix("sqlite:"), unpacker)


class Reader:
    """Reads the parts of rows; what is wrong is said with its place."""

    def __init__(self, unpacker: Unpacker) -> None:
        self._unpacker = unpacker

    def value(self, kind: str | None, data: Any, place: Place, what: str) -> Any:
        """A serialised value."""
        try:
            return self._unpacker.load(kind, data)
        except HoldfastError as error:
            raise type(error)(f"checkpoint {place[1]}: {what} cannot be read: {error}") from None

    def writes(self, rows: list[Any], place: Place) -> list[Write]:
        """Writes of (task, path, index, channel, form, value)."""
        rows.sort(key=lambda row: (row[1], row[0], row[2]))
        return [
            Write(task, path, idx, name, self.value(kind, data, place, f"a write to {name!r}"))
            for task, path, idx, name, kind, data in rows
        ]


def checked(row: Row, place: Place) -> Row:
    """The row, if it is what it should be."""
    if not isinstance(row.checkpoint, dict) or not isinstance(row.metadata, dict):
        raise InvalidValueError(f"checkpoint {place[1]} is damaged: it is not a mapping")
    if row.checkpoint.get("id") != place[1]:
        raise InvalidValueError(f"checkpoint {place[1]} is damaged: it has another id inside")
    return row


class SqliteSource:
    """The file of a `SqliteSaver` or an `AsyncSqliteSaver`."""

    def __init__(self, path: str, unpacker: Unpacker) -> None:
        self.name = f"sqlite:{path}"
        self._path = Path(path)
        if not self._path.is_file():
            raise StoreNotFoundError(f"there is no file {path!r} to import from")
        self._read = Reader(unpacker)
        # Somebody uses it, or a crash left a log: SQLite reads both. Otherwise opening it the
        # normal way would leave files beside it, and needs a folder that can be written.
        self._alone = not Path(f"{path}-wal").exists()
        self._stamp = self._now()
        place = quote(str(self._path.absolute()))
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        with self._failing():
            mode = "immutable=1" if self._alone else "mode=ro"
            self._database = apsw.Connection(f"file:{place}?{mode}", flags=flags)
            self._database.set_busy_timeout(10_000)
            self._task_path = self._check()

    def _check(self) -> str:
        """Refuse what is no saver's; returns how to ask for a task's path."""
        columns = {
            table: [row[1] for row in self._database.execute(f"PRAGMA table_info({table})")]
            for table in ("checkpoints", "writes")
        }
        if "parent_checkpoint_id" not in columns["checkpoints"] or "idx" not in columns["writes"]:
            raise InvalidInputError(
                f"{self.name} is no file of LangGraph's SQLite saver: it lacks its tables"
            )
        return "task_path" if "task_path" in columns["writes"] else "''"

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise InvalidInputError(f"{self.name} is no database, or damaged: {error}") from None
        except UnicodeDecodeError:
            raise InvalidValueError(f"{self.name} is damaged: text that is no UTF-8") from None
        except apsw.Error as error:
            raise Unavailable(
                f"{self.name} cannot be read ({error}); copy it with what lies beside it to a "
                "folder that can be written, and import the copy"
            ) from None

    def _now(self) -> Any:
        found = os.stat(self._path)
        return found.st_mtime_ns, found.st_size, Path(f"{self._path}-wal").exists()

    def _ask(self, query: str, *values: Any) -> list[Any]:
        with self._failing():
            return list(self._database.execute(query, values))

    def threads(self) -> list[str]:
        found = self._ask("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id")
        return [thread for (thread,) in found]

    @contextmanager
    def moment(self) -> Iterator[None]:
        self._ask("BEGIN")
        try:
            yield
        finally:
            self._ask("ROLLBACK")
        if self._alone and self._now() != self._stamp:
            raise Conflict(
                f"{self.name} was changed while it was read; run the import again: it goes on"
            )

    def places(self, thread: str) -> list[Place]:
        return self._ask(
            "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ?"
            " ORDER BY checkpoint_id, checkpoint_ns",
            thread,
        )

    def row(self, thread: str, place: Place) -> Row:
        where = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
        ((parent, kind, data, metadata),) = self._ask(
            "SELECT parent_checkpoint_id, type, CAST(checkpoint AS BLOB), CAST(metadata AS BLOB)"
            f" FROM checkpoints {where}",
            thread,
            *place,
        )
        rows = self._ask(
            f"SELECT task_id, {self._task_path}, idx, channel, type, CAST(value AS BLOB)"
            f" FROM writes {where}",
            thread,
            *place,
        )
        checkpoint = self._read.value(kind, data, place, "it")
        try:
            told = json.loads(metadata) if metadata is not None else {}
        except ValueError:
            raise InvalidValueError(
                f"checkpoint {place[1]}: its metadata is damaged: not JSON"
            ) from None
        return checked(Row(checkpoint, told, parent or None, self._read.writes(rows, place)), place)

    def strays(self, thread: str) -> int:
        ((count,),) = self._ask(
            "SELECT count(*) FROM writes w WHERE thread_id = ? AND NOT EXISTS (SELECT 1 FROM"
            " checkpoints c WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns"
            " AND c.checkpoint_id = w.checkpoint_id)",
            thread,
        )
        return int(count)

    def close(self) -> None:
        self._database.close()
