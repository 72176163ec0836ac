"""`holdfast recover` and `recovery`: bringing an agent back to work, and what became of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from holdfast.checkpoints.checkpoints import Checkpoints
from holdfast.cli import output
from holdfast.cli.command import Group, command, flag, machines_named, option
from holdfast.cli.commands.timeline import located
from holdfast.cli.failures import UNRECOVERED
from holdfast.cli.plain import fields_of, plain
from holdfast.cli.session import Session, point
from holdfast.errors import InvalidInputError, MissingError, RecoveryFailedError
from holdfast.recovery.boot_recovery import boot as settle
from holdfast.recovery.failure_kinds import AgentFailure
from holdfast.recovery.procedure import BUILT_IN, Procedure
from holdfast.recovery.records import recovered_agents
from holdfast.recovery.recovery import Recovery
from holdfast.recovery.report import RecoveryReport
from holdfast.recovery.scrub import Scrubber
from holdfast.store.inner import handle_of, write
from holdfast.store.names.whole_files import write_whole

_LOCATING = ("name", "type", "tag", "trigger", "before")


@command("recover SCOPE --copy --machine")
@click.option("--failure", metavar="KIND", default="unknown", help="What went wrong. [unknown]")
@click.option("--message", default="", help="What else is known of it; kept with the report.")
@option("--procedure", "ID", "This procedure. [the one that answers KIND]")
@click.option(
    "--procedures",
    "file",
    type=click.Path(exists=True, dir_okay=False),
    help="A YAML file with procedures, over the built-in ones.",
)
@option("--point=to", "POINT", "Return to this point.")
@option("--at", "POINT", "The same: a time, a checkpoint's name or id, …")
@click.option("--name", help="Return to the newest whole checkpoint of this name.")
@click.option("--type", help="… of this type: manual, routine, …")
@click.option("--tag", help="… with this tag.")
@click.option("--trigger", help="… made for this event.")
@option("--before", "POINT", "… before this point.")
@click.option("--strategy", "order", multiple=True, help="Try these, in this order.")
@flag("--dry-run", "Say what would be done, and do nothing.")
@click.option("--wait", type=click.FloatRange(0), default=0, help="Seconds, if another is at it.")
@option("--report=page", "FILE", "Write the report: .txt or .json.")
def recover(session: Session, /, scope: str, **given: Any) -> int:
    """Bring an agent back to a good state, by a procedure, with a report.

    Without anything else the state is left as it is if all of it can be read; if not, whatever
    loses least is returned to. What does not succeed is undone (exit code 9, with --dry-run, too,
    if no state would serve).
    """
    check_page(given["page"])
    machines = machines_named(given["machines"])
    dry_run = given["dry_run"]
    with (
        session.reading() if dry_run else session.writing() as store,
        session.copies(given["copies"]) as copies,
    ):
        recovery = Recovery(
            store,
            copies=copies,
            procedures=_procedures(given["file"]),
            order=given["order"] or None,
            machines=machines,
        )
        state = session.state(store, scope, new=True)  # all of its entries may be lost
        handle_of(state).place()  # refused here if there is no such timeline
        asked = _asked(session, state, given)
        if dry_run:
            plan = recovery.plan(state, **asked)
            session.tell(plan, plan)
            return 0 if plan.serves else UNRECOVERED
        try:
            done = recovery.recover(state, wait=given["wait"], progress=_progress(session), **asked)
        except RecoveryFailedError as error:
            # The page is wanted most of all if it failed.
            report = recovery._named_by(state, error)
            if report is not None:
                write_page(report, given["page"])
            raise
        write_page(done, given["page"])
    session.tell(done, done)
    return 0


def _asked(session: Session, state: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What `recover` and `plan` take."""
    if session.timeline != "main":
        raise InvalidInputError("a recovery is one of the timeline main: leave --timeline out")
    where = located({name: given[name] for name in _LOCATING})
    if sum((bool(where), given["to"] is not None, given["at"] is not None)) > 1:
        raise InvalidInputError("give --point, --at, or what is known of a checkpoint: one of them")
    wanted = given["to"] if given["to"] is not None else given["at"]
    target: Any = point(wanted) if wanted is not None else None
    if where:
        target = Checkpoints(state).locate(valid=True, **where)
    asked = {"at" if isinstance(target, datetime) else "point": target}
    failure = AgentFailure(given["failure"], given["message"], **asked)
    return {"failure": failure, "procedure": given["procedure"]}


