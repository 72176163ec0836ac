"""`holdfast backup` and `replica`: whole stores in a folder or a bucket, and stores that follow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import click

from holdfast.backup.backups import Backups, PrunedBackups
from holdfast.cli.command import Group, flag, option, seconds, several, together
from holdfast.cli.failures import in_options
from holdfast.cli.session import Session, until_stopped
from holdfast.errors import BackupNotFoundError, StateIntegrityError, StoreNotFoundError
from holdfast.replicas.replicas import Replicas, promote_replica
from holdfast.storage import shown
from holdfast.store.inner import core_of
from holdfast.sync import Store

FOUND = 1
NEWEST = "newest"


@click.group(cls=Group)
def backup() -> None:
    """Back whole stores up into a folder or a bucket, and make stores of backups.

    PLACE is file:///FOLDER, dir:FOLDER or s3://BUCKET/PREFIX. The credentials of a bucket are in
    the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY. ID is that of a backup; verify and
    restore also take `newest`, the newest of this store.
    """


_bucket = together(
    option("--region", "NAME", "Of the bucket."),
    option("--endpoint", "URL", "Of a server that is not Amazon's."),
)
_alone = together(
    flag("--no-store", "Do not open the store: it is lost, or another one."),
    several("--trust", "KEY", "A public key whose backups are believed."),
)
"""For what can be done where the store is lost."""


@backup.verb("create PLACE=url")
@_bucket
@click.option("--name", default="", help="For people.")
@flag("--keys", "Also the ring, wrapped by the master key.")
@flag("--full", "Send all again.")
@flag("--encryption", "Refuse to back up a plain store.")
@flag("--unsigned", "Without a signature.")
def create(
    session: Session, name: str, keys: bool, full: bool, unsigned: bool, **where: Any
) -> None:
    """Back the store up as it is at one moment; agents go on working meanwhile."""
    with session.reading() as store:
        made = Backups(store, **where).create(name, keys=keys, full=full, unsigned=unsigned)
    shown = {"backup": made.id, "type": made.type, "rows": made.rows, "bytes": made.bytes}
    session.fields(made, {**shown, "sent": made.uploaded}.items())


@backup.verb("list PLACE=url")
@_bucket
def list_(session: Session, **where: Any) -> None:
    """The backups at a place, newest first."""
    backups = Backups(None, **where)
    found, damaged = backups.list(), backups.damaged()
    session.table(
        "backups",
        found,
        "backup=id, made=created, type, rows, bytes, name",
        about={"damaged": damaged},
    )
    for id in damaged:
        session.note(f"{id} is damaged; `holdfast backup verify` says how")


@backup.verb("verify PLACE=url ID=id_")
@_bucket
@_alone
def verify(session: Session, id_: str, **where: Any) -> int:
    """Read all of a backup, and say what is missing, damaged or not signed. Exit code 1 if so."""
    with _opened(session, **where) as (backups, store):
        report = backups.verify(_named(backups, store, id_))
    report = replace(report, findings=tuple(map(in_options, report.findings)))
    session.tell(report, report)
    return 0 if report.ok else FOUND


@backup.verb("restore PLACE=url ID=id_ URL=target")
@_bucket
@_alone
@flag("--untrusted", "Whoever signed it, if anybody did.")
def restore(session: Session, id_: str, target: str, untrusted: bool, **where: Any) -> None:
    """Make a new store of a backup at URL, where nothing is yet."""
    with _opened(session, **where) as (backups, store):
        id_ = _named(backups, store, id_)
        done = backups.restore(id_, session.url_of(target), untrusted=untrusted)
    session.tell(done, done)


@backup.verb("delete PLACE=url ID=id_")
@_bucket
def delete(session: Session, id_: str, **where: Any) -> None:
    """Delete a backup, and the objects that no other one needs."""
    _deleted(session, Backups(None, **where).delete(id_))


@backup.verb("prune PLACE=url")
@_bucket
@click.option("--keep", type=int, required=True, help="How many of the newest stay.")
@click.option("--days", type=float, help="Only those that are older.")
def prune(session: Session, keep: int, days: float | None, **where: Any) -> None:
    """Delete all backups of the store but the newest."""
    try:
        age = timedelta(days=days) if days is not None else None
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{days} is no number of days", param_hint="'--days'") from None
    with session.reading() as store:
        _deleted(session, Backups(store, **where).prune(keep, max_age=age))


def _deleted(session: Session, done: PrunedBackups) -> None:
    session.tell(done, *(f"{id} is deleted" for id in done.deleted))
    session.note(f"{done.objects} objects, {done.bytes} bytes went")
    for note in done.notes:
        session.note(note)


@contextmanager
def _opened(
    session: Session, no_store: bool, trust: tuple[str, ...], **where: Any
) -> Iterator[tuple[Backups, Store | None]]:
    """The backups, with the store if it is there: it knows its signer, and what was erased."""
    if not no_store and not session.there():
        raise StoreNotFoundError(
            f"there is no store at {session.path!r}; if it is lost, and a backup is to bring it "
            "back, give --no-store, and --trust with the public key of its signer or --untrusted"
        )
    with nullcontext() if no_store else session.reading() as store:
        yield Backups(store, trust=trust or None, **where), store


def _named(backups: Backups, store: Store | None, id: str) -> str:
    """The id of a backup; if it is `newest`, of the newest of this store, or of the only one's.

    Never an older one in its place: who damages a manifest must not choose what is restored.
    """
    if id != NEWEST:
        return id
    found = backups.list()
    if store is not None:
        found = [one for one in found if one.lineage == core_of(store).lineage.hex()]
    elif len({one.lineage for one in found}) > 1:
        raise click.UsageError(
            "backups of several stores are at this place; give the id of one, as "
            "`holdfast backup list` shows it"
        )
    newest = found[0].id if found else ""
    for damaged in backups.damaged():
        if damaged > newest:  # they are ordered by time
            raise StateIntegrityError(
                f"the backup {damaged}, which may be the newest, is damaged; `holdfast backup "
                "verify` of it says how. To take another one, give its id, as `holdfast backup "
                "list` shows it"
            )
    if not newest:
        whose = "of this store at this place" if store is not None else "at this place"
        raise BackupNotFoundError(f"there is no backup {whose}; `holdfast backup create` makes one")
    return newest


# ---- replicas: other stores that hold what a store holds, and follow it --------------------------


@click.group(cls=Group)
def replica() -> None:
    """Keep other stores up to date with this one: replicas, at any URL that a store can have.

    A replica is read with the options that the store is read with (an encrypted one needs the
    ring, too), and can be written to once it is promoted.
    """


def _replicas(session: Session, store: Store, urls: tuple[str, ...], **more: Any) -> Replicas:
    return Replicas(store, [session.url_of(url) for url in urls], **more)


@replica.verb("sync URL...=urls")
@flag("--full", "Compare all rows of both sides.")
@option("--remake", "URL", "One that is to become a copy, whatever it holds.")
def sync(session: Session, urls: tuple[str, ...], full: bool, remake: str | None) -> int:
    """Bring replicas up to now; those that are not there are made. Exit 1 if one is not."""
    remade = session.url_of(remake) if remake is not None else None
    with session.reading() as store:
        report = _replicas(session, store, urls).sync(full=full, remake=remade)
    session.tell({"replicas": report.replicas}, report)
    return 0 if report.ok else FOUND


@replica.verb("run URL...=urls")
@seconds("--interval", 1.0, "Between two looks at the store.")
def run(session: Session, urls: tuple[str, ...], interval: float) -> None:
    """Keep replicas up to date, until Ctrl-C. A line (with --json too) when something is done."""
    errors: dict[str, str | None] = {}
    with until_stopped(), session.reading() as store:
        replicas = _replicas(session, store, urls, interval=interval)
        while True:
            for one in replicas.sync().replicas:
                done = one.made or one.rows or one.removed or one.findings
                if done or errors.get(one.url) != one.error:
                    session.each(one, one)
                errors[one.url] = one.error
            time.sleep(interval)


@replica.verb("status URL...=urls")
def status(session: Session, urls: tuple[str, ...]) -> int:
    """How far replicas are behind. Exit 1 if one is not whole, or cannot be reached."""
    with session.reading() as store:
        found = _replicas(session, store, urls).status()
    session.tell({"replicas": found}, *found)
    return 0 if all(one.whole and one.error is None for one in found) else FOUND


@replica.verb("promote URL")
def promote(session: Session, url: str) -> None:
    """Make a store of its own of a replica: the store that it follows is lost."""
    place = session.url_of(url)
    promote_replica(place)
    session.tell({"promoted": shown(place)}, f"{shown(place)} is a store of its own now")
