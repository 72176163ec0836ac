"""What the logs in a store tell of its agents, counted as an open store counts what happens.

For who comes later, or from another process: transitions with their outcomes, and recoveries with
their times, of all processes. How long saves take is known only to the process that makes them.
"""

from __future__ import annotations

from itertools import islice

from holdfast.agents.machines.record_reader import Looker, machines_of
from holdfast.errors import StateIntegrityError
from holdfast.recovery.context import Settings
from holdfast.recovery.group import Together
from holdfast.recovery.records import RUNNING, Records, counted, is_own
from holdfast.recovery.recovered_scopes import every_scope
from holdfast.recovery.user_calls import log
from holdfast.store.commit.meter import Meter, Metrics
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names.scope import Scope

MOST = 10_000
"""Transitions of a machine, and recoveries of an agent, that are looked at: the newest."""


def kept_metrics(store: StoreHandle) -> Metrics:
    """Count what is kept; what cannot be read is passed over, with a warning."""
    meter = Meter()
    for scope in every_scope(store):
        try:
            if not is_own(scope):
                _of_scope(store, scope, meter)
        except StateIntegrityError as error:
            log.warning("%s: damaged, and not all of it is counted: %s", scope, error)
    try:
        _groups(store, meter)
    except StateIntegrityError as error:
        log.warning("recoveries of groups: damaged, and not counted: %s", error)
    return meter.read()


def _of_scope(store: StoreHandle, scope: Scope, meter: Meter) -> None:
    handle = store.line(scope)
    for record in Records(store, scope).all(MOST):
        if record.status != RUNNING:
            counted(meter, record.data)
    for name in machines_of(handle):
        for one in islice(Looker(handle, name).newest_first(), MOST):
            one.counted(meter)


def _groups(store: StoreHandle, meter: Meter) -> None:
    for _, data in Together(store, Settings()).all()[:MOST]:
        if data["status"] != RUNNING:
            counted(meter, data)
