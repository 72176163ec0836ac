"""The blocking face: the same names as `holdfast.checkpoints`, without `await`."""

from __future__ import annotations

from holdfast.checkpoints.conditions import Condition
from holdfast.checkpoints.engine import Triggered
from holdfast.checkpoints.explaining import Explained, Reading
from holdfast.checkpoints.policies import Policies
from holdfast.checkpoints.policy import DEFAULTS, Frequency, Policy, Retention, Setting
from holdfast.checkpoints.tracker import Event

__all__ = [
    "DEFAULTS",
    "Condition",
    "Event",
    "Explained",
    "Frequency",
    "Policies",
    "Policy",
    "Reading",
    "Retention",
    "Setting",
    "Triggered",
]
