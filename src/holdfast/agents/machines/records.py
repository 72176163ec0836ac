"""What a machine keeps, and what of it is handed out.

Under `$machine/NAME/`: `now` (state, version, the id of the transition that made it, times,
metadata), `data` (a mapping, written when it changes), and below `log/`, which restores leave
alone, `transitions` (a list of all attempts) and `intent` (the transition whose work is being done,
or None: a key that is there is found faster than that one is not). Each transition has a number,
one more than the one before it; versions count those that succeeded. Both are taken from the newest
transition, which every change of a machine expects, so that nobody else takes the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.agents.agent_keys import MACHINE
from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    InvalidInputError,
    TransitionRefusedError,
)
from holdfast.store.commit.meter import TRANSITIONS, Meter
from holdfast.store.names.arguments import check_text
from holdfast.store.names.scope import check_key
from holdfast.store.read.reader import microseconds, moment
from holdfast.store.rules.owned_keys import DATA, LOG, NOW

MAIN = "main"
"""The name of a machine that is given none."""
MOST_ERROR = 500
"""Characters of an error's text that a transition keeps."""
INTERRUPTED = "interrupted, and rolled back"
"""What the log says of a transition that was interrupted."""
NO_ARROW = "(no arrow)"
"""Stands for a trigger that leads nowhere, where transitions are counted."""
_ENDS = {
    TransitionRefusedError.__name__: "refused",
    Conflict.__name__: "overtaken",
    INTERRUPTED: "rolled_back",
}
TIME = 6
"""Where a stored transition has its time."""


class Keys(NamedTuple):
    """Where one machine keeps its things."""

    now: str
    data: str
    transitions: str
    intent: str
    sticky: str

    @classmethod
    def of(cls, name: str) -> Keys:
        """Those of a machine's name."""
        check_text(name, "the name of a machine", 100, least=1)
        if "/" in name:
            raise InvalidInputError(f"the name of a machine has no slash: {name!r}")
        place = check_key(f"{MACHINE}{name}", owner=True)
        log = place + LOG
        return cls(place + NOW, place + DATA, f"{log}transitions", f"{log}intent", log)


class Transition(msgspec.Struct, frozen=True):
    """One attempt to change a machine, as its log has it; failed ones too."""

    number: int
    id: str
    agent_id: str
    """The scope, as text."""
    machine: str
    kind: str
    """start, step (a trigger), save (data without a trigger), roll_back, replay or adopt (a state
    that another timeline made was restored)"""
    from_state: str
    """Empty where a machine begins."""
    to_state: str
    """Of an attempt that no arrow fits: empty."""
    trigger: str
    timestamp: datetime
    version: int
    """The newest version that had been given away after it."""
    error: str | None = None

    @property
    def success(self) -> bool:
        """Whether the machine is, or was, where it leads to."""
        return self.error is None

    @property
    def outcome(self) -> str:
        """succeeded, refused (no arrow, a guard or a rule), overtaken (by another), rolled_back
        (it was interrupted) or failed"""
        return "succeeded" if self.error is None else _ENDS.get(self.error.split(":")[0], "failed")

    def counted(self, meter: Meter, seconds: float | None = None) -> None:
        """Tell a meter of it. A trigger that no arrow fits may be any text, and is not told."""
        trigger = self.trigger if self.to_state else NO_ARROW
        way = (trigger, self.from_state, self.to_state)
        meter.add(TRANSITIONS, (self.machine, self.kind, *way, self.outcome), seconds)

    def stored(self) -> list[Any]:
        """What the log keeps: its fields in order, the error only of one that failed."""
        time = microseconds(self.timestamp)
        way = [self.kind, self.from_state, self.to_state, self.trigger]
        made = [self.number, self.id, *way, time, self.version]
        return made if self.error is None else [*made, self.error]

    @classmethod
    def of(cls, agent: str, machine: str, stored: Any) -> Transition:
        """The opposite of `stored`."""
        try:
            number, id, kind, origin, target, trigger, time, version, *error = stored
            when = moment(time)
        except (TypeError, ValueError):
            raise DamagedRecordError(
                f"{agent}: the log of the machine {machine!r} holds what is no transition"
            ) from None
        way = (kind, origin, target, trigger)
        return cls(number, id, agent, machine, *way, when, version, error[0] if error else None)


@dataclass(frozen=True, slots=True)
class MachineIntent:
    """A transition with work inside that was begun, and has not ended as far as is known."""

    id: str
    """Of the transition, also when it is tried again: good as an idempotency key."""
    trigger: str
    from_state: str
    to_state: str
    input: dict[str, Any] = field(compare=False)
    """What the trigger brought along. The id and the attempt say which intent it is; values do not
    tell that: nan is not equal to itself."""
    begun: datetime
    attempt: int = 1

    def stored(self) -> dict[str, Any]:
        """What is kept."""
        return {
            "id": self.id,
            "trigger": self.trigger,
            "from": self.from_state,
            "to": self.to_state,
            "input": self.input,
            "begun": self.begun,
            "attempt": self.attempt,
        }

    @classmethod
    def of(cls, stored: Any) -> MachineIntent:
        """The opposite of `stored`."""
        names = ("id", "trigger", "from", "to", "input", "begun", "attempt")
        try:
            return cls(*(stored[name] for name in names))
        except (KeyError, TypeError):
            raise DamagedRecordError("what a machine has begun cannot be read") from None


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """Where a machine is, or was at a version."""

    agent_id: str
    machine: str
    state: str
    data: dict[str, Any]
    version: int
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, Any] = field(default_factory=dict)
    prompt: str = ""
    """What its state says, with the data filled in."""
    pending: MachineIntent | None = None
    """A transition that was begun and never ended; `recover` or `settle` ends it."""
    unnumbered: bool = False
    """Another timeline made it, and the next transition gives it its number here; until then its
    version is below 0."""


@dataclass(frozen=True, slots=True)
class MachineRecovered:
    """What became of a transition that had been interrupted."""

    how: str
    """nothing (there was none), ask (it is still open: `settle` it), complete or roll_back"""
    intent: MachineIntent | None
    snapshot: MachineSnapshot | None
    """Where the machine is now."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did, or would do."""

    from_version: int
    transitions: tuple[Transition, ...]
    """Those that were applied, in order."""
    snapshot: MachineSnapshot
    """Where the machine is now; of a dry run, where it would be."""
    dry_run: bool = False
