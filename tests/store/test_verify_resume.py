"""Verifying in slices: every slice gets on, and together they say what one run says."""

from __future__ import annotations

from pathlib import Path

from holdfast import sync


def slices(store: sync.Store) -> list[int]:
    """Entries checked by each slice of a run that may never take any time."""
    found, resume = [], None
    while True:
        report = store.verify(budget=0, resume=resume)
        assert report.findings == []
        found.append(report.entries)
        assert len(found) < 100, "it does not get on"
        if report.resume is None:
            return found
        assert report.exit_code == 3
        assert report.resume != resume
        resume = report.resume


def test_many_small_scopes_are_checked_in_slices(tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path / 'a.db'}", durability="normal") as store:
        for number in range(12):
            store.agent(str(number)).set("key", number)
        store.agent("5").fork("other")
        found = slices(store)
        assert len(found) > 10
        assert sum(found) == store.verify().entries == 13


def test_a_long_timeline_between_short_ones(tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path / 'a.db'}", durability="normal") as store:
        for name in ("a", "b", "c"):
            for number in range(1100 if name == "b" else 1):
                store.agent(name).set("key", number)
        assert sum(slices(store)) == 1102
