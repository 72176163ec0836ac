"""What is held in memory only when a process ends, and the switch that turns checkpoints off."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import Gate, GateRequest, sync
from holdfast.checkpoints import Condition, Policy, ShutdownCheckpoints
from holdfast.checkpoints.checkpoint_keys import COLLECTED
from holdfast.errors import InvalidInputError


class Queue:
    """A service that keeps what waits in memory."""

    def __init__(self, *waiting: str) -> None:
        self.waiting = list(waiting)
        self.given: list[Any] = []

    def collect(self) -> list[str]:
        return self.waiting

    def restore(self, kept: list[str]) -> None:
        self.given.append(kept)
        self.waiting = kept + self.waiting


@pytest.mark.spec("X36", "S79")
def test_a_service_takes_part_and_gets_back_once_what_it_held(place: Place) -> None:
    store = place.open()
    with ShutdownCheckpoints(store, participants={"custom:queue": Queue("a", "b")}):
        pass
    [last] = store.custom("queue").checkpoints()
    assert (last.type, last.metadata["trigger"]) == ("automatic", "shutdown")
    store = place.reopen()
    queue = Queue("new")
    with ShutdownCheckpoints(store, participants={store.custom("queue"): queue}) as last_ones:
        assert queue.given == [["a", "b"]]
        assert queue.waiting == ["a", "b", "new"]
        crashed = Queue()  # the process is killed here, and the next one starts
        with ShutdownCheckpoints(store, participants={"custom:queue": crashed}, signals=()):
            assert crashed.given == [], "what was given back is not given twice"
        queue.waiting = ["b"]
        assert [str(one.scope) for one in last_ones.finish()] == ["custom:queue"]
    after = Queue()
    with ShutdownCheckpoints(store, participants={"custom:queue": after}):
        assert after.waiting == ["b"]


def given(store: sync.Store, who: Any) -> list[Any]:
    """What a participant is given at the next start, which holds nothing at its end."""
    queue = Queue()
    with ShutdownCheckpoints(store, participants={who: queue}, signals=()):
        queue.waiting = []
    return [kept for kept in queue.given if kept]


@pytest.mark.parametrize("how", ["restore", "keys", "adopt", "merge", "source", "import"])
def test_no_other_state_brings_back_what_was_given(
    store: sync.Store, tmp_path: Path, how: str
) -> None:
    a, b = store.agent("a"), store.agent("b")
    a.set("x", 1)
    b.set("x", 2)
    for state, held in ((a, "pay 5 EUR"), (b, "b's own")):
        with ShutdownCheckpoints(store, participants={state: Queue(held)}, signals=()):
            pass
    point = a.checkpoint("then")
    fork = a.fork("try", at=point)
    fork.set("y", 1)
    assert given(store, a) == [["pay 5 EUR"]]
    if how == "restore":
        a.restore(point)
    elif how == "keys":
        sync.checkpoints.Checkpoints(a).restore(point, prefixes=["$shutdown/"])
    elif how == "adopt":
        a.adopt(fork)
    elif how == "merge":
        a.merge(fork)
    elif how == "source":
        sync.checkpoints.Checkpoints(b).restore(point, source=a)
    else:
        sync.checkpoints.export_checkpoint(a, tmp_path / "a.hfx", at=point, plain=True)
        for state in (b, store.agent("c")):
            sync.checkpoints.import_checkpoint(state, tmp_path / "a.hfx")
    assert given(store, a) == []
    assert given(store, "agent:c") == []
    assert given(store, b) == [["b's own"]], "it waits for its own, and gets nobody else's"
    assert given(store, b) == []


def test_who_moves_to_another_store_takes_it_along(store: sync.Store, tmp_path: Path) -> None:
    with ShutdownCheckpoints(store, participants={"agent:a": Queue("a letter")}, signals=()):
        pass
    state = store.agent("a")
    sync.checkpoints.export_checkpoint(
        state, tmp_path / "a.hfx", at=state.checkpoints()[0], plain=True
    )
    with sync.open("memory:") as other:
        for _ in range(2):
            sync.checkpoints.import_checkpoint(other.agent("a"), tmp_path / "a.hfx", untrusted=True)
        assert given(other, "agent:a") == [["a letter"]]
        sync.checkpoints.import_checkpoint(other.agent("a"), tmp_path / "a.hfx", untrusted=True)
        assert given(other, "agent:a") == []


def test_none_is_something_to_hold(store: sync.Store) -> None:
    nothing = Queue()
    nothing.waiting = None  # type: ignore[assignment]
    with ShutdownCheckpoints(store, participants={"custom:queue": nothing}):
        pass
    seen: list[Any] = []
    nothing.restore = seen.append  # type: ignore[method-assign]
    with ShutdownCheckpoints(store, participants={"custom:queue": nothing}):
        assert seen == [None]


class Broken(Queue):
    """One that cannot take up what was kept."""

    def restore(self, kept: list[str]) -> None:
        raise ZeroDivisionError


def entered(how: str, place: Place, participants: dict[Any, Any]) -> None:
    """Run a block with those who take part, on one face."""

    async def main() -> None:
        async with (
            holdfast.open(place.url, **place.options()) as store,
            ShutdownCheckpoints(store, participants=participants),
        ):
            pass

    if how == "async":
        asyncio.run(main())
    else:
        with place.open() as store, ShutdownCheckpoints(store, participants=participants):
            pass


@pytest.mark.parametrize("how", ["blocking", "async"])
def test_who_cannot_take_up_what_was_kept_loses_nothing_of_anybody(
    tmp_path: Path, how: str
) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    scopes = ("custom:1", "custom:2", "custom:3")
    entered(how, place, {one: Queue(one) for one in scopes})
    before = signal.getsignal(signal.SIGTERM)
    first = Queue()
    with pytest.raises(ZeroDivisionError):
        entered(how, place, {"custom:1": first, "custom:2": Broken(), "custom:3": Queue()})
    assert first.given == [["custom:1"]]
    assert signal.getsignal(signal.SIGTERM) is before
    again = {one: Queue() for one in scopes}
    entered(how, place, again)
    assert {one: queue.given for one, queue in again.items()} == {one: [[one]] for one in scopes}


def test_a_block_that_cannot_begin_where_it_is_gives_nothing(store: sync.Store) -> None:
    with ShutdownCheckpoints(store, participants={"custom:queue": Queue("a")}):
        pass
    queue = Queue()

    def elsewhere() -> None:
        with pytest.raises(InvalidInputError, match="main thread"):
            ShutdownCheckpoints(store, participants={"custom:queue": queue}).__enter__()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert queue.given == []
    with ShutdownCheckpoints(store, participants={"custom:queue": queue}):
        assert queue.given == [["a"]]


class Noting(Gate):
    """Does something when it is about to be noted who has what was kept."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._then = then

    def before(self, request: GateRequest) -> None:
        if [(one.kind, one.key) for one in request.operations] == [
            ("delete", COLLECTED.prefix + "collected")
        ]:
            self._then()


