"""What commands print: for people on a terminal, as plain text in a pipe, as JSON for programs.

In a pipe, tables are lines of fields separated by tabs, without a header and never cut.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.plain import part_of, redacted

if TYPE_CHECKING:
    from holdfast.store.inner import Diff

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PART = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")(?=: )|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)"
)
_COLOURS = {"key": "blue", "text": "green", "number": "cyan", "word": "magenta"}
_TIME = 19
"""Characters of a time, to the second."""
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def clean(text: str) -> str:
    """Text as people may see it, which cannot move a terminal's cursor, colour it, or break a line
    of a table."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), redacted(text))


def coloured() -> bool:
    """Whether colours are welcome on stdout."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def echo(text: str) -> None:
    """Print text that holds nothing but what we wrote, or cleaned."""
    click.echo(text, color=coloured())


def say(text: object, **style: Any) -> None:
    """A line for people: a text, cleaned; of a result, the lines that it is written as."""
    for line in [text] if isinstance(text, str) else str(text).splitlines():
        echo(click.style(clean(line), **style) if style else clean(line))


def note(text: str) -> None:
    """A remark for people, on stderr so that it never mixes with what is asked for."""
    click.echo(clean(text), err=True)


def undo(scope: object, point: str | None) -> str | None:
    """How to go back to what a restore has left, TIMELINE@NUMBER; None if it left nothing."""
    if point is None:
        return None
    timeline = point.rpartition("@")[0]
    line = "" if timeline == "main" else f" --timeline {timeline}"
    return f"to undo it: holdfast restore {scope} {point}{line}"


def left_alone(keys: Sequence[str]) -> None:
    """Say which keys a restore or merge has not touched by what is declared of them."""
    if keys:
        names = ", ".join(keys[:5]) + (", …" if len(keys) > 5 else "")
        say(f"left alone, because sticky or ephemeral: {len(keys)} keys: {names}")


def document(content: Any, *, indent: int | None = 2) -> None:
    """One JSON document; without an indent it is one line."""
    from holdfast.store.inner import json_values

    click.echo(json_values.write(content, indent=indent))


def value(content: Any) -> None:
    """A value, or something else in tagged form, for people and pipes."""
    from holdfast.store.inner import json_values

    text = json_values.write(content, indent=2)
    if coloured():
        text = _PART.sub(lambda part: click.style(part[0], fg=_COLOURS[part.lastgroup or ""]), text)
    echo(text)


def fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """Names and what they are, a line each."""
    for name, content in pairs:
        echo(f"{click.style(name.replace('_', ' '), bold=True)}: {clean(cell(content))}")


def rows(found: Iterable[Any], columns: str, made: dict[str, Callable[[Any], Any]]) -> None:
    """Results as a table. Columns are fields, `heading=field` where their names are others, or
    what a function makes of a result."""
    pairs = [column.rpartition("=")[::2] for column in columns.split(", ")]
    cells = [
        [made[path](one) if path in made else part_of(one, path) for _, path in pairs]
        for one in found
    ]
    table([heading or path for heading, path in pairs], cells)


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Rows under headings on a terminal, else separated by tabs."""
    if not sys.stdout.isatty():
        for row in rows:
            echo("\t".join(clean(cell(one)) for one in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        # A time is shown to the second, and stays on one line: what is beside it is folded.
        times = any(isinstance(row[number], datetime) for row in rows)
        made.add_column(heading, overflow="fold", min_width=_TIME if times else None)
    for row in rows:
        ends = (_TIME if isinstance(one, datetime) else None for one in row)
        made.add_row(*(Text(clean(cell(one)[:end])) for one, end in zip(row, ends, strict=True)))
    Console(no_color=not coloured(), highlight=False).print(made)


def cell(content: Any) -> str:
    """One thing as text."""
    if isinstance(content, datetime):
        return content.astimezone().isoformat(" ", "milliseconds")
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, list | tuple):
        return ", ".join(map(str, content))
    return "" if content is None else str(content)


def changes(diff: Diff) -> None:
    """A diff, a coloured line for each change."""
    from holdfast.store.inner import contrasted, json_values

    if not diff:
        say(f"no difference between {diff.before} and {diff.after}")
        return
    say(f"--- {diff.before}", fg="red")
    say(f"+++ {diff.after}", fg="green")
    for change in diff:
        sign, colour = _SIGNS[change.kind]
        sides = [change.before] if change.kind != "added" else []
        sides += [change.after] if change.kind != "removed" else []
        shown = contrasted([json_values.dumps(side) for side in sides], 80)
        say(f"{sign} {change.path}: {' → '.join(shown)}", fg=colour)
    if diff.omitted:
        say(f"… and {diff.omitted} more")


@contextmanager
def progress(wanted: bool, doing: str) -> Iterator[Callable[[str], None] | None]:
    """Something that shows how far the work is, on a terminal; None elsewhere."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.text import Text

    told = 0.0
    with Console(stderr=True, no_color=not coloured()).status(f"{doing} …") as status:

        def tell(text: str) -> None:
            nonlocal told
            # Ten times a second is as often as anybody reads it, and drawing takes time.
            if time.monotonic() - told > 0.1:
                told = time.monotonic()
                status.update(Text(clean(text)))

        yield tell
