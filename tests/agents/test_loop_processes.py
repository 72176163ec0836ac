"""The loop in processes that are ended, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.agents import StepResult
from holdfast.errors import HoldfastError, MissingError
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core

AGENT = """
class Counting(Base):
    persistent = ("count", "answered")
    def __init__(self):
        self.count, self.answered = 0, []
    def on_letter(self, mail):
        self.answered.append(mail.content)
        mail.change.append("answers", mail.content)
    def step(self):
        time.sleep(0.001)
        self.count += 1
        return StepResult(f"count {self.count}", progress=self.count)
"""
BLOCKING = (
    """
import sys, time
from holdfast.agents import StepResult
from holdfast import sync
Base = sync.agents.Agent
"""
    + AGENT
    + """
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
with sync.open(url, key=key, durability="normal", signer=signer) as store:
    result = sync.agents.run(lambda state: Counting(), store.agent("7"), lease=0.5)
    print(result.outcome, flush=True)
"""
)
ASYNC = (
    """
import asyncio, sys, time
import holdfast
from holdfast.agents import StepResult
Base = holdfast.agents.Agent
"""
    + AGENT
    + """
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
async def main():
    async with holdfast.open(url, key=key, durability="normal", signer=signer) as store:
        result = await holdfast.agents.run(lambda state: Counting(), store.agent("7"), lease=0.5)
        print(result.outcome, flush=True)
asyncio.run(main())
"""
)


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place("sqlite", tmp_path, sealed=request.param)
    yield found
    found.close()


@pytest.fixture
def start(shared: Place) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def begin(program: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", program, shared.url, shared.key or "", shared.signer],
                env=shared.environment(),
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def wait_for(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def stored(state: sync.State, field: str) -> object:
    return state.get(f"$agent/attached/{field}")


@pytest.mark.spec("S72")
@pytest.mark.parametrize("program", [BLOCKING, ASYNC], ids=["blocking", "async"])
def test_sigterm_ends_it_cleanly(
    shared: Place, start: Callable[[str], subprocess.Popen[str]], program: str
) -> None:
    state = shared.open().agent("7")
    process = start(program)
    wait_for(lambda: (stored(state, "count") or 0) >= 5)  # type: ignore[operator]
    os.kill(process.pid, signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (0, "stopped")
    [last] = state.checkpoints(limit=1)
    assert (last.type, last.metadata["trigger"]) == ("automatic", "shutdown")
    assert state.at(last).get("$agent/attached/count") == stored(state, "count")
    assert state.get("$agent/execution_state")["status"] == "stopped"


WAITING = """
import asyncio, signal, sys, threading, time
import holdfast
from holdfast.checkpoints import ShutdownCheckpoints
from holdfast.agents import StepResult
from holdfast import sync
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
def later():
    time.sleep(1)
    print("waits", flush=True)
    time.sleep(3600)
