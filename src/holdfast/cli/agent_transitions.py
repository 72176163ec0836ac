"""`holdfast agent transitions`: where an agent's state machines are, and how they got there."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from holdfast.agents.machines.log import transitions_of
from holdfast.agents.machines.machine_records import Looker, MachineIntent, Transition, machines_of
from holdfast.cli import output, points
from holdfast.cli.agent_state import agent_scope
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.key import scope_argument
from holdfast.cli.session import Session
from holdfast.errors import InvalidScopeError, MissingError
from holdfast.store.inner import handle_of
from holdfast.store.names.scope import Scope


@click.command(cls=Command)
@scope_argument
@click.option("--machine", metavar="NAME", help="One machine. [all of them]")
@click.option("--failed", is_flag=True, help="Only attempts that failed.")
@click.option("--since", metavar="TIME|NUMBER", help="From a time or a transition's number on.")
@click.option("--limit", type=int, default=50, help="The newest so many. [50]")
@pass_session
def transitions(
    session: Session, scope: str, machine: str | None, failed: bool, since: str | None, limit: int
) -> None:
    """Where the state machines of an agent are, and how they got there.

    SCOPE is an agent's id, or any scope with machines: workflow:9.
    """
    try:
        Scope.parse(scope)
    except InvalidScopeError:
        scope = agent_scope(scope)
    with session.reading() as store:
        handle = handle_of(session.state(store, scope))
        names = machines_of(handle)
        if machine is not None and machine not in names:
            known = ", ".join(names) or "none"
            raise MissingError(f"{scope} has no machine {machine!r}; it has: {known}")
        shown = [
            _told(
                Looker(handle, name),
                since=points.bound(since) if since is not None else None,
                success=False if failed else None,
                limit=limit,
            )
            for name in names
            if machine in (None, name)
        ]
    if session.json:
        output.document({"scope": scope, "machines": shown})
        return
    for one in shown:
        _say(one)
    if not shown:
        output.note(f"{scope} has no state machine")


def _told(looker: Looker, **asked: Any) -> dict[str, Any]:
    """A machine and its transitions, as data."""
    seen = looker.look()
    return {
        "machine": looker.name,
        "state": seen.state or None,
        "version": seen.now["version"] if seen.now is not None else None,
        "interrupted": _begun(seen.intent),
        "transitions": [_row(one) for one in transitions_of(looker, **asked)],
    }


def _begun(intent: MachineIntent | None) -> dict[str, Any] | None:
    if intent is None:
        return None
    return {
        "trigger": intent.trigger,
        "from": intent.from_state,
        "to": intent.to_state,
        "begun": intent.begun.isoformat(),
        "attempt": intent.attempt,
    }


def _row(one: Transition) -> dict[str, Any]:
    return {
        "number": one.number,
        "time": one.timestamp.isoformat(),
        "kind": one.kind,
        "from": one.from_state,
        "to": one.to_state,
        "trigger": one.trigger,
        "success": one.success,
        "error": one.error,
        "version": one.version,
        "id": one.id,
    }


def _say(machine: dict[str, Any]) -> None:
    """For people: where it is, then a line for each transition."""
    where = f"{machine['state']}, version {machine['version']}" if machine["state"] else "not begun"
    output.note(f"{machine['machine']}: {where}")
    begun = machine["interrupted"]
    if begun is not None:
        output.note(
            f"{machine['machine']}: {begun['trigger']} is being worked on since {begun['begun']}, "
            "or was interrupted"
        )
    output.table(
        ["number", "time", "kind", "trigger", "from", "to", "version", "error"],
        [
            [
                one["number"],
                datetime.fromisoformat(one["time"]),
                one["kind"],
                one["trigger"],
                one["from"],
                one["to"],
                one["version"],
                one["error"],
            ]
            for one in machine["transitions"]
        ],
    )
