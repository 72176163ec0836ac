"""Transitions of machines that were begun and have no end, settled as their arrows declare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from holdfast.agents.agent_keys import MACHINE
from holdfast.agents.machines.definition import MachineDefinition, check_blocking
from holdfast.agents.machines.machine import Machine
from holdfast.agents.machines.records import MachineRecovered
from holdfast.errors import (
    InvalidInputError,
    LeaseLostError,
    ScopeNotFoundError,
    StateIntegrityError,
    StoreClosedError,
    Unavailable,
)
from holdfast.recovery.user_calls import log
from holdfast.store.history.handle import LineHandle
from holdfast.store.state import State

INTENT = "/log/intent"
UNKNOWN = "its definition was not given: machines has none of this name"
ASK = "its arrow declares ask, or the machine is not where the work began: settle it"
Recoverer = Callable[[State, MachineDefinition, str], MachineRecovered]


def _recover(state: State, definition: MachineDefinition, name: str) -> MachineRecovered:
    return Machine(state, definition, name).recover()


class Machines(dict[str, MachineDefinition]):
    """Definitions by the names of machines, and how one is recovered, in which the faces differ."""

    def __init__(
        self, given: Mapping[str, MachineDefinition] | None, recoverer: Recoverer = _recover
    ) -> None:
        known = given if given is not None else {}
        if not isinstance(known, Mapping) or not all(
            isinstance(one, MachineDefinition) for one in known.values()
        ):
            raise InvalidInputError("machines are definitions by the names of machines")
        super().__init__(known)
        self.recoverer = recoverer

    def check_blocking(self) -> None:
        """Refuse functions that nobody would await, where machines are recovered in a thread."""
        if self.recoverer is _recover:
            for one in self.values():
                check_blocking(one)

    def knows_one(self, handle: LineHandle) -> bool:
        """Whether a transition is open whose machine is known; not, if that cannot be read."""
        with suppress(ScopeNotFoundError, StateIntegrityError):
            return any(name in self for name in interrupted(handle)) if self else False
        return False

    def settle(self, state: State) -> dict[str, Any]:
        """Settle what is open: what became of each, and which are left to the caller, and why.

        Raises what the work of one raised only if none was completed: what is raised may have the
        state put back, and one that was completed would be begun again.
        """
        settled: dict[str, str] = {}
        left: dict[str, str] = {}
        wrong: Exception | None = None
        for name in list(interrupted(state._handle)):
            if name not in self:
                left[name] = UNKNOWN
                continue
            try:
                how = self.recoverer(state, self[name], name).how
            except (LeaseLostError, StoreClosedError, Unavailable):
                raise
            except Exception as error:  # of a function of the user
                log.warning("%s: machine %s cannot be settled", state.scope, name, exc_info=True)
                left[name] = f"{type(error).__name__}: {error}"[:500]
                wrong = wrong or error
                continue
            if how == "ask":
                left[name] = ASK
            else:
                settled[name] = how
        if wrong is not None and "complete" not in settled.values():
            raise wrong
        return {"settled": settled, "left": left}


def interrupted(handle: LineHandle) -> Iterator[str]:
    """Names of machines with a transition that was begun."""
    for key in handle.reader.keys(MACHINE, None, ""):
        if key.endswith(INTENT) and handle.reader.get(key, None, None, False) is not None:
            yield key[len(MACHINE) : -len(INTENT)]
