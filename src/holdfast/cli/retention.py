"""`holdfast retention`: which checkpoints go, and letting them go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdfast.checkpoints.retention import Retention
from holdfast.cli.commands import Group
from holdfast.cli.options import together
from holdfast.cli.restore import checkpoints_of
from holdfast.cli.session import Session, point
from holdfast.errors import InvalidInputError
from holdfast.sync import Store


@click.group(cls=Group)
def retention() -> None:
    """Show which checkpoints and how much history go by the rules, and prune them."""


def _retention(session: Session, store: Store) -> Retention:
    """The retention of all timelines of a scope."""
    if session.timeline != "main":
        raise InvalidInputError(
            "retention looks at all timelines of a scope, and ends the one that is named behind "
            "it: leave --timeline out"
        )
    return Retention(store)


@retention.verb("plan SCOPE")
def plan(session: Session, scope: str) -> None:
    """What would go, and why each checkpoint stays or goes; nothing is changed."""
    with session.reading() as store:
        found = _retention(session, store).plan(scope)
    session.tell(found, found)


@retention.verb("run SCOPE")
@click.option("--confirm", is_flag=True, help="Also what has to be confirmed; see `plan`.")
def run(session: Session, scope: str, confirm: bool) -> None:
    """Prune what `plan` shows. Cut short, run it again."""
    with session.writing() as store:
        done = _retention(session, store).run(scope, confirm=confirm)
    session.tell({"pruned": done}, *done)
    if not done:
        session.note("nothing goes")


@retention.verb("end SCOPE TIMELINE")
@click.option("--reason", help="Why; it is kept with the entries that end it.")
def end(session: Session, scope: str, timeline: str, reason: str | None) -> None:
    """End a timeline that nothing needs, and drop its content. Cut short, run it again."""
    with session.writing() as store:
        done = _retention(session, store).end(scope, timeline, reason)
    session.tell(done, f"{done.scope} {timeline} is ended; {done.bytes} bytes went")


# ---- marks of one checkpoint -------------------------------------------------------------------


def _mark(name: str, about: str, said: str, unsaid: str = "", *options: Callable[..., Any]) -> None:
    """A verb that changes the marks of a checkpoint, by whatever names it; its state need not be
    whole."""

    def mark(session: Session, scope: str, checkpoint: str, **given: str) -> None:
        with session.writing() as store:
            state = session.state(store, scope)
            found = checkpoints_of(state).inspect(point(checkpoint), verify="none").checkpoint
            done = getattr(Retention(store), name)(found, **given) is not False
        told = {"scope": found.scope, "checkpoint": found.id, "done": done}
        session.tell(told, f"{found.id}: {said}" if done else None)
        if not done:
            session.note(unsaid)

    mark.__doc__ = about
    retention.verb(f"{name} SCOPE CHECKPOINT")(together(*options)(mark))


def _reason(default: str) -> Callable[..., Any]:
    return click.option("--reason", default=default, show_default=True)


_mark(
    "clear",
    "Let a checkpoint go with the next `run`, whatever its rule says.",
    "goes with the next `holdfast retention run`",
    "",
    _reason("cleared"),
)
_mark(
    "pin",
    "Keep a checkpoint whatever the rules say, until it is unpinned.",
    "pinned",
    "",
    _reason("pinned"),
)
_mark("unpin", "Take a pin back.", "unpinned", "it was not pinned")
_mark(
    "hold",
    "Put a legal hold on a checkpoint: no rule removes it, and its scope is not deleted.",
    "on hold",
    "",
    click.option("--reason", required=True, help="Why; who is refused because of it is told."),
)
_mark("lift", "Lift a hold.", "lifted", "it was not on hold")
