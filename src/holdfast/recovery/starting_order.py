"""The order in which agents that were recovered together are to be started."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from holdfast.checkpoints.locate import candidates
from holdfast.checkpoints.request import Locator
from holdfast.recovery.moments import Moment
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names.items import Checkpoint
from holdfast.store.names.scope import Scope
from holdfast.store.upkeep.dependencies import depends_in


def in_order(store: StoreHandle, scopes: Sequence[Scope], found: Moment) -> list[Scope]:
    """Those that others rest on first, by what their checkpoints say; else by their names."""
    needs = {scope: _rests_on(store, scope, found) & set(scopes) for scope in scopes}
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError:
        return list(scopes)


def _rests_on(store: StoreHandle, scope: Scope, found: Moment) -> set[Scope]:
    handle = store.line(scope)
    last = found.points[scope][1] if found.points else handle.place()[2]
    made: list[Checkpoint] = [one for one in candidates(handle, Locator()) if one.sequence <= last]
    return {Scope.parse(scope) for scope, *_ in depends_in(made[0].metadata if made else {})}
