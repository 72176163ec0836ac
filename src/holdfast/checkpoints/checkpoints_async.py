"""Checkpoints of a state, and groups of them: the async face. What it does leaves the loop."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from holdfast.checkpoints import create as making
from holdfast.checkpoints import describe, release
from holdfast.checkpoints import group as groups
from holdfast.checkpoints import locate as locating
from holdfast.checkpoints import restore as restoring
from holdfast.checkpoints.operation import (
    Operating,
    Running,
    check_operation,
    check_place,
    finish,
    not_undone,
)
from holdfast.checkpoints.request import CheckpointRequest
from holdfast.checkpoints.request_arguments import (
    checkpoint_request,
    group_members,
    locator,
    restore_request,
)
from holdfast.errors import InvalidInputError
from holdfast.store.names.arguments import check_run, ran
from holdfast.store.names.cause import acting
from holdfast.store.names.items import Checkpoint, Restored, Reverted
from holdfast.store.names.threads import read_away, surely, to_the_end
from holdfast.store.rules.checkpoint_holds import Held, held
from holdfast.store.state_async import State
from holdfast.store.store_async import Store
from holdfast.store.upkeep.end import end_after, end_line

_F = TypeVar("_F", bound=Callable[..., Awaitable[Any]])


class Checkpoints:
    """The checkpoints of one state: made on request, found, described, restored.

    `sync` (async, if it likes) is called with a checkpoint whose request says `sync=True`, and
    brings it to the peers; it raises if one of them did not get it.
    """

    def __init__(self, state: State, *, sync: Callable[[Checkpoint], Any] | None = None) -> None:
        if sync is not None:
            check_run(sync, "sync", awaited=True)
        if not isinstance(state, State):
            raise InvalidInputError(
                "Checkpoints takes a state; those of holdfast.sync have its own"
            )
        self._state = state
        self._sync = sync
        self._handle = state._handle

    async def create(
        self, request: CheckpointRequest | str = "", **fields: Any
    ) -> making.CheckpointResult:
        """Make a checkpoint as a `CheckpointRequest` says, given whole or by its fields."""
        asked = checkpoint_request(request, fields)
        peers = self._sync is not None
        done = await to_the_end(lambda: making.create(self._handle, asked, peers=peers))
        if not asked.sync or self._sync is None:
            return done
        try:
            ran(await _answer(self._sync(done.checkpoint)), "sync")
        except Exception as error:
            return making.synchronized(done, error)
        return making.synchronized(done, None)

    async def locate(self, **where: Any) -> Checkpoint:
        """The newest checkpoint that fits: id, name, type, tag, trigger, at, before, valid.

        `at` is a time, and means the last one not later; `before` a point, and means the last one
        before it; with `valid=True` damaged ones are passed over, and backups of restores unless
        their id, name or type is given.
        """
        return await read_away(locating.locate, self._handle, locator(where))

    async def find(self, *, limit: int | None = None, **where: Any) -> list[Checkpoint]:
        """All checkpoints that fit what `locate` takes, newest first."""
        return await read_away(locating.find, self._handle, locator(where), limit)

    async def inspect(self, which: Any, *, verify: str = "full") -> describe.Description:
        """All that is known of a checkpoint, after looking at what it covers."""
        return await read_away(describe.describe, self._handle, which, verify)

    async def restore(self, request: Any = None, **fields: Any) -> restoring.RestoreResult:
        """Return to a point as a `RestoreRequest` says, given whole or by its fields.

        Instead of a point, what `locate` takes says which checkpoint is meant. With `validate`, a
        function (async, if it likes) that gets the state: if it raises, or returns something but
        None and True, the state before is put back, and `StateValidationError` says so.
        """
        asked = restore_request(request, fields)

        def unvalidated(done: restoring.RestoreResult) -> None:
            if asked.validate is not None:  # nobody is there any more to validate it
                restoring.roll_back(self._handle, done, "cancelled")

        done = await to_the_end(restoring.restore, self._handle, asked, undo=unvalidated)
        if asked.validate is not None:
            why, cause = None, None
            try:
                why = restoring.failed(await _answer(asked.validate(self._state)))
            except BaseException as error:
                why, cause = type(error).__name__, error
            if why is not None:
                wrong = await surely(restoring.roll_back, self._handle, done, why)
                if cause is not None and not isinstance(cause, Exception):
                    raise cause  # the task or the program is to end; the state is as it was
                raise wrong from cause
        return done

    async def confirm(self, restored: Any) -> Checkpoint | None:
        """Say that a restore (its result, or its backup) is good: its backup is let go.

        None if it has none, as a recovery from what could not be read.
        """
        return await to_the_end(restoring.confirm, self._handle, restored)

    async def recover(self, **where: Any) -> restoring.Recovered:
        """Return to the newest checkpoint that is whole, of those that fit; again, if done again.

        Damaged ones are set aside, with the reason: the report names each one that was tried. Also
        where damage keeps the newest state from being read; then that state is not kept.
        """
        return await to_the_end(restoring.recover, self._handle, locator(where))

    async def simulate(
        self, function: Callable[[State], Any], request: Any = None, **fields: Any
    ) -> restoring.Simulation:
        """Run a function (async, if it likes) on the state as a restore would leave it.

        It runs on a timeline of its own; the state itself is not touched. The timeline stays, named
        in the result; if something fails, or is cancelled, it is ended.
        """
        asked = restore_request(request, fields)
        check_run(function, "what a simulation runs", awaited=True)
        trial, done = await to_the_end(
            restoring.rehearse,
            self._handle,
            asked,
            undo=lambda both: end_line(both[0], restoring.FAILED),
        )
        try:
            answer = await _answer(function(self._state.on(trial.timeline)))
            return await read_away(restoring.simulated, trial, done, answer)
        except BaseException as error:
            await surely(end_after, error, trial, restoring.FAILED)
            raise

    async def held(self) -> list[Held]:
        """Checkpoints that may not be removed: of operations, restores and recoveries."""
        return await read_away(held, self._handle)

    def operation(
        self,
        name: str,
        *,
        on_error: str = "revert",
        tags: Sequence[str] = (),
        description: str = "",
    ) -> OperationBlock:
        """A block, or an async function, with a checkpoint before it: see `OperationBlock`."""
        return OperationBlock(self._state, Operating(name, on_error, tags, description))

    async def finish(self, checkpoint: Any, how: str) -> Reverted | None:
        """Decide about an operation that never ended: `revert` what it did, or `keep` it."""
        found = await read_away(release.held_one, self._handle, checkpoint, "operation")
        return await to_the_end(finish, self._handle, found, how)


class OperationBlock(AbstractAsyncContextManager[Running]):
    """A context manager and a decorator around something that may have to be undone.

    A `pre_operation` checkpoint is made first. If the block ends well, it is let go. If it raises,
    or is cancelled, what this block wrote is reverted (`on_error="revert"`): only keys that it
    changed, and of those none that somebody else changed since, which are named in notes on the
    error and in `running.reverted`; or it is left as it is (`keep`), with its checkpoint held.
    Tasks that are started inside the block are part of it; what they write behind its end is not
    undone by it: wait for them inside the block. A function that it decorates is an `async def`;
    plain ones and generators are refused; so is the block inside of a generator, whose reader
    would write in the middle of it.
    """

    def __init__(self, state: State, operating: Operating) -> None:
        self._state = state
        self._operating = operating
        self._entered: tuple[AbstractContextManager[Any], Running] | None = None
        self._begun = False

    async def __aenter__(self) -> Running:
        check_place()
        if self._begun:
            raise InvalidInputError("this operation is running; make another for another block")
        self._begun = True
        cause = acting(operation=self._operating.label())
        operation = cause.__enter__().operation
        assert operation is not None
        handle, operating = self._state._handle, self._operating
        try:
            running = await to_the_end(
                operating.begin,
                handle,
                operation,
                undo=lambda begun: operating.end(handle, begun, None),  # nothing was done in it
            )
        except BaseException:
            self._begun = False
            cause.__exit__(None, None, None)
            raise
        self._entered = (cause, running)
        return running

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._entered is not None
        cause, running = self._entered
        try:
            await surely(self._operating.end, self._state._handle, running, error)
        except Exception as wrong:
            if error is None:
                raise
            error.add_note(not_undone(running, wrong))
        finally:
            self._entered, self._begun = None, False
            cause.__exit__(None, None, None)

    def __call__(self, function: _F) -> _F:
        check_operation(function, awaited=True)

        @functools.wraps(function)
        async def wrapped(*args: Any, **named: Any) -> Any:
            async with OperationBlock(self._state, self._operating):
                return await function(*args, **named)

        return wrapped  # type: ignore[return-value]


class CheckpointGroups:
    """Checkpoints over several scopes of one store, each made and restored in one commit."""

    def __init__(self, store: Store) -> None:
        if not isinstance(store, Store):
            raise InvalidInputError("CheckpointGroups takes a store; holdfast.sync has its own")
        self._handle = store._handle

    async def create(
        self,
        states: Iterable[Any],
        request: CheckpointRequest | str = "",
        **fields: Any,
    ) -> groups.Group:
        """One checkpoint in each state, at one moment; a state or a scope that is there."""
        handles = group_members(self._handle, states)
        asked = checkpoint_request(request, fields)
        return await to_the_end(groups.create_group, handles, asked)

    async def of(self, member: Checkpoint) -> groups.Group:
        """The group that a checkpoint is one of."""
        return await read_away(groups.group_of, self._handle, member)

    async def restore(
        self,
        group: groups.Group,
        *,
        verify: str = "full",
        dependencies: str = "exist",
        reason: str | None = None,
    ) -> list[Restored]:
        """Return to all states of a group, or to none."""
        return await to_the_end(
            functools.partial(
                groups.restore_group,
                self._handle,
                group,
                verify=verify,
                dependencies=dependencies,
                reason=reason,
            )
        )


async def _answer(given: Any) -> Any:
    return await given if inspect.isawaitable(given) else given
