"""Putting expiry off, and removing what has expired.

A key that has expired reads as absent at once; it is in the index until a sweep writes the entry
that removes it, which is like any other: it can be travelled behind. What is to be written is
judged again when it is written, by the store's checked clock, so that nothing goes that somebody
has set or put off meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast.errors import Conflict, ScopeNotFoundError, StateIntegrityError, TimelineNotFoundError
from holdfast.store.commit.change import judging
from holdfast.store.commit.stage import Stage
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.journal import directory
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_flag, check_limit
from holdfast.store.names.cause import Cause
from holdfast.store.names.items import Swept
from holdfast.store.names.threads import safe_point
from holdfast.store.upkeep.erase import finish_erasures

LOOKED = 10_000
"""Keys that a sweep looks at before it lets others have their turn."""
REMOVED = 1000
"""Most keys that one entry of a sweep removes."""
ACTOR = "system"
SWEPT = Cause(ACTOR, "expired")
"""Why a key was removed that had expired."""

# sweeping


def sweep_state(handle: LineHandle, limit: int | None) -> int:
    """Remove the expired keys of one timeline; tells how many."""
    check_limit(limit)
    handle.ask("sweep", handle.timeline)
    line = handle.reader.now()
    removed = handle.core.ephemerals.sweep(line, handle.reader.time()) if line is not None else 0
    after = ""
    more = True
    while more and (limit is None or removed < limit):
        safe_point()
        most = REMOVED if limit is None else min(REMOVED, limit - removed)
        keys, after, more = _expired(handle, after, most)
        if keys:
            removed += _remove(handle, keys)
    return removed


def _expired(handle: LineHandle, after: str, most: int) -> tuple[list[str], str, bool]:
    """Some expired keys behind `after`, the last key looked at, and whether there are more."""
    reader = handle.reader
    timeline = reader.now()
    found: list[str] = []
    if timeline is None:
        return found, after, False
    now = reader.time()
    for looked, (key, slot) in enumerate(timeline.scan("", after)):
        if looked >= LOOKED or len(found) >= most:
            return found, after, True
        after = key
        if slot.meta and slot.over(now):
            found.append(key)
    return found, after, False


def _remove(handle: LineHandle, keys: list[str]) -> int:
    def gone(stage: Stage, key: str) -> tuple[Any, ...] | None:
        slot = stage.slot(key)
        return ("delete", key) if slot is not None and slot.over(stage.now) else None

    change, done = judging(handle.scope, handle.timeline, keys, gone, SWEPT)
    try:
        handle.core.run(change)
    except (Conflict, ScopeNotFoundError):  # somebody wrote, or erased it: the next sweep looks
        return 0
    return len(done)


def sweep_store(handle: StoreHandle, limit: int | None, wait: bool) -> Swept:
    """Remove expired keys of every timeline of every scope, and unfinished values."""
    check_limit(limit)
    check_flag(wait, "wait")
    handle.core.check_writable()
    removed = 0
    damaged: list[str] = []
    found = directory.scopes(handle.core, lambda key, _: damaged.append(rowkinds.describe(key)))
    for scope in [scope for scope, *_ in found]:
        try:
            for info in handle.line(scope).history.timelines():
                left = limit - removed if limit is not None else None
                with suppress(TimelineNotFoundError):  # ended meanwhile
                    removed += sweep_state(handle.line(scope, info.name), left)
        except StateIntegrityError:
            damaged.append(str(scope))  # others do not wait for its repair
    handle.core.leases.stand()  # what is swept here is in no entry
    erased, count, size = finish_erasures(handle)
    done = handle.core.pins.sweep(wait=wait)
    count, size = count + done.rows, size + done.bytes
    swept = replace(done, keys=removed, erased=erased, rows=count, bytes=size)
    return replace(swept, damaged=tuple(damaged))
