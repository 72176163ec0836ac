"""Background hooks of processes that are killed: nothing is lost, and another goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from holdfast.hooks.hook import hook_records
from holdfast.sync.hooks import Hooks
from holdfast.testing import crash

GOAL = 4


def work(store: sync.Store, world: Path) -> None:
    """Writes numbers, of which a hook leaves a trace in the world."""
    hooks = Hooks(store)

    @hooks.background("n", name="tell", batch_size=2)
    def tell(event: Any, _: Any) -> None:
        with (world / "told").open("a") as file:
            file.write(f"{event.new}\n")

    state = store.agent("a")
    while (number := state.get("n", -1) + 1) < GOAL:
        state.set("n", number)
    hooks.stop()


def told(store: sync.Store, world: Path) -> list[int]:
    numbers = [int(line) for line in (world / "told").read_text().split()]
    firsts = list(dict.fromkeys(numbers))
    assert firsts == sorted(firsts), "in order, but for what is told again"
    [record] = hook_records(store)
    assert record["error"] == ""
    return firsts


@pytest.mark.spec("L128", "L129")
def test_killed_at_every_commit_every_change_is_told_at_least_once() -> None:
    report = crash(work, see=told)
    assert report.ok, str(report)
    assert report.commits >= 8
