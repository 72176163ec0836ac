"""`holdfast retention`: which checkpoints go, and letting them go."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdfast.checkpoints.blocking import Checkpoints
from holdfast.checkpoints.retention import Retention, RetentionPlan
from holdfast.cli import output
from holdfast.cli.commands import Group, pass_session
from holdfast.cli.points import point
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError


@click.group(cls=Group)
def retention() -> None:
    """Show which checkpoints and how much history go by the rules, and prune them."""


@retention.command("plan")
@click.argument("scope")
@pass_session
def plan(session: Session, scope: str) -> None:
    """What would go, and why each checkpoint stays or goes; nothing is changed."""
    _check_timeline(session)
    with session.reading() as store:
        found = Retention(store).plan(scope)
    if session.json:
        output.document(_data(found))
        return
    for line in str(found).splitlines():
        output.say(output.clean(line))


@retention.command("run")
@click.argument("scope")
@click.option("--confirm", is_flag=True, help="Also what has to be confirmed; see `plan`.")
@pass_session
def run(session: Session, scope: str, confirm: bool) -> None:
    """Prune what `plan` shows. Cut short, run it again."""
    _check_timeline(session)
    with session.writing() as store:
        done = Retention(store).run(scope, confirm=confirm)
    if session.json:
        output.document({"pruned": [asdict(one) | {"scope": str(one.scope)} for one in done]})
        return
    for one in done:
        output.say(output.clean(str(one)))
    if not done:
        output.note("nothing goes")


@retention.command("clear")
@click.argument("scope")
@click.argument("checkpoint")
@click.option("--reason", default="cleared", show_default=True)
@pass_session
def clear(session: Session, scope: str, checkpoint: str, reason: str) -> None:
    """Let a checkpoint go with the next `run`, whatever its rule says."""
    with session.writing() as store:
        state = session.state(store, scope)
        found = Checkpoints(state).inspect(point(checkpoint), verify="none").checkpoint
        Retention(store).clear(found, reason)
    if session.json:
        output.document({"scope": str(state.scope), "cleared": found.id})
    else:
        output.say(output.clean(f"{found.id}: goes with the next `holdfast retention run`"))


@retention.command("end")
@click.argument("scope")
@click.argument("timeline")
@click.option("--reason", help="Why; it is kept with the entries that end it.")
@pass_session
def end(session: Session, scope: str, timeline: str, reason: str | None) -> None:
    """End a timeline that nothing needs, and drop its content. Cut short, run it again."""
    _check_timeline(session)
    with session.writing() as store:
        done = Retention(store).end(scope, timeline, reason)
    if session.json:
        output.document(asdict(done) | {"scope": str(done.scope)})
    else:
        output.say(output.clean(f"{done.scope} {timeline} is ended; {done.bytes} bytes went"))


def _check_timeline(session: Session) -> None:
    if session.timeline != "main":
        raise InvalidInputError(
            "retention looks at all timelines of a scope, and ends the one that is named behind "
            "it: leave --timeline out"
        )


def _data(found: RetentionPlan) -> dict[str, Any]:
    return {
        "scope": str(found.scope),
        "timelines": [
            {
                "timeline": line.timeline,
                "floor": line.floor,
                "checkpoints": [
                    {
                        "id": one.checkpoint.id,
                        "name": one.checkpoint.name,
                        "type": one.checkpoint.type,
                        "stays": one.stays,
                        "why": one.why,
                    }
                    for one in line.judged
                ],
            }
            for line in found.lines
        ],
        "questions": list(found.questions),
        "notes": list(found.notes),
    }
