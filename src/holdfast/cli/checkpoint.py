"""`holdfast checkpoint`: points to return to, and checkpoints as files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from holdfast.checkpoints.checkpoints import CheckpointGroups
from holdfast.checkpoints.export import export_checkpoint
from holdfast.checkpoints.export_import import import_checkpoint, inspect_export
from holdfast.checkpoints.request import checkpoint_request
from holdfast.cli import output
from holdfast.cli.commands import Group
from holdfast.cli.failures import in_options
from holdfast.cli.options import together
from holdfast.cli.plain import fields_of, plain
from holdfast.cli.restore import checkpoints_of, located, locating_options
from holdfast.cli.session import Session, point
from holdfast.errors import (
    CheckpointNotFoundError,
    PointNotFoundError,
    PrunedError,
)
from holdfast.store.inner import handle_of
from holdfast.store.names.items import Checkpoint
from holdfast.sync import State


@click.group(cls=Group)
def checkpoint() -> None:
    """Make, list, show, co-sign, export and import checkpoints."""


@checkpoint.verb("create SCOPE NAME")
@click.option("--type", default="manual", help="manual (default), pre_operation, …")
@click.option("--tag", "tags", multiple=True, help="May be given several times.")
@click.option("--description", default="", help="What a reader should know.")
@click.option("--trigger", default="", help="The event that it is made for.")
@click.option("--priority", default="medium", help="low, medium (default), high or critical.")
@click.option("--also", metavar="SCOPE", multiple=True, help="These, too, at the same moment.")
def create(session: Session, /, scope: str, also: tuple[str, ...], **fields: Any) -> None:
    """Name the newest state, to return to it. Nothing is copied."""
    name = fields.pop("name")
    request = checkpoint_request(name, fields)
    with session.writing() as store:
        states = [session.state(store, one) for one in (scope, *also)]
        if also:
            group = CheckpointGroups(store).create(states, request)
            names = ", ".join(f"{one.scope} {one.id}" for one in group.checkpoints)
            session.tell(group, f"checkpoint {group.name!r} is {names}")
            return
        made = checkpoints_of(states[0]).create(request).checkpoint
    signed = f" ({in_options(made.warning)})" if made.warning else ""
    session.tell(made, f"{scope}: checkpoint {name!r} is {made.id}{signed}")


@checkpoint.verb("list SCOPE --limit")
@locating_options
def list_(session: Session, /, scope: str, limit: int | None, **where: Any) -> None:
    """The checkpoints of a timeline, newest first."""
    with session.read(scope) as state:
        found = checkpoints_of(state).find(limit=limit, **located(where))
    session.table("checkpoints", found, "id, name, type, time, tags, description")


@checkpoint.verb("show SCOPE CHECKPOINT=which")
@click.option(
    "--all", "everything", is_flag=True, help="Also where it comes from, size, integrity."
)
def show(session: Session, scope: str, which: str, everything: bool) -> None:
    """One checkpoint, by its name, its number or its id (TIMELINE@NUMBER)."""
    with session.read(scope) as state:
        found = _find(state, which)
        known = fields_of(checkpoints_of(state).inspect(found)) if everything else {}
    known.pop("checkpoint", None)
    told = plain(found) | plain(known)
    shown = dict(told)
    about, integrity = shown.pop("cause"), shown.pop("integrity", {})
    if everything:
        shown["dependencies"] = list(map(str, known["dependencies"]))
        shown |= shown.pop("compression") or {}
    session.fields(told, [*shown.items(), *integrity.items(), *about.items()])


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


@checkpoint.verb("cosign SCOPE CHECKPOINT=which")
@click.option("--with", "signer", metavar="file:PATH", required=True, help="Whose signature.")
def cosign(session: Session, scope: str, which: str, signer: str) -> None:
    """Add a signature to a checkpoint, after looking at all that it covers."""
    with session.change(scope) as state:
        done = state.cosign(point(which), signer=signer)
    session.tell(done, f"{scope}: checkpoint {done.name!r}, {done.id}, is co-signed")


# ---- what is still needed ----------------------------------------------------------------------


@checkpoint.verb("why SCOPE [CHECKPOINT]=which")
def why(session: Session, scope: str, which: str | None) -> None:
    """What keeps a checkpoint from going: pins, holds, operations, restores, forks, …

    Without CHECKPOINT, all that is kept of the timeline, and what ends that.
    """
    with session.read(scope) as state:
        found = state.why_kept(_find(state, which) if which is not None else None)
    said = [replace(one, text=in_options(one.text), until=in_options(one.until)) for one in found]
    session.table("why", said, "point, reason, text, by, until")
    if not found:
        session.note("nothing keeps it: the rules of retention decide")


@checkpoint.verb("confirm SCOPE BACKUP")
def confirm(session: Session, scope: str, backup: str) -> None:
    """Say that a restore is good: its backup (by its id) is no longer held."""
    with session.change(scope) as state:
        made = checkpoints_of(state).confirm(point(backup))
    session.tell(made, f"{scope}: {backup} is let go")


@checkpoint.verb("finish SCOPE CHECKPOINT=which")
@click.option(
    "--how",
    type=click.Choice(["revert", "keep"]),
    required=True,
    help="Undo what the operation did, or leave it.",
)
def finish(session: Session, scope: str, which: str, how: str) -> None:
    """Decide about an operation that never ended, by its checkpoint."""
    with session.change(scope) as state:
        done = checkpoints_of(state).finish(point(which), how)
    told = {"scope": scope, "checkpoint": which, "reverted": done}
    session.tell(told, done or f"{scope}: {which} is let go")


# ---- checkpoints as files ----------------------------------------------------------------------

_file_key = together(
    click.option(
        "--file-key", metavar="SOURCE", help="The file's own key: file:PATH, env:NAME, passphrase:."
    ),
    click.option(
        "--file-passphrase-file", metavar="PATH", help="The same, with the first line of a file."
    ),
)
"""The key of a file, which is not the store's."""


