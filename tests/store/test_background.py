"""Work in the background of a store: one thread at a time, whoever starts and stops it."""

from __future__ import annotations

import threading
import time

import pytest

from holdfast import sync
from holdfast.errors import StoreClosedError
from holdfast.store.names.background import Background


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
