"""What all tests share."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from hypothesis import settings

os.environ["HOLDFAST_CHECK_BATCHES"] = "1"  # before anything is imported; programs inherit it

from store_kit import (
    EVERYWHERE,
    ON_SERVER,
    ON_SLOW_SERVER,
    PLACE_ARGUMENTS,
    PLACE_VALUES,
    SERVER_PLACES,
    YES_OR_NO,
)

# Derandomised, so that a change is judged by what it does and not by luck; `make soak` explores.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("soak", deadline=None, max_examples=2000)
settings.load_profile("ci")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts its background jobs so, and the programs that tests start would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make soak` asks for."""
    parser.addoption("--all-places", action="store_true", help="run each test in all its places")


# Last, so that it chooses among what was asked for with -k, -m or by id.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A spec marker without ids would claim nothing and still look like a claim. And not all
    that is done with a store is done on a server, too: that would take long."""
    for item in items:
        for mark in item.iter_markers("spec"):
            if not mark.args or mark.kwargs or not all(isinstance(id, str) for id in mark.args):
                raise pytest.UsageError(f"{item.nodeid}: use it as spec('K1', 'K2', ...)")
    items[:] = [item for item in items if item.path.stem in _files(item)]
    if not config.getoption("--all-places"):
        left_out = _elsewhere(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _elsewhere(items: list[pytest.Item]) -> set[pytest.Item]:
    """What `make test` leaves to `make soak`: the same cases in other places.

    Most tests can run with a store in memory or in SQLite, plain or encrypted, and find the same
    in each. So each case (a function with its other arguments) runs in one of its places, chosen
    by a hash of its id: always the same one, and all of them are used in each run. Tests about
    bytes at rest, and those that ask where they are, run everywhere. What runs on a server does
    so beside this.
    """
    cases: dict[tuple[object, ...], list[pytest.Item]] = {}
    asking: dict[object, bool] = {}
    for item in items:
        arguments: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
        places = {name for name, value in arguments.items() if _is_place(name, value)}
        if not places or _is_about_bytes(item) or _asks(item, asking):
            continue
        # All places of a case share the very objects that its other arguments are.
        others = ((name, id(value)) for name, value in arguments.items() if name not in places)
        case = (item.parent, item.nodeid.partition("[")[0], *sorted(others))
        cases.setdefault(case, []).append(item)
    here = {min(case, key=_chance) for case in cases.values()}
    return {item for case in cases.values() for item in case} - here


def _is_about_bytes(item: pytest.Item) -> bool:
    """Whether it says what is, was or must not be in the rows of a store."""
    one_place = item.get_closest_marker("one_place") is not None
    return item.nodeid.startswith(tuple(EVERYWHERE)) and not one_place


def _asks(item: pytest.Item, known: dict[object, bool]) -> bool:
    """Whether a test, its fixtures or what they call in its file ask what their place is.

    Such a test does something else in each place, or nothing in some of them.
    """
    test = item.function  # type: ignore[attr-defined]
    if test not in known:
        fixtures = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
        inner = getattr(getattr(test, "hypothesis", None), "inner_test", None)
        todo = [test, inner, *(fixture.func for defs in fixtures for fixture in defs)]
        names, seen = set[str](), set[object]()
        while todo:
            one = todo.pop()
            if not isinstance(one, type | FunctionType) or one in seen:
                continue
            seen.add(one)
            if one.__module__ != test.__module__:
                continue
            if isinstance(one, type):
                todo += vars(one).values()
            else:
                found = _names(one.__code__)
                todo += [one.__globals__[name] for name in found & one.__globals__.keys()]
                todo.append(getattr(one, "__wrapped__", None))
                names |= found
        known[test] = not names.isdisjoint(("sealed", "engine"))
    return known[test]


def _names(code: CodeType) -> set[str]:
    """All attributes and globals that code uses."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return {*code.co_names}.union(*map(_names, inner))


def _is_place(name: str, value: object) -> bool:
    """Whether an argument says where a test runs."""
    if isinstance(value, bool):
        return name in YES_OR_NO
    return name in PLACE_ARGUMENTS and isinstance(value, str) and value in PLACE_VALUES


def _chance(item: pytest.Item) -> bytes:
    """A number that is another for each place of a case, and the same in each run."""
    return hashlib.sha256(item.nodeid.encode(errors="surrogatepass")).digest()


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


@pytest.fixture
def cached_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a cache stand in front of embedded engines, which `open` refuses: they are quick to
    make, and the cache is the same."""
    from holdfast.storage.memory import MemoryStorage
    from holdfast.storage.sqlite.engine import SqliteStorage
    from holdfast.store.open import CachePlan

    of = CachePlan.of
    monkeypatch.setattr(CachePlan, "of", lambda cache, ttl, **_: of(cache, ttl))
    for engine in (MemoryStorage, SqliteStorage):
        monkeypatch.setattr(engine, "limits", replace(engine.limits, embedded=False))


@pytest.fixture(params=["memory", "sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that does not exist yet, once for each engine that needs no server."""
    if request.param == "memory":
        return "memory:"
    return f"sqlite:{tmp_path / 'store.db'}"
