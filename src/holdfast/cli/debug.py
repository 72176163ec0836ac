"""`holdfast debug`: a console in which one steps through the entries of an agent."""

from __future__ import annotations

import cmd
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from holdfast.cli import failures, output
from holdfast.cli.commands import command
from holdfast.cli.history import shown_values
from holdfast.cli.plain import plain
from holdfast.cli.session import Session, point
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    MissingError,
    PointNotFoundError,
    StateIntegrityError,
)
from holdfast.store.inner import handle_of
from holdfast.store.names.items import Entry
from holdfast.sync import State


@command("debug SCOPE --reveal")
@click.option("--at", metavar="POINT", help="Where to begin. [the newest entry]")
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


_SHORT = {
    "n": "next",
    "b": "back",
    "g": "goto",
    "w": "where",
    "q": "quit",
    "EOF": "quit",
    "?": "help",
}


class Console(cmd.Cmd):
    """Commands over the entries of one timeline; on a terminal until `quit`, else line by line."""

    intro = "`help` lists the commands; `quit` ends."
    doc_header = "Commands (help COMMAND says more):"

    def __init__(self, session: Session, state: State, *, reveal: bool = False) -> None:
        super().__init__()
        self.session = session
        self.state = state
        self.reveal = reveal
        self.number = handle_of(state).place()[2]
        self._set_prompt()

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

    def _do(self, line: str) -> bool:
        """Whether that was the end."""
        try:
            name, *words = shlex.split(line, comments=True) or [""]
        except ValueError as error:
            raise InvalidInputError(f"that line cannot be read: {error}") from None
        if not name:
            return False
        ended = bool(self._found(_SHORT.get(name, name), words)(*words))
        self._set_prompt()
        return ended

    def _found(self, name: str, words: list[str]) -> Callable[..., bool | None]:
        """What does a command, if it takes so many words: its first line says which."""
        function: Callable[..., bool | None] | None = getattr(self, f"do_{name}", None)
        if function is None:
            raise InvalidInputError(f"there is no command {name!r}; `help` lists them")
        _, *takes = str(function.__doc__).partition(":")[0].split()
        least, most = sum(one[-1] != "]" and one[0] != "[" for one in takes), len(takes)
        if not least <= len(words) <= (len(words) if "…]" in takes else most):
            wanted = str(most) if least == most else f"{least} to {most}"
            raise InvalidInputError(f"that takes {wanted} arguments, not {len(words)}; see `help`")
        return function

    def _set_prompt(self) -> None:
        self.prompt = output.clean(f"{self.state.scope} {self.state.timeline}@{self.number}> ")

    def _tell(self, data: Any, lines: Iterable[str]) -> None:
        """A line of data if JSON is wanted, else lines for people."""
        if self.session.json:
            self.session.each(data, "")
        else:
            for line in lines:
                output.say(line)

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
            found = self._entry(self.number)
        except StateIntegrityError as error:
            damage = str(error)  # one may stand at what is damaged, and look around from there
        place = {"scope": self.state.scope, "timeline": self.state.timeline}
        told = {**place, "entry": self.number, "head": self._head, "damage": damage, "what": found}
        what = f"damaged: {damage}" if damage else _line(found)
        here = f"{self.state.timeline}@{self.number} of {self._head}"
        self._tell(told, [f"{here}: {what}"])

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

    def _entry(self, number: int) -> Entry | None:
        """None of the empty state before the first entry."""
        found = self.state.log(since=number, until=number, limit=1) if number else []
        return found[0] if found else None

    # looking

    def do_entry(self) -> None:
        """entry: all that is known of this entry"""
        found = self._entry(self.number)
        if found is None:
            raise MissingError("here is the empty state before the first entry")
        shown = plain(found)
        if self.session.json:
            self.session.each(shown, "")
            return
        cause, done = shown.pop("cause"), shown.pop("operations")
        output.fields([(name, text) for name, text in (shown | cause).items() if text])
        for one in done:
            output.say(f"  {one['kind']} {one['key']}")

    def do_show(self, *words: str) -> None:
        """show [KEY …]: the state here, all of it or these keys"""
        view: Any = self.state.at(self.number)
        missing = [name for name in words if not view.exists(name)]
        if missing:
            raise MissingError(f"here is no key {missing[0]!r}; `show` without a key shows all")
        # All: also those that layers keep in the scope, which other lists leave out.
        found = shown_values(view, list(words) or [*view.keys(), *view.keys("$")], self.reveal)
        self._tell({"entry": self.number, "state": found}, [])
        if not self.session.json:
            output.value(plain(found))

    def do_diff(self, since: str | None = None) -> None:
        """diff [POINT]: what this entry changed, or what changed from a point to here"""
        start: Any = point(since) if since is not None else max(0, self.number - 1)
        found = self.state.diff(start, self.number, reveal=self.reveal)
        self._tell(found, [])
        if not self.session.json:
            output.changes(found)

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
        names = words or [name for name in every if name != "help"]
        unknown = [name for name in names if name not in every]
        if unknown:
            raise InvalidInputError(f"there is no command {unknown[0]!r}; `help` lists them")
        told = [str(getattr(self, f"do_{name}").__doc__) for name in names]
        self._tell({"help": told}, told)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 1 << 53:
        raise InvalidInputError("how many is a whole number from 1 on")
    return int(text)


def _line(found: Entry | None) -> str:
    if found is None:
        return "the empty state before the first entry"
    cause = found.cause
    what = f"{', '.join(found.kinds)} {', '.join(found.keys[:5])}".strip()
    more = f" … {len(found.keys)} keys" if len(found.keys) > 5 else ""
    by = f" by {cause.actor}" if cause.actor else ""
    why = f": {cause.reason}" if cause.reason else ""
    return f"{found.time:%Y-%m-%d %H:%M:%S} {what}{more}{by}{why}"
