"""`holdfast restore`, and what is still needed of a checkpoint: going back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli import output, plain
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.key import scope_argument
from holdfast.cli.points import moment, point
from holdfast.cli.session import Session

if TYPE_CHECKING:
    from holdfast.checkpoints.restore_request import RestoreResult
    from holdfast.store.names.items import Checkpoint
    from holdfast.sync import State

_F = TypeVar("_F", bound=Callable[..., Any])
_VERIFY = click.Choice(["full", "references", "none"])


def locating_options(function: _F) -> _F:
    """The options that say which checkpoint is meant."""
    for option in (
        click.option("--valid", is_flag=True, help="Pass over damaged ones."),
        click.option("--before", metavar="POINT", help="The last one before this point."),
        click.option("--at", metavar="TIME", help="The last one not later than this time."),
        click.option("--trigger", help="Made for this event."),
        click.option("--tag", help="With this tag."),
        click.option("--type", help="Of this type: manual, routine, …"),
        click.option("--name", help="Of this name."),
    ):
        function = option(function)
    return function


def located(where: dict[str, Any]) -> dict[str, Any]:
    """What `locate` takes, from the options that were given."""
    given = {name: value for name, value in where.items() if value not in (None, False)}
    if "at" in given:
        given["at"] = moment(given["at"])
    if "before" in given:
        given["before"] = point(given["before"])
    return given


@click.command(cls=Command)
@scope_argument
@click.argument("to", metavar="[POINT]", required=False)
@locating_options
@click.option("--only", "keys", metavar="KEY", multiple=True, help="This key; several if given.")
@click.option("--prefix", "prefixes", multiple=True, help="Only keys that begin with this, too.")
@click.option("--from", "source", metavar="SCOPE", help="The point is one of this scope.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--verify",
    type=_VERIFY,
    default="full",
    help="How the point is checked before: every value, that records exist, not at all.",
)
@click.option(
    "--dependencies",
    type=click.Choice(["exist", "unchanged", "ignore"]),
    default="exist",
    help="What must hold for what the checkpoint rests on.",
)
@click.option("--reason", help="Why; it is kept with the entry.")
@click.option(
    "--past-damage",
    is_flag=True,
    help="Go back although damage keeps the newest state from being read and kept.",
)
@pass_session
def restore(session: Session, /, scope: str, to: str | None, **given: Any) -> None:
    """Return to the state at a point. What was before is kept, so this can be undone.

    Instead of POINT, --type, --tag, --before … say which checkpoint: the newest that fits.
    """
    from holdfast.checkpoints.checkpoints import Checkpoints

    names = ("name", "type", "tag", "trigger", "at", "before", "valid")
    where = located({name: given.pop(name) for name in names})
    given |= {name: given[name] or None for name in ("keys", "prefixes")}  # none given: all
    opened = session.reading() if given["dry_run"] else session.writing()
    with opened as store:
        state = session.state(store, scope, new=given["source"] is not None)
        checkpoints = Checkpoints(state)
        result = checkpoints.restore(point(to) if to is not None else None, **where, **given)
    done = result.restored
    if session.json:
        output.document(plain.restored(done) | _more(result))
        return
    if given["dry_run"]:
        output.changes(done.diff)
    else:
        _say(scope, result)
    for one in result.dependencies:
        output.say(output.clean(f"rests on {one}"))
    output.left_alone(done.left)


def _more(result: RestoreResult) -> dict[str, Any]:
    return {
        "dependencies": [asdict(one) for one in result.dependencies],
        "tried": [asdict(one) for one in result.tried],
    }


def _say(scope: str, result: RestoreResult) -> None:
    done = result.restored
    if result.restored_at is None:
        output.say(output.clean(f"{scope}: nothing differs from {done.point}"))
        return
    full = done.verified == "full"
    checked = f"{done.values_checked} values checked" if full else f"verified: {done.verified}"
    output.say(output.clean(f"{scope}: restored {done.point}, {done.keys} keys, {checked}"))
    if done.backup is not None:
        output.say(output.clean(f"to undo it: holdfast restore {scope} {done.backup.id}"))
    if done.passed_over:
        output.say(output.clean(f"the state before was not kept: {done.passed_over}"))


# what is still needed


@click.command(cls=Command)
@scope_argument
@pass_session
def held(session: Session, scope: str) -> None:
    """Checkpoints that are not removed: of operations, of recoveries, and backups of restores."""
    from holdfast.checkpoints.checkpoints import Checkpoints

    with session.reading() as store:
        found = Checkpoints(session.state(store, scope)).held()
    if session.json:
        told = [plain.checkpoint(one.checkpoint) | {"why": one.why} for one in found]
        output.document({"held": told})
        return
    rows = [[one.checkpoint.id, one.why, one.checkpoint.name, one.checkpoint.time] for one in found]
    output.table(["id", "why", "name", "time"], rows)


@click.command(cls=Command)
@scope_argument
@click.argument("backup", metavar="BACKUP")
@pass_session
def confirm(session: Session, scope: str, backup: str) -> None:
    """Say that a restore is good: its backup (by its id) is no longer held."""
    from holdfast.checkpoints.checkpoints import Checkpoints

    with session.writing() as store:
        made = Checkpoints(session.state(store, scope)).confirm(point(backup))
    if session.json:
        output.document(plain.checkpoint(made) if made is not None else None)
    else:
        output.say(output.clean(f"{scope}: {backup} is let go"))


@click.command(cls=Command)
@scope_argument
@click.argument("which", metavar="CHECKPOINT")
@click.option(
    "--how",
    type=click.Choice(["revert", "keep"]),
    required=True,
    help="Undo what the operation did, or leave it.",
)
@pass_session
def finish(session: Session, scope: str, which: str, how: str) -> None:
    """Decide about an operation that never ended, by its checkpoint."""
    from holdfast.checkpoints.checkpoints import Checkpoints

    with session.writing() as store:
        done = Checkpoints(session.state(store, scope)).finish(point(which), how)
    if session.json:
        told = plain.reverted(done) if done is not None else None
        output.document({"scope": scope, "checkpoint": which, "reverted": told})
    else:
        output.say(output.clean(str(done) if done is not None else f"{scope}: {which} is let go"))


def say_all(session: Session, state: State, found: Checkpoint) -> None:
    """All that is known of a checkpoint."""
    from holdfast.checkpoints.checkpoints import Checkpoints

    known = Checkpoints(state).inspect(found)
    integrity, packed = asdict(known.integrity), known.compression
    told = plain.checkpoint(found) | {
        "trigger": known.trigger,
        "parent": known.parent,
        "children": list(known.children),
        "priority": known.priority,
        "retention": known.retention,
        "dependencies": [asdict(one) for one in known.dependencies],
        "held": known.held,
        "group": known.group,
        "size": known.size,
        "keys": known.keys,
        "state_size": known.state_size,
        "compression": asdict(packed) if packed is not None else None,
        "integrity": integrity,
    }
    if session.json:
        output.document(told)
        return
    told["dependencies"] = list(map(str, known.dependencies))
    about, compression = told.pop("cause"), told.pop("compression") or {}
    told |= {"records": compression.get("records"), "stored": compression.get("stored")}
    told.pop("integrity")
    output.fields([(name, one) for name, one in told.items() if one not in ("", [], {}, None)])
    output.fields([(name, one) for name, one in integrity.items() if one != ""])
    output.fields([(name, one) for name, one in about.items()])
