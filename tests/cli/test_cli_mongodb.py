"""The command line on a store in MongoDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli


def test_commands_take_the_url_of_a_server(
    mongodb: Any, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", f"{mongodb.place('typed')}&ring={tmp_path / 'ring.keys'}")
    monkeypatch.setenv("HOLDFAST_KEY", f"file:{tmp_path / 'master.key'}")
    missing = cli("key", "get", "agent:a", "k")
    assert missing.code != 0
    assert "no store" in missing.err
    said = [
        cli("init"),
        cli("key", "set", "agent:a", "k", "1"),
        cli("key", "get", "agent:a", "k"),
        cli("stats"),
        cli("verify"),
        cli("doctor"),
    ]
    assert [one.code for one in said] == [0] * 6
    assert said[2].out.strip() == "1"
    assert "mongodb" in said[3].out
    assert "already" in cli("init").err


def test_a_name_that_is_looked_up_is_no_path(cli: Cli, tmp_path: Path) -> None:
    said = cli("--store", "mongodb+srv://u:hunter2@h/", "stats")
    assert said.code != 0
    assert "the URL of a store in MongoDB" in said.err
    assert "hunter2" not in said.out + said.err
