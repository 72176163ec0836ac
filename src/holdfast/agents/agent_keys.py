"""Keys that this layer owns in an agent's scope, and what becomes of them (`Owned`).

A component that is a small mapping is one key, `$agent/<component>`; what grows is a list, or a key
each, below it. So a checkpoint, a restore, a fork and an erasure take everything along. A user's
own change cannot write such keys; a `Book`, or `own_change`, can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.store.inner import Owned

if TYPE_CHECKING:
    from holdfast.store.names.threads import OnLoop

# ---- an agent -----------------------------------------------------------------------------------
# Names of fields, memories and components are a user's: they may tell that something is secret.

AGENT = "$agent/"
IDENTITY = AGENT + "identity"
CONVERSATION = AGENT + "conversation"
"""A list: one `shapes.Message` an item, the newest last."""
CURRENT_TASK = AGENT + "current_task"
"""The id of the task that is at work; absent if there is none."""
MEMORY = AGENT + "memory/"
EXECUTION_STATE = AGENT + "execution_state"
TASKS = AGENT + "tasks/"
"""A key each behind it: the task of that id."""
ATTACHED = AGENT + "attached"
"""What is attached; a key each below it: a field."""

OWN_AGENT = _agent = Owned(AGENT, named=True)
# A task comes with the handover of it that its state knows of, from the same state.
_agent.part("tasks/", along="$handover/seen/")
# Who keeps an attached agent knows by one key whether all is as it was saved.
_agent.part("attached/", signal=ATTACHED)


def task_key(id: str) -> str:
    """Where the task of an id is kept."""
    return TASKS + id


# ---- effects ------------------------------------------------------------------------------------
# What happened on another timeline has happened: the records of effects that are not known here
# come along with its state, or they would be done again.


def _unknown(handle: Any, source: Any, key: str) -> Any:
    """The record of an effect that stands for one that cannot be read any more."""
    from holdfast.agents.effect_records import unknown

    return unknown(handle, source, key)


EFFECTS = "$effects/"
OPEN, DONE = EFFECTS + "open/", EFFECTS + "done/"
"""A key each behind them: an effect that is meant to happen, or was begun; one that happened."""
OWN_EFFECTS = Owned(
    EFFECTS,
    restore=Owned.STAY,
    merge=Owned.UNION,
    phases=("open/", "done/"),
    revert=Owned.NEVER,
    why="it is the record of an effect, which stays: what happened in the world is not undone; "
    "settle one that is not wanted any more as `drop`",
    unreadable=_unknown,
)

# ---- handovers ----------------------------------------------------------------------------------

HANDOVER = "$handover/"
HANDOVER_LOG = HANDOVER + "log/"
SEEN = HANDOVER + "seen/"
"""A key each behind it: the last handover of that task that the state itself knows of."""
_handover = Owned(HANDOVER)
OWN_HANDOVERS = _handover.part(
    "log/",
    restore=Owned.STAY,
    revert=Owned.TOGETHER,
    why="it is the record of a handover, which both agents have, and stays: `reconcile` makes "
    "the state fit it; to undo a handover, give the task back",
)

# ---- letters, drift, restarts -------------------------------------------------------------------
# No restore makes a letter unsent; how far they were processed is the agent's state, and goes back.

MAILBOX = "$mailbox/"
OWN_MAILBOX = Owned(MAILBOX)
OWN_MAILBOX.part("inbox/", restore=Owned.STAY)
REQUESTER, ALL_REQUESTS = "requests", "custom:$requests"
"""Who sends the letters that are requests of a session, and the scope that all of them are in."""
REQUESTS = Owned("$request/", restore=Owned.STAY)
"""done/ID: the answer of one; pending/SESSION, in the scope of all: that its mailbox has some."""
PENDING = REQUESTS.prefix + "pending/"
DRIFT = "$drift/"
OWN_DRIFT = Owned(DRIFT, restore=Owned.STAY)
LOOP = "$loop/"
"""Below it is the note of a restart that is asked for: from a checkpoint of just this scope."""
OWN_LOOP = Owned(LOOP, restore=Owned.STAY, copy=Owned.NOWHERE)

# ---- imports ------------------------------------------------------------------------------------
# What was taken up from a folder goes back with the state that it became.

IMPORTED = Owned("$import/")

# ---- machines -----------------------------------------------------------------------------------
# Where a machine is comes whole, and its data from the same state: no mixture of two was ever led
# to by its rules. Its log tells of what was given away, numbers of versions.

MACHINE = "$machine/"
"""Behind it the name of each machine, then what `machine_records` tells."""
OWN_MACHINES = _machine = Owned("$machine/*/")
_machine.part("now", merge=Owned.WHOLE, along="$machine/*/data")
_machine.part(
    "log/",
    restore=Owned.STAY,
    revert=Owned.NEVER,
    why="it is the log of a machine, which stays: a version's number is given away once",
)


class MayWait(NamedTuple):
    """An argument on the async face that holds functions of users: there they may be async."""

    given: Any


def may_wait(given: Any, _: OnLoop) -> MayWait:
    """Mark such an argument, for `calls`; functions that are steps run in the loop."""
    return MayWait(given)
