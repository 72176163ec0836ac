"""`holdfast scope`: the scopes of a store."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from holdfast.cli import output, plain
from holdfast.cli.commands import Group, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.failures import in_options
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError

no_wait_option = click.option(
    "--no-wait",
    is_flag=True,
    help="Only until nobody can read it: `holdfast sweep` drops the rows.",
)
holds_option = click.option(
    "--despite-holds", is_flag=True, help="Also if a checkpoint of it is on (legal) hold."
)


@click.group(cls=Group)
def scope() -> None:
    """List, delete and erase scopes."""


@scope.command("list")
@click.option("--kind", help="global, agent, workflow, step, session or custom.")
@click.option("--prefix", default="", help="Scopes whose id begins so.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@click.option("--after", help="Go on behind this scope.")
@pass_session
def list_(
    session: Session, kind: str | None, prefix: str, limit: int | None, after: str | None
) -> None:
    """The scopes of the store, in order."""
    with session.reading() as store:
        page = store.scopes(kind=kind, prefix=prefix, limit=limit, after=after)
    if session.json:
        found = [
            {"scope": str(one.scope), "created": plain.time_text(one.created)} for one in page.items
        ]
        output.document({"scopes": found, "after": page.after})
        return
    output.table(["scope", "created"], [[one.scope, one.created] for one in page.items])
    if page.after:
        output.note(f"there are more: --after {page.after}")


@scope.command()
@click.argument("scope", shell_complete=complete_scope)
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def delete(session: Session, scope: str, yes: bool) -> None:
    """End a scope with all its timelines."""
    with session.writing() as store:
        state = session.state(store, scope)
        if not yes:
            confirm("Delete", f"{state.scope} with all its timelines")
        store.delete(state.scope)
    if session.json:
        output.document({"deleted": str(state.scope)})
    else:
        output.say(output.clean(f"{state.scope}: deleted"))


@scope.command()
@click.argument("scope", shell_complete=complete_scope)
@click.option("--yes", is_flag=True, help="Do not ask.")
@no_wait_option
@holds_option
@pass_session
def erase(session: Session, scope: str, yes: bool, no_wait: bool, despite_holds: bool) -> None:
    """End a scope and remove its content; also of scopes of that name deleted before.

    Says what it cannot reach. If it was cut short, run it again. Refused while a checkpoint of it
    is on hold, unless --despite-holds is given.
    """
    erase_scope(session, scope, yes, wait=not no_wait, despite_holds=despite_holds)


def erase_scope(
    session: Session, scope: str, yes: bool, *, wait: bool, despite_holds: bool
) -> None:
    """End a scope and remove its content."""
    with session.writing() as store:
        name = store.scope(scope).scope
        if not yes:
            confirm("Erase", f"{name} with all its timelines")
        result = store.erase(name, wait=wait, despite_holds=despite_holds)
    if session.json:
        output.document(plain.erased(result))
        return
    output.say(output.clean(f"{name}: erased"))
    key = "its key" if result.key_removed else "no key"
    output.note(f"{result.rows} rows of {result.bytes} bytes and {key} were removed")
    still_open(result.open)


def still_open(places: Sequence[str]) -> None:
    """Say what an erase, or a new key, cannot reach."""
    for text in places:
        output.note(f"still open: {in_options(text)}")


def confirm(what: str, which: str) -> None:
    """Ask, where somebody can answer; else refuse."""
    if not sys.stdin.isatty():
        raise InvalidInputError(f"{which} would be {what.lower()}d: add --yes if that is meant")
    click.confirm(output.clean(f"{what} {which}?"), abort=True, err=True)
