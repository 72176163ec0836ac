"""The audit: a note of each read of a sensitive value, kept where all else is kept.

Reads change no state of the scope that is read, so their notes are entries of a scope of their
own, `custom:$audit`: durable, sealed, chained, witnessed and verified like any other, and told of
by the feed. A read waits for nothing but memory. Notes are committed together, every second or
every 512 of them, by a thread; with `wait=True` each before the value is given. What cannot be
committed is kept and tried again, and while too many wait, reads of sensitive values are refused:
a note is lost only if the process is killed before it is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.access.grants import READS
from holdfast.errors import (
    GateRefusedError,
    HoldfastError,
    InvalidInputError,
    KeyringError,
    PointNotFoundError,
    ScopeNotFoundError,
    StateIntegrityError,
)
from holdfast.store.inner import (
    Asked,
    Core,
    Gate,
    GateReading,
    Ledger,
    Operation,
    StoreHandle,
    Terms,
    build_change,
    by_number,
    core_of,
    folded_at,
    microseconds,
    moment,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_filters, check_flag, check_limit, check_seconds
from holdfast.store.names.background import Behind, Startable
from holdfast.store.names.cause import Cause
from holdfast.store.names.face import ends, faced, here, writes
from holdfast.store.names.scope import Scope
from holdfast.store.store import Store

SCOPE = Scope("custom", "$audit")
PREFIX = READS.prefix
TOGETHER = 512
"""Notes that are committed together."""
MOST_WAITING = 16 * TOGETHER
"""Notes that may wait; from then on a read waits until they are committed, or is refused."""
_CAUSE = Cause("audit", "reads of sensitive values")


@dataclass(frozen=True, slots=True)
class AuditedRead:
    """A read of sensitive keys; never their values."""

    time: datetime
    cause: Cause
    """Who read, and why, as far as `acting` said so: remarks of the reader."""
    scope: Scope | None
    """None if the scope was erased since."""
    timeline: str | None
    entry: int
    """The entry whose state was read."""
    keys: tuple[str | None, ...]
    """None for a key whose name cannot be told any more: the scope is erased, or that entry and
    all others that were read with the key are pruned."""


@faced
class Audit(Startable):
    """Notes each read of a sensitive value through this open store, from `start` to `stop`.

    Reads are all that a gate's `reading` is told of: see docs/rules.md. Each process that
    reads has its own; the notes of all come together. `every` is the longest time in seconds that
    a note waits in memory; `wait=True` commits each before the value is given, in the thread (or
    event loop) that reads.
    """

    def __init__(
        self,
        store: Store,
        *,
        wait: bool = False,
        every: float = 1.0,
    ) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError("an audit is made from an open store")
        core = core_of(store)
        check_flag(wait, "wait")
        check_seconds(every, "every")
        self._core = core
        self._handle = StoreHandle(core)
        self._wait = wait
        self._gate = _Noting(self)
        self._number = 0
        self._background: Behind[Any] = Behind(
            core, "holdfast-audit", every, self._commit, batch=TOGETHER, most=MOST_WAITING
        )

    # noting

    @here(awaited=True)
    def start(self) -> None:
        """Begin to note reads, until `stop` or the end of the store."""
        self._core.check_writable()
        self._core.gates.remove(self._gate)  # a second call adds it once
        self._core.gates.add(self._gate)
        self._background.start()

    @ends
    def stop(self) -> None:
        """Note no more reads, and commit what waits; raises what keeps it from being committed."""
        self._core.gates.remove(self._gate)
        self._background.stop()

    def _note(self, reading: GateReading) -> None:
        """Note a read that is about to be answered; raising refuses it."""
        ledger = self._core.ledger(reading.scope)
        line = self._core.timeline(ledger, reading.timeline).number
        tags = [key_tag(ledger, key) for key in reading.keys]
        cause = [getattr(reading.cause, name) for name in Cause.__struct_fields__]
        place = [ledger.number, line, reading.entry]
        note = [self._core.clock.claimed(), cause, *place, tags]
        while not self._background.put(note):
            self.flush()
        if self._wait:
            self.flush()

    @writes
    def flush(self) -> None:
        """Commit all notes that wait; what fails stays, to be tried again."""
        self._background.flush()

    def _commit(self, some: list[Any]) -> None:
        # The same once more, under one key, are once.
        key = f"{PREFIX}{some[-1][0]:016x}-{self._core.writer.hex()}-{self._number}"
        operation = Operation("set", key, some, Terms(class_="trusted"))
        target: Asked = (SCOPE, "main", [operation], {}, None)
        self._core.run(build_change(self._core, [target], cause=_CAUSE))
        self._number += 1

    # reading

    def reads(
        self,
        scope: Any = None,
        *,
        actor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = 100,
    ) -> list[AuditedRead]:
        """What was read, by whom and when, newest first: of one scope, or of all."""
        check_filters(actor=actor)
        check_limit(limit)
        low = microseconds(since) if since is not None else 0
        high = microseconds(until) if until is not None else 1 << 62
        wanted = self._handle.of(scope).scope if scope is not None else None
        if not self._core.read_only:
            self.flush()
        names = Names(self._core)
        found: list[AuditedRead] = []
        for time, said, number, line, entry, tags in self._kept(low):
            cause = Cause(*said)
            if not low <= time <= high or actor not in (None, cause.actor):
                continue
            ledger = names.ledger(number)
            if wanted is not None and (ledger is None or ledger.scope != wanted):
                continue
            if limit is not None and len(found) >= limit:
                break
            keys: list[str | None] = [None] * len(tags)
            timeline = None
            if ledger is not None:
                keys = names.keys(ledger, line, entry, tags)
                timeline = names.timeline(ledger, line)
            known = ledger.scope if ledger is not None else None
            found.append(AuditedRead(moment(time), cause, known, timeline, entry, tuple(keys)))
        return found

    def _kept(self, low: int) -> Iterator[Any]:
        """Notes, newest first, from those on that were committed with one of a time."""
        reader = self._handle.line(SCOPE).reader
        for key in reversed(reader.keys(PREFIX, None, f"{PREFIX}{low:016x}")):
            yield from reversed(reader.get(key, []))

    @writes
    def trim(self, before: datetime) -> int:
        """Remove notes of before a time, as they were committed; how many commits of them went.

        The past of `custom:$audit` keeps them until that is pruned.
        """
        end = f"{PREFIX}{microseconds(before):016x}"
        old = [key for key in self._handle.line(SCOPE).reader.keys(PREFIX, None, "") if key < end]
        for start in range(0, len(old), TOGETHER):
            operations = [Operation("delete", key) for key in old[start : start + TOGETHER]]
            target: Asked = (SCOPE, "main", operations, {}, None)
            self._core.run(build_change(self._core, [target], cause=_CAUSE))
        return len(old)


class _Noting(Gate):
    """The gate that an audit stands in."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def reading(self, reading: GateReading) -> None:
        """Note a read."""
        try:
            self._audit._note(reading)
        except HoldfastError as error:
            raise GateRefusedError(
                f"{reading.scope}: the read cannot be noted, and was refused: {error}"
            ) from error


