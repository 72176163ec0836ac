"""Swaps of cells that wait for each other go down in one commit, and each has its own answer."""

from __future__ import annotations

import threading
import time

import pytest

from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import Around, Counting
from holdfast.store.names.cells import Swaps, _Asked


def test_swaps_that_wait_go_down_together_and_one_that_fails_fails_alone() -> None:
    storage = Counting(open_storage("memory:"))
    swaps = Swaps(storage)
    assert swaps.run([(b"Cheld", None, b"other")])
    before = storage.calls["commit"]
    answers: dict[bytes, bool] = {}

    def swap(key: bytes) -> None:
        answers[key] = swaps.run([(key, None, b"mine")])

    def all_of(*keys: bytes) -> None:
        with swaps._lock:  # as if another were just being committed
            threads = [threading.Thread(target=swap, args=(key,)) for key in keys]
            for thread in threads:
                thread.start()
            while len(swaps._waiting) < len(keys):
                time.sleep(0.001)
        for thread in threads:
            thread.join(60)

    all_of(b"Ca", b"Cb", b"Cc")
    assert storage.calls["commit"] == before + 1
    all_of(b"Cd", b"Cheld", b"Ce")
    assert answers == dict.fromkeys((b"Ca", b"Cb", b"Cc", b"Cd", b"Ce"), True) | {b"Cheld": False}
    all_of(b"Cf", b"Cf")
    assert dict(storage.cells(b"Cf", b"Cg")) == {b"Cf": b"mine"}


class Stops(Around):
    """A storage one of whose commits of so many cells is interrupted: before it, or behind it."""

    when, cells_of_it = "", 0

    def commit(self, batch: Batch) -> None:
        when = ""
        if len(batch.cells) == self.cells_of_it:
            when, self.when = self.when, ""
        if when == "before":
            raise KeyboardInterrupt
        super().commit(batch)
        if when == "behind":
            raise KeyboardInterrupt


@pytest.mark.parametrize("alone", [False, True], ids=["together", "one by one"])
@pytest.mark.parametrize("when", ["before", "behind"])
def test_who_is_interrupted_ends_nothing_of_others(when: str, alone: bool) -> None:
    """They send theirs again; what was stored before that is known by its first cell."""
    storage = Stops(open_storage("memory:"))
    swaps = Swaps(storage)
    if alone:
        assert swaps.run([(b"Cx", None, b"another's")])
    others = [_Asked([(key, None, b"mine")]) for key in (b"Ca", b"Cb", b"Cx")]
    swaps._waiting.extend(others)  # as other threads do, which wait for the lock now
    storage.when, storage.cells_of_it = when, 1 if alone else 4
    with pytest.raises(KeyboardInterrupt):
        swaps.run([(b"Cme", None, b"mine")])
    assert list(swaps._waiting) == [one for one in others if not one.done]
    while swaps._waiting:
        swaps._commit_waiting()
    assert [one.error for one in others] == [None] * 3
    assert [one.answer for one in others] == [True, True, not alone]
