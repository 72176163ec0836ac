"""`holdfast verify`, `witness`, `prove` and `export-chain`: showing that nobody touched a store."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import output
from holdfast.cli.command import Decorator, command, flag, option, several
from holdfast.cli.failures import in_options
from holdfast.cli.session import Session, point
from holdfast.errors import InvalidInputError
from holdfast.store.names.whole_files import write_whole


@command("verify [SCOPE]")
@option("--expect", "FILE|TEXT", "A witness that was kept elsewhere.")
@option("--identity", "FILE|TEXT", "The identity that `init` printed.")
@several("--trust", "KEY", "A public key that must have signed.")
@click.option("--require", type=click.IntRange(1), help="How many of those; with --trust. [1]")
@click.option("--budget", type=click.FloatRange(0), metavar="SECONDS", help="Stop after so long.")
@option("--resume", "TEXT", "Go on where a budget stopped it.")
def verify(
    session: Session, /, scope: str | None, expect: str | None, identity: str | None, **given: Any
) -> int:
    """Check all that is stored, of one scope or of the whole store.

    Exits with 0 if all is well, 1 if something was found, 3 if the budget stopped it before.
    """
    given |= {"expect": _text(expect, "holdfast-witness1:")}
    given |= {"identity": _text(identity, "holdfast1:")}
    with session.reading() as store, output.progress(not session.json, "verifying") as show:
        if show is not None:
            given["progress"] = lambda now, entries: show(f"{entries:,} entries, now {now}")
        report = store.verify(scope, **given)
    session.tell(report, *in_options(str(report)).splitlines())
    return report.exit_code


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


@command("witness")
@click.option("--out", "-o", metavar="FILE", help="Write it to a file, whole or not at all.")
def witness(session: Session, out: str | None) -> None:
    """A small signed token over all that is in the store now. Keep it elsewhere."""
    with session.reading() as store:
        token = store.witness()
    if out is not None:
        write_whole(out, [f"{token}\n".encode()])
    session.tell({"witness": token, "file": out}, token if out is None else None)


def _named(_: click.Context, __: click.Parameter, name: str) -> str:
    """A file is written whole or not at all, which stdout cannot promise."""
    if name == "-":
        raise InvalidInputError("--out takes a file, not stdout; one of this name is ./-")
    return name


def _out_option(what: str) -> Decorator:
    return click.option(
        "--out",
        "-o",
        metavar="FILE",
        required=True,
        callback=_named,
        help=f"Where to write the {what}.",
    )


@command("prove SCOPE KEY=name")
@option("--at", "CHECKPOINT", "What it was there. [default the newest in the present state's past]")
@_out_option("proof")
def prove(session: Session, scope: str, name: str, at: str | None, out: str) -> None:
    """A small proof of what a key was at a checkpoint, for somebody without the store.

    `holdfast-verify FILE` checks it. It shows the value, and the names and short values of some
    keys that lie near.
    """
    with session.read(scope) as state:
        proof = state.prove(name, at=point(at) if at is not None else None)
    proof.save(out)
    size = len(proof.to_bytes())
    found = {"file": out, "bytes": size, "entry": proof.sequence, "absent": proof.absent}
    what = "is absent" if proof.absent else "has its value"
    told = f"{scope}: {name} {what} at entry {proof.sequence}: {out}, {size} bytes"
    session.tell({**found, "reveals": proof.reveals}, told)
    if proof.reveals:
        session.note(
            f"whoever has it can also read {len(proof.reveals)} other names of keys, and short "
            "values beside them; --json lists them"
        )


@command("export-chain SCOPE")
@flag("--feed", "With the store's feed, to compare witnesses with.")
@_out_option("chain")
def export_chain(session: Session, scope: str, feed: bool, out: str) -> None:
    """The chain of a scope's entries, without any content; `holdfast-verify FILE` checks it."""
    with session.read(scope) as state:
        entries = state.export_chain(out, feed=feed)
    session.tell({"file": out, "entries": entries}, f"{scope}: {entries} entries: {out}")
