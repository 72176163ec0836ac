"""Going back from the command line when the newest entries are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import Cli

from holdfast import sync
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch


@pytest.mark.spec("M114")
def test_restore_past_damage(tmp_path: Path, cli: Cli) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    with sync.open(url) as store:
        state = store.agent("1")
        state.set("plan", "good")
        state.checkpoint("safe")
        state.set("plan", "newer")
    storage = open_storage(url)
    key, row = storage.scan(b"E", b"F", reverse=True, limit=1)[0]
    storage.commit(Batch(drops=[key]))
    storage.commit(Batch(puts=[(key, row[:-3] + bytes(3))]))
    storage.close()
    words = ("--store", url, "--json", "restore", "agent:1", "safe")
    refused = cli(*words)
    assert refused.code == 6
    assert "--past-damage" in refused.err
    done = json.loads(cli(*words, "--past-damage").out)
    assert done["backup"] is None
    assert "entry 3" in done["passed_over"]
    with sync.open(url) as store:
        assert store.agent("1").get("plan") == "good"
