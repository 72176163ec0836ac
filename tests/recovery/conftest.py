"""Stores to test with."""

import pytest
from store_fixtures import hands, place, plain, store, timed

from holdfast.store.journal.timeline import Timeline

__all__ = ["hands", "place", "plain", "store", "timed", "unaware"]


@pytest.fixture
def unaware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers do not ask the feed before they write, as those of older versions did not."""
    monkeypatch.setattr(Timeline, "compare", lambda *_: None)
