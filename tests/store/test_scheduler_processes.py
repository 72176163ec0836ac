"""Schedules between processes: one runs, one is killed, one is stopped, several want to."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_kit import Place, stop_process

from holdfast import sync
from holdfast.checkpoints.scheduler import LEASE as LEASED

LEASE = 0.5

RUNNER = """
import sys
from holdfast import sync
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
with sync.open(url, key=key, durability="normal", signer=signer) as store:
    with sync.checkpoints.Scheduler(store, lease=%(lease)r):
        print("started", flush=True)
        sys.stdin.readline()
"""


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place("sqlite", tmp_path, sealed=request.param)
    yield made
    made.close()


@pytest.fixture
def start(shared: Place) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def begin(lease: float = LEASE) -> subprocess.Popen[str]:
        program = RUNNER % {"lease": lease}
        words = [shared.url, shared.key or "", shared.signer]
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            env=shared.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "started"
        return process

    yield begin
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def wait_for(store: sync.Store, done: Callable[[], bool]) -> None:
    """Write to the agent until something has happened: a slot in which nobody did makes none."""
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it did not happen"
        store.agent("1").set("k", time.monotonic())
        time.sleep(0.02)


def slots(store: sync.Store) -> list[int]:
    """Of the checkpoints that were made, the oldest first."""
    found = store.agent("1").checkpoints(type="scheduled", limit=None)
    return [one.metadata["slot"] for one in found][::-1]


def runner(store: sync.Store) -> int:
    """The process that runs the schedules."""
    (owner,) = [one.owner for one in store.leases() if one.name == LEASED] or [None]
    return int(owner.rpartition("/")[2]) if owner else 0


def check(store: sync.Store) -> None:
    """Every slot once, in order, none left out."""
    numbers = slots(store)
    assert numbers == list(range(1, len(numbers) + 1))
    assert store.verify().findings == []


@pytest.fixture
def store(shared: Place) -> sync.Store:
    made = shared.open()
    made.agent("1").set("k", 0)
    sync.checkpoints.Scheduler(made).every(0.1, "agent:1")
    return made


def test_several_processes_run_each_slot_once(
    store: sync.Store, start: Callable[[], subprocess.Popen[str]]
) -> None:
    processes = [start() for _ in range(3)]
    wait_for(store, lambda: len(slots(store)) >= 10)
    for process in processes:
        process.communicate("end\n", timeout=60)
        assert process.returncode == 0
    check(store)


def test_after_a_kill_another_takes_over(
    store: sync.Store, start: Callable[[], subprocess.Popen[str]]
) -> None:
    running = {process.pid: process for process in (start() for _ in range(3))}
    for _ in range(2):
        wait_for(store, lambda: runner(store) in running)
        killed = running.pop(runner(store))
        killed.kill()
        killed.wait()
    count = len(slots(store))
    wait_for(store, lambda: len(slots(store)) > count and runner(store) in running)
    running[runner(store)].communicate("end\n", timeout=60)
    check(store)


def test_a_runner_that_was_stopped_does_nothing_twice(
    shared: Place, store: sync.Store, start: Callable[..., subprocess.Popen[str]]
) -> None:
    first = start()
    wait_for(store, lambda: len(slots(store)) >= 3)
    second = start(60.0)  # the first gets it no more because this one was slow
    stop_process(first.pid)
    while not may_write(shared):  # stopped in the middle of a commit, which keeps all others out
        first.send_signal(signal.SIGCONT)
        time.sleep(0.01)
        stop_process(first.pid)
    wait_for(store, lambda: runner(store) == second.pid)
    first.send_signal(signal.SIGCONT)
    count = len(slots(store))
    wait_for(store, lambda: len(slots(store)) >= count + 5)
    assert runner(store) == second.pid
    for process in (first, second):
        process.communicate("end\n", timeout=60)
        assert process.returncode == 0
    check(store)


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


def _seen(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


WRITER = """
import sys, time
from holdfast.checkpoints import Condition, Policy, PolicyFrequency
from holdfast import sync
store = sync.open(sys.argv[1], key=sys.argv[2] or None, durability="normal", signer=sys.argv[3])
policies = sync.checkpoints.Policies(store, defaults=())
since = Condition("time_interval", "time_since_last_checkpoint", "greater_than", 200)
often = Policy("often", (since,), frequency=PolicyFrequency(200), priority="critical")
policies.set("agent:1", often)
policies.close()  # nothing fires here
store.agent("1").set("task", 1)
print("written", flush=True)
time.sleep(60)
"""


def test_a_policy_of_a_process_that_was_killed(
    shared: Place, start: Callable[[], subprocess.Popen[str]]
) -> None:
    """Whichever of the processes that are left runs the schedules makes its checkpoint, once."""
    words = [shared.url, shared.key or "", shared.signer]
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, *words],
        env=shared.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline().strip() == "written"
    writer.kill()
    writer.communicate()
    store = shared.open()
    state = store.agent("1")
    assert state.checkpoints() == []
    for _ in range(2):
        start()
    _seen(lambda: bool(state.checkpoints()))
    store.shared.set("other", 1)
    for _ in range(3):
        time.sleep(0.2)
    (made,) = state.checkpoints()
    assert (made.metadata["policy"], made.metadata["trigger"]) == ("often", "time_interval")
    state.set("task", 2)
    _seen(lambda: len(state.checkpoints()) == 2)
    assert store.verify().findings == []
