"""The audit: a note of each read of a sensitive value, kept where all else is kept.

Reads change no state of the scope that is read, so their notes are entries of a scope of their
own, `custom:$audit`: durable, sealed, chained, witnessed and verified like any other, and told of
by the feed. A read waits for nothing but memory. Notes are committed together, every second or
every 512 of them, by a thread; with `wait=True` each before the value is given. What cannot be
committed is kept and tried again, and while too many wait, reads of sensitive values are refused:
a note is lost only if the process is killed before it is committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.access.audit_names import Names, key_tag
from holdfast.errors import GateRefusedError, HoldfastError, InvalidInputError
from holdfast.store.commit.core import Core
from holdfast.store.commit.request import Asked, build_change
from holdfast.store.history.handle import LineHandle, StoreHandle
from holdfast.store.journal.entry import Cause
from holdfast.store.journal.lifetime import Terms
from holdfast.store.names.arguments import check_filters, check_flag, check_limit, check_seconds
from holdfast.store.names.scope import Scope
from holdfast.store.read.reader import microseconds, moment
from holdfast.store.rules.gates import Gate, Operation, Reading

if TYPE_CHECKING:
    from holdfast.store import state, store_async

SCOPE = Scope("custom", "$audit")
PREFIX = "$reads/"
TOGETHER = 512
"""Notes that are committed together."""
MOST_WAITING = 16 * TOGETHER
"""Notes that may wait; from then on a read waits until they are committed, or is refused."""
_CAUSE = Cause("audit", "reads of sensitive values")
_log = logging.getLogger("holdfast.audit")


@dataclass(frozen=True, slots=True)
class Read:
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


class Audit:
    """Notes each read of a sensitive value through this open store, from `start` to `stop`.

    Reads are all that a gate's `reading` is told of: see docs/state-classes.md. Each process that
    reads has its own; the notes of all come together. `every` is the longest time in seconds that
    a note waits in memory; `wait=True` commits each before the value is given, in the thread (or
    event loop) that reads.
    """

    def __init__(
        self,
        store: state.Store | store_async.Store,
        *,
        wait: bool = False,
        every: float = 1.0,
    ) -> None:
        core = getattr(store, "_core", None)
        if not isinstance(core, Core):
            raise InvalidInputError("an audit is made from an open store")
        check_flag(wait, "wait")
        check_seconds(every, "every")
        self._core = core
        self._handle = StoreHandle(core)
        self._wait = wait
        self._every = every
        self._gate = _Noting(self)
        self._notes: list[Any] = []
        self._sent: list[Any] = []
        """Notes that may have been committed: the same once more, under one key, are once."""
        self._number = 0
        self._lock = threading.Lock()
        self._committing = threading.Lock()
        self._stirred = threading.Event()
        self._due = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Audit:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # noting

    def start(self) -> None:
        """Begin to note reads, until `stop` or the end of the store."""
        self._core.check_writable()
        if self._thread is not None:
            return
        self._core.gates.add(self._gate)
        self._core.closing.append(self.stop)
        self._thread = threading.Thread(target=self._work, name="holdfast-audit", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Note no more reads, and commit what waits; raises what keeps it from being committed."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._core.gates.remove(self._gate)
        if self.stop in self._core.closing:
            self._core.closing.remove(self.stop)
        self._stirred.set()
        self._due.set()
        thread.join()
        self.flush()

    def note(self, reading: Reading) -> None:
        """Note a read that is about to be answered; raising refuses it."""
        ledger = self._core.ledger(reading.scope)
        line = self._core.timeline(ledger, reading.timeline).number
        tags = [key_tag(ledger, key) for key in reading.keys]
        cause = [getattr(reading.cause, name) for name in Cause.__struct_fields__]
        place = [ledger.number, line, reading.entry]
        if len(self._notes) >= MOST_WAITING:
            self.flush()
        with self._lock:
            self._notes.append([self._core.clock.claimed(), cause, *place, tags])
        if self._wait:
            self.flush()
            return
        self._stirred.set()
        if len(self._notes) >= TOGETHER:
            self._due.set()

    def flush(self) -> None:
        """Commit all notes that wait; what fails stays, to be tried again."""
        with self._committing:
            while some := self._sent or self._notes[:TOGETHER]:
                self._sent = some
                key = f"{PREFIX}{some[-1][0]:016x}-{self._core.writer.hex()}-{self._number}"
                operation = Operation("set", key, some, Terms(class_="trusted"))
                target: Asked = (SCOPE, "main", [operation], {}, None)
                self._core.run(build_change(self._core, [target], cause=_CAUSE))
                self._number += 1
                self._sent = []
                with self._lock:
                    del self._notes[: len(some)]

    def _work(self) -> None:
        while self._thread is not None:
            self._stirred.wait()
            self._due.wait(self._every)
            # Cleared before looking: what comes later sets them again.
            self._stirred.clear()
            self._due.clear()
            try:
                self.flush()
            except Exception:
                # They stay: the storage may serve again in a moment.
                _log.exception("notes of reads could not be committed just now")
                self._stirred.set()

    # reading

    def reads(
        self,
        scope: Any = None,
        *,
        actor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = 100,
    ) -> list[Read]:
        """What was read, by whom and when, newest first: of one scope, or of all."""
        check_filters(actor=actor)
        check_limit(limit)
        low = microseconds(since) if since is not None else 0
        high = microseconds(until) if until is not None else 1 << 62
        wanted = self._handle.of(scope).scope if scope is not None else None
        if not self._core.read_only:
            self.flush()
        names = Names(self._core)
        found: list[Read] = []
        for time, said, number, line, entry, tags in self._kept(low):
            cause = Cause(*said)
            if not low <= time <= high or actor not in (None, cause.actor):
                continue
            ledger = names.ledger(number)
            if wanted is not None and (ledger is None or ledger.scope != wanted):
                continue
            if limit is not None and len(found) >= limit:
                break
            found.append(_read(names, ledger, time, cause, line, entry, tags))
        return found

    def _kept(self, low: int) -> Iterator[Any]:
        """Notes, newest first, from those on that were committed with one of a time."""
        reader = self._line().reader
        for key in reversed(reader.keys(PREFIX, None, f"{PREFIX}{low:016x}")):
            yield from reversed(reader.get(key, []))

    def trim(self, before: datetime) -> int:
        """Remove notes of before a time, as they were committed; how many commits of them went.

        The past of `custom:$audit` keeps them until that is pruned.
        """
        end = f"{PREFIX}{microseconds(before):016x}"
        old = [key for key in self._line().reader.keys(PREFIX, None, "") if key < end]
        for start in range(0, len(old), TOGETHER):
            operations = [Operation("delete", key) for key in old[start : start + TOGETHER]]
            target: Asked = (SCOPE, "main", operations, {}, None)
            self._core.run(build_change(self._core, [target], cause=_CAUSE))
        return len(old)

    def _line(self) -> LineHandle:
        return self._handle.line(SCOPE)


def _read(
    names: Names, ledger: Any, time: int, cause: Cause, line: int, entry: int, tags: list[bytes]
) -> Read:
    if ledger is None:
        return Read(moment(time), cause, None, None, entry, (None,) * len(tags))
    keys = names.keys(ledger, line, entry, tags)
    timeline = names.timeline(ledger, line)
    return Read(moment(time), cause, ledger.scope, timeline, entry, tuple(keys))


class _Noting(Gate):
    """The gate that an audit stands in."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def reading(self, reading: Reading) -> None:
        """Note a read."""
        try:
            self._audit.note(reading)
        except HoldfastError as error:
            raise GateRefusedError(
                f"{reading.scope}: the read cannot be noted, and was refused: {error}"
            ) from error
