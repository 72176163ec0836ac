"""Watches agents behind a gate, and makes the checkpoints that their policies ask for.

The gate only notes what was written. A few writes at a time are counted, one after the other as
they came: a write alone would find nothing of this in the processor's caches. Right behind that a
thread looks at the policies of the agents that were written to, and makes what they ask for: a gate
that wrote would be asked about its own writes. A checkpoint expects that the last one is still the
one that its policy was judged by: of several processes one makes it.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from holdfast.checkpoints.checkpoint_group import Saved, Wanted, save_all, switched_off
from holdfast.checkpoints.checkpoint_keys import POLICIES
from holdfast.checkpoints.policy.policy import (
    CIPHER,
    MADE_BY,
    Policy,
    PolicyRecord,
    merged,
)
from holdfast.checkpoints.policy.tracker import (
    NEVER,
    NOTHING,
    TIMER,
    WRITE,
    PolicyEvent,
    Tracker,
    basis_now,
    measure,
)
from holdfast.errors import HoldfastError, PolicyValidationError
from holdfast.store.inner import Book, Change, Core, Gate, LineHandle, Timeline, Written, stored
from holdfast.store.names.background import Background, is_at_work
from holdfast.store.names.cause import acting
from holdfast.store.names.scope import Scope
from holdfast.store.state import State

AGENTS = 20_000
"""Agents that are watched at once; one that is left out is measured anew with its next write."""
TOGETHER = 256
"""Writes that are counted together, at most."""
LATEST = 0.02
"""Seconds after which they are, however few there are."""
AGAIN = 5.0
"""Seconds after which a checkpoint that could not be made is tried again."""
LONGEST = 30.0
"""Seconds between two looks of the thread, if nothing wakes it."""
_numbers = count()


@dataclass(frozen=True, slots=True)
class Triggered:
    """Whether a policy fires, which, and why."""

    triggered: bool
    policies: tuple[Policy, ...]
    """The one of the highest priority, or none."""
    reason: str
    event: PolicyEvent


def judged(ready: Sequence[Policy], event: PolicyEvent) -> Triggered:
    """What comes of the policies that are ready, the highest priority first."""
    if not ready:
        return Triggered(False, (), "No policies triggered", event)
    reason = f"Policy {ready[0].title} triggered by {event.type}"
    return Triggered(True, (ready[0],), reason, event)


class Engine(Gate):
    """The policies of one opened store at work."""

    def __init__(self, core: Core, defaults: tuple[Policy, ...], metrics: Collection[str]) -> None:
        self.core = core
        self.defaults = defaults
        self.metrics = metrics
        """Names of those that users record."""
        self.errors: deque[str] = deque(maxlen=100)
        self.fired: deque[tuple[Scope, Triggered]] = deque(maxlen=100)
        self._trackers: dict[str, Tracker] = {}
        """By the agents' ids: the hash of a text is known already."""
        self._noted: deque[tuple[Change, Sequence[Written]]] = deque()
        self._alarmed = False
        """The thread will come for what is noted."""
        self._lock = threading.RLock()  # of all of this; what renews a tracker takes it again
        self._asked: dict[str, Tracker] = {}
        """Agents for which something is to be done now: once for each, so memory is bounded."""
        self._alarms: list[tuple[float, int, Tracker]] = []
        self._turning = threading.Lock()
        """Held while something is done for agents."""
        self._background = Background(core, "holdfast-policies", LONGEST, self._turn)
        self._watching = self._stopping = False
        self._process = os.getpid()

    # behind every change

    def after(self, change: Change, written: Sequence[Written]) -> None:
        """Note what was written. Behind what is no operation on keys nothing is put off: it is
        told apart by the state being the one that it left."""
        noted = self._noted
        noted.append((change, written))
        much = len(noted) >= TOGETHER or change.targets[0].special is not None
        if much and self._lock.acquire(blocking=False):  # no write waits for a measurement
            try:
                self.catch_up()
            finally:
                self._lock.release()
        if not self._alarmed:  # woken by every write, the thread would take the writers' time
            self._alarmed = True
            self._background.wake()

    def catch_up(self) -> None:
        """Count what is noted, and have the thread look where a policy may be met."""
        noted = self._noted
        with self._lock:
            while noted:
                change, written = noted.popleft()
                try:
                    self._count(change, written)
                except Exception as error:  # no failure of theirs may fail a write
                    for one in written:
                        self._failed(one.scope, error)

    def _count(self, change: Change, written: Sequence[Written]) -> None:
        targets = change.targets
        for one in written:
            scope, timeline = one.scope, one.timeline
            if scope.kind != "agent" or timeline != "main" or one.repeated or not one.hash:
                continue
            target = next(t for t in targets if (t.scope, t.timeline) == (scope, timeline))
            tracker = self._trackers.get(scope.id)
            if tracker is None:
                tracker = self._begin(scope)
            elif target.special is not None:
                self._special(tracker, one)
            else:
                tracker.note(target.ops, one.sequence, one.ops)
            self._ask(tracker, WRITE)

    def _begin(self, scope: Scope) -> Tracker:
        if len(self._trackers) >= AGENTS:
            idle = (name for name, one in self._trackers.items() if not one.active)
            del self._trackers[next(idle, next(iter(self._trackers)))]
        tracker = self._trackers[scope.id] = Tracker(scope, self.core.clock.ticks)
        return tracker

    def _special(self, tracker: Tracker, one: Written) -> None:
        """A checkpoint begins a new count; what else is no operation on keys is measured anew."""
        if one.sequence <= tracker.sequence:
            return  # it was read already
        line = self._line(tracker.scope)
        known = not tracker.stale and one.sequence == tracker.sequence + 1
        if known and line is not None and line.sequence == line.checkpoint == one.sequence:
            tracker.metrics.begin(basis_now(line, self.core.clock.ticks()))
            tracker.sequence, tracker.active = one.sequence, False
        else:
            tracker.stale = True

    def _line(self, scope: Scope) -> Timeline | None:
        """The agent's timeline as this process has it."""
        ledger = self.core.known(scope)
        return self.core.timeline(ledger) if ledger is not None else None

    def _ask(self, tracker: Tracker, event: PolicyEvent) -> None:
        """Have the thread look at the policies of an agent when it comes."""
        tracker.event = event
        if self._watching:
            self._asked.setdefault(tracker.scope.id, tracker)

    # the thread

    def start(self) -> None:
        """Watch: see what is written, and let a thread do what comes of it."""
        self._watching = True
        self._background.start()
        self.core.gates.add(self)

    def stop(self) -> None:
        """Make the checkpoints that are on their way, forget the alarms, and end."""
        self.core.gates.remove(self)
        with self._lock:
            self._stopping = True
            self._alarms.clear()
        # A forked process has no such thread, and one that waits for itself waits for ever.
        if os.getpid() == self._process and not is_at_work(self._background):
            self.wait()
        self._background.stop()
        self._watching = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all that is due is done; False if that took too long."""
        end = time.monotonic() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        self.catch_up()
        while self._watching and not self.core.closed:
            with self._lock:
                due = self._alarms and self._alarms[0][0] <= self.core.clock.ticks()
                if not (due or self._asked or self._turning.locked()):
                    break
            if time.monotonic() > end:
                return False
            self._background.wake()
            time.sleep(0.001)
        return True

    def _at(self, tracker: Tracker, ticks: float) -> None:
        """Do something for an agent at a time of the store's monotonic clock, instead of before."""
        with self._lock:
            if self._stopping or not self._watching or tracker.alarm == ticks:
                return
            tracker.alarm = ticks
            heapq.heappush(self._alarms, (ticks, next(_numbers), tracker))
            if len(self._alarms) > 2 * len(self._trackers) + 64:  # of those that were set anew
                self._alarms = [one for one in self._alarms if one[2].alarm == one[0]]
                heapq.heapify(self._alarms)
            if self._alarms[0][0] == ticks:
                self._background.wake()

    def _turn(self) -> float:
        """Count what is noted, and do what is due; seconds until the next look."""
        with self._turning:
            # Said before it is counted: what is noted behind that is counted here, or wakes.
            self._alarmed = more = bool(self._noted)
            self.catch_up()
            while True:
                with self._lock:  # what is to be done now
                    while self._alarms and self._alarms[0][0] <= self.core.clock.ticks():
                        at, _, tracker = heapq.heappop(self._alarms)
                        if tracker.alarm == at:
                            tracker.alarm = NEVER
                            self._asked.setdefault(tracker.scope.id, tracker)
                    if not self._asked:
                        break
                    tracker = self._asked.pop(next(iter(self._asked)))
                self._step(tracker)
        with self._lock:
            left = self._alarms[0][0] - self.core.clock.ticks() if self._alarms else LONGEST
        return LATEST if more else min(max(left, 0.0), LONGEST)

    def _step(self, tracker: Tracker) -> None:
        """Look at the policies of an agent, and make the checkpoint that is due."""
        if self._trackers.get(tracker.scope.id) is not tracker:
            return
        self.catch_up()
        try:
            with self._lock:
                event, tracker.event = tracker.event, TIMER
                if self.core.clock.ticks() < tracker.rests:
                    return  # it is looked at when that is tried again
                if tracker.stale or event is TIMER:
                    self._renew(tracker)
                line = self._line(tracker.scope)
                ready = tracker.look(line, self.core.clock.ticks()) if line is not None else []
                if not ready and tracker.due < NEVER:
                    self._at(tracker, tracker.due)
            if ready and not switched_off():
                self._fire(tracker, ready, event)
        except BaseException as error:  # whatever it is, other agents are served
            self._failed(tracker.scope, error)

    def _failed(self, scope: Scope, error: BaseException) -> None:
        """Note what went wrong, and try again later: a policy never fails a write."""
        with self._lock:
            tracker = self._trackers.get(scope.id) if scope.kind == "agent" else None
            if tracker is not None:
                tracker.stale = True
        if self.core.closed:
            return
        self.errors.append(f"{scope}: {type(error).__name__}")
        # What is not of this package may show values.
        told = error if isinstance(error, HoldfastError) else type(error).__name__
        logging.getLogger("holdfast.policies").warning("%s: %s", scope, told)
        if tracker is not None:
            tracker.rests = self.core.clock.ticks() + AGAIN
            self._at(tracker, tracker.rests)

    def handle(self, scope: Scope) -> LineHandle:
        """The agent's timeline."""
        return LineHandle(self.core, scope, "main")

    def refresh(self, tracker: Tracker) -> None:
        """Read the agent's policies, and what happened since its last checkpoint.

        What is noted meanwhile is counted behind it: nobody counts while the lock is held.
        """
        handle = self.handle(tracker.scope)
        with self._lock:
            found = measure(handle)
            own = stored_policies(handle)  # behind it: one that was set meanwhile is among them
            tracker.follow(merged(self.defaults, own), own)
            same = found.basis.same(tracker.metrics.basis)
            tracker.active = (same and tracker.active) or bool(found.keys)
            tracker.metrics.begin(found.basis, found.keys, found.operations)
            tracker.remember(found.fired)
            tracker.sequence = found.head
            tracker.stale = False

    def tracked(self, scope: Scope) -> Tracker:
        """What is known of an agent, brought up to date; of one that is not watched, read anew."""
        self.catch_up()
        with self._lock:
            tracker = self._trackers.get(scope.id) or Tracker(scope, self.core.clock.ticks)
        self._renew(tracker)
        return tracker

    def _renew(self, tracker: Tracker) -> None:
        """Measure anew if that is needed: others may have written, and no gate told of it."""
        if tracker.stale or self.handle(tracker.scope).place()[2] > tracker.sequence:
            self.refresh(tracker)

    def ready(self, tracker: Tracker, given: Mapping[str, float] = NOTHING) -> list[Policy]:
        """Policies that would fire now, with metrics that are given; nothing comes of asking."""
        with self._lock:
            line, now = self._line(tracker.scope), self.core.clock.ticks()
            if line is None:
                return []
            tracker.metrics.settle(line)
            if not tracker.active and not given:
                return []
            found = [policy for policy in tracker.policies if tracker.met(policy, now, given)]
            return [policy for policy in found if now >= tracker.ready_at(policy, now)]

    # what is told

    def tell(self, scope: Scope, event: PolicyEvent, note: Callable[[Tracker], None]) -> None:
        """Note something that happened to an agent, and look at its policies."""
        self.catch_up()
        with self._lock:
            tracker = self._trackers.get(scope.id) or self._begin(scope)
        if tracker.stale:
            self.refresh(tracker)  # else it would not be known in which windows it counts
        with self._lock:
            note(tracker)
            tracker.active = True
            self._ask(tracker, event)
        self._background.wake()

    # firing

    def _fire(self, tracker: Tracker, ready: list[Policy], event: PolicyEvent) -> None:
        """Make a checkpoint, which covers what was written since, too."""
        result = judged(ready, event)
        with self._lock:
            wanted = self._wanted(tracker, ready[0], result)
        with acting("holdfast.policies", reason=result.reason):
            saved = save_all(self.core, [wanted])[0]
        if saved.error is not None:
            raise saved.error
        if saved.outcome == "saved":
            self._note(tracker, ready, result)
            return
        with self._lock:  # somebody was faster, or the agent is gone
            tracker.active &= saved.outcome == "overtaken"  # unless it was seen and counted
            tracker.stale = True
            if not self._stopping:  # else it would go on for as long as others write
                self._ask(tracker, event)

    def scheduled(self, scope: Scope, id_: str) -> tuple[Wanted, Callable[[], None]] | Saved:
        """What comes of a policy when its schedule is due: its checkpoint and what to do behind
        it, or why there is none."""
        tracker = self.tracked(scope)
        with self._lock:
            line, now = self._line(scope), self.core.clock.ticks()
            policy = next((one for one in tracker.policies if one.id == id_), None)
            if line is None or policy is None:
                return Saved("absent")
            tracker.metrics.settle(line)
            if not tracker.active:
                return Saved("unchanged", head=(line.prefix, tracker.sequence))
            again = tracker.waits(policy, now)
            if again is None or again > 0:
                head = (line.prefix, tracker.sequence) if again is None else None
                return Saved("unmet", head=head, again=again)
            ready = self.ready(tracker)
            ready = [one for one in tracker.policies if one is policy or one in ready]
            result = judged(ready, TIMER)
            wanted = self._wanted(tracker, ready[0], result)
            return wanted, partial(self._note, tracker, ready, result)

    def _note(self, tracker: Tracker, ready: list[Policy], result: Triggered) -> None:
        with self._lock:
            tracker.fired(ready, self.core.clock.ticks())
            self.fired.append((tracker.scope, result))

    def _wanted(self, tracker: Tracker, policy: Policy, result: Triggered) -> Wanted:
        """The checkpoint that a policy asks for, behind the one that it was judged by."""
        now = self.core.clock.ticks()
        read = tracker.metrics.read
        readings = [{"condition": str(one), "value": read(one, now)} for one in policy.conditions]
        about: dict[str, Any] = {
            "trigger": result.event.type,
            "policy": policy.id,
            "reason": result.reason,
            "readings": readings,
            "priority": policy.priority,
            "retention": policy.retention.kept(),
        }
        if policy.compression is not None:
            squeezed = policy.compression
            about["compression"] = squeezed.algorithm if squeezed.enabled else "none"
        # A default one demands nothing: who is asked for a plain export may say that it is wanted.
        if policy.id in tracker.own and policy.demands_encryption:
            about["encryption"] = CIPHER
        if result.event.name:
            about["event"] = result.event.name
        made_by = (MADE_BY + policy.id,)
        return Wanted(
            tracker.scope,
            "main",
            "",
            policy.type,
            about,
            tags=made_by,
            description=result.reason,
            behind=tracker.metrics.basis.checkpoint,
        )


def policy_book(handle: LineHandle) -> Book[PolicyRecord]:
    """An agent's own policies as they are kept, by their ids."""
    return Book(State(handle), POLICIES, PolicyRecord)


def stored_policies(handle: LineHandle) -> dict[str, Policy]:
    """An agent's own policies by their ids; one that cannot be used is left out."""
    found: dict[str, Policy] = {}
    for id_, record in policy_book(handle).all(plain=True).items():
        with suppress(PolicyValidationError):  # of a newer version: `list` shows the others
            found[id_] = Policy.of(stored(record))
    return found
