"""`holdfast keyring`: the keys of an encrypted store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.cli.commands import Group, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.scope import (
    confirm,
    erase_scope,
    holds_option,
    no_wait_option,
    still_open,
)
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError

if TYPE_CHECKING:
    from holdfast.store.inner import Resealed

scope_argument = click.argument("scope", required=False, shell_complete=complete_scope)
all_option = click.option("--all", "every", is_flag=True, help="Every scope.")


@click.group(cls=Group)
def keyring() -> None:
    """Look at, rotate and remove keys."""


@keyring.command()
@scope_argument
@click.option("--subject", metavar="NAME", help="All that was sealed for this subject.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@no_wait_option
@holds_option
@pass_session
def erase(
    session: Session,
    scope: str | None,
    subject: str | None,
    yes: bool,
    no_wait: bool,
    despite_holds: bool,
) -> None:
    """Remove the key of a SCOPE, with its content, or that of a --subject.

    What was sealed for a subject cannot be read any more, in any scope. Says what it cannot reach.
    If it was cut short, run it again.
    """
    if (scope is None) == (subject is None):
        raise InvalidInputError("say whose key: SCOPE or --subject NAME, one")
    if scope is not None:
        erase_scope(session, scope, yes, wait=not no_wait, despite_holds=despite_holds)
        return
    assert subject is not None
    if no_wait:
        raise InvalidInputError("--no-wait goes with a SCOPE: a subject has no rows to wait for")
    with session.writing() as store:
        if not yes:
            confirm("Erase", f"all that was sealed for the subject {subject}")
        result = store.erase_subject(subject)
    if session.json:
        output.document({**asdict(result), "open": list(result.open)})
        return
    output.say(output.clean(f"{subject}: erased"))
    still_open(result.open)


@keyring.command()
@click.option("--prefix", default="", help="Names that begin so.")
@pass_session
def subjects(session: Session, prefix: str) -> None:
    """The subjects that values are sealed for."""
    with session.reading() as store:
        found = store.subjects(prefix=prefix)
    if session.json:
        output.document({"subjects": found})
        return
    output.table(["subject"], [[name] for name in found])


@keyring.command()
@pass_session
def show(session: Session) -> None:
    """What the ring holds; never a key."""
    with session.reading() as store:
        found = store.keyring()
    if session.json:
        output.document(asdict(found))
        return
    output.fields([(name.replace("_", " "), figure) for name, figure in asdict(found).items()])
    if found.rotating:
        output.note("the master key is being rotated: `holdfast keyring finish` retires the old")
    if found.data_keys > found.scopes:
        output.note("old data keys are still in use: `holdfast keyring reseal --all` ends that")


@keyring.command()
@scope_argument
@all_option
@click.option(
    "--new-key",
    metavar="SOURCE",
    help="Rotate the master key to file:PATH (made if missing), env:NAME or `passphrase:`.",
)
@click.option(
    "--new-passphrase-file", metavar="PATH", help="The same, with the first line of a file."
)
@pass_session
def rotate(
    session: Session,
    scope: str | None,
    every: bool,
    new_key: str | None,
    new_passphrase_file: str | None,
) -> None:
    """Begin to use a new key: SCOPE's own, that of --all scopes, or with --new-key the master.

    A new master key opens the store beside the old one until `holdfast keyring finish`.
    """
    master = new_key is not None or new_passphrase_file is not None
    if (scope is not None) + every + master != 1:
        raise InvalidInputError("say which key: SCOPE, --all, or --new-key for the master, one")
    wanted = session.other_key("new", new_key, new_passphrase_file, new=True)
    if wanted is not None:
        _rotate_master(session, wanted)
        return
    with session.writing() as store:
        if scope is None:
            told: dict[str, Any] = {"scopes": store.rotate()}
        else:
            told = {"scope": str(store.scope(scope).scope), "epoch": store.rotate(scope)}
    if session.json:
        output.document(told)
        return
    output.say(output.clean(f"{scope or 'all scopes'}: what is written now has a new key"))
    what = output.clean(scope) if scope else "--all"
    output.note(f"what was written before keeps the old one: `holdfast keyring reseal {what}`")


def _rotate_master(session: Session, key: str) -> None:
    with session.writing() as store:
        store.begin_rotation(key)
        found = store.keyring()
    if session.json:
        output.document(asdict(found))
        return
    output.say("the old and the new master key open the store")
    output.note(
        "start all that use it with the new key; then, with it, `holdfast keyring finish` "
        "retires the old one"
    )


@keyring.command()
@pass_session
def finish(session: Session) -> None:
    """Retire the old master key; --key gives the new one."""
    with session.writing() as store:
        done = store.finish_rotation()
        found = store.keyring()
    if session.json:
        output.document({**asdict(found), "open": list(done.open)})
        return
    output.say(f"only the newest master key, of generation {found.generation}, opens the store")
    still_open(done.open)


@keyring.command()
@scope_argument
@all_option
@pass_session
def reseal(session: Session, scope: str | None, every: bool) -> None:
    """Seal old records under the newest data key, and remove the older keys.

    Others may go on reading and writing. If it was cut short, run it again.
    """
    if (scope is not None) + every != 1:
        raise InvalidInputError("say of which scope: SCOPE or --all, one")
    with session.writing() as store:
        done = store.reseal(scope)
    if session.json:
        found = [_shape(one) for one in done]
        output.document(found[0] if scope is not None else {"scopes": found})
        return
    for one in done:
        output.say(output.clean(f"{one.scope}: {one.rows} records were sealed again"))
    if done:
        still_open(done[0].open)


def _shape(done: Resealed) -> dict[str, Any]:
    return {**asdict(done), "scope": str(done.scope), "open": list(done.open)}
