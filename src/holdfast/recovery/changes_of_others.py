"""What others did to an agent while it was being recovered, and whether it is as it was before.

Whatever a recovery writes names it as its correlation. So an entry behind the newest one of before
that does not, or that a check wrote, is of somebody else: a recovery that is undone leaves it, and
one that was killed is not taken up again over it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.checkpoints.lineage import Lineage
from holdfast.errors import MissingError, PrunedError, StateIntegrityError
from holdfast.recovery.records import GROUPS, ID, PREFIX, notices_scope, scope_of
from holdfast.recovery.run_slot import correlation_of
from holdfast.store.history.diff import index_of
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.journal.entry import KEYED, MERGE, RESTORE, Body, Cause
from holdfast.store.names import rowkinds
from holdfast.store.names.items import Entry
from holdfast.store.names.scope import RESERVED
from holdfast.store.rules.lookup import derived
from holdfast.store.rules.sticky import sticky_prefixes
from holdfast.store.tree.difference import tree_changes
from holdfast.store.upkeep.expiry import READ, SWEPT

if TYPE_CHECKING:
    from holdfast.recovery.context import Context

CHECK = "check"
"""The component that checks act as: they are to look, and what they write is not the recovery's."""
SHOWN = 10
"""Names that a text gives."""
PAGE = 500
"""Entries that are read at once."""
_BY_TIME = {READ: ("expire",), SWEPT: ("delete",)}
"""What is written as time passes, by why it is."""
WHOLE = frozenset(("restore", "merge"))
"""What changes a state without naming keys."""


class Makers:
    """Tells entries that recoveries of an agent made from those of a program whose correlations
    only begin like theirs: by what is kept of recoveries, of the agent or of a group."""

    def __init__(self, handle: LineHandle) -> None:
        store = StoreHandle(handle.core)
        self._places = [
            (store.line(scope_of(handle.scope)).reader, PREFIX),
            (store.line(notices_scope()).reader, GROUPS),
        ]
        self._known: dict[str, bool] = {}

    def of(self, cause: Cause | None) -> str:
        """The recovery that made an entry; empty if none did."""
        said = (cause.correlation or "") if cause is not None else ""
        begin = correlation_of("")
        id_ = said.removeprefix(begin) if said.startswith(begin) else ""
        if not ID.fullmatch(id_):
            return ""
        if id_ not in self._known:
            try:
                self._known[id_] = any(one.exists(prefix + id_) for one, prefix in self._places)
            except StateIntegrityError:
                self._known[id_] = True  # nobody can say, and it looks like one
        return id_ if self._known[id_] else ""


def of_others(handle: LineHandle, recovery: str, head: int) -> Iterator[Entry]:
    """Changes behind an entry that a recovery did not make, the newest first.

    Those that cannot be read, and what lies below them, are left out.
    """
    return (entry for entry, own in _changes(handle, recovery, head) if not own)


def work_of_others(handle: LineHandle, recovery: str, head: int) -> Iterator[Entry]:
    """The same without what nobody did: keys that expired, or slid because they were read."""
    found = of_others(handle, recovery, head)
    return (entry for entry in found if entry.kinds != _BY_TIME.get(entry.cause))


def _changes(handle: LineHandle, recovery: str, head: int) -> Iterator[tuple[Entry, bool]]:
    """Changes behind an entry, the newest first, and whether a recovery made them."""
    ours, history = correlation_of(recovery), handle.history
    with suppress(StateIntegrityError):
        for key, envelope, body in history.entries(low=head + 1):
            entry = history.entry(key, envelope, body)
            cause = entry.cause
            own = ours in (cause.correlation, cause.parent) and cause.component != CHECK
            if entry.keys or WHOLE & set(entry.kinds):
                yield entry, own


def has_changed(handle: LineHandle, recovery: str, head: int, last: int) -> bool:
    """Whether a recovery changed a state behind an entry, up to another."""
    known = _changes(handle, recovery, head) if last > head else ()
    return any(own and entry.sequence <= last for entry, own in known)


