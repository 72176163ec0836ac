"""`holdfast fork`, `timelines` and `merge`: lines of history beside each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from holdfast.cli import output
from holdfast.cli.commands import command
from holdfast.cli.plain import plain
from holdfast.cli.session import Session, point
from holdfast.errors import MergeConflictError
from holdfast.store.inner import DELETED, MergeConflict, Merged, contrasted, dumps


@command("fork SCOPE NAME")
@click.option("--at", metavar="POINT", help="Where it starts. [default the newest state]")
def fork(session: Session, scope: str, name: str, at: str | None) -> None:
    """Begin a new timeline of a scope. Nothing is copied."""
    with session.change(scope) as state:
        state.fork(name, at=point(at) if at is not None else None)
        made = next(one for one in state.timelines() if one.name == name)
    told = f"{scope}: timeline {name!r} starts at {made.parent}@{made.start}"
    session.tell({"scope": state.scope, **plain(made)}, told)


@command("timelines SCOPE")
def timelines(session: Session, scope: str) -> None:
    """The timelines of a scope."""
    with session.read(scope) as state:
        found = state.timelines()
    session.table(
        "timelines",
        found,
        "timeline=name, newest entry=head, starts at=begin",
        begin=lambda one: f"{one.parent}@{one.start}" if one.parent else "",
    )


@command("merge SCOPE TIMELINE=other --dry-run --reason")
@click.option(
    "--strategy",
    type=click.Choice(["ask", "ours", "theirs"]),
    default="ask",
    help="Who counts where both changed the same. [default ask: nothing is merged, and it is said]",
)
def merge(
    session: Session, scope: str, other: str, strategy: str, dry_run: bool, reason: str | None
) -> int:
    """Bring what another timeline became into main (or --timeline), as one entry.

    What only one side changed since both were the same is taken from that side: by key, inside of
    values by field and by item. TIMELINE may be one of its points, TIMELINE@NUMBER. Conflicts are
    shown with both values, and with --strategy ask nothing is merged while there are any (exit 5).
    """
    with session.read(scope) if dry_run else session.change(scope) as state:
        try:
            done = state.merge(other, strategy=strategy, dry_run=dry_run, reason=reason)
        except MergeConflictError as error:
            # Both sides are shown before the refusal is: they are what one decides by.
            session.tell({"conflicts": error.conflicts}, *_conflicts(error.conflicts))
            raise
    session.tell(done, *_conflicts(done.conflicts), lambda: _say(done))
    return 5 if dry_run and strategy == "ask" and done.conflicts else 0


def _say(done: Merged) -> None:
    output.left_alone(done.left)
    if done.dry_run:
        output.changes(done.diff)
    elif done.entry is None:
        output.say(f"{done.scope}: nothing of {done.point} is new to {done.timeline}")
    else:
        count = f"{len(done.keys)} keys" if len(done.keys) != 1 else "1 key"
        what = f"{done.scope}: merged {done.point} into {done.timeline}, {count}"
        output.say(f"{what}{': ' if done.keys else ''}{', '.join(done.keys)}")
        line = "" if done.timeline == "main" else f" --timeline {done.timeline}"
        before = f"{done.timeline}@{done.entry - 1}"
        output.say(f"to undo it: holdfast restore {done.scope} {before}{line}")


def _conflicts(found: Iterable[MergeConflict]) -> list[str]:
    """Lines that show what both sides changed."""
    lines = []
    for one in found:
        values = (one.base, one.ours, one.theirs)
        texts = ["(not there)" if value is DELETED else dumps(value) for value in values]
        sides = zip(("was", "ours", "theirs"), contrasted(texts, 200), strict=True)
        entries = (None, one.our_entry, one.their_entry)
        lines.append(f"conflict: {one.path}")
        for (name, text), entry in zip(sides, entries, strict=True):
            lines.append(f"  {name}: {text}{_by(entry)}")
    return lines


def _by(entry: Any) -> str:
    if entry is None:
        return ""
    who = f" by {entry.cause.actor}" if entry.cause.actor else ""
    return f"  ({entry.timeline}@{entry.sequence}{who}, {output.cell(entry.time)})"
