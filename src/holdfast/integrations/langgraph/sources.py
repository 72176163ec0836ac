"""Where threads are imported from: the tables of LangGraph's SQLite and PostgreSQL savers.

A source is never written to, and may be in use: a thread is read as it was at one moment.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import apsw
import ormsgpack
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import TASKS

from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
    MissingExtraError,
    StoreNotFoundError,
    Unavailable,
    UnknownTypeError,
)
from holdfast.integrations.langgraph.kinds import BUILTIN, numpy_kind
from holdfast.integrations.langgraph.types import Types, find_class
from holdfast.seal.codec import Refusal
from holdfast.storage import url_of

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


class Source(ABC):
    """What an import needs: the tables of checkpoints and of writes, which both savers have."""

    _ends = ""
    """What the name of the table of writes begins with."""
    _mark = "?"
    """Stands for a value in a query."""
    _value = "CAST(value AS BLOB)"

    def __init__(self, name: str, unpacker: Unpacker) -> None:
        self.name = name
        """For people; without a password."""
        self._unpacker = unpacker
        self._task_path = "''"

    @abstractmethod
    def _ask(self, query: str, *values: Any) -> list[Any]:
        """The rows that a query gives."""

    @abstractmethod
    def moment(self) -> Any:
        """A context in which what is read belongs together."""

    @abstractmethod
    def row(self, thread: str, place: Place) -> Row:
        """One checkpoint with its pending writes."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it."""

    def _check(self, columns: dict[str, set[str]], what: str) -> None:
        """Refuse what is no saver's; older ones did not keep the paths of tasks."""
        checkpoints, writes = columns["checkpoints"], columns[f"{self._ends}writes"]
        if "parent_checkpoint_id" not in checkpoints or "idx" not in writes:
            raise InvalidInputError(f"{self.name} {what}")
        self._task_path = "task_path" if "task_path" in writes else "''"

    def threads(self) -> list[str]:
        """Ids of all threads that have a checkpoint."""
        return sorted(one for (one,) in self._ask("SELECT DISTINCT thread_id FROM checkpoints"))

    def places(self, thread: str) -> list[Place]:
        query = (
            f"SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = {self._mark}"
        )
        return sorted(map(tuple, self._ask(query, thread)), key=lambda place: place[::-1])

    def strays(self, thread: str) -> int:
        """How many writes are on top of checkpoints that are not there; nobody ever reads them."""
        ((count,),) = self._ask(
            f"SELECT count(*) FROM {self._ends}writes w WHERE thread_id = {self._mark} AND NOT"
            " EXISTS (SELECT 1 FROM checkpoints c WHERE c.thread_id = w.thread_id AND"
            " c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id)",
            thread,
        )
        return int(count)

    def _of(self, columns: str, table: str, thread: str, place: Place) -> list[Any]:
        """Columns of what a table has of one checkpoint."""
        where = " AND ".join(
            f"{name} = {self._mark}" for name in ("thread_id", "checkpoint_ns", "checkpoint_id")
        )
        return self._ask(f"SELECT {columns} FROM {table} WHERE {where}", thread, *place)

    def _load(self, kind: str | None, data: Any, place: Place, what: str) -> Any:
        """A serialised value; what is wrong is said with its place."""
        try:
            return self._unpacker.load(kind, data)
        except HoldfastError as error:
            raise type(error)(f"checkpoint {place[1]}: {what} cannot be read: {error}") from None

    def _whole(
        self, thread: str, place: Place, checkpoint: Any, metadata: Any, parent: str | None
    ) -> Row:
        """The checkpoint with its writes, if it is what it should be."""
        if not isinstance(checkpoint, dict) or not isinstance(metadata, dict):
            raise InvalidValueError(f"checkpoint {place[1]} is damaged: it is not a mapping")
        if checkpoint.get("id") != place[1]:
            raise InvalidValueError(f"checkpoint {place[1]} is damaged: it has another id inside")
        columns = f"task_id, {self._task_path}, idx, channel, type, {self._value}"
        rows = self._of(columns, f"{self._ends}writes", thread, place)
        rows.sort(key=lambda row: (row[1], row[0], row[2]))
        writes = [
            Write(task, path, idx, name, self._load(kind, data, place, f"a write to {name!r}"))
            for task, path, idx, name, kind, data in rows
        ]
        return Row(checkpoint, metadata, parent or None, writes)


