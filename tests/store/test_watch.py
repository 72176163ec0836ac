"""Watching: every entry that fits, in order and soon, whoever wrote it, however slow the reader."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of
from test_feed import Busy, in_order, place_of

import holdfast
from holdfast import Entry, Position, sync
from holdfast.errors import (
    InvalidInputError,
    StateIntegrityError,
    StoreClosedError,
    Unavailable,
)
from holdfast.storage.wrappers import Counting
from holdfast.store.commit.change import build_change
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core
from holdfast.store.read import watch as watching
from holdfast.store.rules.gates import Operation


def keys_of(entries: list[Entry]) -> list[tuple[str, ...]]:
    return [entry.keys for entry in entries]


# ---- what is given -------------------------------------------------------------------------


def test_from_now_on_in_any_handle(place: Place) -> None:
    store = place.open()
    store.agent("1").set("before", 0)
    watches = [store.watch(timeout=0), place.open().watch(timeout=0)]
    assert [list(watch) for watch in watches] == [[], []]
    store.agent("1").set("k", 1)
    store.agent("2").append("l", 1)
    for watch in watches:
        seen = list(watch)
        assert [place_of(e) for e in seen] == [("agent:1", "main", 2), ("agent:2", "main", 1)]
        assert watch.position == seen[-1].position == store.position()
        assert list(watch) == []
    store.agent("1").set("k", 2)
    assert [keys_of(list(watch)) for watch in watches] == [[("k",)], [("k",)]]


def test_from_a_position(place: Place) -> None:
    store = place.open()
    position = store.position()
    for number in range(5):
        store.agent("1").set("k", number)
    seen = list(store.watch(since=position, timeout=0))
    assert [entry.sequence for entry in seen] == [1, 2, 3, 4, 5]
    for number, entry in enumerate(seen, 1):
        rest = list(place.open().watch(since=entry.position, timeout=0))
        assert [entry.sequence for entry in rest] == list(range(number + 1, 6))


def test_one_scope_and_one_timeline(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    watches: list[Any] = [
        place.open().watch("agent:1", timeout=0),
        place.open().agent("1").watch(timeout=0),
        place.open().agent("1").on("trial").watch(timeout=0),
        place.open().watch(state.scope, timeout=0),
    ]
    state.set("k", 1)
    store.agent("2").set("k", 1)
    trial = state.fork("trial")
    trial.set("k", 2)
    store.delete("agent:1")
    state.set("again", 1)
    seen = [[(e.timeline, e.sequence) for e in watch] for watch in watches]
    main, side = [("main", 1), ("main", 2)], [("trial", 1), ("trial", 2), ("trial", 3)]
    assert sorted(seen[0]) == sorted([*main, *side, ("main", 4)])
    assert seen[1] == [*main, ("main", 4)]
    assert seen[2] == side
    assert seen[3] == seen[0]


def test_prefix_and_pattern(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    by: dict[str, Any] = {
        "prefix": store.watch(prefix="memory/", timeout=0),
        "pattern": store.watch(pattern="*/facts/[0-9]", timeout=0),
        "both": store.watch(prefix="memory/", pattern="*b", timeout=0),
        "case": state.watch(pattern="PLAN", timeout=0),
    }
    for key in ("plan", "memory/facts/1", "memory/b", "other/facts/2", "other/facts/10"):
        state.set(key, 1)
    with state.change() as change:
        change.set("x", 1)
        change.delete("memory/b")
    state.checkpoint("c")
    seen = {name: keys_of(list(watch)) for name, watch in by.items()}
    both = ("x", "memory/b")
    assert seen == {
        "prefix": [("memory/facts/1",), ("memory/b",), both],
        "pattern": [("memory/facts/1",), ("other/facts/2",)],
        "both": [("memory/b",), both],
        "case": [],
    }


def test_what_names_no_key_but_may_change_any_is_always_given(place: Place) -> None:
    """Else who watches a prefix would not hear that it was restored."""
    store = place.open()
    state = store.agent("1")
    state.set("a", 1)
    watch = state.watch(prefix="a", timeout=0)
    point = state.checkpoint("c")
    state.set("b", 2)
    state.restore(point)
    store.delete("agent:1")
    assert [entry.kinds for entry in watch] == [("restore",), ("delete scope",)]


def test_an_erased_scope_is_passed_over(place: Place) -> None:
    store = place.open()
    watch = place.open().watch(timeout=0)
    for name in ("1", "2"):
        store.agent(name).set("k", 1)
    store.erase("agent:1")
    store.agent("1").set("again", 1)
    assert [(str(e.scope), e.keys) for e in watch if e.keys] == [
        ("agent:2", ("k",)),
        ("agent:1", ("again",)),
    ]


# ---- order and completeness ----------------------------------------------------------------


@pytest.mark.parametrize("small", [False, True])
def test_several_writers_on_several_lanes(
    place: Place, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a backlog that is longer than what is held of a lane."""
    if small:
        monkeypatch.setattr(watching, "PAGE", 3)
        monkeypatch.setattr(watching, "LINES", 1)
        monkeypatch.setattr(watching, "ENTRIES", 2)
        monkeypatch.setattr(watching, "ROWS", 2)
    writers = [place.open() for _ in range(4)]
    live, late = place.open().watch(timeout=0), place.open().watch(timeout=0)
    seen: list[Entry] = []
    choose = random.Random(7)
    for number in range(200):
        writer = choose.choice(writers)
        writer.agent(str(choose.randrange(3))).append("l", number)
        if number % 17 == 0:
            seen += live
    seen += live
    in_order(seen)
    assert len(seen) == 200
    found = list(late)
    in_order(found)
    assert sorted(map(place_of, found)) == sorted(map(place_of, seen))
    for stop in (0, 1, 57, 150, 198):
        rest = [place_of(e) for e in writers[0].watch(since=found[stop].position, timeout=0)]
        assert len(rest) == 199 - stop
        assert set(rest) == {place_of(e) for e in found[stop + 1 :]}


