"""Lost newest entries of an agent that has other timelines: nothing else goes with them."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import Place, confirm_all, put_row, rows_of

from holdfast import sync
from holdfast.errors import DamagedRecordError
from holdfast.recovery.lost_entries import Tails
from holdfast.store.upkeep import losses

NAMED = "which the feed names"


def drop(place: Place, count: int, timeline: str = "main") -> None:
    """Lose the newest entries of a timeline of the agent."""
    line = place.open().agent("7").on(timeline)._handle.history.points.line()
    place.close()
    storage = place.storage()
    here = [key for key, _ in rows_of(storage, b"E") if key.startswith(line.prefix)]
    for key in here[-count:]:
        put_row(storage, key, None)
    storage.close()


def numbers(entries: Any, timeline: str = "main") -> list[int]:
    """The numbers of the agent's entries, in the order in which they came."""
    mine = (one for one in entries if str(one.scope) == "agent:7")
    return [one.sequence for one in mine if one.timeline == timeline]


def value(number: int, size: int) -> str:
    """A value that is in the index itself, or in a row of its own."""
    return str(number % 10) * size


class Model:
    """What the agent's timelines hold, beside the store."""

    def __init__(self, place: Place, size: int) -> None:
        self.place, self.size = place, size
        self.states: list[dict[str, Any]] = [{}]
        self.side: dict[str, Any] | None = None
        self.written = 0

    def write(self, count: int) -> None:
        """Write to the main timeline."""
        with self.place.open() as store:
            for _ in range(count):
                self.written += 1
                name, what = f"k{self.written % 7}", value(self.written, self.size)
                store.agent("7").set(name, what)
                self.states.append({**self.states[-1], name: what})
        self.place.close()

    def fork(self, back: int, own: int) -> None:
        """Fork from an older state, and write to that."""
        with self.place.open() as store:
            state = store.agent("7")
            side = state.fork("side", at=state._handle.place()[2] - back)
            self.side = dict(self.states[-1 - back])
            for n in range(own):
                side.set(f"own{n}", value(n, self.size))
                self.side[f"own{n}"] = value(n, self.size)
        self.place.close()

    def lose(self, count: int) -> None:
        """Lose the newest entries that were written here, and recover."""
        drop(self.place, count)
        del self.states[-count:]
        store = self.place.open()
        assert NAMED in sync.recovery.Recovery(store).recover("agent:7", "corruption_detected").lost
        self.place.close()

    def check(self) -> None:
        """Compare all that can be asked for."""
        store = self.place.open()
        assert dict(store.agent("7").items()) == self.states[-1]
        if self.side is not None:
            assert dict(store.agent("7").on("side").items()) == self.side
        assert [str(one) for one in store.verify().findings] == []
        self.place.close()