def open_source(url: str, types: Types | None = None, *, fields: bool = False) -> Source:
    """`sqlite:PATH`, a bare path, or `postgresql://…`.

    types: which classes may be built; those of the saver that will read the threads.
    fields: take objects of classes that are not there as their bare fields.
    """
    unpacker = Unpacker(types or Types(), fields=fields)
    if url.startswith(("postgres://", "postgresql://")):
        return PostgresSource(url, unpacker)
    return SqliteSource(url_of(url).removeprefix("sqlite:"), unpacker)


class SqliteSource(Source):
    """The file of a `SqliteSaver` or an `AsyncSqliteSaver`."""

    def __init__(self, path: str, unpacker: Unpacker) -> None:
        super().__init__(f"sqlite:{path}", unpacker)
        self._path = Path(path)
        if not self._path.is_file():
            raise StoreNotFoundError(f"there is no file {path!r} to import from")
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
            columns = {
                table: {row[1] for row in self._database.execute(f"PRAGMA table_info({table})")}
                for table in ("checkpoints", "writes")
            }
        self._check(columns, "is no file of LangGraph's SQLite saver: it lacks its tables")

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

    def row(self, thread: str, place: Place) -> Row:
        columns = "parent_checkpoint_id, type, CAST(checkpoint AS BLOB), CAST(metadata AS BLOB)"
        ((parent, kind, data, metadata),) = self._of(columns, "checkpoints", thread, place)
        checkpoint = self._load(kind, data, place, "it")
        try:
            told = json.loads(metadata) if metadata is not None else {}
        except ValueError:
            raise InvalidValueError(
                f"checkpoint {place[1]}: its metadata is damaged: not JSON"
            ) from None
        return self._whole(thread, place, checkpoint, told, parent)

    def close(self) -> None:
        self._database.close()


# ---- unpack -------------------------------------------------------------------------------------
# Values of LangGraph's own savers, read with LangGraph's serialiser but without its trust.
#
# That serialiser imports whatever module a row names, calls what it finds there, and reads what it
# cannot build as None or as bare fields. Here a row is looked through first: it is refused if it is
# damaged, pickled, encrypted, or names something else than a data class that is loaded already.


_OBJECTS = range(6)
"""Extension codes of LangGraph's msgpack that hold [module, name, arguments …]."""
_OTHERS = range(6, 8)
"""Those of numpy arrays and of snapshots of delta channels."""

Named = set[tuple[str, ...]]


class Unpacker:
    """Reads serialised values.

    types: which classes may be stored, and so may be built.
    fields: take objects of classes that are not there as their bare fields, as LangGraph does.
    """

    def __init__(self, types: Types, *, fields: bool = False) -> None:
        self._types = types
        self._fields = fields
        self._serde = JsonPlusSerializer(allowed_msgpack_modules=None)
        self._allowed: Named = set()
        self._refused: Named = set()

    def load(self, kind: str | None, data: Any) -> Any:
        """The value; an error says what is wrong with it and what to do."""
        try:
            if kind == "msgpack":
                self._admit(_named_in_msgpack(data))
            elif kind == "json":
                self._admit(_named_in_json(data))
            elif kind not in ("null", "bytes", "bytearray"):
                raise _unreadable(kind)
            return self._serde.loads_typed((str(kind), data))
        except HoldfastError:
            raise
        except Exception as error:
            # Whatever a crafted or damaged row, or a class of the user's, makes of it.
            raise InvalidValueError(
                f"it is damaged or was not written by LangGraph ({type(error).__name__})"
            ) from error

    def _admit(self, found: Named) -> None:
        new = found - self._allowed - self._refused
        missing = [path for path in sorted(new) if not self._fits(path)]
        if missing and not self._fields:
            raise UnknownTypeError(_missing(missing))
        self._refused |= set(missing)
        allowed = self._allowed | new.difference(missing)
        if allowed != self._allowed:
            self._allowed = allowed
            self._serde = JsonPlusSerializer(
                allowed_msgpack_modules=allowed, allowed_json_modules=allowed
            )

    def _fits(self, path: tuple[str, ...]) -> bool:
        """Whether a class is there; one that would not come back as it was is refused."""
        *module, name = path
        cls = find_class(f"{'.'.join(module)}:{name}")
        if cls is None:
            return False
        try:
            if cls not in BUILTIN and numpy_kind(cls) is None:
                self._types.entry(cls)
        except Refusal as refusal:
            raise InvalidValueError(str(refusal)) from None
        return True


