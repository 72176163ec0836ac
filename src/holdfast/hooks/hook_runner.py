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
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

from holdfast.errors import (
    HoldfastError,
    HookResultError,
    LeaseHeldError,
    LeaseLostError,
    Unavailable,
)
from holdfast.hooks.hook import Hook, HookOutcome
from holdfast.hooks.hook_events import COMMITTED, Changed, Fork, HookContext, Retry
from holdfast.hooks.hook_records import CURSOR, keep_results, lag
from holdfast.store.inner import HOOKS, LANES, Cursor, Lease, Watch, core_of, listen
from holdfast.store.names.background import Background
from holdfast.store.names.items import Position
from holdfast.store.store import Store

log = logging.getLogger("holdfast.hooks")

ATTEMPTS = 3
"""How often an event is told that a hook fails at."""
PAUSE = 0.2
"""Seconds before the second time; before the third twice as many."""
WAIT = 1.0
"""Seconds before another look at what could not be had: the lease, the storage."""
IDLE = 1.0
"""Seconds after which a place is noted at which there was nothing to tell."""
BRISK = 0.002
"""Seconds in which one thread tells a batch of a quick hook: more of them, each of which takes as
long to start as some calls, are for those that are slower."""


class _Line:
    """The events of one scope in a batch, told one after the other."""

    def __init__(self) -> None:
        self.events: deque[Changed] = deque()
        self.attempt = 1
        self.due = 0.0
        self.begun = 0.0
        """When the call that is under way began; 0: none is."""
        self.by: threading.Thread | None = None
        self.turn = 0
        """Raised when a call is taken for hung: whoever made it has no part in the line then."""


