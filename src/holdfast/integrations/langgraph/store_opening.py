"""Opening a Holdfast store and LangGraph's store on it together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import holdfast
from holdfast import sync

if TYPE_CHECKING:
    from holdfast.integrations.langgraph.store import HoldfastStore
    from holdfast.store.async_store import Store as AsyncStore
    from holdfast.store.blocking import Store


class Opening:
    """What `HoldfastStore.open` returns: use it with `with` or `async with`."""

    def __init__(
        self,
        make: Callable[[Store | AsyncStore], HoldfastStore],
        url: str,
        options: dict[str, Any],
    ) -> None:
        self._make = make
        self._url = url
        self._options = options
        self._store: Any = None
        self._made: HoldfastStore | None = None

    def __enter__(self) -> HoldfastStore:
        self._store = sync.open(self._url, **self._options)
        try:
            self._made = self._make(self._store)
        except BaseException:
            self._store.close()
            raise
        return self._made

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._made is not None
        self._made.stop_ttl_sweeper()
        self._store.close()

    async def __aenter__(self) -> HoldfastStore:
        self._store = await holdfast.open(self._url, **self._options)
        try:
            self._made = self._make(self._store)
        except BaseException:
            await self._store.close()
            raise
        return self._made

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._made is not None
        await asyncio.to_thread(self._made.stop_ttl_sweeper)
        await self._store.close()
