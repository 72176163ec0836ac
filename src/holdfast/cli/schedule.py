"""`holdfast schedule`: checkpoints at intervals and by the calendar."""

from __future__ import annotations

import time
from typing import Any

import click

from holdfast.checkpoints.schedule import ScheduleInfo
from holdfast.checkpoints.scheduler import Scheduler
from holdfast.cli import output
from holdfast.cli.commands import Group
from holdfast.cli.session import Session, until_stopped
from holdfast.errors import InvalidInputError
from holdfast.sync import Store


@click.group(cls=Group)
def schedule() -> None:
    """Checkpoints at intervals and by the calendar."""


def _scheduler(store: Store, **more: Any) -> Scheduler:
    return Scheduler(store, **more)


@schedule.verb("list")
def list_(session: Session) -> None:
    """All schedules, how often they ran, and when they are due."""
    with session.reading() as store:
        found = _scheduler(store).schedules()
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
    return f"{one.scope}{line}" if one.scope is not None else f"job {one.job}"


@schedule.verb("add SCOPE")
@click.option("--every", type=float, metavar="SECONDS", help="At this interval.")
@click.option("--cron", metavar="EXPRESSION", help="'minute hour day month weekday'.")
@click.option("--zone", metavar="NAME", help="Of --cron, for example Europe/Berlin. [default UTC]")
@click.option("--jitter", type=float, default=0.0, metavar="SECONDS", help="Spread over this time.")
@click.option("--name", help="Of the schedule. [default the scope]")
@click.option("--retention", is_flag=True, help="Let go what may go, instead of a checkpoint.")
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
        scheduler = _scheduler(store)
        state = store.scope(scope).on(session.timeline)
        if every is not None:
            made = scheduler.every(every, state, **more)
        else:
            made = scheduler.cron(str(cron), state, zone=zone or "UTC", **more)
    session.tell(made, f"{made.name}: {made.when}, next {output.cell(made.next)}")


@schedule.verb("remove NAME")
def remove(session: Session, name: str) -> None:
    """Remove a schedule; the checkpoints that it made stay."""
    with session.writing() as store:
        _scheduler(store).remove(name)
    session.tell({"removed": name}, f"{name}: removed")


@schedule.verb("run")
@click.option("--once", is_flag=True, help="Run what is due now, then end.")
@click.option("--lease", type=float, default=30.0, show_default=True, metavar="SECONDS",
              help="After so long without a sign another process takes over.")  # fmt: skip
def run(session: Session, once: bool, lease: float) -> None:
    """Run schedules of checkpoints, in one of several processes; until Ctrl-C.

    With --json a line for each run; with --once as well, one document. Schedules of jobs need the
    program that has the jobs.
    """
    with until_stopped(), session.writing() as store:
        scheduler = _scheduler(store, lease=lease)
        jobs = sorted({one.job for one in scheduler.schedules() if one.job is not None})
        if jobs:
            raise InvalidInputError(
                f"some schedules run jobs ({', '.join(jobs[:5])}), which only a program of yours "
                "has: run the schedules there, with sync.checkpoints.Scheduler(store, jobs=...)"
            )
        try:
            _run(session, scheduler, once, lease)
        finally:
            scheduler.stop()


def _run(session: Session, scheduler: Scheduler, once: bool, lease: float) -> None:
    end = time.monotonic() + lease + 5  # of a runner that is gone, it is known after its lease
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
