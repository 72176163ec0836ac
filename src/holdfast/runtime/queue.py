"""A queue of items in a state: pushed at the end, taken from the front, each by one taker.

queue = Queue(store.custom("work"), "mail")
queue.push({"to": "ann"})
for item in queue.pop(10): ...
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

from holdfast.runtime.runtime_records import QUEUES
from holdfast.store.inner import ChangeParts, check_ttl, handle_of, own_step
from holdfast.store.names.arguments import check_count, check_face, check_name
from holdfast.store.names.face import faced, here, writes
from holdfast.store.state import State

HOUR = 3600.0


@faced
class Queue:
    """A named queue of one state. Any number of threads and processes may push and pop.

    An item is lost by nothing but its end: after `ttl` seconds (an hour unless you say otherwise;
    None: never) it is passed over. Who pops an item and crashes has it no more: use `Requests`, or
    a `Mailbox`, where work must not get lost. It is state: a restore brings back what was in it.
    """

    def __init__(self, state: State, name: str) -> None:
        check_face(state, State, "Queue")
        check_name(name, "the name of a queue")
        self.name = name
        self._state = state
        self._handle = handle_of(state)
        keys = (f"{QUEUES.prefix}{name}/{one}" for one in ("items", "popped", "ends"))
        self._items, self._popped, self._ends = keys
        self._taking = threading.Lock()  # threads that pop at once would only conflict

    @here
    def named(self, name: str) -> Queue:
        """Another queue of the same state; it is there with the first item."""
        return Queue(self._state, name)

    @writes
    def push(self, *items: Any, ttl: float | timedelta | None = HOUR) -> int:
        """Put items at the end, in one change; returns how many there are, expired ones included.

        `ttl` is seconds, or a timedelta; None: for ever.
        """
        if items:
            clock = self._handle.core.clock
            until = (clock.checked() + check_ttl(ttl)) / 1e6 if ttl is not None else None
            kept = [{"item": one, "until": until} for one in items]
            own_step(self._handle, lambda parts: parts.part(self._handle).extend(self._items, kept))
        return self._handle.reader.length(self._items)

    @writes
    def pop(self, count: int = 1) -> list[Any]:
        """Take items from the front, the oldest first, fewer if there are no more."""
        check_count(count, "count")

        def note(parts: ChangeParts) -> list[Any]:
            # Who else takes from the front changes this number, and what lets the whole list end
            # goes with it: only then is the front another one. Pushing goes on meanwhile.
            part = parts.part(self._handle)
            popped = part.get(self._popped, 0)
            part.exists(self._ends)
            found, passed = self._front(count)
            if passed:
                part.trim(self._items, before=passed)
                part.set(self._popped, popped + passed)
            return found

        with self._taking:  # threads of one process would only be in each other's way
            return own_step(self._handle, note) if count else []

    def peek(self, count: int = 1) -> list[Any]:
        """The items at the front, which stay there: another may have them when you pop."""
        check_count(count, "count")
        return self._front(count)[0]

    def items(self) -> list[Any]:
        """All items that have not expired, the oldest first."""
        return self.peek(self._handle.reader.length(self._items))

    @writes
    def delete(self) -> int:
        """Remove all items; tells how many there were, expired ones included."""

        def note(parts: ChangeParts) -> int:
            part = parts.part(self._handle)
            there = part.length(self._items)
            part.delete(self._items)
            part.set(self._popped, part.get(self._popped, 0) + there)
            return there

        return own_step(self._handle, note)

    @writes
    def expire(self, ttl: float | timedelta) -> None:
        """Let all that is there, and what is pushed until then, end after some time."""
        check_ttl(ttl)

        def note(parts: ChangeParts) -> None:
            part = parts.part(self._handle)
            part.expire(self._items, ttl)
            part.set(self._ends, True, ttl=ttl)
            part.set(self._popped, part.get(self._popped, 0))  # who pops just now looks again

        own_step(self._handle, note)

    def _front(self, count: int) -> tuple[list[Any], int]:
        """Items from the front on, and how many were looked at: expired ones are passed over."""
        reader, now, start = self._handle.reader, self._handle.core.clock.checked() / 1e6, 0
        found: list[Any] = []
        while len(found) < count and (page := reader.slice(self._items, start, start + 100, False)):
            for one in page:
                start += 1
                if one["until"] is None or one["until"] > now:
                    found.append(one["item"])
                    if len(found) == count:
                        break
        return found, start
