"""Values in plain form on a line, for people: objects by their names, messages by their roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.seal.codec import Typed
from holdfast.store.tree.json import dumps

if TYPE_CHECKING:
    from holdfast.store.tree.difference import Diff

WIDTH = 160
LONG = 1 << 30
"""The width of what is not cut."""
_COLOURS = {"human": "green", "ai": "cyan", "tool": "yellow", "system": "magenta"}
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def value(plain: Any, width: int = WIDTH) -> str:
    """A value, cut where it is long."""
    return output.clean(_cut(_text(plain), width))


def message(plain: Typed, width: int = WIDTH) -> str:
    """A message: its role, then what it says."""
    from holdfast.integrations.langgraph.look import role_of

    role = role_of(plain)
    said = output.clean(_cut(_said(plain.value), width))
    return f"{click.style(output.clean(role), fg=_COLOURS.get(role), bold=True)}: {said}"


def changes(diff: Diff) -> None:
    """A diff, a coloured line for each change."""
    from holdfast.integrations.langgraph.look import is_message
    from holdfast.store.tree.difference import contrasted

    if not diff:
        output.say(f"no difference between {output.clean(diff.before)} and {diff.after}")
        return
    output.say(click.style(f"--- {output.clean(diff.before)}", fg="red"))
    output.say(click.style(f"+++ {output.clean(diff.after)}", fg="green"))
    for change in diff:
        sign, colour = _SIGNS[change.kind]
        sides = {"added": [change.after], "removed": [change.before]}.get(
            change.kind, [change.before, change.after]
        )
        told = [
            click.unstyle(message(one, LONG)) if is_message(one) else value(one, LONG)
            for one in sides
        ]
        told = contrasted(told, WIDTH)
        output.say(
            click.style(f"{sign} {output.clean(change.path)}: {' → '.join(told)}", fg=colour)
        )
    if diff.omitted:
        output.say(f"… and {diff.omitted} more")


def _said(fields: dict[Any, Any]) -> str:
    content = fields.get("content")
    blocks = content if isinstance(content, list) else [content]
    told = [_block(block) for block in blocks]
    for call in fields.get("tool_calls") or []:
        if isinstance(call, dict):
            told.append(f"[calls {call.get('name')}({_text(call.get('args'))})]")
    return " ".join(filter(None, told))


def _block(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, dict):
        return str(block["text"]) if "text" in block else f"[{block.get('type', 'block')}]"
    return _text(block)


def _text(plain: Any) -> str:
    """JSON, with Name(field=…) for objects."""
    if type(plain) is Typed:
        name = plain.name.rpartition(":")[2] if plain.name != "tuple" else ""
        held = plain.value
        if isinstance(held, dict):
            return f"{name}({', '.join(f'{key}={_text(part)}' for key, part in held.items())})"
        inner = _text(held)
        return f"{name}({inner[1:-1] if isinstance(held, list) else inner})"
    if type(plain) is list:
        return f"[{', '.join(map(_text, plain))}]"
    if type(plain) is dict:
        return f"{{{', '.join(f'{_text(key)}: {_text(part)}' for key, part in plain.items())}}}"
    return dumps(plain)


def _cut(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
