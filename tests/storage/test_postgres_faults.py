"""PostgreSQL when connections break and servers die: what was acknowledged is there, what was
called not applied never is, and what is not known can be settled."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from postgres_kit import Server
from postgres_proxy import Cutting, Pooling
from server_kit import APPEND, CREATE, batch_of, is_there, outcome, together, write_while

from holdfast import sync
from holdfast.errors import Conflict, OutcomeUnknown, StoreLockedError, Unavailable
from holdfast.storage import open_storage
from holdfast.storage.postgres.engine import PostgresStorage
from holdfast.storage.postgres.link import Link, Result, Statement
from holdfast.testing import CHECKS

WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
"""Whose commit waits for a standby."""
_numbers = itertools.count()


@pytest.fixture
def schema() -> str:
    return f"faults_{next(_numbers)}"


@pytest.fixture
def cutting(postgres: Server) -> Iterator[Cutting]:
    with Cutting(postgres.port) as between:
        yield between


@pytest.fixture(scope="module")
def often_killed() -> Iterator[Server]:
    """A server for all tests that kill one."""
    server = Server()
    yield server
    server.remove()


@pytest.fixture
def mortal(often_killed: Server) -> Server:
    """A server that a test may kill; it runs, whatever became of the test before."""
    if often_killed.process.poll() is not None:
        often_killed.start()
    return often_killed


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_connection_cut_at_every_message_of_a_commit(
    cutting: Cutting, postgres: Server, schema: str, side: str
) -> None:
    url = f"{cutting.url}&schema={schema}"
    direct = open_storage(f"{postgres.url}&schema={schema}")
    storage = open_storage(url)
    cutting.arm(side, -1)
    storage.commit(batch_of(0))
    count = len(cutting.passed[side])
    assert count > 20
    told = {}
    for number in range(1, count + 2):
        storage.get([b"x"])  # a connection that works
        cutting.arm(side, number - 1)
        told[number] = said = outcome(lambda n=number: storage.commit(batch_of(n)))  # type: ignore[misc]
        cutting.arm(side, -1)
        again = outcome(lambda n=number: direct.commit(batch_of(n)))  # type: ignore[misc]
        assert said in (None, OutcomeUnknown), said
        assert again in ((Conflict,) if said is None else (None, Conflict))
        assert is_there(storage, number)
        if side == "client" and number < count - 3:
            assert again is None, "applied, though COMMIT was not passed on"
    assert told[1] is OutcomeUnknown
    assert told[count + 1] is None  # the cut came too late
    storage.close()
    direct.close()


def test_a_store_over_a_connection_that_breaks_applies_each_change_once(
    cutting: Cutting, schema: str
) -> None:
    with sync.open(f"{cutting.url}&schema={schema}") as store:
        state = store.agent("a")
        state.set("log", [])
        sure, perhaps = [], []
        for number in range(60):
            cutting.arm("server" if number % 2 else "client", number)
            try:
                state.append("log", number)
                sure.append(number)
            except OutcomeUnknown:
                perhaps.append(number)
            except Unavailable:
                pass
            cutting.arm("client", -1)
        found = state.get("log")
        assert found == sorted(set(found))
        assert set(sure) <= set(found) <= {*sure, *perhaps}
        assert len(sure) > 30
        assert store.verify().ok


def test_no_answer_in_time_is_an_unknown_outcome_and_ends_the_connection(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that waits for a standby which is not there must not be cancelled."""
    server = Server("synchronous_standby_names=nobody", "synchronous_commit=local")
    try:
        url = f"{server.url}&schema={schema}"
        open_storage(url, durability="normal").close()
        storage = PostgresStorage(url, durability="normal")
        waits = PostgresStorage(url)
        with monkeypatch.context() as short:  # for the commits alone: to be opened may take longer
            for one in (storage, waits):
                short.setattr(one._pool, "deadline", lambda: time.monotonic() + 3)
            with pytest.raises(OutcomeUnknown, match="in time"):
                waits.commit(batch_of(2))
            # Meanwhile it holds the store: others are told that nothing of theirs was applied, if
            # the server can still say so in their time.
            said = outcome(lambda: storage.commit(batch_of(3)))
        assert said in (StoreLockedError, OutcomeUnknown)
        # And waits for its end: only then is seen what it has applied.
        server.run(f"SELECT pg_terminate_backend(pid, 60000) {WAITING}")
        if said is StoreLockedError:
            assert not is_there(storage, 3)
        assert is_there(storage, 2)  # it was applied here, and nowhere else
        storage.close()
        waits.close()
    finally:
        server.kill()
        server.remove()


