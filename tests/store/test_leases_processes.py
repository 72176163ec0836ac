"""Leases between processes: one that is stopped, one that is killed, several that want one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_kit import Hands, Place, stop_process

from holdfast import sync
from holdfast.errors import LeaseHeldError

DURATION = 0.5

HOLDER = """
import sys
from holdfast import sync
from holdfast.errors import LeaseLostError
url, key = sys.argv[1], sys.argv[2] or None
with sync.open(url, key=key, durability="normal", signer=sys.argv[3]) as store:
    state = store.agent("1")
    with store.lease("job", duration=%(duration)r, owner="holder") as lease:
        number = 0
        print("held", flush=True)
        try:
            while True:
                state.append("log", ["holder", lease.term, number])
                number += 1
        except LeaseLostError:
            print("lost", lease.held, number, flush=True)
    sys.stdin.readline()
"""
WORKER = """
import sys
from holdfast import sync
url, key = sys.argv[1], sys.argv[2] or None
with sync.open(url, key=key, durability="normal", signer=sys.argv[3]) as store:
    state = store.agent("1")
    for _ in range(%(rounds)d):
        with store.lease("counter", duration=60) as lease:
            count = state.get("count", 0)   # read, then write without an expectation:
            state.set("count", count + 1)   # only the lease keeps others from doing so meanwhile
            state.append("terms", lease.term)
"""


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place("sqlite", tmp_path, sealed=request.param)
    yield made
    made.close()


def start(place: Place, program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, place.url, place.key or "", place.signer],
        env=place.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_holder_that_was_stopped_cannot_write_afterwards(shared: Place) -> None:
    store = shared.open()
    state = store.agent("1")
    state.set("log", [])
    holder = start(shared, HOLDER % {"duration": DURATION})
    try:
        assert line_of(holder) == "held"
        while state.length("log") < 20:
            time.sleep(0.01)
        stop_process(holder.pid)
        while not may_write(
            shared
        ):  # stopped in the middle of a commit, which keeps all others out
            holder.send_signal(signal.SIGCONT)
            time.sleep(0.01)
            stop_process(holder.pid)
        begun = time.monotonic()
        with store.lease("job", duration=30) as lease:
            assert time.monotonic() - begun >= DURATION
            assert lease.term == 2
            state.append("log", ["taker", 2, 0])
            holder.send_signal(signal.SIGCONT)
            said = line_of(holder).split()
            assert said[:2] == ["lost", "False"]
            state.append("log", ["taker", 2, 1])
            log = state.get("log")
            assert [row[:2] for row in log[-2:]] == [["taker", 2]] * 2
            assert log[:-2] == [["holder", 1, n] for n in range(int(said[2]))]
    finally:
        holder.kill()
        holder.communicate()
    assert store.verify().findings == []


def may_write(place: Place) -> bool:
    """Whether the process was stopped between two commits."""
    import apsw

    connection = apsw.Connection(str(place.path))
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True


def stays_held(store: sync.Store, hands: Hands) -> None:
    """For longer than it lasts without a beat, by a clock that goes on as the holder has beaten:
    one that is kept from running for a second rightly loses it."""
    for beats in range(5):
        end = time.monotonic() + 60
        while store.leases()[0].beats <= beats:
            assert time.monotonic() < end
            time.sleep(0.01)
        with pytest.raises(LeaseHeldError), store.lease("job", wait=0):
            pass
        hands.move(0.8 * DURATION)


def test_after_the_end_of_a_holder_another_gets_it_in_time(shared: Place) -> None:
    store, hands = shared.open(), Hands()
    store.agent("1").set("log", [])
    holder = start(shared, HOLDER % {"duration": DURATION})
    try:
        assert line_of(holder) == "held"
        stays_held(shared.open(clock=hands.clock), hands)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with store.lease("job", wait=60) as lease:
            assert lease.term == 2
            store.agent("1").append("log", ["taker", 2, 0])
    finally:
        holder.kill()
        holder.communicate()
    log = store.agent("1").get("log")
    assert log == [*(["holder", 1, n] for n in range(len(log) - 1)), ["taker", 2, 0]]
    assert store.verify().findings == []


def test_several_processes_take_turns(shared: Place) -> None:
    rounds, workers = 25, 4
    store = shared.open()
    store.agent("1").set("count", 0)
    running = [start(shared, WORKER % {"rounds": rounds}) for _ in range(workers)]
    for worker in running:
        worker.communicate(timeout=120)
    assert [worker.returncode for worker in running] == [0] * workers
    assert store.agent("1").get("count") == rounds * workers
    assert store.agent("1").get("terms") == list(range(1, rounds * workers + 1))
    assert store.verify().findings == []
