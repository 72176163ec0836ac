"""`holdfast lease`: who holds what, and taking it from a holder that is gone."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli import output
from holdfast.cli.commands import Group, pass_session
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError

if TYPE_CHECKING:
    from holdfast.store.inner import LeaseInfo


@click.group(cls=Group)
def lease() -> None:
    """List leases, and break one."""


@lease.command("list")
@pass_session
def list_(session: Session) -> None:
    """All leases that were ever taken, and who holds them.

    A holder that lives renews its lease three times in its duration: look twice, and the beats
    have grown.
    """
    with session.reading() as store:
        found = store.leases()
    if session.json:
        output.document({"leases": [asdict(one) for one in found]})
        return
    output.table(
        ["lease", "term", "owner", "duration", "beats"],
        [
            [one.name, one.term, _owner(one), *_if_held(one.owner, one.duration, one.beats)]
            for one in found
        ],
    )


def _owner(one: LeaseInfo) -> str | None:
    if one.damage is not None:
        return f"damaged: {one.damage}"
    return f"{one.owner} (gone)" if one.gone else one.owner


def _if_held(owner: str | None, duration: float, beats: int) -> tuple[str, str]:
    return ("", "") if owner is None else (f"{duration:g} s", str(beats))


@lease.command("break")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def break_(session: Session, name: str, yes: bool) -> None:
    """Take a lease from its holder: what it writes under it is refused from now on.

    Of a holder that is gone, others get the lease by themselves: after its duration, or at once if
    it was a process of the same machine (Linux), which is listed as gone.
    """
    with session.writing() as store:
        if not yes:
            _confirm(name)
        owner = store.break_lease(name)
    if session.json:
        output.document({"broken": name, "owner": owner})
        return
    output.say(output.clean(f"{name}: broken{'' if owner else ', though nobody held it'}"))
    if owner:
        output.note(f"it was held by {owner}")


def _confirm(name: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidInputError(f"the lease {name} would be broken: add --yes if that is meant")
    click.confirm(output.clean(f"Break the lease {name}?"), abort=True, err=True)
