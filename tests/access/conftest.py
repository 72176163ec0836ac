"""Stores to guard."""

from __future__ import annotations

import pytest
from store_fixtures import hands, place, plain, store, timed

from holdfast import sync
from holdfast.sync.access import Access

__all__ = ["access", "hands", "place", "plain", "store", "timed"]


@pytest.fixture
def access(store: sync.Store) -> Access:
    """The grants of a new store."""
    return Access(store)