class Idle:
    def step(self):
        threading.Thread(target=later, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # it comes to another thread
        return StepResult(idle=True)
"""
AT_WORK = """
import asyncio, signal, sys, time
import holdfast
from holdfast.checkpoints import ShutdownCheckpoints
from holdfast.agents import StepResult
from holdfast import sync
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
class Idle:
    def step(self):
        print("waits", flush=True)
        while not loop._turns.stopped:
            time.sleep(0.01)
        time.sleep(1)  # for what others would do
        return StepResult(idle=True)
"""
RUNS = {
    "blocking": """
with sync.open(url, key=key, signer=signer) as store, ShutdownCheckpoints(store):
    loop = sync.agents.Loop(store.agent("7"), Idle(), idle=3600.0)
    result = loop.run()
print(result.outcome, flush=True)
""",
    "async": """
async def main():
    global loop
    async with holdfast.open(url, key=key, signer=signer) as store, ShutdownCheckpoints(store):
        loop = holdfast.agents.Loop(store.agent("7"), Idle(), idle=3600.0)
        result = await loop.run()
    print(result.outcome, flush=True)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("face", RUNS)
@pytest.mark.parametrize("program", [WAITING, AT_WORK], ids=["waiting", "at work"])
def test_sigterm_is_heard_while_it_waits_and_beside_checkpoints_of_a_shutdown(
    shared: Place, start: Callable[[str], subprocess.Popen[str]], program: str, face: str
) -> None:
    """Also one that comes just before it begins to wait, which a test cannot time."""
    process = start(program + RUNS[face])
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    os.kill(process.pid, signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (0, "stopped")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_does_on_a_signal_what_it_did_before(plain: Place) -> None:
    """A loop that is told to stop there is nobody's."""
    ends: list[int] = []

    class Forking:
        def step(self) -> StepResult:
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # it does not stay whatever goes wrong
                signal.pause()
                os._exit(0)
            os.kill(child, signal.SIGUSR1)  # also before it has done anything
            ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            return StepResult("forked", done=len(ends) == 5)

    with plain.open() as store:
        sync.agents.run(Forking(), store.agent("1"), signals=[signal.SIGUSR1])
    assert ends == [-signal.SIGUSR1] * 5


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_that_runs_no_python_ends_at_once(plain: Place) -> None:
    """Catches: a worker in a long call of an extension that cannot be told to end."""
    ends: list[int] = []

    class Forking:
        def step(self) -> StepResult:
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                sum(range(10**12))
                os._exit(0)
            time.sleep(0.2)
            os.kill(child, signal.SIGUSR1)
            ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            return StepResult("forked", done=True)

    with plain.open() as store, sync.checkpoints.ShutdownCheckpoints(store):
        sync.agents.run(Forking(), store.agent("1"), signals=[signal.SIGUSR1])
    assert ends == [-signal.SIGUSR1]


def test_a_second_signal_does_what_it_did_before(plain: Place) -> None:
    came: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: came.append("before"))

    class Signalled:
        def step(self) -> StepResult:
            for _ in range(3):
                signal.raise_signal(signal.SIGUSR1)
                came.append("step")
            return StepResult("x")

    try:
        own = signal.getsignal(signal.SIGUSR1)
        state = plain.open().agent("7")
        for _ in range(2):
            result = sync.agents.run(Signalled(), state, signals=[signal.SIGUSR1])
            assert (result.outcome, result.cycles) == ("stopped", 1)
            assert signal.getsignal(signal.SIGUSR1) == own
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert came == ["step", "before", "step", "before", "step"] * 2


def test_killed_again_and_again_it_loses_and_repeats_nothing(
    shared: Place, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    store = shared.open()
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state)
    sent = 0
    for _ in range(3):
        process = start(BLOCKING)
        before = mailbox.status().processed
        end = time.monotonic() + 60
        while mailbox.status().processed < before + 10 and time.monotonic() < end:
            mailbox.send(sent)
            sent += 1
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    last = start(BLOCKING)
    wait_for(lambda: mailbox.status().waiting == 0)
    os.kill(last.pid, signal.SIGTERM)
    assert last.communicate(timeout=60)[0].strip() == "stopped"
    assert sent >= 30
    assert state.get("answers") == list(range(sent)) == stored(state, "answered")
    count = sync.agents.Drift(state).status().cycles
    kept = stored(state, "count")
    assert isinstance(kept, int)
    assert count <= kept <= count + 4, "at most the last cycle of each run is not noted"
    assert state.get("$agent/execution_state")["recoveries"] == 3
    assert store.verify().findings == []


@pytest.mark.skipif(sys.platform != "linux", reason="nobody is known to be gone here")
def test_killed_it_goes_on_at_once_on_the_same_machine(
    shared: Place, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Its lease would have lasted an hour; that its process is no more can be seen."""
    store = shared.open()
    state = store.agent("7")
    agents = sync.agents.Agents(store, {})
    agents.register("7", kind="counting")
    process = start(BLOCKING.replace("lease=0.5", "lease=3600"))
    wait_for(lambda: (stored(state, "count") or 0) >= 3)  # type: ignore[operator]
    assert [one.owner is not None for one in agents.list()] == [True]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert [one.owner for one in agents.list()] == [None], "nobody runs it"
    before = stored(state, "count")
    result = sync.agents.run(lambda state: Counting(), state)
    assert (result.outcome, stored(state, "count")) == ("done", before + 1)  # type: ignore[operator]
    assert [one.term for one in store.leases() if one.name == "agent/7"] == [2]


class Counting(sync.agents.Agent):
    """Answers letters and counts to three."""

    persistent = ("count", "answered")

    def __init__(self) -> None:
        self.count = 0
        self.answered: list[int] = []

    def on_letter(self, mail: sync.agents.Mail) -> None:
        self.answered.append(mail.content)
        mail.change.append("answers", mail.content)

    def step(self) -> StepResult:
        self.count += 1
        return StepResult(f"count {self.count}", progress=self.count, done=self.count >= 3)


def test_a_crash_at_any_storage_call_is_gone_over(plain: Place) -> None:
    """From the nth call on nothing works any more; then another process goes on.

    Every third time a restart was asked for before, so that this is cut short as well.
    """
    nth = 0
    store = plain.open()
    options = {"backoff": 0.001, "max_errors": 2, "signals": ()}
    while True:
        nth += 1
        name = f"crash-{nth}"
        state = store.agent(name)
        for number in range(2):
            sync.agents.Mailbox(state).send(number)
        if nth % 3 == 0:
            state.set("log", "before")
            safe = state.checkpoint()
            state.set("log", "after")
            sync.agents.Loop(state, Counting()).restart(safe, clean=True)
        faulty = Faulty(plain.storage(), Fault("*", nth, "ambiguous-applied", onward=True))
        with suppress(HoldfastError):
            core = open_core(plain.url, storage=faulty, **plain.options())
            broken = sync.Store(StoreHandle(core)).agent(name)
            sync.agents.run(lambda state: Counting(), broken, **options)
        with suppress(MissingError):
            store.break_lease(f"agent/{name}")
        result = sync.agents.run(lambda state: Counting(), state, **options)
        assert result.outcome == "done"
        assert state.get("answers") == [0, 1] == stored(state, "answered")
        assert stored(state, "count") in (3, 4), "the first run may have ended already"
        assert state.get("$loop/restart") is None
        if nth % 3 == 0:
            assert state.get("log") == "before"
        if not faulty.failed:
            break
    assert nth > 30
    assert store.verify().findings == []
