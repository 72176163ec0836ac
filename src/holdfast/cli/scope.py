"""`holdfast scope`: the scopes of a store."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.commands import Group
from holdfast.cli.failures import in_options
from holdfast.cli.session import Session


@click.group(cls=Group)
def scope() -> None:
    """List, delete and erase scopes."""


@scope.verb("list --limit")
@click.option("--kind", help="global, agent, workflow, step, session or custom.")
@click.option("--prefix", default="", help="Scopes whose id begins so.")
@click.option("--after", help="Go on behind this scope.")
def list_(session: Session, **given: str) -> None:
    """The scopes of the store, in order."""
    with session.reading() as store:
        page = store.scopes(**given)  # type: ignore[arg-type]
    session.table("scopes", page.items, "scope, created", about={"after": page.after})
    if page.after:
        session.note(f"there are more: --after {page.after}")


@scope.verb("delete SCOPE --yes")
def delete(session: Session, scope: str, yes: bool) -> None:
    """End a scope with all its timelines."""
    with session.writing() as store:
        state = session.state(store, scope)
        confirm(session, yes, "Delete", f"{state.scope} with all its timelines")
        store.delete(state.scope)
    session.tell({"deleted": state.scope}, f"{state.scope}: deleted")


@scope.verb("erase SCOPE --yes")
@click.option("--no-wait", is_flag=True, help="Only until nobody can read it; see `sweep`.")
@click.option("--despite-holds", is_flag=True, help="Also if a checkpoint of it is on hold.")
def erase(session: Session, scope: str, yes: bool, no_wait: bool, despite_holds: bool) -> None:
    """End a scope and remove its content; also of scopes of that name deleted before.

    Says what it cannot reach. If it was cut short, run it again. Refused while a checkpoint of it
    is on hold, unless --despite-holds is given.
    """
    with session.writing() as store:
        name = store.scope(scope).scope
        confirm(session, yes, "Erase", f"{name} with all its timelines")
        result = store.erase(name, wait=not no_wait, despite_holds=despite_holds)
    session.tell(result, f"{name}: erased")
    key = "its key" if result.key_removed else "no key"
    session.note(f"{result.rows} rows of {result.bytes} bytes and {key} were removed")
    still_open(session, result.open)


def still_open(session: Session, places: Sequence[str]) -> None:
    """Say what an erase, or a new key, cannot reach."""
    for text in places:
        session.note(f"still open: {in_options(text)}")


def confirm(session: Session, yes: bool, what: str, which: str) -> None:
    """Ask before something goes, unless that is said already."""
    if not yes:
        refusal = f"{which} would be {what.lower()}d: add --yes if that is meant"
        session.confirm(f"{what} {which}?", refusal)
