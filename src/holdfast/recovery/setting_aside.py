"""What is done about damaged and lost rows of an agent before anything is written to it.

They are set aside, and healed if a copy of the store still has them: that comes first, for whatever
is written takes the number of a lost entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.errors import HoldfastError, ScopeNotFoundError, StateIntegrityError
from holdfast.recovery.failures import DAMAGED, Failure
from holdfast.recovery.healing import heal_all, looking, would_heal
from holdfast.recovery.healing_directory import heal_directory
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.strategies import unreadable
from holdfast.recovery.tails import Tail, Tails
from holdfast.store import rows
from holdfast.store.core import Core
from holdfast.store.handles import StoreHandle
from holdfast.store.losses import make_room
from holdfast.store.scopes import Scope
from holdfast.store.verify import verify_store
from holdfast.store.verify_report import Finding

BUDGET = 10.0
"""Seconds in which damage is looked for, unless a step says otherwise."""


def is_called_for(failure: Failure, tail: Tail | None, why: str | None) -> bool:
    """Whether damage is to be looked for; `why` the newest state cannot be read, if it cannot."""
    return tail is not None or failure.kind in DAMAGED or why is not None


def copies_of(core: Core, stores: Sequence[Any]) -> list[Core]:
    """Those stores that were made by copying this one: rows can be healed from them."""
    return [one._core for one in stores if one._core.lineage == core.lineage]


def set_aside(
    store: StoreHandle, agent: Scope, copies: Sequence[Core], recovery: str, budget: float = BUDGET
) -> dict[str, Any]:
    """Set aside what is damaged or lost, as much as is found in the time, and heal it.

    A timeline whose name is lost gets another, for without one nobody reaches it, and no scope with
    such a row can be forked; `lost_rows` says so, for people.

    Of entries that stay lost, what else was written with them would stand in the way of what is
    written next: it goes, or their numbers are taken if other timelines may lead to it.
    """
    found: list[Finding] = []
    with suppress(HoldfastError, OSError):  # a copy that cannot be read heals nothing
        if not _is_listed(store.core, agent):
            heal_directory(store, [], copies)
    with suppress(ScopeNotFoundError):  # then nothing of it is damaged
        found = verify_store(store.core, agent, budget=budget).findings
    result: dict[str, Any] = {"quarantined": Quarantine(store, agent).add(found, recovery)}
    try:
        left, healed = heal_all(store, agent, found, copies, rename=True)
        result["healed"] = [one.row for one in healed]
        result["lost_rows"] = [one.lost for one in healed if one.lost] + _unreachable(left)
    except (HoldfastError, OSError) as error:  # a copy that cannot be read heals nothing
        result["unhealed"] = f"{type(error).__name__}: {error}"[:500]
    for timeline, (_, last) in (Tails(store).lost(agent) or {}).items():
        with suppress(StateIntegrityError):  # nothing can be written to it in any case
            dropped = make_room(store.line(agent, timeline), last)
            result["dropped"] = result.get("dropped", 0) + dropped
    return result


def _is_listed(core: Core, agent: Scope) -> bool:
    try:
        return core.known(agent) is not None
    except StateIntegrityError:
        return False


def _unreachable(left: Sequence[Finding]) -> list[str]:
    """Timelines that nobody can name any more, for people; what else is wrong, others tell of."""
    keys = [key for one in left if rows.is_fork(key := bytes.fromhex(one.row))]
    return [f"timeline {rows.line_of(key)}, whose row and first entry are damaged" for key in keys]


@contextmanager
def as_if_healed(
    store: StoreHandle, agent: Scope, failure: Failure, tail: Tail | None, copies: Sequence[Core]
) -> Iterator[tuple[StoreHandle, int]]:
    """The store as it is after `set_aside`, and how many rows that heals; nothing is written."""
    given: dict[bytes, bytes] = {}
    with suppress(HoldfastError, OSError):  # a copy that cannot be read heals nothing
        if copies and is_called_for(failure, tail, unreadable(store.line(agent))):
            found = verify_store(store.core, agent, budget=BUDGET).findings
            given = would_heal(store.core, agent, found, copies, rename=True)[1]
    if not given:
        yield store, 0
        return
    seen = looking(store.core, given)
    try:
        yield StoreHandle(seen), len(given)
    finally:
        seen.close()
