"""Results as data: one `plain(result)` for all that the library hands out.

Times are ISO 8601 text, scopes are text, of bytes the number is told, values of users are in tagged
form. What is not known or empty is null, "" or [].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

SHAPES = {
    "Backup": "id, name, created, type, parent, encrypted, keys, signer, rows, bytes, objects, "
    "uploaded",
    "BackupReport": "id, ok, objects, rows, bytes, findings",
    "Blamed": "path, value!, entry, time, cause, exact",
    "BootItem": "scope, kind, what, outcome, why",
    "BootReport": "methods, items, seconds",
    "Checkpoint": "id, scope, timeline, entry=sequence, name, type, time, tags, description, "
    "metadata!, root, signed_by, cause, hash",
    "Diff": "before, after, changes, omitted, keys",
    "Difference": "kind, key, path, steps, before!, after!",
    "DriftAlarm": "time, cycle, kind, since, evidence, why, details!",
    "Effect": "name, id, key, status, repeatable, attempts, error, planned=planned_at, "
    "begun=started_at, ended=ended_at, settled, result_lost, strays",
    "Entity": "id, type, properties!, created=created_at_iso, updated=updated_at_iso, "
    "relationships",
    "Entry": "scope, timeline, entry=sequence, time, operations(kind key), cause, hash, change, "
    "also(scope timeline entry)",
    "Erased": "erased=scope, lives, rows, bytes, key_removed, open",
    "Event": "id=event_id, time=timestamp_iso, event=event_name, client=client_id, "
    "correlation=correlation_id, session=session_id, data!, stripped",
    "Export": "scope, checkpoint, name, type, time, tags, description, metadata!, keys, bytes, "
    "digest, root, hash, store, exported, signer, encrypted, cause",
    "Finding": "kind, place, message, scope, keys",
    "Group": "group=id, name, checkpoints",
    "Handover": "id, task, from=giver, to=taker, status, reason, answer, offered=offered_at, "
    "answered=answered_at, messages, before, returns, term",
    "Healed": "scope, place, copy, lost?",
    "HookOutcome": "event, result, value, before, error, seconds",
    "Imported": "scope, timeline, entry=sequence, staged, root, backup=backup.id, left, "
    "declarations, export",
    "Item": "version, time, class=class_, expires, cause",
    "JudgedCheckpoint": "id=checkpoint.id, name=checkpoint.name, type=checkpoint.type, stays, why",
    "Left": "key?, why, entry",
    "Letter": "number, id, sender, time, tries, error, kind, due",
    "LinePlan": "timeline, floor, checkpoints=judged",
    "LoopResult": "outcome, cycles, letters, errors, restarts, checkpoint, alarms=alarms.why",
    "MachineIntent": "trigger, from=from_state, to=to_state, begun, attempt",
    "MergeConflict": "key, path, base!, ours!, theirs!, our_entry, their_entry",
    "Outcome": "thread, ok, checkpoints, imported, present, writes, replaced, error",
    "Quarantined": "id, scope=agent, place, kind, why, bytes=content, recovery?, found_at, "
    "released_at, reason?",
    "RecoveryPlan": "agent, failure, procedure=procedure.id, steps=procedure.steps.key, strategy, "
    "point, keys, healed, lost, passed",
    "RecoveryReport": "id, agent, status, failure, procedure, attempts, strategy, restored_from, "
    "passed, lost, warning, transitions, why, started_at, finished_at, seconds, signed, "
    "root, steps(part *)",
    "Relationship": "from=from_id, type, to=to_id, metadata!, created=created_at_iso",
    "Report": "ok, findings, losses, scopes, erased, timelines, entries, checkpoints, signed, "
    "values, saves, feed_rows, unswept, unfinished, leases, pruned, pruning, subjects, "
    "subjects_erased, seconds, trust, resume",
    "Restored": "scope, timeline, entry=sequence, point, root, backup=backup.id, verified, keys, "
    "values_checked, dry_run, diff, left, passed_over",
    "RestoredBackup": "id=backup.id, url, rows, erased, notes",
    "RetentionPlan": "scope, timelines=lines, questions, notes",
    "ScheduledRun": "schedule, slot, outcome, checkpoint=checkpoint.id, error",
    "Scrubbed": "entries, finished, healed, findings, seconds",
    "SyncedReplica": "url, made, rows, removed, bytes, findings, error, ok",
    "Transition": "number, time=timestamp, kind, from=from_state, to=to_state, trigger, success, "
    "error, version, id",
}
"""The fields of a document, by the class of the result; those of a class that is not here are its
own. `entry=sequence` is another name, `backup.id` leads into a field, `key?` is null if it is
empty, `metadata!` is a value, and `operations(kind key)` names what each of several tuples has."""
_TEXTS = ("Scope", "Every", "Cron")
"""Classes whose objects are shown as what they are written as."""
_FIELD = re.compile(r"(?:(\w+)=)?([\w.]+)([?!]?)(?:\(([\w* ]+)\))?")


redact: list[Callable[[Any], Any]] = []
"""What makes of values what people may see; the session says so when it opens a store."""


class Value(NamedTuple):
    """A value of a user's, which is shown in tagged form."""

    content: Any


