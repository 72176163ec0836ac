"""`holdfast verify` and `witness`: proving that nobody touched a store."""

from __future__ import annotations

import os

import click

from holdfast.cli import output, shapes
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.failures import in_options
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError


@click.command(cls=Command)
@click.argument("scope", required=False, shell_complete=complete_scope)
@click.option("--expect", metavar="FILE|TEXT", help="A witness that was kept elsewhere.")
@click.option("--identity", metavar="FILE|TEXT", help="The identity that `init` printed.")
@click.option("--budget", type=click.FloatRange(0), metavar="SECONDS", help="Stop after so long.")
@click.option("--resume", metavar="TEXT", help="Go on where a budget stopped it.")
@pass_session
def verify(
    session: Session,
    scope: str | None,
    expect: str | None,
    identity: str | None,
    budget: float | None,
    resume: str | None,
) -> int:
    """Check all that is stored, of one scope or of the whole store.

    Exits with 0 if all is well, 1 if something was found, 3 if the budget stopped it before.
    """
    with session.reading() as store, output.progress(not session.json) as progress:
        report = store.verify(
            scope,
            expect=_text(expect, "holdfast-witness1:"),
            identity=_text(identity, "holdfast1:"),
            budget=budget,
            resume=resume,
            progress=progress,
        )
    if session.json:
        output.document(shapes.report(report))
        return report.exit_code
    found = shapes.report(report)
    output.say(
        f"{report.entries} entries of {report.scopes} scopes, {report.values} values, "
        f"{report.checkpoints} checkpoints ({report.signed} signed) in {found['seconds']} s"
    )
    if report.unfinished:
        output.say(
            f"{report.unfinished} long values are not finished, which is no damage; "
            "`holdfast sweep` clears away those that were given up"
        )
    output.say(output.clean(in_options(report.trust)))
    for one in report.findings:
        where = f"{one.scope}: {one.place}" if one.scope else one.place
        keys = f" (keys: {', '.join(one.keys)})" if one.keys else ""
        line = output.clean(f"{one.kind}: {where}: {one.message}{keys}")
        output.say(click.style(line, fg="red"))
    output.say(_verdict(report.ok, len(report.findings), report.resume))
    return report.exit_code


def _verdict(ok: bool, count: int, resume: str | None) -> str:
    if not ok:
        return click.style(f"{count} findings", fg="red", bold=True)
    if resume is not None:
        return output.clean(
            f"stopped by the budget, nothing found so far; go on with --resume {resume}"
        )
    return click.style("nothing was found", fg="green", bold=True)


def _text(given: str | None, start: str) -> str | None:
    """What was given, or what is in the file of that name."""
    if given is None or given.startswith(start):
        return given
    try:
        with open(given, encoding="utf-8") as file:
            return file.read(1 << 20).strip()
    except (OSError, UnicodeDecodeError):
        raise InvalidInputError(
            f"{given[:80]!r} is no file that can be read, and no text that begins with {start}"
        ) from None


@click.command(cls=Command)
@click.option("--out", metavar="FILE", help="Write it to a file, whole or not at all.")
@pass_session
def witness(session: Session, out: str | None) -> None:
    """A small signed token over all that is in the store now. Keep it elsewhere."""
    with session.reading() as store:
        token = store.witness()
    if out is not None:
        _write(out, token + "\n")
    if session.json:
        output.document({"witness": token, "file": out})
    elif out is None:
        output.say(token)


def _write(path: str, text: str) -> None:
    passing = f"{path}.{os.getpid()}"
    try:
        with open(passing, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(passing, path)
    except OSError as error:
        if os.path.exists(passing):
            os.unlink(passing)
        raise InvalidInputError(f"cannot write {path!r}: {error.strerror}") from None
