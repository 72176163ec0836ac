"""Stores to test with: every engine, plain and encrypted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_kit import PLACES, SERVER_PLACES, Hands, Place

from holdfast import sync


@pytest.fixture(params=["memory", "sqlite"])
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for a plain store, which can be opened several times."""
    made = Place(request.param, tmp_path, sealed=False)
    yield made
    made.close()


@pytest.fixture(params=[*PLACES, *SERVER_PLACES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for a store, which can be opened several times; on a server for some files only."""
    engine, _, mode = request.param.partition("-")
    server = request.getfixturevalue(engine) if request.param in SERVER_PLACES else None
    made = Place(engine, tmp_path, sealed=mode == "sealed", server=server)
    yield made
    made.close()


@pytest.fixture
def store(place: Place) -> sync.Store:
    """An open store that is new."""
    return place.open()


@pytest.fixture
def hands() -> Hands:
    """A clock that is moved by hand."""
    return Hands()


@pytest.fixture
def timed(place: Place, hands: Hands) -> sync.Store:
    """A store whose clock is moved by hand."""
    return place.open(clock=hands.clock)
