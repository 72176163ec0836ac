"""The report of a recovery as a page: Markdown, and HTML that needs nothing but itself.

Whatever users or their functions wrote (messages, reasons, names) is escaped in both.
"""

from __future__ import annotations

import html as entities
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SPECIAL = re.compile(r"([\\`*_\[\]<>|&~#])")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c1c1c; background: #fff; }}
table {{ border-collapse: collapse; width: 100%; margin: 1rem 0; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem .6rem;
  border-bottom: 1px solid #ccc; overflow-wrap: anywhere; }}
.succeeded, .done {{ color: #17652f; }}
.failed, .rolled_back {{ color: #a3191f; }}
@media (prefers-color-scheme: dark) {{
  body {{ color: #e8e8e8; background: #161616; }}
  .succeeded, .done {{ color: #7fd69a; }} .failed, .rolled_back {{ color: #ff9ea2; }}
}}
</style>
</head>
<body>
{body}
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page tells."""

    title: str
    status: str
    facts: Sequence[tuple[str, str]]
    """Names and what is known; what is empty is left out."""
    passed: Mapping[str, str]
    """What did not serve, and why."""
    columns: Sequence[str]
    steps: Sequence[Sequence[str]]
    """A row for each step; the cell under `outcome` says how it ended."""

    def markdown(self) -> str:
        """The page as Markdown."""
        lines = [f"# {_mark(self.title)}", ""]
        lines += [f"- **{_mark(name)}**: {_mark(text)}" for name, text in self.facts if text]
        if self.passed:
            lines += ["", "## What did not serve", ""]
            lines += [f"- **{_mark(name)}**: {_mark(why)}" for name, why in self.passed.items()]
        lines += ["", "## Steps", "", _row(self.columns), _row(["---"] * len(self.columns))]
        lines += [_row([_mark(cell) for cell in row]) for row in self.steps]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """The page as HTML without scripts, pictures or links to elsewhere."""
        title = _text(self.title)
        facts = [
            _cells([name, text], self.status if name == "status" else "")
            for name, text in self.facts
            if text
        ]
        body = [f"<h1>{title}</h1>", _table((), facts)]
        if self.passed:
            rows = [_cells([name, why]) for name, why in self.passed.items()]
            body += ["<h2>What did not serve</h2>", _table(("what", "why"), rows)]
        rows = [_cells(row, "done" if "done" in row else "failed") for row in self.steps]
        body += ["<h2>Steps</h2>", _table(self.columns, rows)]
        return _PAGE.format(title=title, body="\n".join(body))


def kept_as(signed: bool | None) -> str:
    """What is said in front of the scope that keeps a report."""
    if signed is None:
        return "kept in"
    return "kept and signed in" if signed else "kept, unsigned, in"


def _mark(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    return entities.escape(" ".join(text.split()))


def _cells(cells: Sequence[str], kind: str = "") -> str:
    named = f' class="{entities.escape(kind)}"' if kind else ""
    return f"<tr{named}>{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}</tr>"


def _table(headings: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{name}</th>" for name in headings)
    return "\n".join(["<table>", *([f"<tr>{head}</tr>"] if head else []), *rows, "</table>"])
