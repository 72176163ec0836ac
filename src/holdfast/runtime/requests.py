"""Requests: work that sessions ask for, one at a time in each session, answered once.

requests = Requests(store, worker=complete)
ticket = requests.submit("session-9", {"prompt": "…"}, id="r-17")
requests.result(ticket, timeout=30)

A session's queue is its mailbox. Whoever works at it holds the session's lease, so that no session
is answered twice at once, by whatever processes; it is kept for a moment, so that who asks again
soon pays for three commits: it is asked, begun, answered. With `memory=True` all that is the same,
in a store in memory of its own.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any

from holdfast.agents.agent_keys import ALL_REQUESTS, PENDING, REQUESTER, REQUESTS
from holdfast.agents.mailbox import Letter, Mail, Mailbox, note_tried, planned_once, post
from holdfast.agents.retry import RetryPolicy
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    LeaseHeldError,
    LeaseLostError,
    RequestFailedError,
)
from holdfast.runtime.entities import check_id
from holdfast.runtime.runtime_records import RequestRecord
from holdfast.storage.rows import again
from holdfast.store.inner import (
    Asking,
    Book,
    ChangeParts,
    Lease,
    Operation,
    ScopedChange,
    StoreHandle,
    check_ttl,
    core_of,
    handle_of,
    keep,
    lease_name,
    look,
    own_change,
    own_step,
    taken,
)
from holdfast.store.names.arguments import (
    check_count,
    check_face,
    check_flag,
    check_plain_function,
    check_seconds,
    ran,
)
from holdfast.store.names.background import Background
from holdfast.store.names.face import Steps, calls, ends, faced, here, led, steps, wait, writes
from holdfast.store.names.threads import begun
from holdfast.store.open import open_core
from holdfast.store.store import Store

log = logging.getLogger("holdfast.runtime")

DAY = 86_400.0
LOOK = 0.25
"""Seconds between two looks for sessions that other processes have asked something of."""
LINGER = 0.5
"""Seconds for which a session's lease is kept once nothing of it is due."""
THREADS = 200
"""Calls of plain workers that may go on after their time, before no more are begun."""
LEASE = 30.0
"""Seconds after which another machine takes up the sessions of one that is not heard of."""


@dataclass(slots=True)
class _Desk:
    """A session that something is asked of, or was a moment ago."""

    mailbox: Mailbox
    lease: Lease | None = None
    due: float = 0.0
    """When it is looked at, or left if it is idle; 0: somebody has asked since."""
    busy: bool = False
    """A thread is at it."""
    idle: bool = False
    """Nothing of it waits, if its mark in the index is this one: another one says that something
    came since."""
    mark: Any = None


@dataclass(frozen=True, slots=True)
class Request:
    """A request as its worker gets it."""

    session: str
    id: str
    content: Any
    attempt: int
    """Counts from 1, also over restarts."""
    _mail: Mail | None = None

    @property
    def change(self) -> ScopedChange:
        """Writes to the session's state, in the same commit as the answer: done once, or not.

        A request with `memory=True` has none.
        """
        if self._mail is None:
            raise InvalidInputError(
                "a request in memory has no change, for its answer is not committed; leave out "
                "memory=True, or write to store.session(request.session) itself"
            )
        return self._mail.change


