"""`holdfast checkpoint`, `fork` and `timelines`: points to return to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output, plain
from holdfast.cli.commands import Command, Group, pass_session
from holdfast.cli.export import export, import_, inspect
from holdfast.cli.key import scope_argument
from holdfast.cli.points import point
from holdfast.cli.restore import (
    confirm,
    finish,
    held,
    located,
    locating_options,
    say_all,
)
from holdfast.cli.session import Session
from holdfast.errors import CheckpointNotFoundError, PointNotFoundError, PrunedError
from holdfast.store.inner import handle_of

if TYPE_CHECKING:
    from holdfast.checkpoints.group import Group as Group_
    from holdfast.store.names.items import Checkpoint
    from holdfast.sync import State


@click.group(cls=Group)
def checkpoint() -> None:
    """Make, list, show, co-sign, export and import checkpoints."""


for made in (export, import_, inspect):
    checkpoint.add_command(made)


for _made in (held, confirm, finish):
    checkpoint.add_command(_made)


@checkpoint.command()
@scope_argument
@click.argument("name")
@click.option("--type", default="manual", help="manual (default), pre_operation, …")
@click.option("--tag", "tags", multiple=True, help="May be given several times.")
@click.option("--description", default="", help="What a reader should know.")
@click.option("--trigger", default="", help="The event that it is made for.")
@click.option("--priority", default="medium", help="low, medium (default), high or critical.")
@click.option("--also", metavar="SCOPE", multiple=True, help="These, too, at the same moment.")
@pass_session
def create(session: Session, /, scope: str, also: tuple[str, ...], **fields: Any) -> None:
    """Name the newest state, to return to it. Nothing is copied."""
    from holdfast.checkpoints.checkpoints import CheckpointGroups, Checkpoints
    from holdfast.checkpoints.request import checkpoint_request

    name = fields.pop("name")
    request = checkpoint_request(name, fields)
    with session.writing() as store:
        states = [session.state(store, one) for one in (scope, *also)]
        if also:
            group = CheckpointGroups(store).create(states, request)
            _say_group(session, group)
            return
        made = Checkpoints(states[0]).create(request).checkpoint
    if session.json:
        output.document(plain.checkpoint(made))
    else:
        signed = "" if made.signed_by else " (not signed: the signer is not here)"
        output.say(output.clean(f"{scope}: checkpoint {name!r} is {made.id}{signed}"))


def _say_group(session: Session, group: Group_) -> None:
    if session.json:
        made = [plain.checkpoint(one) for one in group.checkpoints]
        output.document({"group": group.id, "name": group.name, "checkpoints": made})
        return
    names = ", ".join(f"{one.scope} {one.id}" for one in group.checkpoints)
    output.say(output.clean(f"checkpoint {group.name!r} is {names}"))


@checkpoint.command("list")
@scope_argument
@locating_options
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@pass_session
def list_(session: Session, /, scope: str, limit: int | None, **where: Any) -> None:
    """The checkpoints of a timeline, newest first."""
    from holdfast.checkpoints.checkpoints import Checkpoints

    with session.reading() as store:
        state = session.state(store, scope)
        found = Checkpoints(state).find(limit=limit, **located(where))
    if session.json:
        output.document({"checkpoints": [plain.checkpoint(one) for one in found]})
        return
    output.table(
        ["id", "name", "type", "time", "tags", "description"],
        [[one.id, one.name, one.type, one.time, one.tags, one.description] for one in found],
    )


@checkpoint.command()
@scope_argument
@click.argument("which", metavar="CHECKPOINT")
@click.option(
    "--all", "everything", is_flag=True, help="Also where it comes from, size, integrity."
)
@pass_session
def show(session: Session, scope: str, which: str, everything: bool) -> None:
    """One checkpoint, by its name, its number, its id (TIMELINE@NUMBER) or its hash."""
    with session.reading() as store:
        state = session.state(store, scope)
        found = _find(state, which)
        if everything:
            say_all(session, state, found)
            return
    if session.json:
        output.document(plain.checkpoint(found))
        return
    shown = plain.checkpoint(found)
    about = shown.pop("cause")
    output.fields([(name, text) for name, text in shown.items() if text not in ("", [], {})])
    output.fields([(name, text) for name, text in about.items()])


@checkpoint.command()
@scope_argument
@click.argument("which", metavar="CHECKPOINT")
@click.option("--with", "signer", metavar="file:PATH", required=True, help="Whose signature.")
@pass_session
def cosign(session: Session, scope: str, which: str, signer: str) -> None:
    """Add a signature to a checkpoint, after looking at all that it covers."""
    with session.writing() as store:
        done = session.state(store, scope).cosign(point(which), signer=signer)
    if session.json:
        output.document(plain.checkpoint(done))
    else:
        output.say(output.clean(f"{scope}: checkpoint {done.name!r}, {done.id}, is co-signed"))


def _find(state: State, which: str) -> Checkpoint:
    history = handle_of(state).history
    numeral = which.isascii() and which.isdecimal() and len(which) < 20
    try:
        return history.checkpoint_at(*history.points.find(int(which) if numeral else which))
    except PrunedError:
        raise
    except (CheckpointNotFoundError, PointNotFoundError):
        raise CheckpointNotFoundError(
            f"{state.scope} has no checkpoint {which!r}; `holdfast checkpoint list {state.scope}` "
            "shows them"
        ) from None


@click.command(cls=Command)
@scope_argument
@click.argument("name")
@click.option("--at", metavar="POINT", help="Where it starts. [default the newest state]")
@pass_session
def fork(session: Session, scope: str, name: str, at: str | None) -> None:
    """Begin a new timeline of a scope. Nothing is copied."""
    with session.writing() as store:
        state = session.state(store, scope)
        state.fork(name, at=point(at) if at is not None else None)
        made = next(one for one in state.timelines() if one.name == name)
    if session.json:
        output.document({"scope": str(state.scope), **plain.timeline(made)})
    else:
        output.say(output.clean(f"{scope}: timeline {name!r} starts at {made.parent}@{made.start}"))


@click.command(cls=Command)
@scope_argument
@pass_session
def timelines(session: Session, scope: str) -> None:
    """The timelines of a scope."""
    with session.reading() as store:
        found = session.state(store, scope).timelines()
    if session.json:
        output.document({"timelines": [plain.timeline(one) for one in found]})
        return
    rows = [
        [one.name, one.head, f"{one.parent}@{one.start}" if one.parent else ""] for one in found
    ]
    output.table(["timeline", "newest entry", "starts at"], rows)
