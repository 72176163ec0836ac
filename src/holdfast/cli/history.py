"""`holdfast show`, `log`, `diff`, `blame`, `query` and `watch`: a state, how it came about."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import click

from holdfast.cli import output
from holdfast.cli.commands import command
from holdfast.cli.plain import Value, plain
from holdfast.cli.session import Session, bound, is_sensitive, point
from holdfast.errors import (
    InvalidInputError,
    InvalidValueError,
    KeyMissingError,
    PrunedError,
)
from holdfast.store.inner import KINDS, Begins, Range, check_position, dumps, handle_of
from holdfast.store.names.items import MASK, Entry, Position

exit_code_option = click.option(
    "--exit-code", is_flag=True, help="Exit with 1 if there are differences."
)


@command("show SCOPE --at --reveal")
@click.option("--prefix", default="", help="Keys that begin so.")
def show(session: Session, scope: str, at: str | None, prefix: str, reveal: bool) -> None:
    """The whole state of a scope: every key with its value."""
    with session.view(scope, at) as view:
        _, timeline, number = handle_of(view).place()
        found = shown_values(view, view.keys(prefix), reveal)
    place = {"scope": view.scope, "timeline": timeline, "entry": number}
    session.tell({**place, "state": found}, lambda: output.value(plain(found)))


def shown_values(view: Any, keys: list[str], reveal: bool) -> dict[str, Value]:
    """Values by key; those of class sensitive are not even read unless they are revealed."""
    hidden = {name for name in keys if not reveal and is_sensitive(view, name)}
    found = view.get_many([name for name in keys if name not in hidden], plain=True)
    found |= dict.fromkeys(hidden, MASK)
    return {name: Value(found[name]) for name in keys if name in found}


@command("log SCOPE")
@click.option("--key", "name", metavar="KEY", help="Entries that changed this key.")
@click.option("--kind", help="set, append, delete, checkpoint, restore, fork, merge.")
@click.option("--actor", "who", metavar="NAME", help="Entries made by this actor.")
@click.option("--correlation", metavar="TEXT", help="Entries with this correlation.")
@click.option("--since", metavar="WHEN", help="From this entry or time on.")
@click.option("--until", metavar="WHEN", help="Up to this entry or time.")
@click.option("--limit", type=click.IntRange(0), default=50, help="At most so many; 0 for all.")
@click.option("--reverse", is_flag=True, help="Oldest first.")
def log(session: Session, /, scope: str, kind: str | None, **given: Any) -> None:
    """The entries of a scope, newest first. (--key and --actor behind `log` are filters.)"""
    if kind is not None and kind not in KINDS:
        known = ", ".join(KINDS)
        raise InvalidInputError(f"there is no kind of entry {kind!r}; use one of {known}")
    since, until = given["since"], given["until"]
    with session.read(scope) as state:
        found = state.log(
            key=given["name"],
            kind=kind,
            actor=given["who"],
            correlation=given["correlation"],
            since=bound(since) if since is not None else None,
            until=bound(until) if until is not None else None,
            limit=given["limit"] or None,
            newest_first=not given["reverse"],
        )
    columns = "entry=sequence, time, what=kinds, keys, actor=cause.actor, reason=cause.reason"
    session.table("entries", found, f"{columns}, correlation=cause.correlation")


@command("diff SCOPE POINT=since [POINT]=until --reveal")
@exit_code_option
def diff(
    session: Session, scope: str, since: str, until: str | None, exit_code: bool, reveal: bool
) -> int:
    """What changed from one point to another, or to the newest state."""
    with session.read(scope) as state:
        end = point(until) if until is not None else None
        found = state.diff(point(since), end, reveal=reveal)
    session.tell({"scope": state.scope, **plain(found)}, lambda: output.changes(found))
    return 1 if exit_code and found else 0


@command("blame SCOPE KEY=name --reveal --limit=1000")
def blame(session: Session, scope: str, name: str, limit: int, reveal: bool) -> None:
    """Who wrote each part of a value, in the newest --limit versions.

    An entry that begins with ≤ is not newer than that.
    """
    with session.read(scope) as state:
        found = state.blame(name, limit=limit, reveal=reveal)
    session.table(
        "parts",
        found,
        "entry, time, actor=cause.actor, correlation=cause.correlation, part=path, value",
        entry=lambda one: f"{'' if one.exact else '≤ '}{one.entry}",
        value=lambda one: _short(dumps(one.value)),
    )


def _short(text: str, width: int = 80) -> str:
    return text if len(text) <= width or not sys.stdout.isatty() else text[: width - 1] + "…"


# ---- query: keys by what their values hold -----------------------------------------------------

_CONDITION = re.compile(r"(?P<term>[^=<>^]+)(?P<sign>\^=|<=|>=|=|<|>)(?P<value>.*)", re.DOTALL)
_SIDES = {">": "gt", ">=": "ge", "<": "lt", "<=": "le"}


@command("query SCOPE LOOKUP [CONDITION]...=conditions --at --limit=100 --reveal")
@click.option("--order", metavar="TERM", help="Sort by a term; -TERM for the other direction.")
@click.option("--after", metavar="CURSOR", help="Go on behind the page before.")
def query(
    session: Session,
    scope: str,
    lookup: str,
    conditions: tuple[str, ...],
    at: str | None,
    reveal: bool,
    **given: Any,
) -> None:
    """Keys and values that a lookup leads to; those that are sensitive only with --reveal.

    CONDITION is TERM=VALUE, TERM>VALUE (also >=, <, <=) or TERM^=BEGINNING; all must hold. VALUE
    is JSON (`1`, `true`, `"1"`, `{"$time": …}`), or plain text where it is none.
    """
    where = _where(conditions)
    with session.view(scope, at) as view:
        page = view.find(lookup, where, **given)
        values = shown_values(view, page.items, reveal)
    found = [{"key": key, "value": value} for key, value in values.items()]
    about = {"scope": view.scope, "after": page.after}
    session.table(
        "found", found, "key, value", about=about, value=lambda one: dumps(one["value"].content)
    )
    if page.after is not None:
        session.note(f"there are more: --after {page.after}")


def _where(conditions: tuple[str, ...]) -> dict[str, Any]:
    """What is asked of each term; two sides of a range come together."""
    exact: dict[str, Any] = {}
    sides: dict[str, dict[str, Any]] = {}
    for text in conditions:
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise InvalidInputError(f"{text[:80]!r} is no condition; write status=open or due<10")
        term, sign, value = found["term"].strip(), found["sign"], found["value"]
        side = _SIDES.get(sign)
        if term in exact or (term in sides and (side is None or side in sides[term])):
            raise InvalidInputError(f"two conditions on {term!r} say the same thing: give one")
        if side is not None:
            sides.setdefault(term, {})[side] = _value(value)
        else:
            exact[term] = Begins(value) if sign == "^=" else _value(value)
    return exact | {term: Range(**given) for term, given in sides.items()}


def _value(text: str) -> Any:
    """JSON, or the text itself where it is none."""
    from holdfast.store.inner import json

    try:
        return json.loads(text)
    except InvalidValueError:
        return text


# ---- watch: entries as they are committed, by any process --------------------------------------


@command("watch [SCOPE]")
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
def watch(session: Session, /, scope: str | None, since: str | None, **options: Any) -> None:
    """Entries of a scope, or of all, as they are committed; until Ctrl-C.

    With --json a line for each, with the position behind it for --since.
    """
    with session.reading() as store:
        begin = _position(since) if since is not None else None
        if "timeline" not in session.given:
            watch = store.watch(scope, since=begin, **options)
        elif scope is None:
            raise InvalidInputError("--timeline is one of a scope: name the scope, too")
        else:
            watch = store.scope(scope).on(session.timeline).watch(since=begin, **options)
        try:
            for entry in watch:
                _show(session, entry)
        except KeyboardInterrupt:
            return  # this is how it is meant to end
        except (PrunedError, KeyMissingError) as error:
            position = f"--since '{json.dumps(plain(error.position or {}))}'"
            raise type(error)(str(error).replace("since=error.position", position)) from None


def _position(text: str) -> Position:
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


def _show(session: Session, entry: Entry) -> None:
    cause, place = entry.cause, f"{entry.timeline}@{entry.sequence}"
    row = [entry.time, entry.scope, place, entry.kinds, entry.keys]
    row += [cause.actor, cause.reason, cause.correlation]
    session.each({**plain(entry), "position": entry.position or {}}, row)
    sys.stdout.flush()
