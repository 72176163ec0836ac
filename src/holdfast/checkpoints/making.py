"""Making a checkpoint that says all that is known of it, and what its state rests on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from holdfast.checkpoints.requests import DEPENDENCIES, CheckpointRequest, one_of, said
from holdfast.errors import (
    CheckpointValidationError,
    DependencyError,
    HoldfastError,
    InvalidInputError,
    MissingError,
    StateIntegrityError,
)
from holdfast.store import rows
from holdfast.store.differing import index_of
from holdfast.store.handles import LineHandle, StoreHandle
from holdfast.store.items import Checkpoint, Entry
from holdfast.store.reading import microseconds

_log = logging.getLogger("holdfast.checkpoints")


@dataclass(frozen=True, slots=True)
class CheckpointResult:
    """What became of a request; one that fails raises instead."""

    success: bool
    checkpoint: Checkpoint
    checkpoint_id: str
    agent_id: str
    """The scope's id; of the global scope, `global`."""
    timestamp: int
    """Milliseconds since 1970, as the writer's clock claimed."""
    size: int
    """Bytes that it takes in the store, whatever the size of the state."""
    hash: str
    """Commitment to the whole state, in hexadecimal."""
    created_at: datetime
    synchronized: bool = False
    """Whether it was asked for, and the peers have it."""
    sync_error: str | None = None
    """The name of the error with which that failed; the checkpoint is there all the same."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """Something that the state of a checkpoint rests on, and how that is now."""

    scope: str
    timeline: str
    entry: int
    status: str
    """same (its state is what it was), moved on, missing or damaged"""

    def __str__(self) -> str:
        return f"{self.scope} {self.timeline}@{self.entry} ({self.status})"


def create(
    handle: LineHandle, request: CheckpointRequest, *, peers: bool = False, **more: Any
) -> CheckpointResult:
    """Make the checkpoint that is asked for; `more` is said of it in its metadata.

    `peers` says whether there is somebody to bring it to, where the request asks for that.
    """
    request.check()
    if request.sync and not peers:
        raise CheckpointValidationError(
            ["sync needs to know how: Checkpoints(state, sync=FUNCTION) brings one to the peers"]
        )
    made = make(handle, request, **more)
    return CheckpointResult(
        True,
        made,
        made.id,
        agent_id(handle),
        microseconds(made.time) // 1000,
        stored_bytes(handle, made),
        made.root,
        made.time,
    )


def synchronized(result: CheckpointResult, error: Exception | None) -> CheckpointResult:
    """The result behind the attempt to bring it to the peers."""
    if error is None:
        return replace(result, synchronized=True)
    _log.error("%s: not brought to the peers: %s", result.checkpoint_id, type(error).__name__)
    return replace(result, sync_error=type(error).__name__)


def make(handle: LineHandle, request: CheckpointRequest, **more: Any) -> Checkpoint:
    """The same, as the store gives it."""
    plan = handle.plan_checkpoint(
        request.name,
        request.type,
        request.tags,
        request.description,
        metadata_of(handle, request, **more),
    )
    return plan[1](handle.core.run(plan[0]))  # type: ignore[no-any-return]


def metadata_of(handle: LineHandle, request: CheckpointRequest, **more: Any) -> dict[str, Any]:
    """All that the metadata of a checkpoint says."""
    depends = noted_dependencies(handle, request.depends_on)
    own = request.own() | ({"depends": depends} if depends else {}) | more
    return {**request.metadata, **own}


def agent_id(handle: LineHandle) -> str:
    """The id of an agent, or of whatever else the scope is of."""
    return handle.scope.id or str(handle.scope)


def stored_bytes(handle: LineHandle, made: Checkpoint) -> int:
    """Bytes that a checkpoint takes in the store."""
    line = handle.history.points.line(made.timeline)
    key = rows.entry(line.prefix, made.sequence)
    return len(key) + len(line.ledger.storage.get([key])[0] or b"")


# dependencies


def noted_dependencies(handle: LineHandle, on: Iterable[Any]) -> list[list[Any]]:
    """[scope, timeline, entry, hash] of each thing that a state rests on."""
    noted, problems = [], []
    for one in on:
        try:
            noted.append(_noted(handle, one))
        except HoldfastError as error:
            problems.append(str(error))
    if problems:
        raise CheckpointValidationError(problems)
    return noted


def _noted(handle: LineHandle, one: Any) -> list[Any]:
    scope, timeline, sequence = (
        (one.scope, one.timeline, one.sequence)
        if isinstance(one, Checkpoint | Entry)
        else StoreHandle(handle.core).of(one).place()
    )
    if scope == handle.scope:
        raise CheckpointValidationError([f"{scope} cannot rest on itself"])
    history = StoreHandle(handle.core).line(scope, timeline).history
    timeline, sequence = history.points.find(one if hasattr(one, "hash") else sequence)
    entries = history.log(since=sequence, until=sequence) if sequence else []
    if not entries:
        raise CheckpointValidationError([f"{scope} has no entry to rest on"])
    return [str(scope), timeline, sequence, entries[0].hash]


def dependencies_of(handle: LineHandle, metadata: Mapping[str, Any]) -> list[Dependency]:
    """What a checkpoint rests on, as it is now."""
    noted: list[Any] = said(metadata, "depends", [])
    return [_now(handle, *one) for one in noted if type(one) is list and len(one) == 4]


def _now(handle: LineHandle, scope: str, timeline: str, sequence: int, hash_: str) -> Dependency:
    try:
        history = StoreHandle(handle.core).line(scope, timeline).history
        then = history.points.view(*history.points.find(f"{timeline}@{sequence}"))
        entries = history.log(since=sequence, until=sequence)
        if not entries or entries[0].hash != hash_:
            return Dependency(scope, timeline, sequence, "missing")
        same = index_of(then).hash == index_of(history.points.line()).hash
    except (MissingError, InvalidInputError):
        return Dependency(scope, timeline, sequence, "missing")
    except StateIntegrityError:
        return Dependency(scope, timeline, sequence, "damaged")
    return Dependency(scope, timeline, sequence, "same" if same else "moved on")


def check_dependencies(
    handle: LineHandle, metadata: Mapping[str, Any], wanted: str
) -> list[Dependency]:
    """How what a checkpoint rests on is now; refused if that is not as it must be."""
    one_of(wanted, DEPENDENCIES, "dependencies is")
    found = dependencies_of(handle, metadata)
    good = {"exist": ("same", "moved on"), "unchanged": ("same",)}.get(wanted)
    bad = [one for one in found if good is not None and one.status not in good]
    if bad:
        raise DependencyError(
            f"{handle.scope}: the checkpoint rests on {', '.join(map(str, bad))}; restore those "
            "too, or give dependencies='ignore'"
        )
    return found
