"""Storage in a PostgreSQL database, through psycopg.

Several processes on several machines may share the store. At `full` a commit that returned is as
safe as the server's own commits: it survives the loss of power of the server, and its failover if
a synchronous standby is set up there; without one a failover may lose the newest commits, and
everything that was cached is then read again. At `normal` it survives the end of this process.

All commits of a store follow one another: each first counts itself in one row, and holds that row
until it is durable. So its expectations are true when it is applied, also those on rows that it
does not write, no commit fails for another reason than its own expectations, and the count tells
whether others have committed. Neither notifications nor locks of a session are used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from holdfast.errors import (
    ForeignSchemaError,
    OutcomeUnknown,
    Unavailable,
    UnsafePlaceError,
)
from holdfast.storage.batch import Ranges, conflict, differs
from holdfast.storage.contract import Batch, Limits, Moment
from holdfast.storage.postgres import schema as schema
from holdfast.storage.postgres.batch import Writer
from holdfast.storage.postgres.link import (
    Link,
    Lost,
    Param,
    Pool,
    Result,
    Statement,
    array,
    binary,
    number,
    text,
    unreachable,
)
from holdfast.storage.rows import Row
from holdfast.storage.server import PostgresAddress, ServerStorage

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
# A role or a database may have a lower level as its default, or a higher one.
_SETTINGS = (
    "SELECT set_config('lock_timeout', $1, true), set_config('synchronous_commit', CASE "
    "WHEN $2 = 'on' AND current_setting('synchronous_commit') = 'remote_apply' "
    "THEN 'remote_apply' ELSE $2 END, true)"
)
_SERVER = (
    "SELECT pg_is_in_recovery()::text, current_setting('fsync'), "
    "current_setting('full_page_writes')"
)
_STILL = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_PATIENT = "SET LOCAL idle_in_transaction_session_timeout = 0"


class PostgresStorage(ServerStorage):
    """A handle on the tables in one schema."""

    limits = Limits("postgresql", durability=("full", "normal"), shared=True, embedded=False)

    def __init__(
        self, url: str, *, durability: str = "full", create: bool = True, read_only: bool = False
    ) -> None:
        super().__init__(durability, read_only=read_only)
        self.address = PostgresAddress.of(url)
        self.address.check()
        full = durability == "full"
        self._level = "on" if full else "off"
        self._pool = Pool(self.address, partial(_welcome, self.address, full))
        name = schema.quoted(self.address.schema)
        self._get = f"SELECT v FROM {name}.records WHERE k = $1"
        self._get_many = f"SELECT k, v FROM {name}.records WHERE k = ANY($1)"
        self._select = f"SELECT k, v FROM {name}"
        self._count = f"UPDATE {name}.store SET commits = commits + 1"
        # The timeline is that of the server's log: a standby that becomes primary begins another.
        self._version = (
            f"SELECT commits, left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM {name}.store"
        )
        self._size = (
            f"SELECT sum(pg_total_relation_size(t))::bigint FROM unnest(ARRAY["
            f"'{name}.records', '{name}.cells', '{name}.store']::regclass[]) t"
        )
        deadline, more = self._pool.deadline(), create and not read_only
        try:
            with self._talking():
                done = False
                while not done:  # others may be making it at this moment
                    with self._pool.link(deadline) as link:
                        done = schema.prepare(
                            link, self.address, deadline, create=more, level=self._level
                        )
        except BaseException:  # nobody gets the handle that would close it
            self._pool.close()
            raise

    # -- the contract ------------------------------------------------------------------

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._life.check()
        if len(keys) == 1:
            rows = self._ask(self._get, binary(keys[0]))
            return [rows[0][0] if rows else None]
        if not keys:
            return []
        found = dict(self._ask(self._get_many, array(list(dict.fromkeys(keys)))))
        return [found.get(key) for key in keys]

    def _commit(self, batch: Batch) -> None:
        statement = Writer(batch, schema.quoted(self.address.schema)).statement()
        with self._tally.flight() as counted:
            results, doubt = self._send(statement)
            if _committed(results):
                counted()
        self._judge(results, doubt)

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        self._life.check()
        with self._talking(), self._pool.link(self._pool.deadline()) as link:
            still = _Still(self, link)
            still.ask(_STILL)
            still.ask(_PATIENT)
            # The moment is that of the first statement which reads.
            still.ask(self._version)
            try:
                yield still
            finally:
                # Also of a link that is lost already, which is then told below.
                with suppress(Lost):
                    link.flight([("ROLLBACK", [])], self._pool.deadline())

    def size(self) -> int:
        self._life.check()
        return int.from_bytes(self._ask(self._size)[0][0], "big")

    def check(self) -> list[str]:
        self._life.check()
        deadline = self._pool.deadline()
        with self._talking(), self._pool.link(deadline) as link:
            return schema.differences(link, self.address, deadline)

    def close(self) -> None:
        if self._life.end():
            self._pool.close()

    # -- asking ------------------------------------------------------------------------

    def _range(self, table: str, low: bytes, high: bytes, limit: int, reverse: bool) -> Statement:
        sql = f"{self._select}.{table} WHERE k >= $1 AND k < $2 ORDER BY k"
        sql += " DESC LIMIT $3" if reverse else " LIMIT $3"
        return sql, [binary(low), binary(high), number(limit)]

    def _rows(self, table: str, low: bytes, high: bytes, limit: int, reverse: bool) -> list[Row]:
        self._life.check()
        sql, params = self._range(table, low, high, limit, reverse)
        return self._ask(sql, *params)

    def _commits(self) -> tuple[int, bytes]:
        rows = self._ask(self._version)
        if len(rows) != 1:
            raise ForeignSchemaError(
                f"the row that counts commits in {self.address} is missing: restore the database "
                "from a backup"
            )
        commits, timeline = rows[0]
        return int.from_bytes(commits, "big"), timeline

    def _ask(self, sql: str, *params: Param) -> list[Row]:
        """Read. If the link breaks, it may have been broken before: a new one is tried."""
        deadline = self._pool.deadline()
        with self._talking():
            try:
                return self._read(sql, params, deadline)
            except Lost as lost:
                if lost.late:
                    raise
            return self._read(sql, params, deadline, fresh=True)

    def _read(
        self, sql: str, params: Sequence[Param], deadline: float, *, fresh: bool = False
    ) -> list[Row]:
        with self._pool.link(deadline, fresh=fresh) as link:
            return link.ask(sql, params, deadline)

    @contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except Lost as lost:
            raise unreachable(self.address, lost) from None

    # -- committing --------------------------------------------------------------------

    def _begin(self, deadline: float) -> list[Statement]:
        # The server gives up first, also where waiting for a link has taken most of the time:
        # then it is known that nothing was applied.
        patience = int((deadline - time.monotonic()) * 900)
        if patience < 1:
            raise Unavailable(
                f"waiting for a connection to {self.address} took all of the time; nothing was "
                "applied: try again, or give a larger pool_size or a longer timeout"
            )
        settings = [text(str(patience)), text(self._level)]
        return [(_BEGIN, []), (_SETTINGS, settings), (self._count, [])]

    def _send(self, statement: Statement) -> tuple[Sequence[Result], str]:
        """Send the whole transaction; the results that came, and why not to believe them."""
        deadline = self._pool.deadline()
        try:
            with self._pool.link(deadline) as link:
                whole = [*self._begin(deadline), statement, ("COMMIT", [])]
                results = link.flight(whole, deadline)
        except Lost as lost:
            return lost.results, str(lost)
        return results, "the server warned while it committed" if link.warned else ""

    def _judge(self, results: Sequence[Result], doubt: str) -> None:
        """Return if the batch is applied, else raise what became of it."""
        error = next((result for result in results[:4] if result.failed), None)
        if error is not None and error.severity == "ERROR":
            raise error.error()  # the server passed over all that followed, also COMMIT
        if error is None and len(results) > 3:
            found = results[3].rows()
            failed = [key for kind, key in found if kind == b"e"]
            if failed:
                raise conflict(list(dict.fromkeys(failed)))
            if found:
                raise differs(found[0][1])
            if results[2].done != b"UPDATE 1":
                doubt = "the row that counts commits is missing, or something keeps it as it is"
        if doubt or not _committed(results):
            raise OutcomeUnknown(
                f"the commit to {self.address} may or may not have been applied: "
                f"{doubt or 'the server did not confirm it'}; read again to see"
            )


class _Still(Ranges):
    """Reads in one transaction, on a link of its own."""

    def __init__(self, storage: PostgresStorage, link: Link) -> None:
        self._storage = storage
        self._link = link

    def _rows(self, table: str, low: bytes, high: bytes, limit: int, reverse: bool) -> list[Row]:
        sql, params = self._storage._range(table, low, high, limit, reverse)
        return self.ask(sql, *params)

    def ask(self, sql: str, *params: Param) -> list[Row]:
        """The rows that a statement gives. A link that broke has lost the moment."""
        self._storage._life.check()
        return self._link.ask(sql, params, self._storage._pool.deadline())


def _committed(results: Sequence[Result]) -> bool:
    return len(results) == 5 and not results[4].failed and results[4].done == b"COMMIT"


def _welcome(address: PostgresAddress, full: bool, link: Link) -> None:
    """Refuse a server that could not keep what is promised."""
    standby, *safe = link.ask(_SERVER, [], time.monotonic() + address.timeout / 1000)[0]
    link.spoiled = standby == b"true" or (full and safe != [b"on", b"on"])
    if standby == b"true":
        raise Unavailable(
            f"{address} is a standby; give the address of the primary, or of several hosts"
        )
    if link.spoiled:
        raise UnsafePlaceError(
            f"{address} runs with fsync or full_page_writes off, so that it can lose what it has "
            "confirmed; switch them on, or open with durability='normal'"
        )
