"""An order of strategies that learns from what became of earlier recoveries.

Only `keys` and `journal` are exchanged, where they are neighbours in the fixed order: both repair,
and which of them loses less depends on what is damaged. The one with the best chance for its time
comes first; but what it finds before its turn serves at once only if it loses nothing (`look`).
What is proposed is compared with the fixed order over the whole record, where what was never tried
counts as a failure that took its usual time; if it would not have been faster, the fixed order
stays. So on the record it is never worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from holdfast.recovery import failures
from holdfast.recovery.damaged_records import readable
from holdfast.recovery.records import RUNNING, SUCCEEDED, Record

LEAST = 5
"""Recoveries of a kind, below which nothing is proposed."""
_REPAIRS = frozenset((failures.KEYS, failures.JOURNAL))
"""Strategies that may change places. All others lose what came after a state of the past, or that
they lack: how much that is says no record of other failures."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one recovery says of strategies: seconds that each took, and the one that served."""

    kind: str
    seconds: Mapping[str, float]
    served: str | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """An order of strategies for a kind of failure, and what speaks for it."""

    kind: str
    order: tuple[str, ...]
    fixed: tuple[str, ...]
    recoveries: int
    """How many it rests on."""
    seconds: float
    """What looking for a state would have taken with it in the mean of those."""
    fixed_seconds: float
    """The same for the fixed order."""

    @property
    def differs(self) -> bool:
        """Whether it proposes something else than the fixed order."""
        return self.order != self.fixed


def outcomes(records: Iterable[Record], kind: str) -> list[Outcome]:
    """What recoveries that ended say of strategies: each attempt that looked for a state.

    Only those that answered failures of a kind are read.
    """
    found = []
    ended = [one for one in records if one.status != RUNNING and one.failure.kind == kind]
    for record, results in readable(ended, lambda one: (one, one.all_results())):
        for part, one in results:
            if part == "steps" and isinstance(one.result.get("seconds"), Mapping):
                last = record.status == SUCCEEDED and one.attempt == record.attempt
                served = one.result.get("strategy") if last else None
                found.append(Outcome(record.failure.kind, one.result["seconds"], served))
    return found


def propose(kind: str, fixed: Sequence[str], known: Iterable[Outcome]) -> Proposal:
    """The order to try strategies in, by what is known of failures of this kind."""
    fixed = tuple(fixed)
    of_kind = [one for one in known if one.kind == kind]
    if len(of_kind) < LEAST:
        return Proposal(kind, fixed, fixed, len(of_kind), 0.0, 0.0)
    usual = {name: _usual(name, of_kind) for name in fixed}

    def worth(name: str) -> tuple[float, int]:
        tried = sum(name in one.seconds for one in of_kind)
        chance = (sum(one.served == name for one in of_kind) + 0.5) / (tried + 1)
        return -chance / max(usual[name], 1e-6), fixed.index(name)

    # The stated order of losses is not ours to change.
    alike = [list(names) for _, names in groupby(fixed, lambda n: "" if n in _REPAIRS else n)]
    learned = tuple(name for names in alike for name in sorted(names, key=worth))
    before, after = _mean(fixed, of_kind, usual), _mean(learned, of_kind, usual)
    if after >= before:
        return Proposal(kind, fixed, fixed, len(of_kind), before, before)
    return Proposal(kind, learned, fixed, len(of_kind), after, before)


def _usual(name: str, known: Sequence[Outcome]) -> float:
    """What a strategy takes in the mean; one never tried, what the others do."""
    own = [one.seconds[name] for one in known if name in one.seconds]
    every = own or [seconds for one in known for seconds in one.seconds.values()]
    return sum(every) / len(every) if every else 0.0


def _mean(order: Sequence[str], known: Sequence[Outcome], usual: Mapping[str, float]) -> float:
    """Seconds that an order would have taken to find what served, in the mean."""
    total = 0.0
    for one in known:
        for name in order:
            total += one.seconds.get(name, usual[name])
            if one.served == name:
                break
    return total / len(known)
