"""What an agent did, as its journal tells: when which keys were written, and how much each takes.

No values: of each only whether it is the same as one that the key had before. So a recording can be
kept, handed on and led through policies (`optimizer`) where the agent's state may not go; what keys
are called is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.checkpoints.policy.metrics import counted
from holdfast.checkpoints.policy.policy import Policy, invalid
from holdfast.errors import InvalidInputError, StateIntegrityError
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal import entry
from holdfast.store.journal.entry import shown
from holdfast.store.journal.floor import floor_of
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import listed
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import safe_point

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core
    from holdfast.store.journal.entry import Body

FORMAT = "holdfast-recording/1"


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One entry of an agent's journal."""

    time: float
    """Seconds since 1970, as claimed."""
    writes: tuple[tuple[str, int, int], ...]
    """(key, bytes, which) of each key that was written: bytes with its name, 0 where the key went;
    equal numbers are equal values of the key."""
    policy: str | None = None
    """The policy whose checkpoint it is; empty: somebody else's; None: no checkpoint."""
    bytes: int = 0
    """What the entry takes in the store."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What an agent did, and the policies that it had when it was recorded."""

    scope: Scope
    policies: tuple[Policy, ...]
    steps: tuple[Step, ...]

    def data(self) -> dict[str, Any]:
        """Plain data, for JSON; `Recording.of` reads it."""
        return {
            "format": FORMAT,
            "scope": str(self.scope),
            "policies": [policy.data() for policy in self.policies],
            "steps": msgspec.to_builtins(self.steps),
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Recording:
        """A recording of plain data."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise InvalidInputError(f"this is no recording; `data()` of one has format {FORMAT}")
        try:
            steps = msgspec.convert(data.get("steps"), tuple[Step, ...])
        except msgspec.ValidationError as error:
            raise InvalidInputError(f"this recording cannot be read: {error}") from None
        if any(later.time < earlier.time for earlier, later in pairwise(steps)):
            raise InvalidInputError("the steps of a recording are in the order of their times")
        policies = tuple(map(Policy.of, listed(data.get("policies", ()), "policies")))
        for policy in policies:
            given = {condition.metric for condition in policy.conditions}
            if problems := policy.problems(given, encrypted=True):
                raise invalid([f"{policy.id}: {text}" for text in problems])
        return cls(Scope.parse(data.get("scope", "")), policies, steps)


def record(core: Core, scope: Scope, policies: tuple[Policy, ...]) -> Recording:
    """The agent's history; memory grows with its entries."""
    return Recording(scope, policies, tuple(_steps(core, scope)))


def _steps(core: Core, scope: Scope) -> Iterator[Step]:
    now = LineHandle(core, scope, "main").reader.now()
    if now is None:
        return
    line = Timeline(now.ledger, 0)
    if now.floor.sequence:  # what is before was pruned: it begins with what was there
        line.load(now.floor.sequence)
    begun = {key for key, _ in line.scan()}
    known: dict[str, dict[bytes, int]] = {}
    latest = 0.0
    while page := now.ledger.storage.scan(
        rowkinds.entry(line.prefix, line.sequence + 1), rowkinds.after(line.prefix), limit=200
    ):
        for key, row in page:
            body = line.follow(key, row)
            latest = max(latest, body.time / 1_000_000)  # a clock that went back stands still
            writes = tuple(_writes(line, body, known, begun))
            begun = set()
            yield Step(latest, writes, _policy(core, body), len(row))


def checkpoint_costs(core: Core, scope: Scope, unread: list[str]) -> Iterator[tuple[str, int]]:
    """Policy and bytes of each checkpoint of a policy; what cannot be read is noted.

    The newest state is not asked for: behind damage there may be none.
    """
    ledger = core.ledger(scope)  # one that is not there has no history: it is misspelt
    line = rowkinds.line(b"E", ledger.number, 0)
    due = max(floor_of(ledger, 0).sequence, ledger.before) + 1
    while page := ledger.storage.scan(rowkinds.entry(line, due), rowkinds.after(line), limit=200):
        for key, row in page:
            found = rowkinds.sequence_of(key)
            if found > due:
                unread.append(f"entries {due} to {found - 1}: missing")
            due = found + 1
            try:
                policy = _policy(core, ledger.open_entry(key, row)[1])
            except StateIntegrityError as error:
                unread.append(f"entry {found}: {type(error).__name__}")
                continue
            if policy:
                yield policy, len(row)
        safe_point()


def _policy(core: Core, body: Body) -> str | None:
    """Whose checkpoint an entry is."""
    policy = None
    for op in body.ops:
        if op[0] == entry.CHECKPOINT:
            data = core.codec.decode(op[6]) if len(op) > 6 and op[6] else {}
            policy = str(data.get("policy", ""))
    return policy


def _writes(
    line: Timeline, body: Body, known: dict[str, dict[bytes, int]], begun: set[str]
) -> Iterator[tuple[str, int, int]]:
    if any(op[0] in (entry.RESTORE, entry.FORK) for op in body.ops):
        keys = {*known, *(key for key, _ in line.scan())}
    else:
        keys = begun.union(key for _, key in shown(body.ops) if key)
    for key in sorted(filter(counted, keys)):
        slot, values = line.slot(key), known.setdefault(key, {b"": 0})
        kept = slot.described() + bytes(len(slot.tail or ())) if slot is not None else b""
        size = slot.size() + len(key) + 1 if slot is not None else 0
        yield key, size, values.setdefault(kept, len(values))
