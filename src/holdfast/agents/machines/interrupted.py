"""Transitions that were interrupted, and how they end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.agents.machines.drive import Call, Read, Routine
from holdfast.agents.machines.records import (
    INTERRUPTED,
    MachineIntent,
    MachineRecovered,
)
from holdfast.errors import (
    Conflict,
    InvalidInputError,
    TransitionRefusedError,
)
from holdfast.store.tree.value_copy import copied

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineArrow
    from holdfast.agents.machines.record_reader import Seen
    from holdfast.agents.machines.routines import Routines


class Settling:
    """Ends the open intent of a machine."""

    def __init__(self, routines: Routines) -> None:
        self._routines = routines

    def recover(self) -> Routine[MachineRecovered]:
        """Settle an open intent by the choice that its arrow declares."""
        seen = yield Read(self._routines.looker.look)
        if seen.intent is None:
            snapshot = yield Read(self._routines.snapshot)
            return MachineRecovered("nothing", None, snapshot)
        arrow = self._arrow_of(seen.intent)
        how = arrow.recover if arrow is not None else "ask"
        if seen.state != seen.intent.from_state:
            how = "ask"  # a restore has put the machine elsewhere: nobody declared what then
        if how == "ask":
            snapshot = yield Read(self._routines.snapshot)
            return MachineRecovered("ask", seen.intent, snapshot)
        return (yield from self.settle(how, {}))

    def settle(self, how: str, data: Mapping[str, Any]) -> Routine[MachineRecovered]:
        """End an open intent: do the work again, take it as done, or roll it back."""
        if how not in ("complete", "done", "roll_back"):
            raise InvalidInputError(f"settle takes complete, done or roll_back, not {how!r}")
        seen = yield Read(self._routines.looker.look)
        intent = seen.intent
        if intent is None:
            raise InvalidInputError(f"{self._routines.where}: nothing was interrupted")
        arrow = self._arrow_of(intent)
        if how != "roll_back":
            self._check_completable(seen, intent, arrow, how)
        again = replace(intent, attempt=intent.attempt + 1)
        given = copied(intent.input)  # functions may change theirs
        step = self._routines.step(
            intent.from_state, intent.to_state, intent.trigger, given, intent.id
        )
        step.attempt = again.attempt
        # Who works on it from now on says so first: whoever did before cannot end it any more.
        try:
            yield from self._routines.put_intent(seen, again)
        except Conflict as conflict:
            text = f"{self._routines.where}: somebody else settles {intent.trigger!r}; look again"
            raise Conflict(text, conflict.keys) from conflict
        if arrow is not None and seen.now is not None:
            yield from self._routines.give_data(seen, step, arrow)
        step.data.update(copied(dict(data)))
        if how == "roll_back":
            if arrow is not None and arrow.undo is not None:
                try:
                    yield Call(arrow.undo, step)
                except Exception as error:  # it stays open
                    yield from self._routines.failed(step, error)
                    raise
            yield from self._routines.log_failure(step, INTERRUPTED, "step", again)
        else:
            assert arrow is not None
            known = how == "done"
            work = None if known else arrow.work
            yield from self._routines.carry_out(step, seen, arrow, work=work, known=known)
        snapshot = yield Read(self._routines.snapshot)
        return MachineRecovered("roll_back" if how == "roll_back" else "complete", again, snapshot)

    def _arrow_of(self, intent: MachineIntent) -> MachineArrow | None:
        arrow = self._routines.definition.arrow(intent.from_state, intent.trigger)
        return arrow if arrow is not None and arrow.to == intent.to_state else None

    def _check_completable(
        self, seen: Seen, intent: MachineIntent, arrow: MachineArrow | None, how: str
    ) -> None:
        if arrow is None:
            text = "the definition has no such arrow any more; roll it back"
        elif seen.state != intent.from_state:
            text = f"the machine is not in {intent.from_state!r} any more; roll it back"
        elif how == "complete" and arrow.work is None:
            text = "no work is declared that could be done again; settle it as done, or roll back"
        else:
            return
        raise TransitionRefusedError(f"{self._routines.where}: {text}", [text])
