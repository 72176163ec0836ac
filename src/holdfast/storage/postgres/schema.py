"""The tables of a store in PostgreSQL: making them, and refusing what is not exactly them.

A trigger, a rule, a policy, a table that inherits, an unlogged table: each would make an
acknowledged write something else than what is stored. So everything that lies in the store's
schema is described, a line for each thing, and compared with what was made there.
"""

from __future__ import annotations

from holdfast.errors import (
    NewerFormatError,
    NotAStoreError,
    StoreNotFoundError,
)
from holdfast.storage import server
from holdfast.storage.postgres.link import Link, text
from holdfast.storage.server import PostgresAddress

FORMAT = 1
_TABLES = (
    "CREATE TABLE {0}.records (k bytea PRIMARY KEY, v bytea NOT NULL)",
    "CREATE TABLE {0}.cells (k bytea PRIMARY KEY, v bytea NOT NULL)",
    # Every commit counts itself here, and holds this row while it does.
    """CREATE TABLE {0}.store
    (one boolean PRIMARY KEY CHECK (one), format integer NOT NULL, commits bigint NOT NULL)""",
    # What is stored is compressed or sealed already.
    "ALTER TABLE {0}.records ALTER v SET STORAGE EXTERNAL",
    f"INSERT INTO {{0}}.store VALUES (true, {FORMAT}, 0) ON CONFLICT DO NOTHING",
)
_EXPECTED = frozenset(
    {"schema", "constraint store_one_check of store: CHECK (one)"}
    | {f"index {name}_pkey" for name in ("records", "cells", "store")}
    | {f"table {name}" for name in ("records", "cells", "store")}
    | {f"column {name}.{part} bytea" for name in ("records", "cells") for part in "kv"}
    | {"column store.one boolean", "column store.format integer", "column store.commits bigint"}
    | {f"constraint {name}_pkey of {name}: PRIMARY KEY (k)" for name in ("records", "cells")}
    | {"constraint store_pkey of store: PRIMARY KEY (one)"}
)
_DESCRIBE = """
WITH here AS (SELECT oid FROM pg_namespace WHERE nspname = $1),
there AS (SELECT c.* FROM pg_class c JOIN here ON c.relnamespace = here.oid)
SELECT 'schema' FROM here
UNION ALL
SELECT CASE relkind WHEN 'r' THEN 'table ' WHEN 'i' THEN 'index ' WHEN 'v' THEN 'view '
    WHEN 'S' THEN 'sequence ' ELSE 'relation ' END
    || relname || CASE relpersistence WHEN 'p' THEN '' ELSE ' (not logged)' END
    || CASE WHEN relrowsecurity OR relforcerowsecurity THEN ' (with row security)' ELSE '' END
    || CASE WHEN relispartition THEN ' (a partition)' ELSE '' END
    FROM there
UNION ALL
SELECT 'column ' || relname || '.' || attname || ' ' || format_type(atttypid, atttypmod)
    || CASE WHEN attnotnull THEN '' ELSE ' (may be null)' END
    || CASE WHEN atthasdef OR attidentity <> '' OR attgenerated <> '' THEN ' (made)' ELSE '' END
    FROM there JOIN pg_attribute ON attrelid = there.oid
    WHERE relkind = 'r' AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'constraint ' || conname || ' of ' || relname || ': ' || pg_get_constraintdef(con.oid)
    FROM there JOIN pg_constraint con ON conrelid = there.oid WHERE contype <> 'n'
UNION ALL
SELECT 'trigger ' || tgname || ' on ' || relname
    FROM there JOIN pg_trigger ON tgrelid = there.oid
UNION ALL
SELECT 'rule ' || rulename || ' on ' || relname
    FROM there JOIN pg_rewrite ON ev_class = there.oid
UNION ALL
SELECT 'policy ' || polname || ' on ' || relname FROM there JOIN pg_policy ON polrelid = there.oid
UNION ALL
SELECT 'table ' || i.inhrelid::regclass || ' that inherits from ' || relname
    FROM there JOIN pg_inherits i ON inhparent = there.oid
UNION ALL
SELECT 'function ' || proname FROM pg_proc JOIN here ON pronamespace = here.oid
UNION ALL
SELECT 'type ' || typname FROM pg_type JOIN here ON typnamespace = here.oid
    WHERE typtype IN ('d', 'e', 'r')
"""
_FASTER = ("23505", "42P06", "42P07")
"""Codes that say that another process has just made a schema, a table or its row."""


def differences(link: Link, address: PostgresAddress, deadline: float) -> list[str]:
    """What is in the schema and should not be, or the other way round; [] if it is ours."""
    return server.differences(_described(link, address, deadline), _EXPECTED)


def prepare(
    link: Link, address: PostgresAddress, deadline: float, *, create: bool, level: str
) -> bool:
    """Check the tables, or make them where nothing is, at that level of `synchronous_commit`.
    False if another process was just doing so: look again, on another link."""
    found = _described(link, address, deadline)
    if found - {"schema"}:
        if wrong := server.differences(found, _EXPECTED):
            place = f"schema of {address}"
            raise server.not_as_made(place, wrong, "schema (?schema=NAME)")
        rows = link.ask(f"SELECT format::bigint FROM {quoted(address.schema)}.store", [], deadline)
        number = int.from_bytes(rows[0][0], "big") if len(rows) == 1 else 0
        if number > FORMAT:
            raise NewerFormatError(
                f"{address} has format {number}, this version knows up to {FORMAT}; update holdfast"
            )
        if number < FORMAT:
            raise NotAStoreError(f"{address} has no valid format number; restore it from a backup")
        return True
    if not create:
        raise StoreNotFoundError(
            f"there is no store at {address}; check the address or open with create=True"
        )
    made = [] if "schema" in found else [f"CREATE SCHEMA {quoted(address.schema)}"]
    made += [sql.format(quoted(address.schema)) for sql in _TABLES]
    # All in one transaction: it is there whole, or not at all.
    whole = ["BEGIN", f"SET LOCAL synchronous_commit = {level}", *made, "COMMIT"]
    results = link.flight([(sql, []) for sql in whole], deadline)
    failed = next((one for one in results if one.failed), None)
    if failed is not None and failed.code not in _FASTER:
        raise failed.error()
    return failed is None


def quoted(schema: str) -> str:
    """The schema's name in a statement."""
    return f'"{schema}"'


def _described(link: Link, address: PostgresAddress, deadline: float) -> frozenset[str]:
    found = link.ask(_DESCRIBE, [text(address.schema)], deadline)
    return frozenset(line.decode(errors="replace") for (line,) in found)
