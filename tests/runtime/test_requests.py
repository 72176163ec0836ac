"""Requests: one at a time in a session, tried again by a policy, answered once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.agents import RetryPolicy
from holdfast.errors import ChangeIdError, InvalidInputError, RequestFailedError
from holdfast.runtime import Request
from holdfast.sync.agents import Mailbox
from holdfast.sync.checkpoints import ShutdownCheckpoints
from holdfast.sync.runtime import Requests
from holdfast.testing import crash

QUICK = RetryPolicy(delay=0.01, kinds=None)


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not met():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


@contextmanager
def working(store: sync.Store, worker: Callable[..., Any], **more: Any) -> Iterator[Requests]:
    requests = Requests(store, worker, **{"retry": QUICK, **more})
    requests.start()
    try:
        yield requests
    finally:
        requests.stop()


def plus(request: Request) -> Any:
    return request.content + 1


BOTH = pytest.mark.parametrize("memory", [False, True])


@BOTH
@pytest.mark.spec("S57", "S59", "S60", "S64")
def test_requests_are_answered_in_the_order_of_their_session(
    store: sync.Store, memory: bool
) -> None:
    order: list[int] = []
    with working(store, lambda one: order.append(one.content) or -one.content, memory=memory) as r:
        assert r.sessions() == [], "queues come with requests"
        tickets = [r.submit("s", n) for n in range(1, 8)]
        assert [r.result(one, timeout=30) for one in tickets] == [-n for n in range(1, 8)]
        assert order == list(range(1, 8))
        assert r.result(tickets[2], timeout=30) == -3, "kept"
        until(lambda: r.sessions() == [])
        assert r.waiting("s") == []
        assert r.active() == {}


@BOTH
@pytest.mark.spec("S58", "S61", "S62", "S60")
def test_one_at_a_time_in_a_session_and_sessions_side_by_side(
    store: sync.Store, memory: bool
) -> None:
    lock, free = threading.Lock(), threading.Event()
    now: dict[str, int] = {}
    most: dict[str, int] = {}
    together = 0

    def worker(request: Request) -> None:
        nonlocal together
        with lock:
            now[request.session] = now.get(request.session, 0) + 1
            most[request.session] = max(most.get(request.session, 0), now[request.session])
            together = max(together, len([one for one in now.values() if one]))
        assert free.wait(30)
        with lock:
            now[request.session] -= 1

    with working(store, worker, memory=memory, concurrency=3) as requests:
        tickets = [requests.submit(f"s{n % 3}", n, id=f"r{n}") for n in range(9)]
        until(lambda: len(requests.active()) == 3)
        assert {one.session for one in requests.active().values()} == {"s0", "s1", "s2"}
        assert requests.sessions() == ["s0", "s1", "s2"]
        assert len(requests.waiting("s0")) == 3, "with the one at work"
        until(lambda: together == 3)  # all three are in the worker
        free.set()
        for one in tickets:
            requests.result(one, timeout=30)
    assert most == {"s0": 1, "s1": 1, "s2": 1}
    assert together == 3


@BOTH
def test_under_an_id_it_is_one_request(store: sync.Store, memory: bool) -> None:
    calls: list[int] = []
    with working(store, lambda one: calls.append(one.content) or "done", memory=memory) as requests:
        first = requests.submit("s", 1, id="r")
        again = requests.submit("s", 1, id="r")
        assert first == again
        assert requests.result(first, timeout=30) == "done"
        requests.submit("s", 1, id="r")
        requests.submit("s", 2, id="r2")
        assert requests.result("s/r2", timeout=30) == "done"
    assert calls == [1, 2]


def test_other_content_under_a_known_id_is_refused(store: sync.Store) -> None:
    requests = Requests(store, plus)
    requests.submit("s", 1, id="r")
    with pytest.raises(ChangeIdError):
        requests.submit("s", 2, id="r")
    requests.submit("other", 2, id="r")
    assert requests.sessions() == ["other", "s"]


@BOTH
@pytest.mark.spec("S62", "X36")
def test_what_fails_is_tried_three_times_and_set_aside(store: sync.Store, memory: bool) -> None:
    attempts: list[int] = []

    def worker(request: Request) -> Any:
        if request.content != "bad":
            return "good"
        attempts.append(request.attempt)
        raise ConnectionError("secret")

    with working(store, worker, memory=memory) as requests:
        bad, good = requests.submit("s", "bad", id="bad"), requests.submit("s", "good")
        with pytest.raises(RequestFailedError, match="failed 3 times") as found:
            requests.result(bad, timeout=30)
        assert "secret" not in str(found.value)
        assert requests.result(good, timeout=30) == "good", "it blocks nobody"
    assert attempts == [1, 2, 3]
    assert (found.value.attempts, found.value.error) == (3, "network_error")


@BOTH
def test_what_cannot_pass_by_itself_is_not_tried_again(store: sync.Store, memory: bool) -> None:
    attempts: list[int] = []

    def worker(request: Request) -> Any:
        attempts.append(request.attempt)
        raise ValueError("wrong")

    policy = RetryPolicy(delay=0.01)
    with working(store, worker, memory=memory, retry=policy) as requests:
        bad = requests.submit("s", 1)
        with pytest.raises(RequestFailedError):
            requests.result(bad, timeout=30)
    assert attempts == [1]


@pytest.mark.spec("X36")
def test_the_policy_is_two_seconds_doubled_up_to_sixty_three_times() -> None:
    policy = RetryPolicy()
    assert [policy.pause(n) for n in (1, 2, 3, 7)] == [2.0, 4.0, 8.0, 60.0]
    assert [policy.again("daemon_restart", n) for n in (1, 2, 3)] == [True, True, False]


@BOTH
def test_a_worker_that_never_returns_has_failed_after_its_time(
    store: sync.Store, memory: bool
) -> None:
    never = threading.Event()
    policy = RetryPolicy(max_attempts=1)
    with working(
        store, lambda _: never.wait(60), memory=memory, timeout=0.2, retry=policy
    ) as requests:
        with pytest.raises(RequestFailedError, match="timeout"):
            requests.result(requests.submit("s", 1), timeout=30)
        never.set()


def test_what_cannot_be_begun_because_others_hang_has_not_failed(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()
    worker = lambda one: free.wait(60) if one.content == "hangs" else "good"  # noqa: E731
    with working(store, worker, timeout=0.1, concurrency=2) as requests:
        hang = [requests.submit(f"s{n}", "hangs") for n in range(8)]
        for one in hang:
            with pytest.raises(RequestFailedError, match="timeout"):
                requests.result(one, timeout=30)
        assert requests.result(requests.submit("s", "quick"), timeout=30) == "good"
        monkeypatch.setattr("holdfast.runtime.requests.THREADS", 4)
        late = requests.submit("s", "late")
        with pytest.raises(TimeoutError):
            requests.result(late, timeout=0.7)
        assert requests.waiting("s")[0].tries == 0
        free.set()
        assert requests.result(late, timeout=30) == "good"


def test_a_worker_that_wants_to_end_the_program_has_failed(store: sync.Store) -> None:
    requests = Requests(store, lambda _: sys.exit(1), retry=QUICK)
    requests.start()
    with pytest.raises(RequestFailedError, match="failed 3 times"):
        requests.result(requests.submit("s", 1), timeout=30)
    requests.stop()


def test_an_answer_that_is_not_there_in_time(store: sync.Store) -> None:
    requests = Requests(store, plus)
    ticket = requests.submit("s", 1)
    with pytest.raises(TimeoutError, match="was not answered in time"):
        requests.result(ticket, timeout=0.05)
    requests.start()
    assert requests.result(ticket, timeout=30) == 2
    requests.stop()


def test_an_async_worker_in_an_event_loop(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:

            async def worker(request: Request) -> Any:
                await asyncio.sleep(0.001)
                return request.content * 2

            requests = holdfast.runtime.Requests(store, worker=worker)
            await requests.start()
            tickets = [await requests.submit(f"s{n % 5}", n) for n in range(20)]
            found = [await requests.result(one, timeout=30) for one in tickets]
            assert found == [2 * n for n in range(20)]
            await requests.stop()

    asyncio.run(main())


def test_an_async_worker_is_cancelled_after_its_time(plain: Place) -> None:
    told: list[str] = []

    async def worker(request: Request) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            once = RetryPolicy(max_attempts=1)
            requests = holdfast.runtime.Requests(store, worker, timeout=0.1, retry=once)
            await requests.start()
            with pytest.raises(RequestFailedError, match="timeout"):
                await requests.result(await requests.submit("s", 1), timeout=30)
            await requests.stop()
            assert told == ["cancelled"]

    asyncio.run(main())


def test_an_async_worker_that_nobody_awaits_is_refused(store: sync.Store) -> None:
    async def worker(request: Request) -> None: ...

    with pytest.raises(InvalidInputError, match="async def"):
        Requests(store, worker)
    requests = Requests(store, lambda one: worker(one))
    requests.start()
    with pytest.raises(RequestFailedError, match="NotRunError"):
        requests.result(requests.submit("s", 1), timeout=30)
    requests.stop()


@pytest.mark.spec("S61")
def test_answered_exactly_once_with_what_it_writes(store: sync.Store) -> None:
    def worker(request: Request) -> Any:
        request.change.append("talk", request.content)
        if request.attempt < 3:
            raise ConnectionError
        return request.attempt

    with working(store, worker) as requests:
        assert requests.result(requests.submit("s", "hello"), timeout=30) == 3
    assert store.session("s").get("talk") == ["hello"], "nothing of a failed attempt"
    with pytest.raises(InvalidInputError, match="leave out memory=True, or write"):
        _ = Request("s", "r", 1, 1, None).change


def test_a_worker_that_conflicts_with_itself_is_tried_as_often_as_the_policy_says(
    store: sync.Store,
) -> None:
    """It writes what its change has read: each call may be paid for."""
    attempts: list[int] = []

    def worker(request: Request) -> None:
        attempts.append(request.attempt)
        request.change.get("log")
        store.session("s").append("log", "begun")
        request.change.set("answer", 1)

    requests = Requests(store, worker, retry=QUICK)
    requests.start()
    with pytest.raises(RequestFailedError, match="failed 3 times"):
        requests.result(requests.submit("s", 1), timeout=30)
    requests.stop()
    assert attempts == [1, 2, 3]


WORKER = """
import os, sys, time
from holdfast import sync
from holdfast.agents import RetryPolicy
from holdfast.sync.runtime import Requests
url, key, signer, folder, kill = sys.argv[1:]
def worker(request):
    mine = os.path.join(folder, request.session)
    os.mkdir(mine)                      # fails if another one is at work at this session
    with open(os.path.join(folder, "calls"), "a") as file:
        file.write(f"{request.id} {request.attempt}\\n")
    if kill == request.id:
        os.rmdir(mine)
        os.kill(os.getpid(), 9)
    time.sleep(0.005)
    request.change.append("talk", request.content)
    os.rmdir(mine)
    return request.content
