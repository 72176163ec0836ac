"""The command line on a store in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli


@pytest.mark.spec("K7")
def test_commands_take_the_url_of_a_server(postgres: Any, cli: Cli, tmp_path: Path) -> None:
    postgres.run(
        "DROP ROLE IF EXISTS typed", "CREATE ROLE typed LOGIN PASSWORD 'hunter2' SUPERUSER"
    )
    url = f"postgresql://typed:hunter2@127.0.0.1:{postgres.port}/postgres?schema=typed"
    where = ("--store", url)
    said = [cli(*where, "key", "get", "agent:a", "k"), cli(*where, "init")]
    assert said[0].code != 0
    assert "no store" in said[0].err
    assert said[1].code == 0
    said += [
        cli(*where, "key", "set", "agent:a", "k", "1"),
        cli(*where, "key", "get", "agent:a", "k"),
        cli(*where, "stats"),
        cli(*where, "verify"),
        cli(*where, "doctor"),
    ]
    assert [one.code for one in said[2:]] == [0] * 5
    assert said[3].out.strip() == "1"
    assert "postgresql" in said[4].out
    assert "unsigned" in said[6].out
    again = cli(*where, "init")
    assert again.code != 0
    assert "already" in again.err
    assert not [one for one in [*said, again] if "hunter2" in one.out + one.err]


def test_the_url_may_stand_in_the_environment(
    postgres: Any, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres?schema=typed_too"
    monkeypatch.setenv("HOLDFAST_STORE", f"{url}&ring={tmp_path / 'ring.keys'}")
    monkeypatch.setenv("HOLDFAST_KEY", f"file:{tmp_path / 'master.key'}")
    made = cli("init")
    assert made.code == 0, made.err
    assert cli("key", "set", "agent:a", "k", "1").code == 0
    assert cli("verify").code == 0
