"""Whether what a machine keeps is whole: its state, version, times, data, and its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.agents.machines.definition import MachineDefinition
    from holdfast.agents.machines.records import MachineSnapshot, Transition
    from holdfast.agents.machines.routines import Routines


def problems_of(routines: Routines) -> tuple[str, ...]:
    """What is wrong with a machine, as texts."""
    snapshot = routines.snapshot()
    found = list(wrong_with(routines.definition, snapshot)) if snapshot is not None else []
    newest = routines.looker.newest_first()
    return (*found, *_log(newest))


def wrong_with(definition: MachineDefinition, snapshot: MachineSnapshot) -> Iterator[str]:
    """What is wrong with a snapshot, as texts."""
    if not snapshot.agent_id:
        yield "its agent has no name"
    if not snapshot.state:
        yield "its state has no name"
    if snapshot.version < 0 and not snapshot.unnumbered:
        yield f"its version {snapshot.version} is negative"
    if snapshot.updated_at < snapshot.created_at:
        yield "it was changed before it was made"
    yield from definition.validate_data(snapshot.state, snapshot.data)


def _log(newest_first: Iterator[Transition]) -> Iterator[str]:
    later: Transition | None = None
    for one in newest_first:
        if later is not None and one.number + 1 != later.number:
            yield f"the log goes from transition {one.number} to {later.number}"
        if later is not None and later.version - one.version != later.success:
            yield f"transition {later.number} has version {later.version} after {one.version}"
        later = one
