"""Entries at the end of an agent's timeline that the feed names and that are not here any more.

Nothing in what is left of a timeline shows that its newest entries were dropped: all of it can be
read, and the next write takes the number of a lost one. Only the feed still knows; so it is asked
before a recovery writes anything. What a recovery has reported as lost is noted, and is not
reported again.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.errors import ScopeNotFoundError, StateIntegrityError
from holdfast.recovery.failures import DAMAGED, Failure
from holdfast.recovery.records import LOST_TAIL, scope_of
from holdfast.store import rows
from holdfast.store.feed_heads import FeedHeads
from holdfast.store.handles import StoreHandle
from holdfast.store.scopes import Scope
from holdfast.store.verify_report import Finding

Tail = tuple[int, int]
"""The first and the last of the entries that are lost."""
NEWEST_ROWS = 1000
"""Of each lane of the feed, that are asked when nothing speaks for damage."""


class Tails:
    """Finds lost tails in one store."""

    def __init__(self, store: StoreHandle) -> None:
        self._store = store
        self._feed = FeedHeads(store.core.storage)

    def lost(self, scope: Scope, depth: int | None = None) -> Tail | None:
        """What is lost at the end of a scope's main timeline, and no recovery has told of.

        With `depth`, only so many of the newest rows of each lane of the feed are asked.
        """
        handle = self._store.line(scope)
        try:
            number = handle.history.points.line().ledger.number
            named = self._feed.newest(number, 0, depth)  # first: what it names is there
            head = handle.place()[2]
            if named <= head or named <= self._told(scope):
                return None
        except (ScopeNotFoundError, StateIntegrityError):
            return None
        return head + 1, named

    def _told(self, scope: Scope) -> int:
        with suppress(StateIntegrityError):
            return int(self._store.line(scope_of(scope)).reader.get(LOST_TAIL, 0, None, False))
        return 0

    def finding(self, scope: Scope, tail: Tail) -> Finding:
        """A lost tail as `verify` would tell of it."""
        key = rows.entry(self._store.line(scope).history.points.line().prefix, tail[0])
        return Finding("feed", rows.describe(key), tail_text(tail), str(scope), (), key.hex())


def depth_for(failure: Failure) -> int | None:
    """How much of the feed is asked: all of it if something speaks for damage."""
    return None if failure.kind in DAMAGED else NEWEST_ROWS


def tail_text(tail: Tail) -> str:
    """What is lost, for people."""
    first, last = tail
    if first == last:
        return f"entry {first}, which the feed names"
    return f"entries {first} to {last}, which the feed names"
