"""A definition as a diagram in Mermaid's language."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition

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
