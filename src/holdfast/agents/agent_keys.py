"""Keys that this layer owns in an agent's scope, and changes that may write them.

A component that is a small mapping is one key, `$agent/<component>`; what grows is a list, or a key
each, below it. So a checkpoint, a restore, a fork and an erasure take everything along. A user's
own change cannot write such keys; this layer's is made so, for both faces:

    parts = own_change(state)                 # or of a store: one change over several scopes
    part = parts.part(handle_of(state))          # what is read is expected, writes are noted
    part.set(IDENTITY, {...})
    part.operations += sticky(handle_of(state), EFFECTS)     # a restore leaves these alone
    run_parts(parts)                          # or, as a step of both faces, `commit`

Whoever gets a `Conflict` begins again with new reads, `ATTEMPTS` times; then it is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct, structs

from holdfast.errors import Conflict, NewerFormatError
from holdfast.store.inner import (
    EFFECTS,
    LOOP,
    MACHINE,
    TASKS,
    ChangeParts,
    LineHandle,
    Operation,
    Sticky,
    done_again,
    handle_of,
)
from holdfast.store.inner import UPDATES as ATTEMPTS
from holdfast.store.names.cause import cause_now
from holdfast.store.names.face import Step, Steps, ask

if TYPE_CHECKING:
    from holdfast.store.inner import Plan
    from holdfast.store.names.threads import OnLoop
    from holdfast.store.state import State


# ---- agent keys ---------------------------------------------------------------------------------


__all__ = [
    "AGENT",
    "ATTEMPTS",
    "CONVERSATION",
    "CURRENT_TASK",
    "DRIFT",
    "EFFECTS",
    "EXECUTION_STATE",
    "HANDOVER",
    "IDENTITY",
    "LOOP",
    "MACHINE",
    "MAILBOX",
    "MEMORY",
    "OPERATIONAL_CONTEXT",
    "TASKS",
    "own_change",
    "run_parts",
    "sticky",
    "task_key",
]

AGENT = "$agent/"
HANDOVER = "$handover/"
MAILBOX = "$mailbox/"
DRIFT = "$drift/"

IDENTITY = AGENT + "identity"
CONVERSATION = AGENT + "conversation"
"""A list: one `shapes.Message` an item, the newest last."""
CURRENT_TASK = AGENT + "current_task"
"""The id of the task that is at work; absent if there is none."""
OPERATIONAL_CONTEXT = AGENT + "operational_context"
MEMORY = AGENT + "memory/"
EXECUTION_STATE = AGENT + "execution_state"


def task_key(id: str) -> str:
    """Where the task of an id is kept."""
    return TASKS + id


def own_change(
    of: Any,
    *,
    reason: str | None = None,
    actor: str | None = None,
    correlation: str | None = None,
    id: str | None = None,
) -> ChangeParts:
    """A change of a State or Store (of either face) that may write keys of this layer."""
    return ChangeParts(handle_of(of), cause_now(actor, reason, correlation), id, owner=True)


def run_parts(parts: ChangeParts) -> bool:
    """Commit such a change, if anything was noted; whether there was."""
    plan = parts.plan()
    if plan is not None:
        change, finish = plan
        finish(parts._handle.core.run(change))
    return plan is not None


def sticky(handle: LineHandle, prefix: str) -> list[Operation]:
    """What a change has to write so that restores leave a prefix alone; mostly nothing."""
    wanted = Sticky(prefix)
    if wanted in handle.reader.declared().all:
        return []
    return [Operation("set", wanted.key, wanted.data())]


# ---- flat records -------------------------------------------------------------------------------
# Records that this layer keeps for itself: flat Structs, stored as plain mappings.
#
# Fields that have their default are left out; values are stored as they are, not as JSON.


_S = TypeVar("_S", bound=Struct)


def stored(record: Struct) -> dict[str, Any]:
    """What is stored of a record: the fields that say something."""
    return {
        field.name: value
        for field in structs.fields(record)
        if (value := getattr(record, field.name)) is not field.default
    }


def loaded(kind: type[_S], data: Any, what: str) -> _S:
    """The opposite of `stored`."""
    try:
        return kind(**data)
    except TypeError:
        raise NewerFormatError(
            f"{what} is stored in a way that this version does not know; "
            "use the newest version of Holdfast"
        ) from None


# ---- again --------------------------------------------------------------------------------------
# Steps that are done again when somebody else was faster, and those that a state is asked for.


_T = TypeVar("_T")


def again(step: Callable[[], _T]) -> _T:
    """Do a step that reads and commits; with new reads after each `Conflict`, `ATTEMPTS` times."""
    for _ in range(ATTEMPTS - 1):
        try:
            with done_again():
                return step()
        except Conflict:  # somebody was faster: what is read now may be fit for it
            continue
    return step()


def again_in_steps(step: Callable[[], Steps[_T]]) -> Steps[_T]:
    """The same for a part of a method of steps."""
    for _ in range(ATTEMPTS - 1):
        try:
            with done_again():
                return (yield from step())
        except Conflict:  # somebody was faster: what is read now may be fit for it
            continue
    return (yield from step())


def commit(state: State, plan: Plan) -> Step:
    """A step that commits a change as its face does: in a loop, with those that wait then, too."""

    def run(own: Any) -> Any:
        if own is state:
            return state._run(plan)
        from holdfast.store.inner import pump_of

        return pump_of(handle_of(state).core).commit(plan)

    return ask(run, state)


def look(state: State, function: Callable[..., Any], *args: Any, planned: bool = False) -> Step:
    """A step that reads: in the loop, and on a thread if it turns out long; it may run twice.

    With `planned` it makes a change, for which functions of users may be called: those have their
    end.
    """

    def run(own: Any) -> Any:
        if own is state:
            return function(*args)
        from holdfast.store.names.threads import here_or_away, read_away, to_the_end

        away = to_the_end if planned else read_away
        return here_or_away(handle_of(state).core.storage, function, *args, away=away)

    return ask(run, state)


class MayWait(NamedTuple):
    """An argument on the async face that holds functions of users: there they may be async."""

    given: Any


def may_wait(given: Any, _: OnLoop) -> MayWait:
    """Mark such an argument, for `calls`; functions that are steps run in the loop."""
    return MayWait(given)
