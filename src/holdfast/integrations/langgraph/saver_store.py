"""A store that is opened and closed together with what stands on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from holdfast.errors import InvalidInputError
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names.threads import surely, to_the_end
from holdfast.store.open import open_core
from holdfast.store.state import Store

T = TypeVar("T")


class Opening(Generic[T]):
    """Use it with `with` or `async with`: the store is closed when the block ends."""

    def __init__(
        self,
        url: str | None,
        options: dict[str, Any],
        make: Callable[[Store], T],
        end: Callable[[T], object] = lambda _: None,
    ) -> None:
        self._url = url or os.environ.get("HOLDFAST_STORE") or "sqlite:"
        self._options = options
        self._make = make
        self._end = end
        self._made: tuple[Store, T] | None = None

    def __enter__(self) -> T:
        if self._made is not None:
            raise InvalidInputError("this store is open already; call open() again for another")
        store = Store(StoreHandle(open_core(self._url, **self._options)))
        try:
            made = self._make(store)
        except BaseException:
            store.close()
            raise
        self._made = (store, made)
        return made

    def __exit__(self, *_: object) -> None:
        if self._made is not None:
            (store, made), self._made = self._made, None
            self._end(made)
            store.close()

    async def __aenter__(self) -> T:
        return await to_the_end(self.__enter__, undo=lambda _: self.__exit__())

    async def __aexit__(self, *_: object) -> None:
        await surely(self.__exit__)
