"""Declaring rules of a state, and taking them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import DamagedRecordError, InvalidInputError
from holdfast.store.commit import lookup_terms
from holdfast.store.history.restore import rebuild_lookup, settle_lookups
from holdfast.store.journal.declared import MOST_BYTES, Declaration
from holdfast.store.names.arguments import check_flag
from holdfast.store.names.scope import RESERVED
from holdfast.store.read.reader import anew
from holdfast.store.rules.classes import Classed
from holdfast.store.rules.ephemeral import Ephemeral
from holdfast.store.rules.gate_request import Operation
from holdfast.store.rules.lookup import Lookup
from holdfast.store.tree.difference import same

if TYPE_CHECKING:
    from holdfast.store.commit.change import Written
    from holdfast.store.history.checkpoint import Plan
    from holdfast.store.history.handle import LineHandle


def declare(
    handle: LineHandle, declarations: tuple[Declaration, ...], *, rebuild: bool = False
) -> int:
    """Declare, and do what follows; the entry's number."""
    check_flag(rebuild, "rebuild")

    def put() -> int:
        plan = plan_declare(handle, declarations)
        entry: int = _run(handle, plan) if plan is not None else handle.place()[2]
        return entry

    entry = anew(put)
    _settle(handle, declarations)
    if rebuild:
        for one in declarations:
            if isinstance(one, Lookup):
                rebuild_lookup(handle, one.name)
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
            _check_fit(handle, one)
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


def _check_fit(handle: LineHandle, one: Declaration) -> None:
    """Refuse what does not fit the state as it is."""
    if isinstance(one, Lookup):
        # A value with too many terms could never be part of it.
        lookup_terms.check_values(handle.reader.now(), one)
    elif isinstance(one, Ephemeral):
        _check_ephemeral(handle, one.prefix)


def _check_ephemeral(handle: LineHandle, prefix: str) -> None:
    """Keys that are stored would be hidden: they must go first; and no part loses its own."""
    if prefix.startswith(RESERVED):
        raise InvalidInputError(
            f"{handle.scope}: keys that begin with $ are those of parts of Holdfast, which "
            f"rely on them: {prefix!r} cannot be declared ephemeral"
        )
    found = handle.reader.stored_keys(prefix)
    if found:
        raise InvalidInputError(
            f"{handle.scope}: keys that begin with {prefix!r} are stored, for example "
            f"{found[0]!r}; delete them before you declare them ephemeral"
        )
