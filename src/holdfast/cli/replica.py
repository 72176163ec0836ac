"""`holdfast replica`: other stores that hold what a store holds, and follow it."""

from __future__ import annotations

import time
from typing import Any

import click

from holdfast.cli.commands import Group
from holdfast.cli.session import Session, until_stopped
from holdfast.replicas.replicas import Replicas, promote_replica
from holdfast.storage import shown
from holdfast.sync import Store

FOUND = 1


@click.group(cls=Group)
def replica() -> None:
    """Keep other stores up to date with this one: replicas, at any URL that a store can have.

    A replica is read with the options that the store is read with (an encrypted one needs the
    ring, too), and can be written to once it is promoted.
    """


def _replicas(session: Session, store: Store, urls: tuple[str, ...], **more: Any) -> Replicas:
    return Replicas(store, [session.url_of(url) for url in urls], **more)


@replica.verb("sync URL...=urls")
@click.option("--full", is_flag=True, help="Compare all rows of both sides.")
@click.option("--remake", metavar="URL", help="One that is to become a copy, whatever it holds.")
def sync(session: Session, urls: tuple[str, ...], full: bool, remake: str | None) -> int:
    """Bring replicas up to now; those that are not there are made. Exit 1 if one is not."""
    remade = session.url_of(remake) if remake is not None else None
    with session.reading() as store:
        report = _replicas(session, store, urls).sync(full=full, remake=remade)
    session.tell({"replicas": report.replicas}, report)
    return 0 if report.ok else FOUND


@replica.verb("run URL...=urls")
@click.option("--interval", type=float, default=1.0, show_default=True, metavar="SECONDS",
              help="Between two looks at the store.")  # fmt: skip
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
