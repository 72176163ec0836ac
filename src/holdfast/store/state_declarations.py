"""Declaring: what both faces of a state share, and its methods on the blocking one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import DamagedRecordError, InvalidInputError
from holdfast.store.commit.lookup_build import settle_lookups
from holdfast.store.read.reader import anew
from holdfast.store.rules.classes import Classed
from holdfast.store.rules.declared import MOST_BYTES, Declaration
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.lookup import Lookup
from holdfast.store.tree.difference import same

if TYPE_CHECKING:
    from holdfast.store.commit.change import Written
    from holdfast.store.history.checkpoint import Plan
    from holdfast.store.history.handle import LineHandle


class ViewDeclaring:
    """What is declared of a state, now or at a point."""

    _handle: LineHandle

    def declared(self) -> list[Declaration]:
        """All that is declared, sorted by kind and name."""
        return list(self._handle.reader.declared().all)


class StateDeclaring:
    """What a state's owner can declare of it."""

    _handle: LineHandle

    def declare(self, *declarations: Declaration) -> int:
        """Set rules that every writer of this timeline follows from now on; see `holdfast.Sticky`.

        One entry, whose number is returned; what is declared already is not written again. A
        declaration of the same kind and name replaces the one before. A fork takes them along.
        """
        return declare(self._handle, declarations)

    def undeclare(self, *declarations: Declaration) -> int:
        """Take declarations back, by their kind and name; tells how many of them there were."""
        return undeclare(self._handle, declarations)


def declare(handle: LineHandle, declarations: tuple[Declaration, ...]) -> int:
    """Declare, and do what follows; the entry's number."""

    def put() -> int:
        plan = plan_declare(handle, declarations)
        entry: int = _run(handle, plan) if plan is not None else handle.place()[2]
        return entry

    entry = anew(put)
    _settle(handle, declarations)
    return entry


def undeclare(handle: LineHandle, declarations: tuple[Declaration, ...]) -> int:
    """Take declarations back, and do what follows; how many of them there were."""
    plan = plan_undeclare(handle, declarations)
    count: int = _run(handle, plan) if plan is not None else 0
    _settle(handle, declarations)
    return count


def _settle(handle: LineHandle, declarations: tuple[Declaration, ...]) -> None:
    """Do what follows from declarations, or goes on after it was cut short: build lookups."""
    if any(isinstance(one, Lookup | Classed) for one in declarations):
        anew(lambda: settle_lookups(handle))


def _run(handle: LineHandle, plan: Plan) -> Any:
    change, finish = plan
    return finish(handle.core.run(change))


def plan_declare(handle: LineHandle, declarations: tuple[Declaration, ...]) -> Plan | None:
    """A change that declares what differs from what is declared; None if nothing does."""
    _check(declarations)
    try:
        known = {one.key: one.data() for one in handle.reader.declared().all}
    except DamagedRecordError:
        known = {}  # declaring anew is what helps
    wanted = {one.key: one.data() for one in declarations}
    codec = handle.core.codec
    for key, data in wanted.items():
        size = len(codec.encode(codec.plain(data)))
        if size > MOST_BYTES:
            raise InvalidInputError(
                f"{handle.scope}: what {key!r} declares takes {size} bytes; at most {MOST_BYTES}"
            )
    for one in declarations:
        if one.key not in known or not same(known[one.key], wanted[one.key]):
            one.check(handle)
    operations = [
        Operation("set", key, data)
        for key, data in wanted.items()
        if key not in known or not same(known[key], data)
    ]
    return handle._plan(operations, handle._version) if operations else None


def plan_undeclare(handle: LineHandle, declarations: tuple[Declaration, ...]) -> Plan | None:
    """A change that takes back those of the declarations that are there; None if none is."""
    _check(declarations)
    wanted = {one.key for one in declarations}
    found = [one.key for one in handle.reader.declared().all if one.key in wanted]
    operations = [Operation("delete", key) for key in found]

    def finish(_: list[Written]) -> int:
        line = handle.reader.now()
        if line is not None:
            handle.core.ephemerals.box(line)  # what is no longer ephemeral goes at once
        return len(found)

    return handle._plan(operations, finish) if found else None


def _check(declarations: tuple[Declaration, ...]) -> None:
    for one in declarations:
        if not isinstance(one, Declaration):
            raise InvalidInputError(
                f"what is declared is made like holdfast.Sticky('effects/'), not a "
                f"{type(one).__name__}"
            )