@faced
class Requests:
    """Requests of sessions, answered by a worker: a function of a `Request`, plain or async.

    What it returns is the answer. What it raises is tried again as `retry` says, and so is a
    conflict of what it wrote by `change`; then the request is set aside and its answer is
    `RequestFailedError`. An attempt that takes longer than `timeout` seconds has failed; a plain
    function cannot be stopped and goes on, its answer counts no more. While 200 go on so, requests
    wait. Sessions are worked at side by side, `concurrency` at a time. Answers are kept for `keep`
    seconds. Queues appear with their first request and cost nothing while they are empty.

    With `memory=True` what waits, and what is at work, is kept by `collect` and comes back by
    `restore`: give it to `Runtime`, or to `ShutdownCheckpoints` whose block ends after `stop`. A
    killed process loses it. There is no `request.change` then.
    """

    @calls("worker")
    def __init__(
        self,
        store: Store,
        worker: Callable[[Request], Any],
        *,
        retry: RetryPolicy | None = None,
        concurrency: int = 8,
        timeout: float = 300.0,
        keep: float | timedelta = DAY,
        memory: bool = False,
    ) -> None:
        check_face(store, Store, "Requests")
        check_plain_function(worker, "worker")
        check_count(concurrency, "concurrency", 1)
        check_seconds(timeout, "timeout")
        self._keep = check_ttl(keep, "keep") / 1e6
        self._home = core_of(store)
        self._memory = check_flag(memory, "memory")
        if memory:
            store = Store(StoreHandle(open_core("memory:")))
            self._home.closing.append(store.close)
        self._store = store
        self._core = core_of(store)
        self._worker = worker
        self._retry = retry if retry is not None else RetryPolicy()
        Mailbox(store.session("any"), retry=self._retry)  # refuses what is no policy
        self._timeout = timeout
        self._index = handle_of(store).line(ALL_REQUESTS)
        self._active: dict[str, Request] = {}
        self._cut: set[str] = set()
        """Tickets of what the last end interrupted."""
        self._desks: dict[str, _Desk] = {}
        self._lock = threading.Lock()  # of the four above; once it is over, no call begins
        self._seen = -1
        self._concurrency = concurrency
        self._pool: ThreadPoolExecutor | None = None
        self._calls: set[Future[Any]] = set()
        """Calls of the worker, each in a thread; also those that nobody waits for any more."""
        self._patience: float | None = None
        """Seconds for what is at work when it is stopped."""
        self._over = False
        self._background = Background(self._home, "holdfast-requests", LOOK, self._turn, self._end)

    @calls()
    @writes
    def start(self) -> None:
        """Begin to work at what waits, until `stop` or the end of the store."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._concurrency, "holdfast-request")
        self._seen, self._patience, self._over = -1, None, False
        self._cut.clear()
        self._background.start()

    @ends
    def stop(self, *, timeout: float | None = None) -> None:
        """Take up no more; what is at work has its end, up to its time limit.

        What has not ended after `timeout` seconds is interrupted, and tried again after the next
        start.
        """
        check_seconds(timeout, "timeout")
        self._patience = timeout
        self._background.stop()

    def _end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
            with self._lock:
                at_work, self._over = [one for one in self._calls if not one.cancelled()], True
            futures.wait(at_work, self._patience)
            for call in at_work:
                call.cancel()
            pool.shutdown(wait=True)
        self._leave(list(self._desks))

    # asking

    @writes
    def submit(self, session: str, content: Any, *, id: str | None = None) -> str:
        """Put a request behind those of its session; durable when this returns. Gives its ticket,
        `SESSION/ID`.

        Under an `id` it is one request, however often it is submitted.
        """
        session = check_id(session, "a session")
        id = check_id(id, "the id of a request") if id is not None else secrets.token_hex(8)
        self._post(session, id, content)
        with self._lock:
            if self._pool is not None:  # else who starts finds it in the index
                self._desk(session).due = 0.0
        self._background.wake()
        return f"{session}/{id}"

    def _post(
        self, session: str, id: str, content: Any, *, tries: int = 0, active: bool = False
    ) -> None:
        line = handle_of(self._store.session(session))

        def send() -> None:
            parts = own_change(self._store, id=f"request/{session}/{id}")
            part, index = parts.part(line), parts.part(self._index)
            if tries or active:
                note_tried(line, part, id, tries, self._retry if active else None)
            post(line, part, content, REQUESTER, id)
            wanted = keep.Keep(count=0)
            if wanted not in self._index.reader.declared().all:
                index.set(wanted.key, wanted.data())
            index.set(PENDING + session, id)
            change, finish = planned_once(parts, line, Operation("set", "request", content))
            finish(self._core.run(change))

        again(send)

    @steps
    def result(self, ticket: str, *, timeout: float | None = None) -> Steps[Any]:
        """The answer of a request, which is waited for; `TimeoutError` after `timeout` seconds.

        `RequestFailedError` if it has failed for good.
        """
        check_seconds(timeout, "timeout")
        parts = str(ticket).rpartition("/")[::2]
        session, id = (check_id(one, "each part of a ticket, SESSION/ID,") for one in parts)
        end = time.monotonic() + (timeout if timeout is not None else inf)
        book, mailbox = self._book(session), self._mailbox(session)

        def answer() -> RequestRecord | Letter | None:
            aside = (one for one in mailbox.set_aside() if one.id == id)
            return book.get(f"done/{id}") or next(aside, None)

        def settled() -> bool:
            return lanes.count != seen

        lanes, state = self._core.lanes, self._store.session(session)
        seen = lanes.count
        while (found := (yield look(state, answer))) is None:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{ticket} was not answered in time")
            yield wait(lanes.bell, settled, min(left, LOOK))
            seen = lanes.count
        if isinstance(found, Letter):
            error = found.kind or found.error
            raise RequestFailedError(
                f"session:{session}: the request {id} has failed {found.tries} "
                f"times, the last time with {error}; look at it with mailbox.set_aside()",
                error,
                found.tries,
            )
        return found.result

    def _book(self, session: str) -> Book[RequestRecord]:
        return Book(self._store.session(session), REQUESTS, RequestRecord)

    @here
    def active(self) -> dict[str, Request]:
        """Requests that are at work in this process, by their tickets."""
        with self._lock:
            return dict(self._active)

    def waiting(self, session: str) -> list[Letter]:
        """Requests of a session that are not answered yet, also the one at work, which is first."""
        return self._mailbox(check_id(session, "a session")).waiting()

    def sessions(self) -> list[str]:
        """Sessions that have requests which are not answered."""
        found = self._index.reader.items(PENDING, None, "", False)
        waiting = ((key.removeprefix(PENDING), mark) for key, mark in found)
        desks = self._desks
        return [one for one, mark in waiting if getattr(desks.get(one), "mark", None) != mark]

    def _mailbox(self, session: str) -> Mailbox:
        return Mailbox(self._store.session(session), retry=self._retry)

    def _desk(self, session: str) -> _Desk:
        return self._desks.setdefault(session, _Desk(self._mailbox(session)))

    # working

    def _turn(self) -> float | None:
        """Give sessions that are due to threads, also those that others have asked."""
        line = self._index.reader.now()
        if line is not None and line.sequence != self._seen:
            self._seen = line.sequence
            with self._lock:
                for session in self.sessions():
                    desk = self._desk(session)
                    if desk.busy or desk.idle:  # else it is looked at when it is due
                        desk.due = 0.0
        now, quiet = time.monotonic(), []
        assert self._pool is not None
        with self._lock:
            free = {session: desk for session, desk in self._desks.items() if not desk.busy}
            for session, desk in free.items():
                if desk.due > now:
                    continue
                if desk.idle and desk.due:
                    quiet.append(session)
                else:
                    self._pool.submit(self._work, session)
                desk.busy, desk.due = True, inf
            later = min((desk.due for desk in free.values()), default=inf)
        if quiet:
            self._pool.submit(self._leave, quiet)
        return float(min(LOOK, max(0.001, later - now)))

    def _work(self, session: str) -> None:
        """Work at a session until nothing is left that is due."""
        desk, pause = self._desk(session), None
        begins = desk.lease is None or desk.lease.over
        try:
            if begins:
                asking = Asking(self._core, lease_name("request", session), LEASE, 0, None)
                desk.lease = taken(asking)
            desk.idle, desk.mark = False, None
            assert desk.lease is not None
            with desk.lease.fencing():
                if begins:
                    desk.mailbox.interrupted()  # of whoever held the lease before, and ended
                while pause is None and not (self._background._end.is_set() or self._full):
                    pause = self._next(session, desk)
        except (LeaseHeldError, LeaseLostError):
            pause = 1.0  # another process works at it
        except HoldfastError:
            pause = 5.0  # what is wrong is told where the state is used; others go on
        finally:
            if desk.lease is not None and (pause is None or pause > LINGER):
                desk.lease.release()  # meanwhile others may have it
            with self._lock:
                due = time.monotonic() + (pause if pause is not None else LOOK)
                desk.busy, desk.due = False, min(desk.due, due)
            self._background.wake()

    @property
    def _full(self) -> bool:
        """Whether calls that have no end hold all threads. What waits for one has not failed."""
        return len(self._calls) >= THREADS + self._concurrency

    def _next(self, session: str, desk: _Desk) -> float | None:
        """Answer the next request; None if there may be more, else seconds until it is worth while
        again."""
        mailbox = desk.mailbox
        mail = led(mailbox._take())
        if mail is None:
            mark = self._index.reader.get(PENDING + session)
            if waiting := mailbox.waiting(limit=1):
                due = waiting[0].due  # None: it came this moment
                return max(0.01, due.timestamp() - time.time()) if due else 0.005
            desk.idle, desk.mark = True, mark  # what comes from now on changes it
            return LINGER
        letter, written = mail.letter, None if self._memory else mail
        asked = Request(session, letter.id, letter.content, letter.tries + 1, written)
        ticket = f"{session}/{letter.id}"
        with self._lock:
            self._active[ticket] = asked
            call = begun(lambda: ran(self._worker(asked), "worker"), "holdfast-worker", self._ended)
            self._calls.add(call)
            if self._over:
                call.cancel()
        try:
            answer = call.result(self._timeout)
            page = self._book(session).page(mail.change)
            page.put(f"done/{letter.id}", RequestRecord(answer), ttl=self._keep)
            led(mailbox._done(mail))
        except BaseException as error:  # whatever it is, the request has failed
            # A conflict, too: nobody else works at this session, and a worker that writes what it
            # has read would be called for ever. It is tried again later, or set aside.
            if call.cancelled():  # the end interrupted it: whoever takes it up next counts that
                self._cut.add(ticket)
            else:
                # The mailbox keeps no text of it: that is told here only.
                where = f"session:{session}: the request {letter.id}"
                log.warning("%s failed: %r", where, error, exc_info=True)
                led(mailbox._failed(mail, error))
        finally:
            if call.cancel():
                call.set_running_or_notify_cancel()  # else who waits for it to end is not told
            with self._lock:
                self._active.pop(ticket, None)
        return None

    def _ended(self, call: Future[Any]) -> None:
        with self._lock:
            self._calls.discard(call)

    def _leave(self, sessions: list[str]) -> None:
        """Forget sessions that nothing has come of since, in one change; give their leases back."""

        def note(parts: ChangeParts) -> None:
            part = parts.part(self._index)
            for session in sessions:
                mark = self._desks[session].mark
                if mark is not None and part.get(PENDING + session) == mark:
                    part.delete(PENDING + session)

        with suppress(HoldfastError):  # then they are looked at once more
            own_step(handle_of(self._store), note)
        for session in sessions:
            if (lease := self._desks[session].lease) is not None:
                lease.release()
        with self._lock:
            for session in sessions:
                if self._desks.pop(session).due == 0.0:
                    self._desk(session)
        self._background.wake()

    # in memory

    @here
    def collect(self) -> Any:
        """What waits and what is, or was interrupted, at work: for `ShutdownCheckpoints`."""
        if not self._memory:
            return None
        at_work = {*self.active(), *self._cut}
        return [
            {name: getattr(letter, name) for name in ("id", "content", "tries")}
            | {"session": session, "active": f"{session}/{letter.id}" in at_work}
            for session in self.sessions()
            for letter in self.waiting(session)
        ]

    @here
    def restore(self, kept: Any) -> None:
        """Take up again what was kept; what was at work counts as failed, with `daemon_restart`."""
        for one in kept if self._memory and kept else ():
            self._post(**one)
        self._background.wake()