def test_a_watch_that_is_overtaken_while_it_reads(plain: Place) -> None:
    """Between its looks at two lanes others commit to both; order holds all the same."""
    writers = [plain.open() for _ in range(6)]
    for writer in writers:
        writer.agent("1").set("k", 0)
    for trial in range(10):
        choose = random.Random(trial)
        reader = plain.open()
        storage: Any = reader._core.storage

        def busy(
            low: bytes, high: bytes, scan: Any = storage.scan, choose: Any = choose, **more: Any
        ) -> Any:
            found = scan(low, high, **more)
            if low[:1] == b"F" and choose.random() < 0.5:
                choose.choice(writers).agent("1").set("k", 1)
            return found

        reader._core.lanes.storage = Busy(storage, busy)
        begun = reader.position()  # also this is one moment, though the lanes are read in turn
        watch = reader.watch(since=begun, timeout=0)
        seen = [next(watch) for _ in range(40)]
        reader._core.lanes.storage = storage
        seen += watch
        numbers = [entry.sequence for entry in seen]
        assert numbers == list(range(numbers[0], writers[0].agent("1")._handle.place()[2] + 1))


def test_timelines_that_begin_while_it_reads(plain: Place) -> None:
    """The second entry of a scope lies in a lane not yet read, its first in one just passed."""
    writers = [plain.open() for _ in range(6)]
    for writer in writers:
        writer.agent("first").set("k", 0)
    reader = plain.open()
    watch = reader.watch(timeout=0)
    storage: Any = reader._core.storage
    choose = random.Random(1)
    written = 0

    def busy(low: bytes, high: bytes, **more: Any) -> Any:
        nonlocal written
        found = storage.scan(low, high, **more)
        if low[:1] == b"F" and written < 400:
            choose.choice(writers).agent(f"new{written // 4}").set("k", written)
            written += 1
        return found

    reader._core.lanes.storage = Busy(storage, busy)
    seen: list[Entry] = []
    while len(seen) < 400:
        seen += watch
    in_order(seen)


