"""Entries at the end of an agent's timelines that the feed names and that are not here any more.

Nothing in what is left of a timeline shows that its newest entries were dropped (`store.losses`).
So the feed is asked before a recovery writes anything. One that succeeds lets the timeline tell
itself what is lost, under a signature: then it is not reported again, and `verify` lists it as
known.
"""

from __future__ import annotations

from holdfast.checkpoints.create import make
from holdfast.checkpoints.request import CheckpointRequest
from holdfast.errors import ScopeNotFoundError, StateIntegrityError
from holdfast.recovery.failures import DAMAGED, AgentFailure, log
from holdfast.recovery.records import Tail
from holdfast.store.inner import (
    CHECKPOINT,
    FeedHeads,
    Finding,
    Ledger,
    LineHandle,
    Loss,
    StoreHandle,
    find_loss,
    loss_text,
    newest_entry,
    numbered,
    tell,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.scope import Scope

MAIN = "main"
NEWEST_ROWS = 1000
"""Of each lane of the feed, that are asked when nothing speaks for damage."""


class Tails:
    """Finds lost tails in one store."""

    def __init__(self, store: StoreHandle) -> None:
        self._store = store
        self._feed = FeedHeads(store.core.storage)

    def look(self, depth: int | None) -> None:
        """Read the feed for what `lost` is asked about next."""
        self._feed.look(depth)

    def lost(self, scope: Scope, depth: int | None = None, *, looked: bool = False) -> Tail | None:
        """What is lost at the end of a scope's timelines, and no entry of them tells of.

        With `depth`, only so many of the newest rows of each lane of the feed are asked whether
        there is anything; so what others have written over since may stay unnoticed. With `looked`
        it goes by the last look.
        """
        core = self._store.core
        found: Tail = {}
        try:
            if not looked:
                self.look(depth)  # first: all that it names is there
            ledger = self._store.line(scope).history.points.line().ledger
            for number, name, _, _ in core.timelines(ledger):
                lost = self._lost(ledger, number)
                found |= {name: [lost.first, lost.last]} if lost is not None else {}
        except (ScopeNotFoundError, StateIntegrityError):
            # Nothing of it can be compared with the feed.
            return None
        return found or None

    def _lost(self, ledger: Ledger, number: int) -> Loss | None:
        if self._named(ledger, number) <= newest_entry(ledger, number):
            return None
        return find_loss(self._store.core, ledger, number)

    def _named(self, ledger: Ledger, number: int) -> int:
        """How many entries of a timeline the feed names; by a part of it, the newest of them."""
        newest, count = self._feed.named(ledger.number, number)
        return newest if count is None else ledger.before + count

    def unlisted(self) -> set[int]:
        """Numbers of scopes that the feed names and the directory does not, as far as it can be
        read."""
        self.look(None)  # first: the directory has all that it names
        return self._feed.scopes() - {number for number, _ in numbered(self._store.core)}

    def findings(self, scope: Scope, tail: Tail) -> list[Finding]:
        """A lost tail as `verify` would tell of it."""
        ledger = self._store.line(scope).history.points.line().ledger
        numbers, found = self._store.core.names(ledger), []
        for name, lost in tail.items():
            key = rowkinds.entry(rowkinds.line(b"E", ledger.number, numbers[name]), lost[0])
            what = tail_text({name: lost})
            found.append(Finding("feed", rowkinds.describe(key), what, str(scope), (), key.hex()))
        return found


def tell_tail(handle: LineHandle, tail: Tail, recovery: str) -> None:
    """Let timelines tell what they lost, and sign that; done again, it does what is left of it."""
    for timeline in tail:
        _tell(handle.on(timeline), recovery)


def _tell(handle: LineHandle, recovery: str) -> None:
    name = f"losses of recovery {recovery}"
    try:
        if tell(handle, f"recovery {recovery}") is not None or not _has_checkpoint(handle, name):
            make(handle, CheckpointRequest(name, "recovery"))
    except StateIntegrityError:  # then `verify` goes on telling of it
        log.warning("%s: what it lost cannot be noted", handle.scope, exc_info=True)


def _has_checkpoint(handle: LineHandle, name: str) -> bool:
    found = handle.history.points.statements()
    return any(op[:2] == [CHECKPOINT, name] for *_, body in found for op in body.ops)


def depth_for(failure: AgentFailure) -> int | None:
    """How much of the feed is asked: all of it if something speaks for damage."""
    return None if failure.kind in DAMAGED else NEWEST_ROWS


def tail_text(tail: Tail) -> str:
    """What is lost, for people."""
    texts = [(loss_text(*lost), name) for name, lost in tail.items()]
    return "; ".join(text + f", of timeline {name}" * (name != MAIN) for text, name in texts)
