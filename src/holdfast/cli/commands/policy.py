"""`holdfast policy` and `schedule`: checkpoints that are made by themselves."""

from __future__ import annotations

import re
import time
from typing import Any

import click

from holdfast.checkpoints.policy.policies import Policies
from holdfast.checkpoints.policy.policy import (
    EVENTS,
    METRICS,
    OPERATORS,
    Policy,
    base_of,
    milliseconds,
)
from holdfast.checkpoints.schedule import ScheduleInfo
from holdfast.checkpoints.scheduler import Scheduler
from holdfast.cli import output
from holdfast.cli.command import Group, flag, option, seconds, several
from holdfast.cli.session import Session, until_stopped
from holdfast.errors import InvalidInputError
from holdfast.sync import Store

_WHEN = re.compile(r"(?P<metric>[^<>=]+)(?P<sign>>=|<=|=|>|<)(?P<number>[^@]+)(@(?P<window>.+))?")
_SIGNS = dict(zip((">", "<", "=", ">=", "<="), OPERATORS, strict=True))


policy = Group("policy", help="When checkpoints of an agent are made by themselves.")


def _policies(store: Store, metrics: tuple[str, ...] = ()) -> Policies:
    # Nothing is watched: a command that sets a policy shall not fire it.
    return Policies(store, metrics=metrics, watch=False)


@policy.verb("list SCOPE")
def list_(session: Session, scope: str) -> None:
    """All policies of an agent, the highest priority first: its own, and the default ones."""
    with session.reading() as store:
        found = _policies(store).explain(session.state(store, scope))
    if session.json:
        kept = ("readings", "fires", "why")
        rows = [{k: v for k, v in one.data().items() if k not in kept} for one in found]
        session.tell({"scope": scope, "policies": rows})
        return
    session.table(
        "policies",
        found,
        "policy, priority=policy.priority, conditions, every, kept, encryption, from=source",
        policy=lambda one: one.policy.id if one.policy.enabled else f"{one.policy.id} (off)",
        conditions=lambda one: " and ".join(map(str, one.policy.conditions)),
        every=lambda one: (
            " + ".join(
                f"{time / 1000:g} s"
                for time in (one.policy.frequency.interval, one.policy.frequency.jitter)
                if time
            )
            or "event"
        ),
        kept=lambda one: kept_of(one.policy),
        encryption=lambda one: one.effective["encryption"],
    )


def kept_of(one: Policy) -> str:
    """How many of the checkpoints that a policy makes are kept; empty for all."""
    age, count = one.retention.max_age, one.retention.max_count
    parts = [f"{age / 86_400_000:g} d"] if age is not None else []
    parts += [f"last {count}"] if count is not None else []
    least = one.retention.min_count
    return ", ".join([*parts, *([f"at least {least}"] if least else [])])


@policy.verb("set SCOPE ID")
@several("--when", "CONDITION", "All of them must hold.")
@click.option("--name", help="For people.")
@option("--interval", "TIME", "Not again for so long: 90s, 5m, 1h. [0]")
@option("--jitter", "TIME", "Wait a share of it, another for each agent. [0]")
@option("--max-age", "TIME", "Keep its checkpoints so long: 7d.")
@click.option("--max-count", type=int, help="Keep so many of its checkpoints.")
@click.option("--min-count", type=int, help="Keep so many of the newest, whatever their age. [0]")
@click.option("--compression", type=click.Choice(["lz4", "zstd", "none"]), help="Of its exports.")
@click.option("--priority", help="low, medium, high or critical. [medium]")
@flag("--encrypted", "Demand that store and exports are encrypted.")
@flag("--off", "Switch it off; without --when, as it is otherwise.")
@several("--metric", "NAME", "A metric that the agent records.")
def set_(session: Session, /, scope: str, id: str, **given: Any) -> None:
    """Give an agent a policy, in place of the one of that id.

    CONDITION is METRIC>NUMBER (also <, =, >=, <=), with @TIME for a time window:
    operation_count>100, state_change_ratio>0.1, error_rate>0.5@10m, system_event:low_disk=1.
    Times are milliseconds, or like 90s, 5m, 1h, 7d.
    """
    with session.writing() as store:
        policies = _policies(store, given["metric"])
        state = session.state(store, scope, new=True)
        made = policies.set(state, _made(policies.get(state, id), id, given))
    conditions = " and ".join(map(str, made.conditions))
    say = "switched off" if not made.enabled else f"a checkpoint when {conditions}"
    session.tell({"scope": state.scope, "policy": made}, f"{state.scope} {made.id}: {say}")


def _made(old: Policy | None, id: str, given: dict[str, Any]) -> dict[str, Any]:
    """The policy that the options describe, as plain data."""
    if given["off"] and not given["when"] and old is not None:
        # The same conditions, and nothing that a plain store would have to refuse.
        return {**old.data(), "enabled": False, "encryption": None}
    frequency = {"interval": given["interval"], "jitter": given["jitter"]}
    retention = {name: given[name] for name in ("max_age", "max_count", "min_count")}
    squeezed = given["compression"]
    method = {"enabled": squeezed != "none", "algorithm": squeezed if squeezed != "none" else "lz4"}
    return {
        "id": id,
        "name": given["name"] or "",
        "conditions": list(map(_condition, given["when"])),
        "frequency": {name: _time(v) for name, v in frequency.items() if v is not None},
        "retention": {name: _time(v) for name, v in retention.items() if v is not None},
        "compression": method if squeezed is not None else None,
        "encryption": {"enabled": True, "algorithm": "AES-256-GCM"} if given["encrypted"] else None,
        "priority": given["priority"] or "medium",
        "enabled": not given["off"],
    }


