"""Entries as users see them: names in place of numbers, and no values."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store import entries, rows
from holdfast.store.core import Core
from holdfast.store.entries import Body, Cause, Envelope
from holdfast.store.items import Entry, Position
from holdfast.store.ledger import Ledger
from holdfast.store.lookups import derived
from holdfast.store.reading import moment

NO_CAUSE = Cause()


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
        rows.sequence_of(key),
        moment(body.time),
        tuple(pair for pair in entries.shown(body.ops) if not derived(pair[1])),
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
        if op[0] in (entries.RESTORE, entries.FORK, entries.MERGE):
            names = {n: name for n, name, _, _ in core.timelines(ledger)} if op[1] else {0: "main"}
            return f"{names.get(op[1], '?')}@{op[2]}"
    return ""


def _place_names(
    core: Core, places: Sequence[tuple[int, int, int]]
) -> tuple[tuple[str, str, int], ...]:
    """(scope, timeline, sequence) with names for numbers, where they are still known."""
    names = {number: scope for scope, number, _, _ in core.scopes()}
    found = []
    for number, line, sequence in places:
        scope = names.get(number)
        lines = core.timelines(core.ledger(scope)) if scope and line else []
        name = next((n for t, n, _, _ in lines if t == line), "main" if not line else "?")
        found.append((str(scope) if scope else "deleted", name, sequence))
    return tuple(found)
