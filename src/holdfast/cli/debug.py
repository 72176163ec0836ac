"""`holdfast debug`: a console in which one steps through the entries of an agent."""

from __future__ import annotations

import cmd
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import failures, output, plain
from holdfast.cli.commands import Command, pass_session
from holdfast.cli.history import shown_values
from holdfast.cli.key import reveal_option, scope_argument
from holdfast.cli.points import point
from holdfast.cli.session import Session
from holdfast.errors import (
    HoldfastError,
    InvalidInputError,
    MissingError,
    PointNotFoundError,
    StateIntegrityError,
)
from holdfast.store.inner import blame_value, dumps, handle_of, tagged

if TYPE_CHECKING:
    from holdfast.store.inner import Diff
    from holdfast.store.names.items import Entry
    from holdfast.sync import State


@click.command(cls=Command)
@scope_argument
@click.option("--at", metavar="POINT", help="Where to begin. [the newest entry]")
@click.option("-c", "--command", "lines", multiple=True, help="Do this, and end; several if given.")
@reveal_option
@pass_session
def debug(
    session: Session, scope: str, at: str | None, lines: tuple[str, ...], reveal: bool
) -> None:
    """Step through the entries of a scope: what the state was, what changed it, and who.

    A console with commands (`help` lists them) on a terminal; from a pipe it takes a command a
    line, and ends at the first that fails. Nothing is changed, but that `fork` begins a timeline.
    """

    with session.reading() as store:
        state = session.state(store, scope)
        console = Console(session, state, reveal=reveal)
        if at is not None:
            console.go(point(at))
        if lines:
            console.run(lines)
        elif sys.stdin.isatty():
            console.cmdloop()
        else:
            console.run(sys.stdin)


# ---- console ------------------------------------------------------------------------------------
# The console of `holdfast debug`: one place in a timeline, and commands that move and look.


