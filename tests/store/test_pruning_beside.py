"""Pruning beside other processes."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from store_kit import Between, Place

import holdfast
from holdfast import sync
from holdfast.errors import Conflict, PrunedError, Unavailable
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal import timeline
from holdfast.store.names import rowkinds
from holdfast.store.names.cells import cell_at
from holdfast.store.open import open_core
from holdfast.store.upkeep import prune
from holdfast.store.upkeep import prune as pruner
from holdfast.store.upkeep.prune import Marks, Pruner


def test_who_takes_over_knows_what_the_other_has_just_announced(tmp_path: Path) -> None:
    """Else it would drop the state that the newest anchor keeps, as that of none."""
    place = Place("memory", tmp_path, sealed=False)
    first = place.open().agent("a")
    for number in range(30):
        first.set(f"k{number % 4}", number)
    slow = Between(place.storage())
    core = open_core(place.url, storage=slow, **place.options())  # type: ignore[arg-type]
    second = sync.Store(StoreHandle(core)).agent("a")
    assert second.get("k1") == 29
    slow.before = lambda: first.prune(10)
    second.prune(20)
    assert second.at(20).get("k1") == 17
    assert place.open().verify().findings == []
    core.close()
    place.close()


def test_a_state_had_before_another_process_pruned_is_read_again(tmp_path: Path) -> None:
    """Its nodes lie where the other has dropped them, and a restore would lead there."""
    place = Place("memory", tmp_path, sealed=False)
    first, other = place.open().agent("a"), place.open().agent("a")
    for number in range(3):
        first.set(f"k{number}", "v" * 20)
    other.get("k0")
    safe = first.checkpoint("safe")
    first.set("k1", 2)
    first.restore(safe)
    for number in range(3):
        first.set("y", number)
    other.get("k0")
    other.prune(first.log(limit=1)[0].sequence - 1)
    first.restore(safe)
    assert place.open().verify().findings == []
    assert place.open().agent("a").get("k1") == "v" * 20
    place.close()


def test_a_list_of_checkpoints_goes_on_where_it_is_pruned_meanwhile(tmp_path: Path) -> None:
    """Who lists walks from one to the next: those that go before it comes there are left out."""
    place = Place("memory", tmp_path, sealed=False)
    here, state = place.open().agent("a"), place.open().agent("a")
    for number in range(6):
        state.set("k", number)
        state.checkpoint(str(number))
    found = here._handle.history.points.statements()
    assert next(found)[1] == 12
    (one,) = state.checkpoints(name="1")
    state.prune(11, keep=[one])
    assert [at for _, at, _, _ in found] == [one.sequence]
    assert [each.name for each in here.checkpoints()] == ["5", "1"]
    place.close()


def said(place: Place, state: sync.State) -> bytes | None:
    """What the cell of who prunes says of it; None if nobody does."""
    key = rowkinds.pruner(state._handle.history.points.line().ledger.number)
    for _, held in place.storage().cells(key, key + b"\0", limit=1):
        return held
    return None


def filled(place: Place) -> sync.State:
    state = place.open().agent("a")
    for number in range(40):
        state.set(f"k{number % 4}", f"{number} " * 40)
    return state


@pytest.mark.parametrize("commit", range(1, 5))
def test_who_prunes_beside_another_waits_for_its_turn(
    plain: Place, monkeypatch: pytest.MonkeyPatch, commit: int
) -> None:
    """Two that prune again and again would take the right to from each other, and none end."""
    monkeypatch.setattr(pruner, "TERM", 60)
    monkeypatch.setattr(prune, "SLICE", 8)
    other = filled(plain)
    between = Between(plain.storage())
    state = plain.open(storage=between).agent("a")
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(other.prune(35)))

    def meanwhile() -> None:
        thread.start()
        time.sleep(0.05)
        assert not done

    between.before, between.passing = meanwhile, commit
    assert state.prune(30).floor == 30  # and nobody took it away
    thread.join()
    assert done[0].floor == 35
    assert plain.open().verify().findings == []


def test_all_who_prune_all_the_time_come_to_their_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruner, "TERM", 60)
    filled(place)
    wrong: list[BaseException] = []

    def work() -> None:
        state = place.open().agent("a")
        try:
            for number in range(10):
                state.set("k0", number)
                with suppress(PrunedError):  # another has pruned beyond it meanwhile
                    state.prune(state._handle.place()[2] - 2, keep=[])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    report = place.open().verify()
    assert (report.findings, report.pruning) == ([], 0)


def test_who_prunes_shows_it_beside_long_work(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it finds out what stays, which commits nothing."""
    state, marking, seen = filled(plain), Marks.save, []
    ledger = state._handle.history.points.line().ledger

    def beat() -> int:
        held = cell_at(ledger.storage, rowkinds.pruner(ledger.number)) or b""
        return int.from_bytes(held[16:], "big")

    def save(self: Marks, save: Any) -> None:
        before = beat()
        marking(self, save)
        seen.append(beat() > before)

    monkeypatch.setattr(pruner, "BEAT", -1)
    monkeypatch.setattr(Marks, "save", save)
    state.prune(30)
    assert any(seen)


