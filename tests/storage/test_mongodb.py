"""MongoDB as storage: its URL, its collections, what it refuses; and nothing shows a password."""

from __future__ import annotations

import itertools
import logging
import os
import re
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mongodb_kit import Server
from store_kit import SOURCE

from holdfast import sync
from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    ForeignSchemaError,
    HoldfastError,
    InvalidInputError,
    KeyMissingError,
    MissingExtraError,
    NewerFormatError,
    NotAStoreError,
    ReadOnlyError,
    StoreForkedError,
    StoreNotFoundError,
    Unavailable,
    UnsafePlaceError,
)
from holdfast.storage import open_storage, shown
from holdfast.storage.contract import Batch
from holdfast.storage.server import MongoAddress

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"own_{next(_numbers)}"


@pytest.fixture
def url(mongodb: Server, name: str) -> str:
    return mongodb.place(name)


# ---- where it lies ---------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["another's", "its own"])
def test_a_key_is_not_taken_for_absent_once_it_is_there(url: str, whose: str) -> None:
    """It is looked for once only while nobody could have put it."""
    one, other = open_storage(url), open_storage(url)
    for number in range(3):
        one.commit(Batch(puts=[(b"%d" % number, b"")], absent=[b"end"]))
    putter = other if whose == "another's" else one
    putter.commit(Batch(puts=[(b"end", b"")]))
    with pytest.raises(Conflict) as told:
        one.commit(Batch(puts=[(b"last", b"")], absent=[b"end"]))
    assert told.value.keys == (b"end",)
    putter.commit(Batch(drops=[b"end"]))
    one.commit(Batch(puts=[(b"last", b"")], absent=[b"end"]))
    one.close()
    other.close()


def test_options_of_the_url() -> None:
    plain = MongoAddress.of("mongodb://user:pass@localhost:27017/kai_states")
    assert (plain.database, plain.pool_size, plain.timeout) == ("kai_states", 20, 30_000)
    assert str(plain) == "mongodb://localhost:27017/kai_states"
    other = MongoAddress.of("mongodb+srv://a:b@h/d?pool_size=3&tls=true&timeout=250&ring=r.keys")
    assert (other.pool_size, other.timeout, other.ring) == (3, 250, "r.keys")
    assert other.url == "mongodb+srv://a:b@h/d?tls=true"
    assert str(other) == "mongodb+srv://h/d"


@pytest.mark.parametrize(
    "wrong",
    [
        "h/d?pool_size=0", "h/d?timeout=1e3", "h/d?timeout=1&timeout=2", "h", "h/", "/d", "h/admin",
        "h/a.b", "h/a%24b", "h:port/d", "h/d?timeoutMS=soon", "h/d?readPreference=wrong",
        "h/d?colour=red",
    ],
)  # fmt: skip
def test_urls_that_are_wrong(wrong: str) -> None:
    with pytest.raises(InvalidInputError) as told:
        open_storage(f"mongodb://user:hunter2@{wrong}")
    assert "hunter2" not in str(told.value)


def test_a_store_is_made_only_where_that_is_allowed(mongodb: Server, name: str, url: str) -> None:
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(StoreNotFoundError, match="create=True"):
            sync.open(url, **options)
    with mongodb.client() as client:
        assert client[name].list_collection_names() == []
    sync.open(url).close()
    with sync.open(url, read_only=True) as store, pytest.raises(ReadOnlyError):
        store.agent("a").set("k", 1)


def test_a_server_that_is_not_there_or_refuses(mongodb: Server) -> None:
    for wrong in (
        "mongodb://u:hunter2@127.0.0.1:1/d?timeout=300",
        f"mongodb://nobody:hunter2@127.0.0.1:{mongodb.port}/d?timeout=5000",
    ):
        with pytest.raises(Unavailable) as told:
            sync.open(wrong)
        assert "hunter2" not in "".join(traceback.format_exception(told.value))