def _procedures(file: str | None) -> list[Any]:
    if file is None:
        return []
    try:
        return list(Procedure.from_yaml(Path(file).read_text(encoding="utf-8")))
    except UnicodeDecodeError:
        raise InvalidInputError("the file with procedures is not text in UTF-8") from None


def _progress(session: Session) -> Callable[[str, str], None] | None:
    """Each step as it ends, for whoever sits at a terminal; the report has them all."""
    if session.json or not sys.stderr.isatty():
        return None
    return lambda title, said: output.note(f"{title}: {said}")


# reports as pages


def check_page(path: str | None) -> None:
    """Refuse a file that no report can be written to, before anything is done."""
    if path is None:
        return
    if Path(path).suffix.lower() not in (".txt", ".json"):
        raise InvalidInputError("a report is written as .txt or .json: name the file so")
    if Path(path).is_dir():
        raise InvalidInputError("the report cannot be written over a folder: name a file")
    if not Path(path).parent.is_dir():
        raise InvalidInputError("there is no such folder to write the report to: make it first")


def write_page(report: RecoveryReport, path: str | None) -> None:
    """Write a report to a file, in the form that its name says."""
    if path is not None:
        text = str(report) if path.lower().endswith(".txt") else write(plain(report), indent=2)
        write_whole(path, [f"{text}\n".encode("utf-8", "backslashreplace")])


# ---- what became of recoveries -----------------------------------------------------------------


recovery = Group("recovery", help="What became of recoveries, and going on with what never ended.")


@recovery.verb("boot [SCOPE]...=scopes --machine --yes")
@click.option(
    "--wait", type=click.FloatRange(0), default=0, help="Seconds, for leases of the dead."
)
@flag("--no-check", "Read no states, only what is unfinished.")
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
    if not yes:
        refusal = "make sure that no agent works without a lease, then add --yes"
        session.confirm("Does no agent work without a lease just now?", refusal)
    known = machines_named(machines)
    with session.writing() as store:
        for scope in scopes:
            session.state(store, scope)
        chosen = list(scopes) or None
        done = settle(store, scopes=chosen, machines=known, check=not no_check, wait=wait)
    session.tell(done, done)
    return 1 if done.left else 0


@recovery.verb("scrub --copy")
@click.option("--budget", type=click.FloatRange(0.1), default=10, help="Seconds. [10]")
def scrub(session: Session, copies: tuple[str, ...], budget: float) -> int:
    """Verify the next part of the store, and heal what a copy still has.

    Each call goes on where the last one ended, and begins again when all is looked at: for a timer.
    Exits with 1 if something new was found that no copy has.
    """
    with session.writing() as store, session.copies(copies) as found:
        scrubber = Scrubber(store, copies=found, budget=budget)
        done = scrubber.slice()
        status = scrubber.status()
    if done is None:
        output.note("another process is scrubbing just now")
        return 0
    whole = f"; all of the store, {status.passes} times so far" if done.finished else ""
    session.tell(
        {**plain(done), "passes": status.passes},
        f"{done.entries} entries in {done.seconds:.2f} s{whole}",
        *(f"healed: {one.scope or 'store'}: {one.place}" for one in done.healed),
        *(f"damaged: {one.scope}: {one.place}: {one.message}" for one in done.findings),
    )
    return 1 if done.findings else 0


@recovery.verb("list [SCOPE] --limit=50")
def list_(session: Session, scope: str | None, limit: int) -> None:
    """The recoveries of an agent, or of all, the newest first."""
    with session.reading() as store:
        made = Recovery(store)
        agents = [scope] if scope is not None else recovered_agents(handle_of(store))
        found = [one for agent in agents for one in made.reports(agent, limit)]
    found.sort(key=lambda one: one.id, reverse=True)  # which clocks do not put in disorder
    session.table(
        "recoveries",
        found,
        "recovery=id, agent, status, failure=failure.kind, strategy, lost, seconds",
        seconds=lambda one: f"{one.seconds:.3f}",
    )


