"""Stores to back up, and servers of S3 to back them up to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from backup_kit import fill
from s3_kit import Server
from store_fixtures import hands, place, plain, store, timed
from store_kit import Place

from holdfast import sync

__all__ = ["hands", "place", "plain", "s3", "store", "timed"]


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    """A server of S3, which the tests of this process share."""
    server = Server()
    yield server
    server.remove()


@pytest.fixture
def simple(tmp_path: Path) -> Iterator[tuple[sync.Store, sync.backup.Backups]]:
    """A small store in memory, and its backups."""
    place = Place("memory", tmp_path, sealed=False)
    store = place.open()
    fill(store, 2, 10)
    yield store, sync.backup.Backups(store, f"dir:{tmp_path}/backups")
    place.close()
