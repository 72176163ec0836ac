"""Leases: one holder at a time, and no write of a holder that was overtaken."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import Context
from functools import wraps
from typing import Any

import pytest
from store_kit import Between, Place

import holdfast
from holdfast import Clock, sync
from holdfast.errors import (
    DamagedRecordError,
    HoldfastError,
    InvalidInputError,
    LeaseHeldError,
    LeaseLostError,
    MissingError,
    OutcomeUnknown,
    ReadOnlyError,
    Unavailable,
)
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.lease import LeaseInfo, Leases

SHORT = 0.3


class Now:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.wall, self.ticks = 1_800_000_000.0, 1000.0

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.ticks)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is renewed in the background: `renew_due` is called by the test."""
    monkeypatch.setattr(Leases, "_turn", lambda self: None)


def cells_of(storage: Storage) -> list[tuple[bytes, bytes]]:
    return storage.cells(b"", b"\xff" * 64)


def test_many_threads_take_and_give_back_while_they_are_renewed() -> None:
    """What goes through all that are held meets those who take one just then."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with sync.open("memory:") as store, ThreadPoolExecutor(5) as pool, ExitStack() as held:
            for number in range(300):
                held.enter_context(store.lease(f"held {number}"))

            def work(number: int) -> None:
                for turn in range(200):
                    if number:
                        with store.lease(f"{number}/{turn}"):
                            pass
                    else:
                        store._core.leases.renew_due()

            list(pool.map(work, range(5)))
    finally:
        sys.setswitchinterval(interval)


def takes(store: sync.Store, name: str = "job", duration: float = SHORT) -> bool:
    """Whether it is to be had now; then it is given back at once."""
    try:
        with store.lease(name, duration=duration, wait=0):
            return True
    except LeaseHeldError:
        return False


# holding


def test_one_holder_at_a_time(place: Place) -> None:
    one, two = place.open(), place.open()
    with one.lease("job", owner="one") as lease:
        assert (lease.name, lease.owner, lease.term, lease.held) == ("job", "one", 1, True)
        assert not takes(two)
        assert takes(two, "another job")
        one.agent("1").set("k", 1)
        two.agent("1").set("k", 2)  # who asks for no lease is not held up
        assert two.leases() == [
            LeaseInfo("another job", None, 1, 0.0, 0),
            LeaseInfo("job", "one", 1, 30.0, 0),
        ]
    assert not lease.held
    with two.lease("job", duration=60, wait=0) as lease:  # not only after the time of the first
        assert lease.term == 2
        two.agent("1").set("k", 3)
    with place.reopen().lease("job") as lease:
        assert lease.term == 3
    store = place.open()
    assert store.agent("1").get("k") == 3
    report = store.verify()
    assert (report.findings, report.leases) == ([], 2)


def test_it_is_renewed_as_long_as_it_is_held_and_makes_no_entries(plain: Place) -> None:
    now = Now()
    one, two = plain.open(clock=now.clock()), plain.open(clock=now.clock())
    others = set(threading.enumerate())
    before = one.position()
    with one.lease("job", duration=1) as lease:
        for beats in range(5):
            assert not takes(two)
            now.ticks += 0.5
            end = time.monotonic() + 60
            while two.leases()[0].beats == beats:
                assert time.monotonic() < end
                time.sleep(0.01)
            assert lease.held
        assert not takes(two)
        one.agent("1").set("k", 1)
    assert [entry.kinds for entry in one.feed(since=before)] == [("set",)]
    one.close()
    left = set(threading.enumerate()) - others
    assert "holdfast-leases" not in {thread.name for thread in left}


def test_a_lease_that_nobody_has_any_more_is_not_renewed(plain: Place) -> None:
    """Interrupted between taking it and its block, it is free after its duration."""
    one, two = plain.open(), plain.open()
    lost = one._core.leases.take("job", SHORT, "one")
    assert lost is not None
    del lost
    gc.collect()
    with two.lease("job", wait=60) as lease:
        assert lease.term == 2


def test_closing_the_store_gives_it_back(place: Place) -> None:
    one, two = place.open(), place.open()
    with one.lease("job", duration=60) as lease:
        one.close()
        assert not lease.held
        assert takes(two)


def test_whoever_looks_now_and_then_without_waiting_gets_it_too(
    place: Place, by_hand: None
) -> None:
    now = Now()
    one, two = place.open(), place.open(clock=now.clock())
    with one.lease("job", duration=100):
        for _ in range(3):
            assert not takes(two)
            now.ticks += 40
        assert takes(two)


def test_holder_and_contender_disagree_about_everything_but_the_term(
    place: Place, by_hand: None
) -> None:
    """Wall clocks jump by years in both directions: nothing depends on them."""
    mine, theirs = Now(), Now()
    one, two = place.open(clock=mine.clock()), place.open(clock=theirs.clock())
    with one.lease("job", duration=100) as lease:
        assert not takes(two)
        for jump in (3e8, -6e8, 9e8):
            mine.wall += jump
            theirs.wall -= jump
            theirs.ticks += 30
            assert not takes(two)
            assert lease.held
            one.agent("1").set("k", jump)
        theirs.ticks += 9.9
        assert not takes(two)
        mine.ticks += 50
        one._core.leases.renew_due()  # a beat: the other begins to count anew
        theirs.ticks += 99
        assert not takes(two)
        theirs.ticks += 99
        assert not takes(two)
        theirs.ticks += 1.1
        with two.lease("job", duration=100, wait=0) as other:
            assert other.term == 2
            with pytest.raises(LeaseLostError):
                one.agent("1").set("k", "late")
        assert not lease.held
    assert two.agent("1").get("k") == 9e8


# what is written under it

WRITES: dict[str, Callable[[sync.Store], Any]] = {
    "set": lambda store: store.agent("1").set("k", "late"),
    "append": lambda store: store.agent("1").append("list", "late"),
    "delete": lambda store: store.agent("1").delete("k"),
    "update": lambda store: store.agent("1").update("k", lambda _: "late"),
    "new scope": lambda store: store.agent("2").set("k", "late"),
    "checkpoint": lambda store: store.agent("1").checkpoint("late"),
    "restore": lambda store: store.agent("1").restore("safe"),
    "fork": lambda store: store.agent("1").fork("late"),
    "revert": lambda store: store.agent("1").revert(entries=[3]),
    "delete scope": lambda store: store.delete("agent:1"),
    "erase": lambda store: store.erase("agent:1"),
}


def change(store: sync.Store) -> None:
    with store.change(id="both") as both:
        both["agent:1"].set("k", "late")
        both["agent:2"].set("k", "late")


@pytest.mark.parametrize("write", [*WRITES.values(), change], ids=[*WRITES, "change"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "not yet known"])
def test_nothing_is_written_under_a_lost_lease(
    plain: Place, write: Callable[[sync.Store], Any], known: bool
) -> None:
    one, two = plain.open(), plain.open()
    state = one.agent("1")
    state.set("k", "first")
    state.checkpoint("safe")
    state.set("other", 1)
    with one.lease("job", duration=60) as lease:
        state.set("k", "mine")
        assert two.break_lease("job") == lease.owner
        with two.lease("job", wait=0):
            two.agent("1").set("k", "theirs")
            before = two.position()
            if known:
                lease.beat()
            assert lease.held is not known
            with pytest.raises(LeaseLostError, match="'job' of term 1"):
                write(one)
            assert not lease.held
    assert two.position() == before
    write(one)  # without the lease it is a write like any other
    assert one.verify().findings == []


def test_a_change_applied_before_is_told_again_under_a_lost_lease(plain: Place) -> None:
    store = plain.open()
    with store.lease("job", duration=60):
        change(store)
        store.break_lease("job")
        change(store)  # nothing is written: it was applied when the lease was held
        with pytest.raises(LeaseLostError):
            store.agent("1").set("k", 2)


def test_a_change_under_a_lease_asks_the_storage_no_more_often(place: Place) -> None:
    store, counting = place.open_counting()
    state = store.agent("1")
    state.set("k", 0)
    with store.lease("job", duration=60):
        before = dict(counting.calls)
        state.set("k", 1)
        more = {call: n - before.get(call, 0) for call, n in counting.calls.items()}
    assert {call: n for call, n in more.items() if n and call not in ("turn", "version")} == {
        "commit": 1
    }


def test_leases_nest_and_each_is_expected(plain: Place) -> None:
    store = plain.open()
    state = store.agent("1")
    with store.lease("outer", duration=60), store.lease("inner", duration=60) as inner:
        state.set("k", 1)
        store.break_lease("outer")
        with pytest.raises(LeaseLostError, match="'outer'"):
            state.set("k", 2)
        assert inner.held
        with pytest.raises(InvalidInputError, match="under the lease 'inner' already"):
            takes(store, "inner")
    state.set("k", 3)


def test_a_lease_of_one_store_says_nothing_of_another(plain: Place) -> None:
    store = plain.open()
    with sync.open("memory:") as other, other.lease("job", duration=60):
        store.agent("1").set("k", 1)
        other.break_lease("job")
        store.agent("1").set("k", 2)
        with pytest.raises(LeaseLostError):
            other.agent("1").set("k", 2)


def test_threads_of_ones_own_write_under_it_if_they_say_so(plain: Place) -> None:
    store = plain.open()
    found: list[str] = []

    def work(lease: sync.Lease | None) -> None:
        try:
            if lease is None:
                store.agent("1").append("without", 1)
            else:
                with lease.fencing():
                    store.agent("1").append("with", 1)
        except LeaseLostError:
            found.append("lost")

    with store.lease("job", duration=60) as lease:
        for round_ in range(2):
            for given in (None, lease):
                thread = threading.Thread(target=work, args=(given,))
                thread.start()
                thread.join()
            if not round_:
                store.break_lease("job")
    assert (store.agent("1").length("with"), found) == (1, ["lost"])
    assert store.agent("1").length("without") == 2


# the async face


def in_a_loop(test: Callable[[Place], Awaitable[None]]) -> Callable[..., None]:
    """A test that runs in an event loop of its own."""

    @wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))  # type: ignore[arg-type]

    return run


@in_a_loop
async def test_the_async_face(place: Place) -> None:
    async with (
        holdfast.open(place.url, **place.options()) as one,
        holdfast.open(place.url, **place.options()) as two,
    ):
        async with one.lease("job", owner="one", duration=60) as lease:
            await one.agent("1").set("k", 1)
            with pytest.raises(LeaseHeldError, match=r"'job'.*waited for 0.1 s"):
                async with two.lease("job", wait=0.1):
                    pass
            assert [info.owner for info in await two.leases()] == ["one"]
            writes: list[Callable[[], Awaitable[Any]]] = [
                lambda: one.agent("1").set("k", 2),
                lambda: one.agent("1").checkpoint("late"),
                lambda: one.agent("1").fork("late"),
                lambda: one.agent("1").update("k", lambda _: 2),
            ]
            await two.break_lease("job")
            for write in writes:
                with pytest.raises(LeaseLostError):
                    await write()
            assert not lease.held
        async with two.lease("job") as lease:
            assert lease.term == 3
        assert await one.agent("1").get("k") == 1


@in_a_loop
async def test_others_in_the_same_group_are_not_taken_along(place: Place) -> None:
    """Of many that write at one moment only those fail whose lease is lost."""
    async with holdfast.open(place.url, **place.options()) as store:
        begin, taken = asyncio.Event(), asyncio.Semaphore(0)

        async def under(name: str) -> None:
            async with store.lease(name, duration=60):
                taken.release()
                await begin.wait()
                await asyncio.gather(*(store.agent(name).set(f"k{n}", n) for n in range(5)))

        async def free(name: str) -> None:
            await begin.wait()
            await store.agent(name).set("k", 1)

        tasks = [asyncio.create_task(under(f"under-{n}")) for n in range(6)]
        tasks += [asyncio.create_task(free(f"free-{n}")) for n in range(6)]
        for _ in range(6):
            await taken.acquire()
        for n in (1, 4):
            await store.break_lease(f"under-{n}")
        begin.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        lost = [number for number, error in enumerate(results) if error is not None]
        assert lost == [1, 4]
        assert all(isinstance(results[n], LeaseLostError) for n in lost)
        names = {str(info.scope) for info in (await store.scopes()).items}
        assert names == {f"agent:{k}-{n}" for k in ("under", "free") for n in range(6)} - {
            "agent:under-1",
            "agent:under-4",
        }


@in_a_loop
async def test_old_and_new_holder_in_one_group(plain: Place) -> None:
    """Both wait for the same commit of the same process: the new one writes, the old does not."""
    async with holdfast.open(plain.url, **plain.options()) as store:
        begin = asyncio.Event()
        taken = asyncio.Event()

        async def old() -> None:
            async with store.lease("job", duration=60):
                taken.set()
                await begin.wait()
                await store.agent("1").set("old", 1)

        async def new() -> None:
            async with store.lease("job", duration=60):
                begin.set()
                await asyncio.sleep(0)
                await store.agent("1").set("new", 1)

        first = asyncio.create_task(old())
        await taken.wait()
        await store.break_lease("job")
        results = await asyncio.gather(first, new(), return_exceptions=True)
        assert [type(result) for result in results] == [LeaseLostError, type(None)]
        assert await store.agent("1").keys() == ["new"]


@in_a_loop
async def test_a_task_that_outlives_the_block_writes_no_more(plain: Place) -> None:
    async with holdfast.open(plain.url, **plain.options()) as store:

        async def late() -> None:
            await over.wait()
            await store.agent("1").set("k", "late")

        over = asyncio.Event()
        async with store.lease("job"):
            task = asyncio.create_task(late())
            await asyncio.sleep(0)
        over.set()
        with pytest.raises(LeaseLostError):
            await task
        await store.agent("1").set("k", "after")


@in_a_loop
async def test_cancelling_gives_it_back(plain: Place) -> None:
    """While it is waited for, while it is taken, and while it is held."""
    async with holdfast.open(plain.url, **plain.options()) as store:

        async def hold() -> None:
            async with store.lease("job", duration=3600):
                await asyncio.sleep(60)

        for pause in (0, 0.0002, 0.0005, 0.001, 0.002, 0.05):
            task = asyncio.create_task(hold())
            await asyncio.sleep(pause)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with store.lease("job", wait=60):
                waiting = asyncio.create_task(hold(), context=Context())
                await asyncio.sleep(pause)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting


# operators


def test_breaking_raises_the_term(place: Place) -> None:
    store = place.open()
    with pytest.raises(MissingError, match="`leases\\(\\)` lists them"):
        store.break_lease("job")
    with store.lease("job", owner="worker-7"):
        assert store.break_lease("job") == "worker-7"
        assert store.break_lease("job") is None
        assert store.leases() == [LeaseInfo("job", None, 3, 0.0, 0)]
    with store.lease("job") as lease:
        assert lease.term == 4


def test_who_may_only_read_sees_them_and_takes_none(plain: Place) -> None:
    assert takes(plain.open())
    reader = plain.open(read_only=True)
    assert [info.name for info in reader.leases()] == ["job"]
    with pytest.raises(ReadOnlyError):
        takes(reader)
    with pytest.raises(ReadOnlyError):
        reader.break_lease("job")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": ""}, "rules of keys"),
        ({"name": 7}, "rules of keys"),
        ({"name": "a//b"}, "rules of keys"),
        ({"name": "x" * 257}, "rules of keys"),
        ({"duration": 0}, "0.1 to 86400"),
        ({"duration": float("inf")}, "0.1 to 86400"),
        ({"duration": "30"}, "duration is 0.1 to 86400 seconds"),
        ({"wait": -1}, "wait is a number of seconds"),
        ({"wait": True}, "wait is a number of seconds"),
        ({"owner": ""}, "owner of a lease is text"),
        ({"owner": "\ud800"}, "owner of a lease must be valid Unicode"),
        ({"duration": float("nan")}, "duration is 0.1 to 86400 seconds"),
        ({"duration": 10**400}, "duration is 0.1 to 86400 seconds"),
        ({"wait": 10**5000}, "wait is a number of seconds"),
        ({"owner": "host/17#0123456789abcdef.5"}, "like the name under which a process"),
    ],
)
def test_what_cannot_be_meant_is_refused(plain: Place, given: Any, said: str) -> None:
    store = plain.open()
    with pytest.raises(InvalidInputError, match=said), store.lease(**{"name": "job"} | given):
        pass
    assert store.leases() == []


def test_the_longest_names_fit(place: Place) -> None:
    store = place.open()
    with store.lease("\U0001f512" * 256, owner="\U0001f512" * 256):
        store.agent("1").set("k", 1)
    assert store.verify().findings == []


# cells


def test_names_and_owners_do_not_show_in_an_encrypted_store(place: Place) -> None:
    store = place.open()
    with store.lease("patient-4711", owner="doctor-12"):
        store.agent("1").set("k", 1)
        stored = b"".join(key + cell for key, cell in cells_of(place.storage()))
    assert len(stored) > 100
    for name in (b"patient-4711", b"doctor-12"):
        assert (name in stored) is not place.sealed


def test_cells_that_are_changed_moved_or_added_are_found(place: Place) -> None:
    store, other_store = place.open(), place.open()
    with store.lease("a", duration=60), store.lease("b", duration=60):
        storage = place.storage()
        cells = dict(cells_of(storage))
        assert (len(cells), store.verify().findings) == (4, [])
        token, other = (store._core.leases.key_of(name) for name in "ab")
        changed = cells[token][:-1] + bytes([cells[token][-1] ^ 1])
        for found in (changed, cells[other]):
            storage.commit(Batch(cells=[(token, cells[token], found)]))
            assert [finding.kind for finding in store.verify().findings] == ["damage"]
            with pytest.raises(DamagedRecordError):
                takes(other_store, "a")
            assert [lease.damage is None for lease in store.leases()] == [True, False]
            storage.commit(Batch(cells=[(token, found, cells[token])]))
        for key in (b"CX", token + b"\0", b"CL" + bytes(16) + b"\1"):
            storage.commit(Batch(cells=[(key, None, b"?")]))
            assert [finding.kind for finding in store.verify().findings] == ["unaccounted"]
            storage.commit(Batch(cells=[(key, b"?", None)]))
        assert store.verify().findings == []


def test_limit_a_lease_that_is_put_back_lets_its_old_holder_write(place: Place) -> None:
    """Not promised: against somebody who can write the storage, fencing does not hold."""
    store, other = place.open(), place.open()
    with store.lease("job", duration=60) as lease:
        old = dict(cells_of(place.storage()))
        other.break_lease("job")
        now = dict(cells_of(place.storage()))
        swaps = [(key, now.get(key), row) for key, row in old.items()]
        place.storage().commit(Batch(cells=swaps))
        store.agent("1").set("k", "written all the same")
        assert lease.held
    assert store.verify().findings == []


def test_erasing_a_scope_leaves_leases_alone(place: Place) -> None:
    store = place.open()
    store.agent("1").set("k", 1)
    with store.lease("agent:1", duration=60) as lease:
        store.erase("agent:1")
        assert lease.held
    assert store.verify().findings == []


# storage that fails


def faulty(place: Place, **more: Any) -> tuple[sync.Store, Faulty]:
    inner = Faulty(place.storage())
    store = place.open(storage=inner, **more)
    return store, inner


@pytest.mark.parametrize("mode", ["ambiguous-applied", "ambiguous-lost"])
@pytest.mark.parametrize("onward", [False, True])
def test_an_unknown_outcome_when_taking_is_settled(
    place: Place, by_hand: None, mode: str, onward: bool
) -> None:
    now = Now()
    other = place.open(clock=now.clock())
    store, storage = faulty(place)
    storage.plan = (Fault("commit", storage.calls["commit"] + 1, mode, onward=onward),)
    if onward and mode == "ambiguous-lost":
        with pytest.raises(OutcomeUnknown), store.lease("job", duration=60):
            pass
        storage.plan = ()
        assert takes(other)
        return
    with store.lease("job", duration=60, wait=5) as lease:
        storage.plan = ()
        assert (lease.term, takes(other)) == (1, False)
        store.agent("1").set("k", 1)
    assert [info.owner for info in other.leases()] == [None]


@pytest.mark.parametrize("mode", ["", "ambiguous-applied", "ambiguous-lost", "before"])
def test_many_leases_are_renewed_in_one_commit(place: Place, by_hand: None, mode: str) -> None:
    """A sync for each would take longer than they last; one that is lost takes no other along."""
    now, theirs = Now(), Now()
    other = place.open(clock=theirs.clock())
    store, storage = faulty(place, clock=now.clock())
    with ExitStack() as held:
        leases = [held.enter_context(store.lease(f"job/{n}", duration=90)) for n in range(20)]
        other._core.leases.break_("job/7")
        now.ticks += 30
        store._core.leases.renew_due()
        assert [lease.name for lease in leases if lease.over] == ["job/7"]
        now.ticks += 30
        before = storage.calls["commit"]
        storage.plan = (Fault("commit", before + 1, mode),) if mode else ()
        store._core.leases.renew_due()
        if mode != "before":
            assert storage.calls["commit"] == before + (1 if not mode else 2)
        assert [lease.held for lease in leases] == [lease.name != "job/7" for lease in leases]
        beats = {info.name: info.beats for info in other.leases()}
        assert all(beats[lease.name] == lease.beats > 1 for lease in leases if not lease.over)


@pytest.mark.parametrize("mode", ["ambiguous-applied", "ambiguous-lost", "before"])
def test_beats_and_release_over_storage_that_fails(place: Place, by_hand: None, mode: str) -> None:
    now, theirs = Now(), Now()
    other = place.open(clock=theirs.clock())
    store, storage = faulty(place, clock=now.clock())
    with store.lease("job", duration=90) as lease:
        assert not takes(other)
        storage.plan = (Fault("commit", storage.calls["commit"] + 1, mode),)
        now.ticks += 30
        assert store._core.leases.renew_due() == (10 if mode == "before" else 30)
        now.ticks += 10
        store._core.leases.renew_due()
        theirs.ticks += 90
        assert not takes(other)  # a beat came in time, whatever the first one became
        storage.plan = (Fault("commit", storage.calls["commit"] + 1, mode, onward=True),)
        now.ticks += 95
        store._core.leases.renew_due()
        assert lease.held is (mode == "ambiguous-applied")
        storage.plan = ()
        store.agent("1").set("k", 1)  # nobody took it: the storage decides
        storage.plan = (Fault("commit", storage.calls["commit"] + 1, mode, onward=True),)
    storage.plan = ()
    with pytest.raises(LeaseLostError), lease.fencing():
        store.agent("1").set("k", 2)  # given back, though the storage may not know it yet
    assert takes(other) is (mode == "ambiguous-applied")
    theirs.ticks += 91
    assert takes(other)


@pytest.mark.parametrize("mode", ["ambiguous-applied", "ambiguous-lost"])
def test_an_unknown_outcome_of_a_change_while_the_lease_is_taken(place: Place, mode: str) -> None:
    """It was written before the other took over, or never will be: the caller is told which."""
    other = place.open()
    store, storage = faulty(place)
    store.agent("1").set("k", "before")

    class Breaking(Faulty):
        """After the commit whose outcome is unknown, another takes the lease over."""

        def commit(self, batch: Batch) -> None:
            try:
                super().commit(batch)
            except OutcomeUnknown:
                store.break_lease("job")  # of another process, for all that the lease can see
                raise

    breaking = Breaking(storage)
    store._core.storage = breaking
    with store.lease("job", duration=60):
        breaking.plan = (Fault("commit", breaking.calls["commit"] + 1, mode),)
        if mode == "ambiguous-applied":
            store.agent("1").set("k", "after")
        else:
            with pytest.raises(LeaseLostError):
                store.agent("1").set("k", "after")
        breaking.plan = ()
    store.agent("2").set("k", 1)
    assert other.agent("1").get("k") == ("after" if mode == "ambiguous-applied" else "before")
    assert other.verify().findings == []


def test_storage_that_cannot_serve_gives_no_lease(place: Place) -> None:
    store, storage = faulty(place)
    for call in ("cells", "commit"):
        storage.plan = (Fault(call, storage.calls[call] + 1),)
        with pytest.raises(Unavailable), store.lease("job", duration=60):
            pass
        storage.plan = ()
    assert takes(store)


def test_a_beat_between_look_and_commit_keeps_the_lease(plain: Place, by_hand: None) -> None:
    mine, theirs = Now(), Now()
    between = Between(plain.storage())
    one = plain.open(clock=mine.clock())
    two = plain.open(clock=theirs.clock(), storage=between)
    with one.lease("job", duration=90) as lease:
        assert not takes(two)
        theirs.ticks += 90
        between.before = lease.beat
        assert not takes(two)
        assert one.leases()[0].beats == 1
        one.agent("1").set("k", 1)


def test_a_takeover_between_look_and_beat_loses_it(plain: Place, by_hand: None) -> None:
    between = Between(plain.storage())
    one, two = plain.open(storage=between), plain.open()
    leases = two._core.leases
    with one.lease("job", duration=90) as lease:
        between.before = lambda: (leases.break_("job"), taken.append(leases.take("job", 90, "t")))
        taken: list[Any] = []
        lease.beat()
        assert (lease.held, taken[0].held) == (False, True)
        assert two.leases() == [LeaseInfo("job", "t", 3, 90.0, 0)]
    assert two.leases()[0].owner == "t"  # what is another's is not given back
    taken[0].release()


def test_closing_a_store_gives_back_what_is_taken_meanwhile(place: Place) -> None:
    for _ in range(5):
        store = place.open()
        over = threading.Event()

        def take_again(store: sync.Store = store, over: threading.Event = over) -> None:
            taken: list[object] = []
            try:
                while True:
                    taken.append(store._core.leases.take(f"job {len(taken) % 3}", 60, "me"))
            except HoldfastError:
                over.set()

        thread = threading.Thread(target=take_again)
        thread.start()
        time.sleep(0.02)
        closing = threading.Thread(target=store.close)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()
        assert over.wait(60)
        thread.join()


def test_a_block_is_entered_once(place: Place) -> None:
    """A second time it is refused with what to do, and nothing is taken or written."""
    store = place.open()
    for block, name in ((store.lease("job"), "lease"), (store.agent("a").change(), "change")):
        with block, pytest.raises(InvalidInputError, match=f"`{name}` again"), block:
            raise AssertionError("it was entered")
        with pytest.raises(InvalidInputError, match=f"`{name}` again"), block:
            raise AssertionError("it was entered")
    assert [(info.owner, info.term) for info in store.leases()] == [(None, 1)]


def test_an_async_block_is_entered_once(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            lease, change = store.lease("job"), store.change()
            async with lease, change:
                pass
            for block, name in ((lease, "lease"), (change, "change")):
                with pytest.raises(InvalidInputError, match=f"`{name}` again"):
                    async with block:
                        raise AssertionError("it was entered")

    asyncio.run(main())


def test_what_nobody_expects_does_not_end_the_renewing(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> bool:
        raise RuntimeError("of a driver")

    with store.lease("one", duration=60) as lease:
        due = lease.due
        with monkeypatch.context() as patched:
            patched.setattr(store._core.leases, "renew", broken)
            lease.beat()
        assert lease.held
        assert "could not be renewed" in caplog.text
        assert lease.due != due  # tried again soon, and not at once
        lease.beat()
        assert lease.held
