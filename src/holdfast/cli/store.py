"""`holdfast init`, `stats` and `sweep`: a store as a whole."""

from __future__ import annotations

import os
from typing import Any

import click

from holdfast.cli import output
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, ScopeNotFoundError
from holdfast.store.inner import handle_of


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
                "store": session.shown,
                "encrypted": encrypted,
                "identity": identity,
                **places,
                "warnings": [*session.warnings, *cautions],
            }
        )
        return
    output.fields([("store", session.shown), ("encrypted", encrypted), ("identity", identity)])
    output.fields([(name, place) for name, place in places.items() if place is not None])
    for caution in cautions:
        output.note(f"warning: {caution}")


def _places(session: Session, encrypted: bool) -> dict[str, Any]:
    """Where the secrets lie."""
    path = os.path.realpath(session.path) if os.path.islink(session.path) else session.path
    ring = f"{path}.keys" if session.is_file else "as the URL says"
    key = None
    if encrypted:
        asked = session.would_ask or session.passphrase_file is not None
        key = "passphrase" if asked else session.key_name
    signer = session.signer_source
    if signer is None and encrypted:
        signer = "in the ring"
    elif signer is None and session.is_file:
        signer = f"file:{path}.sign"
    return {"key": key, "ring": ring if encrypted else None, "signer": signer}


def _cautions(session: Session, encrypted: bool) -> list[str]:
    found = []
    if encrypted:
        found.append("without key and ring nothing can be read: keep copies of both, apart")
    else:
        place = "file" if session.is_file else "database"
        found.append(f"it is not encrypted: who can read the {place} can read the state")
    if session.signer_source is None and not encrypted and not session.is_file:
        found.append("it has no signer, so that nothing is signed: make it with --signer file:PATH")
    elif session.signer_source is None:
        found.append(
            "the signer lies with the store: pin the identity elsewhere and keep witnesses, or "
            "make the store with --signer file:PATH on another disk"
        )
    return found


@click.command(cls=Command)
@pass_session
def stats(session: Session) -> None:
    """Figures of the store.

    How often transitions and recoveries were tried, and how long saves take, a running program
    tells (`store.metrics()`), and `holdfast agent run --json` at its end.
    """
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
@click.argument("scope", required=False, shell_complete=complete_scope)
@click.option("--limit", type=click.IntRange(1), help="At most so many keys.")
@click.option("--wait", is_flag=True, help="Take the minute that unfinished values need.")
@pass_session
def sweep(session: Session, scope: str | None, limit: int | None, wait: bool) -> None:
    """Remove keys that have expired, of a scope's timeline or of all scopes.

    They read as absent without it; it makes the state smaller. Their past stays. Of all scopes, it
    also drops what is left of erased ones, and clears away long values that were never finished,
    once their writers have shown no sign of life for a minute while this program looked. Without
    --wait only what another sweep has begun is cleared away.
    """
    if scope is not None:
        if wait:
            raise InvalidInputError("--wait is about the whole store; leave the scope out")
        _sweep_scope(session, scope, limit)
        return
    with session.writing() as store:
        done = store.sweep(limit=limit, wait=wait)
    if session.json:
        output.document({name: getattr(done, name) for name in done.__slots__})
        return
    output.say(_removed(done.keys))
    what = f"{done.uploads} unfinished values"
    what += f" and {done.erased} erased scopes" if done.erased else ""
    output.say(f"{what} swept: {done.rows} rows, {done.bytes} bytes")
    if done.waiting:
        why = "their writers live" if wait else "their writers may live; see --wait"
        output.note(f"{done.waiting} unfinished values are left: {why}")
    for name in done.damaged:
        output.note(output.clean(f"{name} is damaged, and was not swept; see `holdfast doctor`"))


def _sweep_scope(session: Session, scope: str, limit: int | None) -> None:
    with session.writing() as store:
        state = session.state(store, scope)
        if not handle_of(state).place()[2]:
            raise ScopeNotFoundError(f"there is no scope {state.scope} in this store")
        removed = state.sweep(limit=limit)
    if session.json:
        output.document({"scope": str(state.scope), "timeline": state.timeline, "keys": removed})
    else:
        output.say(_removed(removed))


def _removed(keys: int) -> str:
    return f"{keys} expired {'key' if keys == 1 else 'keys'} removed"