def plain(found: Any) -> Any:
    """A result, or anything that holds results, as JSON data."""
    name = type(found).__name__
    if isinstance(found, str):
        return redacted(found)
    if found is None or isinstance(found, bool | int | float):
        return found
    if isinstance(found, datetime):
        return found.isoformat()
    if isinstance(found, bytes):
        return len(found)
    if isinstance(found, Value):
        return _tagged(found.content)
    if name in SHAPES:
        return _shaped(found, SHAPES[name])
    if isinstance(found, Mapping):
        return {str(name): plain(one) for name, one in found.items()}
    if isinstance(found, list | tuple):
        return [plain(one) for one in found]
    if name in _TEXTS:
        return str(found)
    if hasattr(found, "data"):
        return _tagged(found.data())
    known = fields_of(found)
    if name == "Cause":
        return {name: text for name, text in known.items() if text is not None}
    return plain(known)


def fields_of(found: Any) -> dict[str, Any]:
    """All fields of a result."""
    names = getattr(found, "__struct_fields__", None) or found.__dataclass_fields__
    return {name: getattr(found, name) for name in names}


def part_of(found: Any, path: str) -> Any:
    """What a path leads to: of several things, that of each; of nothing, nothing."""
    for name in path.split("."):
        if type(found) in (list, tuple):
            found = [getattr(one, name) for one in found]
        elif isinstance(found, Mapping):
            found = found.get(name)
        elif found is not None:
            found = getattr(found, name)
    return found


def redacted(content: Any) -> Any:
    """A value as people may see it."""
    for one in redact:
        content = one(content)
    return content


def _tagged(content: Any) -> Any:
    from holdfast.store.inner import tagged

    content = redacted(content)
    return tagged(content)


def _shaped(found: Any, shape: str) -> dict[str, Any]:
    from holdfast.store.inner import DELETED

    made: dict[str, Any] = {}
    for name, path, sign, parts in _FIELD.findall(shape):
        one = part_of(found, path)
        if sign == "!":
            made |= {name or path: _tagged(one)} if one is not DELETED else {}
        elif parts:
            # A tuple by the names of its parts; the fields of one called * stand beside the others.
            named = [dict(zip(parts.split(), map(plain, row), strict=True)) for row in one]
            made[name or path] = [{**row, **row.pop("*", {})} for row in named]
        else:
            made[name or path] = plain(one) or (None if sign == "?" else plain(one))
    if type(found).__name__ == "Difference":  # null is a value: what has no side does not say it
        made.pop({"added": "before", "removed": "after"}.get(found.kind, ""), None)
    if isinstance(made.get("seconds"), float):
        made["seconds"] = round(made["seconds"], 3)
    return made
