"""Where threads are imported from: what LangGraph's SQLite and PostgreSQL savers keep.

LangGraph's own savers read their tables, with a serialiser that trusts nothing. A source is never
written to, and may be in use: a thread is read as it was at one moment.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import ormsgpack
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

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
from holdfast.integrations.langgraph.copy import Row, Write
from holdfast.integrations.langgraph.history import config_of
from holdfast.integrations.langgraph.kinds import BUILTIN, numpy_kind
from holdfast.integrations.langgraph.runs import parent_of
from holdfast.integrations.langgraph.types import Types, find_class
from holdfast.seal.codec import Refusal
from holdfast.storage import url_of

Place = tuple[str, str]
"""(namespace, id) of a checkpoint."""


class Source:
    """The threads of one of LangGraph's savers.

    saver: reads the checkpoints; what it does not tell, the paths and indices of writes, is asked
        of its tables here.
    """

    def __init__(self, name: str, saver: BaseCheckpointSaver[Any], dialect: Dialect) -> None:
        self.name = name
        """For people; without a password."""
        self._saver = saver
        self._dialect = dialect
        self._connection: Any = saver.conn  # type: ignore[attr-defined]
        # Older savers did not keep the paths of tasks.
        self._path = "task_path" if getattr(saver, "_has_task_path", True) else "''"
        try:
            self._ask(f"SELECT {self._path} FROM {dialect.writes} LIMIT 1")
            self.threads()
        except Unavailable as error:
            raise InvalidInputError(
                f"{name} does not hold the tables of LangGraph's saver, or is damaged: {error}"
            ) from None

    def _ask(self, query: str, *values: Any) -> list[Any]:
        try:
            found = self._connection.execute(query, values)
            return list(found.fetchall()) if found.description else []
        except self._dialect.failures as error:
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise Unavailable(f"{self.name} cannot be read: {text}") from None

    @contextmanager
    def moment(self) -> Iterator[None]:
        """A context in which what is read belongs together."""
        self._ask(self._dialect.begin)
        try:
            yield
        finally:
            if not getattr(self._connection, "closed", False):
                self._connection.rollback()
        self._dialect.check()

    def threads(self) -> list[str]:
        """Ids of all threads that have a checkpoint."""
        return sorted(one for (one,) in self._ask("SELECT DISTINCT thread_id FROM checkpoints"))

    def places(self, thread: str) -> list[Place]:
        """All checkpoints of a thread, in the order of their ids."""
        mark = self._dialect.mark
        query = f"SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = {mark}"
        return sorted(map(tuple, self._ask(query, thread)), key=lambda place: place[::-1])

    def row(self, thread: str, place: Place) -> Row:
        """One checkpoint with its pending writes; what is wrong is said with its place."""
        try:
            found = self._saver.get_tuple(config_of(thread, *place))
            if found is None or not isinstance(found.checkpoint, dict):
                raise InvalidValueError("it is damaged: it is not a mapping")
            if found.checkpoint.get("id") != place[1]:
                raise InvalidValueError("it is damaged: it has another id inside")
            checkpoint: dict[str, Any] = {**found.checkpoint}
            return Row(
                checkpoint, {**found.metadata}, parent_of(found), self._writes(thread, place)
            )
        except HoldfastError as error:
            raise type(error)(f"checkpoint {place[1]} cannot be read: {error}") from None
        except self._dialect.failures as error:
            kind = type(error).__name__
            raise InvalidValueError(f"checkpoint {place[1]} is damaged ({kind})") from None

    def _writes(self, thread: str, place: Place) -> list[Write]:
        mark = self._dialect.mark
        rows = self._ask(
            f"SELECT task_id, {self._path}, idx, channel, type, {self._dialect.value} FROM"
            f" {self._dialect.writes} WHERE thread_id = {mark} AND checkpoint_ns = {mark} AND"
            f" checkpoint_id = {mark}",
            thread,
            *place,
        )
        load = self._saver.serde.loads_typed
        rows.sort(key=lambda row: (row[1], row[0], row[2]))
        return [
            Write(task, path, idx, channel, load((kind, data)))
            for task, path, idx, channel, kind, data in rows
        ]

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()


_DAMAGE = (ValueError, TypeError, KeyError)
"""What savers raise for rows that are not in the form they were written."""


class Dialect(NamedTuple):
    """What differs between the databases."""

    writes: str
    """The table of writes."""
    value: str
    mark: str
    begin: str
    failures: tuple[type[Exception], ...]
    check: Callable[[], None] = lambda: None
    """Raises if what was read does not belong together."""


def open_source(url: str, types: Types | None = None) -> Source:
    """`sqlite:PATH`, a bare path, or `postgresql://…`.

    types: which classes may be built; those of the saver that will read the threads.
    """
    serde = Unpacker(types or Types())
    try:
        if url.startswith(("postgres://", "postgresql://")):
            return _postgres(url, serde)
        return _sqlite(url_of(url).removeprefix("sqlite:"), serde)
    except ImportError as error:
        kind = "postgres" if url.startswith("postgres") else "sqlite"
        raise MissingExtraError(
            f"importing needs LangGraph's own saver ({error}): pip install "
            f"langgraph-checkpoint-{kind}"
        ) from error


def _sqlite(path: str, serde: Any) -> Source:
    """The file of a `SqliteSaver` or an `AsyncSqliteSaver`."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    if not Path(path).is_file():
        raise StoreNotFoundError(f"there is no file {path!r} to import from")
    # Somebody uses it, or a crash left a log: SQLite reads both. Otherwise opening it the
    # normal way would leave files beside it, and needs a folder that can be written.
    log = Path(f"{path}-wal")
    alone, stamp = not log.exists(), Path(path).stat().st_mtime_ns

    def check() -> None:
        if alone and (log.exists() or Path(path).stat().st_mtime_ns != stamp):
            raise Conflict(f"sqlite:{path} was changed while it was read; run the import again")

    place = f"file:{quote(str(Path(path).absolute()))}?{'immutable=1' if alone else 'mode=ro'}"
    connection = sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False)
    saver = SqliteSaver(connection, serde=serde)
    try:
        saver.setup()  # changes nothing, for it cannot
    except sqlite3.Error as error:
        raise InvalidInputError(
            f"sqlite:{path} is no file of LangGraph's SQLite saver, or damaged: {error}"
        ) from None
    failures = (sqlite3.Error, *_DAMAGE)
    dialect = Dialect("writes", "value", "?", "BEGIN", failures, check)
    return Source(f"sqlite:{path}", saver, dialect)


