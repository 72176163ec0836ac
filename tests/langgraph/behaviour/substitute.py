"""A pytest plugin that gives LangGraph's own tests another saver than they ask for.

Wherever they make one, through their fixtures or by calling `InMemorySaver()`, they get what
`--saver` names: `sqlite` is LangGraph's SQLite saver, `holdfast` is ours, over each kind of store.
The names of the tests stay the same, so that two runs can be compared.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import langgraph.checkpoint.memory
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver

opened: list[Any] = []
"""What the running test opened and nobody but us closes."""


class Sqlite(SqliteSaver):
    """LangGraph's SQLite saver in memory, also for `await`, which their blocking one refuses."""

    def __init__(self, *, serde: Any = None, **_: Any) -> None:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        opened.append(connection)
        super().__init__(connection, serde=serde)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        for found in [*self.list(config, **options)]:  # one left half-way would keep its lock
            yield found

    async def aput(self, *args: Any) -> Any:
        return self.put(*args)

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def aget_delta_channel_history(self, **asked: Any) -> Any:
        return self.get_delta_channel_history(**asked)


class Holdfast(HoldfastSaver):
    """Our saver over a store in memory, made the way `InMemorySaver()` is."""

    def __init__(self, *, serde: Any = None, **_: Any) -> None:
        store = holdfast.sync.open("memory:")
        opened.append(store)
        super().__init__(store, serde=serde)


@contextmanager
def saver_of(kind: type[Sqlite] | type[Holdfast]) -> Iterator[Any]:
    yield kind()


@contextmanager
def over_sqlite(encrypted: bool) -> Iterator[HoldfastSaver]:
    with TemporaryDirectory() as folder, TemporaryDirectory() as keys:
        key = f"file:{Path(keys) / 'key'}" if encrypted else None
        url = f"sqlite:{Path(folder) / 'store.db'}"
        with holdfast.sync.open(url, key=key, durability="normal") as store:
            yield HoldfastSaver(store)


@asynccontextmanager
async def over_async_store() -> AsyncIterator[HoldfastSaver]:
    with TemporaryDirectory() as folder:
        url = f"sqlite:{Path(folder) / 'store.db'}"
        async with holdfast.open(url, durability="normal") as store:
            yield HoldfastSaver(store)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--saver", choices=["sqlite", "holdfast"], required=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Their conftest is loaded by now, the test modules are not."""
    conftest = sys.modules["tests.conftest"]
    kind = Sqlite if session.config.option.saver == "sqlite" else Holdfast
    places: dict[str, Any] = {"_checkpointer_memory": lambda: saver_of(kind)}
    if kind is Holdfast:
        places |= {
            "_checkpointer_sqlite": lambda: over_sqlite(encrypted=False),
            "_checkpointer_sqlite_aes": lambda: over_sqlite(encrypted=True),
            "_checkpointer_sqlite_aio": over_async_store,
        }
    for name, place in places.items():
        assert hasattr(conftest, name), f"their conftest has no {name} any more"
        setattr(conftest, name, place)
    for name in ("InMemorySaver", "MemorySaver"):
        setattr(langgraph.checkpoint.memory, name, kind)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    while opened:
        with suppress(Exception):  # a test may have closed it, or left it to another thread
            opened.pop().close()
