"""MongoDB when connections break and servers die: what was acknowledged is there, what was called
not applied never is, and what is not known can be settled."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from mongodb_kit import Server, Servers
from mongodb_proxy import CuttingCommands
from pymongo.client_session import ClientSession
from pymongo.errors import (
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)
from server_kit import APPEND, CREATE, batch_of, is_there, outcome, together, write_while
from store_kit import SOURCE

from holdfast import sync
from holdfast.errors import (
    Conflict,
    HoldfastError,
    OutcomeUnknown,
    StorageReadOnlyError,
    StoreLockedError,
    Unavailable,
)
from holdfast.storage import open_storage
from holdfast.storage.mongodb import batch as mongodb_batch
from holdfast.storage.mongodb.batch import Commit
from holdfast.storage.mongodb.client import STOPPED
from holdfast.testing import CHECKS

_numbers = itertools.count()
COMMANDS = ["update", "find", "insert", "commitTransaction"]
"""Those of a transaction."""


@pytest.fixture
def name() -> str:
    return f"faults_{next(_numbers)}"


@pytest.fixture(scope="module")
def mortal() -> Iterator[Server]:
    """A server that tests may kill."""
    server = Server()
    yield server
    server.remove()


def hurry(storage: Any, seconds: int = 4) -> None:
    """From now on a call has so much time; to be opened on a slow machine, it had more."""
    short = replace(storage.address, timeout=1000 * seconds)
    storage.address = storage._client.address = short


@pytest.mark.parametrize("side", ["asked", "answered"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_connection_cut_once_in_a_commit_is_made_up_for(
    mongodb: Server, name: str, command: str, side: str
) -> None:
    with CuttingCommands(mongodb.port) as cutting:
        storage = open_storage(cutting.place(name))
        storage.commit(batch_of(0))
        cutting.arm(command, side, 1)
        batch = batch_of(1)
        batch.present.append((0).to_bytes(4, "big"))
        storage.commit(batch)
        assert is_there(storage, 1)
        assert outcome(lambda: storage.commit(batch_of(1))) is Conflict
        storage.close()


@pytest.mark.parametrize(
    ("command", "side"),
    [("insert", "answered"), ("commitTransaction", "asked"), ("commitTransaction", "answered")],
)
def test_connections_that_are_cut_until_the_end(
    mongodb: Server, name: str, command: str, side: str
) -> None:
    """Before the commit is sent nothing was applied, and never will be; then it is not known."""
    direct = open_storage(mongodb.place(name))
    with CuttingCommands(mongodb.port) as cutting:
        storage = open_storage(cutting.place(name))
        hurry(storage)
        batch = batch_of(1)
        batch.absent.append(b"another")
        cutting.arm(command, side, 1_000_000)
        said = outcome(lambda: storage.commit(batch))
        cutting.arm("", "", 0)
        if command == "commitTransaction":
            assert said is OutcomeUnknown
            assert is_there(direct, 1) == (side == "answered")
            # What was begun and not committed is ended, so that others can go on.
            again = outcome(lambda: direct.commit(batch_of(1)))
            assert again is (Conflict if side == "answered" else None)
        else:
            assert said is not None
            assert issubclass(said, Unavailable)
            assert not is_there(direct, 1)
            direct.commit(batch_of(1))
        assert is_there(direct, 1)
        storage.close()
    direct.close()


_STOP = """
import os, signal, sys
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.storage.mongodb.batch import Commit
Commit._write = lambda self, session: os.kill(os.getpid(), int(sys.argv[2]))
open_storage(sys.argv[1]).commit(Batch(puts=[(b"never", b"v")]))
"""


def test_a_writer_that_is_killed_in_the_middle_does_not_hold_up_the_others(
    mongodb: Server, name: str
) -> None:
    url = mongodb.place(name)
    storage = open_storage(url)
    command = [sys.executable, "-c", _STOP, url, "9"]
    killed = subprocess.run(command, env={"PYTHONPATH": ":".join([SOURCE, *sys.path])})
    assert killed.returncode == -9
    hasty = open_storage(mongodb.place(name))
    hurry(hasty, STOPPED - 1)  # shorter than what is waited for one that stopped
    with pytest.raises(StoreLockedError, match="nothing was applied"):
        hasty.commit(batch_of(1))
    storage.commit(batch_of(2))
    assert not is_there(storage, 1)
    assert storage.get([b"never"]) == [None]
    hasty.close()
    storage.close()


@pytest.mark.parametrize(
    ("late", "said", "words"),
    [
        (ExecutionTimeout("no time is left", 50), StoreLockedError, "others kept committing"),
        (NetworkTimeout("timed out"), StoreLockedError, "others kept committing"),
        (ServerSelectionTimeoutError("none found"), Unavailable, "cannot be reached"),
        (OperationFailure("no rights", 13), StorageReadOnlyError, "rights"),
    ],
)
def test_who_gives_up_says_what_the_reason_is(
    mongodb: Server,
    name: str,
    late: PyMongoError,
    said: type[HoldfastError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others commit, and then comes an error: one that says that time is over tells less."""
    storage = open_storage(mongodb.place(name))
    real, asked = Commit._count, []

    def count(commit: Commit, session: ClientSession) -> None:
        asked.append(commit)
        if len(asked) > 1:
            raise late
        real(commit, session)

    monkeypatch.setattr(Commit, "_count", count)
    client = mongodb.client(replicaSet="rs0")
    with client, client.start_session() as other, other.start_transaction():
        client[name]["store"].update_one({}, {"$inc": {"commits": 1}}, session=other)
        with pytest.raises(said, match=words) as caught:
            storage.commit(batch_of(1))
    assert type(caught.value) is said
    assert len(asked) == 2
    assert not is_there(storage, 1)
    storage.close()


