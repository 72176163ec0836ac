"""Threads of LangGraph's own savers, taken over: all of them, exactly, or with a word why not."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from sources_kit import asking, config, counting, make_sqlite, make_threads, talking

from holdfast import sync
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    MissingExtraError,
    StoreNotFoundError,
    Unavailable,
)
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.langgraph.copy import Row
from holdfast.integrations.langgraph.importer import Import, Outcome
from holdfast.integrations.langgraph.sources import Place, open_source

# LangGraph warns of classes that nobody registered, and so does the interpreter of its beta.
pytestmark = pytest.mark.filterwarnings("ignore")
THREADS = ["ask", "count", "talk", "team/7: ünï"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "threads.sqlite"
    make_sqlite(path)
    return path


@pytest.fixture
def source(made: Path, tmp_path: Path) -> Path:
    """A saver's file that a test may change."""
    (tmp_path / "source").mkdir()
    return Path(shutil.copy2(made, tmp_path / "source" / "threads.sqlite"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sync.Store]:
    with sync.open(f"sqlite:{tmp_path / 'holdfast.db'}") as opened:
        yield opened


def take(store: Any, source: Path | str, **options: Any) -> dict[str, Outcome]:
    opened = open_source(str(source))
    try:
        work = Import(store, opened, **options)
        return {thread: work.run(thread) for thread in opened.threads()}
    finally:
        opened.close()


def content(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    """All that a saver gives of all threads."""
    found = []
    for one in saver.list(None):
        where = one.config["configurable"]
        parent = one.parent_config and one.parent_config["configurable"]["checkpoint_id"]
        place = (where["thread_id"], where["checkpoint_ns"], where["checkpoint_id"])
        checkpoint = {**one.checkpoint, "channel_values": {**one.checkpoint["channel_values"]}}
        found.append((place, parent, checkpoint, one.metadata, one.pending_writes))
    return sorted(found, key=lambda one: one[0])


def edit(path: Path, statement: str, *values: Any) -> None:
    with sqlite3.connect(path) as database:
        assert database.execute(statement, values).rowcount > 0
    database.close()


# ---- everything comes along ------------------------------------------------------------------


def test_every_checkpoint_and_write_of_every_thread_is_taken(
    source: Path, store: sync.Store
) -> None:
    outcomes = take(store, source)
    assert list(outcomes) == THREADS
    assert all(one.ok and one.imported == one.checkpoints for one in outcomes.values())
    assert outcomes["talk"].imported > 20
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        expected = content(theirs)
    ours = content(HoldfastSaver(store))
    assert len(ours) == sum(one.checkpoints for one in outcomes.values())
    assert ours == expected


def test_graphs_go_on_where_they_were(source: Path, store: sync.Store) -> None:
    take(store, source)
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        before = talking().compile(checkpointer=theirs).get_state(config("talk"))
        counted = counting().compile(checkpointer=theirs).get_state(config("count"))
    saver = HoldfastSaver(store)
    graph = talking().compile(checkpointer=saver)
    assert graph.get_state(config("talk")).values == before.values
    graph.invoke({"messages": [("human", "again")]}, config("talk"))
    after = graph.get_state(config("talk")).values["messages"]
    assert len(after) == len(before.values["messages"]) + 2
    # a delta channel is rebuilt from the writes that came along
    deltas = counting().compile(checkpointer=saver)
    assert deltas.get_state(config("count")).values == counted.values
    assert len(counted.values["log"]) == 8
    # and an interrupt waits for its answer; what ran beside it is not run again
    answered = asking().compile(checkpointer=saver).invoke(Command(resume="yes"), config("ask"))
    assert answered["messages"][-1].content == "you said yes"
    assert answered["seen"] == ["worked"]


def test_versions_are_kept_and_continued(source: Path, store: sync.Store) -> None:
    take(store, source)
    saver = HoldfastSaver(store)

    def version() -> str:
        found = saver.get_tuple(config("count"))
        assert found is not None
        return str(found.checkpoint["channel_versions"]["__start__"])

    before = version()
    assert len(before.partition(".")[0]) == 32
    counting().compile(checkpointer=saver).invoke({"log": ["again"]}, config("count"))
    assert version() > before


def test_indices_of_writes_with_gaps_are_kept(source: Path, store: sync.Store) -> None:
    edit(source, "UPDATE writes SET idx = idx + 5 WHERE thread_id = 'talk' AND idx >= 0")
    assert take(store, source)["talk"].ok
    # A second look compares every index.
    assert take(store, source)["talk"].present > 20


def test_a_file_from_before_task_paths_is_read(source: Path, store: sync.Store) -> None:
    with sqlite3.connect(source) as database:
        database.execute("ALTER TABLE writes DROP COLUMN task_path")
    database.close()
    assert all(one.ok for one in take(store, source).values())


# ---- cut short, run again --------------------------------------------------------------------


def test_importing_again_changes_nothing(source: Path, store: sync.Store) -> None:
    first = take(store, source)
    entries = store.stats()["entries"]
    again = take(store, source)
    assert store.stats()["entries"] == entries
    for thread, one in again.items():
        assert (one.ok, one.imported, one.writes) == (True, 0, 0)
        assert one.present == first[thread].checkpoints


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[5])
import sources_kit
from holdfast import sync
from holdfast.integrations.langgraph import copy
from holdfast.integrations.langgraph.importer import Import
from holdfast.integrations.langgraph.sources import open_source

class Killed(Import):
    "Ends the hard way when its n-th checkpoint is put and what was written on it is not."
    left = int(sys.argv[3])

def killed(*args):
    Killed.left -= 1
    if Killed.left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args)

