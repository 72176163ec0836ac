"""Bringing a state's lookups in line with what is declared, entry by entry."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from holdfast.errors import HoldfastError, LookupNotFoundError
from holdfast.store.commit.change import Change, Target
from holdfast.store.commit.lookup_terms import Step, check_values, declared_lookup, present
from holdfast.store.commit.stage import Stage
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal.entry import Body
from holdfast.store.names.cause import cause_now
from holdfast.store.names.threads import safe_point, undivided
from holdfast.store.rules.lookup import BUILT, Lookup, check_lookup_name


def settle_lookups(handle: LineHandle) -> None:
    """Bring all lookups in line with what is declared: build what is not whole, remove the rest."""
    timeline = handle.reader.now()
    if timeline is None:
        return
    declared = {one.name for one in timeline.declared.of(Lookup)}
    for name in sorted(declared | present(timeline)):
        _settle(handle, name)


def settle_after(handle: LineHandle) -> None:
    """Like `settle_lookups`, behind something that is done and stays so if this fails.

    Then a question says that the lookup is not built, and what to do.
    """
    with suppress(HoldfastError), undivided():
        settle_lookups(handle)


def rebuild_lookup(handle: LineHandle, name: str) -> None:
    """Remove the terms of a lookup and build it anew from the values."""
    name = check_lookup_name(name)
    handle.ask("rebuild", name)
    lookup = declared_lookup(handle.reader.declared(), name)
    if lookup is None:
        raise LookupNotFoundError(f"{handle.scope} declares no lookup {name!r}")
    check_values(handle.reader.now(), lookup)

    def forget(stage: Stage, body: Body) -> None:
        if stage.slot(BUILT + name) is not None:
            stage.add([("delete", BUILT + name)], body)

    _run(handle, forget, f"rebuild of lookup {name}")
    _settle(handle, name)


def _settle(handle: LineHandle, name: str) -> None:
    """Build a lookup, or remove it, entry by entry."""
    step = Step(name)
    while (timeline := handle.reader.now()) is not None and step.wanted(timeline):
        safe_point()
        _run(handle, step.take, f"building of lookup {name}")


def _run(handle: LineHandle, special: Any, reason: str) -> None:
    handle.core.check_writable()
    target = Target(handle.scope, handle.timeline, special=special, create=False)
    handle.core.run(Change([target], cause_now(reason=reason)))
