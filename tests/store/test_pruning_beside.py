"""Two who prune one timeline at once."""

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
