"""`holdfast checkpoint` and `retention`: points to return to, and which of them go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from holdfast.checkpoints.checkpoint_group import CheckpointGroups
from holdfast.checkpoints.checkpoints import Checkpoints
from holdfast.checkpoints.export import export_checkpoint
from holdfast.checkpoints.export_import import import_checkpoint, inspect_export
from holdfast.checkpoints.request import checkpoint_request
from holdfast.checkpoints.retention import Retention
from holdfast.cli import output
from holdfast.cli.command import Group, choice, flag, option, several, together
from holdfast.cli.commands.timeline import located, locating_options
from holdfast.cli.failures import in_options
from holdfast.cli.plain import fields_of, plain
from holdfast.cli.session import Session, point
from holdfast.errors import (
    CheckpointNotFoundError,
    InvalidInputError,
    PointNotFoundError,
    PrunedError,
)
from holdfast.store.inner import handle_of
from holdfast.store.names.items import Checkpoint
from holdfast.sync import State, Store

checkpoint = Group("checkpoint", help="Make, list, show, co-sign, export and import checkpoints.")


@checkpoint.verb("create SCOPE NAME")
@click.option("--type", default="manual", help="manual (default), pre_operation, …")
@click.option("--tag", "tags", multiple=True, help="May be given several times.")
@click.option("--description", default="", help="What a reader should know.")
@click.option("--trigger", default="", help="The event that it is made for.")
@click.option("--priority", default="medium", help="low, medium (default), high or critical.")
@several("--also", "SCOPE", "These, too, at the same moment.")
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
        made = Checkpoints(states[0]).create(request).checkpoint
    signed = f" ({in_options(made.warning)})" if made.warning else ""
    session.tell(made, f"{scope}: checkpoint {name!r} is {made.id}{signed}")


@checkpoint.verb("list SCOPE --limit")
@locating_options
def list_(session: Session, /, scope: str, limit: int | None, **where: Any) -> None:
    """The checkpoints of a timeline, newest first."""
    with session.read(scope) as state:
        found = Checkpoints(state).find(limit=limit, **located(where))
    session.table("checkpoints", found, "id, name, type, time, tags, description")


@checkpoint.verb("show SCOPE CHECKPOINT=which")
@flag("--all=everything", "Also where it comes from, size, integrity.")
def show(session: Session, scope: str, which: str, everything: bool) -> None:
    """One checkpoint, by its name, its number or its id (TIMELINE@NUMBER)."""
    with session.read(scope) as state:
        found = _find(state, which)
        known = fields_of(Checkpoints(state).inspect(found)) if everything else {}
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
        made = Checkpoints(state).confirm(point(backup))
    session.tell(made, f"{scope}: {backup} is let go")


@checkpoint.verb("finish SCOPE CHECKPOINT=which")
@choice("--how", "revert keep", "Undo what the operation did, or leave it.", required=True)
def finish(session: Session, scope: str, which: str, how: str) -> None:
    """Decide about an operation that never ended, by its checkpoint."""
    with session.change(scope) as state:
        done = Checkpoints(state).finish(point(which), how)
    told = {"scope": scope, "checkpoint": which, "reverted": done}
    session.tell(told, done or f"{scope}: {which} is let go")


# ---- checkpoints as files ----------------------------------------------------------------------

_file_key = together(
    option("--file-key", "SOURCE", "The file's own key: file:PATH, env:NAME, passphrase:."),
    option("--file-passphrase-file", "PATH", "The same, with the first line of a file."),
)
"""The key of a file, which is not the store's."""


def _key(session: Session, given: dict[str, Any], *, new: bool = False) -> str | None:
    key, file = given.pop("file_key"), given.pop("file_passphrase_file")
    return session.other_key("file", key, file, new=new)


@checkpoint.verb("export SCOPE [CHECKPOINT]=which")
@click.option("--out", "-o", metavar="FILE", required=True, help="Written whole or not at all.")
@choice(
    "--format",
    "holdfast json protobuf",
    "To be imported (default), for people, or for other programs.",
)
@_file_key
@flag("--plain", "Of an encrypted store: a file that is not.")
@flag("--unsigned", "Without a signature.")
@flag("--reveal", "json, protobuf: also what is sensitive.")
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
@several("--trust", "KEY", "A public key that you believe.")
@flag("--untrusted", "Take it whoever signed it, if anybody did.")
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
    export, backup = done.export, done.backup.id if done.backup is not None else None
    told = f"{scope}: now as {export.scope} was at {export.name!r}, {export.checkpoint}"
    undo = output.undo(scope, backup)
    session.tell(done, f"{told}; {export.keys} keys", undo, lambda: output.left_alone(done.left))


@checkpoint.verb("inspect FILE")
@_file_key
@several("--trust", "KEY", "A public key that must have signed.")
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


# ---- retention: which checkpoints go, and letting them go ----------------------------------------


retention = Group(
    "retention", help="Show which checkpoints and how much history go by the rules, and prune them."
)


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
@flag("--confirm", "Also what has to be confirmed; see `plan`.")
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


def _mark(name: str, about: str, said: str, *options: Callable[..., Any], unsaid: str = "") -> None:
    """A verb that changes the marks of a checkpoint, by whatever names it; its state need not be
    whole."""

    def mark(session: Session, scope: str, checkpoint: str, **given: str) -> None:
        with session.writing() as store:
            state = session.state(store, scope)
            found = Checkpoints(state).inspect(point(checkpoint), verify="none").checkpoint
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
    _reason("cleared"),
)
_mark(
    "pin",
    "Keep a checkpoint whatever the rules say, until it is unpinned.",
    "pinned",
    _reason("pinned"),
)
_mark("unpin", "Take a pin back.", "unpinned", unsaid="it was not pinned")
_mark(
    "hold",
    "Put a legal hold on a checkpoint: no rule removes it, and its scope is not deleted.",
    "on hold",
    click.option("--reason", required=True, help="Why; who is refused because of it is told."),
)
_mark("lift", "Lift a hold.", "lifted", unsaid="it was not on hold")
