"""What runs beside an agent that was set up: the table of parts, and the work of each.

Jobs that are due again and again are done by one of several processes (`Chore`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.access.audit import Audit
from holdfast.checkpoints.retention import Retention
from holdfast.checkpoints.scheduler import Scheduler
from holdfast.errors import NotConfirmedError, ScopeNotFoundError, Unavailable
from holdfast.recovery.setup.alerts import (
    LAG,
    RATE,
    TIME,
    Alerts,
    FailureRate,
    Look,
    recovery_time,
    sync_lag,
)
from holdfast.recovery.setup.configuration import BackupPlace, Configuration
from holdfast.recovery.setup.supervisor import FAILING, AgentPart, Chore, PartPlan
from holdfast.recovery.watchdog import Watchdog
from holdfast.store.inner import core_of, moment
from holdfast.store.names.patterns import Patterns

if TYPE_CHECKING:
    from holdfast.recovery.setup.managed import Beside, Managed

LONGEST_NAME = 200
"""Characters of a folder's name; what is longer is named by its hash."""


def parts_of(managed: Managed, config: Configuration, beside: Beside) -> dict[str, PartPlan]:
    """The table of what runs beside an agent: each part is started, watched and stopped alike."""
    store, core, every = managed.store, core_of(managed.store), config.intervals
    scope, lease = managed.state.scope, config.intervals.lease

    def chore(about: str, name: str, interval: float, work: Callable[[], Any]) -> PartPlan:
        return PartPlan(about, lambda: Chore(core, name, interval, work, lease))

    looks: dict[str, Any] = {"states": [scope], "interval": every.watchdog, "lease": lease}
    alerts = alerts_of(managed, config, beside)

    def watch() -> None:
        managed.recovery._mend_notices()  # where alerts are kept, too
        alerts.look()

    def retain() -> None:
        # What has to be confirmed stays; `health` says so.
        with suppress(ScopeNotFoundError, NotConfirmedError):
            Retention(store).run(scope)

    def follow() -> None:
        wrong = [f"{one.url}: {one.error}" for one in managed.synchronise().replicas if one.error]
        if wrong:
            raise Unavailable("; ".join(wrong))

    table = {
        "alerts": chore("thresholds watched, and told of", "alerts", every.alerts, watch),
        "audit": PartPlan("reads of sensitive values noted", lambda: Audit(store)),
        "watchdog": PartPlan(
            "failures found, and recovered", lambda: Watchdog(store, managed.recovery, **looks)
        ),
        "scheduler": PartPlan(
            "checkpoints of policies and schedules",
            lambda: Scheduler(store, policies=managed.policies, lease=lease),
        ),
        "retention": chore("old checkpoints removed", "retention", every.retention, retain),
        "expiry": chore("expired keys removed", "expiry", every.expiry, store.sweep),
    }
    if config.scrub_interval is not None:
        scrub = partial(managed._scrub_every, config.scrub_interval)
        table["scrubbing"] = PartPlan("the store verified, and healed", scrub)
    if managed.replicas is not None:
        table["replicas"] = chore("replicas brought up to date", "replicas", 1.0, follow)
    for plan in config.backups:
        made = partial(_export_scopes, managed, plan, config.key)
        made = made if plan.scopes else partial(_back_up, managed, plan)
        name = " ".join(("backups", *plan.scopes))
        table[name] = chore("backups made", name, plan.interval, made)
    for id, make in beside.agents.items():
        state = store.agent(id)
        agent = partial(AgentPart, core, state.scope, *beside.run(state, make))
        table[f"agent {id}"] = PartPlan("run here", agent)
    return table


def _back_up(managed: Managed, plan: BackupPlace) -> float:
    """Make a backup, if the newest is old enough; seconds until the next is due."""
    backups, core = managed.backups, core_of(managed.store)
    assert backups is not None
    mine = [one.created for one in backups.list() if one.lineage == core.lineage.hex()]
    if mine:
        age = moment(core.clock.claimed()) - max(mine)
        if (left := plan.interval - age.total_seconds()) > 0:
            return left
    backups.create("scheduled")
    if plan.keep is not None:
        backups.prune(plan.keep)
    return plan.interval


def _export_scopes(managed: Managed, plan: BackupPlace, key: str | None) -> float:
    """Export the newest checkpoint of each scope that a plan is for; seconds until the next turn.

    A folder for each scope, files by the numbers of entries: a clock that jumps makes none old.
    """
    from holdfast.checkpoints.export import export_checkpoint

    fit = Patterns(plan.scopes).fit
    if core_of(managed.store).ring is not None:
        key = key or os.environ.get("HOLDFAST_KEY")
    for info in managed.store.scopes().items:
        state = managed.store.scope(info.scope)
        newest = state.checkpoints(limit=1) if fit(str(info.scope)) else []
        if not newest:
            continue
        name = quote(str(info.scope), safe="")
        if len(name) > LONGEST_NAME:
            name = hashlib.sha256(name.encode()).hexdigest()
        folder = Path(plan.url.removeprefix("dir:")) / name
        path = folder / f"{newest[0].sequence:012}.holdfast"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            export_checkpoint(state, path, at=newest[0], key=key)
        if plan.keep is not None:
            for old in sorted(folder.glob("*.holdfast"))[: -plan.keep]:
                old.unlink()
    return plan.interval


def alerts_of(managed: Managed, config: Configuration, beside: Beside) -> Alerts:
    """What watches the thresholds of a document, and the parts; refused if it could not tell."""
    limits, looks = config.thresholds, list[Look]()
    if RATE in limits:
        looks.append(FailureRate(managed.store, limits[RATE]))
    if TIME in limits:
        newest = partial(managed.recovery.reports, managed.state.scope, 1)
        looks.append(partial(recovery_time, managed.store, newest, limits[TIME]))
    if LAG in limits and config.replication is not None:
        wanted = (config.replication.factor or 2) - 1
        looks.append(partial(sync_lag, managed.replicas, wanted, limits[LAG]))
    told = {"callback": beside.on_alert} if beside.on_alert is not None else {}
    alerts = Alerts(managed.store, looks, config.channels, told)

    def parts() -> Iterator[tuple[str, str]]:
        """Parts that fail, and ways to tell that do not serve: of those the others are told."""
        for one in managed._supervisor.status():
            if one.state == FAILING:
                yield f"part/{one.name}", f"{one.error}; started again {one.restarts} times"
        yield from ((f"channel/{name}", why) for name, why in alerts.errors.items())

    looks.append(parts)
    return alerts
