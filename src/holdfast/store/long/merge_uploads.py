"""Taking over values that are too long to be read whole, when timelines are merged.

They are written again in pieces, before the entry, as any long value is: what is equal in the
value that the key has here is shared. A mere reference to the other timeline's rows would not do:
these go when that one is pruned.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from holdfast.store.commit.core import Core
from holdfast.store.journal.slot import Slot
from holdfast.store.journal.timeline import Timeline
from holdfast.store.long.read import ByteTree
from holdfast.store.long.uploads import Upload
from holdfast.store.rules.classes import SENSITIVE, class_of


class Carried:
    """The long values that a merge takes over, on their way into the scope."""

    def __init__(self, core: Core, line: Timeline) -> None:
        self._core = core
        self._line = line
        self.uploads: list[Upload] = []
        self.shapes: dict[str, list[Any]] = {}
        """By key, how the entry names its value."""

    def write(self, key: str, source: Slot, class_: str) -> None:
        """Store a value anew for a key of this timeline."""
        line, ours = self._line, self._line.slot(key)
        quiet = SENSITIVE in (class_, class_of(key, source.meta, line.declared))
        shared = (ours.ref, ours.location) if ours is not None else None
        upload = Upload(self._core, line.ledger, shared, quiet=quiet)
        upload.anchors = line.floor.number if ours is not None else None
        self.uploads.append(upload)
        for piece in ByteTree(line.ledger, source.ref, source.location).pieces():
            upload.write(piece)
        self.shapes[key] = upload.finish()

    def commit(self, run: Callable[[], int]) -> int:
        """Commit the entry that names them; while that is tried, nobody sweeps them."""
        with ExitStack() as locks:
            for upload in self.uploads:
                locks.enter_context(upload.pin.lock)
            entry = run()
            for upload in self.uploads:
                self._core.pins.let_go(upload.pin)
            self.uploads = []
        return entry

    def close(self) -> None:
        """Drop what no entry names."""
        for upload in self.uploads:
            upload.abandon()