@pytest.mark.parametrize("late", [False, True], ids=["while they are given", "while it is noted"])
def test_a_task_that_is_cancelled_as_it_begins_loses_nothing(plain: Place, late: bool) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            async with ShutdownCheckpoints(store, participants={"custom:queue": Queue("a")}):
                pass
            loop, cancelled = asyncio.get_running_loop(), threading.Event()

            async def begin() -> None:
                async with ShutdownCheckpoints(store, participants={"custom:queue": queue}):
                    pytest.fail("it was cancelled before")

            def cancel() -> None:
                task.cancel()
                cancelled.set()

            def noting() -> None:
                loop.call_soon_threadsafe(cancel)
                assert cancelled.wait(60)

            class Given(Queue):
                def restore(self, kept: list[str]) -> None:
                    super().restore(kept)
                    if not late:
                        cancel()

            queue, gate = Given(), Noting(noting if late else lambda: None)
            store.add_gate(gate)
            before = signal.getsignal(signal.SIGTERM)
            task = asyncio.create_task(begin())
            with pytest.raises(asyncio.CancelledError):
                await task
            store.remove_gate(gate)
            assert signal.getsignal(signal.SIGTERM) is before
            again = Queue()
            async with ShutdownCheckpoints(store, participants={"custom:queue": again}):
                assert again.given == [queue.given[0]] == [["a"]]

    asyncio.run(main())


@pytest.fixture
def going_on() -> Iterator[threading.Event]:
    """A handler of one's own on SIGTERM, which only says that the program is to end."""
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    yield stop
    signal.signal(signal.SIGTERM, before)


def test_a_signal_while_it_is_noted_finds_what_was_given(
    store: sync.Store, going_on: threading.Event
) -> None:
    with ShutdownCheckpoints(store, participants={"custom:queue": Queue("a")}):
        pass
    gate = Noting(lambda: os.kill(os.getpid(), signal.SIGTERM))
    store.add_gate(gate)
    queue, killed = Queue(), Queue()
    with ShutdownCheckpoints(store, participants={"custom:queue": queue}):
        assert going_on.wait(60)
        assert queue.given == [["a"]]
        store.remove_gate(gate)
        with ShutdownCheckpoints(store, participants={"custom:queue": killed}, signals=()):
            assert killed.given == [["a"]], "it is collected behind the note, not before"


