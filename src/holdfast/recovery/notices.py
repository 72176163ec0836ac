"""Telling dependent systems of recoveries, each exactly once.

Every recovery that ends, well or not, adds a notice to one list, in the change that ends it. A
consumer keeps how far it has read in its own state, in the same change as what it does with a
notice: a crash in between does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.agents.keys import own_change
from holdfast.agents.retrying import again
from holdfast.recovery.background import called
from holdfast.recovery.records import NOTICES, PREFIX, notices_scope
from holdfast.store.arguments import check_text
from holdfast.store.blocking import State
from holdfast.store.handles import StoreHandle

CURSOR = PREFIX + "cursor/"
PAGE = 100


@dataclass(frozen=True, slots=True)
class Notice:
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


def notices(store: StoreHandle, since: int = 0, limit: int = PAGE) -> list[Notice]:
    """Notices from a number on."""
    reader = store.line(notices_scope()).reader
    found: list[Mapping[str, Any]] = reader.slice(NOTICES, since, since + limit, False)
    return [Notice(since + n, **one) for n, one in enumerate(found)]


def deliver(
    store: StoreHandle, state: State, consumer: str, function: Callable[[Any, Notice], Any]
) -> int:
    """Give a consumer each notice that it has not had; how many there were.

    `function` gets a change of the consumer's state and the notice. What it writes there is
    committed together with the note that the notice was had.
    """
    check_text(consumer, "the name of a consumer", 100, least=1)
    key = CURSOR + consumer
    count = 0
    while True:
        page = notices(store, int(state.get(key, 0)))
        for notice in page:
            count += _hand_over(state, key, function, notice)
        if len(page) < PAGE:
            return count


def _hand_over(state: State, key: str, function: Callable[[Any, Notice], Any], one: Notice) -> bool:
    def step() -> bool:
        parts = own_change(state, reason=f"notice of recovery {one.recovery}")
        part = parts.part(state._handle)
        if (part.get(key) or 0) > one.number:
            return False  # another process of this consumer was faster
        called(function, part, one)
        part.set(key, one.number + 1)
        plan = parts.plan()
        assert plan is not None
        state._run(plan)
        return True

    return again(step)
