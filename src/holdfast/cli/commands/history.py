"""`holdfast show`, `log`, `diff`, `blame`, `query`, `watch`, `debug`: how a state came about."""

from __future__ import annotations

import cmd
import inspect
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from holdfast.cli import failures, output
from holdfast.cli.command import command, flag, option
from holdfast.cli.plain import Value, plain
from holdfast.cli.session import Session, bound, is_sensitive, point
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    InvalidValueError,
    KeyMissingError,
    MissingError,
    PointNotFoundError,
    PrunedError,
    StateIntegrityError,
)
from holdfast.store.inner import KINDS, Begins, Range, check_position, dumps, handle_of, json_values
from holdfast.store.names.items import MASK, Entry, Position
from holdfast.sync import State

exit_code_option = flag("--exit-code", "Exit with 1 if there are differences.")


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
@option("--key=name", "KEY", "Entries that changed this key.")
@click.option("--kind", help="set, append, delete, checkpoint, restore, fork, merge.")
@option("--actor=who", "NAME", "Entries made by this actor.")
@option("--correlation", "TEXT", "Entries with this correlation.")
@option("--since", "WHEN", "From this entry or time on.")
@option("--until", "WHEN", "Up to this entry or time.")
@click.option("--limit", type=click.IntRange(0), default=50, help="At most so many; 0 for all.")
@flag("--reverse", "Oldest first.")
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
@option("--order", "TERM", "Sort by a term; -TERM for the other direction.")
@option("--after", "CURSOR", "Go on behind the page before.")
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
    try:
        return json_values.loads(text)
    except InvalidValueError:
        return text


# ---- watch: entries as they are committed, by any process --------------------------------------


@command("watch [SCOPE]")
@click.option("--prefix", default="", help="Entries that changed keys which begin so.")
@click.option("--pattern", help="Entries that changed keys which fit, as in a shell: 'memory/*'.")
@option("--since", "POSITION", "`start`, or a position that --json shows; else only what is new.")
@click.option(
    "--timeout", type=click.FloatRange(0), metavar="SECONDS", help="End after such a silence."
)
@flag("--past-pruned", "Pass over entries that were pruned.")
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
                cause, place = entry.cause, f"{entry.timeline}@{entry.sequence}"
                row = [entry.time, entry.scope, place, entry.kinds, entry.keys]
                row += [cause.actor, cause.reason, cause.correlation]
                session.each({**plain(entry), "position": entry.position or {}}, row)
                sys.stdout.flush()
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


# ---- debug: a console in which one steps through the entries of a scope --------------------------


@command("debug SCOPE --reveal")
@option("--at", "POINT", "Where to begin. [the newest entry]")
@click.option("-c", "--command", "lines", multiple=True, help="Do this, and end; several if given.")
def debug(
    session: Session, scope: str, at: str | None, lines: tuple[str, ...], reveal: bool
) -> None:
    """Step through the entries of a scope: what the state was, what changed it, and who.

    A console with commands (`help` lists them) on a terminal; from a pipe it takes a command a
    line, and ends at the first that fails. Nothing is changed.
    """
    with session.read(scope) as state:
        console = Console(session, state, reveal=reveal)
        if at is not None:
            console.go(point(at))
        if lines:
            console.run(lines)
        elif sys.stdin.isatty():
            console.cmdloop()
        else:
            console.run(sys.stdin)


_SHORT = {"n": "next", "b": "back", "g": "goto", "w": "where", "q": "quit", "EOF": "quit"}


