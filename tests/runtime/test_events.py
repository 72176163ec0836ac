"""The log of events: a ring in memory, batches in the store, nothing lost unseen."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from store_kit import Between, Hands, Place

import holdfast
from holdfast import sync
from holdfast.errors import AccessDeniedError, InvalidInputError, StoreClosedError
from holdfast.runtime import Event
from holdfast.runtime import events as module
from holdfast.runtime.events import is_reference, stripped_of
from holdfast.runtime.runtime_records import EventBatch
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core
from holdfast.sync.access import Access
from holdfast.sync.runtime import Events


@pytest.fixture
def log(store: sync.Store) -> Events:
    return Events(store)


def names(found: Any) -> list[str]:
    return [one.event_name for one in found]


def numbers(found: Any) -> list[int]:
    return [one.data["n"] for one in found]


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not met():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


class Held:
    """A place whose commits wait while `shut` is set."""

    def __init__(self, place: Place) -> None:
        self.open = threading.Event()
        self.open.set()
        storage = Between(place.storage())
        commit = storage.commit

        def waits(batch: Any) -> None:
            assert self.open.wait(30)
            commit(batch)

        storage.commit = waits  # type: ignore[method-assign]
        core = open_core(place.url, storage=storage, **place.options())  # type: ignore[arg-type]
        self.store = sync.Store(StoreHandle(core))
        place._open.append(self.store)


@pytest.fixture
def held(plain: Place) -> Iterator[Held]:
    made = Held(plain)
    yield made
    made.open.set()


# ---- what an event is ---------------------------------------------------------------------------


@pytest.mark.spec("X32", "S24")
def test_an_event_has_its_fields_and_those_that_follow_from_them(
    timed: sync.Store, hands: Hands
) -> None:
    log = Events(timed)
    event = log.emit(
        "agent:spawn", {"session_id": "s9", "n": 1}, client="cli", correlation="run-42"
    )
    assert Event.__struct_fields__[:6] == (
        *("timestamp", "event_name", "data"),
        *("client_id", "correlation_id", "event_id"),
    )
    assert event.timestamp == pytest.approx(hands.wall)
    assert event.timestamp_iso == hands.time().isoformat()
    assert (event.event_type, event.session_id) == ("agent", "s9")
    assert (event.client_id, event.correlation_id) == ("cli", "run-42")
    bare = log.emit("tick")
    assert (bare.event_type, bare.session_id, bare.data) == ("tick", "", {})
    assert bare.event_id != event.event_id
    assert log.emit("x", {"session_id": 5}).session_id == ""
    assert log.emit("x", {"session": "other"}).session_id == "other"
    assert log.query(durable=True) == log.query(), "stored as it was"


@pytest.mark.spec("X32", "S25")
def test_defaults_are_those_that_are_named(store: sync.Store) -> None:
    log = Events(store)
    assert (module.RING, module.QUEUE, module.BATCH, module.FLUSH) == (10_000, 5_000, 100, 1.0)
    assert timedelta(days=30) == module.KEPT
    assert log._ring._most == 10_000
    behind = log._behind
    assert (behind._most, behind._size, behind._interval) == (5_000, 100, 1.0)
    assert log._keep == 30 * 86_400
    assert len(log._ring) == 0, "nothing is recovered unless it is asked for"


@pytest.mark.parametrize(
    "given",
    [
        {"ring": 0}, {"queue": 0}, {"batch": 0}, {"batch": 6000}, {"ring": "1"}, {"flush": -1},
        {"keep": -1}, {"strip": "yes"}, {"recover": 1}, {"batch": 10, "queue": 5},
    ],
)  # fmt: skip
def test_settings_that_cannot_be(store: sync.Store, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Events(store, **given)


def test_bad_events_are_refused_at_once(log: Events) -> None:
    for name in ("", 5, "x" * 201, None):
        with pytest.raises(InvalidInputError):
            log.emit(name)  # type: ignore[arg-type]
    for data in ([1], {"x": object()}, "text"):
        with pytest.raises(holdfast.HoldfastError):
            log.emit("x", data)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        log.emit("x", client=5)  # type: ignore[arg-type]
    assert log.query() == []
    with pytest.raises(InvalidInputError, match="same face"):
        Events("x")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="not by SQL"):
        log.query("SELECT * FROM events")


def test_data_are_the_same_from_the_ring_and_from_the_store(log: Events) -> None:
    data = {"at": datetime(2026, 1, 2, tzinfo=UTC), "big": 1 << 80, "raw": b"\0", "odd": "\ud800"}
    assert log.emit("x", data).data == data
    assert [one.data for one in log.query()] == [data]
    assert [one.data for one in log.query(durable=True)] == [data]
    with pytest.raises(InvalidInputError, match="valid Unicode"):
        log.emit("\ud800")


def test_what_is_done_to_data_later_changes_no_event(log: Events) -> None:
    data = {"list": [1], "n": 1}
    log.emit("x", data)
    data["list"].append(2)  # type: ignore[attr-defined]
    data["n"] = 2
    assert log.query()[0].data == {"list": [1], "n": 1}
    assert log.query(durable=True)[0].data == {"list": [1], "n": 1}


# ---- the ring and the store ---------------------------------------------------------------------


@pytest.mark.spec("S25", "S23", "S32")
def test_the_ring_keeps_the_newest_and_the_store_is_behind_it(store: sync.Store) -> None:
    log = Events(store, ring=10, queue=1000, flush=600.0)
    for n in range(35):
        log.emit(f"t{n % 2}:x", {"n": n})
    assert log.stats().ring == 10
    assert numbers(log.query(limit=None)) == list(range(35)), "older ones come from the store"
    assert numbers(log.query(limit=None, reverse=True)) == list(range(34, -1, -1))
    assert numbers(log.query(limit=4)) == [0, 1, 2, 3]
    assert numbers(log.query(limit=4, reverse=True)) == [34, 33, 32, 31]
    assert numbers(log.query("t1:*", limit=8, reverse=True)) == [33, 31, 29, 27, 25, 23, 21, 19]
    assert numbers(log.query(["t0:x", "nothing"], limit=3)) == [0, 2, 4]


def test_a_question_reads_the_batches_that_it_gives_and_hardly_more(
    timed: sync.Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Events(timed, ring=1, flush=600.0)
    for n in range(60):
        log.emit("a:x", {"n": n})
        log.flush()
        hands.move(600)
    read: list[EventBatch] = []
    real = log._events
    monkeypatch.setattr(log, "_events", lambda batch: read.append(batch) or real(batch))
    for how, found in (({}, [0, 1]), ({"reverse": True}, [59, 58])):
        assert numbers(log.query(limit=2, **how)) == found
        assert len(read) <= 3
        read.clear()


@pytest.mark.spec("X33")
def test_events_by_pattern_client_and_time(timed: sync.Store, hands: Hands) -> None:
    log = Events(timed)
    for n in range(150):
        log.emit("a:x" if n % 3 else "b:y", {"n": n}, client=f"c{n % 2}")
        hands.move(1)
    assert len(log.query()) == 100, "the default limit"
    start = hands.wall - 150
    assert numbers(log.query(since=start + 10, until=start + 12)) == [10, 11, 12]
    assert numbers(log.query(since=hands.time(147), reverse=True)) == [149, 148, 147]
    assert numbers(log.query("b:*", client="c1", limit=3)) == [3, 9, 15]
    assert names(log.query("?:y", limit=1)) == ["b:y"]
    assert numbers(log.query(durable=True, since=start + 148)) == [148, 149]
    log.stop()
    slow = Events(timed, flush=600.0)
    for n in range(150, 240):  # nobody writes them for a minute and a half
        slow.emit("a:x", {"n": n})
        hands.move(1)
    slow.flush()
    for reverse in (False, True):
        found = numbers(log.query(durable=True, since=start + 238, reverse=reverse))
        assert sorted(found) == [238, 239], "whatever batch they lie in"
    for wrong in ({"limit": -1}, {"patterns": []}, {"patterns": "*" * 9}, {"since": "now"}):
        with pytest.raises(InvalidInputError):
            log.query(**wrong)  # type: ignore[arg-type]


@pytest.mark.spec("S31", "S26", "S12")
def test_after_a_restart_the_ring_is_empty_and_the_durable_part_whole(place: Place) -> None:
    log = Events(place.open())
    for n in range(250):
        log.emit("x", {"n": n})
    log.stop()
    log = Events(place.reopen())
    assert log.stats().ring == 0
    assert numbers(log.query(limit=None)) == list(range(250))
    log.emit("x", {"n": 250})
    assert numbers(log.query(limit=None)) == list(range(251))


@pytest.mark.spec("X32", "S30")
def test_recovery_loads_the_last_hour_and_no_more(place: Place, hands: Hands) -> None:
    log = Events(place.open(clock=hands.clock))
    log.emit("x", {"n": 0})
    log.flush()
    hands.move(3000)
    log.emit("x", {"n": 1})
    log.flush()
    hands.move(1000)
    log.emit("x", {"n": 2})
    log.stop()
    store = place.reopen(clock=hands.clock)
    found = Events(store, recover=True)
    assert found.stats().ring == 2
    assert numbers(found.query(since=hands.wall - 2000)) == [1, 2]
    assert numbers(found.query(limit=None)) == [0, 1, 2], "each once"


@pytest.mark.spec("X32", "S33")
def test_a_full_batch_is_written_at_once_and_less_after_a_while(place: Place) -> None:
    log = Events(place.open(), batch=10, flush=600.0)
    for n in range(30):
        log.emit("x", {"n": n})
    until(lambda: log.stats().written > 20)  # what is left is less than a batch
    log.flush()
    quick = Events(place.open(), flush=0.05)
    quick.emit("x", {"n": 30})
    until(lambda: quick.stats().written == 1)
    assert numbers(quick.query(durable=True)) == list(range(31)), "of all processes"


@pytest.mark.spec("X32")
def test_what_is_too_old_is_deleted(place: Place, hands: Hands) -> None:
    log = Events(place.open(clock=hands.clock), keep=timedelta(days=1))
    log.emit("x", {"n": 0})
    log.flush()
    hands.move(86_000)
    log.emit("x", {"n": 1})
    log.flush()
    assert numbers(log.query(durable=True)) == [0, 1]
    hands.move(700)
    log.emit("x", {"n": 2})
    log.flush()
    assert numbers(log.query(durable=True)) == [1, 2]
    forever = Events(place.open(clock=hands.clock), keep=None)
    hands.move(10**8)
    forever.emit("x", {"n": 3})
    forever.flush()
    assert numbers(forever.query(durable=True)) == [1, 2, 3]


def test_a_clock_that_jumps_back_loses_nothing(place: Place, hands: Hands) -> None:
    log = Events(place.open(clock=hands.clock))
    for n in range(4):
        log.emit("x", {"n": n})
        log.flush()
        hands.wall -= 500
    assert sorted(numbers(log.query(durable=True))) == [0, 1, 2, 3]
    assert sorted(numbers(log.query())) == [0, 1, 2, 3]


@pytest.mark.spec("S26")
def test_the_scope_of_events_keeps_no_past(place: Place) -> None:
    store = place.open()
    log = Events(store, batch=10)
    for n in range(500):
        log.emit("x", {"n": n})
    log.flush()
    state = store.custom("$events")
    assert holdfast.Keep(count=0) in state._handle.reader.declared().all
    assert log.clear() == 500
    assert log.query() == log.query(durable=True) == []
    assert store.verify().ok
    log.emit("x", {"n": 1})
    assert numbers(log.query(durable=True)) == [1]


# ---- nothing lost unseen ------------------------------------------------------------------------


@pytest.mark.spec("X38", "S34")
def test_event_log_must_not_drop_events_silently_count_and_back_pressure(held: Held) -> None:
    log = Events(held.store, queue=50, batch=10, flush=600.0)
    log.emit("first")
    log.flush()
    held.open.clear()
    for n in range(80):
        log.emit("x", {"n": n})
    stats = log.stats()
    assert (stats.emitted, stats.queued, stats.dropped) == (81, 50, 30)
    waited = threading.Thread(target=lambda: log.write("waited", {"n": 99}))
    waited.start()
    waited.join(0.3)
    assert waited.is_alive(), "write waits for room"
    held.open.set()
    waited.join(30)
    log.flush()
    stored = log.query(durable=True, limit=None)
    assert numbers(e for e in stored if e.event_name == "x") == list(range(50))
    told = [e.data["count"] for e in stored if e.event_name == module.DROPPED]
    assert sum(told) == 30, "in one event or several, as batches were written"
    assert "waited" in names(stored)
    assert log.stats().dropped == 30
    assert numbers(log.query("x", limit=None)) == list(range(80)), "the ring has them all"
    seen = [e.data["count"] for e in log.query(module.DROPPED)]
    assert seen == told, "in the ring, too, as other events are"
    logged = {"logged": 52 + len(told), "dropped": 30}
    assert held.store.metrics().by("events", "outcome") == logged
    found = sync.recovery.Recovery(held.store).health().concerns
    assert [one.what for one in found if one.kind == "dropped_events"] == [
        "30 events of this process's log did not fit into its queue"
    ]


@pytest.mark.spec("X38")
def test_event_log_must_flush_on_stop_without_hanging(place: Place) -> None:
    log = Events(place.open(), flush=600.0)
    for n in range(30):
        log.emit("x", {"n": n})
    log.stop()
    log.stop()
    assert log.stats().queued == 0
    log.emit("x", {"n": 30})
    place.close()
    assert numbers(Events(place.open()).query()) == list(range(31)), "closing the store flushes"


def test_a_flush_ends_though_others_go_on_emitting(store: sync.Store) -> None:
    log, over = Events(store, flush=600.0), threading.Event()

    def others() -> None:
        while not over.is_set():
            log.emit("x")

    busy = threading.Thread(target=others)
    busy.start()
    try:
        flushed = threading.Thread(target=log.flush, daemon=True)
        flushed.start()
        flushed.join(30)
        assert not flushed.is_alive()
    finally:
        over.set()
        busy.join()


def test_a_cancelled_stop_flushes_all_the_same(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            log = holdfast.runtime.Events(store, flush=600.0)
            for n in range(300):
                log.emit("x", {"n": n})
            task = asyncio.create_task(log.stop())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert log.stats().queued == 0

    asyncio.run(main())
    assert len(Events(plain.open()).query(limit=None)) == 300


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_stop_ends_in_its_time_also_if_it_is_cancelled(held: Held, cancelled: bool) -> None:
    """The storage serves nobody just now; what waits is written once it does."""

    async def main() -> None:
        log = holdfast.runtime.Events(holdfast.Store._of(held.store, "thread"), flush=600.0)
        for n in range(300):
            log.emit("x", {"n": n})
        held.open.clear()
        task = asyncio.create_task(log.stop(timeout=0.1))
        await asyncio.sleep(0)
        if cancelled:
            task.cancel()
        with pytest.raises(asyncio.CancelledError) if cancelled else nullcontext():
            await asyncio.wait_for(task, 20)
        held.open.set()
        await asyncio.to_thread(until, lambda: log.stats().queued == 0)

    asyncio.run(main())


def test_a_reader_is_told_how_many_events_were_dropped(held: Held) -> None:
    log = Events(held.store, queue=10, batch=10, flush=600.0)
    log.emit("first")
    log.flush()
    held.open.clear()
    with log.subscribe(module.DROPPED, timeout=0.0) as events:
        for n in range(12):
            log.emit("x", {"n": n})
        held.open.set()
        log.flush()
        assert sum(one.data["count"] for one in events) == 2


@pytest.mark.spec("S34", "X38")
def test_a_burst_of_20000_arrives_whole_or_counted(plain: Place) -> None:
    log = Events(plain.open())
    threads = [
        threading.Thread(
            target=lambda k=k: [log.emit("x", {"n": k * 5000 + n}) for n in range(5000)]
        )
        for k in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    log.stop()
    stats = log.stats()
    stored = Events(plain.open()).query(durable=True, limit=None)
    told = [one.data["count"] for one in stored if one.event_name == module.DROPPED]
    assert stats.emitted == 20_000 + len(told)
    assert len({one.event_id for one in stored}) == len(stored) == stats.written
    assert len(stored) + stats.dropped == stats.emitted
    assert sum(told) == stats.dropped


KILLED = """
import os, sys
from holdfast import sync
from holdfast.sync.access import Access
from holdfast.sync.runtime import Events
url, key, signer = sys.argv[1:]
store = sync.open(url, key=key or None, signer=signer, durability="normal")
log = Events(store, batch=10, flush=600.0)
for n in range(25):
    log.write("x", {"n": n})
