"""`holdfast checkpoint`, `restore`, `fork` and `timelines`: points to return to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli import output, shapes
from holdfast.cli.commands import Command, Group, pass_session
from holdfast.cli.export import export, import_, inspect
from holdfast.cli.key import scope_argument
from holdfast.cli.points import point
from holdfast.cli.session import Session
from holdfast.errors import CheckpointNotFoundError

if TYPE_CHECKING:
    from holdfast.store.items import Checkpoint
    from holdfast.sync import State


@click.group(cls=Group)
def checkpoint() -> None:
    """Make, list, show, co-sign, export and import checkpoints."""


for made in (export, import_, inspect):
    checkpoint.add_command(made)


@checkpoint.command()
@scope_argument
@click.argument("name")
@click.option("--type", "type_", default="manual", help="manual (default), pre_operation, …")
@click.option("--tag", "tags", multiple=True, help="May be given several times.")
@click.option("--description", default="", help="What a reader should know.")
@pass_session
def create(
    session: Session,
    scope: str,
    name: str,
    type_: str,
    tags: tuple[str, ...],
    description: str,
) -> None:
    """Name the newest state, to return to it. Nothing is copied."""
    with session.writing() as store:
        state = session.state(store, scope)
        made = state.checkpoint(name, type=type_, tags=tags, description=description)
    if session.json:
        output.document(shapes.checkpoint(made))
    else:
        signed = "" if made.signed_by else " (not signed: the signer is not here)"
        output.say(output.clean(f"{scope}: checkpoint {name!r} is {made.id}{signed}"))


@checkpoint.command("list")
@scope_argument
@click.option("--type", "type_", help="Checkpoints of this type.")
@click.option("--tag", help="Checkpoints with this tag.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@pass_session
def list_(
    session: Session, scope: str, type_: str | None, tag: str | None, limit: int | None
) -> None:
    """The checkpoints of a timeline, newest first."""
    with session.reading() as store:
        found = session.state(store, scope).checkpoints(type=type_, tag=tag, limit=limit)
    if session.json:
        output.document({"checkpoints": [shapes.checkpoint(one) for one in found]})
        return
    output.table(
        ["id", "name", "type", "time", "tags", "description"],
        [[one.id, one.name, one.type, one.time, one.tags, one.description] for one in found],
    )


@checkpoint.command()
@scope_argument
@click.argument("which", metavar="CHECKPOINT")
@pass_session
def show(session: Session, scope: str, which: str) -> None:
    """One checkpoint, by its name, its number or its id (TIMELINE@NUMBER)."""
    with session.reading() as store:
        found = _find(session.state(store, scope), which)
    if session.json:
        output.document(shapes.checkpoint(found))
        return
    shown = shapes.checkpoint(found)
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
        output.document(shapes.checkpoint(done))
    else:
        output.say(output.clean(f"{scope}: checkpoint {done.name!r}, {done.id}, is co-signed"))


def _find(state: State, which: str) -> Checkpoint:
    timeline, _, number = which.rpartition("@")
    if number.isascii() and number.isdecimal():
        line = state.on(timeline) if timeline else state
        found = next((one for one in line.checkpoints() if one.sequence == int(number)), None)
    else:
        found = next(iter(state.checkpoints(name=which, limit=1)), None)
    if found is None:
        raise CheckpointNotFoundError(
            f"{state.scope} has no checkpoint {which!r}; `holdfast checkpoint list {state.scope}` "
            "shows them"
        )
    return found


@click.command(cls=Command)
@scope_argument
@click.argument("to", metavar="POINT")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--verify",
    type=click.Choice(["full", "references", "none"]),
    default="full",
    help="How the point is checked before: every value, that records exist, not at all.",
)
@click.option("--reason", help="Why; it is kept with the entry.")
@click.option(
    "--past-damage",
    is_flag=True,
    help="Go back although damage keeps the newest state from being read and kept.",
)
@pass_session
def restore(
    session: Session,
    scope: str,
    to: str,
    dry_run: bool,
    verify: str,
    reason: str | None,
    past_damage: bool,
) -> None:
    """Return to the state at a point. What was before is kept, so this can be undone."""
    opened = session.reading() if dry_run else session.writing()
    with opened as store:
        state = session.state(store, scope)
        done = state.restore(
            point(to), verify=verify, reason=reason, dry_run=dry_run, past_damage=past_damage
        )
    if session.json:
        output.document(shapes.restored(done))
        return
    if dry_run:
        output.changes(done.diff)
    else:
        checked = (
            f"{done.values_checked} values checked" if verify == "full" else f"verified: {verify}"
        )
        output.say(output.clean(f"{scope}: restored {done.point}, {done.keys} keys, {checked}"))
        if done.backup is not None:
            output.say(output.clean(f"to undo it: holdfast restore {scope} {done.backup.id}"))
        if done.passed_over:
            output.say(output.clean(f"the state before was not kept: {done.passed_over}"))
    output.left_alone(done.left)


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
        output.document({"scope": str(state.scope), **shapes.timeline(made)})
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
        output.document({"timelines": [shapes.timeline(one) for one in found]})
        return
    rows = [
        [one.name, one.head, f"{one.parent}@{one.start}" if one.parent else ""] for one in found
    ]
    output.table(["timeline", "newest entry", "starts at"], rows)
