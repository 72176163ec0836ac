"""Pins: what keeps rows that no entry names yet, and lets them be swept once nobody needs them.

The rows of a long value are written before the entry that names them. A pin says so: a cell that
is put with the first rows, and removed by the commit of the entry. It holds its owner and a beat,
which goes up with every commit of rows and, while the owner lives, every `BEAT` seconds besides.

Whoever finds a pin whose beat has stood still for `TERM` seconds, by its own monotonic clock, may
sweep it: first the cell is swapped for `SWEPT`, from which moment the owner, should it wake again,
can neither write more rows nor the entry, for both expect their own beat; then the rows are
dropped, then the cell. Clocks are never compared, and a sweep that is cut short is finished by the
next one. So no row goes that a living writer needs; one that was stopped for longer is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from holdfast.errors import Conflict, HoldfastError
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.rows import each, pages
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_flag
from holdfast.store.names.cells import cell_at, swap_cells
from holdfast.store.names.items import Swept
from holdfast.store.names.threads import safe_point

BEAT, TERM = 10.0, 60.0
"""Seconds between two signs of life, and without one until it is swept: five may be missed."""
SWEPT = b"\0"
SLICE = 64
"""Rows that are dropped together: what bounds memory and the length of a commit."""


class Pin:
    """The pin of one upload, held by this process."""

    def __init__(self, key: bytes, owner: bytes) -> None:
        self.key = key
        self.lock = threading.RLock()
        """Held while the cell, or what rests on it, is committed."""
        self.value: bytes | None = None
        """What the cell holds; None while it is absent."""
        self.over = False
        """Its owner goes on no more, or has been overtaken by a sweep."""
        self._owner = owner
        self._beat = 0

    def next(self) -> bytes:
        """What the cell is to hold next; never the same twice."""
        self._beat += 1
        return self._owner + self._beat.to_bytes(8, "big")


class Pins:
    """The pins of one open store, and the sweeping of those that others have left."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()  # the thread ends when none live, and starts with the first
        self._live: dict[bytes, Pin] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._seen: dict[bytes, tuple[bytes, float]] = {}
        """What others' pins held, and since when, by this process's clock."""

    # an owner's side

    def commit(self, pin: Pin, batch: Batch) -> None:
        """Commit rows of an upload, if the pin is still its owner's."""
        with pin.lock:
            if pin.over:
                raise _swept()
            new = pin.next()
            if not swap_cells(self._storage, [(pin.key, pin.value, new)], beside=batch):
                pin.over = True
                raise _swept()
            pin.value = new
        with self._lock:
            if not pin.over and pin.key not in self._live:
                self._live[pin.key] = pin
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._work, name="holdfast-pins", daemon=True
                    )
                    self._thread.start()

    def check(self, pin: Pin) -> None:
        """Tell an owner whose pin is no longer its own."""
        if pin.over or cell_at(self._storage, pin.key) != pin.value:
            raise _swept() from None

    def let_go(self, pin: Pin) -> None:
        """The entry is committed, which removed the cell."""
        pin.over = True
        with self._lock:
            self._live.pop(pin.key, None)

    def abandon(self, pin: Pin) -> None:
        """Drop what was written under a pin; if that fails, it is left to a sweep.

        If the entry was committed after all, the cell is gone, and nothing is dropped.
        """
        with pin.lock:
            self.let_go(pin)
            if pin.value is not None:
                with suppress(HoldfastError):
                    self._storage.commit(Batch(cells=[(pin.key, pin.value, SWEPT)]))
                    self.drop(pin.key)

    def _work(self) -> None:
        while not self._stop.wait(BEAT):
            with self._lock:
                pins = list(self._live.values())
                if not pins:
                    self._thread = None
                    return
            for pin in pins:
                if pin.over:
                    self.abandon(pin)
                    continue
                with suppress(HoldfastError):  # told when its owner writes; or tried again
                    self.commit(pin, Batch())
            with suppress(HoldfastError):
                self.sweep()

    def close(self) -> None:
        """Abandon what is not finished, and stop beating."""
        self._stop.set()
        with self._lock:
            pins, thread = list(self._live.values()), self._thread
        for pin in pins:
            self.abandon(pin)
        if thread is not None:
            thread.join()

    # sweeping

    def all(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and contents of all pins that are stored."""
        return each(self._storage.cells, b"P", b"Q")

    def sweep(self, *, wait: bool = False) -> Swept:
        """Drop the rows of uploads that nobody goes on with; see `Store.sweep`."""
        check_flag(wait, "wait")
        end = time.monotonic() + TERM
        uploads = dropped = size = 0
        while True:
            now, waiting = time.monotonic(), 0
            found = dict(self.all())
            self._seen = {
                key: seen if (seen := self._seen.get(key)) and seen[0] == value else (value, now)
                for key, value in found.items()
            }
            for key, value in found.items():
                if key in self._live:
                    continue
                if value != SWEPT:
                    if now - self._seen[key][1] < TERM:
                        waiting += 1
                        continue
                    try:
                        self._storage.commit(Batch(cells=[(key, value, SWEPT)]))
                    except Conflict:
                        continue  # its owner lives
                count, length = self.drop(key)
                uploads, dropped, size = uploads + 1, dropped + count, size + length
            if now > end or not wait or not waiting:
                return Swept(uploads, dropped, size, waiting)
            safe_point()
            time.sleep(min(1.0, TERM / 10))

    def drop(self, key: bytes) -> tuple[int, int]:
        """Drop the rows of a swept pin, then its cell; how many rows and bytes."""
        count = size = 0
        for kind in (b"V", b"N"):
            prefix = rowkinds.pinned(key, kind)
            for page in pages(self._storage.scan, prefix, rowkinds.after(prefix), limit=SLICE):
                self._storage.commit(Batch(drops=[row_key for row_key, _ in page]))
                count += len(page)
                size += sum(len(row_key) + len(row) for row_key, row in page)
        with suppress(Conflict):  # another sweep has come first
            self._storage.commit(Batch(cells=[(key, SWEPT, None)]))
        return count, size


def _swept() -> Conflict:
    """The error of a writer that has slept too long."""
    return Conflict(
        f"this value was not finished and its writer stood still for over {TERM:.0f} s, so what "
        "was written of it has been swept; write it again"
    )
