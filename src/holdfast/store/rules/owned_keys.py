"""Keys by which the layers above know whether others are what they left there.

Their owners write both in one change. A whole restore takes both along; whatever brings single keys
from another state (a restore of some, a merge, a revert) has to do it by these rules, or the owner
goes on as if nothing had happened.

- A task of an agent comes with the handover of it that its state knows of, from the same state.
- How far a mailbox is, is the farther of two: what a side has done with a letter comes along.
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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.store.journal.slot import Slot, said_of
from holdfast.store.rules.gates import Operation
from holdfast.store.rules.sticky import Sticky

if TYPE_CHECKING:
    from holdfast.store.commit.request import Asked
    from holdfast.store.history.merge import Merging
    from holdfast.store.read.reader import Reader

TASKS = "$agent/tasks/"
"""A key each behind it: the task of that id."""
SEEN = "$handover/seen/"
"""A key each behind it: the last handover of that task that the state itself knows of."""
MACHINE = "$machine/"
"""Behind it the name of each machine, then `NOW`, `DATA`, and `LOG` with what is sticky there."""
NOW, DATA, LOG = "/now", "/data", "/log/"
HANDOVER_LOG = "$handover/log/"
MAILBOX_DONE = "$mailbox/done"
"""See `agents.mailbox_numbers`: of each timeline, the last of its letters that was processed."""
ATTACHED = "$agent/attached"
_FIELDS = ATTACHED + "/"

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


def farther(key: str, ours: Any, theirs: Any) -> Any:
    """What two sides of a merge have done, as one, if a key says how far they are; else None."""
    if key != MAILBOX_DONE or not isinstance(ours, dict) or not isinstance(theirs, dict):
        return None
    marks: dict[str, tuple[int, str]] = {}
    trails: dict[str, list[Any]] = {}
    for side in (ours, theirs):
        own = {side.get("line", ""): (side["number"], side["id"])}
        for line, (number, id) in (side.get("others", {}) | own).items():
            if line not in marks or number > marks[line][0]:
                marks[line], trails[line] = (number, id), side.get("trail", [])
    line = ours.get("line", "")
    number, id = marks.pop(line)
    made: dict[str, Any] = {"number": number, "id": id} | ({"line": line} if line else {})
    if trails[line]:
        made["trail"] = trails[line]
    if marks:
        made["others"] = {one: list(mark) for one, mark in marks.items()}
    if missed := max(ours.get("missed", 0), theirs.get("missed", 0)):
        made["missed"] = missed
    return made


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
