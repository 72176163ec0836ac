"""Stores to test with."""

from store_fixtures import hands, place, plain, store, timed

__all__ = ["hands", "place", "plain", "store", "timed"]
