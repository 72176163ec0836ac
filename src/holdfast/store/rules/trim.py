"""Trimming a list: the oldest items go, the rest is kept as it is.

Positions count from the first item that is there: after a trim of n items, what was at position
n is at 0. A trim returns how many items went, by which whoever holds positions can shift them.

In an entry it is what differs: a patch that removes items at the front, or, where so little is
left that a list is kept whole, that list. So it is cheap however long the list is, and a list
that was trimmed is the same as one that was set to what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidInputError
from holdfast.store.journal import entry
from holdfast.store.journal.slot import Slot
from holdfast.store.names.arguments import check_count, check_version
from holdfast.store.names.scope import check_key
from holdfast.store.tree import refs
from holdfast.store.tree.split import array_header

if TYPE_CHECKING:
    from holdfast.store.commit.packs import Packer
    from holdfast.store.commit.stage import Stage
    from holdfast.store.history.checkpoint import Plan
    from holdfast.store.history.handle import LineHandle
    from holdfast.store.tree.split import Part


class StateTrimming:
    """Trimming on the blocking face."""

    _handle: LineHandle

    def trim(
        self,
        key: str,
        *,
        keep_last: int | None = None,
        before: int | None = None,
        if_version: int | None = None,
    ) -> int:
        """Remove the oldest items of a list: all but the last few, or those before a position.

        Returns how many went; items move to the front by so many positions. `keep_last` may be
        repeated by anyone at any time; `before` is a position in the list as it is when the trim
        is applied, so where several trim, give `if_version` or read and trim in one change.
        """
        plan = plan_trim(self._handle, key, trim_of(keep_last, before), if_version)
        if plan is None:
            return 0
        change, finish = plan
        return finish(self._handle.core.run(change))  # type: ignore[no-any-return]


def trim_of(keep_last: int | None, before: int | None) -> dict[str, int]:
    """What an operation says of a trim."""
    given = {"keep_last": keep_last, "before": before}
    found = {name: number for name, number in given.items() if number is not None}
    if len(found) != 1:
        raise InvalidInputError("trim takes keep_last= or before=, one of them")
    check_trim(found)
    return found


def check_trim(value: Any) -> None:
    """Refuse what says of no trim which items go."""
    if type(value) is not dict or list(value) not in (["keep_last"], ["before"]):
        raise InvalidInputError("a trim is {'keep_last': number} or {'before': position}")
    for name, number in value.items():
        check_count(number, name)


def going(length: int, trim: dict[str, int]) -> int:
    """How many items of a list go."""
    if "before" in trim:
        return min(trim["before"], length)
    return max(length - trim["keep_last"], 0)


def plan_trim(
    handle: LineHandle, key: str, trim: dict[str, int], if_version: int | None
) -> Plan | None:
    """A change that trims a list; None if nothing would go."""
    from holdfast.store.rules.gates import Operation  # gates know what is ephemeral, and that trims

    check_version(if_version)
    key = check_key(key)
    plan = handle._plan(
        [Operation("trim", key, trim)],
        lambda written: written[0].answer[0] if written else 0,
        expects={key: if_version} if if_version is not None else None,
    )
    if if_version is None and not going(handle.reader.length(key), trim):
        return None
    return plan


def staged_length(stage: Stage, key: str) -> int:
    """How many items a list has after the entries staged so far; 0 if it is absent."""
    slot = stage.live(key)
    if slot is None:
        return 0
    length = slot.length()
    return length if length is not None else len(stage._items_of(key, slot, ()))


def staged_trim(
    stage: Stage, sequence: int, key: str, trim: dict[str, int], packer: Packer, old: Slot
) -> list[Any]:
    """Trim a list, which is there, in the entry that is being built."""
    length = old.length()
    if length is None:
        items = stage._items_of(key, old, packer.laid)
        rest: list[Part] | None = items[going(len(items), trim) :]
    else:
        old = stage.timeline.settled(old)
        first = going(length, trim)
        rest = _short_rest(stage, old, first, packer)
    if rest is not None:
        return stage._set(sequence, key, stage._joined(key, rest), packer, how=entry.TRIMMED)  # type: ignore[no-any-return]
    op = [entry.PATCH, key, [[0, first, None, []]] if first else [], entry.TRIMMED]
    stage._put(key, stage.timeline.changed(sequence, op, iter(()), lambda _: old))
    return op


def _short_rest(stage: Stage, old: Slot, first: int, packer: Packer) -> list[Part] | None:
    """What is left of a list, if that is so short that it is kept whole."""
    _, hash_, count, _ = refs.read_tree(old.ref)
    if count - first > refs.WHOLE:
        return None
    ledger = stage.ledger
    rest = list(ledger.trees.slice(ledger.trees.load(old.location, hash_), first, count))
    if any(refs.is_tree(ref) for _, ref, _ in rest):
        return None
    if len(array_header(len(rest))) + sum(refs.size_of(ref) for _, ref, _ in rest) > refs.WHOLE:
        return None
    parts: list[Part] = []
    for _, ref, place in rest:
        at = place or (0, 0)
        value = stage._short_value(Slot(ref, place, at[0], at[1]), packer.laid)
        parts.append(ledger.splitter.atom(ledger.codec.encode(ledger.codec.plain(value))))
    return parts