def _postgres(url: str, serde: Any) -> Source:
    """A database that a `PostgresSaver` or an `AsyncPostgresSaver` keeps its threads in."""
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver

    where = urlsplit(url)
    name = f"postgresql://{where.hostname or ''}{where.path}"
    try:
        connection = psycopg.connect(url, connect_timeout=10, autocommit=True)
    except psycopg.Error as error:
        raise Unavailable(f"{name} cannot be reached: {error}") from None
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    saver: Any = PostgresSaver(connection, serde=serde)  # type: ignore[arg-type]
    dialect = Dialect("checkpoint_writes", "blob", "%s", begin, (psycopg.Error, *_DAMAGE))
    return Source(name, saver, dialect)


# ---- unpack -------------------------------------------------------------------------------------
# Values of LangGraph's own savers, read with LangGraph's serialiser but without its trust.
#
# That serialiser imports whatever module a row names, calls what it finds there, and reads what it
# cannot build as None or as bare fields. Here a row is looked through first: it is refused if it is
# damaged, pickled, encrypted, JSON (as in LangGraph's first years), or names something else than a
# data class that is loaded already.


_OBJECTS = range(6)
"""Extension codes of LangGraph's msgpack that hold [module, name, arguments …]."""
_OTHERS = range(6, 8)
"""Those of numpy arrays and of snapshots of delta channels."""

Named = set[tuple[str, str]]
"""(module, name) of classes."""


class Unpacker:
    """Reads serialised values; `types` say which classes may be stored, and so may be built."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._serde = JsonPlusSerializer(allowed_msgpack_modules=None)
        self._allowed: Named = set()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """As LangGraph does: its saver brings rows of old into the form of now before it reads."""
        return self._serde.dumps_typed(obj)

    def loads_typed(self, data: tuple[Any, Any]) -> Any:
        """The value; an error says what is wrong with it and what to do."""
        kind, held = data
        try:
            if kind == "msgpack":
                self._admit(_named_in(held))
            elif kind not in ("null", "bytes", "bytearray"):
                # Pickled, it would run whatever code it names; others are encrypted, or newer.
                raise InvalidValueError(
                    f"its form {kind!r} is not read; put the thread again with a saver of now that "
                    "neither pickles nor encrypts"
                )
            return self._serde.loads_typed((str(kind), held))
        except HoldfastError:
            raise
        except Exception as error:
            # Whatever a crafted or damaged row, or a class of the user's, makes of it.
            raise InvalidValueError(
                f"it is damaged or was not written by LangGraph ({type(error).__name__})"
            ) from error

    def _admit(self, found: Named) -> None:
        new, missing = found - self._allowed, []
        for path in sorted(new):
            cls = find_class(":".join(path))
            try:
                if cls is None:
                    missing.append(path)
                elif cls not in BUILTIN and numpy_kind(cls) is None:
                    self._types.entry(cls)
            except Refusal as refusal:  # it would not come back as it was
                raise InvalidValueError(str(refusal)) from None
        if missing:
            told = ", ".join(".".join(path) for path in missing)
            modules = " ".join(sorted({f"--import {module}" for module, _ in missing}))
            raise UnknownTypeError(
                f"there is no class {told} here; give {modules}, or call Import of "
                "holdfast.integrations.langgraph.importer in the script that defines it"
            )
        if new:
            self._allowed |= new
            self._serde = JsonPlusSerializer(allowed_msgpack_modules=self._allowed)


def _named_in(data: bytes) -> Named:
    """The classes of all objects in it but those that LangGraph itself takes for safe."""
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
