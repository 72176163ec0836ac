"""PostgreSQL as storage: its URL, its tables, what it refuses; and nothing shows a password."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_kit import Server

import holdfast
from holdfast import Ephemeral, sync
from holdfast.errors import (
    ForeignSchemaError,
    HoldfastError,
    InvalidInputError,
    KeyMissingError,
    KeyNotNeededError,
    MissingExtraError,
    NewerFormatError,
    NotAStoreError,
    OutcomeUnknown,
    ReadOnlyError,
    StorageReadOnlyError,
    StoreForkedError,
    StoreNotFoundError,
    Unavailable,
    UnsafePlaceError,
)
from holdfast.storage import open_storage, shown
from holdfast.storage.contract import Batch
from holdfast.storage.postgres.engine import PostgresStorage
from holdfast.storage.postgres.link import Link
from holdfast.storage.server import PostgresAddress

_numbers = itertools.count()


@pytest.fixture
def schema() -> str:
    return f"own_{next(_numbers)}"


@pytest.fixture
def url(postgres: Server, schema: str) -> str:
    return f"{postgres.url}&schema={schema}"


# ---- what a write asks for -------------------------------------------------------------------


def test_a_write_is_one_round_trip(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flights: list[int] = []
    flight = Link.flight

    def noted(link: Link, statements: Any, deadline: float) -> Any:
        flights.append(len(statements))
        return flight(link, statements, deadline)

    with sync.open(url) as store:
        state = store.agent("a")
        state.set("k", 0)
        monkeypatch.setattr(Link, "flight", noted)
        for number in range(5):
            state.set("k", number)
            state.append("l", number)
        state.delete("k")
        assert len(flights) <= 12  # a delete looks whether the scope is there


def test_a_write_that_asks_nothing_first_rests_on_what_others_wrote(url: str) -> None:
    """What is held here may be old: then its entry's number is taken, and it is built anew."""
    with sync.open(url) as one, sync.open(url) as other:
        a, b = one.agent("a"), other.agent("a")
        a.set("k", 1)
        b.set("k", 2)
        a.set("k", 3)
        version = b.set("k", 4)
        a.set("k", 5, if_version=version)  # which this process has not seen
        b.set("l", [1])
        a.append("l", 2)
        assert b.get_many(["k", "l"]) == {"k": 5, "l": [1, 2]}
        b.set("l", "no list")
        with pytest.raises(InvalidInputError, match="not a list"):
            a.append("l", 3)
        b.set("l", [3])
        a.append("l", 4)
        b.set("e", 1)
        a.expire("e", 60)
        b.delete("e")
        assert a.delete("e") is False
        b.declare(Ephemeral("tmp/"))
        a.set("tmp/x", 1)
        assert (a.get("tmp/x"), b.get("tmp/x"), b.get("l")) == (1, None, [3, 4])
        other.delete("agent:a")
        a.set("new", 1)
        assert b.items() == [("new", 1)]
        assert one.verify().findings == []


# ---- where it lies ---------------------------------------------------------------------------


def test_options_of_the_url() -> None:
    plain = PostgresAddress.of("postgresql://user:pass@localhost:5432/kai_states")
    assert (plain.schema, plain.pool_size, plain.timeout) == ("holdfast", 20, 30_000)
    other = PostgresAddress.of("postgres://h/d?schema=mine&sslmode=require&pool_size=3&timeout=250")
    assert (other.schema, other.pool_size, other.timeout) == ("mine", 3, 250)
    assert other.conninfo == "postgres://h/d?sslmode=require"
    assert other.defaults()["connect_timeout"] == 2
    assert PostgresAddress.of("postgresql://a,b/d").defaults()["target_session_attrs"] == "primary"


