"""What a restore or merge leaves alone, on the command line."""

from __future__ import annotations

from pathlib import Path

from cli_kit import Cli

from holdfast import Ephemeral, Sticky, sync
from holdfast.store.names.items import LongValue
from holdfast.store.tree import json_values


def test_restore_names_what_it_left_alone(tmp_path: Path, cli: Cli) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    with sync.open(url) as store:
        state = store.agent("7")
        state.declare(Sticky("effects/"))
        state.set("plan", 1)
        state.checkpoint("safe")
        state.set("plan", 2)
        for number in range(7):
            state.set(f"effects/{number}", "done")
    line = "left alone, because sticky or ephemeral: 7 keys: effects/0, effects/1, effects/2, "
    dry = cli("--store", url, "restore", "agent:7", "safe", "--dry-run").out
    assert line in dry
    assert "plan" in dry
    assert "effects/6" not in dry
    names = [f"effects/{number}" for number in range(7)]
    words = ("--store", url, "--json", "restore", "agent:7", "safe")
    assert cli(*words, "--dry-run").json["left"] == names
    assert line in cli("--store", url, "restore", "agent:7", "safe").out
    assert cli("--store", url, "key", "get", "agent:7", "effects/3").out.strip() == '"done"'


def test_merge_names_what_it_left_alone(tmp_path: Path, cli: Cli) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    with sync.open(url) as store:
        state = store.agent("7")
        state.declare(Ephemeral("tmp/"))
        trial = state.fork("trial")
        trial.undeclare(Ephemeral("tmp/"))
        trial.set("tmp/x", 1)
    words = ("--store", url, "merge", "agent:7", "trial")
    assert "left alone, because sticky or ephemeral: 1 keys: tmp/x" in cli(*words).out


def test_long_values_are_shown_by_their_size() -> None:
    found = json_values.tagged({"film": LongValue(300 << 20, "ab")})
    assert found == {"film": {"$long": {"bytes": 300 << 20, "hash": "ab"}}}
