"""Telling a background hook of what was committed: a reader of the feed with its place in a cell.

The feed is the queue: nothing overflows, nothing is dropped, and who writes waits for nobody. One
process at a time runs a hook of a name, under a lease; when it ends, another goes on where it was.
Events of one scope are told in their order; scopes do not wait for each other within a batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from math import inf
from typing import Any

from holdfast.errors import (
    HoldfastError,
    HookResultError,
    LeaseHeldError,
    LeaseLostError,
    Unavailable,
)
from holdfast.hooks.hook import CURSOR, Hook, HookOutcome, keep_results, lag
from holdfast.hooks.hook_events import COMMITTED, Changed, Fork, Retry
from holdfast.store.inner import HOOKS, Cursor, Lease, Watch, core_of, listen
from holdfast.store.names.background import Background
from holdfast.store.names.items import Position
from holdfast.store.store import Store

log = logging.getLogger("holdfast.hooks")

ATTEMPTS = 3
"""How often an event is told that a hook fails at."""
PAUSE = 0.2
"""Seconds before the second time; before the third twice as many."""
WAIT = 1.0
"""Seconds before another look at what could not be had, the lease or the storage; and after which
a place is noted at which there was nothing to tell."""


class _Line:
    """The events of one scope in a batch, told one after the other."""

    def __init__(self) -> None:
        self.events: deque[Changed] = deque()
        self.results: list[dict[str, Any]] = []
        self.attempt = 1
        self.due = 0.0
        self.begun = 0.0
        """When the call that is under way began; 0: none is; inf: it calls others, each of which
        has its own time."""
        self.by: threading.Thread | None = None
        """Who tells them; whose call is taken for hung has no part in the line any more."""


class HookRunner:
    """Runs one background hook."""

    def __init__(self, store: Store, hook: Hook, named: Callable[[str], Hook]) -> None:
        self._store = store
        self._core = core_of(store)
        self._hook = hook
        self._named = named
        self._lock = threading.Lock()  # lines are taken, and taken away from what hangs, by threads
        self._name = f"holdfast-hook-{hook.name}"
        self._cursor = Cursor(self._core, CURSOR + hook.name)
        self._position: Position | None = None
        """Behind what the hook was told of last, while this process is the one that runs it."""
        self._noted: Position | None = None
        """What the cell says of that."""
        self._results: list[dict[str, Any]] = []
        """What it gave up to there, and is not kept yet."""
        self._background = Background(self._core, self._name, WAIT, self._turn)

    def start(self, since: Position | None) -> None:
        """Begin where it was, or if it never was anywhere at `since`, or now."""
        # Said at once: what is written next is told, whoever is killed.
        self._cursor.begin(since if since is not None else self._store.position())
        if not COMMITTED.issuperset(self._hook.on.texts):
            listen(self._core)
        self._background.start()

    def stop(self) -> None:
        """End behind the calls that are under way."""
        self._background.stop()

    def drain(self, timeout: float = 30.0) -> None:
        """Wait until the hook was told of all that is committed now."""
        goal, end = self._store.position(), time.monotonic() + timeout
        while self._background.alive:
            if not lag(goal, self._position or self._cursor.get()) and not self._results:
                return
            if time.monotonic() > end:
                raise Unavailable(
                    f"the hook {self._hook.name} is still behind after {timeout:g} s; its last "
                    f"failure: {self._hook.metrics.error or 'none'}"
                )
            self._background.wake()
            time.sleep(0.005)

    # batches

    def _turn(self) -> None:
        try:
            self._lead()
        except LeaseHeldError:  # another process runs it
            self._judge(self._cursor.get())
        except BaseException as error:
            # It cannot be told of what cannot be read, and goes on from its place: damage waits for
            # whoever recovers the store.
            self._hook.metrics.error = str(error)[:500]
            raise

    def _lead(self) -> None:
        """Tell the hook batch by batch, as long as nobody else does."""
        hook, core = self._hook, self._core
        with self._store.lease(CURSOR + hook.name, wait=0) as lease:
            [only, *others] = hook.scopes.texts
            exact = not others and not set("*?") & set(only) and COMMITTED.issuperset(hook.on.texts)
            scope = self._store.scope(only).scope if exact else None
            self._noted, noted = self._cursor.get(), 0.0
            # It does not wait: what is written meanwhile is read together, once an interval.
            watch = Watch(core, scope, None, "", None, self._noted, 0.0, True)
            self._position = watch.position
            try:
                going = True
                while going:
                    read, whole = self._batch(watch)
                    lines = {line: len(line.events) for line, _, _ in read}
                    if lines:
                        self._run(lines)
                    full = (count := sum(lines.values())) >= hook.batch_size
                    self._results += [one for line in lines for one in line.results]
                    # If it ended before all was told, whoever goes on begins with that.
                    left = (at for line, n, at in read if len(line.results) < n)
                    self._position = next(left, watch.position)
                    # Who has much to catch up with notes it once an interval: a commit costs as
                    # much as some tens of calls.
                    due = noted + (hook.flush_interval if count else WAIT)
                    if time.monotonic() > due or (self._results and not full):
                        self._note(lease)
                        noted = time.monotonic()
                    self._judge(self._position, whole)
                    going = self._background.rest(0.0 if full else hook.flush_interval)
            finally:
                with suppress(HoldfastError):  # then some events are told twice
                    self._note(lease)
                self._position, self._results = None, []  # told again, if they could not be kept

    def _batch(self, watch: Watch) -> tuple[list[tuple[_Line, int, Position]], bool]:
        """Read a batch, and whether that is all: of each entry the line of its scope, how many
        events that has with it, and where to go on before it."""
        lines: dict[str, _Line] = {}
        read, before = [], watch.position
        count, end = 0, time.monotonic() + self._hook.flush_interval
        for entry in watch:
            if found := self._hook.events(self._store, entry):
                line = lines.setdefault(str(entry.scope), _Line())
                line.events.extend(found)
                read.append((line, len(line.events), before))
                count += len(found)
            before = entry.position or before
            # Others may write without end what does not concern it.
            late = time.monotonic() >= end or not self._background.alive
            if late or count >= self._hook.batch_size:
                return read, False
        return read, True

    def _note(self, lease: Lease) -> None:
        """Keep what the hook gave, and say in the cell how far it was told."""
        if self._results:
            keep_results(self._store, self._hook.name, self._results)
            self._results = []
        if self._position is not None and self._position != self._noted:
            if not self._cursor.put(self._position, lease):
                raise LeaseLostError(f"another process runs the hook {self._hook.name}")
            self._noted = self._position

    def _judge(self, at: Position | None, whole: bool = False) -> None:
        """Note how many commits it is behind, none if it read the whole, and warn once of many."""
        behind = 0 if whole else lag(self._core.lanes.position(), at)
        before, self._hook.metrics.behind = self._hook.metrics.behind, behind
        if behind > self._hook.max_queue_size >= before:
            self._core.meter.add(HOOKS, (self._hook.name, "behind"))
            log.warning("the hook %s is %d commits behind", self._hook.name, behind)

    # calls

    def _run(self, lines: Collection[_Line]) -> None:
        """Tell all events, unless it ends before that.

        Calls are made by threads that nobody waits for at the end of the program: a call that hangs
        is left behind, and another thread goes on with its line.
        """
        free, judged = deque(lines), time.monotonic()
        threads: list[threading.Thread] = []
        while any(line.events for line in lines):
            with self._lock:  # no call begins behind this
                if not self._background.alive and not any(line.begun for line in lines):
                    return
            for _ in range(min(self._hook.max_concurrent - len(threads), len(free))):
                threads.append(self._thread(self._work, free))
            threads[0].join(0.05)
            now = time.monotonic()
            with self._lock:
                for line in lines:
                    if line.begun and now - line.begun > self._hook.timeout:
                        threads = [one for one in threads if one is not line.by]
                        line.by = None
                        self._after(line, _hung(self._hook, line.events[0]))
                        free.append(line)
            threads = [one for one in threads if one.is_alive()]
            if now > judged + WAIT:
                judged = now
                self._judge(self._position)

    def _thread(self, work: Callable[..., Any], *args: Any) -> threading.Thread:
        one = threading.Thread(target=work, args=args, name=self._name, daemon=True)
        one.start()
        return one

    def _work(self, free: deque[_Line]) -> None:
        """Tell the events of lines that nobody is at, one line after the other."""
        hook, me = self._hook, threading.current_thread()
        while True:
            with self._lock:
                if not free:
                    return
                line = free.popleft()
                line.by = me
            while line.events:
                event, pause = line.events[0], line.due - time.monotonic()
                if pause <= 0 and hook.cached(event.key):
                    self._done(line, HookOutcome(event.place))
                    continue
                if pause <= 0 and not hook.breaker.allow():
                    pause = max(0.001, hook.breaker.wait())  # asked again then
                with self._lock:
                    if not self._background.alive:
                        return
                    line.begun = 0.0 if pause > 0 else time.monotonic()
                if pause > 0:
                    time.sleep(min(0.05, pause))
                    continue
                outcome = hook.ask(event, attempt=line.attempt, data=hook.data)
                with self._lock:
                    if line.by is not me:
                        return  # it took too long, and others go on with the line
                    line.begun = inf
                fork = outcome.value.hooks if isinstance(outcome.value, Fork) else ()
                wrong = "; ".join(filter(None, [self._wrong(name, event) for name in fork]))
                with self._lock:
                    self._after(line, outcome, wrong)

    def _after(self, line: _Line, outcome: HookOutcome, wrong: str = "") -> None:
        """What a call came to: the next event, the same once more, or set aside.

        `wrong` is what went wrong in others that it called.
        """
        line.begun, opened = 0.0, self._hook.breaker.opened
        self._hook.count(outcome)
        if self._hook.breaker.opened > opened:  # what the health report tells
            self._core.meter.add(HOOKS, (self._hook.name, "opened"))
        again = outcome.value if isinstance(outcome.value, Retry) else None
        if outcome.error:
            again = Retry(PAUSE * 2 ** (line.attempt - 1), ATTEMPTS)
        if again is not None and line.attempt < again.max_attempts:
            line.attempt, line.due = line.attempt + 1, time.monotonic() + again.delay
            return
        if again is not None:
            wrong = f"it asked {again.max_attempts} times to be called again"
        outcome.error = outcome.error or wrong
        self._done(line, outcome)

    def _done(self, line: _Line, outcome: HookOutcome) -> None:
        """Note what the hook gave for an event, and go on to the next one."""
        self._core.meter.add(HOOKS, (self._hook.name, "failed" if outcome.error else "done"))
        told = {"result": outcome.result, "error": outcome.error}
        line.results.append({**outcome.event, **told})
        line.events.popleft()
        line.attempt, line.due = 1, 0.0

    def _wrong(self, name: str, event: Changed) -> str:
        """Call a further hook with the same event; what went wrong."""
        try:
            other = self._named(name)
            if not other.behind:
                raise HookResultError(f"{name} stands in front, and is called by changes alone")
            made = [_hung(other, event)]
            call = self._thread(lambda: made.append(other.ask(event, data=other.data)))
            call.join(other.timeout)
            other.count(outcome := made[-1])
        except Exception as error:  # whatever it is: nobody else looks after this line
            return f"{name}: {error}"[:200]
        return f"{name}: {outcome.error}"[:200] if outcome.error else ""


def _hung(hook: Hook, event: Changed) -> HookOutcome:
    """A call that took too long."""
    outcome = HookOutcome(event.place, seconds=hook.timeout)
    outcome.fail(TimeoutError(f"it took longer than {hook.timeout:g} s"))
    return outcome