@recovery.verb("show SCOPE [ID]")
@click.option("-o", "--output", "page", metavar="FILE", help="Write it: .txt or .json.")
def show(session: Session, scope: str, id: str | None, page: str | None) -> None:
    """The report of a recovery of an agent; by default of the newest."""
    check_page(page)
    with session.reading() as store:
        made = Recovery(store)
        state = session.state(store, scope, new=True)  # its recoveries are there without it
        found = made.reports(state, 1) if id is None else [made.report(state, id)]
    if not found:
        raise MissingError(f"{scope} has had no recovery; `holdfast recovery list` shows them")
    write_page(found[0], page)
    if page is None:
        session.tell(found[0], found[0])


@recovery.verb("resume SCOPE --machine")
@click.option("--wait", type=click.FloatRange(0), default=35, help="Seconds, if another is at it.")
def resume(session: Session, scope: str, wait: float, machines: tuple[str, ...]) -> int:
    """Go on with recoveries of an agent whose process ended in the middle.

    The lease of a process that died runs out half a minute after its end. One with steps of a type
    of somebody's own cannot go on here: it is undone, which ends it. Exits with 9 if one did not
    succeed.
    """
    known = machines_named(machines)
    with session.writing() as store:
        state = session.state(store, scope)
        recovery = Recovery(store, machines=known)
        done = recovery.resume(state, wait=wait, progress=_progress(session))
    nothing = f"{scope}: no recovery was left unfinished, or somebody is at it"
    session.tell({"recoveries": done}, *done, None if done else nothing)
    return 0 if all(one.success for one in done) else UNRECOVERED


@recovery.verb("stats [SCOPE]")
@click.option("--slow", type=click.FloatRange(0), default=300, help="Seconds one may take. [300]")
def stats(session: Session, scope: str | None, slow: float) -> None:
    """How recoveries went, of one agent or of all.

    Alarms are those that failed, were slow, or have not ended after that time.
    """
    with session.reading() as store:
        found = Recovery(store).statistics(scope, slow=slow)
    told = {**fields_of(found), "success_rate": found.success_rate}
    session.fields(told, [pair for pair in told.items() if pair[0] != "alarms"])
    for alarm in found.alarms if not session.json else ():
        output.say(f"alarm: {alarm}", fg="red")


# ---- procedures that are kept ------------------------------------------------------------------


procedure = Group(
    "procedure",
    help="Procedures of recoveries, kept in the store: for an agent, or without SCOPE for all.",
)


@procedure.verb("list [SCOPE]")
def list_procedures(session: Session, scope: str | None) -> None:
    """All that are kept, or those for an agent; and the built-in ones."""
    with session.reading() as store:
        kept = Recovery(store).kept(scope)
    found = [{"for": one.agent or "all", **one.procedure} for one in kept]
    found += [{"for": "built-in", **one.data()} for one in BUILT_IN]
    session.table(
        "procedures",
        found,
        "procedure, for, answers, steps",
        procedure=lambda one: one["id"],
        answers=lambda one: ", ".join(one["triggers"]),
        steps=lambda one: len(one["steps"]),
        **{"for": lambda one: one["for"]},
    )


@procedure.verb("show ID [SCOPE]")
def show_procedure(session: Session, id: str, scope: str | None) -> None:
    """A procedure as it is in force for an agent, or for all: data that `set` takes."""
    with session.reading() as store:
        found = Recovery(store).select(AgentFailure(), id, scope).data()
    session.tell(found, lambda: output.document(found))


@procedure.verb("set FILE [SCOPE]")
def set_procedures(session: Session, file: str, scope: str | None) -> None:
    """Keep the procedures of a YAML file, each in place of the one of its id.

    They are in force at once, in every process, before the built-in ones. Those with steps of a
    type of your own are kept by the program that has it: `Recovery(store, steps=…).keep(…)`.
    """
    with session.writing() as store:
        made = Recovery(store)
        found = [made.set(one) for one in _procedures(file)]  # all are checked before any is kept
        for one in found:
            made.keep(one, scope)
    ids = [one.id for one in found]
    session.tell(
        {"for": scope or "all", "procedures": ids}, f"kept for {scope or 'all'}: {', '.join(ids)}"
    )


@procedure.verb("remove ID [SCOPE]")
def remove(session: Session, id: str, scope: str | None) -> None:
    """Keep a procedure no longer."""
    with session.writing() as store:
        Recovery(store).drop(id, scope)
    session.tell({"removed": id}, f"{id}: kept for {scope or 'all'} no longer")