@pytest.mark.parametrize(
    "wrong",
    [
        "pool_size=0", "pool_size=many", "pool_size=", "timeout=-1", "timeout=1e3",
        "timeout=1&timeout=2", "schema=", "schema=pg_mine", "schema=Mine", "schema=a.b",
        "schema=a%22b", "colour=red", "port=secret",
    ],
)  # fmt: skip
def test_options_that_are_wrong(wrong: str) -> None:
    with pytest.raises((InvalidInputError, Unavailable)) as told:
        open_storage(f"postgresql://user:hunter2@127.0.0.1:1/d?{wrong}")
    assert "hunter2" not in str(told.value)


def test_several_stores_share_a_database(postgres: Server, schema: str) -> None:
    with (
        sync.open(f"{postgres.url}&schema={schema}") as one,
        sync.open(f"{postgres.url}&schema={schema}_b") as two,
    ):
        one.agent("a").set("k", 1)
        assert two.agent("a").get("k") is None
        assert one.identity() != two.identity()


def test_a_store_is_made_only_where_that_is_allowed(url: str) -> None:
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(StoreNotFoundError, match="create=True"):
            sync.open(url, **options)
    sync.open(url).close()
    with sync.open(url, read_only=True) as store, pytest.raises(ReadOnlyError):
        store.agent("a").set("k", 1)


def test_a_server_that_is_not_there_or_refuses(postgres: Server) -> None:
    for wrong in (
        "postgresql://u:hunter2@127.0.0.1:1/d",
        f"postgresql://nobody:hunter2@127.0.0.1:{postgres.port}/postgres",
        f"postgresql://postgres:hunter2@127.0.0.1:{postgres.port}/not_there",
    ):
        with pytest.raises(Unavailable, match="no connection") as told:
            sync.open(wrong)
        assert "hunter2" not in "".join(traceback.format_exception(told.value))


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [one for one in sys.modules if one.startswith("holdfast.storage.postgres.")]:
        if not name.endswith(".url"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=r"holdfast\[postgres\]"):
        sync.open("postgresql://h/d")


# ---- secrets ---------------------------------------------------------------------------------