def test_the_server_gives_up_first_whatever_the_time_was_spent_on(
    postgres: Server, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would not be known whether a commit that waited for others was applied."""
    storage = PostgresStorage(f"{postgres.url}&schema={schema}&timeout=60000")
    left, patience = 30.0, []
    real = Link.flight

    def flight(link: Link, statements: Sequence[Statement], deadline: float) -> list[Result]:
        for sql, params in statements:
            if "lock_timeout" in sql:
                patience.append(int(params[0][1]) / 1000)
                assert 0 < patience[-1] < deadline - time.monotonic()
        return real(link, statements, deadline)

    monkeypatch.setattr(Link, "flight", flight)
    # As if half of the time had gone while all connections were in use.
    monkeypatch.setattr(storage._pool, "deadline", lambda: time.monotonic() + left)
    storage.commit(batch_of(1))
    assert len(patience) == 1
    assert patience[0] <= 27

    left = 0.0
    with pytest.raises(Unavailable, match="nothing was applied"):
        storage.commit(batch_of(2))
    assert len(patience) == 1  # it was not even sent
    left = 30.0
    assert not is_there(storage, 2)
    storage.close()


def test_a_warning_while_committing_is_an_unknown_outcome(schema: str) -> None:
    """Somebody cancels a commit that waits for a standby: the server says COMMIT, and warns."""
    server = Server("synchronous_standby_names=nobody", "synchronous_commit=local")
    try:
        open_storage(f"{server.url}&schema={schema}", durability="normal").close()
        storage = open_storage(f"{server.url}&schema={schema}")

        def cancel() -> None:
            while not server.run(f"SELECT pg_cancel_backend(pid) {WAITING}"):
                time.sleep(0.02)

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(OutcomeUnknown, match="warned"):
            storage.commit(batch_of(1))
        canceller.join()
        storage.close()
    finally:
        server.kill()
        server.remove()


def test_a_server_killed_before_and_after_a_commit(mortal: Server, schema: str) -> None:
    storage = open_storage(f"{mortal.url}&schema={schema}")
    storage.commit(batch_of(1))
    before = storage.version()
    mortal.kill()
    with pytest.raises(Unavailable):
        storage.commit(batch_of(2))
    with pytest.raises(Unavailable):
        storage.get([b"x"])
    mortal.start()
    assert is_there(storage, 1)
    assert not is_there(storage, 2)
    assert storage.version() == before
    storage.commit(batch_of(2))
    storage.close()


def test_a_server_killed_at_any_moment_loses_nothing_that_was_acknowledged(
    mortal: Server, schema: str
) -> None:
    def kill() -> None:
        mortal.kill()
        mortal.start()

    write_while(f"{mortal.url}&schema={schema}", kill, (0.5, 0.3, 0.7))


def test_a_server_that_was_started_again_is_found_by_free_connections(
    mortal: Server, schema: str
) -> None:
    storage = open_storage(f"{mortal.url}&schema={schema}")
    storage.commit(batch_of(1))
    mortal.kill()
    mortal.start()
    storage.commit(batch_of(2))  # the connection that was free is known to be dead
    assert is_there(storage, 2)
    storage.close()


@pytest.mark.parametrize("name", ["write_skew", "counter_loses_nothing", "version_tells_commits"])
def test_a_pooler_may_give_each_transaction_another_connection(
    postgres: Server, schema: str, name: str
) -> None:
    with Pooling(postgres.port) as pooler:
        CHECKS[name](lambda: open_storage(f"{pooler.url}&schema={schema}"))
        assert pooler.used > 20


def test_nothing_is_prepared_or_set_for_longer_than_a_transaction(
    cutting: Cutting, schema: str
) -> None:
    storage = PostgresStorage(f"{cutting.url}&schema={schema}")
    cutting.arm("client", -1)
    storage.commit(batch_of(1))
    storage.get([b"a", b"b"])
    storage.version()
    parsed = [one for one in cutting.passed["client"] if one[:1] == b"P"]
    assert len(parsed) == 7
    assert all(one[5:6] == b"\0" for one in parsed)  # its name is empty
    assert not [one for one in parsed if b"LISTEN" in one or b"advisory" in one]
    storage.close()


def test_processes_that_create_a_store_at_once_get_one(postgres: Server, schema: str) -> None:
    url = f"{postgres.url}&schema={schema}"
    assert len(set(together(CREATE, url, 4))) == 1
    with sync.open(url, create=False) as store:
        assert store.agent("a").keys() == [f"k{number}" for number in range(4)]
        assert store.verify().ok


def test_eight_processes_that_append_to_one_list_lose_nothing(
    postgres: Server, schema: str
) -> None:
    url = f"{postgres.url}&schema={schema}"
    with sync.open(url) as store:
        store.agent("a").set("log", [])
    together(APPEND, url, 8)
    with sync.open(url) as store:
        found = store.agent("a").get("log")
        assert len(found) == 8 * 12
        for number in range(8):
            assert [step for who, step in found if who == str(number)] == list(range(12))
        assert store.verify().ok
