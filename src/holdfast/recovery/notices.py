"""Telling dependent systems of recoveries, each exactly once.

Every recovery that ends, well or not, adds a notice to one list, in the change that ends it. A
consumer keeps how far it has read in its own state, in the same change as what it does with a
notice: a crash in between does neither.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.agents.agent_keys import again, own_change
from holdfast.recovery.failures import AgentFailure
from holdfast.recovery.records import (
    GROUPS,
    NOTICES,
    PREFIX,
    RUNNING,
    Records,
    notice_of,
    notices_scope,
    recovered_agents,
)
from holdfast.store.inner import ChangeParts, StoreHandle, handle_of
from holdfast.store.names.arguments import check_text
from holdfast.store.names.cause import cause_now
from holdfast.store.names.threads import called
from holdfast.store.state import State

CURSOR = PREFIX + "cursor/"
"""How many notices of the list a consumer has read."""
HAD = PREFIX + "had/"
"""The marks of those that it was given."""
PAGE = 100


@dataclass(frozen=True, slots=True)
class RecoveryNotice:
    """The end of a recovery."""

    number: int
    agent: str
    recovery: str
    failure: str
    severity: str
    status: str
    """succeeded, rolled_back or failed"""
    message: str = ""
    """What the procedure's step `notify_systems` had to say besides."""


def notices(store: StoreHandle, since: int = 0, limit: int = PAGE) -> list[RecoveryNotice]:
    """Notices from a number on."""
    reader = store.line(notices_scope()).reader
    found: list[Mapping[str, Any]] = reader.slice(NOTICES, since, since + limit, False)
    return [RecoveryNotice(since + n, **one) for n, one in enumerate(found)]


def make_up(store: StoreHandle) -> int:
    """Add the notices of recoveries that ended which the list lacks; how many those were.

    It was damaged when they ended, or lost them since.
    """
    ended = _ended(store)  # before the list: whatever had its notice by then is found in it

    def step() -> int:
        parts = ChangeParts(store, cause_now(), None, owner=True)
        part = parts.part(store.line(notices_scope()))
        there = {(one["recovery"], one["agent"]) for one in part.get(NOTICES) or ()}
        missing = [one for one in ended if (one["recovery"], one["agent"]) not in there]
        if missing:
            part.extend(NOTICES, missing)
            plan = parts.plan()
            assert plan is not None
            store.core.run(plan[0])
        return len(missing)

    return again(step)


def _ended(store: StoreHandle) -> list[dict[str, Any]]:
    """The notices of all recoveries that ended, as far as their records can be read."""
    found: list[tuple[Any, dict[str, Any]]] = []
    for agent in recovered_agents(store):
        for record in Records(store, agent).all():
            if record.status != RUNNING:
                found.append((record.data["finished_at"], record.notice()))
    for key, data in store.line(notices_scope()).reader.items(GROUPS, None, "", False):
        if data["status"] != RUNNING:
            failure, id_ = AgentFailure.of(data["failure"]), key[len(GROUPS) :]
            told = (notice_of(one, id_, failure, data["status"]) for one in data["agents"])
            found += [(data["finished_at"], one) for one in told]
    return [notice for _, notice in sorted(found, key=lambda one: one[0])]


def deliver(
    store: StoreHandle, state: State, consumer: str, function: Callable[[Any, RecoveryNotice], Any]
) -> int:
    """Give a consumer each notice that it has not had; how many there were.

    `function` gets a change of the consumer's state and the notice. What it writes there is
    committed together with the note that the notice was had.
    """
    check_text(consumer, "the name of a consumer", 100, least=1)
    reading = _Reading(store, state, consumer, function)
    while reading.page():
        pass
    return reading.count


class _Reading:
    """How far a consumer has read, and what it has had.

    The list may have lost notices and got them again, at its end. So a number alone does not say
    what was had: a mark of each notice is kept, too, that of the last one read at the end.
    """

    def __init__(
        self,
        store: StoreHandle,
        state: State,
        consumer: str,
        function: Callable[[Any, RecoveryNotice], Any],
    ) -> None:
        self._store = store
        self._state = state
        self._cursor = CURSOR + consumer
        self._had = HAD + consumer
        self._function = function
        self.count = 0

    def page(self) -> bool:
        """Read on; whether there may be more."""
        at = since = int(self._state.get(self._cursor, 0))
        if since and self._moved(since):
            make_up(self._store)
            since = 0
        had: set[str] = set()
        if self._state.length(self._had) > since:
            had.update(self._state.get(self._had, ()))
        found = notices(self._store, since)
        passed: RecoveryNotice | None = None
        for one in found:
            passed = one if _mark(one) in had else None
            if passed is None:
                if not self._hand_over(one, at, self._function):
                    return True
                at = one.number + 1
                self.count += 1
        if passed is not None and not self._hand_over(passed, at, None):
            return True
        return len(found) == PAGE

    def _moved(self, since: int) -> bool:
        """Whether the list is another than the one that was read."""
        last = self._state.tail(self._had, 1)
        return bool(last) and last != [_mark(one) for one in notices(self._store, since - 1, 1)]

    def _hand_over(
        self, one: RecoveryNotice, at: int, function: Callable[[Any, RecoveryNotice], Any] | None
    ) -> bool:
        """Give a notice to a function, if it is not passed over, and note that all is read up to
        it; False if another process of this consumer was faster."""

        def step() -> bool:
            parts = own_change(self._state, reason=f"notice of recovery {one.recovery}")
            part = parts.part(handle_of(self._state))
            if int(part.get(self._cursor) or 0) != at:
                return False
            if function is not None:
                called(function, part, one)
            part.set(self._cursor, one.number + 1)
            part.append(self._had, _mark(one))
            plan = parts.plan()
            assert plan is not None
            self._state._run(plan)
            return True

        return again(step)


def _mark(one: RecoveryNotice) -> str:
    """What stands for a notice: a recovery of a group has one for each agent."""
    return hashlib.sha256(f"{one.recovery} {one.agent}".encode("utf-8", "replace")).hexdigest()[:24]
