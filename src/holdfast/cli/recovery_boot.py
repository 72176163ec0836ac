"""`holdfast recovery boot` and `scrub`: what was unfinished, and what nobody has read for long."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.copies import copy_option, opened
from holdfast.cli.programs import machine_option, machines_named
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError

if TYPE_CHECKING:
    from holdfast.recovery.scrub import Scrubbed


@click.command(cls=Command)
@click.argument("scopes", nargs=-1, metavar="[SCOPE]...", shell_complete=complete_scope)
@click.option(
    "--wait", type=click.FloatRange(0), default=0, help="Seconds, for leases of the dead."
)
@machine_option
@click.option("--no-check", is_flag=True, help="Read no states, only what is unfinished.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def boot(
    session: Session,
    scopes: tuple[str, ...],
    wait: float,
    machines: tuple[str, ...],
    no_check: bool,
    yes: bool,
) -> int:
    """Bring to an end what was unfinished when processes ended, of some scopes or of all.

    Recoveries go on, damaged states are recovered, operations are undone, effects with a key are
    to be done again, handovers are reconciled; transitions are settled as each --machine declares.
    What a program has to say (other transitions, effects without a key) is left, and named; then
    it exits with 1. An agent that works without a lease cannot be told from one that was
    interrupted: run this while none works.
    """
    from holdfast.sync import boot as settle

    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInputError("make sure that no agent works without a lease, then add --yes")
        click.confirm("Does no agent work without a lease just now?", abort=True, err=True)
    known = machines_named(machines)
    with session.writing() as store:
        for scope in scopes:
            session.state(store, scope)
        chosen = list(scopes) or None
        done = settle(store, scopes=chosen, machines=known, check=not no_check, wait=wait)
    if session.json:
        output.document(
            {
                "methods": done.methods,
                "items": [
                    {
                        "scope": str(one.scope),
                        "kind": one.kind,
                        "what": one.what,
                        "outcome": one.outcome,
                        "why": one.why,
                    }
                    for one in done.items
                ],
                "seconds": round(done.seconds, 3),
            }
        )
    else:
        for line in str(done).splitlines():
            output.say(output.clean(line))
    return 1 if done.left else 0


@click.command(cls=Command)
@copy_option
@click.option("--budget", type=click.FloatRange(0.1), default=10, help="Seconds. [10]")
@pass_session
def scrub(session: Session, copies: tuple[str, ...], budget: float) -> int:
    """Verify the next part of the store, and heal what a copy still has.

    Each call goes on where the last one ended, and begins again when all is looked at: for a timer.
    Exits with 1 if something new was found that no copy has.
    """
    from holdfast.sync import Scrubber

    with session.writing() as store, opened(session, copies) as found:
        scrubber = Scrubber(store, copies=found, budget=budget)
        done = scrubber.slice()
        status = scrubber.status()
    if done is None:
        output.note("another process is scrubbing just now")
        return 0
    if session.json:
        output.document(_scrubbed(done) | {"passes": status.passes})
        return 1 if done.findings else 0
    whole = f"; all of the store, {status.passes} times so far" if done.finished else ""
    output.say(f"{done.entries} entries in {done.seconds:.2f} s{whole}")
    for one in done.healed:
        output.say(output.clean(f"healed: {one.scope or 'store'}: {one.place}"))
    for damage in done.findings:
        output.say(output.clean(f"damaged: {damage.scope}: {damage.place}: {damage.message}"))
    return 1 if done.findings else 0


def _scrubbed(done: Scrubbed) -> dict[str, Any]:
    return {
        "entries": done.entries,
        "finished": done.finished,
        "healed": [{"scope": str(one.scope or ""), "place": one.place} for one in done.healed],
        "findings": [
            {"scope": one.scope, "place": one.place, "message": one.message}
            for one in done.findings
        ],
        "seconds": round(done.seconds, 3),
    }
