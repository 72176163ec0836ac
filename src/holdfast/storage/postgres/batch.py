"""One batch as one statement of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.storage.contract import Batch
from holdfast.storage.postgres.link import Param, Statement, array


class Writer:
    """Makes the statement that checks what a batch expects and, if all of it holds, writes.

    It gives a row (kind, key) for each expectation that failed (`e`) and each record that is
    there with other bytes (`o`); where there is any such row nothing was written. It has to run
    alone in the store, and must see all that was committed before: one statement that waits sees
    what was there before it waited, so that the lock is taken by the statement before this one.

    Only what the batch has is in it, because it is planned anew each time.
    """

    def __init__(self, batch: Batch, schema: str) -> None:
        self._batch = batch
        self._records, self._cells = f"{schema}.records", f"{schema}.cells"
        self._params: list[Param] = []
        self._puts = self._table(*_columns(batch.puts)) if batch.puts else ""

    def statement(self) -> Statement:
        """The statement, with its parameters."""
        bad = [*self._failed(), *self._others()]
        parts = []
        if bad:
            parts.append(f"bad(kind, k) AS MATERIALIZED ({' UNION ALL '.join(bad)})")
        fine = "NOT EXISTS (SELECT FROM bad)" if bad else ""
        parts += [f"w{n} AS ({sql})" for n, sql in enumerate(self._writes(fine))]
        found = "SELECT kind, k FROM bad" if bad else "SELECT ''::text, ''::bytea WHERE false"
        return f"WITH {', '.join(parts)} {found}" if parts else found, self._params

    def _column(self, values: Sequence[bytes | None]) -> str:
        self._params.append(array(values))
        return f"${len(self._params)}"

    def _table(self, *columns: Sequence[bytes | None]) -> str:
        names = ", ".join(self._column(column) for column in columns)
        return f"unnest({names})"

    def _failed(self) -> list[str]:
        batch, sql = self._batch, []
        if batch.absent:
            keys = self._column(batch.absent)
            sql.append(f"SELECT 'e', k FROM {self._records} WHERE k = ANY({keys})")
        if batch.present:
            sql.append(
                f"SELECT 'e', p.k FROM {self._table(batch.present)} p(k) WHERE NOT EXISTS "
                f"(SELECT FROM {self._records} r WHERE r.k = p.k)"
            )
        for table, rows in ((self._cells, batch.cells), (self._records, batch.swaps)):
            if rows:
                expected = self._table(*_columns([(key, old) for key, old, _ in rows]))
                sql.append(
                    f"SELECT 'e', c.k FROM {expected} c(k, v) LEFT JOIN {table} r ON r.k = c.k "
                    "WHERE r.v IS DISTINCT FROM c.v"
                )
        return sql

    def _others(self) -> list[str]:
        """Records that are put, may be there, and then must be the same."""
        known = set(self._batch.absent)
        if all(key in known for key, _ in self._batch.puts):
            return []
        same = f"{self._records} r ON r.k = p.k"
        return [f"SELECT 'o', p.k FROM {self._puts} p(k, v) JOIN {same} WHERE r.v <> p.v"]

    def _writes(self, fine: str) -> list[str]:
        batch, sql = self._batch, []
        if batch.puts:
            sql.append(self._insert(self._records, self._puts, fine))
        if batch.swaps:
            rows: list[tuple[bytes, bytes | None]] = [(key, new) for key, _, new in batch.swaps]
            sql.append(self._update(self._records, rows, fine))
        if batch.drops:
            sql.append(self._delete(self._records, batch.drops, fine))
        changed = [(key, old, new) for key, old, new in batch.cells if old != new]
        if rows := [(key, new) for key, old, new in changed if old is None]:
            sql.append(self._insert(self._cells, self._table(*_columns(rows)), fine))
        if rows := [(key, new) for key, old, new in changed if None not in (old, new)]:
            sql.append(self._update(self._cells, rows, fine))
        if keys := [key for key, _, new in changed if new is None]:
            sql.append(self._delete(self._cells, keys, fine))
        return sql

    def _insert(self, table: str, rows: str, fine: str) -> str:
        where = f" WHERE {fine}" if fine else ""
        return f"INSERT INTO {table} SELECT * FROM {rows}{where} ON CONFLICT DO NOTHING"

    def _update(self, table: str, rows: list[tuple[bytes, bytes | None]], fine: str) -> str:
        where = f" AND {fine}" if fine else ""
        new = self._table(*_columns(rows))
        return f"UPDATE {table} t SET v = n.v FROM {new} n(k, v) WHERE t.k = n.k{where}"

    def _delete(self, table: str, keys: list[bytes], fine: str) -> str:
        where = f" AND {fine}" if fine else ""
        return f"DELETE FROM {table} WHERE k = ANY({self._column(keys)}){where}"


def _columns(rows: Sequence[tuple[bytes, bytes | None]]) -> tuple[list[bytes], list[bytes | None]]:
    return [key for key, _ in rows], [value for _, value in rows]
