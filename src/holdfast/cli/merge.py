"""`holdfast merge`: bring what another timeline became into this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output, plain
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.key import scope_argument
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, MergeConflictError
from holdfast.store.inner import json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.store.inner import MergeConflict, Merged


@click.command(cls=Command)
@scope_argument
@click.argument("other", metavar="TIMELINE")
@click.option(
    "--strategy",
    type=click.Choice(["ask", "ours", "theirs", "newest", "both"]),
    default="ask",
    help="Who counts where both changed the same. [default ask: nothing is merged, and it is said]",
)
@click.option("--into", metavar="NAME", help="The timeline that gets it. [default main]")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--reason", help="Why; it is kept with the entry.")
@pass_session
def merge(
    session: Session,
    scope: str,
    other: str,
    strategy: str,
    into: str | None,
    dry_run: bool,
    reason: str | None,
) -> int:
    """Bring what another timeline became into this one, as one entry.

    What only one side changed since both were the same is taken from that side: by key, inside of
    values by field and by item. TIMELINE may be one of its points, TIMELINE@NUMBER. Conflicts are
    shown with both values, and with --strategy ask nothing is merged while there are any (exit 5).
    """
    if into is not None:
        if session.timeline not in ("main", into):
            raise InvalidInputError("--into and --timeline name two timelines: give one of them")
        session.timeline = into
    with session.reading() if dry_run else session.writing() as store:
        state = session.state(store, scope)
        try:
            done = state.merge(other, strategy=strategy, dry_run=dry_run, reason=reason)
        except MergeConflictError as error:
            _refused(session, error)
            raise
    if session.json:
        output.document(plain.merged(done))
    else:
        _say(done)
    return 5 if dry_run and strategy == "ask" and done.conflicts else 0


def _refused(session: Session, error: MergeConflictError) -> None:
    if session.json:
        output.document({"conflicts": [plain.conflict(one) for one in error.conflicts]})
    else:
        _conflicts(error.conflicts)


def _say(done: Merged) -> None:
    _conflicts(done.conflicts)
    output.left_alone(done.left)
    if done.dry_run:
        output.changes(done.diff)
    elif done.entry is None:
        output.say(output.clean(f"{done.scope}: nothing of {done.point} is new to {done.timeline}"))
    else:
        count = f"{len(done.keys)} keys" if len(done.keys) != 1 else "1 key"
        what = f"{done.scope}: merged {done.point} into {done.timeline}, {count}"
        output.say(output.clean(f"{what}{': ' if done.keys else ''}{', '.join(done.keys)}"))
        line = "" if done.timeline == "main" else f" --timeline {done.timeline}"
        before = f"{done.timeline}@{done.entry - 1}"
        output.say(output.clean(f"to undo it: holdfast restore {done.scope} {before}{line}"))


def _conflicts(found: Iterable[MergeConflict]) -> None:
    from holdfast.store.inner import DELETED, contrasted

    for one in found:
        output.say(output.clean(f"conflict: {one.path}"))
        base, ours, theirs = contrasted(
            [
                "(not there)" if value is DELETED else json.dumps(value)
                for value in (one.base, one.ours, one.theirs)
            ],
            200,
        )
        _side("was", base, None)
        _side("ours", ours, one.our_entry)
        _side("theirs", theirs, one.their_entry)


def _side(name: str, text: str, entry: Any) -> None:
    if entry is not None:
        who = f" by {entry.cause.actor}" if entry.cause.actor else ""
        text += f"  ({entry.timeline}@{entry.sequence}{who}, {output.cell(entry.time)})"
    output.say(output.clean(f"  {name}: {text}"))
