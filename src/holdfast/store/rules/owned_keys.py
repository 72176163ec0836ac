"""Keys by which the layers above know whether others are what they left there.

Their owners write both in one change. A whole restore takes both along; whatever brings single keys
from another state (a restore of some, a merge, a revert) has to do it by these rules, or the owner
goes on as if nothing had happened.

- A task of an agent comes with the handover of it that its state knows of, from the same state.
- Where a machine is comes whole, and its data from the same state: no mixture of two was ever led
  to by its rules.
- The log of a machine and the records of handovers tell of what was given away, numbers of versions
  and tasks: no revert takes them back alone.
- Whoever keeps an attached agent knows by the first key alone whether it is as it was saved: if
  only some of its fields come, that key is set again, to what it is.
- What happened on another timeline has happened: though effects are sticky, a merge brings the
  records of those that are not known here, or they would be done again.
"""

from __future__ import annotations

TASKS = "$agent/tasks/"
"""A key each behind it: the task of that id."""
SEEN = "$handover/seen/"
"""A key each behind it: the last handover of that task that the state itself knows of."""
MACHINE = "$machine/"
"""Behind it the name of each machine, then `NOW`, `DATA`, and `LOG` with what is sticky there."""
NOW, DATA, LOG = "/now", "/data", "/log/"
HANDOVER_LOG = "$handover/log/"
ATTACHED = "$agent/attached"
FIELDS = ATTACHED + "/"
"""A key each behind it: a field of the agent that is attached."""

EFFECTS = "$effects/"
OPEN = EFFECTS + "open/"
"""A key each behind it: an effect that is meant to happen, or was begun."""
DONE = EFFECTS + "done/"
"""The same, once it happened."""


def companion(key: str) -> str | None:
    """The key that comes along with a key, from the same state."""
    if whole(key):
        return key.removesuffix(NOW) + DATA
    return SEEN + key[len(TASKS) :] if key.startswith(TASKS) else None


def leader(key: str) -> str | None:
    """The key that a key comes along with."""
    if _of_machine(key, DATA):
        return key.removesuffix(DATA) + NOW
    return TASKS + key[len(SEEN) :] if key.startswith(SEEN) else None


def whole(key: str) -> bool:
    """Whether a merge takes a key, and its companion, from one of the two sides as they are."""
    return _of_machine(key, NOW)


def recorded(key: str, alone: bool) -> str:
    """Why no revert takes a key back; empty if it does.

    One that is not `alone` undoes the other agent's side of a handover, too.
    """
    if key.startswith(MACHINE) and key[len(MACHINE) :].partition("/")[2].startswith(LOG[1:]):
        return "it is the log of a machine, which stays: a version's number is given away once"
    if alone and key.startswith(HANDOVER_LOG):
        return (
            "it is the record of a handover, which both agents have, and stays: `reconcile` makes "
            "the state fit it; to undo a handover, give the task back"
        )
    return ""


def _of_machine(key: str, end: str) -> bool:
    return key.startswith(MACHINE) and key[len(MACHINE) :].partition("/")[2] == end[1:]
