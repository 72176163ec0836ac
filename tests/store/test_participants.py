"""What is held in memory only when a process ends, and the switch that turns checkpoints off."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import Condition, Policy, ShutdownCheckpoints, sync
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


def test_none_is_something_to_hold(store: sync.Store) -> None:
    nothing = Queue()
    nothing.waiting = None  # type: ignore[assignment]
    with ShutdownCheckpoints(store, participants={"custom:queue": nothing}):
        pass
    seen: list[Any] = []
    nothing.restore = seen.append  # type: ignore[method-assign]
    with ShutdownCheckpoints(store, participants={"custom:queue": nothing}):
        assert seen == [None]


def test_who_cannot_take_up_what_was_kept_does_not_lose_it(store: sync.Store) -> None:
    class Broken(Queue):
        def restore(self, kept: list[str]) -> None:
            raise ZeroDivisionError

    with ShutdownCheckpoints(store, participants={"custom:queue": Queue("a")}):
        pass
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError):
        ShutdownCheckpoints(store, participants={"custom:queue": Broken()}).__enter__()
    assert signal.getsignal(signal.SIGTERM) is before
    queue = Queue()
    with ShutdownCheckpoints(store, participants={"custom:queue": queue}):
        assert queue.waiting == ["a"]


def test_one_that_fails_keeps_no_other_from_being_kept(store: sync.Store) -> None:
    class Broken(Queue):
        def collect(self) -> list[str]:
            raise ZeroDivisionError

    odd = Queue()
    odd.waiting = object()  # type: ignore[assignment]
    participants = {"custom:1": Broken(), "custom:2": odd, "custom:3": Queue("a")}
    with ShutdownCheckpoints(store, participants=participants):
        store.agent("7").set("k", 1)
    assert len(store.agent("7").checkpoints()) == 1
    queue = Queue()
    with ShutdownCheckpoints(store, participants={"custom:3": queue}):
        assert queue.waiting == ["a"]


PROGRAM = """
import sys, time
from holdfast import ShutdownCheckpoints, sync
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
    policies = sync.Policies(store)
    often = Condition("operation_count", "operation_count", "greater_than", 2)
    policies.set(state, Policy("often", [often]))
    with policies, ShutdownCheckpoints(store, participants={"custom:queue": queue}):
        assert queue.given == []
        for number in range(5):
            state.set("k", number)
        assert policies.wait(10)
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

    def step(self) -> holdfast.Worked:
        return holdfast.Worked("work", done=True)


def test_the_switch_and_a_loop_and_a_schedule(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CHECKPOINTS_DISABLED", "true")
    state = store.agent("7")
    assert sync.run(Done, state).outcome == "done"
    scheduler = sync.Scheduler(store)
    scheduler.every(60, state, name="minute")
    assert [one.outcome for one in scheduler.run_due()] in ([], ["disabled"])
    assert state.checkpoints() == []
