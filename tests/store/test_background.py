"""Work in the background of a store: one thread at a time, whoever starts and stops it."""

from __future__ import annotations

import threading
import time

import pytest

from holdfast import sync
from holdfast.errors import StoreClosedError
from holdfast.store.names.background import Background, Behind


def named(name: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == name]


def test_a_turn_that_starts_its_work_anew_ends_its_own_thread() -> None:
    with sync.open("memory:") as store:
        turns: list[threading.Thread] = []
        later = threading.Event()

        def turn() -> None:
            turns.append(threading.current_thread())
            if len(turns) == 1:
                background.stop()
                background.start()
            elif len(set(turns)) > 1:
                later.set()

        background = Background(store._core, "holdfast-test", 0.001, turn)
        background.start()
        assert later.wait(60)
        first = turns[0]
        first.join(60)
        assert not first.is_alive()
        assert len(named("holdfast-test")) == 1
        background.stop()
        assert named("holdfast-test") == []
        done = len(turns)
        background.start()
        background.start()
        end = time.monotonic() + 60
        while len(turns) == done and time.monotonic() < end:
            time.sleep(0.001)
        assert len(named("holdfast-test")) == 1
    assert named("holdfast-test") == []
    with pytest.raises(StoreClosedError):
        background.start()


def test_what_waits_is_done_in_its_order_by_the_batch_and_what_failed_is_done_again() -> None:
    with sync.open("memory:") as store:
        done: list[list[int]] = []
        failing = [True]

        def do(some: list[int]) -> None:
            if failing and 4 in some:
                failing.clear()
                raise OSError("not now")
            if some[0] == 0:
                some.pop()  # is for the next batch
            done.append(list(some))

        behind: Behind[int] = Behind(store._core, "holdfast-test", 600.0, do, batch=3, most=7)
        assert [behind.put(n) for n in range(8)] == [True] * 7 + [False]
        assert (len(behind), behind.full, behind.dropped) == (7, True, 1)
        with pytest.raises(OSError, match="not now"):
            behind.flush()
        assert (done, len(behind)) == ([[0, 1]], 5)
        assert behind.put(7)
        behind.start()
        behind.stop()
        assert done == [[0, 1], [2, 3, 4], [5, 6, 7]]
        assert not behind.full
