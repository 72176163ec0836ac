"""What a step of a recovery has to work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.agents.machines.definition import MachineDefinition, check_definition
from holdfast.agents.machines.machine import Machine
from holdfast.agents.machines.machine_records import MachineRecovered, open_intents
from holdfast.errors import (
    InvalidInputError,
    InvalidKeyError,
    InvalidValueError,
    LeaseLostError,
    ScopeNotFoundError,
    StateIntegrityError,
    StoreClosedError,
    Unavailable,
)
from holdfast.recovery import failure_kinds
from holdfast.recovery.failure_kinds import AgentFailure, log
from holdfast.recovery.records import Record, RecoveryStepResult
from holdfast.store.inner import Core, LineHandle, StoreHandle, handle_of
from holdfast.store.names.arguments import by_name, check_function, check_text, listed
from holdfast.store.names.face import given
from holdfast.store.names.scope import Scope, check_key
from holdfast.store.state import State

if TYPE_CHECKING:
    from holdfast.store.names.threads import OnLoop

# Transitions of machines that were begun and have no end, settled as their arrows declare.

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

    def knows_one(self, handle: LineHandle) -> bool:
        """Whether a transition is open whose machine is known; not, if that cannot be read."""
        try:
            return bool(self) and any(name in self for name, _ in open_intents(handle))
        except (ScopeNotFoundError, StateIntegrityError):  # no reason to settle
            return False

    def settle(self, state: State) -> tuple[dict[str, str], dict[str, str], Exception | None]:
        """Settle what is open: what became of each, which are left to the caller and why, and the
        first error of a function of the user."""
        settled: dict[str, str] = {}
        left: dict[str, str] = {}
        wrong: Exception | None = None
        for name, _ in open_intents(handle_of(state)):
            if name not in self:
                left[name] = UNKNOWN
                continue
            try:
                how = self.recoverer(state, self[name], name).how
            except (LeaseLostError, StoreClosedError, Unavailable):
                # Says nothing of the machine: tried again.
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
        return settled, left, wrong


def machines_on_loop(known: Mapping[str, MachineDefinition] | None, on_loop: OnLoop) -> Machines:
    """Machines whose functions run on the loop of who asks, as all functions of machines do."""

    def recover(state: State, definition: MachineDefinition, name: str) -> MachineRecovered:
        from holdfast.agents import Machine  # its async face, which only async programs load

        answer: MachineRecovered = on_loop.wait(Machine(given(state), definition, name).recover())
        return answer

    return Machines(known, recover)


# what a recovery was made with, and what its steps see

ANY = ""
"""In a mapping of orders: failures of every kind that it does not name."""
Strategy = Callable[["Context"], Any]
"""Gives a `RecoveryTarget`, or raises `UnfitTarget`, which says why there is none; may be async."""
StepFunction = Callable[["Context", Mapping[str, Any]], Any]
"""A type of step: what it returns is kept as its result (a mapping, or None); may be async."""


@dataclass(frozen=True)
class Settings:
    """What a `Recovery` was made with; its docstring says what each is."""

    copies: Sequence[Any] = ()
    defaults: Mapping[str, Any] | None = None
    validate: Sequence[Callable[[State], Any]] = ()
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Pinned by the user, by kinds of failure: in place of what the kind says."""
    machines: Machines = field(default_factory=lambda: Machines(None))

    @classmethod
    def of(
        cls,
        core: Core,
        built_in: Mapping[str, Strategy],
        strategies: Mapping[str, Strategy] | None,
        order: Sequence[str] | Mapping[str, Sequence[str]] | None,
        copies: Sequence[Any],
        defaults: Mapping[str, Any] | None,
        validate: Sequence[Callable[[State], Any]],
        machines: Mapping[str, MachineDefinition] | None,
    ) -> Settings:
        """What was given, if all of it can be used."""
        stores, checks = listed(copies, "copies"), listed(validate, "validate")
        if not all(isinstance(getattr(one, "_core", None), Core) for one in stores):
            raise InvalidInputError("copies are other stores that are open: open them before")
        for check in checks:
            check_function(check, "each of validate")
        try:
            for key, value in by_name(defaults, "defaults").items():
                check_key(key)
                core.codec.plain(value)
        except (InvalidKeyError, InvalidValueError) as error:
            text = f"an agent cannot begin with these defaults: {error}"
            raise InvalidInputError(text) from None
        own = by_name(strategies, "strategies")
        for name, function in own.items():
            check_text(name, "the name of a strategy", 100, least=1)
            check_function(function, f"the strategy {name!r}")
        known = {**built_in, **own}
        defined = machines if isinstance(machines, Machines) else Machines(machines)
        for one in defined.values() if defined.recoverer is _recover else ():
            check_definition(one)  # nobody would await a function of it in a thread
        pinned = order if isinstance(order, Mapping) else {ANY: order} if order is not None else {}
        orders: dict[str, tuple[str, ...]] = {}
        for kind, names in pinned.items():
            check_text(kind, "a kind of failure", 100)
            found = listed(names, "an order of strategies")
            unknown = [repr(n) for n in found if not isinstance(n, str) or n not in known]
            if not found or unknown:
                raise InvalidInputError(
                    f"no strategy is called {', '.join(unknown)}; there are {', '.join(known)}"
                    if unknown
                    else "an order of strategies has one or more; leave it out to pin none"
                )
            orders[kind] = tuple(found)
        return cls(tuple(stores), defaults, tuple(checks), known, orders, machines=defined)

    def pinned(self, kind: str) -> tuple[str, ...] | None:
        """The order that the user pinned for a kind of failure."""
        return self.order.get(kind) or self.order.get(ANY) or None