def _key(session: Session, given: dict[str, Any], *, new: bool = False) -> str | None:
    key, file = given.pop("file_key"), given.pop("file_passphrase_file")
    return session.other_key("file", key, file, new=new)


@checkpoint.verb("export SCOPE [CHECKPOINT]=which")
@click.option("--out", "-o", metavar="FILE", required=True, help="Written whole or not at all.")
@click.option(
    "--format",
    type=click.Choice(["holdfast", "json", "protobuf"]),
    default="holdfast",
    help="To be imported (default), for people, or for other programs.",
)
@_file_key
@click.option("--plain", is_flag=True, help="Of an encrypted store: a file that is not.")
@click.option("--unsigned", is_flag=True, help="Without a signature.")
@click.option("--reveal", is_flag=True, help="json, protobuf: also what is sensitive.")
def export(session: Session, /, scope: str, which: str | None, out: str, **given: Any) -> None:
    """Write a checkpoint (default the newest) with all of its state to one file."""
    with session.read(scope) as state:
        at = point(which) if which is not None else None
        key = _key(session, given, new=True)
        done = export_checkpoint(state, out, at=at, key=key, **given)
    how = "encrypted" if done.encrypted else "not encrypted"
    how += ", signed" if done.signer else ", not signed"
    what = f"{scope}: checkpoint {done.name!r}, {done.checkpoint}, {done.keys} keys"
    session.tell(done, f"{what}, is in {out} ({how})")


@checkpoint.verb("import SCOPE FILE --reason")
@_file_key
@click.option("--trust", metavar="KEY", multiple=True, help="A public key that you believe.")
@click.option("--untrusted", is_flag=True, help="Take it whoever signed it, if anybody did.")
@click.option("--limit", type=click.IntRange(0), metavar="BYTES", help="[default 1 GiB]")
def import_(session: Session, /, scope: str, file: str, **given: Any) -> None:
    """Let the state of SCOPE, which may be new, be what is in an exported FILE.

    FILE must be signed by this store's signer, or by a key given with --trust. What was before is
    kept, so this can be undone.
    """
    with session.change(scope, new=True) as state:
        given |= {"key": _key(session, given), "trust": given["trust"] or None}
        if given["limit"] is None:
            del given["limit"]
        done = import_checkpoint(state, file, **given)
    export, backup = done.export, done.backup
    told = f"{scope}: now as {export.scope} was at {export.name!r}, {export.checkpoint}"
    undo = f"to undo it: holdfast restore {scope} {backup.id}" if backup is not None else None
    session.tell(done, f"{told}; {export.keys} keys", undo, lambda: output.left_alone(done.left))


@checkpoint.verb("inspect FILE")
@_file_key
@click.option("--trust", metavar="KEY", multiple=True, help="A public key that must have signed.")
def inspect(session: Session, /, file: str, trust: tuple[str, ...], **given: Any) -> None:
    """What is in an exported FILE. All of it is checked, and no store is needed."""
    found = inspect_export(file, key=_key(session, given), trust=trust or None)
    shown = plain(found)
    about = shown.pop("cause")
    session.fields(found, (shown | about).items())
    if not trust:
        session.note(
            "who signed it is taken on trust from the file: give --trust KEY"
            if found.signer
            else "nobody signed it"
        )
