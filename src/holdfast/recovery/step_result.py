"""What steps of recoveries come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class RecoveryStepResult:
    """What became of one step; an error becomes a result that says so."""

    step: str
    success: bool
    result: Mapping[str, Any]
    error: str
    seconds: float
    attempt: int
    skipped: bool = False
    """Left out, because a step that it depends on had failed."""
    verdict: str = ""
    """refused: a check refused the state; hopeless: there is no state left to try"""
    validation: Mapping[str, bool] = field(default_factory=dict)
    """For each field that the step's `validation` names, whether the result held that value; empty
    if it names none, or the step came to no result."""
    executed_at: datetime | None = None
    """When it began; None if it was left out."""

    def data(self) -> dict[str, Any]:
        """Plain data."""
        return {name: getattr(self, name) for name in self.__slots__}
