"""The feed: every entry once, in order, from a position on."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Entry, Position, sync
from holdfast.errors import StateIntegrityError
from holdfast.storage.wrappers import Counting
from holdfast.store.journal.feed import LANES
from holdfast.store.read.watch import MARKS, STORE


def place_of(entry: Entry) -> tuple[str, str, int]:
    return str(entry.scope), entry.timeline, entry.sequence


def in_order(entries: list[Entry]) -> None:
    """Every timeline's entries come as 1, 2, 3 …"""
    heads: dict[tuple[str, str], int] = {}
    for entry in entries:
        line = (str(entry.scope), entry.timeline)
        assert entry.sequence == heads.get(line, 0) + 1, entry
        heads[line] = entry.sequence


def test_every_kind_of_entry(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    state.set("k", 1)
    state.append("l", 1)
    point = state.checkpoint("c")
    state.restore(point)
    trial = state.fork("trial")
    trial.delete("k")
    with store.change() as change:
        change[state].set("k", 2)
        change[store.agent("2")].set("k", 2)
    found = list(place.open().feed())
    in_order(found)
    assert [entry.kinds for entry in found if place_of(entry)[:2] == ("agent:1", "main")] == [
        ("set",),
        ("append",),
        ("checkpoint",),
        ("checkpoint",),
        ("restore",),
        ("set",),
    ]
    assert [e.kinds for e in found if e.timeline == "trial"] == [("fork",), ("delete",)]
    assert found[-1].also or found[-2].also


def test_since_a_position(place: Place) -> None:
    store, reader = place.open(), place.open()
    assert list(reader.feed()) == []
    assert list(reader.feed(reader.position())) == []
    seen: list[Entry] = []
    for number in range(30):
        for _ in range(number % 4):
            store.agent(str(number % 3)).set("k", number)
        seen += reader.feed(seen[-1].position if seen else None)
    in_order(seen)
    position = seen[-1].position
    assert len(seen) == sum(number % 4 for number in range(30))
    assert position == store.position()
    assert list(reader.feed(position)) == []
    assert list(place.reopen().feed(position)) == []


def test_stopping_anywhere_loses_nothing(place: Place) -> None:
    """Whoever stops between the entries of one commit gets them again, never not at all."""
    store = place.open()
    names = ["a", "b", "c"]
    for number in range(10):
        with store.change() as change:
            for name in names:
                change[store.agent(name)].set("k", number)
    everything = [place_of(entry) for entry in store.feed()]
    assert len(everything) == 30
    for stop in range(1, 30):
        feed = store.feed()
        taken = [next(feed) for _ in range(stop)]
        rest = [place_of(entry) for entry in store.feed(taken[-1].position)]
        assert {place_of(entry) for entry in taken} | set(rest) == set(everything)
        assert rest == everything[-len(rest) :]


def test_several_writers_on_several_lanes(place: Place) -> None:
    writers = [place.open() for _ in range(4)]
    reader = place.open()
    seen: list[Entry] = []
    choose = random.Random(7)
    for number in range(300):
        writer = choose.choice(writers)
        writer.agent(str(choose.randrange(3))).append("l", number)
        if number % 37 == 0:
            seen += reader.feed(seen[-1].position if seen else None)
    seen += reader.feed(seen[-1].position)
    in_order(seen)
    assert len(seen) == 300
    assert len(reader.position()) > 1, "they should not all share one lane"
    in_order(list(reader.feed()))


def test_a_reader_that_is_overtaken_while_it_reads(plain: Place) -> None:
    """Between its looks at two lanes others commit to both; order holds all the same."""
    plain.open().agent("1").set("k", 0)
    writers = [plain.open() for _ in range(6)]
    for writer in writers:
        writer.agent("1").set("k", 0)
    for trial in range(10):
        choose = random.Random(trial)
        reader = plain.open()
        storage: Any = reader._core.storage
        scan = storage.scan

        def busy(
            low: bytes, high: bytes, scan: Any = scan, choose: Any = choose, **more: Any
        ) -> Any:
            found = scan(low, high, **more)
            if low[:1] == b"F" and choose.random() < 0.5:
                choose.choice(writers).agent("1").set("k", 1)
            return found

        reader._core.lanes.storage = Busy(storage, busy)
        seen: list[Entry] = []
        for _ in range(3):
            seen += reader.feed(seen[-1].position if seen else None)
        reader._core.lanes.storage = storage
        seen += reader.feed(seen[-1].position)
        in_order(seen)
        assert len(seen) == reader.agent("1")._handle.place()[2]


def test_a_scope_made_again_elsewhere_comes_behind_its_end(place: Place) -> None:
    for trial in range(8):
        one, other = place.open(), place.open()  # mostly on two lanes
        name = str(trial)
        one.session(name).set("k", "old")
        one.session(name).fork("trial").set("k", "old")
        one.delete(f"session:{name}")
        other.session(name).set("k", "new")
        one.session(name).fork("trial").set("k", "new")
    for seen in ([*place.open().feed()], [*place.open().watch(since=Position(), timeout=0)]):
        for trial in range(8):
            mine = [e for e in seen if e.scope.id == str(trial)]
            main = [e.kinds for e in mine if e.timeline == "main"]
            assert main == [("set",), ("delete scope",), ("set",)]
            kinds = [e.kinds[0] for e in mine if e.timeline == "trial"]
            assert kinds == ["fork", "set", "delete scope", "fork", "set"]


def test_lives_of_a_scope_beside_a_reader_that_is_overtaken(plain: Place) -> None:
    """Whatever it has read, and wherever it began: no entry comes behind one of a later life."""
    writers = [plain.open() for _ in range(6)]
    writers[0].session("s").set("k", 0)
    for trial in range(10):
        choose = random.Random(trial)
        reader = plain.open()
        storage: Any = reader._core.storage
        scan = storage.scan

        def busy(
            low: bytes, high: bytes, scan: Any = scan, choose: Any = choose, **more: Any
        ) -> Any:
            found = scan(low, high, **more)
            if low[:1] == b"F" and choose.random() < 0.5:
                writer = choose.choice(writers)
                if choose.random() < 0.4:
                    writer.session("s").set("k", 0)
                    writer.delete("session:s")
                choose.choice(writers).session("s").set("k", 1)
            return found

        reader._core.lanes.storage = Busy(storage, busy)
        begin = reader.position()
        seen = list(reader.feed(begin))
        reader._core.lanes.storage = storage
        seen += reader.feed(seen[-1].position if seen else begin)
        last = reader.session("s")._handle.place()[2]
        assert [e.sequence for e in seen] == list(range(last - len(seen) + 1, last + 1))


class Busy(Counting):
    """A storage whose scans take so long that others commit meanwhile."""

    def __init__(self, storage: Any, scan: Any) -> None:
        super().__init__(storage)
        self.scan = scan  # type: ignore[method-assign]


def test_followed_from_a_thread_while_others_write(plain: Place) -> None:
    store, reader = plain.open(), plain.open()
    stop = threading.Event()
    seen: list[Entry] = []

    def follow() -> None:
        while True:
            last = stop.is_set()
            seen.extend(reader.feed(seen[-1].position if seen else None))
            if last:
                return

    def write(handle: sync.Store, name: str) -> None:
        for number in range(60):
            handle.agent(name).set("k", number)
            handle.shared.append("l", number)

    follower = threading.Thread(target=follow)
    writers = [
        threading.Thread(target=write, args=(handle, name))
        for handle, name in ((store, "a"), (store, "b"), (plain.open(), "c"))
    ]
    for thread in [follower, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    follower.join()
    in_order(seen)
    assert len(seen) == 360


def test_a_feed_that_contradicts_itself_ends(plain: Place) -> None:
    """A tampered feed gives an error, not a loop without end."""
    store = plain.open()
    for number in range(4):
        store.agent("1").set("k", number)
    storage = plain.storage()
    feed = rows_of(storage, b"F")
    put_row(storage, feed[0][0], feed[3][1])
    put_row(storage, feed[3][0], feed[0][1])
    with pytest.raises(StateIntegrityError, match="verify"):
        list(plain.open().feed())
    assert plain.open().verify().findings


def test_lanes_are_bounded(store: sync.Store) -> None:
    store.agent("1").set("k", 1)
    assert set(store.position()) <= {*range(LANES), *range(MARKS, STORE + 1)}


def test_a_deleted_scope_is_followed_to_its_end(place: Place) -> None:
    store = place.open()
    first = store.agent("1")
    first.set("a", 1)
    first.fork("side").set("a", 2)
    store.delete("agent:1")
    store.agent("1").set("b", 1)
    seen = [(str(e.scope), e.timeline, e.sequence, e.kinds) for e in place.open().feed()]
    assert sorted(seen) == [
        ("agent:1", "main", 1, ("set",)),
        ("agent:1", "main", 2, ("delete scope",)),
        ("agent:1", "main", 4, ("set",)),
        ("agent:1", "side", 1, ("fork",)),
        ("agent:1", "side", 2, ("set",)),
        ("agent:1", "side", 3, ("delete scope",)),
    ]


@pytest.mark.spec("L193")
def test_a_correlation_between_two_times(place: Place) -> None:
    store = place.open()
    with store.acting("planner", correlation="run-1"):
        for number in range(4):
            store.agent(str(number % 2)).set("k", number)
    store.agent("0").set("k", "another run")
    found = store.correlated("run-1")
    assert [(str(e.scope), e.sequence) for e in found] == [
        ("agent:0", 1),
        ("agent:1", 1),
        ("agent:0", 2),
        ("agent:1", 2),
    ]
    times = [entry.time for entry in found]
    assert store.correlated("run-1", since=times[1], until=times[2]) == found[1:3]
    assert store.correlated("run-1", until=times[0]) == found[:1]
    assert store.correlated("run-1", limit=1) == found[:1]
