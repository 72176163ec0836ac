"""An agent's state as one object: all that a checkpoint covers, or what is stored now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.agents.machines.machine_records import DATA, MAIN, NOW, machine_key
from holdfast.agents.state.components import SCHEMA
from holdfast.checkpoints.locate import Description, describe
from holdfast.store.inner import handle_of, made, moment

if TYPE_CHECKING:
    from holdfast.agents.state.agent_state import AgentState


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


def capture(agent: AgentState, checkpoint: Any, verify: str) -> Captured:
    """All that a checkpoint covers and all that is known of it."""
    handle = handle_of(agent._state)
    about = describe(handle, checkpoint, verify)
    point = about.checkpoint
    then = agent._at(point)
    components = then.load()
    identity = components.get("identity")
    return Captured(
        point.id,
        point.scope.id,
        identity.version if identity is not None else "",
        round(point.time.timestamp() * 1000),
        components,
        about,
    )


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


def persisted(agent: AgentState) -> Persisted | None:
    """What is stored now; None if nothing was ever written."""
    handle = handle_of(agent._state)
    sequence = handle.place()[2]
    if not sequence:
        return None
    then = agent._at(sequence)
    source = then._moment()
    read = {name: then._components[name].read(source) for name in _FLAT}
    # Where it is: as its machine has it, if it has one, else as the component says.
    now, state = source.get(machine_key(MAIN, NOW)), read.pop("state")
    state_name, state_data = ("", None) if state is None else (state.name, state.data)
    if now is not None:
        state_name, state_data = now["state"], source.get(machine_key(MAIN, DATA))
    [newest] = handle.history.log(limit=1, until=sequence)
    identity = then._components["identity"].read(source)
    return Persisted(
        agent_id=handle.scope.id,
        state_name=state_name,
        state_data=state_data,
        **read,
        schema_version=max(source.get(SCHEMA, {}).values(), default=1),
        version=sequence,
        created_at=identity.created_at or moment(made(handle.core, handle.scope)),
        updated_at=newest.time,
    )


_FLAT = ("state", "conversation", "configuration", "tool_usage", "execution_state", "metadata")
