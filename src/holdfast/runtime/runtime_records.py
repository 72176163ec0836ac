"""Keys that this layer owns in a scope, what becomes of them (`Owned`), and the records there.

All of it is plain state: it goes back with a restore, comes along with a fork, and is merged as any
other value, but for what says otherwise here. A queue's items, the letters of a request and batches
of events are read by their own classes alone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from holdfast.store.inner import Owned, encode_term


def iso(name: str) -> Any:
    """A property: a time that stands as seconds under a name, as ISO 8601 text."""
    return property(lambda one: datetime.fromtimestamp(getattr(one, name), UTC).isoformat())


# ---- entities -----------------------------------------------------------------------------------

_TIED: dict[str, Any] = {
    "revert": Owned.VALUE,
    "why": "entities and relationships come and go by `Entities` alone, so that none leads "
    "nowhere: create, delete, relate or unrelate there",
}
ENTITIES = Owned("$entity/", **_TIED)
"""A record each: the entity of that id."""
RELATIONS = Owned("$relation/", **_TIED)
"""FROM/TYPE/TO: the relationship of that type between two entities."""
LINKED = Owned("$linked/", merge=Owned.WHOLE, **_TIED)
"""True, set anew with each relationship of an entity, so that its deletion notices one that comes
meanwhile: relationships of one entity are made side by side, and none waits for another."""
SUBSCRIPTION = "observation_subscription"
"""The type of entities that go with any entity that they lead to: an agent made again under an id
is not observed by what was said of the one before."""


class EntityRecord(Struct):
    """What is kept of an entity."""

    type: str
    properties: dict[str, Any]
    created_at: float
    updated_at: float
    pairs: list[str]

    @classmethod
    def of(cls, type: str, properties: dict[str, Any], made: float, now: float) -> EntityRecord:
        """A record with the pairs that its properties are found by; those of None are left out."""
        kept = {name: value for name, value in properties.items() if value is not None}
        pairs = ["", *(pair for name in kept if (pair := pair_of(name, kept[name])))]
        return cls(type, kept, made, now, pairs)


class RelationRecord(Struct):
    """What is kept of a relationship; its ends stand in its key."""

    ends: list[str]
    created_at: float
    metadata: dict[str, Any] = {}


def pair_of(name: str, value: Any) -> str | None:
    """What a property is found by; None for None, and for what is no term: a list, a mapping."""
    term = encode_term(value)
    return f"{name}/{term}" if term is not None and value is not None else None


# ---- queues, events, requests -------------------------------------------------------------------

QUEUES = Owned("$queue/", merge=Owned.WHOLE)
"""NAME/items: a list, the oldest first; NAME/popped: how many have left it; NAME/ends: there until
the list ends, if it was told to."""
EVENTS = Owned("$events/", merge=Owned.WHOLE)
"""A record each: a batch of events, by the time of its first one."""


class EventBatch(Struct):
    """What is kept: events, and what they are found by."""

    events: bytes
    """Lists of their fields, encoded: events are written and read by the batch, and many values
    in one take twice the time of one value."""
    time: float
    """Of the first of them."""
    correlations: list[str]
    sessions: list[str]


class RequestRecord(Struct):
    """The answer of a request."""

    result: Any = None
