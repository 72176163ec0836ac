"""The last checkpoints before a process ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.checkpoints import ShutdownCheckpoints
from holdfast.errors import GateRefusedError, InvalidInputError, ReadOnlyError


def made(state: Any) -> list[tuple[str, str]]:
    return [(one.type, one.metadata.get("trigger")) for one in state.checkpoints()]


SHUTDOWN = [("automatic", "shutdown")]


@pytest.mark.spec("S72")
def test_when_the_block_ends(place: Place) -> None:
    store = place.open()
    store.agent("before").set("k", 1)
    with ShutdownCheckpoints(store):
        store.agent("1").set("k", 1)
        store.agent("1").fork("trial").set("k", 2)
        store.agent("2").set("k", 1)
        store.agent("2").checkpoint("by hand")
        with store.change() as change:
            change["agent:3"].set("k", 1)
            change["session:4"].set("k", 1)
    for state in (
        store.agent("1"),
        store.agent("1").on("trial"),
        store.agent("3"),
        store.session("4"),
    ):
        assert made(state) == SHUTDOWN
        assert state.checkpoints()[0].cause.actor == "shutdown"
    assert made(store.agent("2")) == [("manual", None)], "nothing was written since"
    assert made(store.agent("before")) == []
    store.agent("5").set("k", 1)
    store.close()
    assert made(place.open().agent("5")) == []


def test_when_the_store_is_closed(place: Place) -> None:
    store = place.open()
    with ShutdownCheckpoints(store, [store.agent("1"), "agent:2", "agent:none"]):
        for name in "123":
            store.agent(name).set("k", 1)
        store.close()
    again = place.open()
    assert [made(again.agent(name)) for name in "123"] == [SHUTDOWN, SHUTDOWN, []]
    assert again.verify().findings == []


def test_after_an_error_too_which_is_not_hidden(store: sync.Store) -> None:
    with pytest.raises(ZeroDivisionError), ShutdownCheckpoints(store):
        store.agent("1").set("k", 1)
        raise ZeroDivisionError
    assert made(store.agent("1")) == SHUTDOWN


def test_what_cannot_be_saved_keeps_nothing_from_ending(place: Place) -> None:
    class No(holdfast.Gate):
        def before(self, request: Any) -> None:
            if request.scope.id == "1" and request.operations[0].kind == "checkpoint":
                raise GateRefusedError("no")

    store = place.open()
    store.add_gate(No())
    with ShutdownCheckpoints(store):
        store.agent("1").set("k", 1)
        store.agent("2").set("k", 1)
    assert (made(store.agent("1")), made(store.agent("2"))) == ([], SHUTDOWN)


def test_the_async_face(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            async with ShutdownCheckpoints(store):
                await store.agent("1").set("k", 1)
            async with ShutdownCheckpoints(store, signals=()):
                await store.agent("2").set("k", 1)
                await store.close()

    asyncio.run(main())
    again = plain.open() if plain.engine == "sqlite" else None
    if again is not None:
        assert [made(again.agent(name)) for name in "12"] == [SHUTDOWN, SHUTDOWN]


def test_signals_are_given_back_and_taken_by_the_main_thread_only(store: sync.Store) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ShutdownCheckpoints(store):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    told: list[Exception] = []

    def elsewhere() -> None:
        try:
            with ShutdownCheckpoints(store):
                pass
        except InvalidInputError as error:
            told.append(error)
        with ShutdownCheckpoints(store, signals=()):
            store.agent("1").set("k", 1)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "signals=()" in str(told[0])
    assert made(store.agent("1")) == SHUTDOWN


def test_what_is_written_behind_the_signal_has_a_checkpoint_too(store: sync.Store) -> None:
    """A handler of one's own may let the program finish its turn."""
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        with ShutdownCheckpoints(store):
            state, idle = store.agent("1"), store.agent("2")
            state.set("k", 1)
            idle.set("k", 1)
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.wait(60)
            assert (made(state), made(idle)) == (SHUTDOWN, SHUTDOWN)
            state.set("k", "last")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (made(state), made(idle)) == (SHUTDOWN * 2, SHUTDOWN)
    assert state.at(state.checkpoints()[0]).get("k") == "last"


