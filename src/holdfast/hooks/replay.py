"""Replaying hooks over the journal: what they would give for what has happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.hooks.hook import KEPT, Hook, HookOutcome, kept_results
from holdfast.hooks.hook_events import Changed
from holdfast.store.names.arguments import by_name
from holdfast.store.names.items import Entry
from holdfast.store.store import Store

MODES = ("exact", "modified", "simulate", "debug")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From a time to another; None stands for no bound."""

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def last_hour(cls) -> TimeRange:
        """From an hour ago until now."""
        return cls(datetime.now(UTC) - timedelta(hours=1))


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay of a hook came to."""

    hook: str
    mode: str
    results: tuple[HookOutcome, ...]

    @property
    def differences(self) -> tuple[HookOutcome, ...]:
        """Events for which the hook gave something else than it did then."""
        return tuple(one for one in self.results if not one.same)

    @property
    def failures(self) -> tuple[HookOutcome, ...]:
        """Events that the hook failed at."""
        return tuple(one for one in self.results if one.error)

    def __str__(self) -> str:
        said = f"{self.hook} ({self.mode}): {len(self.results)} events"
        given = Counter(one.result for one in self.results)
        shown = ", ".join(f"{name} {count}" for name, count in given.items())
        ended = f"{len(self.differences)} differ, {len(self.failures)} failed"
        lines = [f"{said}, {ended}{f' ({shown})' if shown else ''}"]
        for one in (*self.differences, *self.failures):
            place = f"{one.event['scope']} {one.event['timeline']}@{one.event['entry']}"
            what = f"{one.before or 'unknown'} then, {one.result} now"
            lines.append(f"  {place} {one.event['key']}: {one.error or what}")
        return "\n".join(dict.fromkeys(lines))


def replay(
    store: Store,
    hook: Hook,
    since: datetime | TimeRange | None,
    mode: str,
    params: Mapping[str, Any] | None,
) -> ReplayReport:
    """Call a hook with the events of a time; nothing of what it gives is done."""
    if mode not in MODES:
        raise InvalidInputError(f"mode is {', '.join(MODES)}")
    given = by_name(params, "params")
    if given and mode not in ("modified", "simulate"):
        raise InvalidInputError("params go with mode='modified', or 'simulate'")
    kept = kept_results(store, hook.name, "results", 2 * KEPT) if hook.behind else []
    before = {_place(one): str(one["result"]) for one in reversed(kept)}
    found = []
    for event in reversed(changes(store, hook, since)):
        told = hook.ask(event, params=given, replay=mode)
        told.before = before.get(_place(told.event), "")
        if mode != "debug":
            told.seconds = 0.0
        found.append(told)
    return ReplayReport(hook.name, mode, tuple(found))


def changes(store: Store, hook: Hook, since: datetime | TimeRange | None) -> list[Changed]:
    """The events of a time that a hook is told of, the newest first."""
    time = since if isinstance(since, TimeRange) else TimeRange(since)
    states = [store.scope(one.scope) for one in store.scopes().items]
    entries: list[Entry] = []
    for state in (one for one in states if hook.scopes.fit(str(one.scope))):
        for line in state.timelines():
            log = state.on(line.name).log
            entries += log(since=time.since, until=time.until, limit=None, newest_first=False)
    entries.sort(key=lambda one: one.time)
    return [event for entry in entries for event in hook.events(store, entry)][::-1]


def _place(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(one[name] for name in ("event", "scope", "timeline", "entry", "key"))