@pytest.fixture(scope="module")
def alone() -> Any:
    """A server that is no replica set."""
    server = Server(alone=True)
    yield server
    server.remove()


def test_a_single_server_without_transactions_is_refused(alone: Server) -> None:
    with pytest.raises(UnsafePlaceError, match="--replSet NAME"):
        open_storage(alone.place("d"))
    with alone.client() as client:
        assert "d" not in client.list_database_names()


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymongo", None)
    for module in [one for one in sys.modules if one.startswith("holdfast.storage.mongodb.")]:
        if not module.endswith(".url"):
            monkeypatch.delitem(sys.modules, module)
    with pytest.raises(MissingExtraError, match=r"holdfast\[mongodb\]"):
        sync.open("mongodb://h/d")


# ---- secrets ---------------------------------------------------------------------------------


def test_no_password_shows_anywhere(mongodb: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    at = f"u:hunter2@127.0.0.1:{mongodb.port}"
    said = [shown(f"mongodb://{at}/d?x=1"), shown("mongodb://u:hun/hunter2@h/d")]
    said += [repr(MongoAddress.of(f"mongodb://{at}/d?ring=mongodb://r:hunter2@h/d"))]
    for wrong in (
        f"mongodb://{at}/d?timeout=3000", f"mongodb://{at}/", f"mongodb:{at}/d",
        f"mongodb://{at}:x/d", "mongodb://u:hun/hunter2@h/d",
    ):  # fmt: skip
        with pytest.raises(HoldfastError) as told:
            sync.open(wrong)
        said += traceback.format_exception(told.value)
    # The lines of this file that a traceback shows have the names of variables only.
    assert not [text for text in said if "hunter2" in text]
    assert "hunter2" not in caplog.text


def test_the_ring_of_an_encrypted_store_lies_where_the_url_says(
    mongodb: Server, name: str, url: str, tmp_path: Path
) -> None:
    key = f"file:{tmp_path / 'master.key'}"
    with pytest.raises(InvalidInputError, match="ring=PATH"):
        sync.open(url, key=key)
    with pytest.raises(InvalidInputError, match="own schema or database"):
        sync.open(f"{url}&ring=mongodb://127.0.0.1:{mongodb.port}/{name}", key=key)
    for ring in (tmp_path / "agents.keys", f"{mongodb.place(name + '_ring')}".partition("?")[0]):
        there = f"{mongodb.place(name + str(type(ring) is str))}&ring={ring}"
        with sync.open(there, key=key) as store:
            store.agent("a").set("k", "word")
            assert store.agent("a").checkpoint("c").signed_by
        with sync.open(there, key=key) as store:
            assert store.agent("a").get("k") == "word"
        with pytest.raises(KeyMissingError):
            sync.open(there)
    with mongodb.client() as client:
        for database in (f"{name}False", f"{name}True"):
            found = [*client[database].records.find(), *client[database].cells.find()]
            assert found
            assert not [one for one in found if b"word" in one["v"]]


# ---- collections -----------------------------------------------------------------------------

PLANTED: dict[str, Callable[[Any], Any]] = {
    "collection other": lambda db: db.create_collection("other"),
    "view other": lambda db: db.create_collection("other", viewOn="records"),
    r"records \(with .*validator\)": lambda db: db.command(
        "collMod", "records", validator={"v": 1}
    ),
    r"cells \(with capped, size\)": lambda db: (
        db.drop_collection("cells"),
        db.create_collection("cells", capped=True, size=4096),
    ),
    r"cells \(with collation\)": lambda db: (
        db.drop_collection("cells"),
        db.create_collection("cells", collation={"locale": "en"}),
    ),
    "index v_1 of records on v": lambda db: db.records.create_index("v"),
    "expireAfterSeconds": lambda db: db.records.create_index("t", expireAfterSeconds=1),
    "collection cells is missing": lambda db: db.drop_collection("cells"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_in_the_database_is_refused_and_named(
    mongodb: Server, name: str, url: str, what: str
) -> None:
    before = open_storage(url)
    assert before.check() == []
    with mongodb.client() as client:
        PLANTED[what](client[name])
    with pytest.raises(ForeignSchemaError, match=what):
        open_storage(url)
    assert [one for one in before.check() if re.search(what, one)]
    before.close()


def test_verify_tells_of_a_planted_validator(mongodb: Server, name: str, url: str) -> None:
    with sync.open(url) as store, mongodb.client() as client:
        store.agent("a").set("k", 1)
        client[name].command("collMod", "records", validator={"v": {"$exists": True}})
        assert any("validator" in str(one) for one in store.verify().findings)


def test_a_database_of_somebody_else_is_left_alone(mongodb: Server, name: str, url: str) -> None:
    with mongodb.client() as client:
        client[name].theirs.insert_one({"x": 1})
        with pytest.raises(ForeignSchemaError, match="theirs"):
            open_storage(url)
        assert client[name].list_collection_names() == ["theirs"]


def test_another_format_and_a_lost_count_are_refused(mongodb: Server, name: str, url: str) -> None:
    storage = open_storage(url)
    storage.commit(Batch(puts=[(b"k", b"v")]))
    with mongodb.client() as client:
        client[name].store.update_one({}, {"$set": {"format": 2}})
        with pytest.raises(NewerFormatError):
            open_storage(url)
        client[name].store.delete_one({})
        with pytest.raises(NotAStoreError):
            open_storage(url)
    with pytest.raises(ForeignSchemaError, match="counts commits"):
        storage.commit(Batch(puts=[(b"l", b"v")]))
    with pytest.raises(ForeignSchemaError, match="counts commits"):
        storage.version()
    storage.close()


def test_a_creation_that_was_cut_short_is_finished(mongodb: Server, name: str, url: str) -> None:
    with mongodb.client() as client:
        client[name].create_collection("records")
    with pytest.raises(StoreNotFoundError):
        open_storage(url, create=False)
    storage = open_storage(url)
    assert storage.check() == []
    storage.close()


def test_documents_that_hold_something_else_are_damage(
    mongodb: Server, name: str, url: str
) -> None:
    storage = open_storage(url)
    with mongodb.client() as client:
        client[name].records.insert_many([{"_id": "61", "v": "text"}, {"_id": "6x", "v": b""}])
    with pytest.raises(DamagedRecordError, match="record 61"):
        storage.get([b"a"])
    with pytest.raises(DamagedRecordError):
        storage.scan(b"a\0", b"z")
    storage.close()


# ---- use -------------------------------------------------------------------------------------


def test_keys_of_any_length_are_in_byte_order(url: str) -> None:
    """MongoDB itself orders binary values by their length first."""
    keys = [bytes([first]) * length for first in (0, 9, 10, 127, 128, 255) for length in (1, 2, 64)]
    keys += [b"", b"ab", b"b", b"aaa", b"a\0", b"a\xff"]
    storage = open_storage(url)
    storage.commit(Batch(puts=[(key, key) for key in keys], cells=[(k, None, k) for k in keys]))
    assert [key for key, _ in storage.scan(b"", b"\xff" * 65)] == sorted(keys)
    assert [key for key, _ in storage.cells(b"", b"\xff" * 65)] == sorted(keys)
    back = storage.scan(b"a", b"b", reverse=True)
    assert [key for key, _ in back] == [b"a\xff", b"ab", b"aaa", b"a\0"]
    storage.close()


def test_a_conflict_names_also_what_is_put_and_there(url: str) -> None:
    storage = open_storage(url)
    storage.commit(Batch(puts=[(b"a", b"1"), (b"b", b"2")]))
    batch = Batch(puts=[(b"a", b"1"), (b"c", b"3")], absent=[b"a", b"c"], present=[b"x"])
    with pytest.raises(Conflict) as told:
        storage.commit(batch)
    assert set(told.value.keys) == {b"a", b"x"}
    with pytest.raises(DamagedRecordError):
        storage.commit(Batch(puts=[(b"b", b"other"), (b"d", b"4")]))
    assert storage.get([b"b", b"c", b"d"]) == [b"2", None, None]
    storage.close()


def test_a_batch_above_what_a_document_holds(url: str) -> None:
    """16 MB are the bound of one document, and were that of one transaction."""
    storage = open_storage(url)
    large = {bytes([number]): os.urandom(1 << 20) for number in range(20)}
    small = {number.to_bytes(3, "big"): b"v" for number in range(11_000)}
    storage.commit(Batch(puts=[*large.items(), *small.items()], absent=[*large]))
    assert storage.get([*large, *small]) == [*large.values(), *small.values()]
    assert storage.size() > 20 << 20
    storage.commit(Batch(drops=[*large, *small], present=[*small]))
    assert storage.scan(b"", b"\xff") == []
    assert storage.settle() is False  # the server's log still holds what was dropped
    storage.close()


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


def test_a_forked_child_refuses(url: str) -> None:
    storage = open_storage(url)
    storage.commit(Batch(puts=[(b"k", b"v")]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the driver has threads
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
    assert storage.get([b"k"]) == [b"v"]
    storage.close()


def test_a_store_that_is_left_open_does_not_keep_the_interpreter(url: str) -> None:
    program = "import sys; from holdfast import sync; left = sync.open(sys.argv[1])"
    assert run(program, url) == (0, "")


def run(program: str, url: str) -> tuple[int, str]:
    """How a program ended, and what it said in complaint."""
    paths = os.pathsep.join([SOURCE, *(p for p in sys.path if p.endswith("site-packages"))])
    command = [sys.executable, "-c", program, url]
    env = {**os.environ, "PYTHONPATH": paths}
    ended = subprocess.run(command, env=env, timeout=100, stderr=subprocess.PIPE, text=True)
    return ended.returncode, ended.stderr


_AGENT = """
import os, signal, sys
from holdfast.agents import MachineDefinition, MachineState, Message, Task
from holdfast import sync
states = {
    "awaiting_topic": MachineState(on={"topic": "generating"}),
    "generating": MachineState(on={"done": "complete"}),
    "complete": MachineState(),
}
poet = MachineDefinition(initial="awaiting_topic", states=states)
"""
_WORKS = """
store = sync.open(sys.argv[1])
typed = sync.agents.AgentState(store.agent("poet"))
typed.append("conversation", Message(role="user", content="a haiku about rain"))
typed.put("tasks", "t1", Task(id="t1", title="write it"))
typed.update_task("t1", status="running", progress=0.5)
sync.agents.Machine(store.agent("poet"), poet).fire("topic")
os.kill(os.getpid(), signal.SIGKILL)
"""
_GOES_ON = """
with sync.open(sys.argv[1], create=False) as store:
    typed = sync.agents.AgentState(store.agent("poet"))
    assert [one.content for one in typed.tail("conversation", 9)] == ["a haiku about rain"]
    task = typed.get("tasks").current
    assert (task.id, task.title, task.progress) == ("t1", "write it", 0.5)
    machine = sync.agents.Machine(store.agent("poet"), poet)
    assert machine.now().state == "generating"
    machine.fire("done")
    assert [one.to_state for one in machine.transitions()][-2:] == ["generating", "complete"]
    assert store.verify().ok
"""


@pytest.mark.spec("M87", "M119")
def test_a_typed_agent_with_a_machine_outlives_its_process(
    mongodb: Server, name: str, url: str
) -> None:
    assert run(_AGENT + _WORKS, url) == (-signal.SIGKILL, "")
    with mongodb.client() as client:
        assert sorted(client[name].list_collection_names()) == ["cells", "records", "store"]
        assert client[name].records.count_documents({}) > 5
    assert run(_AGENT + _GOES_ON, url) == (0, "")
