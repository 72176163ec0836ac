"""Several threads, event loops and processes on one store."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.errors import Conflict
from holdfast.store.journal import directory
from holdfast.store.journal.timeline import Timeline

PRELUDE = """
import sys
from holdfast import sync
from holdfast.errors import *
url, key, signer = sys.argv[1:4]
options = {"key": key or None, "signer": signer, "durability": "normal"}
def say(*words): print(*words, flush=True)
def hear(): return sys.stdin.readline().strip()
"""


@pytest.fixture(params=["plain", "sealed"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A place on disk, for several processes."""
    made = Place("sqlite", tmp_path, sealed=request.param == "sealed")
    yield made
    made.close()


class Child:
    """A process of its own that uses the store."""

    def __init__(self, place: Place, code: str, *more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, place.url, place.key or "", place.signer, *more],
            env=place.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, word: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        """What it still says until its end."""
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return out


PING = """
store = sync.open(url, **options)
state = store.agent("1")
while (word := hear()) != "end":
    number = int(word)
    if state.get("n") != number:
        say("stale"); break
    state.set("n", number + 1)
    say(number + 1)
store.close()
"""


def test_a_get_sees_every_set_that_returned_before(files: Place) -> None:
    """Ping-pong: each side reads what the other one has just written, without waiting."""
    rounds = int(os.environ.get("HOLDFAST_TEST_ROUNDS", "400"))
    state = files.open().agent("1")
    child = Child(files, PING)
    number = 0
    for _ in range(rounds):
        number += 1
        state.set("n", number)
        child.say(number)
        number += 1
        assert child.hear() == str(number)
        assert state.get("n") == number
    child.say("end")
    child.end()
    assert state._handle.place()[2] == 2 * rounds


APPEND = """
mine = int(sys.argv[4])
say("ready"); hear()
store = sync.open(url, **options)
for number in range(25):
    store.shared.append("list", [mine, number])
    store.agent("x").update("n", lambda n: n + 1, default=0)
    if number % 5 == 0:
        with store.change() as change:
            for name in ("a", "b"):
                part = change[store.custom(name)]
                part.append("pairs", [mine, number])
store.close()
"""


def test_eight_processes_lose_nothing(files: Place) -> None:
    """They also create the store, and its scopes, all at once."""
    if files.sealed:
        sync.open("memory:", key=files.key).close()  # the key file itself is made by one
    sync.open("memory:", signer=files.signer).close()
    children = [Child(files, APPEND, str(number)) for number in range(8)]
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.say("go")
    for child in children:
        child.end()
    store = files.open()
    found = store.shared.get("list")
    assert len(found) == 200
    for mine in range(8):
        assert [n for who, n in found if who == mine] == list(range(25)), "each in its order"
    assert store.agent("x").get("n") == 200
    a, b = store.custom("a").get("pairs"), store.custom("b").get("pairs")
    assert sorted(a) == sorted(b) == sorted([m, n] for m in range(8) for n in range(0, 25, 5))
    assert len(store.scopes().items) == 4
    assert store.verify().findings == []


def test_a_store_carried_through_fork(files: Place) -> None:
    code = """
import os
store = sync.open(url, **options)
state = store.agent("1")
state.set("k", 1)
pid = os.fork()
if pid == 0:
    for call in (lambda: state.get("k"), lambda: state.set("k", 2), lambda: store.scopes(),
                 lambda: state.checkpoint(), lambda: store.verify()):
        try:
            call(); say("no error")
        except StoreForkedError as error:
            assert "open it again" in str(error)
    try:
        with sync.open(url, **options) as own:
            own.agent("1").set("child", 1)
    except HoldfastError as error:
        say(type(error).__name__)
    os._exit(0)
os.waitpid(pid, 0)
assert state.get("k") == 1 and state.get("child") == 1
state.set("k", 3)
say("parent goes on")
store.close()
"""
    child = Child(files, code)
    assert child.end() == "parent goes on\n"
    assert files.open().verify().findings == []