PAGE = 200
VERSIONS = 1000
"""Versions of a key that `blame` looks at."""
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
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise InvalidInputError(f"that line cannot be read: {error}") from None
        if not words:
            return False
        name = _SHORT.get(words[0], words[0])
        function: Callable[[list[str]], bool | None] | None = getattr(self, f"do_{name}", None)
        if function is None:
            raise InvalidInputError(f"there is no command {words[0]!r}; `help` lists them")
        ended = bool(function(words[1:]))
        self._set_prompt()
        return ended

    def _set_prompt(self) -> None:
        self.prompt = output.clean(f"{self.state.scope} {self.state.timeline}@{self.number}> ")

    def _tell(self, data: dict[str, Any]) -> bool:
        """Print data as a line if JSON is wanted; whether it was."""
        if self.session.json:
            click.echo(dumps(data))
        return self.session.json

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

    def do_where(self, words: list[str]) -> None:
        """where: the entry that one is at"""
        _arguments(words, 0)
        head, found, damage = handle_of(self.state).place()[2], None, ""
        try:
            found = self._entry(self.number)
        except StateIntegrityError as error:
            damage = str(error)
        place = {"scope": str(self.state.scope), "timeline": self.state.timeline}
        told = {**place, "entry": self.number, "head": head, "damage": damage}
        if not self._tell({**told, "what": plain.entry(found) if found else None}):
            what = f"damaged: {damage}" if damage else _line(found)
            output.say(output.clean(f"{self.state.timeline}@{self.number} of {head}: {what}"))

    def do_next(self, words: list[str]) -> None:
        """next [N]: a step forward, or N"""
        self._step(_number(_arguments(words, 1), 1))

    def do_back(self, words: list[str]) -> None:
        """back [N]: a step back, or N"""
        self._step(-_number(_arguments(words, 1), 1))

    def do_goto(self, words: list[str]) -> None:
        """goto POINT: an entry's number, a time, a checkpoint (or its id); or first, or last"""
        (where,) = _arguments(words, 1, least=1)
        head = handle_of(self.state).place()[2]
        self.go({"first": 0, "last": head}.get(where, point(where)))
        self.do_where([])

    def _step(self, by: int) -> None:
        head, wanted = handle_of(self.state).place()[2], self.number + by
        if not 0 <= wanted <= head:
            raise PointNotFoundError(f"there are entries up to {head}, and no {wanted}")
        self.go(wanted)
        self.do_where([])

    def do_find(self, words: list[str]) -> None:
        """find TEXT: forward to the next entry that has it in a key, kind, actor or reason"""
        (text,) = _arguments(words, 1, least=1)
        self._find(text, self._entries(self.number + 1, forward=True))

    def do_rfind(self, words: list[str]) -> None:
        """rfind TEXT: backward to such an entry"""
        (text,) = _arguments(words, 1, least=1)
        self._find(text, self._entries(self.number - 1, forward=False))

    def _find(self, text: str, entries: Iterator[Entry]) -> None:
        for one in entries:
            cause = one.cause
            texts = (*one.keys, *one.kinds, cause.actor, cause.reason, cause.correlation)
            if any(text in part for part in texts if part):
                self.number = one.sequence
                self.do_where([])
                return
        raise MissingError(f"no entry from here on has {text!r}")

    def _entries(self, number: int, *, forward: bool) -> Iterator[Entry]:
        """Entries from one on, a page at a time; damaged ones are passed over."""
        head = handle_of(self.state).place()[2]
        while 0 < number <= head:
            end = min(head, number + PAGE - 1) if forward else max(1, number - PAGE + 1)
            since, until = min(number, end), max(number, end)
            try:
                yield from self.state.log(
                    since=since, until=until, limit=PAGE, newest_first=not forward
                )
            except StateIntegrityError:
                step = 1 if forward else -1
                yield from filter(None, map(self._whole_entry, range(number, end + step, step)))
            number = end + (1 if forward else -1)

    def _whole_entry(self, number: int) -> Entry | None:
        with suppress(StateIntegrityError):
            return self._entry(number)
        return None

    def _entry(self, number: int) -> Entry | None:
        """None of the empty state before the first entry."""
        found = self.state.log(since=number, until=number, limit=1) if number else []
        return found[0] if found else None

    # looking

    def do_entry(self, words: list[str]) -> None:
        """entry: all that is known of this entry"""
        _arguments(words, 0)
        found = self._entry(self.number)
        if found is None:
            raise MissingError("here is the empty state before the first entry")
        shown = plain.entry(found)
        if self._tell(shown):
            return
        cause, done = shown.pop("cause"), shown.pop("operations")
        output.fields([(name, text) for name, text in shown.items() if text])
        output.fields(list(cause.items()))
        for one in done:
            output.say(output.clean(f"  {one['kind']} {one['key']}"))

    def do_log(self, words: list[str]) -> None:
        """log [N]: the N entries up to here, 10 unless told"""
        count = _number(_arguments(words, 1), 10)
        found = list(islice(self._entries(self.number, forward=False), count))
        if not self._tell({"entries": [plain.entry(one) for one in found]}):
            for one in found:
                output.say(output.clean(f"{one.sequence}: {_line(one)}"))

    def do_keys(self, words: list[str]) -> None:
        """keys [PREFIX]: the keys of the state here"""
        prefix = next(iter(_arguments(words, 1)), "")
        found = self._keys(prefix)
        if not self._tell({"keys": found}):
            for name in found:
                output.say(output.clean(name))

    def _keys(self, prefix: str = "") -> list[str]:
        """Those that layers keep in the scope, too, which other lists leave out: they are state."""
        view = self.state.at(self.number)
        own = view.keys("$") if not prefix else []
        return [*view.keys(prefix), *own]

    def do_show(self, words: list[str]) -> None:
        """show [KEY …]: the state here, all of it or these keys"""
        view: Any = self.state.at(self.number)
        missing = [name for name in words if not view.exists(name)]
        if missing:
            raise MissingError(f"here is no key {missing[0]!r}; `keys` lists them")
        shown = shown_values(view, words or self._keys(), self.reveal)
        found = {name: tagged(value) for name, value in shown}
        if not self._tell({"entry": self.number, "state": found}):
            output.value(found)

    def do_diff(self, words: list[str]) -> None:
        """diff [POINT]: what this entry changed, or what changed from a point to here"""
        asked = _arguments(words, 1)
        since: Any = point(asked[0]) if asked else max(0, self.number - 1)
        self._say_diff(self.state.diff(since, self.number, reveal=self.reveal))

    def _say_diff(self, found: Diff) -> None:
        if not self._tell(plain.diff(found)):
            output.changes(found)

    def do_replay(self, words: list[str]) -> None:
        """replay [POINT]: go forward to a point (the newest entry), showing what each entry did"""
        asked = _arguments(words, 1)
        start, end = self.number, handle_of(self.state).place()[2]
        if asked:
            self.go(point(asked[0]))
            self.number, end = start, self.number
        if end < self.number:
            raise PointNotFoundError(f"{end} lies behind: `goto` it, and replay from there")
        if end == self.number:
            self.do_where([])
        while self.number < end:
            self._step(1)
            self.do_diff([])

    def do_blame(self, words: list[str]) -> None:
        """blame KEY [PATH]: who wrote each part of a value, as it is here"""
        name, *path = _arguments(words, 2, least=1)
        handle = handle_of(self.state.at(self.number))
        found = blame_value(handle, name, path[0] if path else None, VERSIONS, self.reveal)
        if self._tell(plain.blame(found)):
            return
        for part in found:
            who = part.cause.actor or "nobody named"
            text = dumps(tagged(part.value))
            output.say(output.clean(f"{part.timeline}@{part.entry} {who}: {part.path}: {text}"))

    def do_checkpoints(self, words: list[str]) -> None:
        """checkpoints: those of this timeline, the newest first"""
        _arguments(words, 0)
        found = self.state.checkpoints(limit=PAGE)
        if not self._tell({"checkpoints": [plain.checkpoint(one) for one in found]}):
            for one in found:
                output.say(output.clean(f"{one.id} {one.type} {one.name}"))

    # changing

    def do_fork(self, words: list[str]) -> None:
        """fork NAME: begin a new timeline here, to try something without touching this one"""
        (name,) = _arguments(words, 1, least=1)
        start = f"{self.state.timeline}@{self.number}"
        with self.session.writing() as store:
            store.scope(self.state.scope).on(self.state.timeline).fork(name, at=start)
        if not self._tell({"timeline": name, "start": start}):
            output.say(output.clean(f"timeline {name!r} starts at {start}"))

    def do_quit(self, words: list[str]) -> bool:
        """quit: end (also Ctrl-D)"""
        del words
        return True

    def do_help(self, words: Any) -> None:
        """help [COMMAND]: what there is"""
        names = words or [name for name in self._names() if name != "help"]
        unknown = [name for name in names if not hasattr(self, f"do_{name}")]
        if unknown:
            raise InvalidInputError(f"there is no command {unknown[0]!r}; `help` lists them")
        told = [str(getattr(self, f"do_{name}").__doc__) for name in names]
        if not self._tell({"help": told}):
            for text in told:
                output.say(text)

    def _names(self) -> list[str]:
        return [name[3:] for name in type(self).__dict__ if name.startswith("do_")]


def _arguments(words: list[str], most: int, *, least: int = 0) -> list[str]:
    if not least <= len(words) <= most:
        wanted = str(most) if least == most else f"{least} to {most}"
        raise InvalidInputError(f"that takes {wanted} arguments, not {len(words)}; see `help`")
    return words


def _number(words: list[str], otherwise: int) -> int:
    if not words:
        return otherwise
    if not words[0].isascii() or not words[0].isdecimal() or not 0 < int(words[0]) < 1 << 53:
        raise InvalidInputError("how many is a whole number from 1 on")
    return int(words[0])


def _line(found: Entry | None) -> str:
    if found is None:
        return "the empty state before the first entry"
    cause = found.cause
    what = f"{', '.join(found.kinds)} {', '.join(found.keys[:5])}".strip()
    more = f" … {len(found.keys)} keys" if len(found.keys) > 5 else ""
    by = f" by {cause.actor}" if cause.actor else ""
    why = f": {cause.reason}" if cause.reason else ""
    return f"{found.time:%Y-%m-%d %H:%M:%S} {what}{more}{by}{why}"