def test_no_password_shows_anywhere(
    postgres: Server, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    postgres.run(
        "DROP ROLE IF EXISTS guarded",
        "CREATE ROLE guarded LOGIN PASSWORD 'hunter2' SUPERUSER",
    )
    url = f"postgresql://guarded:hunter2@127.0.0.1:{postgres.port}/postgres?schema={schema}"
    said = [shown(url), shown("postgresql:hunter2"), shown("postgresql//u:hunter2@h")]
    for sign in "/?@#":
        written = f"postgresql://u:1{sign}hunter2@127.0.0.1/d"
        with pytest.raises(InvalidInputError, match="write @ as %40") as told:
            sync.open(written)
        said += [shown(written), str(told.value)]
    with sync.open(url) as store:
        storage = store._core.storage
        said += [repr(store), str(store.metrics()), str(store.stats()), str(store.identity())]
        said += [repr(storage), repr(storage.address), str(storage.address)]  # type: ignore[attr-defined]
        postgres.run(f"DROP SCHEMA {schema} CASCADE")
        with pytest.raises(HoldfastError) as told:
            store.agent("a").get("k")
        said += traceback.format_exception(told.value)
    for wrong in (url.replace("5", "x"), url.replace("//", ""), f"{url}&create=1", f"{url}&ring=x"):
        with pytest.raises(HoldfastError) as told:
            sync.open(wrong, key="env:NOT_THERE", create=False)
        said += [str(told.value), repr(told.value)]
    assert not [text for text in said if "hunter2" in text]
    assert "hunter2" not in caplog.text


def test_the_ring_of_an_encrypted_store_lies_where_the_url_says(
    postgres: Server, schema: str, tmp_path: Path
) -> None:
    key = f"file:{tmp_path / 'master.key'}"
    url = f"{postgres.url}&schema={schema}"
    with pytest.raises(InvalidInputError, match="ring=PATH"):
        sync.open(url, key=key)
    assert postgres.run(f"SELECT FROM pg_namespace WHERE nspname = '{schema}'") == []
    ring = tmp_path / "agents.keys"
    there = f"{url}&ring={ring}"
    with sync.open(there, key=key) as store:
        store.agent("a").set("k", "word")
        assert store.agent("a").checkpoint("c").signed_by
    assert ring.stat().st_mode & 0o777 == 0o600
    rows = postgres.run(f"SELECT v FROM {schema}.records UNION ALL SELECT v FROM {schema}.cells")
    assert not [row for (row,) in rows if b"word" in row]
    with sync.open(there, key=key) as store:
        assert store.agent("a").get("k") == "word"
        assert store.verify().ok
    with pytest.raises(KeyMissingError):
        sync.open(there)
    with pytest.raises(KeyMissingError, match="ring"):
        sync.open(f"{url}&ring={tmp_path / 'other.keys'}", key=key)


def test_a_ring_in_another_database(postgres: Server, schema: str, tmp_path: Path) -> None:
    """For several machines; it has to be asked for, and cannot be the store's own schema."""
    key = f"file:{tmp_path / 'master.key'}"
    at = f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres"
    same, apart = f"{at}%3Fschema={schema}", f"{at}%3Fschema={schema}_ring"
    for named in (same, same.replace("127.0.0.1", "localhost"), same.replace("@", ":x@")):
        with pytest.raises(InvalidInputError, match="own schema"):
            sync.open(f"{at}?schema={schema}&ring={named}", key=key)
    for _ in range(2):
        with sync.open(f"{at}?schema={schema}&ring={apart}", key=key) as store:
            store.agent("a").append("k", 1)
            assert store.verify().ok


def test_signers(postgres: Server, schema: str, tmp_path: Path) -> None:
    """A plain store is signed for if it was made with a signer, else by nobody."""
    url, signer = f"{postgres.url}&schema={schema}", f"file:{tmp_path / 'signer.key'}"
    with sync.open(url, signer=signer) as store:
        assert store.agent("a").checkpoint("c").signed_by
    with sync.open(url) as store:
        assert not store.agent("a").checkpoint("d").signed_by
    with sync.open(f"{url}b") as store:
        assert not store.agent("a").checkpoint("c").signed_by
    with pytest.raises(KeyNotNeededError):
        sync.open(f"{url}b&ring={tmp_path / 'r'}", key=f"file:{tmp_path / 'k'}")


# ---- tables ----------------------------------------------------------------------------------

PLANTED = {
    "trigger": (
        "CREATE FUNCTION public.{0}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER evil BEFORE INSERT ON {0}.records FOR EACH ROW EXECUTE FUNCTION {0}()",
    ),
    "rule": ("CREATE RULE evil AS ON INSERT TO {0}.records DO INSTEAD NOTHING",),
    "policy": ("CREATE POLICY evil ON {0}.cells USING (false)",),
    "row security": ("ALTER TABLE {0}.records ENABLE ROW LEVEL SECURITY",),
    "not logged": ("ALTER TABLE {0}.cells SET UNLOGGED",),
    "inherits": ("CREATE TABLE public.{0}_child () INHERITS ({0}.records)",),
    "table other": ("CREATE TABLE {0}.other (x int)",),
    "view": ("CREATE VIEW {0}.other AS SELECT 1",),
    "function other": ("CREATE FUNCTION {0}.other() RETURNS int LANGUAGE sql AS 'SELECT 1'",),
    "index other": ("CREATE INDEX other ON {0}.records (v)",),
    "column records.more": ("ALTER TABLE {0}.records ADD COLUMN more int",),
    "may be null": ("ALTER TABLE {0}.records ALTER v DROP NOT NULL",),
    "made": ("ALTER TABLE {0}.records ALTER v SET DEFAULT ''",),
    "constraint small": ("ALTER TABLE {0}.records ADD CONSTRAINT small CHECK (length(v) < 9)",),
    "records_pkey is missing": ("ALTER TABLE {0}.records DROP CONSTRAINT records_pkey",),
    "table cells is missing": ("DROP TABLE {0}.cells",),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_in_the_schema_is_refused_and_named(
    postgres: Server, url: str, schema: str, what: str
) -> None:
    open_before = open_storage(url, durability="normal")
    assert open_before.check() == []
    postgres.run(*(statement.format(schema) for statement in PLANTED[what]))
    with pytest.raises(ForeignSchemaError, match=what):
        open_storage(url)
    assert [one for one in open_before.check() if what in one]
    open_before.close()


def test_verify_tells_of_a_planted_trigger(postgres: Server, url: str, schema: str) -> None:
    with sync.open(url) as store:
        store.agent("a").set("k", 1)
        postgres.run(*(statement.format(schema) for statement in PLANTED["trigger"]))
        findings = store.verify().findings
        assert any("trigger evil on records" in str(one) for one in findings)


def test_a_schema_of_somebody_else_is_left_alone(postgres: Server, url: str, schema: str) -> None:
    postgres.run(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.theirs (x int)")
    with pytest.raises(ForeignSchemaError, match="theirs"):
        open_storage(url)
    sql = f"SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace"
    assert postgres.run(sql) == [("theirs",)]
    postgres.run(f"DROP TABLE {schema}.theirs")
    open_storage(url).close()  # an empty one may be made ready by whoever owns the database


def test_another_format_is_refused(postgres: Server, url: str, schema: str) -> None:
    open_storage(url).close()
    postgres.run(f"UPDATE {schema}.store SET format = 2")
    with pytest.raises(NewerFormatError):
        open_storage(url)
    postgres.run(f"DELETE FROM {schema}.store")
    with pytest.raises(NotAStoreError):
        open_storage(url)


def test_the_row_that_counts_commits_must_be_there(postgres: Server, url: str, schema: str) -> None:
    """It is the lock of all commits."""
    storage = open_storage(url)
    postgres.run(f"DELETE FROM {schema}.store")
    with pytest.raises(ForeignSchemaError, match="counts"):
        storage.version()
    with pytest.raises(OutcomeUnknown, match="counts"):
        storage.commit(Batch(puts=[(b"k", b"v")]))
    storage.close()


def test_a_role_that_may_only_read(postgres: Server, url: str, schema: str) -> None:
    open_storage(url).close()
    postgres.run(
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO reader",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader",
    )
    storage = open_storage(url.replace("postgres@", "reader@"))
    assert storage.get([b"k"]) == [None]
    with pytest.raises(StorageReadOnlyError, match="grant"):
        storage.commit(Batch(puts=[(b"k", b"v")]))
    storage.close()
    postgres.run("DROP OWNED BY reader", "DROP ROLE reader")


# ---- what a server must be -------------------------------------------------------------------


@pytest.fixture(scope="module")
def careless() -> Iterator[Server]:
    """A server that forgets what it has confirmed."""
    server = Server("fsync=off")
    yield server
    server.remove()


def test_a_server_without_fsync_cannot_be_full(careless: Server) -> None:
    with pytest.raises(UnsafePlaceError, match="durability='normal'"):
        open_storage(careless.url)
    open_storage(careless.url, durability="normal").close()


def test_commits_are_synchronous_whatever_a_role_says(postgres: Server, url: str) -> None:
    """As `ALTER ROLE … SET synchronous_commit = off` would make every session."""
    postgres.run("DROP ROLE IF EXISTS hasty", "CREATE ROLE hasty LOGIN SUPERUSER")
    postgres.run("ALTER ROLE hasty SET synchronous_commit = off")
    storage = PostgresStorage(url.replace("postgres@", "hasty@"))
    with storage._pool.link(storage._pool.deadline()) as link:
        ask = ("SELECT current_setting('synchronous_commit')", [])
        deadline = storage._pool.deadline()
        statements = [*storage._begin(deadline), ask, ("ROLLBACK", []), ask]
        results = link.flight(statements, deadline)
    assert results[3].rows() == [(b"on",)]
    assert results[5].rows() == [(b"off",)]  # nothing is left of it
    storage.close()


def test_a_standby_is_refused_and_a_new_timeline_changes_every_token() -> None:
    server = Server()
    try:
        mine = f"{server.url}&schema=mine"
        storage = open_storage(mine)
        storage.commit(Batch(puts=[(b"k", b"v")]))
        before = storage.version()
        server.stop()
        Path(server.data, "standby.signal").touch()
        server.start()
        with pytest.raises(Unavailable, match="standby"):
            storage.get([b"k"])
        server.run("SELECT pg_promote()")
        assert storage.get([b"k"]) == [b"v"]
        assert storage.version() != before
        storage.close()
    finally:
        server.remove()


# ---- use -------------------------------------------------------------------------------------


def test_version_tells_apart_whose_commits_they_are(url: str) -> None:
    one, two = open_storage(url), open_storage(url)
    tokens = [one.version(), two.version()]
    one.commit(Batch(puts=[(b"a", b"1")]))
    assert one.version() == tokens[0]
    assert two.version() != tokens[1]
    two.commit(Batch(puts=[(b"b", b"1")]))
    assert one.version() != tokens[0]
    one.close()
    two.close()


def test_no_more_connections_than_the_pool_has(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_storage(url).close()
    storage = PostgresStorage(f"{url}&pool_size=2")
    deadline = storage._pool.deadline()
    full = pytest.raises(Unavailable, match="all 2 connections")
    with storage._pool.link(deadline), storage._pool.link(deadline), monkeypatch.context() as soon:
        soon.setattr(storage._pool, "deadline", lambda: time.monotonic() + 0.1)
        with full:
            storage.get([b"k"])
    assert storage.get([b"k"]) == [None]
    storage.close()


def test_one_connection_is_enough(url: str) -> None:
    with sync.open(f"{url}&pool_size=1") as store, sync.open(url) as other:
        for number in range(5):
            store.agent("a").append("k", number)
            other.agent("a").append("k", number)
        assert store.agent("a").length("k") == 10


def test_reads_and_writes_do_not_hold_the_event_loop(
    postgres: Server, url: str, schema: str
) -> None:
    """A server that does not answer for a while holds up who asks, and nobody else."""

    async def main() -> None:
        async with holdfast.open(url, durability="normal") as store:
            state = store.agent("a")
            await state.set("k", 1)
            with psycopg.connect(postgres.url) as other:
                other.execute(f"LOCK TABLE {schema}.records, {schema}.store")
                asked = [
                    asyncio.create_task(state.get("k")),
                    asyncio.create_task(state.set("k", 2)),
                ]
                beats = 0
                while beats < 20:
                    await asyncio.sleep(0.01)
                    beats += 1
                assert not any(task.done() for task in asked)
            await asyncio.gather(*asked)
            assert await state.get("k") == 2

    asyncio.run(main())


def test_a_forked_child_refuses_and_leaves_the_parents_connections_alone(url: str) -> None:
    storage = open_storage(url)
    storage.commit(Batch(puts=[(b"k", b"v")]))
    child = os.fork()
    if not child:
        code = 1
        try:
            storage.get([b"k"])
        except StoreForkedError:
            storage.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    before = storage._pool._free[:]  # type: ignore[attr-defined]
    assert storage.get([b"k"]) == [b"v"]
    assert storage._pool._free == before  # type: ignore[attr-defined]
    storage.close()


def test_size_counts_what_is_stored(url: str) -> None:
    storage = open_storage(url, durability="normal")
    before = storage.size()
    storage.commit(Batch(puts=[(b"k", os.urandom(1 << 20))]))
    assert storage.size() > before + (1 << 20)
    assert storage.settle() is False  # the server's log still holds what was dropped
    storage.close()


def test_stores_that_are_left_open_close_their_connections(postgres: Server, url: str) -> None:
    def connections() -> Any:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'left'"
        return postgres.run(sql)[0][0]

    storage = open_storage(f"{url}&application_name=left")
    assert connections() == 1
    del storage
    end = time.monotonic() + 60
    while connections():
        assert time.monotonic() < end, "the connection is still there"
        time.sleep(0.02)