class HookRunner:
    """Runs one background hook."""

    def __init__(
        self,
        store: Store,
        hook: Hook,
        named: Callable[[str], Hook],
    ) -> None:
        self._store = store
        self._core = core_of(store)
        self._hook = hook
        self._named = named
        self._lock = threading.Lock()
        self._cursor = Cursor(self._core, CURSOR + hook.name)
        self._since: Position | None = None
        self._watch: Watch | None = None
        self._block: AbstractContextManager[Lease] | None = None
        self._lease: Lease | None = None
        self._noted = 0.0
        self._position: Position | None = None
        """Behind what the hook was told of last."""
        self._saved: Position | None = None
        """The same as the cell says it."""
        self._results: list[dict[str, Any]] = []
        """What it gave behind that."""
        self._fresh: list[dict[str, Any]] = []
        """The same of the batch that it is told of."""
        self._ending = False
        self._background = Background(
            self._core, f"holdfast-hook-{hook.name}", WAIT, self._turn, self._leave
        )

    def start(self, since: Position | None) -> None:
        """Begin where it was, or if it never was anywhere at `since`, or now."""
        self._since = since if since is not None else self._store.position()
        self._cursor.begin(self._since)  # now: what is written next is told, whoever is killed
        if not COMMITTED.issuperset(self._hook.on.texts):
            listen(self._core)
        self._background.start()

    def stop(self) -> None:
        """End behind the events that are told just now."""
        self._ending = True
        if self._watch is not None:
            self._watch.close()
        self._background.stop()

    def drain(self, timeout: float = 30.0) -> None:
        """Wait until the hook was told of all that is committed now."""
        goal, end = self._store.position(), time.monotonic() + timeout
        while not self._ending:
            at = self._position if self._lease is not None else self._cursor.get()
            told = at is not None and all(at.get(n, 0) >= goal.get(n, 0) for n in range(LANES))
            if told and not self._results:
                return
            if time.monotonic() > end:
                raise Unavailable(
                    f"the hook {self._hook.name} is still behind after {timeout:g} s; its last "
                    f"failure: {self._hook.metrics.error or 'none'}"
                )
            self._background.wake()
            time.sleep(0.005)

    # turns

    def _turn(self) -> float:
        try:
            if self._lease is None and not self._taken():
                self._judge(lag(self._core, self._cursor.get()))
                return WAIT
            return self._told()
        except BaseException as error:
            # It cannot be told of what cannot be read, and goes on from its place: damage waits for
            # whoever recovers the store.
            self._hook.metrics.error = str(error)[:500]
            self._leave()
            raise

    def _taken(self) -> bool:
        """Take the lease, and begin where whoever had it ended; False if another has it."""
        block = self._store.lease(CURSOR + self._hook.name, wait=0)
        try:
            self._lease = block.__enter__()
        except LeaseHeldError:
            return False
        self._block = block
        self._saved = self._cursor.get()
        self._position, self._results = self._saved or self._since, []
        [only, *others] = self._hook.scopes.texts
        exact = not others and not set("*?") & set(only)
        scope = self._store.scope(only).scope if exact else None
        # It does not wait: what is written meanwhile is read together, once an interval.
        self._watch = Watch(self._core, scope, None, "", None, self._position, 0.0, True)
        return True

    def _leave(self) -> None:
        block, self._block = self._block, None
        if block is None:
            return
        try:
            with suppress(HoldfastError):  # then some events are told twice
                self._note()
        finally:
            self._lease = self._watch = None
            self._results = []  # told again, if they could not be kept
            block.__exit__(None, None, None)

    def _told(self) -> float:
        """Tell the hook of a batch, then note that it was."""
        assert self._watch is not None
        lines: dict[str, _Line] = {}
        count, end, whole = 0, time.monotonic() + self._hook.flush_interval, False
        for entry in self._watch:
            if found := self._hook.events(self._store, entry):
                lines.setdefault(str(entry.scope), _Line()).events.extend(found)
                count += len(found)
            # Others may write without end what does not concern it.
            if count >= self._hook.batch_size or self._ending or time.monotonic() >= end:
                break
        else:
            whole = True
        position = Position(self._watch.position)
        self._fresh = []
        if lines and not self._run(lines):
            return 0.0  # it is ending: the batch is told again by whoever goes on
        self._results += self._fresh
        self._position, full = position, count >= self._hook.batch_size
        # Who has much to catch up with notes it once an interval: a commit costs as much as some
        # tens of calls.
        due = self._noted + (self._hook.flush_interval if count else IDLE)
        if noted := time.monotonic() > due or (self._results and not full):
            self._note()
        if whole or noted:
            # Where the feed ends is asked in each of its lanes: not by who has come to its end.
            self._judge(0 if whole else lag(self._core, position))
        return 0.0 if full else self._hook.flush_interval

    def _note(self) -> None:
        """Keep what the hook gave, and say in the cell how far it was told."""
        self._noted = time.monotonic()
        if self._results:
            keep_results(self._store, self._hook.name, self._results)
            self._results = []
        if self._position in (None, self._saved):
            return
        assert self._lease is not None
        assert self._position is not None
        if not self._cursor.put(self._position, self._lease):
            raise LeaseLostError(f"another process runs the hook {self._hook.name}")
        self._saved = self._position

    def _judge(self, behind: int) -> None:
        """Note how many commits it is behind, and warn once of too many."""
        before, self._hook.metrics.behind = self._hook.metrics.behind, behind
        if behind > self._hook.max_queue_size >= before:
            self._core.meter.add(HOOKS, (self._hook.name, "behind"))
            log.warning("the hook %s is %d commits behind", self._hook.name, behind)

    # telling

    def _run(self, lines: dict[str, _Line]) -> bool:
        """Tell all events; False if it ends before that.

        Calls are made by threads that nobody waits for at the end of the program: a call that hangs
        is left behind, and another thread goes on with its line.
        """
        free = deque(lines.values())
        threads, pause = [self._worker(free)], BRISK
        judged = time.monotonic()
        while True:
            if threads:
                threads[0].join(pause)
            now, pause = time.monotonic(), 0.05
            with self._lock:
                for line in lines.values():
                    if line.begun and now - line.begun > self._hook.timeout:
                        line.turn += 1
                        hung = HookOutcome(seconds=self._hook.timeout)
                        hung.fail(TimeoutError(f"it took longer than {self._hook.timeout:g} s"))
                        self._after(line, hung)
                        threads = [one for one in threads if one is not line.by]
                        free.append(line)
            threads = [one for one in threads if one.is_alive()]
            more = range(min(self._hook.max_concurrent - len(threads), len(free)))
            threads += [self._worker(free) for _ in more]
            left = any(line.events for line in lines.values())
            if not left or (self._ending and not any(line.begun for line in lines.values())):
                return not left
            if now > judged + WAIT:
                judged = now
                self._judge(lag(self._core, self._position))

    def _worker(self, free: deque[_Line]) -> threading.Thread:
        name = f"holdfast-hook-{self._hook.name}"
        thread = threading.Thread(target=self._work, args=(free,), name=name, daemon=True)
        thread.start()
        return thread

    def _work(self, free: deque[_Line]) -> None:
        """Tell the events of lines that nobody is at, one line after the other."""
        while True:
            with self._lock:
                if not free:
                    return
                line = free.popleft()
                line.by = threading.current_thread()
            while line.events:
                if self._ending:
                    return
                pause = line.due - time.monotonic()
                if pause <= 0 and not (
                    self._hook.cached(line.events[0].key) or self._hook.breaker.allow()
                ):
                    pause = max(0.001, self._hook.breaker.wait())  # asked again then
                if pause > 0:
                    time.sleep(min(0.05, pause))
                elif not self._tell(line):
                    return

    def _tell(self, line: _Line) -> bool:
        """Tell the first event of a line; False if that took too long, and others go on with it."""
        event, turn, outcome = line.events[0], line.turn, HookOutcome()
        context = HookContext(self._hook.name, line.attempt, data=self._hook.data)
        asked, line.begun = not self._hook.cached(event.key), time.monotonic()
        forked = ""
        try:
            if asked:
                outcome = self._hook.ask(event, context)
            if isinstance(outcome.result, Fork):
                forked = self._fork(outcome.result, event)
        except BaseException as raised:  # what would end the thread: it has failed
            outcome.fail(raised)
        with self._lock:
            if line.turn != turn:
                return False
            if not asked:
                self._hook.metrics.skipped += 1
            self._after(line, outcome, forked if asked else None)
        return True

    def _after(self, line: _Line, outcome: HookOutcome, forked: str | None = "") -> None:
        """What a call came to: the next event, the same once more, or set aside.

        `forked` is what went wrong in others that it called; None: it was not asked.
        """
        line.begun = 0.0
        if forked is not None:
            self._hook.count(outcome)
        again = outcome.result if isinstance(outcome.result, Retry) else None
        most = again.max_attempts if again is not None else ATTEMPTS
        if (outcome.error or again) and line.attempt < most:
            pause = again.delay if again is not None else PAUSE * 2 ** (line.attempt - 1)
            line.attempt, line.due = line.attempt + 1, time.monotonic() + pause
            return
        if again is not None:
            outcome.error = f"it asked {most} times to be called again"
        outcome.error = outcome.error or forked or ""
        self._core.meter.add(HOOKS, (self._hook.name, "failed" if outcome.error else "done"))
        told = {"result": outcome.name, "error": outcome.error}
        self._fresh.append({**line.events.popleft().place, **told})
        line.attempt, line.due = 1, 0.0

    def _fork(self, result: Fork, event: Changed) -> str:
        """Call further hooks with the same event; what went wrong."""
        errors = []
        for name in result.hooks:
            try:
                other = self._named(name)
                if not other.behind:
                    raise HookResultError(f"{name} stands in front, and is called by changes alone")
            except HoldfastError as error:
                errors.append(f"{name}: {error}"[:200])
                continue
            outcome = other.ask(event, HookContext(name, data=other.data))
            other.count(outcome)
            errors += [f"{name}: {outcome.error}"[:200]] if outcome.error else []
        return "; ".join(errors)
