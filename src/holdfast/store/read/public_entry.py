"""Entries as users see them: names in place of numbers, and no values."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.commit.core import Core
from holdfast.store.journal import entry
from holdfast.store.journal.entry import Body, Envelope
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names import rowkinds
from holdfast.store.names.cause import Cause
from holdfast.store.names.items import Entry, Position
from holdfast.store.names.scope import Scope
from holdfast.store.read.reader import moment
from holdfast.store.rules.lookup import derived

NO_CAUSE = Cause()
DELETED, ENDED = "deleted", "?"
"""What stands for the name of a scope, and of a timeline, that is there no longer."""


def public_entry(
    core: Core,
    ledger: Ledger,
    timeline: str,
    key: bytes,
    envelope: Envelope,
    body: Body,
    position: Position | None = None,
) -> Entry:
    """An entry for people."""
    return Entry(
        ledger.scope,
        timeline,
        rowkinds.sequence_of(key),
        moment(body.time),
        tuple(pair for pair in entry.shown(body.ops) if not derived(pair[1])),
        body.cause or NO_CAUSE,
        ledger.entry_hash(key, envelope.data).hex(),
        body.change,
        _place_names(core, body.also) if body.also else (),
        body.step,
        _point_of(core, ledger, body),
        position,
    )


def _point_of(core: Core, ledger: Ledger, body: Body) -> str:
    for op in body.ops:
        if op[0] in (entry.RESTORE, entry.FORK, entry.MERGE):
            return f"{core.numbers.timeline(ledger, op[1]) or '?'}@{op[2]}"
    return ""


def _place_names(
    core: Core, places: Sequence[tuple[int, int, int]]
) -> tuple[tuple[str, str, int], ...]:
    """(scope, timeline, sequence) with names for numbers, where they are still known."""
    names = core.numbers.scopes(number for number, _, _ in places)
    found = []
    for number, line, sequence in places:
        scope, name = names.get(number), None if line else "main"
        if scope is not None and name is None:
            ledger = core.known(Scope.parse(scope))
            if ledger is not None and ledger.number == number:
                name = core.numbers.timeline(ledger, line)
        found.append((scope or DELETED, name or ENDED, sequence))
    return tuple(found)
