"""`holdfast backup`: whole stores in a folder or a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli import output
from holdfast.cli.commands import Group, pass_session
from holdfast.cli.failures import in_options
from holdfast.cli.session import Session
from holdfast.errors import BackupNotFoundError, StateIntegrityError
from holdfast.store.inner import core_of

if TYPE_CHECKING:
    from holdfast.backup.backups import Backups, PrunedBackups
    from holdfast.backup.manifest import Backup
    from holdfast.store.store import Store

FOUND = 1
NEWEST = "newest"
_F = TypeVar("_F", bound=Callable[..., Any])


@click.group(cls=Group)
def backup() -> None:
    """Back whole stores up into a folder or a bucket, and make stores of backups.

    PLACE is file:///FOLDER, dir:FOLDER or s3://BUCKET/PREFIX. The credentials of a bucket are in
    the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY. ID is that of a backup; verify and
    restore also take `newest`, the newest of this store.
    """


def _place(function: _F) -> _F:
    """The place, and what belongs to a bucket."""
    for option in (
        click.option("--endpoint", metavar="URL", help="Of a server that is not Amazon's."),
        click.option("--region", metavar="NAME", help="Of the bucket."),
        click.argument("place"),
    ):
        function = option(function)
    return function


def _alone(function: _F) -> _F:
    """For what can be done where the store is lost."""
    return click.option(
        "--no-store", is_flag=True, help="Do not open the store: it is lost, or another one."
    )(function)


def _trust(function: _F) -> _F:
    return click.option(
        "--trust", metavar="KEY", multiple=True, help="A public key whose backups are believed."
    )(function)


@backup.command("create")
@_place
@click.option("--name", default="", help="For people.")
@click.option("--keys", is_flag=True, help="Also the ring, wrapped by the master key.")
@click.option("--full", is_flag=True, help="Send all again.")
@click.option("--encryption", is_flag=True, help="Refuse to back up a plain store.")
@click.option("--unsigned", is_flag=True, help="Without a signature.")
@pass_session
def create(
    session: Session,
    place: str,
    region: str | None,
    endpoint: str | None,
    name: str,
    keys: bool,
    full: bool,
    encryption: bool,
    unsigned: bool,
) -> None:
    """Back the store up as it is at one moment; agents go on working meanwhile."""
    from holdfast.backup.backups import Backups

    with session.reading() as store:
        found = Backups(store, place, region=region, endpoint=endpoint, encryption=encryption)
        made = found.create(name, keys=keys, full=full, unsigned=unsigned)
    if session.json:
        output.document(_shape(made))
        return
    output.fields(
        [
            ("backup", made.id),
            ("type", made.type),
            ("rows", made.rows),
            ("bytes", made.bytes),
            ("sent", made.uploaded),
        ]
    )


@backup.command("list")
@_place
@pass_session
def list_(session: Session, place: str, region: str | None, endpoint: str | None) -> None:
    """The backups at a place, newest first."""
    from holdfast.backup.backups import Backups

    backups = Backups(None, place, region=region, endpoint=endpoint)
    found, damaged = backups.list(), backups.damaged()
    if session.json:
        output.document({"backups": [_shape(one) for one in found], "damaged": list(damaged)})
        return
    rows = [
        (one.id, one.created.isoformat(" ", "seconds"), one.type, one.rows, one.bytes, one.name)
        for one in found
    ]
    output.table(("backup", "made", "type", "rows", "bytes", "name"), rows)
    for id in damaged:
        output.note(f"{id} is damaged; `holdfast backup verify` says how")


@backup.command("verify")
@_place
@click.argument("id_", metavar="ID")
@_alone
@_trust
@pass_session
def verify(
    session: Session,
    place: str,
    region: str | None,
    endpoint: str | None,
    id_: str,
    no_store: bool,
    trust: tuple[str, ...],
) -> int:
    """Read all of a backup, and say what is missing, damaged or not signed. Exit code 1 if so."""
    with _opened(session, place, region, endpoint, no_store, trust) as (backups, store):
        report = backups.verify(_named(backups, store, id_))
    report = replace(report, findings=tuple(map(in_options, report.findings)))
    if session.json:
        output.document(
            {
                "id": report.id,
                "ok": report.ok,
                "objects": report.objects,
                "rows": report.rows,
                "bytes": report.bytes,
                "findings": list(report.findings),
            }
        )
    else:
        for line in str(report).splitlines():
            output.say(output.clean(line))
    return 0 if report.ok else FOUND


@backup.command("restore")
@_place
@click.argument("id_", metavar="ID")
@click.argument("url")
@_alone
@_trust
@click.option("--untrusted", is_flag=True, help="Whoever signed it, if anybody did.")
@pass_session
def restore(
    session: Session,
    place: str,
    region: str | None,
    endpoint: str | None,
    id_: str,
    url: str,
    no_store: bool,
    trust: tuple[str, ...],
    untrusted: bool,
) -> None:
    """Make a new store of a backup at URL, where nothing is yet."""
    with _opened(session, place, region, endpoint, no_store, trust) as (backups, store):
        id_ = _named(backups, store, id_)
        done = backups.restore(id_, session.url_of(url), untrusted=untrusted)
    if session.json:
        output.document(
            {
                "id": done.backup.id,
                "url": done.url,
                "rows": done.rows,
                "erased": done.erased,
                "notes": list(done.notes),
            }
        )
        return
    for line in str(done).splitlines():
        output.say(output.clean(line))


@backup.command("delete")
@_place
@click.argument("id_", metavar="ID")
@pass_session
def delete(
    session: Session, place: str, region: str | None, endpoint: str | None, id_: str
) -> None:
    """Delete a backup, and the objects that no other one needs."""
    from holdfast.backup.backups import Backups

    backups = Backups(None, place, region=region, endpoint=endpoint)
    _deleted(session, backups.delete(id_))


@backup.command("prune")
@_place
@click.option("--keep", type=int, required=True, help="How many of the newest stay.")
@click.option("--days", type=float, help="Only those that are older.")
@pass_session
def prune(
    session: Session,
    place: str,
    region: str | None,
    endpoint: str | None,
    keep: int,
    days: float | None,
) -> None:
    """Delete all backups of the store but the newest."""
    from holdfast.backup.backups import Backups

    try:
        age = timedelta(days=days) if days is not None else None
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{days} is no number of days", param_hint="'--days'") from None
    with session.reading() as store:
        backups = Backups(store, place, region=region, endpoint=endpoint)
        _deleted(session, backups.prune(keep, max_age=age))


@contextmanager
def _opened(
    session: Session,
    place: str,
    region: str | None,
    endpoint: str | None,
    no_store: bool,
    trust: tuple[str, ...],
) -> Iterator[tuple[Backups, Store | None]]:
    """The backups, with the store if it is there: it knows its signer, and what was erased."""
    from holdfast.backup.backups import Backups

    more: dict[str, Any] = {"region": region, "endpoint": endpoint, "trust": trust or None}
    if no_store:
        yield Backups(None, place, **more), None
        return
    with session.reading() as store:
        yield Backups(store, place, **more), store


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


def _deleted(session: Session, done: PrunedBackups) -> None:
    if session.json:
        output.document(
            {
                "deleted": list(done.deleted),
                "objects": done.objects,
                "bytes": done.bytes,
                "notes": list(done.notes),
            }
        )
        return
    for id in done.deleted:
        output.say(f"{id} is deleted")
    output.note(f"{done.objects} objects, {done.bytes} bytes went")
    for note in done.notes:
        output.note(note)


def _shape(made: Backup) -> dict[str, Any]:
    return {
        "id": made.id,
        "name": made.name,
        "created": made.created.isoformat(),
        "type": made.type,
        "parent": made.parent,
        "encrypted": made.encrypted,
        "keys": made.keys,
        "signer": made.signer,
        "rows": made.rows,
        "bytes": made.bytes,
        "objects": made.objects,
        "uploaded": made.uploaded,
    }
