"""Operations with a way back: a checkpoint before, and what was done undone if they fail.

What an operation writes is known by its cause: every entry made inside its block, also by an
operation inside of it, carries its name in `cause.operation`. Only those entries are reverted,
and of them only keys that nobody else changed since: operations may run beside each other, and
inside each other. Sticky keys stay as they are: what they tell of has happened. The checkpoint
holds the same name. So an operation whose process was killed can be undone, or let be, by whoever
finds it among those that are held.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    nullcontext,
)
from dataclasses import dataclass, field, replace
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from holdfast.checkpoints.create import make, release
from holdfast.checkpoints.request import CheckpointRequest
from holdfast.errors import InvalidInputError, MissingError, PrunedError
from holdfast.storage.rows import again
from holdfast.store.inner import (
    AS_BEFORE,
    Held,
    LineHandle,
    entry,
    handle_of,
    held,
    revert_state,
    settle_after,
)
from holdfast.store.names import rowkinds
from holdfast.store.names.arguments import check_run, check_text, is_async, ran
from holdfast.store.names.cause import WITHIN, acting
from holdfast.store.names.face import Steps, end, faced, made, steps, write
from holdfast.store.names.items import Checkpoint, Restored, Reverted
from holdfast.store.state import State

_F = TypeVar("_F", bound=Callable[..., Any])
_A = TypeVar("_A", bound=Callable[..., Awaitable[Any]])
OUTCOMES = ("revert", "keep")
_AROUND = "what an operation is around"
_NEUTRAL = {entry.CHECKPOINT, entry.PRUNE, entry.REKEY, entry.LOST, entry.TAKEN, entry.SPOILT}
"""What changes no key."""


@dataclass
class Running:
    """An operation, while it runs and after."""

    name: str
    operation: str
    """What its entries carry in `cause.operation`."""
    checkpoint: Checkpoint
    outcome: str = "running"
    """running, completed, reverted, kept or failed (its end could not be noted, or what it did not
    be undone: its checkpoint is held)"""
    reverted: Reverted | None = field(default=None)
    """What undoing it did: `done` went back, `left` was left alone, with the reason."""


def undo(handle: LineHandle, checkpoint: Checkpoint, operation: str) -> Reverted | None:
    """Revert what an operation wrote; None if that is nothing.

    A restore or merge of it cannot be reverted key by key: if nobody else wrote since, the state of
    its checkpoint is restored instead. Then its checkpoint is let go, and those of operations
    inside of it. Refused if entries behind the checkpoint are pruned: which keys the operation
    changed is no longer known.
    """
    done, backups = again(
        lambda: _undo(handle, checkpoint, operation),
        f"{handle.scope}: others were always faster to write than operation {checkpoint.name} to "
        "be undone; try again",
    )
    ids = _ended(handle, checkpoint, operation, clean=done is None or not done.left)
    release(handle, sorted({*ids, *backups}), "reverted", checkpoint.name, operation=operation)
    return done


def _ended(
    handle: LineHandle, checkpoint: Checkpoint, operation: str, *, clean: bool
) -> Iterator[str]:
    """Ids of what is held for an operation: its own checkpoint and those of operations inside of
    it; if all went back, also backups of what it restored."""
    for one in held(handle, checkpoint.sequence):
        if part_of(one.operation, operation) or (
            clean and part_of(one.checkpoint.cause.operation, operation)
        ):
            yield one.checkpoint.id


def _undo(
    handle: LineHandle, checkpoint: Checkpoint, operation: str
) -> tuple[Reverted | None, list[str]]:
    """What was undone, and the ids of backups that this made."""
    numbers, whole, alone = [], False, True
    head = handle.place()[2]
    since = handle.history.entries(newest_first=False, low=checkpoint.sequence + 1, high=head)
    for row, _, body in since:
        kinds = {op[0] for op in body.ops}
        if kinds <= _NEUTRAL:
            continue
        if body.cause is not None and part_of(body.cause.operation, operation):
            numbers.append(rowkinds.sequence_of(row))
            whole = whole or not kinds.isdisjoint((entry.RESTORE, entry.MERGE))
        else:
            alone = False
    if (floor := handle.history.points.line().floor.sequence) > checkpoint.sequence:
        raise PrunedError(
            f"{handle.scope}: operation {checkpoint.name} cannot be undone by itself: entries up "
            f"to {floor} are pruned, and some may be its own. Its checkpoint {checkpoint.id} is "
            "still held: restore that, with what others wrote since, or finish it by keep"
        )
    reason = f"operation {checkpoint.name} failed"
    if not numbers:
        return None, []
    if whole and alone:
        # The state before it, unless somebody else wrote behind the head.
        keys = handle.history.differing(checkpoint)
        change, finish = handle.plan_restore(checkpoint, "references", reason, head)
        back: Restored = finish(handle.core.run(change))
        settle_after(handle)
        done = Reverted(handle.scope, handle.timeline, keys, [], back.sequence)
        return done, [back.backup.id] if back.backup is not None else []
    done = revert_state(
        handle,
        correlation=None,
        entries=numbers,
        actor=None,
        dry_run=False,
        reason=reason,
        operation=True,  # sticky keys stay, and what others restored meanwhile
    )
    return replace(done, left=[one for one in done.left if one.why != AS_BEFORE]), []


def part_of(inner: str | None, outer: str) -> bool:
    """Whether an entry was made by an operation, or by one inside of it."""
    return inner is not None and (inner == outer or inner.startswith(outer + WITHIN))


def finish(handle: LineHandle, found: Held, how: str) -> Reverted | None:
    """Decide about an operation that is over and did not say so: its process was killed."""
    if how not in OUTCOMES:
        raise InvalidInputError(f"an operation is finished by {' or '.join(OUTCOMES)}")
    if how == "revert":
        with acting(operation=found.operation):  # as if it had failed by itself
            return undo(handle, found.checkpoint, found.operation)
    release(handle, [found.checkpoint.id], "kept", found.checkpoint.name)
    return None


@faced(by_hand="holdfast.checkpoints.operation:AsyncOperationBlock")
class OperationBlock(AbstractContextManager[Running]):
    """A context manager and a decorator around something that may have to be undone.

    A `pre_operation` checkpoint is made first. If the block ends well, it is let go. If it raises,
    what this block wrote is reverted (`on_error="revert"`): only keys that it changed, and of those
    none that somebody else changed since, which are named in notes on the error and in
    `running.reverted`; or it is left as it is (`keep`), with its checkpoint held. What other
    threads write is no part of it, unless they enter `holdfast.sync.Store.acting` with
    `operation=running.operation`. A function that it decorates is a plain one: `async def` and
    generators, which run later, are refused. Put no block into a generator: what its reader writes
    between two items would count as the operation's.
    """

    def __init__(
        self, state: State, name: str, on_error: str, tags: Sequence[str], description: str
    ) -> None:
        check_text(name, "the name of an operation", 128, least=1)
        if WITHIN in name:
            raise InvalidInputError(f"the name of an operation cannot hold {WITHIN!r}")
        if on_error not in OUTCOMES:
            raise InvalidInputError(f"on_error is {' or '.join(OUTCOMES)}")
        self._given = (state, name, on_error, tags, description)
        self._state, self._name, self._on_error = state, name, on_error
        self._request = CheckpointRequest(name, "pre_operation", "operation", tags, description)
        self._busy = threading.Lock()
        """Held from the beginning of a block to its end."""
        self._cause: AbstractContextManager[Any] = nullcontext()
        self._running: Running | None = None

    @steps
    def __enter__(self) -> Steps[Running]:
        handle, request = handle_of(self._state), self._request
        if not self._busy.acquire(blocking=False):
            raise InvalidInputError("this operation is running; make another for another block")
        # What names one run of it among all others.
        self._cause = acting(operation=f"{self._name}~{os.urandom(6).hex()}")
        operation = str(self._cause.__enter__().operation)

        def begin() -> Running:
            request.check()
            made = make(handle, request, operation=operation, on_error=self._on_error)
            return Running(self._name, operation, made)

        try:
            # Cancelled, it is ended: nothing was done in it.
            self._running = yield write(begin, undo=lambda begun: self._end(begun, None))
        except BaseException:  # a cancelled one, too: there is no block that would end it
            self._over()
            raise
        assert self._running is not None
        return self._running

    @steps
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Steps[None]:
        assert self._running is not None
        try:
            yield end(self._end, self._running, error)
        except Exception as wrong:  # what goes wrong here does not hide an error of the block
            if error is None:
                raise
            made = self._running.checkpoint
            error.add_note(
                str(wrong)  # it never can, and says what is left to do
                if isinstance(wrong, PrunedError)
                else f"{made.scope}: what it did could not be undone ({type(wrong).__name__}); "
                f"checkpoint {made.id} is held, `finish` tries again"
            )
        finally:
            self._over()

    def _end(self, running: Running, error: BaseException | None) -> None:
        """Let the checkpoint go, or undo what was done."""
        handle = handle_of(self._state)
        running.outcome = "failed"  # unless one of these is done
        try:
            there = bool(handle.history.points.find(running.checkpoint))
        except MissingError as missing:  # its scope is gone: it may have deleted it itself
            there = isinstance(missing, PrunedError)
        if not there:
            running.outcome = "completed" if error is None else "kept"
            if error is not None:
                error.add_note(
                    f"{handle.scope}: nothing was undone: what the operation began with was "
                    "deleted or ended meanwhile"
                )
        elif error is None:
            release(handle, [running.checkpoint.id], "completed", self._name)
            running.outcome = "completed"
        elif self._on_error == "keep":
            running.outcome = "kept"  # and its checkpoint is held, until somebody decides
        else:
            running.reverted = undo(handle, running.checkpoint, running.operation)
            running.outcome = "reverted"
            for one in running.reverted.left if running.reverted is not None else ():
                key = f"{one.key}: " if one.key else ""
                error.add_note(f"{handle.scope}: left alone: {key}{one.why}")

    def _over(self) -> None:
        self._cause.__exit__(None, None, None)
        self._busy.release()

    def __call__(self, function: _F) -> _F:
        check_run(function, _AROUND, awaited=False)

        @wraps(function)
        def wrapped(*args: Any, **named: Any) -> Any:
            with OperationBlock(*self._given):
                return ran(function(*args, **named), _AROUND)

        return wrapped  # type: ignore[return-value]


class AsyncOperationBlock(made(OperationBlock), AbstractAsyncContextManager[Running]):  # type: ignore[misc]
    """A context manager and a decorator around something that may have to be undone.

    A `pre_operation` checkpoint is made first. If the block ends well, it is let go. If it raises,
    or is cancelled, what this block wrote is reverted (`on_error="revert"`): only keys that it
    changed, and of those none that somebody else changed since, which are named in notes on the
    error and in `running.reverted`; or it is left as it is (`keep`), with its checkpoint held.
    Tasks that are started inside the block are part of it; what they write behind its end is not
    undone by it: wait for them inside the block. A function that it decorates is an `async def`;
    plain ones and generators are refused. Put no block into a generator: what its reader writes
    between two items would count as the operation's.
    """

    def __call__(self, function: _A) -> _A:
        check_run(function, _AROUND, awaited=True)
        if not is_async(function):
            raise InvalidInputError(
                "holdfast.checkpoints.Checkpoints decorates an `async def`; for a function that "
                "does not await, use holdfast.sync.checkpoints.Checkpoints"
            )
        found = self._blocking

        @wraps(function)
        async def wrapped(*args: Any, **named: Any) -> Any:
            async with AsyncOperationBlock._of(OperationBlock(*found._given)):
                return await function(*args, **named)

        return wrapped  # type: ignore[return-value]
