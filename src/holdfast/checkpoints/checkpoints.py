"""Checkpoints of a state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from holdfast.checkpoints import create as making
from holdfast.checkpoints import locate as locating
from holdfast.checkpoints import restore_request as restoring
from holdfast.checkpoints.operation import OperationBlock, finish
from holdfast.checkpoints.request import (
    CheckpointRequest,
    RestoreRequest,
    checkpoint_request,
    locator,
    restore_request,
)
from holdfast.store.inner import Held, end_after, end_line, handle_of, held
from holdfast.store.names.arguments import check_face, check_plain_function
from holdfast.store.names.face import (
    Steps,
    ask,
    asks,
    check,
    end,
    faced,
    here,
    read,
    steps,
    write,
    writes,
)
from holdfast.store.names.items import Checkpoint, Reverted
from holdfast.store.state import State

_log = logging.getLogger("holdfast.checkpoints")


@faced
class Checkpoints:
    """The checkpoints of one state: made on request, found, described, restored.

    `sync` is called with a checkpoint whose request says `sync=True`, and brings it to the peers;
    it raises if one of them did not get it. It may be async on the async face, as all functions
    that methods of this class are given.
    """

    @asks("sync")
    def __init__(self, state: State, *, sync: Callable[[Checkpoint], Any] | None = None) -> None:
        if sync is not None:
            check_plain_function(sync, "sync")
        check_face(state, State, "Checkpoints")
        self._state = state
        self._sync = sync
        self._handle = handle_of(state)

    @steps
    def create(
        self, request: CheckpointRequest | str = "", **fields: Any
    ) -> Steps[making.CheckpointResult]:
        """Make a checkpoint as a `CheckpointRequest` says, given whole or by its fields."""
        asked = checkpoint_request(request, fields)
        peers = self._sync is not None
        done: making.CheckpointResult = yield write(making.create, self._handle, asked, peers=peers)
        if not asked.sync or self._sync is None:
            return done
        try:
            yield ask(self._sync, done.checkpoint, what="sync")
        except Exception as error:  # the checkpoint is made; what is wrong is with the peers
            _log.error("%s: not brought to the peers: %s", done.checkpoint_id, type(error).__name__)
            return replace(done, sync_error=type(error).__name__)
        return replace(done, synchronized=True)

    def locate(self, **where: Any) -> Checkpoint:
        """The newest checkpoint that fits: id, name, type, tag, trigger, at, before, valid.

        `at` is a time, and means the last one not later; `before` a point, and means the last one
        before it; with `valid=True` damaged ones are passed over, and backups of restores unless
        their id, name or type is given.
        """
        return locating.locate(self._handle, locator(where))

    def find(self, *, limit: int | None = None, **where: Any) -> list[Checkpoint]:
        """All checkpoints that fit what `locate` takes, newest first."""
        return locating.find(self._handle, locator(where), limit)

    def inspect(self, which: Any, *, verify: str = "full") -> locating.Description:
        """All that is known of a checkpoint, after looking at what it covers."""
        return locating.describe(self._handle, which, verify)

    @steps
    def restore(self, request: Any = None, **fields: Any) -> Steps[restoring.RestoreResult]:
        """Return to a point as a `RestoreRequest` says, given whole or by its fields.

        Instead of a point, what `locate` takes says which checkpoint is meant. With `validate`, a
        function that gets the state: if it raises, or returns something but None and True, the
        state before is put back, and `StateValidationError` says so.
        """
        asked = restore_request(request, fields)
        asked.check()
        if asked.validate is not None:
            yield check(asked.validate, "validate")
        done: restoring.RestoreResult = yield write(
            restoring.restore,
            self._handle,
            asked,
            # Cancelled, nobody is there any more to validate it.
            undo=lambda done: (
                asked.validate and restoring.roll_back(self._handle, done, "cancelled")
            ),
        )
        if asked.validate is not None:
            why, cause = None, None
            try:
                why = restoring.failed((yield ask(asked.validate, self._state)))
            except BaseException as error:  # whatever it is, what was not found good goes back
                why, cause = type(error).__name__, error
            if why is not None:
                wrong = yield end(restoring.roll_back, self._handle, done, why)
                if cause is not None and not isinstance(cause, Exception):
                    raise cause  # the task or the program is to end; the state is as it was
                raise wrong from cause
        return done

    @writes
    def confirm(self, restored: Any) -> Checkpoint | None:
        """Say that a restore (its result, or its backup) is good: its backup is let go.

        None if it has none, as a recovery from what could not be read.
        """
        return restoring.confirm(self._handle, restored)

    @writes
    def recover(self, **where: Any) -> restoring.RestoreResult:
        """Return to the newest checkpoint that is whole, of those that fit; again, if done again.

        Damaged ones are passed over: the report names each that was tried, with the reason. Also
        where damage keeps the newest state from being read; then that state is not kept. What
        the checkpoint rests on is no reason to pass it over: the report says how that is.
        """
        # Whatever it rests on: a newer state of its own is worth more than none.
        valid = replace(locator(where), valid=True)
        how = {"past_damage": True, "dependencies": "ignore", "reason": "recovery"}
        return restoring.restore(self._handle, RestoreRequest(where=valid, **how))  # type: ignore[arg-type]

    @steps
    def simulate(
        self, function: Callable[[State], Any], request: Any = None, **fields: Any
    ) -> Steps[restoring.Simulation]:
        """Run a function on the state as a restore would leave it, on a timeline of its own.

        The state itself is not touched. The timeline stays, named in the result; if something
        fails, or is cancelled, it is ended.
        """
        yield check(function, "what a simulation runs")
        asked = restore_request(request, fields)
        trial, done = yield write(
            restoring.rehearse,
            self._handle,
            asked,
            undo=lambda both: end_line(both[0], restoring.FAILED),
        )
        try:
            answer = yield ask(function, State(trial), what="what it runs")
            diff = yield read(trial.diff, done.restored.sequence, None)
            return restoring.Simulation(answer, trial.timeline, diff, done)
        except BaseException as error:  # whatever ends it, its timeline is not left behind
            yield end(end_after, error, trial, restoring.FAILED)
            raise

    def held(self) -> list[Held]:
        """Checkpoints that may not be removed: of operations, restores and recoveries."""
        return held(self._handle)

    @here
    def operation(
        self,
        name: str,
        *,
        on_error: str = "revert",
        tags: Sequence[str] = (),
        description: str = "",
    ) -> OperationBlock:
        """A block, or a function, with a checkpoint before it: see `OperationBlock`."""
        return OperationBlock(self._state, name, on_error, tags, description)

    @writes
    def finish(self, checkpoint: Any, how: str) -> Reverted | None:
        """Decide about an operation that never ended: `revert` what it did, or `keep` it."""
        return finish(self._handle, making.held_one(self._handle, checkpoint, "operation"), how)
