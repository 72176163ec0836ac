"""`holdfast schedule`: checkpoints at intervals and by the calendar."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output, plain
from holdfast.cli.commands import Group, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError
from holdfast.store.inner import write

if TYPE_CHECKING:
    from holdfast.checkpoints.schedule import ScheduleInfo
    from holdfast.checkpoints.scheduler import Run, Scheduler


@click.group(cls=Group)
def schedule() -> None:
    """Checkpoints at intervals and by the calendar."""


@schedule.command("list")
@pass_session
def list_(session: Session) -> None:
    """All schedules, how often they ran, and when they are due."""
    from holdfast.checkpoints.scheduler import Scheduler

    with session.reading() as store:
        found = Scheduler(store).schedules()
    if session.json:
        output.document({"schedules": [_shape(one) for one in found]})
        return
    output.table(
        ["schedule", "when", "of", "runs", "last", "next", "failed"],
        [
            [one.name, one.when, _of(one), one.runs, one.last, one.next, one.damage or one.failed]
            for one in found
        ],
    )


def _of(one: ScheduleInfo) -> str | None:
    if one.damage is not None:
        return None
    if one.policy is not None:
        return f"{one.scope} by policy {one.policy}"
    if one.retention:
        return f"retention of {one.scope}"
    line = "" if one.timeline == "main" else f" {one.timeline}"
    return f"{one.scope}{line}" if one.scope is not None else f"job {one.job}"


def _shape(one: ScheduleInfo) -> dict[str, Any]:
    return {
        "name": one.name,
        "when": str(one.when) if one.when is not None else None,
        "scope": one.scope,
        "timeline": one.timeline,
        "job": one.job,
        "policy": one.policy,
        "retention": one.retention,
        "runs": one.runs,
        "last": plain.time_text(one.last) if one.last else None,
        "next": plain.time_text(one.next) if one.next else None,
        "failed": one.failed,
        "damage": one.damage,
    }


@schedule.command()
@click.argument("scope", shell_complete=complete_scope)
@click.option("--every", type=float, metavar="SECONDS", help="At this interval.")
@click.option("--cron", metavar="EXPRESSION", help="'minute hour day month weekday'.")
@click.option("--zone", metavar="NAME", help="Of --cron, for example Europe/Berlin. [default UTC]")
@click.option("--jitter", type=float, default=0.0, metavar="SECONDS", help="Spread over this time.")
@click.option("--name", help="Of the schedule. [default the scope]")
@click.option("--retention", is_flag=True, help="Let go what may go, instead of a checkpoint.")
@pass_session
def add(
    session: Session,
    scope: str,
    every: float | None,
    cron: str | None,
    zone: str | None,
    jitter: float,
    name: str | None,
    retention: bool,
) -> None:
    """Add a schedule of checkpoints of a scope, or replace the one of that name.

    It runs where a program has a Scheduler, or `holdfast schedule run`.
    """
    from holdfast.checkpoints.scheduler import Scheduler

    if (every is None) == (cron is None) or (zone is not None and cron is None):
        raise InvalidInputError("give --every SECONDS, or --cron EXPRESSION and perhaps --zone")
    with session.writing() as store:
        scheduler = Scheduler(store)
        state = store.scope(scope).on(session.timeline)
        if cron is not None:
            made = scheduler.cron(
                cron, state, zone=zone or "UTC", jitter=jitter, name=name, retention=retention
            )
        else:
            assert every is not None
            made = scheduler.every(every, state, jitter=jitter, name=name, retention=retention)
    if session.json:
        output.document(_shape(made))
    else:
        output.say(output.clean(f"{made.name}: {made.when}, next {output.cell(made.next)}"))


@schedule.command()
@click.argument("name")
@pass_session
def remove(session: Session, name: str) -> None:
    """Remove a schedule; the checkpoints that it made stay."""
    from holdfast.checkpoints.scheduler import Scheduler

    with session.writing() as store:
        Scheduler(store).remove(name)
    if session.json:
        output.document({"removed": name})
    else:
        output.say(output.clean(f"{name}: removed"))


@schedule.command()
@click.option("--once", is_flag=True, help="Run what is due now, then end.")
@click.option("--lease", type=float, default=30.0, show_default=True, metavar="SECONDS",
              help="After so long without a sign another process takes over.")  # fmt: skip
@pass_session
def run(session: Session, once: bool, lease: float) -> None:
    """Run schedules of checkpoints, in one of several processes; until Ctrl-C.

    With --json a line for each run; with --once as well, one document. Schedules of jobs need the
    program that has the jobs.
    """
    from holdfast.checkpoints.scheduler import Scheduler

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with session.writing() as store:
            scheduler = Scheduler(store, lease=lease)
            _refuse_jobs(scheduler)
            try:
                _run(scheduler, once, lease, as_json=session.json)
            finally:
                scheduler.stop()
    except KeyboardInterrupt:
        return  # this is how it is meant to end
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse_jobs(scheduler: Scheduler) -> None:
    jobs = sorted({one.job for one in scheduler.schedules() if one.job is not None})
    if jobs:
        raise InvalidInputError(
            f"some schedules run jobs ({', '.join(jobs[:5])}), which only a program of yours has: "
            "run the schedules there, with sync.checkpoints.Scheduler(store, jobs=...)"
        )


def _run(scheduler: Scheduler, once: bool, lease: float, *, as_json: bool) -> None:
    end = time.monotonic() + lease + 5  # of a runner that is gone, it is known after its lease
    while True:
        ran = scheduler.run_due()
        if not (once and as_json):
            for one in ran:
                _show(one, as_json=as_json)
        if once and (scheduler.running or time.monotonic() > end):
            if as_json:
                output.document({"runner": scheduler.running, "runs": [_data(one) for one in ran]})
            elif not scheduler.running:
                output.note("another process runs the schedules")
            return
        time.sleep(1.0)


def _show(ran: Run, *, as_json: bool) -> None:
    data = _data(ran)
    if as_json:
        click.echo(write(data))
    else:
        texts = [ran.schedule, str(ran.slot), ran.outcome, data["checkpoint"] or ran.error or ""]
        output.say("\t".join(map(output.clean, texts)))


def _data(ran: Run) -> dict[str, Any]:
    made = ran.checkpoint.id if ran.checkpoint is not None else None
    shape = {"schedule": ran.schedule, "slot": ran.slot, "outcome": ran.outcome}
    return {**shape, "checkpoint": made, "error": ran.error}
