"""The tables of a `PostgresSaver` or an `AsyncPostgresSaver`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from langgraph.checkpoint.serde.types import TASKS

from holdfast.errors import InvalidInputError, MissingExtraError, Unavailable
from holdfast.integrations.langgraph.imports.sources import Place, Reader, Row, checked
from holdfast.integrations.langgraph.imports.unpack import Unpacker

try:
    import psycopg
    from psycopg import errors
except ImportError as error:
    raise MissingExtraError(
        "importing from PostgreSQL needs psycopg: pip install 'holdfast[langgraph-postgres]'"
    ) from error

_WHERE = "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"


class PostgresSource:
    """A database that a PostgreSQL saver keeps its threads in."""

    def __init__(self, url: str, unpacker: Unpacker) -> None:
        where = urlsplit(url)
        self.name = f"postgresql://{where.hostname or ''}{where.path}"
        self._read = Reader(unpacker)
        self._values: dict[tuple[str, str], tuple[str, Any]] = {}
        """By namespace and channel: the version read last, and its value."""
        try:
            self._connection: psycopg.Connection[Any] = psycopg.connect(url, connect_timeout=10)
        except psycopg.Error as error:
            raise Unavailable(f"{self.name} cannot be reached: {_first_line(error)}") from None
        self._connection.read_only = True
        self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with self.moment():
            self._task_path = self._check()

    def _check(self) -> str:
        """Refuse what is no saver's; returns how to ask for a task's path."""
        columns = {
            table: {row[0] for row in self._ask(_COLUMNS, table)}
            for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
        }
        if (
            "parent_checkpoint_id" not in columns["checkpoints"]
            or "version" not in columns["checkpoint_blobs"]
            or "idx" not in columns["checkpoint_writes"]
        ):
            raise InvalidInputError(
                f"{self.name} does not hold the tables of LangGraph's PostgreSQL saver; if they "
                "are in another schema: postgresql://…?options=-csearch_path%3DSCHEMA"
            )
        return "task_path" if "task_path" in columns["checkpoint_writes"] else "''"

    def _ask(self, query: str, *values: Any) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except errors.InsufficientPrivilege as error:
            raise InvalidInputError(f"{self.name}: {_first_line(error)}") from None
        except psycopg.Error as error:
            raise Unavailable(f"{self.name} cannot be read: {_first_line(error)}") from None

    def threads(self) -> list[str]:
        query = 'SELECT DISTINCT thread_id COLLATE "C" AS id FROM checkpoints ORDER BY id'
        with self.moment():
            return [thread for (thread,) in self._ask(query)]

    @contextmanager
    def moment(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._values.clear()
            if not self._connection.closed:
                self._connection.rollback()

    def places(self, thread: str) -> list[Place]:
        return self._ask(
            "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = %s"
            ' ORDER BY checkpoint_id COLLATE "C", checkpoint_ns COLLATE "C"',
            thread,
        )

    def row(self, thread: str, place: Place) -> Row:
        ((parent, checkpoint, metadata),) = self._ask(
            f"SELECT parent_checkpoint_id, checkpoint, metadata FROM checkpoints {_WHERE}",
            thread,
            *place,
        )
        rows = self._ask(
            f"SELECT task_id, {self._task_path}, idx, channel, type, blob"
            f" FROM checkpoint_writes {_WHERE}",
            thread,
            *place,
        )
        row = checked(
            Row(checkpoint, metadata, parent or None, self._read.writes(rows, place)), place
        )
        inline = row.checkpoint.get("channel_values") or {}
        row.checkpoint["channel_values"] = {**inline, **self._channels(thread, place)}
        if row.parent and row.checkpoint.get("v", 1) < 4:
            self._older(row, thread, place)
        return row

    def _channels(self, thread: str, place: Place) -> dict[str, Any]:
        """The values that are stored apart, once for each version."""
        versions = dict(
            self._ask(
                "SELECT v.key, v.value FROM checkpoints,"
                f" jsonb_each_text(checkpoint -> 'channel_versions') v {_WHERE}",
                thread,
                *place,
            )
        )
        known = {channel: self._values.get((place[0], channel)) for channel in versions}
        new = [name for name, found in known.items() if not found or found[0] != versions[name]]
        blobs = self._ask(_BLOBS, new, [versions[name] for name in new], thread, place[0])
        for name, kind, data in blobs:
            empty = kind == "empty"
            value = _EMPTY if empty else self._read.value(kind, data, place, f"channel {name!r}")
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
            values = [self._read.value(kind, data, place, "a task") for kind, data in sends]
            versions = row.checkpoint["channel_versions"]
            row.checkpoint["channel_values"][TASKS] = values
            versions[TASKS] = max(versions.values()) if versions else f"{1:032}.0"

    def strays(self, thread: str) -> int:
        ((count,),) = self._ask(
            "SELECT count(*) FROM checkpoint_writes w WHERE thread_id = %s AND NOT EXISTS (SELECT"
            " 1 FROM checkpoints c WHERE c.thread_id = w.thread_id AND c.checkpoint_ns ="
            " w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id)",
            thread,
        )
        return int(count)

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