def standing(handle: LineHandle, recovery: str, head: int | None) -> str:
    """What a recovery that is ended where it stands had changed, for people; empty if nothing."""
    if head is None:
        return ""
    try:
        own = [entry for entry, own in _changes(handle, recovery, head) if own]
        changed = changed_since(handle, head) if own else []
    except (MissingError, StateIntegrityError) as error:
        return f"; whether anything of it stands cannot be compared: {error}"
    if not changed:
        return ""
    back = next((entry for entry in own if entry.point), None)
    done = f"it had put back {back.point} (entry {back.sequence})" if back else "it had written"
    return f"; {done}, and that stands: other than before are the keys {named(changed)}"


def first_of_others(handle: LineHandle, recovery: str, head: int | None) -> Entry | None:
    """The newest change of others behind an entry that a restore would take back; None if there is
    none, or none is known. What is sticky, such as letters that came, stands in nobody's way."""
    if head is None:
        return None
    sticky: tuple[str, ...] = ()
    with suppress(StateIntegrityError):
        sticky = sticky_prefixes(handle.reader.declared())
    for entry in work_of_others(handle, recovery, head):
        stays = entry.keys and all(derived(key) or key.startswith(sticky) for key in entry.keys)
        if not stays:
            return entry
    return None


def theirs(context: Context) -> dict[str, int]:
    """Keys that others changed since the recovery began, each with the entry that did so last.

    The empty one stands for all of them: somebody put the whole state back.
    """
    head = context.record.data.get("head")
    found: dict[str, int] = {}
    if head is not None:
        for entry in of_others(context.handle, context.record.id, head):
            for key in entry.keys or ("",):
                found.setdefault(key, entry.sequence)
    return found


def on_top(context: Context) -> set[str]:
    """Keys that the recovery had changed when others added to them: what they held before it is
    not there any more, whatever is undone. Who sets a key whole means just that."""
    head, handle = context.record.data.get("head"), context.handle
    if head is None:
        return set()
    first: dict[str, tuple[str, int]] = {}
    for entry in of_others(handle, context.record.id, head):  # the newest first
        first.update({key: (kind, entry.sequence) for kind, key in entry.operations})
    then = handle.view(head).reader
    return {
        key
        for key, (kind, sequence) in first.items()
        if kind in ("append", "trim")
        and then.get(key, None, None, True)
        != handle.view(sequence - 1).reader.get(key, None, None, True)
    }


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
    except StateIntegrityError:
        declared = handle.view(sequence).reader.declared()
    stay = sticky_prefixes(declared)
    makers = Makers(handle)
    low, high = rowkinds.entry(line.prefix, sequence + 1), rowkinds.entry(line.prefix, head) + b"\0"
    count = 0
    while page := line.ledger.storage.scan(low, high, limit=PAGE):
        for key, row in page:
            if rowkinds.sequence_of(key) in known:
                try:
                    body = line.ledger.open_entry(key, row)[1]
                    count += not makers.of(body.cause) and _takes_away(body, stay)
                except (PrunedError, StateIntegrityError):
                    count += 1
        low = page[-1][0] + b"\0"
    return count


def _takes_away(body: Body, stay: tuple[str, ...]) -> bool:
    """Whether undoing an entry changes a state, by its operations."""
    keys = [op[1] for op in body.ops if op[0] in KEYED]
    if any(not derived(key) and not key.startswith(stay) for key in keys):
        return True
    return any(op[0] in (RESTORE, MERGE) for op in body.ops)


def lost_text(after: int, others: int) -> str:
    """What going back loses, for people: entries since then, and what others wrote meanwhile."""
    parts = [f"{after} entries after it"] if after > 0 else []
    parts += [f"{others} entries that others wrote meanwhile"] if others else []
    return "; ".join(parts) or "nothing"


def damage_text(lost: str, damaged: Collection[str]) -> str:
    """What going back loses, with sticky keys that cannot be read and so do not stay."""
    more = [f"what damaged rows held of {named(damaged)}"] if damaged else []
    return "; ".join([*([lost] if lost != "nothing" else []), *more]) or "nothing"


def named(keys: Iterable[str]) -> str:
    """Some keys, for people."""
    return some(sorted(keys))


def some(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are, for people."""
    known = list(names)
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return ", ".join(known[:SHOWN]) + more
