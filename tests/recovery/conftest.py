"""Stores to test with."""

from __future__ import annotations

import pytest
from store_fixtures import hands, place, plain, store, timed

from holdfast.recovery import run

__all__ = ["hands", "place", "plain", "store", "timed"]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage that does not answer in a test never will, but where a test says otherwise."""
    monkeypatch.setattr(run, "OUTAGE", 0.0)
