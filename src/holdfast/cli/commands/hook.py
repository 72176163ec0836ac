"""`holdfast hook`: how background hooks fare, and what a hook would say of what has happened."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from holdfast.cli.command import Group, flag, imported, several, values_named
from holdfast.cli.session import Session, moment
from holdfast.hooks.hook import MODES, Hook, TimeRange, hook_records
from holdfast.store.names.arguments import check_run
from holdfast.store.names.threads import called

hook = Group("hook", help="Hooks: functions that are told of changes.")


@hook.verb("list")
def list_(session: Session) -> None:
    """Background hooks, by the places that they keep: how far behind each is.

    Hooks in front of changes live in programs alone, and keep nothing.
    """
    _table(session, "hook=name, behind, told, failed")


@hook.verb("metrics")
def metrics(session: Session) -> None:
    """What background hooks gave for the last 1,000 events of each, and their last failure."""
    _table(session, "hook=name, told, failed, gave, error")


def _table(session: Session, columns: str) -> None:
    with session.reading() as store:
        found = hook_records(store)
    session.table(
        "hooks",
        found,
        columns,
        failed=lambda one: one["results"].get("failed", 0),
        gave=lambda one: ", ".join(f"{name} {n}" for name, n in sorted(one["results"].items())),
    )


@hook.verb("replay NAME")
@click.option("--from", "program", required=True, metavar="MODULE:NAME",
              help="The function that is the hook.")  # fmt: skip
@several("--keys", "PATTERN", "[default all]")
@several("--scope=scopes", "PATTERN", "[default all]")
@several("--on=events", "PATTERN", "[default state.changed]")
@click.option("--since", type=moment, metavar="TIME")
@click.option("--until", type=moment, metavar="TIME")
@click.option("--mode", type=click.Choice(MODES), default="simulate", show_default=True)
@several("--param=params", "NAME=JSON", "Of those that the hook is given.")
@flag("--front", "It stands in front of changes.")
def replay(
    session: Session,
    name: str,
    program: str,
    keys: tuple[str, ...],
    scopes: tuple[str, ...],
    events: tuple[str, ...],
    front: bool,
    **more: Any,
) -> None:
    """Call a hook with what is in the journal, and compare with what it gave then.

    NAME is the one that the hook has in the program that runs it: its results are kept under that.
    Nothing that it gives is written.
    """
    function = imported(program, "the hook as MODULE:NAME, like bots:back_up")
    check_run(function, "a hook", awaited=True)
    wanted = (keys or "*", scopes or "*", events or "state.changed")
    made = Hook(*wanted, name, partial(called, function), behind=not front)
    times = TimeRange(more["since"], more["until"])
    params = values_named(more["params"], "--param")
    with session.reading() as store:
        report = made.replay(store, times, more["mode"], params)
    session.tell(report, report)