store = sync.open(url, key=key or None, signer=signer, durability="normal")
requests = Requests(store, worker, retry=RetryPolicy(delay=0.05), concurrency=4)
requests.start()
print("ready", flush=True)
end = time.monotonic() + 60
while requests.sessions() and time.monotonic() < end:
    time.sleep(0.02)
store.close()
"""


def started(place: Place, folder: Path, kill: str = "") -> subprocess.Popen[bytes]:
    words = [place.url, place.key or "", place.signer, str(folder), kill]
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, *words], env=place.environment(), stderr=subprocess.PIPE
    )


@pytest.mark.spec("S61", "S57")
@pytest.mark.parametrize("sealed", [False, True])
def test_one_at_a_time_also_in_two_processes(tmp_path: Path, sealed: bool) -> None:
    place, folder = Place("sqlite", tmp_path, sealed=sealed), tmp_path / "world"
    folder.mkdir()
    store = place.open()
    requests = Requests(store, plus)
    tickets = [requests.submit(f"s{n % 4}", n, id=f"r{n}") for n in range(40)]
    others = [started(place, folder) for _ in range(2)]
    told = [one.communicate(timeout=90)[1] for one in others]
    assert [one.returncode for one in others] == [0, 0], told
    assert [requests.result(one, timeout=5) for one in tickets] == list(range(40))
    calls = (folder / "calls").read_text().split("\n")[:-1]
    assert sorted(calls) == sorted(f"r{n} 1" for n in range(40)), "each once, never two at once"
    for n in range(4):
        assert store.session(f"s{n}").get("talk") == [m for m in range(40) if m % 4 == n]
    place.close()


@pytest.mark.spec("X38", "X36")
def test_reemitted_requests_keep_their_request_id_and_a_retry_counter_that_survives(
    tmp_path: Path,
) -> None:
    """No infinite retry: a request that kills its process is set aside after three."""
    place, folder = Place("sqlite", tmp_path, sealed=False), tmp_path / "world"
    folder.mkdir()
    store = place.open()
    requests = Requests(store, plus)
    requests.submit("s", "bad", id="bad")
    requests.submit("s", "good", id="good")
    codes = []
    for _ in range(4):
        one = started(place, folder, kill="bad")
        told = one.communicate(timeout=90)[1]
        codes.append(one.returncode)
        assert one.returncode in (0, -signal.SIGKILL), told
    assert codes == [-9, -9, -9, 0]
    with pytest.raises(RequestFailedError) as found:
        requests.result("s/bad", timeout=5)
    assert (found.value.attempts, found.value.error) == (3, "daemon_restart")
    assert requests.result("s/good", timeout=5) == "good"
    calls = (folder / "calls").read_text().split("\n")[:-1]
    assert calls == ["bad 1", "bad 2", "bad 3", "good 1"]
    assert store.session("s").get("talk") == ["good"]
    [letter] = sync.agents.Mailbox(store.session("s")).set_aside()
    assert (letter.id, letter.tries) == ("bad", 3)
    place.close()


def answer(store: sync.Store) -> None:
    """Has requests of two sessions answered, each by a change of its session."""

    def note(request: Request) -> Any:
        request.change.append("talk", request.content)
        return request.content

    policy = RetryPolicy(delay=0.01, max_attempts=9)
    requests = Requests(store, note, retry=policy)
    requests.start()
    tickets = [requests.submit(f"s{n % 2}", n, id=f"r{n}") for n in range(4)]
    assert [requests.result(one, timeout=30) for one in tickets] == list(range(4))
    requests.stop()


def talked(store: sync.Store) -> list[Any]:
    requests = Requests(store, plus)
    assert [one for n in range(2) for one in requests.waiting(f"s{n}")] == []
    return [store.session(f"s{n}").get("talk") for n in range(2)]


@pytest.mark.spec("S57", "S61")
def test_killed_at_every_commit_each_request_is_answered_once() -> None:
    report = crash(answer, see=talked)
    assert report.ok, str(report)
    assert report.commits >= 12


@pytest.mark.spec("S59", "S64", "S68")
def test_idle_sessions_leave_nothing_behind(store: sync.Store) -> None:
    with working(store, plus, concurrency=16) as requests:
        tickets = [requests.submit(f"s{n}", n) for n in range(60)]
        for n, one in enumerate(tickets):
            assert requests.result(one, timeout=30) == n + 1
        until(lambda: requests.sessions() == [])
        # The worker of the last session may still be on its way out.
        until(lambda: not (requests._desks or requests._active))


def test_a_mailbox_that_cannot_be_read_is_left_alone_for_a_while(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []

    def fails(mailbox: Any) -> Any:
        looks.append(mailbox)
        raise holdfast.HoldfastError("it cannot be read just now")

    requests = Requests(store, plus)
    with monkeypatch.context() as damaged:
        damaged.setattr(sync.agents.Mailbox, "_taken", fails)
        ticket = requests.submit("s", 1)
        requests.start()
        until(lambda: bool(looks) and not requests._desks["s"].busy)
        time.sleep(0.1)
        assert len(looks) == 1
    requests.submit("s", 2)  # looked at now
    assert requests.result(ticket, timeout=30) == 2
    requests.stop()


def test_what_comes_while_a_session_is_left_is_not_forgotten(store: sync.Store) -> None:
    requests, other = Requests(store, plus), Requests(store, plus)
    other.submit("s", 1)
    requests._work("s")
    assert requests.sessions() == [], "nothing waits, though its lease is held"
    other.submit("s", 2)
    assert requests.sessions() == ["s"]
    requests._leave(["s"])
    assert other.sessions() == ["s"]
    with working(store, plus):
        until(lambda: other.waiting("s") == [] and other.sessions() == [])


def test_a_session_that_waits_to_be_tried_again_is_free_for_others(store: sync.Store) -> None:
    def fails(request: Request) -> None:
        raise ConnectionError

    with working(store, fails, retry=RetryPolicy(delay=3600.0)) as requests:
        requests.submit("s", 1)
        until(lambda: bool(requests.waiting("s")[0].tries))
        until(lambda: [one.owner for one in store.leases()] == [None])


@pytest.mark.parametrize("starts", [True, False])
def test_what_was_set_aside_is_answered_once_somebody_lets_it_wait_again(
    place: Place, starts: bool
) -> None:
    """By whoever works then: one that is started later, or one that is at work."""
    good = threading.Event()

    def worker(request: Request) -> Any:
        if not good.is_set():
            raise ValueError("not yet")
        return request.attempt

    store = place.open()
    requests = Requests(store, worker)
    requests.start()
    for _ in range(2):  # also one that was let wait before
        for one in Mailbox(store.session("s")).set_aside():
            Mailbox(store.session("s")).retry(one.number)
        ticket = requests.submit("s", 1, id="r1")
        until(lambda: bool(Mailbox(store.session("s")).set_aside()))
        until(lambda: requests.sessions() == [])
    until(lambda: [one.owner for one in store.leases()] == [None])
    if starts:
        requests.stop()
        requests = Requests(store, worker)
    good.set()
    mailbox = Mailbox(store.session("s"))
    mailbox.retry(mailbox.set_aside()[0].number)
    assert requests.sessions() == ["s"]
    requests.start()
    assert requests.result(ticket, timeout=30) == 1
    requests.stop()


# ---- in memory, with checkpoints on shutdown ----------------------------------------------------


def kept_by(store: sync.Store, requests: Requests) -> ShutdownCheckpoints:
    return ShutdownCheckpoints(
        store, ["custom:queue"], signals=(), participants={"custom:queue": requests}
    )


@pytest.mark.spec("S56", "S63", "S65", "S66", "S145")
def test_what_waits_in_memory_is_kept_at_the_end_and_comes_back_once(place: Place) -> None:
    store = place.open()
    free, begun = threading.Event(), threading.Event()

    def worker(request: Request) -> Any:
        begun.set()
        assert free.wait(30)
        return "late"

    first = Requests(store, worker, memory=True)
    with kept_by(store, first):
        first.start()
        for n in range(3):
            first.submit("s", n, id=f"r{n}")
        assert begun.wait(30)
    assert Requests(store, plus, memory=True).sessions() == [], "nothing is written before"
    free.set()
    place.close()
    store = place.open()
    seen: list[tuple[str, Any, int]] = []
    second = Requests(
        store, lambda one: seen.append((one.id, one.content, one.attempt)), memory=True, retry=QUICK
    )
    assert second.sessions() == []
    with kept_by(store, second):
        assert [one.content for one in second.waiting("s")] == [0, 1, 2]
        second.start()
        for n in range(3):
            second.result(f"s/r{n}", timeout=30)
        second.stop()
    assert seen == [("r0", 0, 2), ("r1", 1, 1), ("r2", 2, 1)], "the one at work counts as failed"


@pytest.mark.spec("X38")
def test_a_restored_checkpoint_is_consumed_exactly_once(place: Place) -> None:
    store = place.open()
    first = Requests(store, plus, memory=True)
    with kept_by(store, first):
        first.submit("s", 1, id="r")
    found = []
    for _ in range(2):
        store = place.reopen()
        other = Requests(store, plus, memory=True)
        shutdown = kept_by(store, other)
        with shutdown:
            found.append([one.content for one in other.waiting("s")])
            for one in found[-1]:
                other.start()
                assert other.result("s/r", timeout=30) == one + 1
                other.stop()
    assert found == [[1], []]


@pytest.mark.spec("X38", "S58")
def test_a_request_in_both_queue_and_active_set_must_not_abort_the_save(place: Place) -> None:
    """It is one request: saved once, as one that was at work."""
    store = place.open()
    free, begun = threading.Event(), threading.Event()

    def worker(request: Request) -> Any:
        begun.set()
        return free.wait(30)

    requests = Requests(store, worker, memory=True)
    with kept_by(store, requests):
        requests.start()
        requests.submit("s", 1, id="r")
        assert begun.wait(30)
        requests.submit("s", 1, id="r")
        assert list(requests.active()) == ["s/r"]
        assert [one.id for one in requests.waiting("s")] == ["r"]
        assert requests.collect() == [
            {"session": "s", "id": "r", "content": 1, "tries": 0, "active": True}
        ]
    free.set()
    store = place.reopen()
    other = Requests(store, plus, memory=True)
    with kept_by(store, other):
        assert [one.id for one in other.waiting("s")] == ["r"]


def test_a_request_that_waits_is_none_of_that_id_in_another_session(store: sync.Store) -> None:
    free, begun = threading.Event(), threading.Event()

    def worker(request: Request) -> Any:
        begun.set()
        return free.wait(30)

    with working(store, worker, memory=True, concurrency=1) as requests:
        requests.submit("a", 1, id="r")
        assert begun.wait(30)
        requests.submit("b", 2, id="r")
        kept = [(one["session"], one["active"]) for one in requests.collect()]
        assert kept == [("a", True), ("b", False)]
        free.set()


def test_what_the_end_interrupted_is_kept_as_one_that_was_at_work(store: sync.Store) -> None:
    begun, free = threading.Event(), threading.Event()

    def worker(request: Request) -> Any:
        begun.set()
        return free.wait(30)

    requests = Requests(store, worker, memory=True, retry=QUICK)
    requests.start()
    for id in ("r", "later"):
        requests.submit("s", 1, id=id)
    assert begun.wait(30)
    requests.stop(timeout=0.0)
    assert [(one["id"], one["active"]) for one in requests.collect()] == [
        ("r", True),
        ("later", False),
    ]
    free.set()


@pytest.mark.spec("X38")
def test_in_memory_too_an_interrupted_request_is_not_retried_for_ever(store: sync.Store) -> None:
    requests = Requests(store, plus, memory=True)
    one = {"session": "s", "id": "r", "content": 1, "tries": 2, "active": True}
    requests.restore([one])
    requests.start()
    with pytest.raises(RequestFailedError, match="daemon_restart"):
        requests.result("s/r", timeout=30)
    assert requests.waiting("s") == []
    requests.restore(None)
    assert Requests(store, plus).collect() is None


@pytest.mark.parametrize(
    "given",
    [{"concurrency": 0}, {"timeout": -1}, {"keep": -1}, {"memory": "yes"}, {"retry": 3}],
)
def test_bad_input(store: sync.Store, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Requests(store, plus, **given)
    requests = Requests(store, plus)
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("worker", lambda: Requests(store, "worker")),  # type: ignore[arg-type]
        ("open store", lambda: Requests(store.agent("a"), plus)),  # type: ignore[arg-type]
        ("a session", lambda: requests.submit("a/b", 1)),
        ("a session", lambda: requests.submit("", 1)),
        ("the id of a request", lambda: requests.submit("s", 1, id="a/b")),
        ("a session", lambda: requests.waiting(5)),  # type: ignore[arg-type]
        ("timeout", lambda: requests.result("s/r", timeout=-1)),
        ("a ticket, SESSION/ID", lambda: requests.result("r", timeout=1)),
    ]
    for words, call in calls:
        with pytest.raises(InvalidInputError, match=words):
            call()
    with pytest.raises(holdfast.HoldfastError):
        requests.submit("s", object())
    assert requests.sessions() == []


def test_why_a_request_failed_is_logged_where_it_ran(caplog: pytest.LogCaptureFixture) -> None:
    def worker(request: Request) -> None:
        raise ValueError("no such file: notes")

    with sync.open("memory:") as store:
        requests = Requests(store, worker)
        requests.start()
        with pytest.raises(RequestFailedError):
            requests.result(requests.submit("s2", "x", id="r-1"), timeout=30)
        requests.stop()
    [said] = [one.getMessage() for one in caplog.records if one.name == "holdfast.runtime"]
    assert said == "session:s2: the request r-1 failed: ValueError('no such file: notes')"