class Context:
    """One recovery as its steps see it."""

    def __init__(self, store: StoreHandle, record: Record, settings: Settings) -> None:
        self.store = store
        """The store that the agent is in."""
        self.record = record
        self.settings = settings
        self.agent: Scope = record.agent
        self.failure: AgentFailure = record.failure
        self.copies = settings.copies
        """Other stores that may hold the agent."""
        self.defaults = settings.defaults
        """What an agent begins with, if nothing of it can be had again."""
        self.strategies = settings.strategies
        """All strategies, by name."""
        self.results: dict[str, RecoveryStepResult] = {}
        """Of this attempt, by the ids of steps."""

    @property
    def handle(self) -> LineHandle:
        """The main timeline of the agent, as it is now."""
        return self.store.line(self.agent)

    @property
    def state(self) -> State:
        """The agent's state, on the blocking face."""
        return State(self.handle)

    def order(self, action: Mapping[str, Any]) -> tuple[str, ...]:
        """The order of strategies of a step that looks for a state.

        A point or a time that was asked for is all that is tried: nobody gets something else
        without a word. Else what the step's `action` says, what is pinned, or what answers the
        failure.
        """
        asked = [failure_kinds.NAMED] if self.failure.point is not None else []
        asked += [failure_kinds.TIME] if self.failure.at is not None else []
        kind = self.failure.kind
        known = self.settings.pinned(kind) or failure_kinds.kind_of(kind).strategies
        return tuple(asked or action.get("strategies", ()) or known)

    def had(self, type: str) -> Mapping[str, Any] | None:
        """What the first step of a type came to in this attempt that succeeded; None if none has.

        So a state is put back that was found first, and the one before is that of the first backup.
        """
        for step in self.record.procedure.steps:
            found = self.results.get(step.key)
            if step.type == type and found is not None and found.success:
                return found.result
        return None

    def result_of(self, type: str) -> Mapping[str, Any]:
        """The same; refused if none has succeeded."""
        found = self.had(type)
        if found is None:
            raise InvalidInputError(f"no step of type {type} has succeeded before this one")
        return found

    def first_head(self) -> int:
        """The newest entry when the recovery began, or now if that could not be read."""
        known = self.record.data.first
        return known if known is not None else int(self.handle.place()[2])

    def barred(self, strategy: str = "") -> list[Mapping[str, Any]]:
        """What failed in earlier attempts: of one strategy, or of all."""
        return [one for one in self.record.data.bad if strategy in ("", one["strategy"])]
