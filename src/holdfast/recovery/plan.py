"""What a recovery would do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.recovery.context import Context
from holdfast.recovery.failures import Failure
from holdfast.recovery.procedure import Procedure, RecoveryStep
from holdfast.recovery.strategies import Looked, look
from holdfast.store.names.scope import Scope


def looked_for(context: Context, steps: Iterable[RecoveryStep]) -> Looked:
    """What the steps of a procedure that look for a state would come to.

    What the first finds that finds something is put back; a critical one that does not ends it.
    """
    looked = Looked()
    for step in steps:
        looked = look(context, context.order(step.action))
        if looked.target is not None or step.critical:
            break
    return looked


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What a recovery would do."""

    agent: Scope
    failure: Failure
    procedure: Procedure
    strategy: str | None
    """None if none serves."""
    point: str | None
    lost: str | None
    """None if none serves: then nothing is changed, and nothing is recovered."""
    passed: dict[str, str]
    """Strategies that would not serve, and why."""
    keys: tuple[str, ...] = ()
    """The keys that would go back, if not all of them."""
    healed: int = 0
    """Damaged or lost rows that copies of the store would give back before."""

    @property
    def serves(self) -> bool:
        """Whether it would come to a state, as far as that shows before, or looks for none."""
        return self.lost is not None

    def __str__(self) -> str:
        head = f"{self.agent}: {self.failure.kind} is answered by {self.procedure.id}"
        lines = [f"  {step.key}" for step in self.procedure.steps]
        lines += [f"  passed over: {name}: {why}" for name, why in self.passed.items()]
        none = "none serves" if self.passed else "the procedure looks for no state"
        served = f"{self.strategy}, {self.point or 'nothing'}" if self.strategy else none
        lines += [f"  healed from copies: {self.healed} rows"] if self.healed else []
        keys = [f"  keys: {', '.join(self.keys)}"] if self.keys else []
        lost = [f"  lost: {self.lost}"] if self.lost is not None else []
        return "\n".join([head, *lines, f"  strategy: {served}", *keys, *lost])
