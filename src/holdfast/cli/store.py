"""`holdfast init`, `stats` and `sweep`: a store as a whole."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import output
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.session import Session


@click.command(cls=Command)
@pass_session
def init(session: Session) -> None:
    """Make a store; with a key it is encrypted.

    Prints the identity to pin elsewhere (`verify --identity`), where key, ring and signer lie,
    and what to be careful about.
    """
    with session.creating() as store:
        identity = store.identity()
        encrypted = bool(store.stats()["encrypted"])
    places = _places(session, encrypted)
    cautions = _cautions(session, encrypted)
    if session.json:
        output.document(
            {
                "store": session.url,
                "encrypted": encrypted,
                "identity": identity,
                **places,
                "warnings": [*session.warnings, *cautions],
            }
        )
        return
    output.fields([("store", session.url), ("encrypted", encrypted), ("identity", identity)])
    output.fields([(name, place) for name, place in places.items() if place is not None])
    for caution in cautions:
        output.note(f"warning: {caution}")


def _places(session: Session, encrypted: bool) -> dict[str, Any]:
    """Where the secrets lie."""
    ring = f"{session.path}.keys" if encrypted else None
    key = None
    if encrypted:
        asked = session.would_ask or session.passphrase_file is not None
        key = "passphrase" if asked else session.key_name
    signer = session.signer_source
    if signer is None:
        signer = "in the ring" if encrypted else f"file:{session.path}.sign"
    return {"key": key, "ring": ring, "signer": signer}


def _cautions(session: Session, encrypted: bool) -> list[str]:
    found = []
    if encrypted:
        found.append("without key and ring nothing can be read: keep copies of both, apart")
    else:
        found.append("it is not encrypted: who can read the file can read the state")
    if session.signer_source is None:
        found.append(
            "the signer lies with the store: pin the identity elsewhere and keep witnesses, or "
            "make the store with --signer file:PATH on another disk"
        )
    return found


@click.command(cls=Command)
@pass_session
def stats(session: Session) -> None:
    """Figures of the store."""
    with session.reading() as store:
        found = store.stats()
    if session.json:
        output.document(found)
        return
    kinds = found.pop("scopes_by_kind")
    found["scopes"] = f"{found['scopes']}" + "".join(
        f", {count} {kind}" for kind, count in sorted(kinds.items())
    )
    output.fields([(name.replace("_", " "), figure) for name, figure in found.items()])


@click.command(cls=Command)
@click.option("--wait", is_flag=True, help="Take the minute that it needs to be sure.")
@pass_session
def sweep(session: Session, wait: bool) -> None:
    """Clear away long values that were never finished, once nobody goes on with them.

    A writer counts as gone when it has shown no sign of life for a minute while this program
    looked. Without --wait only what another sweep has begun is cleared away.
    """
    with session.writing() as store:
        done = store.sweep(wait=wait)
    if session.json:
        output.document({name: getattr(done, name) for name in done.__slots__})
        return
    output.say(f"{done.uploads} unfinished values swept: {done.rows} rows, {done.bytes} bytes")
    if done.waiting:
        why = "their writers live" if wait else "their writers may live; see --wait"
        output.note(f"{done.waiting} unfinished values are left: {why}")
