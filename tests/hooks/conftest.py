"""Stores to test hooks with, and what all of these tests do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from store_fixtures import hands, place, plain, store, timed

from holdfast import sync
from holdfast.sync.hooks import Hooks

__all__ = ["hands", "hooks", "place", "plain", "store", "timed"]


@pytest.fixture
def hooks(store: sync.Store) -> Iterator[Hooks]:
    """The hooks of a new store; they end with the test."""
    made = Hooks(store)
    yield made
    made.stop(drain=False)
