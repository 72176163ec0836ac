"""`holdfast restore`, `undo`, `revert`, `fork`, `merge` and `timelines`: going back, and trying."""

from __future__ import annotations

from typing import Any

import click

from holdfast.checkpoints.checkpoints import Checkpoints
from holdfast.cli import output
from holdfast.cli.command import choice, command, flag, option, several, together
from holdfast.cli.plain import plain
from holdfast.cli.session import Session, moment, point
from holdfast.errors import InvalidInputError, MergeConflictError
from holdfast.store.names.items import Reverted

locating_options = together(
    click.option("--name", help="Of this name."),
    click.option("--type", help="Of this type: manual, routine, …"),
    click.option("--tag", help="With this tag."),
    click.option("--trigger", help="Made for this event."),
    option("--at", "TIME", "The last one not later than this time."),
    option("--before", "POINT", "The last one before this point."),
    flag("--valid", "Pass over damaged ones."),
)
"""Those that say which checkpoint is meant."""


def located(where: dict[str, Any]) -> dict[str, Any]:
    """What `locate` takes, from the options that were given."""
    given = {name: value for name, value in where.items() if value not in (None, False)}
    if "at" in given:
        given["at"] = moment(given["at"])
    if "before" in given:
        given["before"] = point(given["before"])
    return given


@command("restore SCOPE [POINT]=to --dry-run --reason")
@locating_options
@several("--only=keys", "KEY", "This key; several if given.")
@click.option("--prefix", "prefixes", multiple=True, help="Only keys that begin with this, too.")
@option("--from=source", "SCOPE", "The point is one of this scope.")
@choice(
    "--verify",
    "full references none",
    "How the point is checked before: every value, that records exist, not at all.",
)
@choice(
    "--dependencies", "exist unchanged ignore", "What must hold for what the checkpoint rests on."
)
@flag("--past-damage", "Go back although damage keeps the newest state from being read and kept.")
def restore(session: Session, /, scope: str, to: str | None, **given: Any) -> None:
    """Return to the state at a point. What was before is kept, so this can be undone.

    Instead of POINT, --type, --tag, --before … say which checkpoint: the newest that fits.
    """
    names = ("name", "type", "tag", "trigger", "at", "before", "valid")
    where = located({name: given.pop(name) for name in names})
    given |= {name: given[name] or None for name in ("keys", "prefixes")}  # none given: all
    opened = session.read if given["dry_run"] else session.change
    with opened(scope, new=given["source"] is not None) as state:
        target = point(to) if to is not None else None
        result = Checkpoints(state).restore(target, **where, **given)
    done = result.restored
    more = {"dependencies": result.dependencies, "tried": result.tried}
    lines: list[Any] = [lambda: output.changes(done.diff)]
    if result.restored_at is not None:
        full = done.verified == "full"
        checked = f"{done.values_checked} values checked" if full else f"verified: {done.verified}"
        lines = [f"{scope}: restored {done.point}, {done.keys} keys, {checked}"]
        lines.append(output.undo(scope, result.backup_created))
        if done.passed_over:
            lines.append(f"the state before was not kept: {done.passed_over}")
    elif not given["dry_run"]:
        lines = [f"{scope}: nothing differs from {done.point}"]
    session.tell(
        {**plain(done), **more},
        *lines,
        *(f"rests on {one}" for one in result.dependencies),
        lambda: output.left_alone(done.left),
    )


@command("undo SCOPE --reason")
def undo(session: Session, scope: str, reason: str | None) -> None:
    """Undo the newest change of a scope; undo again to have it back.

    Checkpoints, and what effects, agents and other features note for themselves, are passed over.
    """
    with session.change(scope) as state:
        done = state.undo(reason=reason)
    session.tell(done, lambda: _reverted(done))


@command("revert [SCOPE] --dry-run --reason --yes")
@option("--correlation", "TEXT", "Undo the entries with this correlation.")
@click.option(
    "--entry", "entries", type=click.IntRange(1), multiple=True, help="This one; several if given."
)
@option("--actor=who", "NAME", "Undo all that this actor did.")
def revert(
    session: Session,
    scope: str | None,
    correlation: str | None,
    entries: tuple[int, ...],
    who: str | None,
    dry_run: bool,
    reason: str | None,
    yes: bool,
) -> None:
    """Undo what some entries did: only the keys they changed, as one new entry.

    A key that somebody else changed since is left alone and named. Without SCOPE, the entries of a
    correlation are undone in all scopes, as one change. (--actor behind `revert` says whose
    entries; who acts is given before it.)
    """
    if (correlation is not None) + bool(entries) + (who is not None) != 1:
        raise InvalidInputError("say which entries: --correlation, --entry or --actor, one")
    if scope is None and correlation is None:
        raise InvalidInputError("over all scopes only a --correlation can be undone: add SCOPE")
    if scope is None and session.timeline != "main":
        raise InvalidInputError("without SCOPE all timelines are meant: leave --timeline out")
    which: dict[str, Any] = {"correlation": correlation}
    if scope is not None:
        which |= {"entries": list(entries) or None, "actor": who}
    with session.reading() if dry_run else session.writing() as store:
        state = session.state(store, scope) if scope is not None else None

        def run(**how: Any) -> list[Reverted]:
            if state is None:
                return store.revert(**which, **how)
            return [state.revert(**which, **how)]

        planned = run(dry_run=True) if not dry_run and not yes else []
        if count := sum(len(one.done) for one in planned):
            keys = f"{count} keys" if count != 1 else "1 key"
            scopes = ", ".join(str(one.scope) for one in planned if one.done)
            refusal = f"{keys} of {scopes} would go back: add --yes if that is meant, or --dry-run"
            shown = planned if not session.json else []
            asked = f"Let {keys} of {scopes} go back?"
            session.confirm(asked, refusal, lambda: list(map(_plan, shown)))
        done = run(dry_run=dry_run, reason=reason)
    data = done[0] if scope is not None else {"scopes": done}
    session.tell(data, lambda: list(map(_reverted, done)))


def _plan(planned: Reverted) -> None:
    if planned.diff is not None:
        output.say(f"{planned.scope}:")
        output.changes(planned.diff)


def _reverted(done: Reverted) -> None:
    if done.dry_run:
        _plan(done)
    output.say(done)
    if done.entry is not None:
        line = "" if done.timeline == "main" else f" --timeline {done.timeline}"
        output.say(f"to undo it: holdfast revert {done.scope} --entry {done.entry}{line}")


# ---- timelines: to try something, and to keep what came of it ------------------------------------


@command("fork SCOPE NAME")
@option("--at", "POINT", "Where it starts. [default the newest state]")
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
@choice(
    "--strategy",
    "ask ours theirs",
    "Who counts where both changed the same. [default ask: nothing is merged, and it is said]",
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
            session.tell({"conflicts": error.conflicts}, *error.conflicts)
            raise
    before = f"{done.timeline}@{done.entry - 1}" if done.entry is not None else None
    undo = output.undo(done.scope, before)
    planned = [lambda: output.changes(done.diff)] if dry_run else []
    session.tell(done, lambda: output.left_alone(done.left), *planned, done, undo)
    return 5 if dry_run and strategy == "ask" and done.conflicts else 0
