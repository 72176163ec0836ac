"""Swaps of cells that wait for each other go down in one commit, and each has its own answer."""

from __future__ import annotations

import threading
import time

import pytest

from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import Around, Counting
from holdfast.store.names.cells import Swaps


class Stops(Around):
    """A storage one of whose commits of several cells is interrupted: before it, or behind it."""

    when = ""

    def commit(self, batch: Batch) -> None:
        when, self.when = (self.when, "") if len(batch.cells) > 1 else ("", self.when)
        if when == "before":
            raise KeyboardInterrupt
        super().commit(batch)
        if when == "behind":
            raise KeyboardInterrupt


def together(swaps: Swaps, *keys: bytes) -> dict[bytes, bool | str]:
    """What becomes of swaps that wait while another is committed."""
    answers: dict[bytes, bool | str] = {}

    def swap(key: bytes, at: int) -> None:
        try:
            answers[key] = swaps.run([(key, None, b"%d" % at)])
        except KeyboardInterrupt:
            answers[key] = "interrupted"

    with swaps._lock:
        threads = [threading.Thread(target=swap, args=(key, at)) for at, key in enumerate(keys)]
        for thread in threads:
            thread.start()
        while len(swaps._waiting) < len(keys):
            time.sleep(0.001)
    for thread in threads:
        thread.join(60)
    assert not swaps._waiting
    return answers


def test_swaps_that_wait_go_down_together_and_one_that_fails_fails_alone() -> None:
    storage = Counting(open_storage("memory:"))
    swaps = Swaps(storage)
    assert swaps.run([(b"Cheld", None, b"another's")])
    before = storage.calls["commit"]
    assert together(swaps, b"Ca", b"Cb", b"Cc") == dict.fromkeys((b"Ca", b"Cb", b"Cc"), True)
    assert storage.calls["commit"] == before + 1
    told = together(swaps, b"Cd", b"Cheld", b"Ce")
    assert told == {b"Cd": True, b"Cheld": False, b"Ce": True}
    together(swaps, b"Cf", b"Cf")  # one of them was first
    assert len(dict(storage.cells(b"Cf", b"Cg"))) == 1


@pytest.mark.parametrize("when", ["before", "behind"])
def test_who_is_interrupted_ends_nothing_of_others(when: str) -> None:
    """They send theirs again; what was stored before that is known by its first cell."""
    storage = Stops(open_storage("memory:"))
    swaps = Swaps(storage)
    storage.when = when
    told = together(swaps, b"Ca", b"Cb", b"Cc")
    assert sorted(map(str, told.values())) == ["True", "True", "interrupted"]
