"""After damage, verify goes on from the next saved index and finds nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from holdfast import sync
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.store.journal import timeline

_numbers = itertools.count()


@pytest.mark.parametrize("entries", [8, 40, 41, 42, 43, 80])
def test_only_the_damage_is_found(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    monkeypatch.setattr(timeline, "DELTA_EVERY", 10)
    url = f"memory:verify-damage-{next(_numbers)}"
    with sync.open(url) as store:
        state = store.agent("a")
        for number in range(entries):
            state.set(f"key/{number % 13}", f"{number:90}")
    storage = open_storage(url)
    stored = [row for row in storage.scan(b"E", b"F") if row[0][-1] == 4]
    ((key, row),) = stored
    changed = bytearray(row)
    changed[-20] ^= 1
    storage.commit(Batch(drops=[key]))
    storage.commit(Batch(puts=[(key, bytes(changed))]))
    with sync.open(url) as store:
        findings: list[Any] = [f for f in store.verify().findings if not f.keys]
    assert [(finding.kind, "entry 4)" in finding.place) for finding in findings] == [
        ("damage", True)
    ]
