"""What other stores hold sealed for a subject: its key is in their ring, and not in ours."""

from __future__ import annotations

from holdfast.errors import InvalidInputError, KeyMissingError
from holdfast.recovery.target import Unfit
from holdfast.seal.codec import Codec, Unbuilt
from holdfast.store.commit.core import Core
from holdfast.store.history.diff import index_of
from holdfast.store.history.handle import LineHandle


def check_opens(core: Core, there: LineHandle, sequence: int) -> None:
    """Refuse a state of another store with values that nobody could read in this one."""
    if not _has_subjects(there.core):
        return
    codec = Codec(Unbuilt(), core.codec.limits)
    codec.unseal = core.subjects.unseal
    line = there.history.points.view(there.timeline, sequence)
    for element in line.ledger.trees.walk(index_of(line), ""):
        slot = line.slot(element[0])
        assert slot is not None
        try:
            line.ledger.value_of(element[0], line.settled(slot), codec)
        except (InvalidInputError, KeyMissingError):
            raise Unfit(
                f"what is sealed for a subject in {element[0]!r} could not be read here: the key "
                "is in the ring of that store"
            ) from None


def _has_subjects(core: Core) -> bool:
    """Whether anything may be sealed for a subject; also for one that is erased."""
    erased = core.storage.scan(b"U", b"V", limit=1)
    return core.ring is not None and bool(erased or next(core.subjects.cells(), None))
