"""`holdfast keyring`: the keys of an encrypted store."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.command import Group, flag, option
from holdfast.cli.commands.store import confirm, still_open
from holdfast.cli.plain import plain
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError

all_option = flag("--all=every", "Every scope.")


keyring = Group("keyring", help="Look at, rotate and remove keys.")


@keyring.verb("erase --yes")
@click.option("--subject", metavar="NAME", required=True, help="All that was sealed for it.")
def erase(session: Session, subject: str, yes: bool) -> None:
    """Remove the key of a subject: what was sealed for it cannot be read any more, in any scope.

    Says what it cannot reach. If it was cut short, run it again. `scope erase` erases a scope.
    """
    with session.writing() as store:
        confirm(session, yes, "Erase", f"all that was sealed for the subject {subject}")
        result = store.erase_subject(subject)
    session.tell(result, f"{subject}: erased")
    still_open(session, result.open)


@keyring.verb("subjects")
@click.option("--prefix", default="", help="Names that begin so.")
def subjects(session: Session, prefix: str) -> None:
    """The subjects that values are sealed for."""
    with session.reading() as store:
        found = store.subjects(prefix=prefix)
    session.table("subjects", found, "subject", subject=str)


@keyring.verb("show")
def show(session: Session) -> None:
    """What the ring holds; never a key."""
    with session.reading() as store:
        found = store.keyring()
    session.fields(found)
    if found.rotating:
        session.note("the master key is being rotated: `holdfast keyring finish` retires the old")
    if found.data_keys > found.scopes:
        session.note("old data keys are still in use: `holdfast keyring reseal --all` ends that")


@keyring.verb("rotate [SCOPE]")
@all_option
@option("--new-key", "SOURCE", "Rotate the master key to file:PATH, env:NAME or `passphrase:`.")
@option("--new-passphrase-file", "PATH", "The same, with the first line of a file.")
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
        with session.writing() as store:
            store.begin_rotation(wanted)
            found = store.keyring()
        session.tell(found, "the old and the new master key open the store")
        session.note(
            "start all that use it with the new key; then, with it, `holdfast keyring finish` "
            "retires the old one"
        )
        return
    with session.writing() as store:
        if scope is None:
            told: dict[str, Any] = {"scopes": store.rotate()}
        else:
            told = {"scope": store.scope(scope).scope, "epoch": store.rotate(scope)}
    session.tell(told, f"{scope or 'all scopes'}: what is written now has a new key")
    what = f"`holdfast keyring reseal {scope or '--all'}`"
    session.note(f"what was written before keeps the old one: {what}")


@keyring.verb("finish")
def finish(session: Session) -> None:
    """Retire the old master key; --key gives the new one."""
    with session.writing() as store:
        done = store.finish_rotation()
        found = store.keyring()
    told = f"only the newest master key, of generation {found.generation}, opens the store"
    session.tell({**plain(found), "open": done.open}, told)
    still_open(session, done.open)


@keyring.verb("reseal [SCOPE]")
@all_option
def reseal(session: Session, scope: str | None, every: bool) -> None:
    """Seal old records under the newest data key, and remove the older keys.

    Others may go on reading and writing. If it was cut short, run it again.
    """
    if (scope is not None) + every != 1:
        raise InvalidInputError("say of which scope: SCOPE or --all, one")
    with session.writing() as store:
        done = store.reseal(scope)
    lines = (f"{one.scope}: {one.rows} records were sealed again" for one in done)
    session.tell(done[0] if scope is not None else {"scopes": done}, *lines)
    if done:
        still_open(session, done[0].open)