def test_a_child_is_refused_whatever_its_parent_was_doing(files: Place) -> None:
    """It has no thread that writes, and nobody there opens the locks that others held."""
    code = """
import asyncio, os, signal, threading
import holdfast
class Slow(holdfast.Gate):
    def after(self, change, written):
        begun.set(); go_on.wait()
def fork(*calls):
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)  # one that waits for ever is seen soon
        for call in calls:
            try:
                call(); say("no error")
            except StoreForkedError as error:
                assert "open it again" in str(error)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
begun, go_on = threading.Event(), threading.Event()
store = sync.open(url, **options)
state = store.agent("1")
state.set("k", 1)
store.add_gate(Slow())
other = threading.Thread(target=lambda: state.set("k", 2), daemon=True)
other.start(); begun.wait()
fork(lambda: state.set("k", 3), lambda: state.get("k"), lambda: store.agent("2").set("k", 3))
go_on.set(); other.join(); store.close()
async def wait_for(awaited):
    return await awaited
async def main():
    async with holdfast.open(url, **options | {"durability": "full"}) as store:
        state = store.agent("1")
        await state.set("k", 4)  # by a thread that the child does not have
        def run(call):
            asyncio.events._set_running_loop(None)
            asyncio.run(wait_for(call()))
        fork(*(lambda call=call: run(call) for call in (
            lambda: state.set("k", 5), lambda: state.append("l", 5), lambda: state.get("k"),
            lambda: state.checkpoint("c"))))
        assert await state.get("k") == 4
asyncio.run(main())
say("parent goes on")
"""
    assert Child(files, code).end() == "parent goes on\n"
    assert files.open().verify().findings == []


def test_a_store_that_a_child_opens_anew_outlives_the_parents(files: Place) -> None:
    """Blocking and async, with whatever lies beside the store; the parent writes at the fork."""
    code = """
import asyncio, os, signal, threading
import holdfast
store = sync.open(url, **options)
begun, stop = threading.Event(), threading.Event()
def write():
    while not stop.is_set():
        store.agent("parent").append("l", 1)
        begun.set()
thread = threading.Thread(target=write)
thread.start()
begun.wait(60)
ready, closed = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    async def main():
        async with holdfast.open(url, **options) as late:
            with sync.open(url, **options) as own:
                own.agent("1").append("l", 0)
                await late.agent("1").append("l", 1)
                os.write(ready[1], b"x")
                os.read(closed[0], 1)
                for number in range(2, 6, 2):
                    own.agent("1").append("l", number)
                    await late.agent("1").append("l", number + 1)
                say(own.agent("1").get("l") == await late.agent("1").get("l"))
    try:
        asyncio.run(main())
    except HoldfastError as error:
        say(type(error).__name__, error)
    os._exit(0)
os.read(ready[0], 1)
stop.set()
thread.join()
store.close()
os.write(closed[1], b"x")
os.waitpid(pid, 0)
"""
    child = Child(files, code)
    assert child.end() == "True\n"
    store = files.open()
    assert store.agent("1").get("l") == [0, 1, 2, 3, 4, 5]
    assert store.verify().findings == []


@pytest.mark.spec("M55", "M103")
def test_killed_in_the_middle(files: Place) -> None:
    """What was acknowledged is there; what was not is there whole or not at all."""
    code = """
store = sync.open(url, **options)
number = 0
while True:
    with store.change() as change:
        change[store.agent("a")].append("l", number)
        change[store.agent("b")].append("l", number)
    say(number)
    number += 1
"""
    for after in (1, 15):
        child = Child(files, code)
        for _ in range(after):
            last = child.hear()
        child.process.kill()
        rest, _ = child.process.communicate(timeout=60)
        acknowledged = (
            int((rest.split() or [last])[-1]) if rest.endswith("\n") or not rest else int(last)
        )
        store = files.open()
        a, b = store.agent("a").get("l"), store.agent("b").get("l")
        assert a == b
        assert a[-1] >= acknowledged
        assert store.verify().findings == []
        files.close()


# ---- threads -------------------------------------------------------------------------------


def run(*calls: Any) -> None:
    errors: list[BaseException] = []

    def safe(call: Any) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=safe, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def test_threads_on_one_store(place: Place) -> None:
    store = place.open()

    def work(mine: int) -> None:
        for number in range(30):
            store.shared.append("list", [mine, number])
            store.agent(str(mine)).set("k", number)
            assert store.agent(str(mine)).get("k") == number
            store.shared.update("n", lambda n: n + 1, default=0)

    run(*[lambda mine=mine: work(mine) for mine in range(6)])
    found = store.shared.get("list")
    assert len(found) == 180
    for mine in range(6):
        assert [n for who, n in found if who == mine] == list(range(30))
    assert store.shared.get("n") == 180
    assert place.reopen().shared.get("list") == found
    assert place.open().verify().findings == []


def test_readers_never_see_half_a_change(place: Place) -> None:
    store, other = place.open(), place.open()
    stop = threading.Event()

    def write() -> None:
        try:
            for number in range(60):
                with store.agent("1").change() as change:
                    change.set("a", number)
                    change.set("b", number)
                if number % 20 == 10:
                    store.agent("1").restore(max(1, number - 5))
        finally:
            stop.set()

    def read(seen: sync.Store) -> None:
        while not stop.is_set():
            found = seen.agent("1").get_many(["a", "b"])
            assert found in ({}, {"a": found.get("a"), "b": found.get("a")})
            pairs = dict(seen.agent("1").items())
            assert pairs.get("a") == pairs.get("b")

    run(write, lambda: read(store), lambda: read(other), lambda: read(store))


