"""Keys by which the layers above know whether others are what they left there.

Their owners write both in one change. A whole restore takes both along; whatever brings single keys
from another state (a restore of some, a merge, a revert) has to do it by these rules, or the owner
goes on as if nothing had happened.

- A task of an agent comes with the handover of it that its state knows of, from the same state.
- Whoever keeps an attached agent knows by the first key alone whether it is as it was saved: if
  only some of its fields come, that key is set again, to what it is.
- What happened on another timeline has happened: though effects are sticky, a merge brings the
  records of those that are not known here, or they would be done again.
- Where a machine is, and which transition led there, is one fact: where two timelines changed it,
  it is that of one of them, not some fields of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.store.gates import Operation
from holdfast.store.slots import Slot, said_of
from holdfast.store.sticky import Sticky

if TYPE_CHECKING:
    from holdfast.store.merging import Merging
    from holdfast.store.reading import Reader
    from holdfast.store.writing import Asked

TASKS = "$agent/tasks/"
"""A key each behind it: the task of that id."""
SEEN = "$handover/seen/"
"""A key each behind it: the last handover of that task that the state itself knows of."""
ATTACHED = "$agent/attached"
_FIELDS = ATTACHED + "/"
MACHINE = "$machine/"
"""Behind it the name of a machine, then what it keeps; `now` says where it is."""

EFFECTS = "$effects/"
OPEN = EFFECTS + "open/"
"""A key each behind it: an effect that is meant to happen, or was begun."""
DONE = EFFECTS + "done/"
"""The same, once it happened."""


def companion(key: str) -> str | None:
    """The key that comes along with a key, from the same state."""
    return SEEN + key[len(TASKS) :] if key.startswith(TASKS) else None


def leader(key: str) -> str | None:
    """The key that a key comes along with."""
    return TASKS + key[len(SEEN) :] if key.startswith(SEEN) else None


def is_one(key: str) -> bool:
    """Whether the value of a key is not merged by fields."""
    return key.startswith(MACHINE) and key.endswith("/now") and key.count("/") == 2


def comes_along(
    merging: Merging, key: str, before: Sequence[Slot | None], after: Slot | None
) -> bool:
    """Whether a merge takes a key from the other side, though it is sticky.

    That is the record of an effect that is not known here, and that such a one is open no longer.
    """
    if not key.startswith(EFFECTS):
        return False
    ours = merging._settled(merging.line, key)
    if after is None:
        same = all(said_of(slot) == said_of(ours) for slot in before)
        return key.startswith(OPEN) and ours is not None and same
    if ours is not None or any(slot is not None for slot in before):
        return False
    done = DONE + key.removeprefix(OPEN)
    return key.startswith(DONE) or merging._settled(merging.line, done) is None


def told(asked: Asked, reader: Reader) -> Asked:
    """What is asked for of a timeline, so that who keeps an agent there notices it.

    Where records of effects come to, restores leave them alone from then on.
    """
    scope, timeline, operations, expects, head = asked
    keys = {one.key for one in operations}
    sticky = Sticky(EFFECTS)
    if any(key.startswith(EFFECTS) for key in keys) and sticky not in reader.declared().all:
        operations = [*operations, Operation("set", sticky.key, sticky.data())]
        asked = scope, timeline, operations, expects, head
    if ATTACHED in keys or not any(key.startswith(_FIELDS) for key in keys):
        return asked
    found = reader.versioned([ATTACHED]).get(ATTACHED)
    if found is None:
        return asked
    again = Operation("set", ATTACHED, found[0])
    return scope, timeline, [*operations, again], {**expects, ATTACHED: found[1]}, head
