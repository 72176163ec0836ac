"""What a recovery has held of an agent, let go when it is over."""

from __future__ import annotations

from holdfast.checkpoints.release import plan_release
from holdfast.errors import HoldfastError, ScopeNotFoundError
from holdfast.recovery.run_slot import correlation_of
from holdfast.recovery.user_calls import log
from holdfast.store.history.checkpoint import Plan
from holdfast.store.history.handle import LineHandle
from holdfast.store.rules.checkpoint_holds import Held, held


def letting_go(line: LineHandle, recovery: str, since: int, outcome: str) -> Plan | None:
    """The change that lets go of the state before a recovery, and of the backups of its restores,
    those that undid it included; None if nothing is held, or that is not known.

    `since` is an entry that all of them come behind.
    """
    try:
        known = [one.checkpoint.id for one in held(line, since) if _is_of(one, recovery)]
        if known:
            plan = plan_release(line, known, outcome, f"after recovery {recovery}")
            plan[0].targets[0].create = False  # an agent that is no more does not come back by this
            return plan
    except ScopeNotFoundError:
        pass  # it was taken back, or erased meanwhile
    except HoldfastError:
        log.warning("%s: the state before is still held", line.scope, exc_info=True)
    return None


def _is_of(one: Held, recovery: str) -> bool:
    if one.why == "recovery":
        return bool(one.checkpoint.metadata["recovery"] == recovery)
    cause = one.checkpoint.cause
    return one.why == "restore" and cause.correlation == correlation_of(recovery)
