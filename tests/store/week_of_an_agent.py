"""What an agent wrote in a week, as it was recorded once under the default policies.

The agent answered requests on working days: it planned, called tools, took notes, forgot what was
done, made a checkpoint before each deployment, and went back to it when that failed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

WEEK = Path(__file__).with_name("week_of_an_agent.json")


class Step(NamedTuple):
    """One entry of the agent's journal."""

    time: float
    """Seconds since 1970."""
    writes: list[tuple[str, int, int]]
    """(key, bytes, which) of each key that was written: 0 bytes where the key went; equal numbers
    are equal values of the key."""
    policy: str | None
    """The policy whose checkpoint it is; empty: the agent's own; None: no checkpoint."""
    bytes: int


def recorded() -> list[Step]:
    """The week as it is kept."""
    return [Step(*step) for step in json.loads(WEEK.read_text())]
