"""The JSON shapes of what the store hands out; values in them are in tagged form.

Times of ours are ISO 8601 text. What is not known or empty is null, "" or [].
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.store.tree.json import tagged

if TYPE_CHECKING:
    from holdfast.store.history.blame import Blame
    from holdfast.store.history.merge import Merged
    from holdfast.store.history.merge_conflicts import MergeConflict
    from holdfast.store.journal.entry import Cause
    from holdfast.store.names.items import (
        Checkpoint,
        Entry,
        Erased,
        Restored,
        Reverted,
        TimelineInfo,
    )
    from holdfast.store.proof.verify_report import Report
    from holdfast.store.tree.difference import Diff

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
    from holdfast.store.tree.difference import DELETED

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
