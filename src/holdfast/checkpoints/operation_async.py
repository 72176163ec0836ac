"""The block of an operation on the async face, by hand: its cause is that of the task around it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.checkpoints import checkpoints as blocking
from holdfast.checkpoints.operation import Running, check_operation, check_place, not_undone
from holdfast.errors import InvalidInputError
from holdfast.store.inner import handle_of
from holdfast.store.names.cause import acting
from holdfast.store.names.threads import surely, to_the_end

_F = TypeVar("_F", bound=Callable[..., Awaitable[Any]])


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

    __blocking__ = blocking.OperationBlock

    def __init__(self, found: blocking.OperationBlock) -> None:
        self._blocking = found
        self._handle = handle_of(found._state)
        self._operating = found._operating
        self._entered: tuple[AbstractContextManager[Any], Running] | None = None
        self._begun = False

    @classmethod
    def _of(cls, found: blocking.OperationBlock) -> Self:
        return cls(found)

    async def __aenter__(self) -> Running:
        check_place()
        if self._begun:
            raise InvalidInputError("this operation is running; make another for another block")
        self._begun = True
        cause = acting(operation=self._operating.label())
        operation = cause.__enter__().operation
        assert operation is not None
        handle, operating = self._handle, self._operating
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
            await surely(self._operating.end, self._handle, running, error)
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
            async with OperationBlock(self._blocking):
                return await function(*args, **named)

        return wrapped  # type: ignore[return-value]