@pytest.mark.parametrize("error", [Unavailable("gone"), KeyboardInterrupt()])
def test_who_fails_says_so_and_nobody_waits(
    plain: Place, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(pruner, "TERM", 60)
    state, other = filled(plain), plain.open().agent("a")

    def fails(*_: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(prune._Pruning, "_slices", fails)
        with pytest.raises(type(error)):
            state.prune(30)
    assert said(plain, state) == pruner.NOBODY
    monkeypatch.setattr(pruner, "POLL", 1000)
    other.prune(30)
    assert said(plain, state) is None
    assert plain.open().verify().findings == []


def test_who_waits_can_be_cancelled(plain: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruner, "TERM", 60)
    state, waiting = filled(plain), threading.Event()
    Pruner(state._handle.history.points.line().ledger).take()  # and is killed
    free = Pruner._free
    monkeypatch.setattr(Pruner, "_free", lambda self: waiting.set() or free(self))

    async def work() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            waits = asyncio.create_task(store.agent("a").prune(30))
            await asyncio.to_thread(waiting.wait)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits

    asyncio.run(asyncio.wait_for(work(), 50))
    assert state.at(5).get("k0") is not None


class BeforeReads:
    """A storage before some of whose reads others do things: from one on, again after each few."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.others: Any = None
        self.passing = self.times = 0
        self.pause = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def _turn(self) -> None:
        self.passing -= 1
        if self.passing < 0 and self.times and self.others is not None:
            others, self.others = self.others, None
            self.times, self.passing = self.times - 1, self.pause
            others()
            self.others = others

    def get(self, keys: Any) -> Any:
        self._turn()
        return self._storage.get(keys)

    def scan(self, *args: Any, **more: Any) -> Any:
        self._turn()
        return self._storage.scan(*args, **more)


def _end_a_fork(store: sync.Store, state: sync.State) -> None:
    state.fork("trial").set("k1", "tried")
    sync.checkpoints.Retention(store).end(state, "trial")


BESIDE: dict[str, Any] = {
    "get": lambda _, state: state.get("alone"),
    "items": lambda _, state: state.items(),
    "append": lambda _, state: state.append("list", "y"),
    "end a fork": _end_a_fork,
    "dry run": lambda _, state: state.prune(state.checkpoint("here"), dry_run=True),
}


@pytest.mark.parametrize("times", [1, 3, 7])
@pytest.mark.parametrize("what", BESIDE)
def test_what_is_pruned_while_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, times: int
) -> None:
    """Before each single read in turn, another process changes everything and prunes the past."""
    monkeypatch.setattr(timeline, "DELTA_EVERY", 8)
    monkeypatch.setattr(pruner, "TERM", 0.01)
    for first in range(80):
        place = Place("memory", tmp_path, sealed=False)
        other = place.open().agent("a")
        numbers = iter(range(1000))

        def change(other: sync.State = other, numbers: Any = numbers) -> None:
            with other.change() as change:
                for number in range(60):
                    change.set(f"k{number}", f"{next(numbers)} " * 5)
            other.set("alone", f"{next(numbers)} " * 200)
            other.set("list", [f"{next(numbers)} " * 5] * 200)
            for number in range(9):
                other.set(f"k{number}", next(numbers))
            other.checkpoint("kept")
            other.prune("kept", keep=[])

        change()
        reads = BeforeReads(place.storage())
        core = open_core(place.url, storage=reads, **place.options())  # type: ignore[arg-type]
        store = sync.Store(StoreHandle(core))
        state = store.agent("a")
        state.get("alone")
        core.nodes.clear()
        core.atoms.clear()
        reads.others, reads.passing, reads.times = change, first, times
        reads.pause = 4 if times > 3 else 1
        with suppress(Conflict, PrunedError):  # of a point that was found and is kept no more
            BESIDE[what](store, state)
        reads.others = None
        assert place.open().verify().findings == []
        core.close()
        place.close()
        if reads.times == times:
            break  # it has no more reads


def test_the_log_is_not_empty_while_others_prune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write and prune between the moment at which its end is found and that of its floor."""
    place = Place("memory", tmp_path, sealed=False)
    mine, theirs = place.open().agent("a"), place.open().agent("a")
    for number in range(5):
        theirs.set("k", number)
    floor = timeline.Timeline.floor.fget
    mine.get("k")

    def late(self: timeline.Timeline) -> Any:
        patch.undo()
        for number in range(5):
            theirs.set("k", number)
        theirs.prune(9)
        return floor(self)

    with monkeypatch.context() as patch:
        patch.setattr(timeline.Timeline, "floor", property(late))
        assert [one.sequence for one in mine.log(limit=1)] == [11]
