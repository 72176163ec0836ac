"""What others did to an agent while it was being recovered, and whether it is as it was before.

Whatever a recovery writes names it as its correlation. So an entry behind the newest one of before
that does not, or that a check wrote, is of somebody else: nothing is undone over it, and a recovery
that was killed is not taken up again over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from holdfast.checkpoints.locate import Lineage
from holdfast.errors import PrunedError, StateIntegrityError
from holdfast.recovery.records import ID, correlation_of
from holdfast.storage.rows import each
from holdfast.store.inner import (
    KEYED,
    MERGE,
    READ,
    RESTORE,
    SWEPT,
    LineHandle,
    Timeline,
    derived,
    index_of,
    sticky_prefixes,
    tree_changes,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.cause import Cause
from holdfast.store.names.items import Entry
from holdfast.store.names.scope import RESERVED

CHECK = "check"
"""The component that checks act as: they are to look, and what they write is not the recovery's."""
ACTOR = "recovery"
"""Who a recovery acts as."""
NOTHING = "nothing"
"""What is lost if nothing is."""
SHOWN = 10
"""Names that a text gives."""
_BY_TIME = {READ: ("expire",), SWEPT: ("delete",)}
"""What is written as time passes, by why it is."""
WHOLE = frozenset(("restore", "merge"))
"""What changes a state without naming keys."""


def maker_of(cause: Cause | None) -> str:
    """The recovery, of an agent or of a group, that made an entry; empty if none did.

    A program may choose correlations that look like theirs: so who acted counts, too.
    """
    if cause is None or cause.actor != ACTOR:
        return ""
    id_ = (cause.correlation or "").removeprefix(correlation_of(""))
    return id_ if ID.fullmatch(id_) else ""


def of_others(handle: LineHandle, recovery: str, head: int) -> Iterator[Entry]:
    """Changes behind an entry that a recovery did not make, the newest first.

    Those that cannot be read, and what lies below them, are left out, and what nobody did: keys
    that expired, or slid because they were read.
    """
    ours, history = correlation_of(recovery), handle.history
    with suppress(StateIntegrityError):  # what lies below damage is not known
        for key, envelope, body in history.entries(low=head + 1):
            entry = history.entry(key, envelope, body)
            cause = entry.cause
            own = ours in (cause.correlation, cause.parent) and cause.component != CHECK
            changes = entry.keys or WHOLE & set(entry.kinds)
            if changes and not own and entry.kinds != _BY_TIME.get(cause):
                yield entry


def first_of_others(handle: LineHandle, recovery: str, head: int | None) -> Entry | None:
    """The newest change of others behind an entry that a restore would take back; None if there is
    none, or none is known. What is sticky, such as letters that came, stands in nobody's way."""
    if head is None:
        return None
    sticky: tuple[str, ...] = ()
    with suppress(StateIntegrityError):  # unknown: then every write counts
        sticky = sticky_prefixes(handle.reader.declared())
    for entry in of_others(handle, recovery, head):
        stays = entry.keys and all(derived(key) or key.startswith(sticky) for key in entry.keys)
        if not stays:
            return entry
    return None


def changed_since(handle: LineHandle, head: int) -> list[str]:
    """Keys that differ from the state at an entry, without those that no restore takes back."""
    if handle.place()[2] == head:
        return []
    then, now = handle.history.points.view(handle.timeline, head), handle.reader.now()
    assert now is not None
    # What was declared since, by a step of a user's own perhaps, does not excuse that it differs;
    # parts of this library declare what has happened in the world with the first of it.
    since = [one for one in sticky_prefixes(handle.reader.declared()) if one.startswith(RESERVED)]
    sticky = (*sticky_prefixes(then.declared), *since)
    return [
        key
        for key, _, _ in tree_changes(then.ledger.trees, index_of(then), index_of(now))
        if not derived(key) and not key.startswith(sticky)
    ]


def changes_after(handle: LineHandle, sequence: int, head: int) -> int:
    """How many entries behind one, up to another, changed what going back takes away.

    Not those of recoveries, of checkpoints, and of what a restore had left before; nor those whose
    keys are all sticky, if those stay. What cannot be read may have changed something.
    """
    if sequence >= head:
        return 0
    line, known = handle.history.points.line(), Lineage(handle, head)
    try:
        declared = handle.reader.declared()
    except StateIntegrityError:  # of the newest state; the point is whole
        declared = handle.view(sequence).reader.declared()
    stay = sticky_prefixes(declared)
    count = 0
    for key, row in entry_rows(line, sequence + 1, head):
        if rowkinds.sequence_of(key) in known:
            try:
                body = line.ledger.open_entry(key, row)[1]
            except (PrunedError, StateIntegrityError):  # it may have changed something
                count += 1
                continue
            keys = [op[1] for op in body.ops if op[0] in KEYED]
            count += not maker_of(body.cause) and (
                any(not derived(key) and not key.startswith(stay) for key in keys)
                or any(op[0] in (RESTORE, MERGE) for op in body.ops)
            )
    return count


def entry_rows(line: Timeline, first: int, last: int) -> Iterator[tuple[bytes, bytes]]:
    """The rows of entries from one to another, as they are stored, readable or not."""
    low, high = rowkinds.entry(line.prefix, first), rowkinds.entry(line.prefix, last) + b"\0"
    return each(line.ledger.storage.scan, low, high)


def lost_text(after: int, others: int) -> str:
    """What going back loses, for people: entries since then, and what others wrote meanwhile."""
    mine = f"{after} entries after it" if after > 0 else ""
    return together(mine, f"{others} entries that others wrote meanwhile" if others else "")


def together(*lost: str) -> str:
    """What is lost, of several things, for people; some of them may be nothing."""
    return "; ".join(one for one in lost if one and one != NOTHING) or NOTHING


def some(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are, for people."""
    known = list(names)
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return ", ".join(known[:SHOWN]) + more
