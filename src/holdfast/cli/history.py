"""`holdfast show`, `log` and `diff`: the state of a scope, and how it came about."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import output, plain
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.key import at_option, reveal_option, scope_argument
from holdfast.cli.points import bound, point
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError
from holdfast.store.inner import SENSITIVE, handle_of, tagged
from holdfast.store.names.items import MASK


@click.command(cls=Command)
@scope_argument
@at_option
@click.option("--prefix", default="", help="Keys that begin so.")
@reveal_option
@pass_session
def show(session: Session, scope: str, at: str | None, prefix: str, reveal: bool) -> None:
    """The whole state of a scope: every key with its value."""
    with session.reading() as store:
        view = session.view(store, scope, at)
        _, timeline, number = handle_of(view).place()
        shown = shown_values(view, view.keys(prefix), reveal)
        found = {name: tagged(value) for name, value in shown}
    if session.json:
        place = {"scope": str(view.scope), "timeline": timeline, "entry": number}
        output.document({**place, "state": found})
    else:
        output.value(found)


def shown_values(view: Any, keys: list[str], reveal: bool) -> list[tuple[str, Any]]:
    """Keys and values; those of class sensitive are not even read unless they are revealed."""
    class_of = handle_of(view).reader.class_of
    hidden = {name for name in keys if not reveal and class_of(name) == SENSITIVE}
    found = view.get_many([name for name in keys if name not in hidden], plain=True)
    found |= dict.fromkeys(hidden, MASK)
    return [(name, found[name]) for name in keys if name in found]


@click.command(cls=Command)
@scope_argument
@click.option("--key", "name", metavar="KEY", help="Entries that changed this key.")
@click.option("--kind", help="set, append, delete, checkpoint, restore, fork, merge.")
@click.option("--actor", "who", metavar="NAME", help="Entries made by this actor.")
@click.option("--correlation", metavar="TEXT", help="Entries with this correlation.")
@click.option("--since", metavar="WHEN", help="From this entry or time on.")
@click.option("--until", metavar="WHEN", help="Up to this entry or time.")
@click.option("--limit", type=click.IntRange(0), default=50, help="At most so many; 0 for all.")
@click.option("--reverse", is_flag=True, help="Oldest first.")
@pass_session
def log(
    session: Session,
    scope: str,
    name: str | None,
    kind: str | None,
    who: str | None,
    correlation: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    reverse: bool,
) -> None:
    """The entries of a scope, newest first. (--key and --actor behind `log` are filters.)"""
    _check_kind(kind)
    with session.reading() as store:
        found = session.state(store, scope).log(
            key=name,
            kind=kind,
            actor=who,
            correlation=correlation,
            since=bound(since) if since is not None else None,
            until=bound(until) if until is not None else None,
            limit=limit or None,
            newest_first=not reverse,
        )
    if session.json:
        output.document({"entries": [plain.entry(one) for one in found]})
        return
    output.table(
        ["entry", "time", "what", "keys", "actor", "reason", "correlation"],
        [
            [
                one.sequence,
                one.time,
                one.kinds,
                one.keys,
                one.cause.actor,
                one.cause.reason,
                one.cause.correlation,
            ]
            for one in found
        ],
    )


def _check_kind(kind: str | None) -> None:
    from holdfast.store.inner import KINDS

    if kind is not None and kind not in KINDS:
        known = ", ".join(KINDS)
        raise InvalidInputError(f"there is no kind of entry {kind!r}; use one of {known}")


@click.command(cls=Command)
@scope_argument
@click.argument("since", metavar="POINT")
@click.argument("until", metavar="[POINT]", required=False)
@click.option("--exit-code", is_flag=True, help="Exit with 1 if there are differences.")
@reveal_option
@pass_session
def diff(
    session: Session, scope: str, since: str, until: str | None, exit_code: bool, reveal: bool
) -> int:
    """What changed from one point to another, or to the newest state."""
    with session.reading() as store:
        state = session.state(store, scope)
        end = point(until) if until is not None else None
        found = state.diff(point(since), end, reveal=reveal)
    if session.json:
        output.document({"scope": str(state.scope), **plain.diff(found)})
    else:
        output.changes(found)
    return 1 if exit_code and found else 0