def _condition(text: str) -> dict[str, Any]:
    """A condition as plain data; what is wrong with its parts is told with the policy."""
    found = _WHEN.fullmatch(text)
    if found is None:
        raise InvalidInputError(f"{text[:80]!r} is no condition; write operation_count>100")
    metric = found["metric"].strip()
    kinds = [kind for kind, metrics in METRICS.items() if base_of(metric) in metrics]
    return {
        "type": [*kinds, EVENTS][0],  # what no kind has is one of the program's own
        "metric": metric,
        "operator": _SIGNS[found["sign"]],
        "threshold": _time(found["number"]),
        **({"window": _time(found["window"])} if found["window"] else {}),
    }


def _time(text: Any) -> Any:
    """A number where the text is one; what else it may be is read with the policy."""
    try:
        return float(text) if isinstance(text, str) else text
    except ValueError:
        return milliseconds(text.strip())


@policy.verb("remove SCOPE ID")
def remove(session: Session, scope: str, id: str) -> None:
    """Take a policy of its own from an agent; a default one of that id is in force again."""
    with session.writing() as store:
        state = session.state(store, scope)
        _policies(store).remove(state, id)
    session.tell({"scope": state.scope, "removed": id}, f"{state.scope} {id}: removed")


@policy.verb("explain SCOPE")
def explain(session: Session, scope: str) -> None:
    """What each policy reads now, and why it does or does not fire.

    What is counted in the agent's own process, errors and reported events, is not known here.
    """
    with session.reading() as store:
        state = session.state(store, scope)
        found = _policies(store).explain(state)
    about = {"scope": state.scope}
    session.table("policies", found, "policy=policy.id, fires, why", about=about)


# ---- schedules: at intervals and by the calendar -------------------------------------------------


schedule = Group("schedule", help="Checkpoints at intervals and by the calendar.")


@schedule.verb("list")
def list_schedules(session: Session) -> None:
    """All schedules, how often they ran, and when they are due."""
    with session.reading() as store:
        found = Scheduler(store).schedules()
    session.table(
        "schedules",
        found,
        "schedule=name, when, of, runs, last, next, failed",
        of=_of,
        failed=lambda one: one.damage or one.failed,
    )


def _of(one: ScheduleInfo) -> str | None:
    if one.damage is not None:
        return None
    if one.policy is not None:
        return f"{one.scope} by policy {one.policy}"
    if one.retention:
        return f"retention of {one.scope}"
    line = "" if one.timeline == "main" else f" {one.timeline}"
    return f"{one.scope}{line}" if one.scope is not None else "a job, of an older version"


@schedule.verb("add SCOPE")
@click.option("--every", type=float, metavar="SECONDS", help="At this interval.")
@option("--cron", "EXPRESSION", "'minute hour day month weekday'.")
@option("--zone", "NAME", "Of --cron, for example Europe/Berlin. [default UTC]")
@click.option("--jitter", type=float, default=0.0, metavar="SECONDS", help="Spread over this time.")
@click.option("--name", help="Of the schedule. [default the scope]")
@flag("--retention", "Let go what may go, instead of a checkpoint.")
def add(
    session: Session,
    /,
    scope: str,
    every: float | None,
    cron: str | None,
    zone: str | None,
    **more: Any,
) -> None:
    """Add a schedule of checkpoints of a scope, or replace the one of that name.

    It runs where a program has a Scheduler, or `holdfast schedule run`.
    """
    if (every is None) == (cron is None) or (zone is not None and cron is None):
        raise InvalidInputError("give --every SECONDS, or --cron EXPRESSION and perhaps --zone")
    with session.writing() as store:
        scheduler = Scheduler(store)
        state = store.scope(scope).on(session.timeline)
        if every is not None:
            made = scheduler.every(every, state, **more)
        else:
            made = scheduler.cron(str(cron), state, zone=zone or "UTC", **more)
    session.tell(made, f"{made.name}: {made.when}, next {output.cell(made.next)}")


@schedule.verb("remove NAME")
def remove_schedule(session: Session, name: str) -> None:
    """Remove a schedule; the checkpoints that it made stay."""
    with session.writing() as store:
        Scheduler(store).remove(name)
    session.tell({"removed": name}, f"{name}: removed")


@schedule.verb("run")
@flag("--once", "Run what is due now, then end.")
@seconds("--lease", 30.0, "After so long without a sign another process takes over.")
def run(session: Session, once: bool, lease: float) -> None:
    """Run schedules of checkpoints, in one of several processes; until Ctrl-C.

    With --json a line for each run; with --once as well, one document.
    """
    with until_stopped(), session.writing() as store:
        scheduler = Scheduler(store, lease=lease)
        end = time.monotonic() + lease + 5  # of a runner that is gone, it is known after its lease
        try:
            while True:
                ran = scheduler.run_due()
                for one in ran if not (once and session.json) else []:
                    made = one.checkpoint.id if one.checkpoint is not None else one.error or ""
                    session.each(one, [one.schedule, one.slot, one.outcome, made])
                if once and (scheduler.running or time.monotonic() > end):
                    session.tell({"runner": scheduler.running, "runs": ran})
                    if not scheduler.running:
                        session.note("another process runs the schedules")
                    return
                time.sleep(1.0)
        finally:
            scheduler.stop()
