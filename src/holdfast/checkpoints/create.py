"""Making a checkpoint that says all that is known of it, and what its state rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.checkpoints.request import DEPENDENCIES, CheckpointRequest, one_of
from holdfast.errors import (
    CheckpointNotFoundError,
    CheckpointValidationError,
    DependencyError,
    HoldfastError,
    InvalidInputError,
    MissingError,
    StateIntegrityError,
)
from holdfast.store.inner import (
    DEPENDS,
    Body,
    Held,
    LineHandle,
    Plan,
    Stage,
    StoreHandle,
    Timeline,
    beside_pruning,
    depends_in,
    held,
    index_of,
    microseconds,
    rest_on,
    split_row,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.items import Checkpoint, Entry


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

    @property
    def warning(self) -> str:
        """That the checkpoint is not signed, and what to do; empty if it is."""
        return self.checkpoint.warning


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
    problems = request.problems()
    if request.sync and not peers:
        problems.append(
            "sync needs to know how: Checkpoints(state, sync=FUNCTION) brings one to the peers"
        )
    if problems:
        raise CheckpointValidationError(problems)
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


def make(handle: LineHandle, request: CheckpointRequest, **more: Any) -> Checkpoint:
    """The same, as the store gives it."""

    def step() -> Checkpoint:
        change, finish = plan_request(handle, request, **more)
        return finish(handle.core.run(change))  # type: ignore[no-any-return]

    return beside_pruning(step) if request.depends_on else step()


def plan_request(handle: LineHandle, request: CheckpointRequest, **more: Any) -> Plan:
    """The change that makes a checkpoint, which comes to rest on what it depends on."""
    depends = noted_dependencies(handle, request.depends_on)
    own = request.own() | ({DEPENDS: depends} if depends else {}) | more
    metadata = {**request.metadata, **own}
    plan = handle.plan_checkpoint(
        request.name, request.type, request.tags, request.description, metadata
    )
    places = []
    for scope, timeline, sequence, _ in depends:
        points = StoreHandle(handle.core).line(scope, timeline).history.points
        places.append((points.line(timeline), sequence, points.anchors(timeline, sequence)))
    target = plan[0].targets[0]
    made: Any = target.special

    def special(stage: Stage, body: Body) -> None:
        for line, sequence, anchors in places:
            rest_on(handle.core, stage, line, sequence, anchors)
        made(stage, body)

    target.special = special
    return plan


def agent_id(handle: LineHandle) -> str:
    """The id of an agent, or of whatever else the scope is of."""
    return handle.scope.id or str(handle.scope)


def stored_bytes(handle: LineHandle, made: Checkpoint) -> int:
    """Bytes that a checkpoint takes in the store."""
    line = handle.history.points.line(made.timeline)
    key = rowkinds.entry(line.prefix, made.sequence)
    return len(key) + len(line.ledger.storage.get([key])[0] or b"")


# dependencies


def noted_dependencies(handle: LineHandle, on: Iterable[Any]) -> list[list[Any]]:
    """[scope, timeline, entry, hash] of each thing that a state rests on."""
    noted: list[list[Any]] = []
    problems: list[str] = []
    for one in on:
        try:
            scope, timeline, sequence = (
                (one.scope, one.timeline, one.sequence)
                if isinstance(one, Checkpoint | Entry)
                else StoreHandle(handle.core).of(one).place()
            )
            if scope == handle.scope:
                problems.append(f"{scope} cannot rest on itself")
                continue
            points = StoreHandle(handle.core).line(scope, timeline).history.points
            timeline, sequence = points.find(one if hasattr(one, "hash") else sequence)
            found = [str(scope), timeline, sequence, _hash_at(points.line(timeline), sequence)]
            if not found[-1]:
                problems.append(f"{scope} has no entry to rest on")
            noted += [] if found in noted else [found]
        except HoldfastError as error:
            problems.append(str(error))
    if problems:
        raise CheckpointValidationError(problems)
    return noted


def _hash_at(line: Timeline, sequence: int) -> str:
    """Hash of an entry, also of one that is kept below a floor; empty if there is none."""
    key = rowkinds.entry(line.prefix, sequence)
    row = line.ledger.storage.get([key])[0]
    if row is None:
        return ""
    return line.ledger.entry_hash(key, split_row(row)[0].data).hex()


def dependencies_of(handle: LineHandle, metadata: Mapping[str, Any]) -> list[Dependency]:
    """What a checkpoint rests on, as it is now."""
    found = []
    for scope, timeline, sequence, hash_ in depends_in(metadata):
        status = "missing"
        try:
            points = StoreHandle(handle.core).line(scope, timeline).history.points
            then = points.view(*points.find(f"{timeline}@{sequence}"))
            if _hash_at(then, sequence) == hash_:
                same = index_of(then).hash == index_of(points.line()).hash
                status = "same" if same else "moved on"
        except (MissingError, InvalidInputError):
            status = "missing"
        except StateIntegrityError:  # told of the dependency, not raised of this scope
            status = "damaged"
        found.append(Dependency(scope, timeline, sequence, status))
    return found


def unmet(found: Iterable[Dependency], wanted: str) -> list[Dependency]:
    """What is not as it must be, of what a checkpoint rests on."""
    good = {"exist": ("same", "moved on"), "unchanged": ("same",)}.get(wanted)
    return [one for one in found if good is not None and one.status not in good]


def check_dependencies(
    handle: LineHandle, metadata: Mapping[str, Any], wanted: str
) -> list[Dependency]:
    """How what a checkpoint rests on is now; refused if that is not as it must be."""
    one_of(wanted, DEPENDENCIES, "dependencies is")
    found = dependencies_of(handle, metadata)
    if bad := unmet(found, wanted):
        raise DependencyError(
            f"{handle.scope}: the checkpoint rests on {', '.join(map(str, bad))}; restore those "
            "too, or give dependencies='ignore'"
        )
    return found


# ---- release ------------------------------------------------------------------------------------
# Letting checkpoints go that were held: see `holdfast.store.upkeep.holds`.


def held_one(handle: LineHandle, which: Any, why: str) -> Held:
    """The one that is given, if it is held for this reason."""
    timeline, sequence = handle.history.points.find(which)
    id_ = f"{timeline}@{sequence}"
    for one in held(handle):
        if one.checkpoint.id == id_ and one.why == why:
            return one
    wanted = "the backup of a restore" if why == "restore" else "the checkpoint of an operation"
    raise CheckpointNotFoundError(
        f"{handle.scope}: {id_} is not {wanted} that is still needed; `held()` lists those"
    )


def release(
    handle: LineHandle,
    ids: list[str],
    outcome: str,
    name: str = "",
    **more: str,
) -> Checkpoint:
    """Let checkpoints go, and say what became of what they were made for."""
    change, finish = plan_release(handle, ids, outcome, name, **more)
    return finish(handle.core.run(change))  # type: ignore[no-any-return]


def plan_release(handle: LineHandle, ids: list[str], outcome: str, name: str, **more: str) -> Plan:
    """The change that lets checkpoints go."""
    request = CheckpointRequest(name, "post_operation")
    return plan_request(handle, request, releases=ids, outcome=outcome, **more)
