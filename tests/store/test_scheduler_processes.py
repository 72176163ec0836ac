"""Schedules between processes: one runs, one is killed, one is stopped, several want to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_kit import Place, stop_process

from holdfast import sync

LEASE = 0.5

# Each run of the job is noted with the schedule's own id for the slot, and without it: the list
# that is written under the id tells what was done, the other list how often it was tried.
RUNNER = """
import sys, time
from holdfast import sync
url, key, signer, me = sys.argv[1], sys.argv[2] or None, sys.argv[3], sys.argv[4]
with sync.open(url, key=key, durability="normal", signer=signer) as store:
    def work(run):
        with store.shared.change(id=run.id) as change:
            change.append("slots", [run.slot, me])
        store.agent("1").append("log", [run.slot, me])
    with sync.checkpoints.Scheduler(store, jobs={"work": work}, lease=%(lease)r):
        print("started", flush=True)
        sys.stdin.readline()
"""


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place("sqlite", tmp_path, sealed=request.param)
    yield made
    made.close()


@pytest.fixture
def start(shared: Place) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def begin(me: str, lease: float = LEASE) -> subprocess.Popen[str]:
        program = RUNNER % {"lease": lease}
        words = [shared.url, shared.key or "", shared.signer, me]
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


def wait_for(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def slots(store: sync.Store) -> list[list[object]]:
    return store.shared.get("slots", [])  # type: ignore[no-any-return]


def check(store: sync.Store) -> None:
    """Every slot once, in order, none left out; nothing else written by jobs or for checkpoints."""
    numbers = [slot for slot, _ in slots(store)]
    assert numbers == list(range(1, len(numbers) + 1))
    tried = [slot for slot, _ in store.agent("1").get("log", [])]
    assert tried == sorted(tried)
    found = [one.metadata["slot"] for one in store.agent("1").checkpoints(type="scheduled")]
    assert len(found) == len(set(found))
    assert store.verify().findings == []


def test_several_processes_run_each_slot_once(
    shared: Place, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    store = shared.open()
    sync.checkpoints.Scheduler(store).every(0.1, job="work")
    sync.checkpoints.Scheduler(store).every(0.1, "agent:1")
    processes = [start(str(number)) for number in range(3)]
    wait_for(lambda: len(slots(store)) >= 10)
    for process in processes:
        process.communicate("end\n", timeout=60)
        assert process.returncode == 0
    check(store)


def test_after_a_kill_another_takes_over(
    shared: Place, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    store = shared.open()
    sync.checkpoints.Scheduler(store).every(0.1, job="work")
    sync.checkpoints.Scheduler(store).every(0.1, "agent:1")
    running = {name: start(name) for name in "abc"}
    killed: set[object] = set()
    for _ in range(2):
        wait_for(lambda: bool(slots(store)) and slots(store)[-1][1] not in killed)
        runner = slots(store)[-1][1]
        killed.add(runner)
        os.kill(running[str(runner)].pid, signal.SIGKILL)
        running[str(runner)].wait()
    wait_for(lambda: slots(store)[-1][1] not in killed)
    running[str(slots(store)[-1][1])].communicate("end\n", timeout=60)
    check(store)


def test_a_runner_that_was_stopped_does_nothing_twice(
    shared: Place, start: Callable[..., subprocess.Popen[str]]
) -> None:
    store = shared.open()
    sync.checkpoints.Scheduler(store).every(0.1, job="work")
    sync.checkpoints.Scheduler(store).every(0.1, "agent:1")
    first = start("first")
    wait_for(lambda: len(slots(store)) >= 3)
    second = start("second", 60.0)  # the first gets it no more because this one was slow
    stop_process(first.pid)
    while not may_write(shared):  # stopped in the middle of a commit, which keeps all others out
        first.send_signal(signal.SIGCONT)
        time.sleep(0.01)
        stop_process(first.pid)
    wait_for(lambda: slots(store)[-1][1] == "second")
    first.send_signal(signal.SIGCONT)
    count = len(slots(store))
    wait_for(lambda: len(slots(store)) >= count + 5)
    assert {name for _, name in slots(store)[count:]} == {"second"}
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
    shared: Place, start: Callable[[str], subprocess.Popen[str]]
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
    for name in ("one", "two"):
        start(name)
    wait_for(lambda: bool(state.checkpoints()))
    store.shared.set("other", 1)
    for _ in range(3):
        time.sleep(0.2)
    (made,) = state.checkpoints()
    assert (made.metadata["policy"], made.metadata["trigger"]) == ("often", "time_interval")
    state.set("task", 2)
    wait_for(lambda: len(state.checkpoints()) == 2)
    assert store.verify().findings == []
