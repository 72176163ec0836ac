"""Verifying that nothing is left of what was erased, while somebody may just be erasing it.

What is left is noted, together with what erasing changes as it goes on. It is told when the check
ends, if it is still there and nothing of that has changed for a while: then erasing was cut short.
A check with a budget does not wait for longer than that: the next one looks at it again.
Whoever erases shows that it goes on: it drops rows, or else changes the scope's cell `A`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.seal.subjects import holds_subject
from holdfast.store.journal.tombstones import Tombstone
from holdfast.store.names import rowkinds
from holdfast.store.names.threads import safe_point

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core
    from holdfast.store.proof.verify import _Check

PATIENCE = 2.0
"""Seconds without any change after which erasing counts as cut short. It is many times as long as
`erasing.BEAT`, and longer than the ring's log is waited for. Time in which this process itself
stood still is not among them: who erases may have stood still with it."""
AGAIN = "erasing it was cut short; erase it again"
_PAUSE = 0.02
_STANDING = "left/"

_There = Callable[[], bool]


class _Erased:
    """One that is erased, and what was found of it."""

    def __init__(self, trace: Callable[[], object]) -> None:
        self.trace = trace
        self.seen = trace()
        self.found: list[tuple[str, str, _There]] = []

    def goes_on(self) -> bool:
        """Whether somebody was at it since it was first looked at."""
        return self.trace() != self.seen

    def sign(self, name: bytes) -> str:
        """By which it is known in another call, for as long as nobody is at it."""
        return hashlib.sha256(name + repr(self.seen).encode()).hexdigest()[:12]

    def still(self) -> list[tuple[str, str, _There]]:
        """What is still there of what was found."""
        return [one for one in self.found if one[2]()]


@dataclass(frozen=True, slots=True)
class Standing:
    """Those that nobody was at when the time was used up, for whoever resumes."""

    since: float
    signs: frozenset[str]

    def __str__(self) -> str:
        """As `verify(resume=)` takes it."""
        return f"{_STANDING}{self.since:.3f}/{','.join(sorted(self.signs))}"


def read_standing(text: str | None) -> Standing | None:
    """Read it; None if the text stands for something else."""
    since, _, signs = (text or "").removeprefix(_STANDING).partition("/")
    if text is None or not text.startswith(_STANDING) or not since.replace(".", "", 1).isdecimal():
        return None
    return Standing(float(since), frozenset(signs.split(",")))


class Leftovers:
    """What was found of scopes and subjects that are erased."""

    def __init__(self, check: _Check) -> None:
        self._check = check
        self._core = check.core
        self._erased: dict[bytes, _Erased] = {}

    def __bool__(self) -> bool:
        return bool(self._erased)

    def row(self, key: bytes, tombstone: Tombstone, at: bytes) -> None:
        """Note a row of an erased scope; `at`: where its tombstone lies."""

        def there() -> bool:
            swept_later = is_unswept(self._core, tombstone, at)
            return not swept_later and self._core.storage.get([key])[0] is not None

        self._scope(
            tombstone, at, rowkinds.describe(key), f"left of an erased scope: {AGAIN}", there
        )

    def key_of_scope(self, tombstone: Tombstone, at: bytes) -> None:
        """Note that the ring holds the key of an erased scope."""
        message = f"the key of an erased scope is in the ring: {AGAIN}"
        self._scope(
            tombstone, at, rowkinds.describe(at), message, lambda: _has_key(self._core, tombstone)
        )

    def cell_of_subject(self, key: bytes, cell: bytes, id: bytes) -> None:
        """Note the cell of a subject that says that it is being erased."""
        place, subjects = rowkinds.describe(key), self._core.subjects
        trace = lambda: (subjects.cell(key), self._holds(id))  # noqa: E731
        self._note(b"cell" + key, trace, place, AGAIN, lambda: subjects.cell(key) == cell)

    def key_of_subject(self, tombstone: bytes) -> None:
        """Note that the ring holds the key of an erased subject."""
        message = f"the key of an erased subject is in the ring: {AGAIN}"
        there = lambda: self._holds(tombstone[1:])  # noqa: E731
        self._note(tombstone, there, rowkinds.describe(tombstone), message, there)

    def settle(self, end: float | None, before: Standing | None = None) -> str | None:
        """Tell what is left of those that nobody is at; that is waited for.

        If `end` comes first, nothing is told, and another call goes on with what this one returns.
        """
        now = time.time()
        since = now if before is None else min(before.since, now)
        over = time.monotonic() + PATIENCE - (now - since)
        waiting = {erased.sign(name): erased for name, erased in self._erased.items()}
        waiting = {sign: erased for sign, erased in waiting.items() if erased.still()}
        if before is not None:
            waiting = {sign: erased for sign, erased in waiting.items() if sign in before.signs}
        while waiting := {sign: one for sign, one in waiting.items() if not one.goes_on()}:
            if time.monotonic() >= over:
                break
            if end is not None and time.monotonic() >= end:
                return str(Standing(since, frozenset(waiting)))
            safe_point()
            begun = time.monotonic()
            time.sleep(_PAUSE)
            over += max(0.0, time.monotonic() - begun - _PAUSE)
        for erased in waiting.values():
            for place, message, _ in erased.still():
                self._check.find("erasure", place, message)
        return None

    def _scope(
        self, tombstone: Tombstone, at: bytes, place: str, message: str, there: _There
    ) -> None:
        self._note(at, lambda: _trace(self._core, tombstone, at), place, message, there)

    def _note(
        self, name: bytes, trace: Callable[[], object], place: str, message: str, there: _There
    ) -> None:
        if name not in self._erased:
            self._erased[name] = _Erased(trace)
        self._erased[name].found.append((place, message, there))

    def _holds(self, id: bytes) -> bool:
        return self._core.ring is not None and holds_subject(self._core.ring, id)


def is_unswept(core: Core, tombstone: Tombstone, at: bytes) -> bool:
    """Whether the rows of an erased scope may be there: its key is gone, and a sweep finds them."""
    there = at[:21] + bytes([rowkinds.THERE])
    gone = core.ring is not None and not core.ring.holds(tombstone.id)
    return gone and core.storage.get([there])[0] is not None


def _has_key(core: Core, tombstone: Tombstone) -> bool:
    return core.ring is not None and core.ring.holds(tombstone.id)


def _trace(core: Core, tombstone: Tombstone, at: bytes) -> object:
    """What erasing a scope changes: its key, its directory rows, the first rows, who is at it."""
    number = tombstone.number.to_bytes(rowkinds.SCOPE, "big")
    directory = core.storage.scan(at[:21], rowkinds.after(at[:21]))
    first = [
        core.storage.scan(kind + number, rowkinds.after(kind + number), limit=1)
        for kind in rowkinds.OF_SCOPE
    ]
    cell = core.storage.cells(
        rowkinds.pruner(tombstone.number), rowkinds.pruner(tombstone.number) + b"\0"
    )
    names = [[key for key, _ in page] for page in (directory, *first)]
    return _has_key(core, tombstone), names, cell