# ---- audit names --------------------------------------------------------------------------------
# The names that notes of an audit stand for.
#
# A note holds the number of a scope and tags of keys, made with what the scope alone has (its
# commitment key, or its salt in a plain store). So notes outlive a scope that is erased, and its
# names do not: from then on nobody can tell, or confirm a guess of, what a tag stood for.


def key_tag(ledger: Ledger, key: str) -> bytes:
    """What stands for a key of a scope."""
    return ledger.tag(b"audit", ledger.page_key + _bytes(key))


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


class Names:
    """Finds scopes, timelines and keys by what notes hold of them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._directory = by_number(core)
        self._ledgers: dict[int, Ledger | None] = {}
        self._lines: dict[int, dict[int, str]] = {}
        self._keys: dict[int, dict[bytes, str]] = {}
        self._walked: set[tuple[int, int, int]] = set()

    def ledger(self, number: int) -> Ledger | None:
        """The scope, also one that is deleted; None if it is erased."""
        if number not in self._ledgers:
            self._ledgers[number] = None
            key, row = self._directory.get(number, (b"", b""))
            if key and key[21] != rowkinds.ERASED:
                with suppress(ScopeNotFoundError, KeyringError):
                    self._ledgers[number] = self._core.ledger_of(key, row)
        return self._ledgers[number]

    def timeline(self, ledger: Ledger, line: int) -> str | None:
        """The name of a timeline."""
        if ledger.number not in self._lines:
            found = self._core.timelines(ledger)
            self._lines[ledger.number] = {number: name for number, name, _, _ in found}
        return self._lines[ledger.number].get(line)

    def keys(self, ledger: Ledger, line: int, entry: int, tags: list[bytes]) -> list[str | None]:
        """The keys that tags stand for: they were there at the entry that was read."""
        known = self._keys.setdefault(ledger.number, {})
        place = (ledger.number, line, entry)
        if place not in self._walked and not known.keys() >= set(tags):
            self._walked.add(place)
            # What is pruned or damaged cannot be looked through: then a key may have no name.
            with suppress(PointNotFoundError, StateIntegrityError):
                for element in ledger.trees.walk(folded_at(ledger, line, entry)):
                    key = element[0]
                    known[key_tag(ledger, key)] = key
                    known[ledger.tag(b"audit", _bytes(key))] = key  # of notes without the salt
        return [known.get(tag) for tag in tags]
