"""Stores to test with, those of tests/store."""

from __future__ import annotations

from store_fixtures import hands, place, plain, store, timed

__all__ = ["hands", "place", "plain", "store", "timed"]