@pytest.mark.spec("S29")
def test_stopping_between_the_entries_of_one_commit(place: Place) -> None:
    """The position behind an entry is exact: nothing twice, nothing left out."""
    store = place.open()
    begin = store.position()
    for number in range(4):
        with store.change() as change:
            for name in ("a", "b", "c"):
                change[store.agent(name)].set("k", number)
    everything = list(store.watch(since=begin, timeout=0))
    assert len(everything) == 12
    assert len(rows_of(place.storage(), b"F")) == 4
    for number, entry in enumerate(everything, 1):
        for rest in (store.watch(since=entry.position, timeout=0), store.feed(entry.position)):
            assert list(map(place_of, rest)) == list(map(place_of, everything[number:]))
    store.erase("agent:b")
    for number, entry in enumerate(everything[:11], 1):
        left = [place_of(e) for e in everything[number:] if str(e.scope) != "agent:b"]
        rest = [place_of(e) for e in store.watch(since=entry.position, timeout=0)]
        assert [one for one in rest if one[0] != "agent:b"] == left


def test_a_reader_stopped_for_100_000_entries_gets_every_one(tmp_path: Any) -> None:
    place = Place("memory", tmp_path, sealed=False)
    store, reader = place.open(), place.open()
    watch = reader.watch("agent:1", timeout=0)
    fill(store, 100_000, 20)
    expected = 0
    for entry in watch:
        expected += 1
        assert entry.sequence == expected
    place.close()
    assert expected == 100_000


def fill(store: sync.Store, count: int, together: int) -> None:
    """Many entries, some of them in each commit."""
    core, state = store._core, store.agent("1")
    for first in range(0, count, together):
        for number in range(first, first + together):
            core.submit(state._handle.plan_set(f"k{number % 50}", number, None)[0])
        core.committer.drain()


def test_a_backlog_is_not_held_in_memory(plain: Place) -> None:
    store, reader = plain.open(), plain.open()
    watch = reader.watch(timeout=0)
    store.agent("0").set("k", 1)
    next(watch)  # what is loaded once is loaded
    fill(store, 12_000, 1)
    tracemalloc.start()
    assert next(watch).sequence == 1
    peaks = [tracemalloc.get_traced_memory()[1]]
    for expected, entry in enumerate(watch, 2):
        assert entry.sequence == expected
        if expected == 2000:
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert expected == 12_000
    assert peaks[-1] < 2 << 20, "12,000 rows of the feed would take several times as much"


def test_an_error_of_the_storage_loses_nothing(plain: Place) -> None:
    store = plain.open()
    counting = Counting(plain.storage())
    core = open_core(plain.url, storage=counting, **plain.options())
    with sync.Store(StoreHandle(core)) as reader:
        watch = reader.watch(timeout=0)
        for number in range(30):
            store.agent(str(number % 3)).append("l", number)
        scan, choose = counting.scan, random.Random(3)

        def failing(*args: Any, **more: Any) -> Any:
            if choose.random() < 0.2:
                raise Unavailable("not now")
            return scan(*args, **more)

        counting.scan = failing  # type: ignore[method-assign]
        seen: list[Entry] = []
        failed = 0
        while len(seen) < 30:
            try:
                seen += [next(watch)]
            except Unavailable:
                failed += 1
        in_order(seen)
        assert failed
        counting.scan = scan  # type: ignore[method-assign]


def test_a_feed_that_contradicts_itself_is_damage(plain: Place) -> None:
    store = plain.open()
    begin = store.position()
    for number in range(4):
        store.agent("1").set("k", number)
    storage = plain.storage()
    feed = rows_of(storage, b"F")
    put_row(storage, feed[0][0], feed[3][1])
    put_row(storage, feed[3][0], feed[0][1])
    watch = plain.open().watch(since=begin, timeout=0)
    for _ in range(2):
        with pytest.raises(StateIntegrityError, match="verify"):
            list(watch)