def test_what_was_collected_on_a_signal_stays_until_it_is_collected_again(
    store: sync.Store, going_on: threading.Event
) -> None:
    queue, killed, after = Queue("a", "b"), Queue(), Queue()
    with ShutdownCheckpoints(store, participants={"custom:queue": queue}):
        os.kill(os.getpid(), signal.SIGTERM)
        assert going_on.wait(60)
        queue.waiting = ["b"]
        with ShutdownCheckpoints(store, participants={"custom:queue": killed}, signals=()):
            assert killed.given == [["a", "b"]], "as if it were killed here"
    with ShutdownCheckpoints(store, participants={"custom:queue": after}):
        assert after.given == [["b"]]


def test_one_that_fails_keeps_no_other_from_being_kept(store: sync.Store) -> None:
    class Silent(Queue):
        def collect(self) -> list[str]:
            raise ZeroDivisionError

    odd = Queue()
    odd.waiting = object()  # type: ignore[assignment]
    participants = {"custom:1": Silent(), "custom:2": odd, "custom:3": Queue("a")}
    with ShutdownCheckpoints(store, participants=participants):
        store.agent("7").set("k", 1)
    assert len(store.agent("7").checkpoints()) == 1
    queue = Queue()
    with ShutdownCheckpoints(store, participants={"custom:3": queue}):
        assert queue.waiting == ["a"]


PROGRAM = """
import sys, time
from holdfast.checkpoints import ShutdownCheckpoints
from holdfast import sync
class Queue:
    def collect(self):
        return ["a"]
    def restore(self, kept):
        pass
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
with sync.open(url, key=key, signer=signer) as store:
    with ShutdownCheckpoints(store, participants={"custom:queue": Queue()}):
        print("busy", flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_on_sigterm(tmp_path: Path, sealed: bool) -> None:
    place = Place("sqlite", tmp_path, sealed=sealed)
    place.open().close()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, place.url, place.key or "", place.signer],
        env=place.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "busy"
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
    store, queue = place.open(), Queue()
    with ShutdownCheckpoints(store, participants={"custom:queue": queue}):
        assert queue.waiting == ["a"]
    assert store.verify().findings == []
    place.close()


def test_the_async_face(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            async with ShutdownCheckpoints(store, participants={"custom:queue": Queue("a")}):
                pass
            queue = Queue()
            async with ShutdownCheckpoints(store, participants={"custom:queue": queue}):
                assert queue.waiting == ["a"]
            assert len(await store.custom("queue").checkpoints()) == 2

    asyncio.run(main())


def test_what_cannot_take_part_is_refused(store: sync.Store) -> None:
    class Waits(Queue):
        async def collect(self) -> list[str]:  # type: ignore[override]
            return []

    wrong: list[Any] = [[Queue()], {"custom:queue": object()}, {"custom:queue": Waits()}]
    wrong.append({"queue": Queue()})
    wrong.append({"custom:queue": Queue(), store.custom("queue"): Queue()})
    for participants in wrong:
        with pytest.raises(InvalidInputError):
            ShutdownCheckpoints(store, participants=participants)


@pytest.mark.spec("X36")
def test_the_switch_turns_off_checkpoints_that_come_by_themselves(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ShutdownCheckpoints(store, participants={"custom:queue": Queue("a")}):
        pass
    monkeypatch.setenv("HOLDFAST_CHECKPOINTS_DISABLED", "1")
    state, queue = store.agent("7"), Queue()
    policies = sync.checkpoints.Policies(store)
    often = Condition("operation_count", "operation_count", "greater_than", 2)
    policies.set(state, Policy("often", [often]))
    with policies, ShutdownCheckpoints(store, participants={"custom:queue": queue}):
        assert queue.given == []
        for number in range(5):
            state.set("k", number)
        assert policies.wait(60)
    assert state.checkpoints() == []
    by_hand = state.checkpoint("by hand")
    assert state.restore(by_hand).backup is not None, "what somebody asks for is made"
    monkeypatch.setenv("HOLDFAST_CHECKPOINTS_DISABLED", "0")
    with ShutdownCheckpoints(store, participants={"custom:queue": queue}):
        assert queue.given == [["a"]], "and what was kept before is still there"
        state.set("k", 6)
    assert state.checkpoints()[0].metadata["trigger"] == "shutdown"


class Done:
    """An agent that is done at once."""

    def step(self) -> holdfast.agents.StepResult:
        return holdfast.agents.StepResult("work", done=True)


def test_the_switch_and_a_loop_and_a_schedule(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CHECKPOINTS_DISABLED", "true")
    state = store.agent("7")
    assert sync.agents.run(Done, state).outcome == "done"
    scheduler = sync.checkpoints.Scheduler(store)
    scheduler.every(60, state, name="minute")
    assert [one.outcome for one in scheduler.run_due()] in ([], ["disabled"])
    assert state.checkpoints() == []
