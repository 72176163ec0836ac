"""The contract between the store and whatever keeps its bytes.

Storage holds two things. A **record** is written once under its key and never changed, but that
its content may be sealed again under another key (`swaps`); at most 1 MiB. A **cell** is a small
row that is only ever compared and swapped. Keys are ordered byte strings of at most 64 bytes.

What may be assumed of `commit`:
- all or nothing, and only if every expectation of the batch holds at commit time, also on
  rows that the batch does not write;
- when it returns, the batch is durable at the stated level and visible to every later read,
  from any process;
- `Conflict` names in `keys` every expectation that failed, and nothing was applied;
- `Unavailable` means that nothing was applied and never will be;
- `OutcomeUnknown` means that it may have been applied, or may be later.

What may not be assumed: that two reads see one moment, unless they are those of a `moment`; that
notifications arrive; that a clock runs; that `version` distinguishes more than "nobody else has
committed since".

Retry, counting, fault injection, latency and a cache are wrappers of this same contract.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import msgspec

MAX_RECORD = 1 << 20
MAX_CELL = 1 << 12
MAX_KEY = 64
LAST = b"\xff" * (MAX_KEY + 1)
"""Behind all keys: where a range of everything ends."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine can do; what it lacks is refused by name, never imitated."""

    name: str
    max_record: int = MAX_RECORD
    durability: tuple[str, ...] = ("full",)
    shared: bool = False
    """Several processes may use the store at once."""
    embedded: bool = True
    """Calls do not wait for a network, so an event loop may make reads itself."""


class Batch(msgspec.Struct):
    """One atomic change of storage."""

    puts: list[tuple[bytes, bytes]] = []
    """Records. One that is there already with equal bytes is left; with others it is damage."""
    drops: list[bytes] = []
    """Records to remove; one that is absent is no error."""
    blanks: list[bytes] = []
    """Records about to be dropped, whose content an engine may overwrite where it lies."""
    absent: list[bytes] = []
    """Record keys that must not exist before the batch (whether or not it puts them)."""
    present: list[bytes] = []
    """Record keys that must exist before the batch."""
    cells: list[tuple[bytes, bytes | None, bytes | None]] = []
    """(key, expected, new): None stands for absent; new == expected only checks."""
    swaps: list[tuple[bytes, bytes, bytes]] = []
    """Records that are sealed again: (key, the bytes that must be there, new bytes)."""
    own: bool = False
    """Made by the store itself: an engine need not check it, see `storage.batch.check_batch`."""


class Moment(Protocol):
    """All rows as they were at one moment. Used by one thread."""

    def scan(
        self, low: bytes, high: bytes, *, limit: int = 1000, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Records with low <= key < high in key order (or from the end), at most `limit`."""

    def cells(self, low: bytes, high: bytes, *, limit: int = 1000) -> list[tuple[bytes, bytes]]:
        """Cells with low <= key < high in key order, at most `limit`."""


class Storage(Moment, Protocol):
    """An engine, or a wrapper of one. Calls are blocking and may come from any thread."""

    limits: Limits

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The records under these keys, in this order; None where there is none."""

    def commit(self, batch: Batch) -> None:
        """Apply the batch; see the module's text for what its outcomes mean."""

    def version(self) -> object:
        """A token. While it stays equal, no other handle has committed anything since it was taken.

        The handle's own commits need not change it: whoever makes them knows of them.
        """

    def turn(self, *, durable: bool = True) -> AbstractContextManager[object]:
        """Take the right to commit early, so that what is read meanwhile stays true.

        An acceleration: expectations decide, with or without it. Engines without such a
        lock return a context that does nothing. Only one thread of a store uses it at a time.
        What is committed in one that is not `durable` may be so as at the level `normal`, until
        the next commit at the level of the storage makes it durable with itself.
        """

    def moment(self) -> AbstractContextManager[Moment]:
        """Read one moment, in which every commit that returned before is, and each whole or not.

        Others go on reading and writing. What they replace meanwhile may have to be kept for it,
        so that it is for copying all rows once, not for waiting; `Unavailable` if it is lost.
        """

    def size(self) -> int:
        """Bytes that the storage occupies now."""

    def check(self) -> list[str]:
        """What the engine itself finds wrong with what it keeps rows in; [] if nothing.

        For damage that no read shows. Others go on reading and writing meanwhile.
        """

    def settle(self) -> bool:
        """See to it that what was removed before is not in the engine's logs any more.

        Waits a second at most for others who still read there; False if they go on.
        """

    def close(self) -> None:
        """Release everything; a second call does nothing."""


# ---- process id ---------------------------------------------------------------------------------
# Which process this is, known without asking the system at every call.


process_number = os.getpid()
"""That of this process, also after `os.fork()`."""


def _forked() -> None:
    global process_number
    process_number = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