def test_what_is_given_can_be_read(plain: Place) -> None:
    """An entry of this process is not given before its own reads see it."""
    store = plain.open()
    state = store.agent("1")
    state.set("k", 0)
    wrong: list[tuple[int, int]] = []

    def follow(watch: sync.Watch) -> None:
        for entry in watch:
            value = state.get("k")
            if value < entry.sequence - 1:
                wrong.append((entry.sequence, value))
            if entry.sequence == 501:
                return

    thread = threading.Thread(target=follow, args=(store.watch(),))
    thread.start()
    for number in range(1, 501):
        state.set("k", number)
    thread.join(60)
    assert not thread.is_alive()
    assert wrong == []


# ---- how soon ------------------------------------------------------------------------------

WRITER = """
import sys, time
from holdfast import sync
url, key, signer, count = sys.argv[1:]
with sync.open(url, key=key or None, signer=signer, durability="normal") as store:
    for number in range(int(count)):
        store.agent("w").set("sent", time.time())
        time.sleep(0.03)
"""


@pytest.mark.spec("S28")
@pytest.mark.parametrize("sealed", [False, True])
def test_another_process_is_heard(tmp_path: Any, sealed: bool, monkeypatch: Any) -> None:
    """The storage tells that something was committed; nobody waits for a look without a reason."""
    monkeypatch.setattr(watching, "LOOK", float("inf"))
    place = Place("sqlite", tmp_path, sealed=sealed)
    store = place.open()
    state = store.agent("w")
    state.set("sent", 0)
    watch = state.watch(timeout=60)
    words = [sys.executable, "-c", WRITER, place.url, place.key or "", place.signer, "20"]
    child = subprocess.Popen(words, env=place.environment())
    found = [next(watch).sequence for _ in range(20)]
    assert found == list(range(2, 22)), "each, and in order"
    assert child.wait(60) == 0
    place.close()


def test_a_local_commit_wakes_a_watch_at_once(plain: Place, monkeypatch: Any) -> None:
    """Without asking the storage again: the pause is made longer than the test."""
    monkeypatch.setattr(watching, "SHORTEST", 3600.0)
    monkeypatch.setattr(watching, "LONGEST", 3600.0)
    store = plain.open()
    watch, found = store.watch(), []
    follower = threading.Thread(target=lambda: found.append(next(watch)), daemon=True)
    follower.start()
    time.sleep(0.1)  # so that it waits, as a rule
    store.agent("1").set("k", 1)
    follower.join(60)
    assert [entry.keys for entry in found] == [("k",)]


def test_waiting_costs_little(plain: Place) -> None:
    reader, counting = plain.open_counting()
    watch = reader.watch(timeout=0.5)
    counting.reset()
    assert list(watch) == []
    assert counting.calls["version"] < 100
    assert counting.calls["scan"] <= 16


def test_entries_of_other_scopes_are_not_even_read(plain: Place) -> None:
    store = plain.open()
    store.agent("1").set("k", 1)
    reader, counting = plain.open_counting()
    watch = reader.watch("agent:1", timeout=0)
    assert list(watch) == []
    for number in range(50):
        store.agent("2").set("k", number)
    counting.reset()
    assert list(watch) == []
    assert counting.calls["scan"] < 50


class Rows(Counting):
    """Counts the records that are asked for by their keys."""

    asked = 0

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.asked += len(keys)
        return super().get(keys)


def test_commits_of_many_scopes_are_read_once(plain: Place) -> None:
    """Read ahead is only what is given before the next pause: the rest would be read anew."""
    store = plain.open()
    position, core = store.position(), store._core
    for number in range(40):
        states = [store.agent(str(scope)) for scope in range(100)]
        asked = [(one.scope, "main", [Operation("set", "k", number)], {}, None) for one in states]
        tickets = [core.submit(build_change(core, [one])) for one in asked]
        core.committer.drive(tickets[-1])
    counting = Rows(plain.storage())
    reader = sync.Store(StoreHandle(open_core(plain.url, storage=counting, **plain.options())))
    with reader:
        assert len(list(reader.watch(since=position, timeout=0))) == 4000
        assert counting.asked < 3 * 4000


