"""What the tests of the LangGraph integration share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver

OpenSaver = Callable[[], AbstractAsyncContextManager[HoldfastSaver]]
SaverTest = Callable[[HoldfastSaver], Coroutine[Any, Any, None]]


@pytest.fixture(params=["memory", "sqlite", "encrypted", "async"])
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> OpenSaver:
    """Opens a saver over a new store, once for each kind of store that a user may give it."""
    opened = 0

    @asynccontextmanager
    async def open_() -> AsyncIterator[HoldfastSaver]:
        nonlocal opened
        opened += 1
        path = tmp_path / f"threads-{opened}.db"
        key = tmp_path / "keys" / f"{opened}.key"
        if request.param == "memory":
            with holdfast.sync.open("memory:") as store:
                yield HoldfastSaver(store)
        elif request.param == "sqlite":
            with holdfast.sync.open(f"sqlite:{path}") as store:
                yield HoldfastSaver(store)
        elif request.param == "encrypted":
            key.parent.mkdir(exist_ok=True)
            with holdfast.sync.open(f"sqlite:{path}", key=f"file:{key}") as store:
                yield HoldfastSaver(store)
        else:
            async with holdfast.open(f"sqlite:{path}") as store:
                yield HoldfastSaver(store)

    return open_


@pytest.fixture
def with_saver(open_saver: OpenSaver) -> Callable[[SaverTest], None]:
    """Runs a coroutine function with a saver over a new store."""

    def run(test: SaverTest) -> None:
        async def main() -> None:
            async with open_saver() as saver:
                await test(saver)

        asyncio.run(main())

    return run
