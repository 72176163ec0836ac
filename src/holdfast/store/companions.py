"""Keys by which the layers above know whether others are what they left there.

Their owners write both in one change. A whole restore takes both along; whatever brings single keys
from another state (a restore of some, a merge, a revert) has to do it by these rules, or the owner
goes on as if nothing had happened.

- A task of an agent comes with the handover of it that its state knows of, from the same state.
- Whoever keeps an attached agent knows by the first key alone whether it is as it was saved: if
  only some of its fields come, that key is set again, to what it is.
- Where a machine is, and which transition led there, is one fact: where two timelines changed it,
  it is that of one of them, not some fields of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.gates import Operation

if TYPE_CHECKING:
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


def companion(key: str) -> str | None:
    """The key that comes along with a key, from the same state."""
    return SEEN + key[len(TASKS) :] if key.startswith(TASKS) else None


def leader(key: str) -> str | None:
    """The key that a key comes along with."""
    return TASKS + key[len(SEEN) :] if key.startswith(SEEN) else None


def is_one(key: str) -> bool:
    """Whether the value of a key is not merged by fields."""
    return key.startswith(MACHINE) and key.endswith("/now") and key.count("/") == 2


def told(asked: Asked, reader: Reader) -> Asked:
    """What is asked for of a timeline, so that who keeps an agent there notices it."""
    scope, timeline, operations, expects, head = asked
    keys = {one.key for one in operations}
    if ATTACHED in keys or not any(key.startswith(_FIELDS) for key in keys):
        return asked
    found = reader.versioned([ATTACHED]).get(ATTACHED)
    if found is None:
        return asked
    again = Operation("set", ATTACHED, found[0])
    return scope, timeline, [*operations, again], {**expects, ATTACHED: found[1]}, head