# ---- how it ends ---------------------------------------------------------------------------


def test_silence_ends_it_and_it_goes_on(store: sync.Store) -> None:
    watch = store.watch(timeout=0.05)
    assert list(watch) == []
    store.agent("1").set("k", 1)
    assert keys_of(list(watch)) == [("k",)]


@pytest.mark.parametrize("what", ["watch", "store"])
def test_closing_ends_a_watch_that_waits(place: Place, what: str) -> None:
    store = place.open()
    store.agent("1").set("k", 1)
    watch = store.watch(since=Position())
    seen: list[Entry] = []
    thread = threading.Thread(target=lambda: seen.extend(watch))
    thread.start()
    while not seen:
        time.sleep(0.001)
    (watch if what == "watch" else store).close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(seen) == 1
    assert list(watch) == []


def test_a_closed_store_is_not_watched(place: Place) -> None:
    store = place.open()
    store.close()
    with pytest.raises(StoreClosedError):
        store.watch()
    with pytest.raises(StoreClosedError):
        store.agent("1").watch()


@pytest.mark.parametrize(
    "bad",
    [
        {"scope": "nonsense"},
        {"scope": 7},
        {"prefix": None},
        {"pattern": 7},
        {"pattern": ""},
        {"since": 5},
        {"since": {"0": 1}},
        {"since": {99: 1}},
        {"since": {0: -1}},
        {"timeout": -1},
        {"timeout": "1"},
        {"timeout": 10**400},
        {"past_pruned": 1},
    ],
    ids=str,
)
def test_slips_are_refused(plain: Place, bad: dict[str, Any]) -> None:
    with pytest.raises(holdfast.HoldfastError) as caught:
        plain.open().watch(**bad)
    assert isinstance(caught.value, InvalidInputError)


def test_a_position_of_another_store_is_refused(plain: Place) -> None:
    store = plain.open()
    store.agent("1").set("k", 1)
    ahead = Position({lane: number + 1 for lane, number in store.position().items()})
    with pytest.raises(InvalidInputError, match="another store"):
        store.watch(since=ahead)


# ---- exactly once --------------------------------------------------------------------------

CONSUMER = """
import os, random, sys
from holdfast import Position, sync
url, key, signer, seed, total = sys.argv[1:]
choose = random.Random(int(seed))
with sync.open(url, key=key or None, signer=signer, durability="normal") as store:
    mine = store.custom("consumer")
    since = Position(mine.get("position", {}))
    for entry in store.watch(prefix="order/", since=since, timeout=0.5):
        if choose.random() < 0.1:
            os._exit(9)
        with mine.change() as change:
            change.append("shipped", entry.keys[0])
            change.set("position", dict(entry.position))
        if choose.random() < 0.1:
            os._exit(9)
        if entry.keys[0] == f"order/{int(total) - 1}":
            break
"""


@pytest.mark.parametrize("sealed", [False, True])
def test_effect_and_position_in_one_change_are_exactly_once(tmp_path: Any, sealed: bool) -> None:
    """The consumer is killed before and behind its commits, again and again."""
    place = Place("sqlite", tmp_path, sealed=sealed)
    store = place.open()
    total = 40
    for first in range(0, total, 4):  # several entries in one commit
        with store.change() as change:
            for number in range(first, first + 4):
                change[store.agent(str(number % 4))].set(f"order/{number}", number)
    kills = 0
    for seed in range(100):
        words = [sys.executable, "-c", CONSUMER, place.url, place.key or "", place.signer]
        done = subprocess.run(
            [*words, str(seed), str(total)], env=place.environment(), timeout=60, check=False
        )
        if done.returncode == 0:
            break
        assert done.returncode == 9
        kills += 1
    shipped = store.custom("consumer").get("shipped")
    place.close()
    assert kills
    assert sorted(shipped) == sorted(f"order/{number}" for number in range(total))


