"""The end of a recovery, known from elsewhere if what is kept of it was damaged.

That a recovery ended is said three times in one commit: by its record, by the checkpoint that signs
it, and by the notice of it. Without the first it would count as unfinished, be ended once more, and
told of once more, perhaps otherwise.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from holdfast.checkpoints.locate import candidates
from holdfast.checkpoints.request import Locator
from holdfast.errors import StateIntegrityError
from holdfast.recovery.end_signature import signed_as
from holdfast.recovery.notices import told
from holdfast.recovery.records import ENDS, Record
from holdfast.store.history.handle import StoreHandle


def ended_before(store: StoreHandle, record: Record) -> bool:
    """Whether a recovery that counts as unfinished had ended; then its record says so again.

    Where only the notice is left, nobody knows when: that is when it began, then.
    """
    found = _end_of(store, record)
    if found is None:
        return False
    status, time = found
    why = f"that it ended ({status}) was damaged later; its notice or checkpoint says so"
    record.note(status=status, why=why, finished_at=time, signed=None)
    return True


def _end_of(store: StoreHandle, record: Record) -> tuple[str, datetime] | None:
    with suppress(StateIntegrityError):
        for one in candidates(record.handle, Locator(name=signed_as(record.id), type="recovery")):
            if ENDS.issuperset(one.tags):
                return one.tags[0], one.time
    with suppress(StateIntegrityError):
        for notice in told(store):
            if (notice["recovery"], notice["agent"]) == (record.id, str(record.agent)):
                return notice["status"], record.data["started_at"]
    return None
