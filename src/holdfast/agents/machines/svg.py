"""A definition as a picture: states in rows by their distance from the initial one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from holdfast.agents.machines.drawing import label

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition

_LETTER = 8.0
"""Width of a letter, generously."""
_HEIGHT, _GAP, _ROW, _MARGIN = 40.0, 60.0, 120.0, 60.0
_STYLE = (
    "rect{fill:#f6f8fa;stroke:#57606a;stroke-width:1.5}.now{fill:#ddf4ff;stroke-width:3}"
    "path{fill:none;stroke:#57606a;stroke-width:1.2}"
    "text{font:14px sans-serif;text-anchor:middle;fill:#1f2328}"
    ".on{font-size:12px;paint-order:stroke;stroke:#fff;stroke-width:4px}"
)
_MARKER = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#57606a"/></marker></defs>'
)


class Box(NamedTuple):
    """Where a state is drawn: its middle, and its width."""

    x: float
    y: float
    width: float


def svg(definition: MachineDefinition, now: str | None = None) -> str:
    """The picture, which stands for itself."""
    boxes = placed(definition)
    width = max(box.x + box.width / 2 for box in boxes.values()) + _MARGIN * 1.5
    height = max(box.y for box in boxes.values()) + _HEIGHT / 2 + _MARGIN
    first = boxes[definition.initial]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<style>{_STYLE}</style>",
        _MARKER,
        f'<circle cx="{first.x:.1f}" cy="{_MARGIN / 3:.1f}" r="5"/>',
        _path(f"M{first.x:.1f} {_MARGIN / 3:.1f}V{first.y - _HEIGHT / 2:.1f}"),
    ]
    parts += _arrows(definition, boxes)
    for name, box in boxes.items():
        kind = ' class="now"' if name == now else ""
        left, top = box.x - box.width / 2, box.y - _HEIGHT / 2
        parts.append(
            f'<rect{kind} x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" '
            f'height="{_HEIGHT:.0f}" rx="8"/>'
        )
        parts.append(_text(box.x, box.y + 5, name))
    return "\n".join([*parts, "</svg>"]) + "\n"


def placed(definition: MachineDefinition) -> dict[str, Box]:
    """Where each state is drawn; no two overlap."""
    rows: list[list[str]] = [[definition.initial]]
    seen = {definition.initial}
    leads: dict[str, list[str]] = {}
    for origin, _, arrow in definition.arrows():
        leads.setdefault(origin, []).append(arrow.to)
    while rows[-1]:
        found = dict.fromkeys(to for name in rows[-1] for to in leads.get(name, ()))
        rows.append([name for name in found if name not in seen])
        seen.update(rows[-1])
    widths = {name: max(90.0, len(name) * _LETTER + 30) for name in definition.states}
    full = [sum(widths[name] for name in row) + _GAP * (len(row) - 1) for row in rows]
    boxes = {}
    for number, row in enumerate(rows[:-1]):
        left = _MARGIN + (max(full) - full[number]) / 2
        for name in row:
            y = _MARGIN + _HEIGHT / 2 + number * _ROW
            boxes[name] = Box(left + widths[name] / 2, y, widths[name])
            left += widths[name] + _GAP
    return boxes


def _arrows(definition: MachineDefinition, boxes: dict[str, Box]) -> Iterator[str]:
    """A line for each pair of states, with all triggers that lead along it."""
    named: dict[tuple[str, str], list[str]] = {}
    for origin, trigger, arrow in definition.arrows():
        named.setdefault((origin, arrow.to), []).append(label(trigger, arrow))
    for (origin, target), triggers in named.items():
        a, b = boxes[origin], boxes[target]
        both = (target, origin) in named
        line, x, y = _loop(a) if origin == target else _line(a, b, both)
        yield _path(line)
        for number, text in enumerate(triggers):
            yield _text(x, y + 14 * number, text, "on")


def _loop(box: Box) -> tuple[str, float, float]:
    right, top = box.x + box.width / 2, box.y
    line = f"M{right:.1f} {top - 10:.1f}C{right + 45:.1f} {top - 30:.1f} {right + 45:.1f} "
    return line + f"{top + 30:.1f} {right:.1f} {top + 10:.1f}", right + 38, top + 4


def _line(a: Box, b: Box, both: bool) -> tuple[str, float, float]:
    """A line from one box to another, and where its text stands.

    Down goes straight; up, and along a row, bends aside, so that it crosses fewer boxes.
    """
    half = _HEIGHT / 2
    if b.y == a.y:
        side = 1 if b.x > a.x else -1
        bow = a.y - half - 26 if side > 0 else a.y + half + 26
        edge = a.y - half if side > 0 else a.y + half
        x0, x1 = a.x + side * a.width / 4, b.x - side * b.width / 4
        line = f"M{x0:.1f} {edge:.1f}Q{(x0 + x1) / 2:.1f} {bow:.1f} {x1:.1f} {edge:.1f}"
        return line, (x0 + x1) / 2, (edge + bow) / 2
    down = b.y > a.y
    shift = 18.0 if both else 0.0
    if down and b.y - a.y <= _ROW:
        x0, x1 = a.x - shift, b.x - shift
        line = f"M{x0:.1f} {a.y + half:.1f}L{x1:.1f} {b.y - half:.1f}"
        return line, (x0 + x1) / 2, (a.y + b.y) / 2
    y0, y1 = (a.y + half, b.y - half) if down else (a.y - half, b.y + half)
    x0, x1 = a.x + a.width / 4, b.x + b.width / 4
    bend = max(a.x + a.width / 2, b.x + b.width / 2) + (abs(b.y - a.y) / _ROW) * 30
    line = f"M{x0:.1f} {y0:.1f}C{bend:.1f} {y0:.1f} {bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    return line, (x0 + x1 + 6 * bend) / 8, (y0 + y1) / 2


def _path(line: str) -> str:
    return f'<path d="{line}" marker-end="url(#end)"/>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    clean = "".join(one if one.isprintable() else " " for one in text)
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}">{escape(clean)}</text>'
