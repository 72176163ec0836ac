"""`holdfast replica`: other stores that hold what a store holds, and follow it."""

from __future__ import annotations

import signal
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.cli.commands import Group, pass_session
from holdfast.cli.session import Session
from holdfast.store.inner import write

if TYPE_CHECKING:
    from holdfast.replicas.replica_sync import SyncedReplica

FOUND = 1
_urls = click.argument("urls", metavar="URL...", nargs=-1, required=True)


@click.group(cls=Group)
def replica() -> None:
    """Keep other stores up to date with this one: replicas, at any URL that a store can have.

    A replica is read with the options that the store is read with (an encrypted one needs the
    ring, too), and can be written to once it is promoted.
    """


@replica.command()
@_urls
@click.option("--full", is_flag=True, help="Compare all rows of both sides.")
@click.option("--remake", metavar="URL", help="One that is to become a copy, whatever it holds.")
@pass_session
def sync(session: Session, urls: tuple[str, ...], full: bool, remake: str | None) -> int:
    """Bring replicas up to now; those that are not there are made. Exit 1 if one is not."""
    from holdfast.replicas.replicas import Replicas

    with session.reading() as store:
        report = Replicas(store, _at(session, urls)).sync(
            full=full, remake=session.url_of(remake) if remake is not None else None
        )
    if session.json:
        output.document({"replicas": [_shape(one) for one in report.replicas]})
    else:
        _show(str(report))
    return 0 if report.ok else FOUND


@replica.command()
@_urls
@click.option("--interval", type=float, default=1.0, show_default=True, metavar="SECONDS",
              help="Between two looks at the store.")  # fmt: skip
@pass_session
def run(session: Session, urls: tuple[str, ...], interval: float) -> None:
    """Keep replicas up to date, until Ctrl-C. A line (with --json too) when something is done."""
    from holdfast.replicas.replicas import Replicas

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with session.reading() as store:
            replicas = Replicas(store, _at(session, urls), interval=interval)
            errors: dict[str, str | None] = {}
            while True:
                for one in replicas.sync().replicas:
                    done = one.made or one.rows or one.removed or one.findings
                    if done or errors.get(one.url) != one.error:
                        click.echo(write(_shape(one))) if session.json else _show(str(one))
                    errors[one.url] = one.error
                time.sleep(interval)
    except KeyboardInterrupt:
        return  # this is how it is meant to end
    finally:
        signal.signal(signal.SIGTERM, before)


@replica.command()
@_urls
@pass_session
def status(session: Session, urls: tuple[str, ...]) -> int:
    """How far replicas are behind. Exit 1 if one is not whole, or cannot be reached."""
    from holdfast.replicas.replicas import Replicas

    with session.reading() as store:
        found = Replicas(store, _at(session, urls)).status()
    if session.json:
        output.document({"replicas": [asdict(one) for one in found]})
    else:
        for one in found:
            output.say(output.clean(str(one)))
    return 0 if all(one.whole and one.error is None for one in found) else FOUND


@replica.command()
@click.argument("url")
@pass_session
def promote(session: Session, url: str) -> None:
    """Make a store of its own of a replica: the store that it follows is lost."""
    from holdfast.replicas.replicas import promote_replica
    from holdfast.storage import shown

    place = session.url_of(url)
    promote_replica(place)
    if session.json:
        output.document({"promoted": shown(place)})
    else:
        output.say(output.clean(f"{shown(place)} is a store of its own now"))


def _at(session: Session, urls: tuple[str, ...]) -> list[str]:
    return [session.url_of(url) for url in urls]


def _shape(one: SyncedReplica) -> dict[str, Any]:
    return {**asdict(one), "findings": list(one.findings), "ok": one.ok}


def _show(text: str) -> None:
    for line in text.splitlines():
        output.say(output.clean(line))