# ---- the async face ------------------------------------------------------------------------


def test_async_gives_all_that_was_committed_at_once(place: Place) -> None:
    """However many entries one commit holds, and without waiting for another commit."""

    async def work() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            watch = state.watch(timeout=0)
            for turn in range(3):
                await asyncio.gather(*(state.set(f"{turn}/{n}", n) for n in range(100)))
            assert [entry.sequence async for entry in watch] == list(range(1, 301))
            assert [entry async for entry in watch] == []

    asyncio.run(work())


def test_async_gives_a_burst_without_a_second_look(plain: Place, monkeypatch: Any) -> None:
    """The pauses between two looks are made longer than the test."""
    monkeypatch.setattr(watching, "PACE", 3600.0)
    monkeypatch.setattr(watching, "LOOK", 3600.0)
    other = plain.open().agent("1")

    async def work() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            watch = store.agent("1").watch()
            for number in range(300):
                other.append("l", number)
            assert [(await anext(watch)).sequence for _ in range(300)] == list(range(1, 301))

    asyncio.run(asyncio.wait_for(work(), 60))


def test_async_watch(place: Place) -> None:
    async def work() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            watch = state.watch(prefix="a/")
            seen: list[Entry] = []

            async def follow() -> None:
                async for entry in watch:
                    seen.append(entry)
                    if len(seen) == 100:
                        return

            task = asyncio.create_task(follow())
            await asyncio.gather(*(state.set(f"a/{n}", n) for n in range(100)))
            await state.set("b", 1)
            await asyncio.wait_for(task, 60)
            in_order(seen)
            quiet = [entry async for entry in store.watch("agent:1", timeout=0.01)]
            assert quiet == []

    asyncio.run(work())


def test_async_hears_another_handle(plain: Place) -> None:
    other = plain.open()

    async def work() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            watch = store.watch()
            timer = threading.Timer(0.05, lambda: other.agent("1").set("k", 1))
            timer.start()
            entry = await asyncio.wait_for(anext(watch), 60)
            assert entry.keys == ("k",)
            timer.join()

    asyncio.run(work())


def test_a_cancelled_wait_loses_nothing(plain: Place) -> None:
    other = plain.open()

    async def work() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            watch = store.watch()
            seen: list[Entry] = []
            choose = random.Random(5)
            stop = threading.Event()

            def write() -> None:
                for number in range(200):
                    other.agent("1").set("k", number)
                    time.sleep(0.0005)
                stop.set()

            thread = threading.Thread(target=write)
            cancelled = 0
            while len(seen) < 200:
                task = asyncio.create_task(anext(watch))  # type: ignore[arg-type]
                await asyncio.wait([task], timeout=choose.random() * 0.002)
                if not cancelled:  # nothing came yet, so one is cancelled however fast the rest is
                    thread.start()
                if task.done():
                    seen.append(task.result())
                else:
                    task.cancel()
                    cancelled += 1
                    await asyncio.gather(task, return_exceptions=True)
            in_order(seen)
            assert cancelled
            thread.join()

    asyncio.run(asyncio.wait_for(work(), 60))


@pytest.mark.parametrize("what", ["watch", "store"])
def test_async_close_ends_it(place: Place, what: str) -> None:
    async def work() -> None:
        store = await holdfast.open(place.url, **place.options())
        watch = store.watch()

        async def follow() -> list[Entry]:
            return [entry async for entry in watch]

        task = asyncio.create_task(follow())
        await asyncio.sleep(0.05)
        await (watch if what == "watch" else store).close()
        assert await asyncio.wait_for(task, 60) == []
        await store.close()

    asyncio.run(work())
