"""`holdfast debug`: a console in which one steps through the entries of an agent."""

from __future__ import annotations

import sys

import click

from holdfast.cli.commands import Command, pass_session
from holdfast.cli.key import reveal_option, scope_argument
from holdfast.cli.points import point
from holdfast.cli.session import Session


@click.command(cls=Command)
@scope_argument
@click.option("--at", metavar="POINT", help="Where to begin. [the newest entry]")
@click.option("-c", "--command", "lines", multiple=True, help="Do this, and end; several if given.")
@reveal_option
@pass_session
def debug(
    session: Session, scope: str, at: str | None, lines: tuple[str, ...], reveal: bool
) -> None:
    """Step through the entries of a scope: what the state was, what changed it, and who.

    A console with commands (`help` lists them) on a terminal; from a pipe it takes a command a
    line, and ends at the first that fails. Nothing is changed, but that `fork` begins a timeline.
    """
    from holdfast.cli.console import Console

    with session.reading() as store:
        state = session.state(store, scope)
        console = Console(session, state, reveal=reveal)
        if at is not None:
            console.go(point(at))
        if lines:
            console.run(lines)
        elif sys.stdin.isatty():
            console.cmdloop()
        else:
            console.run(sys.stdin)