def test_threads_that_fork_timelines_at_once(place: Place) -> None:
    store, other = place.open(), place.open()
    store.agent("1").set("k", 0)

    def fork(handle: sync.Store, mine: int) -> None:
        for number in range(4):
            trial = handle.agent("1").fork(f"t{mine}-{number}")
            trial.set("k", [mine, number])
            assert trial.get("k") == [mine, number]

    run(*[lambda m=m: fork(store if m % 2 else other, m) for m in range(6)])
    for seen in (store, place.open()):
        lines = [line.name for line in seen.agent("1").timelines()]
        assert sorted(lines) == sorted(["main", *(f"t{m}-{n}" for m in range(6) for n in range(4))])
        for m in range(6):
            for n in range(4):
                assert seen.agent("1").on(f"t{m}-{n}").get("k") == [m, n]
    assert store.verify().findings == []


def test_one_name_for_a_timeline_goes_to_one(place: Place) -> None:
    store = place.open()
    store.agent("1").set("k", 0)
    won: list[int] = []

    def fork(mine: int) -> None:
        try:
            store.agent("1").fork("same")
            won.append(mine)
        except Conflict:
            pass

    run(*[lambda m=m: fork(m) for m in range(6)])
    assert len(won) == 1
    assert [line.name for line in store.agent("1").timelines()] == ["main", "same"]
    assert place.open().verify().findings == []


def test_deleting_while_others_write(place: Place) -> None:
    store, other = place.open(), place.open()

    def write(handle: sync.Store) -> None:
        for number in range(40):
            handle.session("s").append("l", number)

    def delete() -> None:
        for _ in range(10):
            if store.session("s").exists("l"):
                store.delete("session:s")

    run(lambda: write(store), lambda: write(other), delete)
    left = place.open().session("s").get("l", [])
    assert len(left) <= 80
    assert store.session("s").get("l", []) == other.session("s").get("l", []) == left
    assert place.open().verify().findings == []


def test_a_fork_of_a_scope_that_ends_meanwhile(place: Place) -> None:
    """Whoever forks a scope that is deleted at that moment must not write into the void."""
    a, b = place.open(), place.open()
    a.agent("1").set("k", 1)
    plan = b.agent("1")._handle.plan_fork("trial", None)
    a.delete("agent:1")
    with pytest.raises(Conflict):
        b._core.run(plan[0])
    assert b.agent("1").get("k") is None
    assert b.agent("1").timelines() == []
    b.agent("1").set("k", 2)
    assert a.agent("1").items() == [("k", 2)]
    assert place.open().verify().findings == []


def test_own_commits_never_look_like_those_of_others(place: Place) -> None:
    """A token that showed for a moment would hide the next commit of somebody else."""
    store = place.open()
    store.shared.set("k", 0)
    storage = store._core.storage
    before = storage.version()
    done = threading.Event()
    seen: set[object] = set()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def write() -> None:
        try:
            for number in range(150):
                store.shared.set("k", number)
        finally:
            done.set()

    def look() -> None:
        while not done.is_set():
            token = storage.version()
            if type(token) is type(before):  # "perhaps" is another type
                seen.add(token)

    try:
        run(write, look, look)
    finally:
        sys.setswitchinterval(interval)
    assert seen <= {before}
    place.open().shared.set("k", -1)
    assert storage.version() != before
    assert store.shared.get("k") == -1


@pytest.mark.parametrize("when", ["after it was read", "while it is read"])
def test_a_write_is_seen_in_a_scope_that_was_let_go_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Of many scopes some are held; one that is read anew beside a commit has what that brings."""
    monkeypatch.setattr(directory, "LEDGERS", 2)
    others = place.open()
    for number in range(3):
        others.agent(str(number)).set("k", 0)
    store, between = place.open_between()
    state = store.agent("0")
    state.set("k", 1)
    begun, go = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go.wait(30)

    between.before = wait
    writer = threading.Thread(target=state.set, args=("k", 2))
    writer.start()
    assert begun.wait(30)
    store.agent("1").get("k")
    store.agent("2").get("k")
    load = Timeline.load

    def loaded(line: Timeline, *args: Any, **more: Any) -> Timeline:
        load(line, *args, **more)
        go.set()
        writer.join()
        return line

    if when == "while it is read":
        monkeypatch.setattr(Timeline, "load", loaded)
    state.get("k")
    go.set()
    writer.join()
    assert state.get("k") == 2
