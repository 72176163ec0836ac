"""`holdfast checkpoint export`, `import` and `inspect`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import Cli

from holdfast import sync


@pytest.fixture
def agent(cli: Cli) -> str:
    """A store with two checkpoints."""
    with sync.open("sqlite:holdfast.db") as store:
        state = store.agent("7")
        state.set("plan", {"goal": "ship"})
        state.set("token", "hush")
        state.checkpoint("old", tags=["x"])
        state.set("plan", {"goal": "wait"})
        state.checkpoint("new")
    return "agent:7"


def test_there_and_back(cli: Cli, agent: str, here: Path) -> None:
    done = cli(f"checkpoint export {agent} old -o old.hfx")
    assert (done.code, done.err) == (0, "")
    assert "checkpoint 'old', main@3, 2 keys, is in old.hfx (not encrypted, signed)" in done.out
    shown = cli("checkpoint inspect old.hfx --json").json
    assert (shown["scope"], shown["checkpoint"], shown["tags"]) == (agent, "main@3", ["x"])
    assert "taken on trust" in cli("checkpoint inspect old.hfx").err
    assert cli(f"checkpoint inspect old.hfx --trust {shown['signer']}").code == 0
    assert cli(f"checkpoint inspect old.hfx --trust {'00' * 32}").code == 2

    told = cli(f"checkpoint import {agent} old.hfx --reason again").out
    assert "now as agent:7 was at 'old', main@3; 2 keys" in told
    assert json.loads(cli(f"key get {agent} plan").out) == {"goal": "ship"}
    undo = next(line for line in told.splitlines() if line.startswith("to undo it: holdfast "))
    assert cli(undo.removeprefix("to undo it: holdfast ")).code == 0
    assert json.loads(cli(f"key get {agent} plan").out) == {"goal": "wait"}
    made = cli("checkpoint import agent:new old.hfx --json").json
    assert (made["scope"], made["export"]["digest"]) == ("agent:new", shown["digest"])
    assert cli("verify").code == 0


def test_between_stores_with_a_passphrase(cli: Cli, agent: str, here: Path) -> None:
    secret = here / "pass"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    made = cli(f"checkpoint export {agent} -o x --file-passphrase-file pass --json").json
    assert (made["name"], made["encrypted"]) == ("new", True)
    assert cli("--store sqlite:other.db init").code == 0
    into = "--store sqlite:other.db checkpoint import agent:8 x"
    assert "--file-key" in cli(into).err
    wrong = cli(f"{into} --file-passphrase-file pass")
    assert (wrong.code, "give it with --trust" in wrong.err) == (2, True)
    assert cli(f"{into} --file-passphrase-file pass --trust {made['signer']} --limit 1").code == 2
    assert cli(f"{into} --file-passphrase-file pass --trust {made['signer']}").code == 0
    assert cli("--store sqlite:other.db key get agent:8 token --reveal").out.strip() == '"hush"'
    assert cli(f"checkpoint export {agent} -o y --file-key passphrase:secret").code == 2
    assert cli("checkpoint inspect x --file-key file:a --file-passphrase-file pass").code == 2


def test_readable(cli: Cli, agent: str, here: Path) -> None:
    assert cli(f"checkpoint export {agent} -o x.json --format json").code == 0
    assert json.loads((here / "x.json").read_text())["state"]["token"] == {"$sensitive": True}
    assert cli(f"checkpoint export {agent} -o x.json --format json --reveal").code == 0
    assert json.loads((here / "x.json").read_text())["state"]["token"] == "hush"
    assert cli(f"checkpoint export {agent} -o x.pb --format protobuf").code == 0
    assert b"hush" not in (here / "x.pb").read_bytes()
    assert cli("checkpoint inspect x.json").code == 2


def test_what_is_refused(cli: Cli, agent: str, here: Path) -> None:
    assert cli(f"checkpoint export {agent} nothing -o x").code == 4
    assert cli("checkpoint export agent:none -o x").code == 4
    assert cli(f"checkpoint export {agent}").code == 2
    assert cli(f"checkpoint export {agent} -o no/folder").code == 2
    assert cli(f"checkpoint export {agent} -o x --reveal").code == 2
    assert "there is no such file" in cli("checkpoint inspect nowhere").err
    assert "no regular file" in cli("checkpoint inspect .").err
    assert cli(f"checkpoint export {agent} -o x").code == 0
    data = bytearray((here / "x").read_bytes())
    data[-40] ^= 1
    (here / "x").write_bytes(data)
    for command in ("inspect x", f"import {agent} x"):
        found = cli(f"checkpoint {command} --json")
        assert (found.code, found.error["error"]) == (6, "DamagedExportError")