def _named_in_msgpack(data: bytes) -> Named:
    """(module, name) of all objects in it but those that LangGraph itself takes for safe."""
    found: Named = set()
    newer: set[int] = set()

    def look(code: int, inner: bytes) -> None:
        if code not in _OBJECTS and code not in _OTHERS:
            newer.add(code)
            return
        parts = ormsgpack.unpackb(inner, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
        if code in _OBJECTS:
            found.add((str(parts[0]), str(parts[1])))

    ormsgpack.unpackb(data, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
    if newer:
        raise InvalidValueError("it was written by a newer LangGraph: update langgraph")
    return found - SAFE_MSGPACK_TYPES


def _named_in_json(data: bytes) -> Named:
    """The same of the older form; an object is named by the steps to it."""
    found: Named = set()

    def look(mapping: dict[str, Any]) -> dict[str, Any]:
        if mapping.get("lc") == 2 and mapping.get("type") == "constructor":
            *module, name = map(str, mapping["id"])
            if (".".join(module), name) not in SAFE_MSGPACK_TYPES:
                found.add((*module, name))
        return mapping

    json.loads(data, object_hook=look)
    return found


def _unreadable(kind: str | None) -> InvalidValueError:
    if kind is not None and "+" in kind:
        return InvalidValueError(
            f"it is encrypted ({kind}); copy the thread to a saver without encryption first"
        )
    if kind == "pickle":
        return InvalidValueError(
            "it is pickled, and reading it would run whatever code it names; put the thread again "
            "with a saver without pickle_fallback"
        )
    return InvalidValueError(f"its form {kind!r} is unknown: update langgraph")


def _missing(paths: list[tuple[str, ...]]) -> str:
    told = ", ".join(".".join(path) for path in paths)
    modules = sorted({".".join(path[:-1]) for path in paths})
    if "__main__" in modules:
        return (
            f"the class {told} was defined in a script, where nobody else finds it; call "
            "holdfast.integrations.langgraph.importer.Import in that script, or take such "
            "objects as their fields: --fields"
        )
    absent = [module for module in modules if module not in sys.modules]
    if absent:
        flags = " ".join(f"--import {module}" for module in absent)
        return f"the class {told} is needed; give {flags}, or take its fields: --fields"
    return f"there is no class {told} (any more); take such objects as their fields: --fields"


# ---- sources postgres ---------------------------------------------------------------------------
# The tables of a `PostgresSaver` or an `AsyncPostgresSaver`.


class PostgresSource(Source):
    """A database that a PostgreSQL saver keeps its threads in."""

    _ends = "checkpoint_"
    _mark = "%s"
    _value = "blob"

    def __init__(self, url: str, unpacker: Unpacker) -> None:
        where = urlsplit(url)
        super().__init__(f"postgresql://{where.hostname or ''}{where.path}", unpacker)
        self._driver = psycopg = _psycopg()
        self._values: dict[tuple[str, str], tuple[str, Any]] = {}
        """By namespace and channel: the version read last, and its value."""
        try:
            self._connection = psycopg.connect(url, connect_timeout=10)
        except psycopg.Error as error:
            raise Unavailable(f"{self.name} cannot be reached: {_first_line(error)}") from None
        self._connection.read_only = True
        self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with self.moment():
            columns = {
                table: {row[0] for row in self._ask(_COLUMNS, table)}
                for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
            }
        self._check(
            columns,
            "does not hold the tables of LangGraph's PostgreSQL saver; if they are in another "
            "schema: postgresql://…?options=-csearch_path%3DSCHEMA",
        )

    def _ask(self, query: str, *values: Any) -> list[Any]:
        try:
            return list(self._connection.execute(query, values).fetchall())
        except self._driver.errors.InsufficientPrivilege as error:
            raise InvalidInputError(f"{self.name}: {_first_line(error)}") from None
        except self._driver.Error as error:
            raise Unavailable(f"{self.name} cannot be read: {_first_line(error)}") from None

    def threads(self) -> list[str]:
        with self.moment():
            return super().threads()

    @contextmanager
    def moment(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._values.clear()
            if not self._connection.closed:
                self._connection.rollback()

    def row(self, thread: str, place: Place) -> Row:
        columns = "parent_checkpoint_id, checkpoint, metadata"
        ((parent, checkpoint, metadata),) = self._of(columns, "checkpoints", thread, place)
        row = self._whole(thread, place, checkpoint, metadata, parent)
        inline = row.checkpoint.get("channel_values") or {}
        row.checkpoint["channel_values"] = {
            **inline,
            **self._channels(thread, place, row.checkpoint["channel_versions"]),
        }
        if row.parent and row.checkpoint.get("v", 1) < 4:
            self._older(row, thread, place)
        return row

    def _channels(self, thread: str, place: Place, versions: dict[str, Any]) -> dict[str, Any]:
        """The values that are stored apart, once for each version."""
        versions = {name: str(version) for name, version in versions.items()}
        known = {channel: self._values.get((place[0], channel)) for channel in versions}
        new = [name for name, found in known.items() if not found or found[0] != versions[name]]
        blobs = self._ask(_BLOBS, new, [versions[name] for name in new], thread, place[0])
        for name, kind, data in blobs:
            empty = kind == "empty"
            value = _EMPTY if empty else self._load(kind, data, place, f"channel {name!r}")
            self._values[place[0], name] = (versions[name], value)
        found = {name: self._values.get((place[0], name)) for name in versions}
        return {
            name: one[1]
            for name, one in found.items()
            if one is not None and one[0] == versions[name] and one[1] is not _EMPTY
        }

    def _older(self, row: Row, thread: str, place: Place) -> None:
        """Before version 4, tasks to send were writes on top of the parent, not a channel."""
        sends = self._ask(
            "SELECT type, blob FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_id = %s"
            f" AND channel = %s ORDER BY {self._task_path}, task_id, idx",
            thread,
            row.parent,
            TASKS,
        )
        if sends:
            values = [self._load(kind, data, place, "a task") for kind, data in sends]
            versions = row.checkpoint["channel_versions"]
            row.checkpoint["channel_values"][TASKS] = values
            versions[TASKS] = max(versions.values()) if versions else f"{1:032}.0"

    def close(self) -> None:
        self._connection.close()


_EMPTY: Any = object()
_COLUMNS = (
    "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
    " AND NOT attisdropped"
)
_BLOBS = (
    "SELECT b.channel, b.type, b.blob FROM unnest(%s::text[], %s::text[]) AS w(channel, version)"
    " JOIN checkpoint_blobs b ON b.channel = w.channel AND b.version = w.version"
    " WHERE b.thread_id = %s AND b.checkpoint_ns = %s"
)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _psycopg() -> Any:
    """The driver, which only this kind of source needs."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError(
            "importing from PostgreSQL needs psycopg: pip install 'holdfast[langgraph-postgres]'"
        ) from error
    return psycopg
