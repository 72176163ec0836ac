"""What all tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from store_kit import ON_SERVER, ON_SLOW_SERVER, SERVER_PLACES

# Derandomised, so that a change is judged by what it does and not by luck; `make soak` explores.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("soak", deadline=None, max_examples=2000)
settings.load_profile("ci")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts its background jobs so, and the programs that tests start would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A spec marker without ids would claim nothing and still look like a claim. And not all
    that is done with a store is done on a server, too: that would take long."""
    items[:] = [item for item in items if item.path.stem in _files(item)]
    for item in items:
        for mark in item.iter_markers("spec"):
            if not mark.args or mark.kwargs or not all(isinstance(id, str) for id in mark.args):
                raise pytest.UsageError(f"{item.nodeid}: use it as spec('K1', 'K2', ...)")


def _files(item: pytest.Item) -> set[str]:
    """Those whose tests run in the place that this test is about."""
    where = getattr(item, "callspec", None)
    place = where.params.get("place") if where is not None else None
    if place not in SERVER_PLACES:
        return {item.path.stem}
    return ON_SLOW_SERVER if place.startswith("mongodb") else ON_SERVER


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL server that all tests share; each makes a schema or a database of its own."""
    from postgres_kit import Server

    server = Server()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def mongodb() -> Iterator[Any]:
    """A MongoDB server that all tests share; each has databases of its own."""
    from mongodb_kit import Server

    server = Server()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def redis() -> Iterator[Any]:
    """A Redis server that all tests share, as caches of stores can."""
    from redis_kit import Server

    server = Server()
    yield server
    server.remove()


@pytest.fixture(params=["memory", "sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that does not exist yet, once for each engine that needs no server."""
    if request.param == "memory":
        return "memory:"
    return f"sqlite:{tmp_path / 'store.db'}"
