"""`holdfast run`: an agent set up by a document, with all that runs beside it, as a process."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from holdfast.cli.command import command, imported, machines_named, option, several
from holdfast.cli.session import Session, login, until_stopped
from holdfast.errors import InvalidInputError
from holdfast.recovery.setup.managed import Managed, RunningStatus, set_up
from holdfast.recovery.setup.supervisor import STARTING

LOOK = 1.0
"""Seconds between two looks at how it is."""
_MAKES = "what makes the agent as MODULE:NAME, like bots:make_planner"


@command("run --machine")
@click.argument("document", type=click.Path(dir_okay=False), metavar="FILE")
@option("--agent=make", "MODULE:NAME", "Run the agent here, in a loop.")
@several(
    "--validate=checks",
    "MODULE:NAME",
    "A function of a view of the state: what it refuses is recovered from.",
)
@several(
    "--replica=replicas",
    "URL",
    "Where a replica is, if the document names none. [HOLDFAST_REPLICAS]",
)
def run(
    session: Session,
    document: str,
    make: str | None,
    checks: tuple[str, ...],
    replicas: tuple[str, ...],
    machines: tuple[str, ...],
) -> None:
    """Run all that a document asks for, until Ctrl-C or SIGTERM ends it well.

    FILE is a YAML, TOML or JSON document: see docs/configuration.md. It says where the store is;
    --store, --key and the like are not for this command. A line is printed for each part that
    starts, and one for each change after that; with --json, one document a line.
    """
    if named := sorted(session.given & {"store", "key", "passphrase_file", "signer", "durability"}):
        raise InvalidInputError(
            f"the document says where the store is and how it is opened: leave --{named[0]} out, "
            "and write it into storage.primary"
        )
    given: dict[str, Any] = {
        "agents": [imported(make, _MAKES)] if make is not None else [],
        "validate": [imported(one, "a check as MODULE:NAME, like bots:sane") for one in checks],
        "replicas": replicas,
        "machines": machines_named(machines),
    }
    with until_stopped():
        managed = set_up(document, **given)
        try:
            with managed.store.acting(session.actor or login()):
                _watch(session, managed)
        finally:
            managed.close()
            session.each({"event": "stopped"}, ["stopped", ""])


def _watch(session: Session, managed: Managed) -> None:
    """Tell how it begins, and then what changes, until it is stopped."""
    for note in (*managed.report.notes, *managed.report.findings):
        session.note(note)
    known: dict[str, tuple[str, str]] = {}
    ready = False
    while True:
        status = managed.status()
        now = _lines(status)
        for name in [*now, *(one for one in known if one not in now)]:
            state, what = now.get(name, ("resolved", known.get(name, ("", ""))[1]))
            if known.get(name) != (state, what):
                session.each({"name": name, "state": state, "what": what}, [name, state, what])
        if not ready and all(one.state != STARTING for one in status.parts):
            ready, started = True, f"agent:{status.agent_id} at {status.current_state}"
            session.each({"event": "ready", "agent": status.agent_id}, ["ready", started])
        known = now
        sys.stdout.flush()
        time.sleep(LOOK if ready else LOOK / 10)


def _lines(status: RunningStatus) -> dict[str, tuple[str, str]]:
    """What is told of a status: a line each."""
    parts = {
        one.name: (one.state, one.error or one.about)
        for one in status.parts
        if one.state != STARTING
    }
    alerts = {f"alert {one.name}": ("firing", one.what) for one in status.alerts}
    open_ = {f"failure {number}": ("open", one) for number, one in enumerate(status.unanswered, 1)}
    newest = {"checkpoint": ("newest", status.checkpoint)} if status.checkpoint else {}
    return {**parts, **newest, **alerts, **open_}
