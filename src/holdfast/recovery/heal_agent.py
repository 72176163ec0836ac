"""What is done about damaged and lost rows of an agent before anything is written to it.

They are set aside, and healed if a copy of the store still has them: that comes first, for whatever
is written takes the number of a lost entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.errors import HoldfastError, ScopeNotFoundError, StateIntegrityError
from holdfast.recovery.changes_of_others import some
from holdfast.recovery.failures import DAMAGED, Failure
from holdfast.recovery.heal import heal_all, looking, replace, would_heal
from holdfast.recovery.heal_directory import heal_directory
from holdfast.recovery.quarantine import Quarantine
from holdfast.recovery.strategies import unreadable
from holdfast.recovery.tails import MAIN, Tail, Tails
from holdfast.store.commit.core import Core
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.scope import Scope
from holdfast.store.proof.verify import verify_store
from holdfast.store.proof.verify_report import Finding
from holdfast.store.upkeep.losses import make_room
from holdfast.store.upkeep.lost_anchors import (
    LostAnchor,
    announce_again,
    drop_unnamed,
    leading_rows,
    lost_anchors,
)

BUDGET = 10.0
"""Seconds in which damage is looked for, unless a step says otherwise."""

ABOUT_ANCHORS = ("unanchored", "anchors")
"""What a result, and then the record, tells of lost anchors: what is lost with them, for people,
and which entries of main they were."""
_OF_ANCHORS = (b"A".hex(), b"B".hex())
"""How keys of rows begin that lead to anchors, and of states that those name."""


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
    aside, result = Quarantine(store, agent), dict[str, Any]()
    led = _lead_again(store, agent, recovery)
    found: list[Finding] = []
    with suppress(HoldfastError, OSError):  # a copy that cannot be read heals nothing
        if not _is_listed(store.core, agent):
            heal_directory(store, [], copies)
    with suppress(ScopeNotFoundError):  # then nothing of it is damaged
        found = verify_store(store.core, agent, budget=budget).findings
    found += _findings(store.core, agent, found)
    result["quarantined"] = [*led, *aside.add(found, recovery)]
    try:
        left, healed = heal_all(store, agent, found, copies, rename=True)
        result["healed"] = [*led, *(one.row for one in healed)]
        result["lost_rows"] = [one.lost for one in healed if one.lost] + _unreachable(left)
    except (HoldfastError, OSError) as error:  # a copy that cannot be read heals nothing
        result["unhealed"] = f"{type(error).__name__}: {error}"[:500]
    for timeline, (_, last) in (Tails(store).lost(agent) or {}).items():
        with suppress(StateIntegrityError):  # nothing can be written to it in any case
            dropped = make_room(store.line(agent, timeline), last)
            result["dropped"] = result.get("dropped", 0) + dropped
    lost = _unanchored(store.core, agent)
    for one in lost:
        announce_again(store.line(agent, one.timeline), one, f"recovery {recovery}")
    if lost or any(one.row[:2] in _OF_ANCHORS for one in found):
        with suppress(StateIntegrityError):
            drop_unnamed(store.core, agent)
    return result | _told(lost)


def _lead_again(store: StoreHandle, agent: Scope, recovery: str) -> list[str]:
    """Make rows again that lead to anchors, as far as the chain has those; which they are.

    Before all else: without them, what was pruned looks like damage.
    """
    core, made = store.core, list[str]()
    with suppress(StateIntegrityError):  # not even the directory can be read
        for key, row in leading_rows(core, agent).items():
            what = "it did not lead to the newest anchor, which the chain has"
            found = Finding("damage", rows.describe(key), what, str(agent), (), key.hex())
            Quarantine(store, agent).add([found], recovery)
            made += [key.hex()] if replace(core, key, row) else []
    if made:
        core.lost()  # what is held of the scope was read without them
    return made


def _unanchored(core: Core, agent: Scope) -> list[LostAnchor]:
    """Anchors of an agent that are lost for good."""
    with suppress(StateIntegrityError):
        return [one for one in lost_anchors(core, agent) if not one.floor.anchor]
    return []


def _findings(core: Core, agent: Scope, known: Iterable[Finding]) -> list[Finding]:
    """What lost anchors concern, as `verify` would tell of it, also where its time was too short:
    what another anchor does not name goes, and a copy is asked for the lost one before."""
    named, found = {one.row for one in known}, list[Finding]()
    what = "it is, leads to, or was named by an anchor that is lost"
    for one in _unanchored(core, agent):
        for key in one.keys(core.ledger(agent)):
            if key.hex() not in named:
                place = rows.describe(key)
                found.append(Finding("damage", place, what, str(agent), (), key.hex()))
    return found


def _told(lost: Iterable[LostAnchor]) -> dict[str, Any]:
    """What is kept of lost anchors (`ABOUT_ANCHORS`)."""
    texts = []
    for one in lost:
        if one.states:
            kept = "states kept at entries" if len(one.states) > 1 else "state kept at entry"
            text = f"the {kept} {some(map(str, one.states))}, which only a lost anchor named"
            texts.append(text + f", of timeline {one.timeline}" * (one.timeline != MAIN))
    anchors = [one.entry for one in lost if one.certain and one.entry and one.timeline == MAIN]
    said = dict(zip(ABOUT_ANCHORS, (texts, anchors), strict=True))
    return {name: value for name, value in said.items() if value}


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
) -> Iterator[tuple[StoreHandle, int, dict[str, Any]]]:
    """The store as it is after `set_aside`, how many rows that heals, and what it tells of anchors
    that are lost; nothing is written."""
    given: dict[bytes, bytes] = {}
    called = False
    with suppress(HoldfastError, OSError):  # a copy that cannot be read heals nothing
        called = is_called_for(failure, tail, unreadable(store.line(agent)))
        if called:
            given = leading_rows(store.core, agent)
            if copies:
                given |= _would_heal(store.core, agent, given, copies)
    if not given:
        yield store, 0, _told(_unanchored(store.core, agent)) if called else {}
        return
    seen = looking(store.core, given)
    try:
        yield StoreHandle(seen), len(given), _told(_unanchored(seen, agent))
    finally:
        seen.close()


def _would_heal(
    core: Core, agent: Scope, given: Mapping[bytes, bytes], copies: Sequence[Core]
) -> dict[bytes, bytes]:
    """What copies would heal, with some rows put in before."""
    seen = looking(core, given)
    try:
        found = verify_store(seen, agent, budget=BUDGET).findings
        return would_heal(seen, agent, found, copies, rename=True)[1]
    finally:
        seen.close()
