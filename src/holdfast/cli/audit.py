"""`holdfast audit`: who read what is sensitive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output, plain
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.points import moment
from holdfast.cli.session import Session

if TYPE_CHECKING:
    from holdfast.access.audit import Read


@click.command(cls=Command)
@click.argument("scope", required=False, shell_complete=complete_scope)
@click.option("--actor", help="Only what this one read.")
@click.option("--since", metavar="TIME", help="From this time on.")
@click.option("--until", metavar="TIME", help="Up to this time.")
@click.option("--limit", type=click.IntRange(1), default=100, help="At most so many. [100]")
@pass_session
def audit(
    session: Session,
    scope: str | None,
    actor: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> None:
    """Reads of sensitive values that were noted, newest first: of a SCOPE, or of all.

    Programs note them with `Audit(store)`. What this program shows with --reveal is not noted.
    """
    from holdfast.access.audit import Audit

    with session.reading() as store:
        found = Audit(store).reads(
            scope,
            actor=actor,
            since=moment(since) if since is not None else None,
            until=moment(until) if until is not None else None,
            limit=limit,
        )
    if session.json:
        output.document({"reads": [_shape(read) for read in found]})
        return
    rows = [
        [read.time, read.cause.actor or "", read.scope or "<erased>", read.entry, _keys(read)]
        for read in found
    ]
    output.table(["time", "actor", "scope", "entry", "keys"], rows)


def _keys(read: Read) -> str:
    return ", ".join(key or "<not known any more>" for key in read.keys)


def _shape(read: Read) -> dict[str, Any]:
    return {
        "time": plain.time_text(read.time),
        "cause": plain.cause(read.cause),
        "scope": str(read.scope) if read.scope is not None else None,
        "timeline": read.timeline,
        "entry": read.entry,
        "keys": list(read.keys),
    }