@pytest.mark.parametrize("again", [False, True], ids=["once", "begun again"])
def test_blocks_that_end_in_any_order_give_the_signals_back(store: sync.Store, again: bool) -> None:
    heard: list[int] = []
    stop = threading.Event()

    def mine(number: int, _: object) -> None:
        heard.append(number)
        stop.set()

    before = signal.signal(signal.SIGTERM, mine)
    try:
        first, second = ShutdownCheckpoints(store), ShutdownCheckpoints(store)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        if again:
            first.__enter__()
        store.agent("1").set("k", 1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
        assert made(store.agent("1")) == SHUTDOWN
        second.__exit__(None, None, None)
        if again:
            first.__exit__(None, None, None)
        assert signal.getsignal(signal.SIGTERM) is mine
        os.kill(os.getpid(), signal.SIGTERM)
        assert set(heard) == {signal.SIGTERM}
    finally:
        signal.signal(signal.SIGTERM, before)


FORKS = """
import multiprocessing, signal, sys, time
from holdfast import sync
from holdfast.checkpoints import ShutdownCheckpoints
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
forking = multiprocessing.get_context("fork")

def again():  # as a worker does that opens the store for itself
    with sync.open(url, key=key, signer=signer) as store, ShutdownCheckpoints(store):
        store.agent("2").set("k", 1)
        ready.set()
        time.sleep(600)

ready = forking.Event()
with sync.open(url, key=key, signer=signer) as store, ShutdownCheckpoints(store):
    store.agent("1").set("k", 1)
    ends = []
    for number in range(20):
        worker = forking.Process(target=time.sleep, args=(600,))
        worker.start()
        worker.terminate()  # also before it has done anything
        worker.join(60)
        ends.append(worker.exitcode)
    worker = forking.Process(target=again)
    worker.start()
    ready.wait(60)
    worker.terminate()
    worker.join(60)
    ends.append(worker.exitcode)
    store.agent("1").set("k", 2)
    print(set(ends), signal.pthread_sigmask(signal.SIG_BLOCK, ()), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
@pytest.mark.filterwarnings("ignore")
def test_a_signal_to_a_forked_process_ends_that_and_not_this_one(shared: Place) -> None:
    words = [shared.url, shared.key or "", shared.signer]
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS, *words],
        env=shared.environment(),
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "{-15} set()"
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(60) == -signal.SIGTERM
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    store = shared.open()
    assert made(store.agent("1")) == made(store.agent("2")) == SHUTDOWN
    assert store.agent("1").at(store.agent("1").checkpoints()[0]).get("k") == 2


def test_what_cannot_be_meant_is_refused(place: Place) -> None:
    store = place.open()
    for wrong in ("agent:1", ["nonsense"], [7]):
        with pytest.raises(InvalidInputError):
            ShutdownCheckpoints(store, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        ShutdownCheckpoints("sqlite:")  # type: ignore[arg-type]
    for number in (99, signal.SIGKILL, True, "SIGTERM"):
        with pytest.raises(InvalidInputError, match="module `signal`"):
            ShutdownCheckpoints(store, signals=[number])  # type: ignore[list-item]
    with pytest.raises(ReadOnlyError), ShutdownCheckpoints(place.open(read_only=True)):
        pass


def test_a_timeline_that_was_ended_is_no_error(
    store: sync.Store, caplog: pytest.LogCaptureFixture
) -> None:
    state = store.agent("1")
    state.set("k", 1)
    with ShutdownCheckpoints(store):
        state.fork("trial").set("k", 2)
        sync.checkpoints.Retention(store).end(state, "trial")
        store.agent("2").set("k", 1)
        store.delete("agent:2")
        state.set("k", 3)
    assert made(state) == SHUTDOWN
    assert caplog.records == []


PROGRAM = """
import sys
import time
from holdfast.checkpoints import ShutdownCheckpoints
from holdfast import sync
import signal
url, key, signer, how = sys.argv[1], sys.argv[2] or None, sys.argv[3], sys.argv[4]
if how == "own handler":
    def own(number, frame):
        print("own handler", flush=True)
        sys.exit(3)
    signal.signal(signal.SIGTERM, own)
with sync.open(url, key=key, durability="normal", signer=signer) as store:
    with ShutdownCheckpoints(store):
        number = 0
        while True:
            store.agent("1").set("k", number)
            number += 1
            if number == 20:
                print("busy", flush=True)
"""
ASYNC = """
import asyncio, sys
import holdfast
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
async def main():
    async with holdfast.open(url, key=key, durability="normal", signer=signer) as store:
        async with holdfast.checkpoints.ShutdownCheckpoints(store):
            await store.agent("1").set("k", 1)
            print("busy", flush=True)
            await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place("sqlite", tmp_path, sealed=request.param)
    yield found
    found.close()


@pytest.mark.spec("S72")
@pytest.mark.parametrize(
    ("program", "how", "code"),
    [
        (PROGRAM, "default", -signal.SIGTERM),
        (PROGRAM, "own handler", 3),
        (ASYNC, "default", -signal.SIGTERM),
    ],
    ids=["busy", "own handler", "async"],
)
def test_on_sigterm(shared: Place, program: str, how: str, code: int) -> None:
    words = [shared.url, shared.key or "", shared.signer, how]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env=shared.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "busy"
        os.kill(process.pid, signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    assert ("own handler" in said) is (how == "own handler")
    store = shared.open()
    state = store.agent("1")
    # The handler of its own is called some writes later, and ends the block.
    assert made(state) in (SHUTDOWN, SHUTDOWN * 2 if how == "own handler" else SHUTDOWN)
    assert store.verify().findings == []
    if how == "own handler":
        assert state.at(state.checkpoints()[0]).get("k") == state.get("k")


@pytest.mark.spec("S70", "S76", "S77", "S78", "S79")
def test_a_service_that_is_stopped_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue, what it was at work on, its sessions, and whatever another service keeps."""
    monkeypatch.chdir(tmp_path)
    Path("var/db").mkdir(parents=True)
    with sync.open("sqlite:var/db/checkpoints.db") as store, ShutdownCheckpoints(store):
        queue = store.custom("completions")
        for number in range(3):
            queue.append("waiting", {"request": number})
        queue.set("active/7", {"request": 7, "since": 12.5})
        store.session("s-1").set("info", {"agent": "planner"})
        store.custom("another service").set("cursor", 41)
    with sync.open("sqlite:var/db/checkpoints.db") as store:
        queue = store.custom("completions")
        for state in (queue, store.session("s-1"), store.custom("another service")):
            assert made(state) == SHUTDOWN
        queue.set("waiting", [])  # and what came since is taken back with it
        queue.restore(
            sync.checkpoints.Checkpoints(queue).locate(type="automatic", trigger="shutdown")
        )
        assert queue.get("waiting") == [{"request": 0}, {"request": 1}, {"request": 2}]
        assert queue.get("active/7") == {"request": 7, "since": 12.5}
        assert store.session("s-1").get("info") == {"agent": "planner"}


@pytest.mark.spec("S85")
def test_only_what_has_changed_is_saved_and_the_latest_is_found(place: Place) -> None:
    store = place.open()
    for number in range(3):
        with ShutdownCheckpoints(store):
            store.agent("busy").set("k", number)
            store.agent("idle").get("k", None)
    assert made(store.agent("idle")) == []
    busy = sync.checkpoints.Checkpoints(store.agent("busy"))
    latest = busy.locate(type="automatic", valid=True)
    assert store.agent("busy").at(latest).get("k") == 2
    assert len(made(store.agent("busy"))) == 3
