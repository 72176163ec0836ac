"""Rows that can be made again without a copy, since what they hold follows from what else is there.

The row of a correlation is empty. The row of the timeline `main` is the same in every scope. That
of another timeline says where it starts, as its first entry does, and its name, which stands
nowhere else: so it is made only for who asks for it, under a name that says so.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.errors import HoldfastError
from holdfast.store.commit.core import Core
from holdfast.store.journal.ledger import Ledger
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.scope import Scope
from holdfast.store.proof.verify_timelines import begun_at, readable_timelines

_encode = msgspec.msgpack.Encoder().encode


def ledgers_of(core: Core, scope: Scope) -> dict[int, Ledger]:
    """The scopes that have, or had, a name, by their numbers, as far as the directory tells."""
    prefix = b"D" + core.tag(b"directory", str(scope))
    found: dict[int, Ledger] = {}
    for key, row in core.storage.scan(prefix, rows.after(prefix)):
        try:
            if rows.state_of(key) == rows.THERE:
                ledger = core.ledger_of(key, row)
                found[ledger.number] = ledger
        except (HoldfastError, ValueError):
            continue  # damaged, which is found with the directory, or erased
    return found


def standing(core: Core, scope: Scope) -> list[bytes]:
    """Rows that must be absent still when something is put back into a scope: it is not erased
    since, and what was sealed, or opened, was so under the newest data key."""
    found = ledgers_of(core, scope).values()
    return [key for ledger in found for key in (ledger.tombstone, ledger.next_epoch())]


def made_again(
    core: Core, scope: Scope, keys: Iterable[bytes], *, rename: bool
) -> dict[bytes, bytes]:
    """Those of a scope's damaged or missing rows that can be made again; with `rename` timelines
    other than main, too, under another name."""
    found = {key: b"" for key in keys if key[:1] == b"R" and len(key) == rows.CORRELATION}
    lines = [key for key in keys if key[:1] == b"T" and (rename or not rows.line_of(key))]
    ledgers = ledgers_of(core, scope) if lines else {}
    for key in lines:
        ledger = ledgers.get(rows.scope_of(key))
        content = _line(core, ledger, rows.line_of(key)) if ledger is not None else None
        if ledger is not None and content is not None:
            found[key] = ledger.seal_row(key, _encode(content), ledger.commit_line)
    return found


def _line(core: Core, ledger: Ledger, number: int) -> tuple[object, ...] | None:
    """What the row of a timeline says; None if the entry that began it cannot be read."""
    begun = begun_at(ledger, number)
    if begun is None or not number:
        return begun
    taken = set(readable_timelines(core, ledger).values())
    name = new_name(number)
    while name in taken:
        name += "-again"
    return (name, *begun)


def new_name(number: int) -> str:
    """What a timeline is called whose name is lost."""
    return f"timeline-{number}"


def name_lost(core: Core, scope: Scope, key: bytes) -> str:
    """What is lost with the row of a timeline that was made again, for people."""
    ledger = ledgers_of(core, scope).get(rows.scope_of(key))
    name = readable_timelines(core, ledger).get(rows.line_of(key)) if ledger is not None else None
    return f"the name of timeline {rows.line_of(key)}, which is called {name!r} now"
