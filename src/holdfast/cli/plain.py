"""Values in plain form on a line, for people: objects by their names, messages by their roles."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output
from holdfast.seal.codec import Typed
from holdfast.store.inner import dumps, tagged

if TYPE_CHECKING:
    from holdfast.store.inner import Blame, Diff, MergeConflict, Merged, Report
    from holdfast.store.names.cause import Cause
    from holdfast.store.names.items import (
        Checkpoint,
        Entry,
        Erased,
        Restored,
        Reverted,
        TimelineInfo,
    )


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
    from holdfast.store.inner import contrasted

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


# ---- plain results ------------------------------------------------------------------------------
# The JSON shapes of what the store hands out; values in them are in tagged form.
#
# Times of ours are ISO 8601 text. What is not known or empty is null, "" or [].


_CAUSE = ("actor", "reason", "correlation", "parent", "component", "operation")


def time_text(time: datetime) -> str:
    """An instant in UTC."""
    return time.isoformat()


def cause(found: Cause) -> dict[str, str]:
    """What is known of a cause."""
    return {name: text for name in _CAUSE if (text := getattr(found, name)) is not None}


def entry(found: Entry) -> dict[str, Any]:
    """An entry."""
    return {
        "scope": str(found.scope),
        "timeline": found.timeline,
        "entry": found.sequence,
        "time": time_text(found.time),
        "operations": [{"kind": kind, "key": key} for kind, key in found.operations],
        "cause": cause(found.cause),
        "hash": found.hash,
        "change": found.change,
        "also": [
            {"scope": scope, "timeline": line, "entry": number}
            for scope, line, number in found.also
        ],
    }


def checkpoint(found: Checkpoint) -> dict[str, Any]:
    """A checkpoint."""
    return {
        "id": found.id,
        "scope": str(found.scope),
        "timeline": found.timeline,
        "entry": found.sequence,
        "name": found.name,
        "type": found.type,
        "time": time_text(found.time),
        "tags": list(found.tags),
        "description": found.description,
        "metadata": tagged(found.metadata),
        "root": found.root,
        "signed_by": found.signed_by,
        "cause": cause(found.cause),
        "hash": found.hash,
    }


def restored(found: Restored) -> dict[str, Any]:
    """What a restore did, or would do."""
    return {
        "scope": str(found.scope),
        "timeline": found.timeline,
        "entry": found.sequence,
        "point": found.point,
        "root": found.root,
        "backup": found.backup.id if found.backup else None,
        "verified": found.verified,
        "keys": found.keys,
        "values_checked": found.values_checked,
        "dry_run": found.dry_run,
        "diff": diff(found.diff) if found.diff is not None else None,
        "left": list(found.left),
        "passed_over": found.passed_over,
    }


def reverted(found: Reverted) -> dict[str, Any]:
    """What a revert did to one timeline, or would do."""
    return {
        "scope": str(found.scope),
        "timeline": found.timeline,
        "entry": found.entry,
        "done": found.done,
        "left": [
            {"key": one.key or None, "why": one.why, "entry": entry(one.entry)}
            for one in found.left
        ],
        "dry_run": found.dry_run,
        "diff": diff(found.diff) if found.diff is not None else None,
    }


def merged(found: Merged) -> dict[str, Any]:
    """What a merge did, or would do."""
    return {
        "scope": str(found.scope),
        "timeline": found.timeline,
        "entry": found.entry,
        "point": found.point,
        "base": list(found.base),
        "keys": found.keys,
        "conflicts": [conflict(one) for one in found.conflicts],
        "left": list(found.left),
        "dry_run": found.dry_run,
        "diff": diff(found.diff) if found.diff is not None else None,
    }


def conflict(found: MergeConflict) -> dict[str, Any]:
    """What both sides of a merge changed; a side that has nothing there is left out."""
    from holdfast.store.inner import DELETED

    sides = {"base": found.base, "ours": found.ours, "theirs": found.theirs}
    return {
        "key": found.key,
        "path": found.path,
        **{name: tagged(value) for name, value in sides.items() if value is not DELETED},
        "our_entry": entry(found.our_entry) if found.our_entry else None,
        "their_entry": entry(found.their_entry) if found.their_entry else None,
    }


def blame(found: Blame) -> dict[str, Any]:
    """Who wrote each part of a value."""
    return {
        "scope": str(found.scope),
        "key": found.key,
        "versions": found.versions,
        "complete": found.complete,
        "parts": [
            {
                "path": part.path,
                "value": tagged(part.value),
                "timeline": part.timeline,
                "entry": part.entry,
                "time": time_text(part.time),
                "cause": cause(part.cause),
                "exact": part.exact,
            }
            for part in found
        ],
    }


def erased(found: Erased) -> dict[str, Any]:
    """What an erase removed, and what it cannot reach."""
    return {
        "erased": str(found.scope),
        "lives": found.lives,
        "rows": found.rows,
        "bytes": found.bytes,
        "key_removed": found.key_removed,
        "open": list(found.open),
    }


def diff(found: Diff) -> dict[str, Any]:
    """A diff; `before` is left out of what was added, `after` of what was removed.

    `keys` are all that differ, also where the changes are too many to be listed.
    """
    changes = []
    for change in found:
        one: dict[str, Any] = {"kind": change.kind, "key": change.key, "path": change.path}
        one["steps"] = list(change.steps)
        if change.kind != "added":
            one["before"] = tagged(change.before)
        if change.kind != "removed":
            one["after"] = tagged(change.after)
        changes.append(one)
    return {
        "before": found.before,
        "after": found.after,
        "changes": changes,
        "omitted": found.omitted,
        "keys": found.keys,
    }


def timeline(found: TimelineInfo) -> dict[str, Any]:
    """A timeline."""
    return {
        "name": found.name,
        "parent": found.parent,
        "start": found.start,
        "head": found.head,
    }


_COUNTS = ("scopes", "erased", "timelines", "entries", "checkpoints", "signed", "values", "saves")


def report(found: Report) -> dict[str, Any]:
    """What verify found."""
    return {
        "ok": found.ok,
        "findings": [
            {
                "kind": one.kind,
                "place": one.place,
                "message": one.message,
                "scope": one.scope,
                "keys": list(one.keys),
            }
            for one in found.findings
        ],
        "losses": [
            {"scope": one.scope, "place": one.place, "what": one.what} for one in found.losses
        ],
        **{name: getattr(found, name) for name in _COUNTS},
        "feed_rows": found.feed_rows,
        "unswept": found.unswept,
        "unfinished": found.unfinished,
        "leases": found.leases,
        "pruned": found.pruned,
        "pruning": found.pruning,
        "subjects": found.subjects,
        "subjects_erased": found.subjects_erased,
        "seconds": round(found.seconds, 3),
        "trust": found.trust,
        "resume": found.resume,
    }
