"""`holdfast watch`: entries as they are committed, by any process."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output, plain
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.completion import complete_scope
from holdfast.cli.session import Session
from holdfast.errors import InvalidInputError, KeyMissingError, PrunedError
from holdfast.store.inner import write

if TYPE_CHECKING:
    from holdfast.store.names.items import Entry, Position

_COLOURS = {"delete": "red", "delete scope": "red", "restore": "yellow", "checkpoint": "blue"}


@click.command(cls=Command)
@click.argument("scope", required=False, shell_complete=complete_scope)
@click.option("--prefix", default="", help="Entries that changed keys which begin so.")
@click.option("--pattern", help="Entries that changed keys which fit, as in a shell: 'memory/*'.")
@click.option(
    "--since",
    metavar="POSITION",
    help="`start`, or a position that --json shows; else only what is new.",
)
@click.option(
    "--timeout", type=click.FloatRange(0), metavar="SECONDS", help="End after such a silence."
)
@click.option("--past-pruned", is_flag=True, help="Pass over entries that were pruned.")
@pass_session
def watch(
    session: Session,
    scope: str | None,
    prefix: str,
    pattern: str | None,
    since: str | None,
    timeout: float | None,
    past_pruned: bool,
) -> None:
    """Entries of a scope, or of all, as they are committed; until Ctrl-C.

    With --json a line for each, with the position behind it for --since.
    """
    with session.reading() as store:
        begin = _position(since) if since is not None else None
        options: dict[str, Any] = {
            "prefix": prefix,
            "pattern": pattern,
            "timeout": timeout,
            "past_pruned": past_pruned,
        }
        if "timeline" in session.given:
            if scope is None:
                raise InvalidInputError("--timeline is one of a scope: name the scope, too")
            watch = store.scope(scope).on(session.timeline).watch(since=begin, **options)
        else:
            watch = store.watch(scope, since=begin, **options)
        try:
            for entry in watch:
                _show(entry, as_json=session.json)
        except KeyboardInterrupt:
            return  # this is how it is meant to end
        except (PrunedError, KeyMissingError) as error:
            position = f"--since '{json.dumps(_texts(error.position or {}))}'"
            raise type(error)(str(error).replace("since=error.position", position)) from None


def _position(text: str) -> Position:
    from holdfast.store.inner import check_position
    from holdfast.store.names.items import Position

    if text == "start":
        return Position()
    try:
        found = Position({int(lane): number for lane, number in json.loads(text).items()})
        check_position(found)
    except (ValueError, AttributeError, InvalidInputError, RecursionError):
        raise InvalidInputError(
            "--since takes `start` or a position as `holdfast watch --json` shows it, "
            'for example \'{"3": 17, "32": 91823004713}\''
        ) from None
    return found


def _texts(position: dict[int, int] | None) -> dict[str, int]:
    """A position for JSON, which has texts as keys only."""
    return {str(lane): number for lane, number in (position or {}).items()}


def _show(entry: Entry, *, as_json: bool) -> None:
    if as_json:
        click.echo(write({**plain.entry(entry), "position": _texts(entry.position)}))
    else:
        _line(entry)
    sys.stdout.flush()


def _line(entry: Entry) -> None:
    """The fields of a table's row; on a terminal they are set apart by colours."""
    cells = [
        entry.time,
        entry.scope,
        f"{entry.timeline}@{entry.sequence}",
        entry.kinds,
        entry.keys,
        entry.cause.actor,
        entry.cause.reason,
        entry.cause.correlation,
    ]
    texts = [output.clean(output.cell(one)) for one in cells]
    if not sys.stdout.isatty():
        output.say("\t".join(texts))
        return
    colour = next((_COLOURS[kind] for kind in entry.kinds if kind in _COLOURS), "green")
    texts[0] = click.style(texts[0], dim=True)
    texts[1] = click.style(texts[1], bold=True)
    texts[3] = click.style(texts[3], fg=colour)
    output.say("  ".join(text for text in texts if text))
