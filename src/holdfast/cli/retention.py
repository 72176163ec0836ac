"""`holdfast retention`: which checkpoints go, and letting them go."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdfast.checkpoints.checkpoints import Checkpoints
from holdfast.checkpoints.retention import Retention, RetentionPlan
from holdfast.cli import output
from holdfast.cli.commands import Group, pass_session
from holdfast.cli.points import point
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError
from holdfast.store.names.items import Checkpoint
from holdfast.store.store import Store


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
        found = _found(session, store, scope, checkpoint)
        Retention(store).clear(found, reason)
    if session.json:
        output.document({"scope": str(found.scope), "cleared": found.id})
    else:
        output.say(output.clean(f"{found.id}: goes with the next `holdfast retention run`"))


@retention.command("pin")
@click.argument("scope")
@click.argument("checkpoint")
@click.option("--reason", default="pinned", show_default=True)
@pass_session
def pin(session: Session, scope: str, checkpoint: str, reason: str) -> None:
    """Keep a checkpoint whatever the rules say, until it is unpinned."""
    with session.writing() as store:
        found = _found(session, store, scope, checkpoint)
        Retention(store).pin(found, reason)
    _tell(session, found, "pinned", True)


@retention.command("unpin")
@click.argument("scope")
@click.argument("checkpoint")
@pass_session
def unpin(session: Session, scope: str, checkpoint: str) -> None:
    """Take a pin back."""
    with session.writing() as store:
        found = _found(session, store, scope, checkpoint)
        done = Retention(store).unpin(found)
    _tell(session, found, "unpinned", done, "it was not pinned")


@retention.command("hold")
@click.argument("scope")
@click.argument("checkpoint")
@click.option("--reason", required=True, help="Why; who is refused because of it is told.")
@pass_session
def hold(session: Session, scope: str, checkpoint: str, reason: str) -> None:
    """Put a legal hold on a checkpoint: no rule removes it, and its scope is not deleted."""
    with session.writing() as store:
        found = _found(session, store, scope, checkpoint)
        Retention(store).hold(found, reason)
    _tell(session, found, "on hold", True)


@retention.command("lift")
@click.argument("scope")
@click.argument("checkpoint")
@pass_session
def lift(session: Session, scope: str, checkpoint: str) -> None:
    """Lift a hold."""
    with session.writing() as store:
        found = _found(session, store, scope, checkpoint)
        done = Retention(store).lift(found)
    _tell(session, found, "lifted", done, "it was not on hold")


@retention.command("marks")
@click.argument("scope")
@pass_session
def marks(session: Session, scope: str) -> None:
    """The checkpoints that are pinned, on hold or needed for a restart, and why."""
    _check_timeline(session)
    with session.reading() as store:
        found = Retention(store).marked(scope)
    if session.json:
        output.document(found)
        return
    for id, why in found.items():
        output.say(output.clean(f"{id}: {why}"))
    if not found:
        output.note("nothing is marked")


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


def _found(session: Session, store: Store, scope: str, checkpoint: str) -> Checkpoint:
    """A checkpoint by whatever names it; its state need not be whole."""
    state = session.state(store, scope)
    return Checkpoints(state).inspect(point(checkpoint), verify="none").checkpoint


def _tell(session: Session, found: Checkpoint, what: str, done: bool, else_: str = "") -> None:
    """Say what became of a checkpoint's marks."""
    if session.json:
        output.document({"scope": str(found.scope), "checkpoint": found.id, "done": done})
    elif done:
        output.say(output.clean(f"{found.id}: {what}"))
    else:
        output.note(else_)


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
