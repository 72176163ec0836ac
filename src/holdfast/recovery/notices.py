"""Telling dependent systems of recoveries, each exactly once.

Every recovery that ends, well or not, adds a notice to one list, in the change that ends it. A
consumer keeps how far it has read in its own state, in the same change as what it does with a
notice: a crash in between does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.recovery.failures import PREFIX
from holdfast.recovery.records import NOTICES, notices_scope
from holdfast.store.inner import StoreHandle, again, handle_of, own_change, run_parts
from holdfast.store.names.arguments import check_text
from holdfast.store.names.threads import called
from holdfast.store.state import State

CURSOR = PREFIX + "cursor/"
"""How many notices of the list a consumer has read."""
HAD = PREFIX + "read/"
"""The name of the last of them."""
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


def deliver(
    store: StoreHandle, state: State, consumer: str, function: Callable[[Any, RecoveryNotice], Any]
) -> int:
    """Give a consumer each notice that it has not had; how many there were.

    `function` gets a change of the consumer's state and the notice. What it writes there is
    committed together with the note that the notice was had.
    """
    check_text(consumer, "the name of a consumer", 100, least=1)
    count = 0
    while True:
        at, since = _place(store, state, consumer)
        page = notices(store, since)
        if not page:
            return count
        for one in page:
            if not again(partial(_hand_over, state, consumer, function, one, at)):
                break  # another process of this consumer was faster
            at = one.number + 1
            count += 1


def _place(store: StoreHandle, state: State, consumer: str) -> tuple[int, int]:
    """How far a consumer has read, as it noted that, and the number of the next notice for it.

    Damage may have taken notices from the list, so that the last it had bears another number, or
    is gone: then those of recoveries that began later are next.
    """
    at, last = int(state.get(CURSOR + consumer, 0)), state.get(HAD + consumer)
    if last is None or [_name(one) for one in notices(store, at - 1, 1)] == [last]:
        return at, at
    every = notices(store, 0, store.line(notices_scope()).reader.length(NOTICES))
    return at, max((one.number + 1 for one in every if _name(one) <= last), default=0)


def _hand_over(
    state: State,
    consumer: str,
    function: Callable[[Any, RecoveryNotice], Any],
    one: RecoveryNotice,
    at: int,
) -> bool:
    """Give a notice to a function, and note that all is read up to it; False if another did."""
    parts = own_change(state, reason=f"notice of recovery {one.recovery}")
    part = parts.part(handle_of(state))
    if int(part.get(CURSOR + consumer) or 0) != at:
        return False
    called(function, part, one)
    part.set(CURSOR + consumer, one.number + 1)
    part.set(HAD + consumer, _name(one))
    return run_parts(parts)


def _name(one: RecoveryNotice) -> list[str]:
    """What a notice is known by: a recovery of a group has one for each agent, in their order."""
    return [one.recovery, one.agent]