def test_a_connection_cut_while_looking_who_stopped_is_no_error_of_the_commit(
    mongodb: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mongodb_batch, "STOPPED", 0)  # it looks at once
    with CuttingCommands(mongodb.port) as cutting:
        storage = open_storage(cutting.place(name))
        hurry(storage)
        cutting.arm("aggregate", "asked", 1_000_000)
        client = mongodb.client(replicaSet="rs0")
        with client, client.start_session() as other, other.start_transaction():
            client[name]["store"].update_one({}, {"$inc": {"commits": 1}}, session=other)
            said = outcome(lambda: storage.commit(batch_of(1)))
            assert said in (StoreLockedError, Unavailable)  # and none of the driver's own
        storage.close()


def test_a_server_killed_before_and_after_a_commit(mortal: Server, name: str) -> None:
    storage = open_storage(mortal.place(name))
    storage.commit(batch_of(1))
    before = storage.version()
    hurry(storage)
    mortal.kill()
    with pytest.raises(Unavailable, match="cannot be reached"):
        storage.commit(batch_of(2))
    with pytest.raises(Unavailable, match="cannot be reached"):
        storage.get([b"x"])
    mortal.start()
    storage.close()
    storage = open_storage(mortal.place(name))
    assert is_there(storage, 1)
    assert not is_there(storage, 2)
    assert storage.version() != before  # nothing of this handle's own is in it
    storage.commit(batch_of(2))
    storage.close()


def test_a_server_killed_at_any_moment_loses_nothing_that_was_acknowledged(
    mortal: Server, name: str
) -> None:
    def kill() -> None:
        mortal.kill()
        mortal.start()

    write_while(mortal.place(name), kill, (0.3, 0.3))


def test_of_three_servers_the_primary_may_be_killed() -> None:
    servers = Servers()
    try:
        url = servers.place("three")
        for check in ("write_skew", "visible_at_once", "version_tells_commits"):
            CHECKS[check](lambda: open_storage(url))
        write_while(servers.place("written"), lambda: servers.primary().kill(), (0.3,))
    finally:
        servers.remove()


def test_processes_that_create_a_store_at_once_get_one(mongodb: Server, name: str) -> None:
    url = mongodb.place(name)
    assert len(set(together(CREATE, url, 3))) == 1
    with sync.open(url, create=False) as store:
        assert store.agent("a").keys() == [f"k{number}" for number in range(3)]
        assert store.verify().ok


def test_processes_that_append_to_one_list_lose_nothing(mongodb: Server, name: str) -> None:
    url = mongodb.place(name)
    with sync.open(url) as store:
        store.agent("a").set("log", [])
    together(APPEND, url, 4)
    with sync.open(url) as store:
        found = store.agent("a").get("log")
        assert len(found) == 4 * 12
        for number in range(4):
            assert [step for who, step in found if who == str(number)] == list(range(12))
        assert store.verify().ok
