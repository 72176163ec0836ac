"""An agent's state as one object: all that a checkpoint covers, or what is stored now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.checkpoints.locate import Description


@dataclass(frozen=True, slots=True)
class Captured:
    """The state of an agent at a checkpoint."""

    state_id: str
    agent_id: str
    version: str
    """Of the agent, as its identity said then."""
    timestamp: int
    """Milliseconds since 1970."""
    components: dict[str, Any]
    """Those of which something was stored, as objects."""
    about: Description
    """Where it comes from, how long it is kept, what it rests on, and whether it is what was
    written: as `Checkpoints.inspect` says."""


@dataclass(frozen=True, slots=True)
class Persisted:
    """The state of an agent as one flat record."""

    agent_id: str
    state_name: str
    """Of the agent's machine, if it has one that is named `main`; else of the component `state`.
    Empty if the agent is in no named state."""
    state_data: Any
    conversation: list[Any]
    configuration: dict[str, Any]
    tool_usage: dict[str, Any]
    execution_state: Any
    metadata: dict[str, Any]
    schema_version: int
    """The highest version of a component that was written; 1 if all are of the first."""
    version: int
    """The newest entry: it grows with every change."""
    created_at: datetime
    """As its identity says; if it has none, when its scope was made."""
    updated_at: datetime


FLAT = ("state", "conversation", "configuration", "tool_usage", "execution_state", "metadata")
"""The components that such a record holds."""
