"""Swaps of cells that wait for each other go down in one commit, and each has its own answer."""

from __future__ import annotations

import threading
import time

from holdfast.storage import open_storage
from holdfast.storage.wrappers import Counting
from holdfast.store.swapping import Swaps


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
