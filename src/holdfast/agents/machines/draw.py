"""A definition as a diagram in Mermaid's language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from holdfast.agents.machines.definition import rows_of

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition


# ---- draw ---------------------------------------------------------------------------------------


_SPECIAL = '"#;:{}[]()<>|\\`&'


def mermaid(definition: MachineDefinition, now: str | None = None) -> str:
    """A state diagram; states get short ids of their own, so that any name can be shown."""
    ids = {name: f"s{number}" for number, name in enumerate(definition.states)}
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{_text(name)}" as {id}' for name, id in ids.items()]
    lines.append(f"    [*] --> {ids[definition.initial]}")
    ends = dict.fromkeys(definition.states)
    for origin, trigger, arrow in definition.arrows():
        ends.pop(origin, None)
        lines.append(f"    {ids[origin]} --> {ids[arrow.to]} : {_text(label(trigger, arrow))}")
    lines += [f"    {ids[name]} --> [*]" for name in ends]
    if now in ids:
        lines += ["    classDef now stroke-width:3px", f"    class {ids[now]} now"]
    return "\n".join(lines) + "\n"


def label(trigger: str, arrow: object) -> str:
    """What stands at an arrow: its trigger, and signs for a guard and for work."""
    guarded = getattr(arrow, "guard", None) is not None
    works = getattr(arrow, "work", None) is not None
    return trigger + (" ?" if guarded else "") + (" …" if works else "")


def _text(text: str) -> str:
    """Text that means nothing to Mermaid."""
    clean = "".join(one if one.isprintable() else " " for one in text)
    return "".join(f"#{ord(one)};" if one in _SPECIAL else one for one in clean)


# ---- svg ----------------------------------------------------------------------------------------
# A definition as a picture: states in rows by their distance from the initial one.


_LETTER = 8.0
"""Width of a letter, generously."""
_HEIGHT, _GAP, _ROW, _MARGIN, _ASIDE = 40.0, 60.0, 120.0, 60.0, 28.0
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
    pairs = {(origin, arrow.to) for origin, _, arrow in definition.arrows()}
    width = max(box.x + box.width / 2 for box in boxes.values()) + _MARGIN + _ASIDE * len(pairs)
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
        parts.append(_words(box.x, box.y + 5, name))
    return "\n".join([*parts, "</svg>"]) + "\n"


def placed(definition: MachineDefinition) -> dict[str, Box]:
    """Where each state is drawn; no two overlap."""
    rows = rows_of(definition)
    widths = {name: max(90.0, len(name) * _LETTER + 30) for name in definition.states}
    full = [sum(widths[name] for name in row) + _GAP * (len(row) - 1) for row in rows]
    boxes = {}
    for number, row in enumerate(rows):
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
    aside = 0
    for (origin, target), triggers in named.items():
        a, b = boxes[origin], boxes[target]
        if origin == target:
            line, x, y = _loop(a)
        elif a.y == b.y:
            line, x, y = _along(a, b)
        elif b.y - a.y == _ROW:
            line, x, y = _down(a, b, (target, origin) in named)
        else:
            aside += 1
            line, x, y = _aside(a, b, _right(boxes, a, b) + _ASIDE * aside)
            y += (aside % 3 - 1) * 20  # beside each other their texts would meet
        yield _path(line)
        for number, text in enumerate(triggers):
            yield _words(x, y + 14 * number, text, "on")


def _right(boxes: dict[str, Box], a: Box, b: Box) -> float:
    """How far boxes reach to the right in the rows from one box to another."""
    low, high = min(a.y, b.y), max(a.y, b.y)
    return max(box.x + box.width / 2 for box in boxes.values() if low <= box.y <= high)


def _loop(box: Box) -> tuple[str, float, float]:
    """Back to the same state: on the left, where no other line is."""
    left, y = box.x - box.width / 2, box.y
    away = left - 45
    line = f"M{left:.1f} {y - 10:.1f}C{away:.1f} {y - 30:.1f} {away:.1f} {y + 30:.1f} "
    return line + f"{left:.1f} {y + 10:.1f}", left - 33, y + 4


def _along(a: Box, b: Box) -> tuple[str, float, float]:
    """Within a row: a bow above to the right, below to the left."""
    side = 1 if b.x > a.x else -1
    edge = a.y - side * _HEIGHT / 2
    bow = edge - side * 26
    x0, x1 = a.x + side * a.width / 4, b.x - side * b.width / 4
    line = f"M{x0:.1f} {edge:.1f}Q{(x0 + x1) / 2:.1f} {bow:.1f} {x1:.1f} {edge:.1f}"
    return line, (x0 + x1) / 2, (edge + bow) / 2


def _down(a: Box, b: Box, both: bool) -> tuple[str, float, float]:
    """To the next row: straight, to the left of its middle if another comes back."""
    shift = 18.0 if both else 0.0
    x0, x1 = a.x - shift, b.x - shift
    line = f"M{x0:.1f} {a.y + _HEIGHT / 2:.1f}L{x1:.1f} {b.y - _HEIGHT / 2:.1f}"
    return line, (x0 + x1) / 2, (a.y + b.y) / 2


def _aside(a: Box, b: Box, right: float) -> tuple[str, float, float]:
    """Up, or over rows: around the right of all boxes between."""
    x0, x1 = a.x + a.width / 2, b.x + b.width / 2
    bend = (right - (x0 + x1) / 8) * 4 / 3  # so that the bow reaches just that far
    line = f"M{x0:.1f} {a.y:.1f}C{bend:.1f} {a.y:.1f} {bend:.1f} {b.y:.1f} {x1:.1f} {b.y:.1f}"
    return line, right, (a.y + b.y) / 2


def _path(line: str) -> str:
    return f'<path d="{line}" marker-end="url(#end)"/>'


def _words(x: float, y: float, text: str, kind: str = "") -> str:
    clean = "".join(one if one.isprintable() else " " for one in text)
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}">{escape(clean)}</text>'
