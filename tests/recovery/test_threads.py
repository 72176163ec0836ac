"""Threads of recoveries are used again, and never stand in anybody's way."""

from __future__ import annotations

import os
import queue
import threading
import time

import pytest

from holdfast.recovery import threads
from holdfast.recovery.threads import Threads


def test_one_that_is_done_is_used_again_and_one_that_is_stuck_is_not() -> None:
    pool, found, stuck = Threads(), queue.SimpleQueue[int](), threading.Event()
    pool.run(lambda: found.put(threading.get_ident()))
    first = found.get(timeout=5)
    while not pool._idle:
        time.sleep(0.001)
    pool.run(lambda: (found.put(threading.get_ident()), stuck.wait(5)))
    pool.run(lambda: found.put(threading.get_ident()))
    again, other = found.get(timeout=5), found.get(timeout=5)
    assert {first} < {again, other}
    stuck.set()


def test_one_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LINGER", 0.01)
    pool, found = Threads(), queue.SimpleQueue[threading.Thread]()
    for _ in range(50):  # also where work comes just when it is about to end
        pool.run(lambda: found.put(threading.current_thread()))
        found.get(timeout=5)
        time.sleep(0.01)
    pool.run(lambda: found.put(threading.current_thread()))
    thread = found.get(timeout=5)
    thread.join(5)
    assert not thread.is_alive()
    assert pool._idle == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_begins_with_none() -> None:
    pool, done = Threads(), threading.Event()
    pool.run(done.set)
    done.wait(5)
    while not pool._idle:
        time.sleep(0.001)
    if (child := os.fork()) == 0:
        ran = threading.Event()
        pool.run(ran.set)
        os._exit(0 if ran.wait(5) else 1)
    assert os.waitpid(child, 0)[1] == 0
