"""Pruning beside other processes."""

from __future__ import annotations

from pathlib import Path

from store_kit import Between, Place

from holdfast import sync
from holdfast.store.handles import StoreHandle
from holdfast.store.opening import open_core


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