class Console(cmd.Cmd):
    """Commands over the entries of one timeline; on a terminal until `quit`, else line by line."""

    intro = "`help` lists the commands; `quit` ends."

    def __init__(self, session: Session, state: State, *, reveal: bool = False) -> None:
        super().__init__()
        self.session, self.state, self.reveal = session, state, reveal
        self.number = self._head

    # running

    def run(self, lines: Iterable[str]) -> None:
        """Do a line after the other; the first that fails ends it, with its error."""
        for line in lines:
            if self._do(line.strip()):
                return

    def onecmd(self, line: str) -> bool:
        """Do a line at a terminal: what is wrong is said, and the console goes on."""
        try:
            return self._do(line.strip())
        except HoldfastError as error:
            failures.report(error, as_json=self.session.json)
        except KeyboardInterrupt:
            output.note("interrupted")
        return False

    @property
    def prompt(self) -> str:  # type: ignore[override]
        """Where one is."""
        return output.clean(f"{self.state.scope} {self.state.timeline}@{self.number}> ")

    def _do(self, line: str) -> bool:
        """Whether that was the end."""
        try:
            name, *words = shlex.split(line, comments=True) or [""]
        except ValueError as error:
            raise InvalidInputError(f"that line cannot be read: {error}") from None
        if not name:
            return False
        function = self._found(_SHORT.get(name, name))
        try:
            inspect.signature(function).bind(*words)
        except TypeError:
            raise InvalidInputError(f"it is used so: {function.__doc__}") from None
        return bool(function(*words))

    def _found(self, name: str) -> Callable[..., bool | None]:
        found: Callable[..., bool | None] | None = getattr(self, f"do_{name}", None)
        if found is None:
            raise InvalidInputError(f"there is no command {name!r}; `help` lists them")
        return found

    @property
    def _head(self) -> int:
        return handle_of(self.state).place()[2]

    # moving

    def go(self, where: Any) -> None:
        """Move to a point of this timeline."""
        # Found, not opened: one may stand where the state cannot be read.
        timeline, number = handle_of(self.state).history.points.find(where)
        if timeline != self.state.timeline:
            raise PointNotFoundError(
                f"that is an entry of the timeline {timeline}; debug that with --timeline"
            )
        self.number = number

    def do_where(self) -> None:
        """where: the entry that one is at"""
        found, damage = None, ""
        try:
            found = self._entry()
        except StateIntegrityError as error:
            damage = str(error)  # one may stand at what is damaged, and look around from there
        place = {"scope": self.state.scope, "timeline": self.state.timeline}
        told = {**place, "entry": self.number, "head": self._head, "damage": damage, "what": found}
        what = f"damaged: {damage}" if damage else "the empty state before the first entry"
        if found is not None:
            keys, cause = ", ".join(found.keys[:5]), found.cause
            keys += f" … {len(found.keys)} keys" if len(found.keys) > 5 else ""
            what = f"{found.time:%Y-%m-%d %H:%M:%S} {', '.join(found.kinds)} {keys}".rstrip()
            what += f" by {cause.actor}" if cause.actor else ""
            what += f": {cause.reason}" if cause.reason else ""
        self.session.each(told, f"{self.state.timeline}@{self.number} of {self._head}: {what}")

    def do_next(self, count: str = "1") -> None:
        """next [N]: a step forward, or N"""
        self._step(_number(count))

    def do_back(self, count: str = "1") -> None:
        """back [N]: a step back, or N"""
        self._step(-_number(count))

    def do_goto(self, where: str) -> None:
        """goto POINT: an entry's number, a time, a checkpoint (or its id); or first, or last"""
        self.go({"first": 0, "last": self._head}.get(where, point(where)))
        self.do_where()

    def _step(self, by: int) -> None:
        head, wanted = self._head, self.number + by
        if not 0 <= wanted <= head:
            raise PointNotFoundError(f"there are entries up to {head}, and no {wanted}")
        self.go(wanted)
        self.do_where()

    def _entry(self) -> Entry | None:
        """None of the empty state before the first entry."""
        found = self.state.log(since=self.number, until=self.number, limit=1) if self.number else []
        return found[0] if found else None

    # looking

    def _tell(self, data: Any, *lines: object) -> None:
        """A line of JSON, or lines for people."""
        if self.session.json:
            self.session.each(data, "")
        else:
            self.session.tell(data, *lines)

    def do_entry(self) -> None:
        """entry: all that is known of this entry"""
        found = self._entry()
        if found is None:
            raise MissingError("here is the empty state before the first entry")
        shown = plain(found)
        cause, done = shown.pop("cause"), shown.pop("operations")
        told = [(name, text) for name, text in (shown | cause).items() if text]
        lines = [f"  {one['kind']} {one['key']}" for one in done]
        self._tell(found, lambda: output.fields(told), *lines)

    def do_show(self, *words: str) -> None:
        """show [KEY …]: the state here, all of it or these keys"""
        view: Any = self.state.at(self.number)
        missing = [name for name in words if not view.exists(name)]
        if missing:
            raise MissingError(f"here is no key {missing[0]!r}; `show` without a key shows all")
        # All: also those that layers keep in the scope, which other lists leave out.
        found = shown_values(view, list(words) or [*view.keys(), *view.keys("$")], self.reveal)
        self._tell({"entry": self.number, "state": found}, lambda: output.value(plain(found)))

    def do_diff(self, since: str | None = None) -> None:
        """diff [POINT]: what this entry changed, or what changed from a point to here"""
        start: Any = point(since) if since is not None else max(0, self.number - 1)
        found = self.state.diff(start, self.number, reveal=self.reveal)
        self._tell(found, lambda: output.changes(found))

    def do_replay(self, until: str | None = None) -> None:
        """replay [POINT]: go forward to a point (the newest entry), showing what each entry did"""
        start, end = self.number, self._head
        if until is not None:
            self.go(point(until))
            self.number, end = start, self.number
        if end < self.number:
            raise PointNotFoundError(f"{end} lies behind: `goto` it, and replay from there")
        if end == self.number:
            self.do_where()
        while self.number < end:
            self._step(1)
            self.do_diff()

    def do_quit(self) -> bool:
        """quit: end (also Ctrl-D)"""
        return True

    def do_help(self, *words: str) -> None:
        """help [COMMAND]: what there is"""
        every = [name[3:] for name in type(self).__dict__ if name.startswith("do_")]
        told = [str(self._found(name).__doc__) for name in words or every]
        self._tell({"help": told}, *told)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 1 << 53:
        raise InvalidInputError("how many is a whole number from 1 on")
    return int(text)