@pytest.mark.parametrize("size", [1, 9000])
@pytest.mark.parametrize("again", [0, 2])
@pytest.mark.parametrize(("forked", "lost"), [(None, 9), (0, 9), (6, 9), (6, 3)])
def test_all_but_the_lost_entries_is_there(
    place: Place, size: int, forked: int | None, lost: int, again: int
) -> None:
    """Whatever was forked, lost, written and lost once more; and the feed gives it once."""
    model = Model(place, size)
    since = place.open().position()
    place.close()
    model.write(20)
    late = place.open().position()
    place.close()
    if forked is not None:
        model.fork(forked, own=forked // 3)
    model.lose(lost)
    model.check()
    model.write(12)
    model.check()
    if again:
        model.lose(again)
        model.write(4)
        model.check()
    store = place.open()
    head = store.agent("7")._handle.place()[2]
    for position, first in ((since, 1), (late, 21 - lost)):
        assert numbers(store.feed(position)) == list(range(first, head + 1))
        assert numbers(store.watch(since=position, timeout=0)) == list(range(first, head + 1))
    state = store.agent("7")
    confirm_all(state)
    state.prune(before=state.checkpoint("late"), keep=())
    place.close()
    model.check()
    store = place.open()
    store.delete("agent:7")
    store.erase("agent:7")
    store.agent("8").set("k", 1)
    assert store.verify().ok
    for position in ({}, late):
        assert numbers(store.feed(position)) == []
        assert [one.sequence for one in store.watch("agent:8", since=position, timeout=0)] == [1]


def test_a_watch_goes_on_when_what_it_follows_is_erased(place: Place) -> None:
    model = Model(place, 1)
    model.write(20)
    model.lose(5)
    store = place.open()
    watch = store.watch(since={}, timeout=0)
    assert numbers(watch)[:15] == list(range(1, 16))
    for n in range(10):
        store.agent("7").set("k", n)
    store.delete("agent:7")
    store.erase("agent:7")
    store.agent("8").set("k", 1)
    assert "agent:8" in [str(one.scope) for one in watch]


def test_what_led_to_lost_entries_is_erased_with_the_scope(place: Place) -> None:
    with place.open() as store:
        for n in range(20):
            with (
                store.acting("client", correlation=f"run {n}"),
                store.agent("7").change(id=f"change {n}") as change,
            ):
                change.set("k", n)
    drop(place, 5)
    store = place.open()
    sync.recovery.Recovery(store).recover("agent:7", "corruption_detected")
    store.erase("agent:7")
    assert [str(one) for one in store.verify().findings] == []


def test_a_fork_from_lost_entries_is_merged_with_all_that_it_has(place: Place) -> None:
    with place.open() as store:
        state = store.agent("7")
        for n in range(30):
            state.set(f"k{n}", n)
        state.fork("side", at=25).set("own", 1)
    drop(place, 10)
    store = place.open()
    sync.recovery.Recovery(store).recover("agent:7", "corruption_detected")
    state = store.agent("7")
    state.set("later", 1)
    state.merge("side")
    assert dict(state.items()) == {f"k{n}": n for n in range(25)} | {"own": 1, "later": 1}
    assert store.verify().ok


def test_values_that_are_lost_for_a_fork_too_are_named(place: Place) -> None:
    """They lay in the lost entries themselves: nothing can bring them back."""
    with place.open() as store:
        state = store.agent("7")
        for n in range(10):
            state.set(f"k{n}", str(n) * 200)
        state.fork("side")
    drop(place, 2)
    store = place.open()
    sync.recovery.Recovery(store).recover("agent:7", "corruption_detected")
    (finding,) = store.verify().findings
    assert "timeline 1" in finding.place
    assert "a value is not the one that the index names" in finding.message


def test_rows_that_a_fork_rests_on_are_missed_by_verify(place: Place) -> None:
    model = Model(place, 9000)
    model.write(20)
    model.fork(2, own=0)
    model.lose(9)
    model.check()
    storage = place.storage()
    values = [key for key, _ in rows_of(storage, b"V") if int.from_bytes(key[9:14], "big") == 17]
    assert values
    put_row(storage, values[0], None)
    storage.close()
    assert not place.open().verify().ok


def test_what_a_fork_lost_is_told_by_it(place: Place) -> None:
    with place.open() as store:
        state = store.agent("7")
        state.set("k", 1)
        side = state.fork("side")
        for n in range(10):
            side.set(f"f{n}", n)
    drop(place, 4, "side")
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    lost = f"entries 8 to 11, {NAMED}, of timeline side"
    assert Tails(store._handle).lost(state.scope) == {"side": [8, 11]}
    assert "damaged_state" in {one.kind for one in recovery.health("agent:7").concerns}
    assert recovery.plan("agent:7", "corruption_detected").lost == lost
    assert recovery.recover("agent:7", "corruption_detected").lost == lost
    assert store.verify().ok
    concerns = {one.kind for one in recovery.health("agent:7").concerns}
    assert "known_loss" in concerns
    assert "damaged_state" not in concerns
    side = store.agent("7").on("side")
    assert dict(side.items()) == {"k": 1, **{f"f{n}": n for n in range(6)}}
    assert any(one.name.startswith("losses of ") for one in side.checkpoints())
    side.set("f6", 6)
    assert store.verify().ok
    assert recovery.recover("agent:7", "corruption_detected").lost == "nothing"


@pytest.mark.parametrize("written", [256, 257, 258, 520])
@pytest.mark.parametrize("forked", [False, True])
def test_a_saved_index_of_lost_entries_is_not_taken_for_the_state(
    place: Place, written: int, forked: bool
) -> None:
    model = Model(place, 1)
    model.write(written)
    if forked:
        model.fork(1, own=1)
    drop(place, 2)
    del model.states[-2:]
    assert dict(place.open().agent("7").items()) == model.states[-1]
    store = place.open()
    assert NAMED in sync.recovery.Recovery(store).recover("agent:7", "agent_crash").lost
    place.close()
    model.check()
    model.write(300)
    model.check()


@pytest.mark.parametrize("beside", [0, 3])
@pytest.mark.usefixtures("unaware")
def test_a_loss_is_found_after_others_wrote_while_one_was_told(
    place: Place, beside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(place, 1)
    model.write(20)
    drop(place, 5)
    store, other = place.open(), place.open()
    find = losses.find_loss

    def found(*args: Any) -> Any:
        loss = find(*args)
        for n in range(beside):
            other.agent("7").set("beside", n)
        return loss

    handle = store.agent("7")._handle
    losses.make_room(handle, 20)
    with monkeypatch.context() as patch:
        patch.setattr(losses, "find_loss", found)
        assert losses.tell(handle, "a test") is not None
    assert store.verify().ok
    for _ in range(2):
        place.close()
        model.write(10)
        drop(place, 1)
        model.write(4)
        (finding,) = place.open().verify().findings
        assert "were dropped, and others have taken their numbers" in finding.message
        report = sync.recovery.Recovery(place.open()).recover("agent:7", "corruption_detected")
        assert NAMED in report.lost
        assert place.open().verify().ok


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.usefixtures("unaware")
def test_the_feed_gives_nothing_in_place_of_a_loss_that_nobody_told(
    place: Place, told: bool
) -> None:
    model = Model(place, 1)
    model.write(20)
    if told:
        model.lose(5)
        model.write(10)
    position = place.open().position()
    place.close()
    model.write(3)
    drop(place, 2)
    store = place.open()
    for n in range(4):
        store.agent("7").set("later", n)
    for since in ({}, position):
        for entries in (store.feed(since), store.watch("agent:7", since=since, timeout=0)):
            seen = []
            with pytest.raises(DamagedRecordError):
                for one in entries:
                    seen += numbers([one])
            assert seen == sorted(set(seen))
    sync.recovery.Recovery(store).recover("agent:7", "corruption_detected")
    head = store.agent("7")._handle.place()[2]
    assert numbers(store.feed({})) == list(range(1, head + 1))