real, copy.put_writes = copy.put_writes, killed

with sync.open(sys.argv[2]) as store:
    print(Killed(store, open_source(sys.argv[1])).run(sys.argv[4]))
"""


def test_an_import_that_was_killed_goes_on(source: Path, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'holdfast.db'}"
    kit = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for left in ("3", "9"):
        words = [sys.executable, "-c", KILLED, str(source), url, left, "talk", kit]
        done = subprocess.run(words, env=environment, capture_output=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with sync.open(url) as store:
        outcome = take(store, source)["talk"]
        assert outcome.ok
        assert outcome.imported + outcome.present == outcome.checkpoints
        assert outcome.present == 12  # 3, and then 9: what was there is not put again
        with SqliteSaver.from_conn_string(str(source)) as theirs:
            assert content(HoldfastSaver(store)) == content(theirs)
        assert store.verify().ok


def test_what_was_added_to_the_source_since_is_taken(source: Path, store: sync.Store) -> None:
    take(store, source)
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        graph = asking().compile(checkpointer=theirs)
        graph.invoke(Command(resume="later"), config("ask"))
    outcome = take(store, source)["ask"]
    assert outcome.ok
    assert outcome.present == 2
    assert outcome.imported > 0
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        assert content(HoldfastSaver(store)) == content(theirs)


# ---- threads that differ ---------------------------------------------------------------------


def test_a_thread_that_went_on_here_is_left_alone(source: Path, store: sync.Store) -> None:
    take(store, source)
    graph = asking().compile(checkpointer=HoldfastSaver(store))
    graph.invoke(Command(resume="here"), config("ask"))
    entries = store.stats()["entries"]
    assert take(store, source)["ask"].ok
    assert store.stats()["entries"] == entries


def test_a_thread_that_went_on_in_both_places_is_refused_or_replaced(
    source: Path, store: sync.Store
) -> None:
    take(store, source)
    asking().compile(checkpointer=HoldfastSaver(store)).invoke(
        Command(resume="here"), config("ask")
    )
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        asking().compile(checkpointer=theirs).invoke(Command(resume="there"), config("ask"))
    before = content(HoldfastSaver(store))
    outcome = take(store, source)["ask"]
    assert not outcome.ok
    assert outcome.error is not None
    assert "--replace" in outcome.error
    assert content(HoldfastSaver(store)) == before
    assert take(store, source, replace=True)["ask"].replaced
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        assert content(HoldfastSaver(store)) == content(theirs)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE checkpoints SET metadata = '{}' WHERE thread_id = 'ask'", "metadata"),
        ("UPDATE checkpoints SET parent_checkpoint_id = 'x' WHERE thread_id = 'ask'", "parent"),
        ("UPDATE writes SET channel = 'other' WHERE thread_id = 'ask'", "write "),
        ("UPDATE writes SET task_path = 'x' WHERE thread_id = 'ask'", "write "),
        ("UPDATE writes SET value = x'01' WHERE thread_id = 'ask' AND idx = 0", "write "),
    ],
)
def test_every_part_is_compared(source: Path, store: sync.Store, change: str, told: str) -> None:
    take(store, source)
    edit(source, change)
    outcome = take(store, source)["ask"]
    assert outcome.error is not None
    assert told in outcome.error


def test_what_does_not_come_back_as_it_was_is_reported(source: Path, store: sync.Store) -> None:
    """A source that gives another value each time, so that what is stored cannot be right."""
    lying, asked = open_source(str(source)), itertools.count()
    real = lying.row

    def row(thread: str, place: Place) -> Row:
        found = real(thread, place)
        found.checkpoint["channel_values"]["asked"] = next(asked)
        return found

    lying.row = row  # type: ignore[method-assign]
    outcome = Import(store, lying).run("ask")
    assert outcome.error is not None
    assert "its values did not come back as it was" in outcome.error
    lying.close()


# ---- dry runs, and what a source is spared ---------------------------------------------------


def test_a_dry_run_writes_nothing(source: Path, store: sync.Store) -> None:
    entries = store.stats()["entries"]
    outcomes = take(store, source, dry_run=True)
    assert store.stats()["entries"] == entries
    assert all(one.ok and one.imported == one.checkpoints for one in outcomes.values())
    assert [*HoldfastSaver(store).thread_ids()] == []


def test_a_source_is_not_touched(source: Path, store: sync.Store) -> None:
    before = source.read_bytes(), source.stat().st_mtime_ns, os.listdir(source.parent)
    take(store, source)
    assert (source.read_bytes(), source.stat().st_mtime_ns, os.listdir(source.parent)) == before


def test_a_source_in_use_is_read_as_it_is_now(source: Path, store: sync.Store) -> None:
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        asking().compile(checkpointer=theirs).invoke({"messages": []}, config("new"))
        assert Path(f"{source}-wal").stat().st_size > 0
        outcomes = take(store, source)
        assert outcomes["new"].ok
        asking().compile(checkpointer=theirs).invoke(Command(resume="x"), config("new"))
        assert content(theirs)


def test_a_source_that_changes_under_a_plain_reader_is_noticed(
    source: Path, store: sync.Store
) -> None:
    opened = open_source(str(source))
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        asking().compile(checkpointer=theirs).invoke({"messages": []}, config("new"))
    outcome = Import(store, opened).run("ask")
    assert outcome.error is not None
    assert "changed while it was read" in outcome.error
    opened.close()


# ---- what cannot be taken --------------------------------------------------------------------


def crafted(module: str, name: str, *arguments: Any) -> bytes:
    """A checkpoint as LangGraph stores it, which names something to call."""
    inner = ormsgpack.Ext(1, ormsgpack.packb((module, name, arguments)))
    return ormsgpack.packb({"v": 4, "id": "x", "channel_values": {"a": inner}})


LAST = "WHERE rowid = (SELECT max(rowid) FROM checkpoints WHERE thread_id = 'talk')"


@pytest.mark.parametrize(
    ("change", "value", "told"),
    [
        ("checkpoint = ?", b"\x85\xa1v", "damaged"),
        ("checkpoint = substr(checkpoint, 1, length(checkpoint) - 9) || ?", b"", "damaged"),
        ("checkpoint = ?", ormsgpack.packb(7), "not a mapping"),
        ("checkpoint = ?", ormsgpack.packb({"id": "another"}), "another id"),
        ("checkpoint = ?", ormsgpack.packb(ormsgpack.Ext(99, b"")), "newer LangGraph"),
        ("checkpoint = ?", ormsgpack.packb(ormsgpack.Ext(5, b"\x93")), "damaged"),
        ("checkpoint = ?", crafted("os", "system", "touch broken-in"), "no class os.system"),
        ("checkpoint = ?", crafted("not_there", "Plan"), "--import not_there"),
        ("checkpoint = ?", crafted("__main__", "Plan"), "in the script that defines it"),
        ("metadata = ?", b"{", "damaged"),
        ("type = ?", "pickle", "neither pickles nor encrypts"),
        ("type = ?", "msgpack+aes", "neither pickles nor encrypts"),
        ("type = ?", "json", "a saver of now"),
        ("type = ?", None, "its form None is not read"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_the_other_threads_are_taken(
    source: Path,
    store: sync.Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    value: Any,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    edit(source, f"UPDATE checkpoints SET {change} {LAST}", value)
    outcomes = take(store, source)
    error = outcomes["talk"].error
    assert error is not None
    assert told in error
    assert "checkpoint 1" in error
    assert outcomes["talk"].imported == 0
    assert sorted(HoldfastSaver(store).thread_ids()) == ["ask", "count", "team/7: ünï"]
    assert all(one.ok for thread, one in outcomes.items() if thread != "talk")
    assert not Path("broken-in").exists()


def test_what_is_no_saver_is_refused(tmp_path: Path) -> None:
    def told(name: str) -> HoldfastError:
        with pytest.raises(HoldfastError) as caught:
            open_source(str(tmp_path / name))
        return caught.value

    (tmp_path / "text").write_text("no database at all" * 100)
    sqlite3.connect(tmp_path / "empty").execute("CREATE TABLE other (x)").connection.close()
    assert isinstance(told("nothing"), StoreNotFoundError)
    assert isinstance(told("text"), InvalidInputError)
    assert isinstance(told("empty"), InvalidInputError)


# ---- PostgreSQL ------------------------------------------------------------------------------


@pytest.fixture
def database(postgres: Any) -> str:
    """The URL of an empty database."""
    postgres.run("DROP DATABASE IF EXISTS threads", "CREATE DATABASE threads")
    return str(postgres.url.replace("/postgres?", "/threads?"))


def with_saver_of(url: str, use: Callable[[Any], None]) -> None:
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        use(saver)


def test_threads_of_postgresql_are_taken_whole(database: str, store: sync.Store) -> None:
    with_saver_of(database, make_threads)
    outcomes = take(store, database)
    assert list(outcomes) == THREADS
    assert all(one.ok and one.imported == one.checkpoints for one in outcomes.values())

    def compare(theirs: Any) -> None:
        assert content(HoldfastSaver(store)) == content(theirs)
        before = counting().compile(checkpointer=theirs).get_state(config("count"))
        ours = counting().compile(checkpointer=HoldfastSaver(store))
        assert ours.get_state(config("count")).values == before.values

    with_saver_of(database, compare)
    assert all(one.imported == 0 and one.ok for one in take(store, database).values())
    graph = talking().compile(checkpointer=HoldfastSaver(store))
    graph.invoke({"messages": [("human", "again")]}, config("talk"))


def test_older_checkpoints_of_postgresql_get_their_tasks_from_the_writes_before(
    database: str, store: sync.Store
) -> None:
    """As LangGraph does when it reads them: before version 4, tasks were no channel."""
    import psycopg

    with_saver_of(database, make_threads)
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{v}', '3')")
    assert take(store, database)["talk"].ok

    def compare(theirs: Any) -> None:
        ours = [*HoldfastSaver(store).list(config("talk", checkpoint_ns=""))]
        expected = [*theirs.list(config("talk", checkpoint_ns=""))]
        assert [one.checkpoint for one in ours] == [one.checkpoint for one in expected]
        assert any(one.checkpoint["channel_values"].get("__pregel_tasks") for one in expected)

    with_saver_of(database, compare)


def test_a_database_that_is_no_savers_is_refused(database: str, store: sync.Store) -> None:
    with pytest.raises(InvalidInputError, match="tables"):
        take(store, database)
    with pytest.raises(Unavailable, match="cannot be reached"):
        take(store, database.replace("host=", "host=/not/there"))


def test_the_extra_for_postgresql_is_named(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    name = "holdfast.integrations.langgraph.sources"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(MissingExtraError, match="langgraph-checkpoint-postgres"):
        take(store, "postgresql:///threads")


def test_a_damaged_value_in_postgresql_is_named(database: str, store: sync.Store) -> None:
    import psycopg

    with_saver_of(database, make_threads)
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE checkpoint_blobs SET blob = '\\x93' WHERE channel = 'plan'")
    outcomes = take(store, database)
    assert outcomes["talk"].error is not None
    assert "cannot be read: it is damaged" in outcomes["talk"].error
    assert outcomes["ask"].ok
