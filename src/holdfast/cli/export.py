"""`holdfast checkpoint export`, `import` and `inspect`: checkpoints as files."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli import output
from holdfast.cli import plain as plain_results
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.key import scope_argument
from holdfast.cli.points import point
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError
from holdfast.store.inner import tagged

if TYPE_CHECKING:
    from holdfast.checkpoints.export_file import Export

_F = TypeVar("_F", bound=Callable[..., Any])


def _file_key(function: _F) -> _F:
    """The options that give the key of a file, which is not the store's."""
    source = click.option(
        "--file-key", metavar="SOURCE", help="The file's own key: file:PATH, env:NAME, passphrase:."
    )
    passphrase = click.option(
        "--file-passphrase-file", metavar="PATH", help="The same, with the first line of a file."
    )
    return source(passphrase(function))


@click.command(cls=Command)
@scope_argument
@click.argument("which", metavar="[CHECKPOINT]", required=False)
@click.option(
    "--out", "-o", metavar="FILE", required=True, help="Written whole or not at all; -: stdout."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["holdfast", "json", "protobuf"]),
    default="holdfast",
    help="To be imported (default), for people, or for other programs.",
)
@_file_key
@click.option("--plain", is_flag=True, help="Of an encrypted store: a file that is not.")
@click.option("--unsigned", is_flag=True, help="Without a signature.")
@click.option("--reveal", is_flag=True, help="json, protobuf: also what is sensitive.")
@pass_session
def export(
    session: Session,
    scope: str,
    which: str | None,
    out: str,
    format_: str,
    file_key: str | None,
    file_passphrase_file: str | None,
    plain: bool,
    unsigned: bool,
    reveal: bool,
) -> None:
    """Write a checkpoint (default the newest) with all of its state to one file."""
    from holdfast.checkpoints.export import export_checkpoint

    if out == "-" and session.json:
        raise InvalidInputError("-o - writes the export to stdout, where --json would write, too")
    with session.reading() as store, _place(out) as file:
        state = session.state(store, scope)
        done = export_checkpoint(
            state,
            file,
            at=point(which) if which is not None else None,
            format=format_,
            key=session.other_key("file", file_key, file_passphrase_file, new=True),
            plain=plain,
            unsigned=unsigned,
            reveal=reveal,
        )
    if session.json:
        output.document(_shape(done))
        return
    how = "encrypted" if done.encrypted else "not encrypted"
    how += ", signed" if done.signer else ", not signed"
    name = f"checkpoint {done.name!r}, {done.checkpoint}"
    if out == "-":
        output.note(f"{scope}: {name}, {done.keys} keys ({how})")
    else:
        output.say(output.clean(f"{scope}: {name}, {done.keys} keys, is in {out} ({how})"))


@contextmanager
def _place(out: str) -> Iterator[str]:
    """The file to write; what is for stdout goes there when it is whole."""
    if out != "-":
        yield out
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "export")
        yield path
        with open(path, "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


@click.command("import", cls=Command)
@scope_argument
@click.argument("file", metavar="FILE")
@_file_key
@click.option("--trust", metavar="KEY", multiple=True, help="A public key that you believe.")
@click.option("--untrusted", is_flag=True, help="Take it whoever signed it, if anybody did.")
@click.option("--limit", type=click.IntRange(0), metavar="BYTES", help="[default 1 GiB]")
@click.option("--reason", help="Why; it is kept with the entry.")
@pass_session
def import_(
    session: Session,
    scope: str,
    file: str,
    file_key: str | None,
    file_passphrase_file: str | None,
    trust: tuple[str, ...],
    untrusted: bool,
    limit: int | None,
    reason: str | None,
) -> None:
    """Let the state of SCOPE, which may be new, be what is in an exported FILE.

    FILE must be signed by this store's signer, or by a key given with --trust. What was before is
    kept, so this can be undone.
    """
    from holdfast.checkpoints.export_import import import_checkpoint

    with session.writing() as store:
        done = import_checkpoint(
            session.state(store, scope, new=True),
            file,
            key=session.other_key("file", file_key, file_passphrase_file, new=False),
            trust=trust or None,
            untrusted=untrusted,
            reason=reason,
            **({} if limit is None else {"limit": limit}),
        )
    backup = done.backup.id if done.backup is not None else None
    if session.json:
        output.document(
            {
                "scope": str(done.scope),
                "timeline": done.timeline,
                "entry": done.sequence,
                "staged": done.staged,
                "root": done.root,
                "backup": backup,
                "left": list(done.left),
                "declarations": done.declarations,
                "export": _shape(done.export),
            }
        )
        return
    export = done.export
    told = f"{scope}: now as {export.scope} was at {export.name!r}, {export.checkpoint}"
    output.say(output.clean(f"{told}; {export.keys} keys"))
    if backup is not None:
        output.say(output.clean(f"to undo it: holdfast restore {scope} {backup}"))
    output.left_alone(done.left)


@click.command(cls=Command)
@click.argument("file", metavar="FILE")
@_file_key
@click.option("--trust", metavar="KEY", multiple=True, help="A public key that must have signed.")
@pass_session
def inspect(
    session: Session,
    file: str,
    file_key: str | None,
    file_passphrase_file: str | None,
    trust: tuple[str, ...],
) -> None:
    """What is in an exported FILE. All of it is checked, and no store is needed."""
    from holdfast.checkpoints.export_import import inspect_export

    key = session.other_key("file", file_key, file_passphrase_file, new=False)
    found = inspect_export(file, key=key, trust=trust or None)
    if session.json:
        output.document(_shape(found))
        return
    shown = _shape(found)
    about = shown.pop("cause")
    output.fields([(name, text) for name, text in shown.items() if text not in ("", [], {})])
    output.fields([(name, text) for name, text in about.items()])
    if not trust:
        output.note(
            "who signed it is taken on trust from the file: give --trust KEY"
            if found.signer
            else "nobody signed it"
        )


def _shape(found: Export) -> dict[str, Any]:
    return {
        "scope": str(found.scope),
        "checkpoint": found.checkpoint,
        "name": found.name,
        "type": found.type,
        "time": plain_results.time_text(found.time),
        "tags": list(found.tags),
        "description": found.description,
        "metadata": tagged(found.metadata),
        "keys": found.keys,
        "bytes": found.bytes,
        "digest": found.digest,
        "root": found.root,
        "hash": found.hash,
        "store": found.store,
        "exported": plain_results.time_text(found.exported),
        "signer": found.signer,
        "encrypted": found.encrypted,
        "cause": plain_results.cause(found.cause),
    }
