"""Blocks that are entered once: of a lease, of a change.

`contextlib` makes such blocks of generators; entered a second time they fail with an error of its
own inside, which says nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from functools import wraps
from types import TracebackType
from typing import Generic, ParamSpec, TypeVar

from holdfast.errors import InvalidInputError

_T = TypeVar("_T")
_P = ParamSpec("_P")


class _Entered:
    """Whether a block was entered already."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._entered = False

    def _enter(self) -> None:
        if self._entered:
            raise InvalidInputError(
                f"a block is entered once; call `{self._name}` again for another one"
            )
        self._entered = True


class Block(_Entered, AbstractContextManager[_T], Generic[_T]):
    """`with store.lease(…)`."""

    def __init__(self, inner: AbstractContextManager[_T], name: str) -> None:
        super().__init__(name)
        self._inner = inner

    def __enter__(self) -> _T:
        self._enter()
        return self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._inner.__exit__(kind, error, trace)


class AsyncBlock(_Entered, AbstractAsyncContextManager[_T], Generic[_T]):
    """`async with store.lease(…)`."""

    def __init__(self, inner: AbstractAsyncContextManager[_T], name: str) -> None:
        super().__init__(name)
        self._inner = inner

    async def __aenter__(self) -> _T:
        self._enter()
        return await self._inner.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


def block(function: Callable[_P, Iterator[_T]]) -> Callable[_P, Block[_T]]:
    """As `contextmanager`; entered again, the block is refused with what to do."""
    make = contextmanager(function)

    @wraps(function)
    def begin(*args: _P.args, **named: _P.kwargs) -> Block[_T]:
        return Block(make(*args, **named), function.__name__)

    return begin


def async_block(function: Callable[_P, AsyncIterator[_T]]) -> Callable[_P, AsyncBlock[_T]]:
    """As `asynccontextmanager`; entered again, the block is refused with what to do."""
    make = asynccontextmanager(function)

    @wraps(function)
    def begin(*args: _P.args, **named: _P.kwargs) -> AsyncBlock[_T]:
        return AsyncBlock(make(*args, **named), function.__name__)

    return begin
