"""`holdfast retention`: which checkpoints go, and letting them go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.commands import Group
from holdfast.cli.options import scope_argument
from holdfast.cli.restore import checkpoints_of
from holdfast.cli.session import Session, point
from holdfast.errors import InvalidInputError

if TYPE_CHECKING:
    from holdfast.checkpoints.retention import Retention
    from holdfast.store.names.items import Checkpoint
    from holdfast.sync import Store

checkpoint_argument = click.argument("checkpoint")


@click.group(cls=Group)
def retention() -> None:
    """Show which checkpoints and how much history go by the rules, and prune them."""


def _retention(session: Session, store: Store) -> Retention:
    """The retention of all timelines of a scope."""
    from holdfast.checkpoints.retention import Retention

    if session.timeline != "main":
        raise InvalidInputError(
            "retention looks at all timelines of a scope, and ends the one that is named behind "
            "it: leave --timeline out"
        )
    return Retention(store)


@retention.verb()
@scope_argument
def plan(session: Session, scope: str) -> None:
    """What would go, and why each checkpoint stays or goes; nothing is changed."""
    with session.reading() as store:
        found = _retention(session, store).plan(scope)
    session.tell(found, found)


@retention.verb()
@scope_argument
@click.option("--confirm", is_flag=True, help="Also what has to be confirmed; see `plan`.")
def run(session: Session, scope: str, confirm: bool) -> None:
    """Prune what `plan` shows. Cut short, run it again."""
    with session.writing() as store:
        done = _retention(session, store).run(scope, confirm=confirm)
    session.tell({"pruned": done}, *done)
    if not done:
        session.note("nothing goes")


@retention.verb()
@scope_argument
def marks(session: Session, scope: str) -> None:
    """The checkpoints that are pinned, on hold or needed for a restart, and why."""
    with session.reading() as store:
        found = _retention(session, store).marked(scope)
    session.tell(found, *(f"{id}: {why}" for id, why in found.items()))
    if not found:
        session.note("nothing is marked")


@retention.verb()
@scope_argument
@click.argument("timeline")
@click.option("--reason", help="Why; it is kept with the entries that end it.")
def end(session: Session, scope: str, timeline: str, reason: str | None) -> None:
    """End a timeline that nothing needs, and drop its content. Cut short, run it again."""
    with session.writing() as store:
        done = _retention(session, store).end(scope, timeline, reason)
    session.tell(done, f"{done.scope} {timeline} is ended; {done.bytes} bytes went")


# ---- marks of one checkpoint -------------------------------------------------------------------


def _mark(
    session: Session,
    scope: str,
    checkpoint: str,
    change: Callable[[Retention, Checkpoint], Any],
    said: str,
    unsaid: str = "",
) -> None:
    """Change the marks of a checkpoint, by whatever names it; its state need not be whole."""
    from holdfast.checkpoints.retention import Retention

    with session.writing() as store:
        state = session.state(store, scope)
        found = checkpoints_of(state).inspect(point(checkpoint), verify="none").checkpoint
        done = change(Retention(store), found) is not False
    told = {"scope": found.scope, "checkpoint": found.id, "done": done}
    session.tell(told, f"{found.id}: {said}" if done else None)
    if not done:
        session.note(unsaid)


@retention.verb()
@scope_argument
@checkpoint_argument
@click.option("--reason", default="cleared", show_default=True)
def clear(session: Session, scope: str, checkpoint: str, reason: str) -> None:
    """Let a checkpoint go with the next `run`, whatever its rule says."""
    said = "goes with the next `holdfast retention run`"
    _mark(session, scope, checkpoint, lambda marks, one: marks.clear(one, reason), said)


@retention.verb()
@scope_argument
@checkpoint_argument
@click.option("--reason", default="pinned", show_default=True)
def pin(session: Session, scope: str, checkpoint: str, reason: str) -> None:
    """Keep a checkpoint whatever the rules say, until it is unpinned."""
    _mark(session, scope, checkpoint, lambda marks, one: marks.pin(one, reason), "pinned")


@retention.verb()
@scope_argument
@checkpoint_argument
def unpin(session: Session, scope: str, checkpoint: str) -> None:
    """Take a pin back."""
    unsaid = "it was not pinned"
    _mark(session, scope, checkpoint, lambda marks, one: marks.unpin(one), "unpinned", unsaid)


@retention.verb()
@scope_argument
@checkpoint_argument
@click.option("--reason", required=True, help="Why; who is refused because of it is told.")
def hold(session: Session, scope: str, checkpoint: str, reason: str) -> None:
    """Put a legal hold on a checkpoint: no rule removes it, and its scope is not deleted."""
    _mark(session, scope, checkpoint, lambda marks, one: marks.hold(one, reason), "on hold")


@retention.verb()
@scope_argument
@checkpoint_argument
def lift(session: Session, scope: str, checkpoint: str) -> None:
    """Lift a hold."""
    unsaid = "it was not on hold"
    _mark(session, scope, checkpoint, lambda marks, one: marks.lift(one), "lifted", unsaid)
