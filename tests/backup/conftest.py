"""Stores to back up, and servers of S3 to back them up to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from s3_kit import Server
from store_fixtures import hands, place, plain, store, timed

__all__ = ["hands", "place", "plain", "s3", "store", "timed"]


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    """A server of S3, which the tests of this process share."""
    server = Server()
    yield server
    server.remove()
