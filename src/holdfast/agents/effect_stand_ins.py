"""Records of effects that cannot be read any more.

A recovery gives a damaged key what it held at an older point, where an effect that was begun since
has no record. That would make it one that never happened, and it would be done again. So it is
known from then on as one that was begun and whose end is unknown.
"""

from __future__ import annotations

import os
from urllib.parse import unquote

from msgspec import structs

from holdfast.agents.agent_keys import EFFECTS
from holdfast.agents.effect_records import STARTED, UNREAD, Record, record_of
from holdfast.agents.records import stored
from holdfast.checkpoints.restore_past_damage import STAND_INS
from holdfast.errors import MissingError, StateIntegrityError
from holdfast.store.history.handle import LineHandle
from holdfast.store.journal.timeline import Timeline
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.owned_keys import DONE, OPEN


def unknown(handle: LineHandle, source: Timeline, key: str) -> Operation | None:
    """The record that stands for one that cannot be read; None if the one of then says enough."""
    if key.startswith(DONE) and source.slot(key) is not None:
        return None
    place = key.removeprefix(DONE).removeprefix(OPEN)
    record = _before(handle, key, OPEN + place)
    if record is None:
        name, _, id = place.partition("/")
        record = Record(name=unquote(name), id=unquote(id), phase=STARTED, error=UNREAD)
    else:
        token = record.token or os.urandom(8).hex()
        record = structs.replace(record, phase=STARTED, token=token)
    return Operation("set", OPEN + place, stored(record))


def _before(handle: LineHandle, key: str, place: str) -> Record | None:
    """The record before the entry that wrote a damaged one, if it can be read."""
    try:
        slot = handle.history.points.line().slot(key)
        if slot is None:
            return None
        data = handle.view(slot.sequence - 1).reader.get(place, None, None, False)
    except (MissingError, StateIntegrityError):
        return None
    return record_of(data) if data is not None else None


STAND_INS[EFFECTS] = unknown
