"""What commands print: for people on a terminal, as plain text in a pipe, as JSON for programs.

In a pipe, tables are lines of fields separated by tabs, without a header and never cut.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast.store.inner import json

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.inner import Diff

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PART = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")(?=: )|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)"
)
_COLOURS = {"key": "blue", "text": "green", "number": "cyan", "word": "magenta"}
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def clean(text: str) -> str:
    """Text that cannot move a terminal's cursor, colour it, or break a line of a table."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def coloured() -> bool:
    """Whether colours are welcome on stdout."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def say(text: str) -> None:
    """Print text that holds nothing but what we wrote, or cleaned."""
    click.echo(text, color=coloured())


def note(text: str) -> None:
    """A remark for people, on stderr so that it never mixes with what is asked for."""
    click.echo(clean(text), err=True)


def left_alone(keys: Sequence[str]) -> None:
    """Say which keys a restore or merge has not touched by what is declared of them."""
    if keys:
        names = ", ".join(keys[:5]) + (", …" if len(keys) > 5 else "")
        say(clean(f"left alone, because sticky or ephemeral: {len(keys)} keys: {names}"))


def document(content: Any) -> None:
    """One JSON document; values in it are in tagged form already."""
    click.echo(json.write(content, indent=2))


def value(content: Any) -> None:
    """A value, or something else in tagged form, for people and pipes."""
    text = json.write(content, indent=2)
    say(_PART.sub(_paint, text) if coloured() else text)


def _paint(match: re.Match[str]) -> str:
    return click.style(match[0], fg=_COLOURS[str(match.lastgroup)])


def fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """Names and what they are, a line each."""
    for name, content in pairs:
        say(f"{click.style(name, bold=True)}: {clean(cell(content))}")


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Rows under headings on a terminal, else separated by tabs."""
    cells = [[clean(cell(one)) for one in row] for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            say("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in cells:
        made.add_row(*(Text(one) for one in row))
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
    from holdfast.store.inner import contrasted

    if not diff:
        say(f"no difference between {clean(diff.before)} and {clean(diff.after)}")
        return
    say(click.style(f"--- {clean(diff.before)}", fg="red"))
    say(click.style(f"+++ {clean(diff.after)}", fg="green"))
    for change in diff:
        sign, colour = _SIGNS[change.kind]
        shown = contrasted([json.dumps(part) for part in _parts(change)])
        say(click.style(f"{sign} {clean(change.path)}: {' → '.join(shown)}", fg=colour))
    if diff.omitted:
        say(f"… and {diff.omitted} more")


def _parts(change: Any) -> list[Any]:
    return {
        "added": [change.after],
        "removed": [change.before],
        "changed": [change.before, change.after],
    }[change.kind]


@contextmanager
def progress(wanted: bool) -> Iterator[Callable[[str, int], None] | None]:
    """Something that shows how far a check is, on a terminal; None elsewhere."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.text import Text

    told = 0.0
    with Console(stderr=True, no_color=not coloured()).status("verifying …") as status:

        def tell(scope: str, entries: int) -> None:
            nonlocal told
            if time.monotonic() - told > 0.1:
                told = time.monotonic()
                status.update(Text(f"{entries:,} entries, now {clean(scope)}"))

        yield tell