log.flush()
for n in range(25, 30):
    log.emit("x", {"n": n})
os.kill(os.getpid(), 9)
"""


@pytest.mark.spec("S31", "S26")
def test_a_killed_process_loses_what_was_not_written_and_nothing_else(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    place.open().close()
    made = [sys.executable, "-c", KILLED, place.url, place.key or "", place.signer]
    assert subprocess.run(made, env=place.environment(), timeout=60).returncode == -9
    store = place.open()
    assert numbers(Events(store).query(limit=None)) == list(range(25))
    assert store.verify().ok
    place.close()


@pytest.mark.parametrize("mode", ["before", "ambiguous-applied", "ambiguous-lost"])
def test_what_fails_to_be_written_is_tried_again_and_written_once(plain: Place, mode: str) -> None:
    Events(plain.open()).clear()
    faulty = Faulty(plain.storage())
    store = sync.Store(StoreHandle(open_core(plain.url, storage=faulty, **plain.options())))
    log = Events(store, flush=600.0)
    log.emit("x", {"n": 0})
    log.flush()
    faulty.plan = (Fault("commit", faulty.calls["commit"] + 1, mode),)
    log.emit("x", {"n": 1})
    with suppress(holdfast.HoldfastError):
        log.flush()
    log.flush()
    assert faulty.failed
    assert (log.stats().queued, log.stats().written) == (0, 2)
    assert numbers(log.query(durable=True)) == [0, 1]
    store.close()


def test_the_end_of_one_part_that_fails_keeps_no_other_from_its_end(plain: Place) -> None:
    store = plain.open()
    log = Events(store, flush=600.0)
    log.emit("x", {"n": 1})
    Events(Access(store).as_("nobody"), flush=600.0).emit("x")
    with pytest.raises(AccessDeniedError, match="nobody may not"):
        store.close()
    with pytest.raises(StoreClosedError):
        store.scopes()
    assert numbers(Events(plain.open()).query(durable=True)) == [1]
    plain.close()


# ---- readers ------------------------------------------------------------------------------------


@pytest.mark.spec("X33", "S28", "S29")
def test_a_subscriber_pulls_what_comes_and_nobody_waits_for_it(store: sync.Store) -> None:
    log = Events(store, ring=10)
    log.emit("a:before")
    with log.subscribe("a:*", timeout=0.2) as found:
        for n in range(5):
            log.emit("a:x" if n % 2 else "b:x", {"n": n})
        assert numbers([next(found), next(found)]) == [1, 3]
        for n in range(30):
            log.emit("a:y", {"n": n})
        assert numbers(found) == list(range(20, 30)), "what the ring still has"
        assert found.missed == 21
    with pytest.raises(StopIteration):
        next(found)


def test_a_subscription_ends_in_time_whatever_else_comes(store: sync.Store) -> None:
    log, over = Events(store), threading.Event()

    def others() -> None:
        while not over.wait(0.01):
            log.emit("b:x")

    busy = threading.Thread(target=others)
    busy.start()
    begun = time.monotonic()
    with log.subscribe("a:*", timeout=0.3) as found:
        assert list(found) == []
    over.set()
    busy.join()
    assert 0.3 <= time.monotonic() - begun < 10


@pytest.mark.spec("S28", "X33")
def test_a_subscription_hears_other_threads_and_tasks(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            log = holdfast.runtime.Events(store)
            found = []

            async def reader() -> None:
                async with log.subscribe("x") as events:
                    async for event in events:
                        found.append(event.data["n"])
                        if len(found) == 20:
                            return

            task = asyncio.create_task(reader())
            await asyncio.sleep(0.05)
            emits = threading.Thread(target=lambda: [log.emit("x", {"n": n}) for n in range(20)])
            emits.start()
            await asyncio.wait_for(task, 30)
            emits.join()
            assert found == list(range(20))

    asyncio.run(main())


@pytest.mark.spec("X33")
def test_a_correlation_chain_has_its_order_types_and_duration(
    timed: sync.Store, hands: Hands
) -> None:
    log = Events(timed, batch=2)
    for n, name in enumerate(["agent:a", "tool:b", "agent:c"]):
        log.emit(name, {"n": n}, correlation="run-42")
        log.emit(name, {"n": 100}, correlation="other")
        hands.move(0.5)
    chain = log.chain("run-42")
    assert numbers(chain.events) == [0, 1, 2]
    assert chain.event_types == ("agent", "tool")
    assert chain.duration_ms == pytest.approx(1000)
    empty = log.chain("nothing")
    assert (empty.events, empty.duration_ms, empty.event_types) == ((), 0.0, ())


def test_a_chain_has_its_order_by_a_clock_that_jumps_back(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    log, other = Events(store), Events(store)
    for n in range(3):
        log.emit("x", {"n": n}, correlation="run")
        hands.wall += 5 if n == 0 else -3600
    assert numbers(log.chain("run").events) == [0, 1, 2]
    assert log.chain("run").duration_ms == 0
    other.emit("x", {"n": 3}, correlation="run")
    other.flush()
    hands.wall += 10_000
    log.emit("x", {"n": 4}, correlation="run")
    assert numbers(log.chain("run").events) == [3, 0, 1, 2, 4], "of another process by its time"
    assert log.chain("run").duration_ms > 0


@pytest.mark.spec("X33")
def test_events_of_a_session(place: Place) -> None:
    log = Events(place.open(), batch=3)
    assert log.session_events("s") == []
    assert log.chain("c").events == ()
    for n in range(10):
        log.emit("x", {"n": n, "session_id": f"s{n % 2}"})
    log.stop()
    log = Events(place.reopen())
    assert numbers(log.session_events("s1")) == [1, 3, 5, 7, 9]
    assert numbers(log.session_events("s1", limit=2)) == [1, 3]
    assert log.session_events("s3") == []


@pytest.mark.spec("X33")
def test_statistics(store: sync.Store) -> None:
    log = Events(store, ring=4)
    for name in ("a:x", "a:y", "b:x", "a:x", "a:z"):
        log.emit(name)
    log.flush()
    stats = log.stats()
    assert (stats.emitted, stats.written, stats.dropped) == (5, 5, 0)
    assert (stats.queued, stats.ring, stats.kinds) == (0, 4, {"a": 3, "b": 1})


# ---- stripping ----------------------------------------------------------------------------------

LONG = "x" * 1001


@pytest.mark.spec("X34", "S27")
def test_long_content_is_stripped_by_name_and_marked(place: Place) -> None:
    log = Events(place.open())
    large = [
        *("content", "response", "text", "prompt", "message"),
        *("file_content", "data", "payload", "body", "result"),
    ]
    event = log.emit("x", {**dict.fromkeys(large, LONG), "title": LONG, "n": 1})
    for name in large:
        assert event.data[name] == "<stripped: 1001 chars>"
    assert (event.data["title"], event.data["n"]) == (LONG, 1), "other names stay as they are"
    assert event.stripped == tuple(large)
    kept = log.emit("x", {"content": "x" * 1000})
    assert (kept.data["content"], kept.stripped) == ("x" * 1000, ())
    log.stop()
    stored = Events(place.reopen()).query()
    assert stored[0].stripped == tuple(large), "the mark is kept, too"
    assert Events(place.open(), strip=False).emit("x", {"text": LONG}).data["text"] == LONG


@pytest.mark.spec("X34", "S27")
def test_long_lists_and_mappings_are_stripped_and_references_never() -> None:
    some = list(range(500))
    data, gone = stripped_of({"rows": some, "map": {"a": LONG}, "few": [1, 2]})
    assert data["rows"] == "<stripped: list with 500 items>"
    assert data["map"] == "<stripped: dict with 1 items>"
    assert (data["few"], gone) == ([1, 2], ("rows", "map"))
    keep: dict[str, Any] = {
        "id": some, "request_ids": [1], "session_id": some, "path": LONG, "file_path": some,
        "file": some, "output_ref": some, "url": LONG,
    }  # fmt: skip
    assert stripped_of(keep) == (keep, ())
    assert is_reference("agent_id")
    assert not is_reference("grid")


@pytest.mark.spec("S22", "S24")
def test_events_lie_apart_from_what_agents_know(store: sync.Store) -> None:
    log = Events(store)
    log.emit("x", {"n": 1})
    log.flush()
    assert [str(one.scope) for one in store.scopes().items] == ["custom:$events"]
