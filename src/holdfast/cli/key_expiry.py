"""How long keys last: `--ttl`, `holdfast key expire`, `holdfast key persist`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click

from holdfast.cli import output
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.completion import complete_key, complete_scope
from holdfast.cli.session import Session

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _duration(
    context: click.Context, option: click.Parameter, text: str | None
) -> timedelta | None:
    """The time that a text means."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text)
    try:
        return timedelta(**{_UNITS[found[2] or "s"]: float(found[1])})  # type: ignore[index]
    except (TypeError, OverflowError):
        hint = f"{text!r} is no time; give seconds, or 15m, 2h, 7d"
        raise click.BadParameter(hint, context, option) from None


ttl_option = click.option(
    "--ttl", metavar="TIME", callback=_duration, help="It expires after so long: 90, 15m, 2h, 7d."
)
sliding_option = click.option("--sliding", is_flag=True, help="Each read begins the term anew.")


@click.command(cls=Command)
@click.argument("scope", shell_complete=complete_scope)
@click.argument("name", metavar="KEY", shell_complete=complete_key)
@click.argument("ttl", metavar="TIME", callback=_duration)
@sliding_option
@pass_session
def expire(session: Session, scope: str, name: str, ttl: timedelta, sliding: bool) -> None:
    """Let a key expire after TIME (90, 15m, 2h, 7d); its value stays as it is."""
    with session.writing() as store:
        state = session.state(store, scope)
        entry = state.expire(name, ttl, sliding=sliding)
    _told(session, state, name, entry, f"expires in {ttl}")


@click.command(cls=Command)
@click.argument("scope", shell_complete=complete_scope)
@click.argument("name", metavar="KEY", shell_complete=complete_key)
@pass_session
def persist(session: Session, scope: str, name: str) -> None:
    """Let a key never expire."""
    with session.writing() as store:
        state = session.state(store, scope)
        entry = state.persist(name)
    _told(session, state, name, entry, "never expires")


def _told(session: Session, state: Any, name: str, entry: int, what: str) -> None:
    if session.json:
        place = {"scope": str(state.scope), "timeline": state.timeline, "key": name}
        output.document({**place, "entry": entry})
    else:
        output.say(output.clean(f"{state.scope} {name}: {what}"))
