"""`holdfast doctor`: how healthy a store is, and what to do about it."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from holdfast.cli import output
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.session import Session

WELL, ILL = 80, 50
"""From here on it is green, and below here red."""


@click.command(cls=Command)
@click.argument("scope", required=False, shell_complete=complete_scope)
@click.option("--budget", type=click.FloatRange(0), default=10, help="Seconds for verifying. [10]")
@click.option("--at-least", type=click.IntRange(0, 100), default=ILL, help="Else exit with 1. [50]")
@pass_session
def doctor(session: Session, scope: str | None, budget: float, at_least: int) -> int:
    """Health from 0 to 100, with the reasons and the next step for each.

    Of the whole store, or of one scope: damage, what was begun and never ended, checkpoints,
    retention, where key and signer lie, room on the disk. Nothing is changed.
    """
    from holdfast.recovery.recovery import Recovery

    key = session.key or os.environ.get("HOLDFAST_KEY")
    with session.reading() as store:
        state = session.state(store, scope) if scope is not None else None
        found = Recovery(store).health(
            state,
            budget=budget,
            url=session.url,
            key=key,
            signer=session.signer_source,
            durability=session.durability,
        )
    if session.json:
        told = {"score": found.score, "complete": found.complete, "entries": found.entries}
        concerns = [asdict(one) for one in found.concerns]
        output.document({**told, "concerns": concerns, "omitted": found.omitted})
    else:
        colour = "green" if found.score >= WELL else "yellow" if found.score >= ILL else "red"
        output.say(click.style(f"health: {found.score} of 100", fg=colour, bold=True))
        output.table(
            ["points", "what", "where", "why", "next step"],
            [[f"-{one.points}", one.kind, one.scope, one.what, one.next] for one in found.concerns],
        )
        if found.omitted:
            output.note(f"… and {found.omitted} more")
    return 0 if found.score >= at_least else 1
