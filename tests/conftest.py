"""What all tests share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Derandomised, so that a change is judged by what it does and not by luck; `make soak` explores.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("soak", deadline=None, max_examples=2000)
settings.load_profile("ci")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts its background jobs so, and the programs that tests start would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A spec marker without ids would claim nothing and still look like a claim."""
    for item in items:
        for mark in item.iter_markers("spec"):
            if not mark.args or mark.kwargs or not all(isinstance(id, str) for id in mark.args):
                raise pytest.UsageError(f"{item.nodeid}: use it as spec('K1', 'K2', ...)")


@pytest.fixture(params=["memory", "sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that does not exist yet, once for each engine that needs no server."""
    if request.param == "memory":
        return "memory:"
    return f"sqlite:{tmp_path / 'store.db'}"
