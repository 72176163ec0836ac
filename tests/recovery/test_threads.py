"""Threads of recoveries are used again, and never stand in anybody's way."""

from __future__ import annotations

import os
import queue
import threading
import time

import pytest

from holdfast.recovery import step_threads
from holdfast.recovery.step_threads import Threads

SECONDS = 60
"""After which something hangs."""


@pytest.fixture
def lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that stay for so long that a machine which is held up sees none of them end."""
    monkeypatch.setattr(step_threads, "LINGER", SECONDS)


@pytest.mark.usefixtures("lingering")
def test_one_that_is_done_is_used_again_and_one_that_is_stuck_is_not() -> None:
    pool, found, stuck = Threads(), queue.SimpleQueue[int](), threading.Event()
    pool.run(lambda: found.put(threading.get_ident()))
    first = found.get(timeout=SECONDS)
    while not pool._idle:
        time.sleep(0.001)
    pool.run(lambda: (found.put(threading.get_ident()), stuck.wait(SECONDS)))
    pool.run(lambda: found.put(threading.get_ident()))
    again, other = found.get(timeout=SECONDS), found.get(timeout=SECONDS)
    assert {first} < {again, other}
    stuck.set()


def test_one_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_threads, "LINGER", 0.01)
    pool, found = Threads(), queue.SimpleQueue[threading.Thread]()
    used: set[threading.Thread] = set()
    for _ in range(50):  # also where work comes just when it is about to end
        pool.run(lambda: found.put(threading.current_thread()))
        used.add(found.get(timeout=SECONDS))
        time.sleep(0.01)
    for thread in used:  # one that was held up behind its work ends after those that came later
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert pool._idle == []


@pytest.mark.usefixtures("lingering")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_begins_with_none() -> None:
    pool, done = Threads(), threading.Event()
    pool.run(done.set)
    assert done.wait(SECONDS)
    while not pool._idle:
        time.sleep(0.001)
    if (child := os.fork()) == 0:
        ran = threading.Event()
        pool.run(ran.set)
        os._exit(0 if ran.wait(SECONDS) else 1)
    assert os.waitpid(child, 0)[1] == 0
