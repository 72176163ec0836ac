"""`holdfast init`, `scope`, `stats`, `sweep`, `lease` and `audit`: a store as a whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from holdfast.access.audit import Audit
from holdfast.cli.command import Group, command, flag, option
from holdfast.cli.failures import in_options
from holdfast.cli.session import Session, moment
from holdfast.errors import InvalidInputError


@command("init")
def init(session: Session) -> None:
    """Make a store; with a key it is encrypted.

    Prints the identity to pin elsewhere (`verify --identity`), where key, ring and signer lie,
    and what to be careful about.
    """
    with session.creating() as store:
        identity = store.identity()
        encrypted = bool(store.stats()["encrypted"])
    path = os.path.realpath(session.path) if os.path.islink(session.path) else session.path
    signer, cautions = session.signer_source, []
    places: dict[str, str | None] = {"key": None}
    beside: str | None = "in the ring"
    if encrypted:
        ring = f"{path}.keys" if session.is_file else "as the URL says"
        places = {"key": session.key_name, "ring": ring}
        cautions.append("without key and ring nothing can be read: keep copies of both, apart")
    else:
        beside = f"file:{path}.sign" if session.is_file else None
        what = "file" if session.is_file else "database"
        cautions.append(f"it is not encrypted: who can read the {what} can read the state")
    places["signer"] = signer or beside
    if places["signer"] is None:
        cautions.append(
            "it has no signer, so that nothing is signed: make it with --signer file:PATH"
        )
    elif signer is None:
        cautions.append(
            "the signer lies with the store: pin the identity elsewhere and keep witnesses, or "
            "make the store with --signer file:PATH on another disk"
        )
    told = {"store": session.shown, "encrypted": encrypted, "identity": identity, **places}
    session.fields({**told, "warnings": [*session.warnings, *cautions]}, told.items())
    for caution in cautions:
        session.note(f"warning: {caution}")


@command("stats")
def stats(session: Session) -> None:
    """Figures of the store.

    How often transitions and recoveries were tried, and how long saves take, a running program
    tells (`store.metrics()`), and `holdfast agent run --json` at its end.
    """
    with session.reading() as store:
        found = store.stats()
    kinds = sorted(found["scopes_by_kind"].items())
    shown = {name: figure for name, figure in found.items() if name != "scopes_by_kind"}
    shown["scopes"] = "".join([str(shown["scopes"]), *(f", {n} {kind}" for kind, n in kinds)])
    session.fields(found, shown.items())


@command("sweep [SCOPE] --limit")
@flag("--wait", "Take the minute that unfinished values need.")
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
        with session.change(scope) as state:
            keys = state.sweep(limit=limit)
        place = {"scope": state.scope, "timeline": state.timeline}
        session.tell({**place, "keys": keys}, _removed(keys))
        return
    with session.writing() as store:
        done = store.sweep(limit=limit, wait=wait)
    what = f"{done.uploads} unfinished values"
    what += f" and {done.erased} erased scopes" if done.erased else ""
    swept = f"{what} swept: {done.rows} rows, {done.bytes} bytes"
    session.tell(done, _removed(done.keys), swept)
    if done.waiting:
        why = "their writers live" if wait else "their writers may live; see --wait"
        session.note(f"{done.waiting} unfinished values are left: {why}")
    for name in done.damaged:
        session.note(f"{name} is damaged, and was not swept; see `holdfast doctor`")


def _removed(keys: int) -> str:
    return f"{keys} expired {'key' if keys == 1 else 'keys'} removed"


# ---- leases ------------------------------------------------------------------------------------


lease = Group("lease", help="List leases, and break one.")


@lease.verb("list")
def list_leases(session: Session) -> None:
    """All leases that were ever taken, and who holds them.

    A holder that lives renews its lease three times in its duration: look twice, and the beats
    have grown.
    """
    with session.reading() as store:
        found = store.leases()
    session.table(
        "leases",
        found,
        "lease=name, term, owner, duration, beats",
        owner=lambda one: (
            f"damaged: {one.damage}"
            if one.damage
            else f"{one.owner} (gone)"
            if one.gone
            else one.owner
        ),
        duration=lambda one: f"{one.duration:g} s" if one.owner is not None else "",
        beats=lambda one: one.beats if one.owner is not None else "",
    )


@lease.verb("break NAME --yes")
def break_(session: Session, name: str, yes: bool) -> None:
    """Take a lease from its holder: what it writes under it is refused from now on.

    Of a holder that is gone, others get the lease by themselves: after its duration, or at once if
    it was a process of the same machine (Linux), which is listed as gone.
    """
    with session.writing() as store:
        if not yes:
            refusal = f"the lease {name} would be broken: add --yes if that is meant"
            session.confirm(f"Break the lease {name}?", refusal)
        owner = store.break_lease(name)
    told = f"{name}: broken{'' if owner else ', though nobody held it'}"
    session.tell({"broken": name, "owner": owner}, told)
    if owner:
        session.note(f"it was held by {owner}")


# ---- reads of what is sensitive ----------------------------------------------------------------


@command("audit [SCOPE] --limit=100")
@click.option("--actor", help="Only what this one read.")
@option("--since", "TIME", "From this time on.")
@option("--until", "TIME", "Up to this time.")
def audit(
    session: Session, scope: str | None, since: str | None, until: str | None, **given: Any
) -> None:
    """Reads of sensitive values that were noted, newest first: of a SCOPE, or of all.

    Programs note them with `Audit(store)`. What this program shows with --reveal is not noted.
    """
    given |= {"since": moment(since) if since else None, "until": moment(until) if until else None}
    with session.reading() as store:
        found = Audit(store).reads(scope, **given)
    session.table(
        "reads",
        found,
        "time, actor=cause.actor, scope, entry, keys",
        scope=lambda read: read.scope or "<erased>",
        keys=lambda read: [key or "<not known any more>" for key in read.keys],
    )


# ---- scopes --------------------------------------------------------------------------------------


scope = Group("scope", help="List, delete and erase scopes.")


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
@flag("--no-wait", "Only until nobody can read it; see `sweep`.")
@flag("--despite-holds", "Also if a checkpoint of it is on hold.")
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
