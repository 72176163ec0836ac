"""What is kept of background hooks: their last results, what they failed at, and their places.

It lies in a scope of its own, `custom:$hooks`, that keeps no past; places are cells (`Cursor`). So
any process, also one that has no hooks itself, can tell how they fare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.hooks.hook_events import RESULTS
from holdfast.store.inner import LANES, Core, core_of, cursors, handle_of, keep, own_step
from holdfast.store.names.items import Position
from holdfast.store.store import Store

SCOPE = "custom:$hooks"
KEPT = 1000
"""Results of a hook that are kept."""
CURSOR = "hook/"
"""How the names of cursors of hooks begin."""


@dataclass(frozen=True, slots=True)
class HookRecord:
    """What is known of a background hook in any process."""

    name: str
    behind: int
    """Commits that it has yet to be told of."""
    told: int
    """Events whose results are kept: the last 1,000, or some more."""
    results: Mapping[str, int] = field(default_factory=dict)
    """How often it gave each of them, by their names; `failed` among them."""
    error: str = ""
    """The last failure of those."""


def hook_records(store: Store) -> list[HookRecord]:
    """What is known of all background hooks that this store has ever had."""
    found = []
    for name, position in sorted(cursors(core_of(store), CURSOR).items()):
        kept = kept_results(store, name, "results", 2 * KEPT)
        results = Counter(str(one["result"]) for one in kept)
        error = next((str(one["error"]) for one in kept if one["error"]), "")
        behind = lag(core_of(store), position)
        found.append(HookRecord(name, behind, len(kept), dict(results), error))
    return found


def lag(core: Core, position: Position | None) -> int:
    """How many commits lie behind a position."""
    heads, at = core.lanes.position(), position or Position()
    return sum(max(0, heads.get(lane, 0) - at.get(lane, 0)) for lane in range(LANES))


def keep_results(store: Store, name: str, results: list[dict[str, Any]]) -> None:
    """Keep what a hook gave, the newest of it, and what it failed at."""
    line, failed = handle_of(store).line(SCOPE), [one for one in results if one["error"]]

    def note(parts: Any) -> None:
        part = parts.part(line)
        wanted = keep.Keep(count=0)
        if wanted not in line.reader.declared().all:
            part.set(wanted.key, wanted.data())
        for kind, some in (("results", results[-KEPT:]), ("failed", failed)):
            if some:
                key = f"{RESULTS.prefix}{kind}/{name}"
                part.extend(key, some)
                if line.reader.length(key) + len(some) > KEPT + KEPT // 4:
                    part.trim(key, keep_last=KEPT)

    own_step(handle_of(store), note, reason=f"results of the hook {name}")


def kept_results(store: Store, name: str, kind: str, limit: int) -> list[Mapping[str, Any]]:
    """What is kept of a hook, the newest first: its `results`, or what it `failed` at."""
    key, reader = f"{RESULTS.prefix}{kind}/{name}", handle_of(store).line(SCOPE).reader
    there = reader.length(key)
    return list(reversed(reader.slice(key, max(0, there - limit), there, False)))
