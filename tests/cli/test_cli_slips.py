"""Every command with every wrong input: one line on stderr, a fitting code, no traceback."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from cli_kit import Cli

from holdfast import sync

COMMANDS = (
    "scope list",
    "scope delete agent:7 --yes",
    "scope erase agent:7 --yes",
    "key get agent:7 plan",
    "key set agent:7 plan 2",
    "key append agent:7 talk 2",
    "key delete agent:7 plan",
    "key list agent:7",
    "key put agent:7 f text.txt",
    "key fetch agent:7 plan -o out",
    "sweep",
    "show agent:7",
    "log agent:7",
    "diff agent:7 safe",
    "checkpoint create agent:7 c",
    "checkpoint list agent:7",
    "restore agent:7 safe",
    "restore agent:7 safe --dry-run",
    "fork agent:7 new",
    "timelines agent:7",
    "agent transitions agent:7",
    "verify",
    "verify agent:7",
    "witness",
    "prove agent:7 plan -o never",
    "export-chain agent:7 -o never",
    "stats",
    "agent list",
    "agent show 7",
    "agent state 7",
)
PLACES = {
    "--store none.db": 4,
    "--store none/a.db": 4,
    "--store text.txt": 2,
    "--store empty.db": 4,
    "--store .": 2,
    "--store postgres:x": 2,
    "--store memory:x": 2,
    "--store sealed.db": 2,
    "--store sealed.db --key file:keys/other": 2,
    "--store sealed.db --key file:nothing": 2,
    "--store sealed.db --key nonsense": 2,
    "--store sealed.db --key env:NOT_SET": 2,
    "--store sealed.db --passphrase-file nothing": 2,
    "--key file:keys/one": 2,
    "--signer nonsense": 2,
    "--signer file:nothing": 2,
    "--signer file:keys/one": 2,
    "--durability half": 2,
}
POINTS = {
    "nothing": 4,
    "99": 4,
    "main@99": 4,
    "nothing@1": 4,
    "main@": 4,
    "@1": 4,
    "''": 4,
    "1999-01-01": 4,
    "2026-13-01": 2,
    "2026-01-01T99:00": 2,
    "9" * 30: 4,
    "main@" + "9" * 30: 4,
}
AT = (
    "diff agent:7 -- {}",
    "diff agent:7 -- safe {}",
    "restore agent:7 -- {}",
    "restore agent:7 --dry-run -- {}",
    "fork agent:7 new --at={}",
    "key get agent:7 plan --at={}",
    "key fetch agent:7 plan -o out --at={}",
    "key list agent:7 --at={}",
    "show agent:7 --at={}",
)
SCOPES = {
    "agent:nobody": 4,
    "agent:": 2,
    "nobody": 2,
    "''": 2,
    "tool:7": 2,
    "global:x": 2,
    "agent:" + "x" * 300: 2,
    "'agent:a\x01'": 2,
}
IN_SCOPE = (
    "scope delete {} --yes",
    "scope erase {} --yes",
    "key get {} plan",
    "key fetch {} plan -o out",
    "key delete {} plan",
    "key list {}",
    "show {}",
    "log {}",
    "diff {} 1",
    "checkpoint list {}",
    "restore {} 1",
    "fork {} new",
    "timelines {}",
    "verify {}",
    "prove {} plan -o never",
    "export-chain {} -o never",
)
OTHERS = {
    "log agent:7 --limit=-1": 2,
    "log agent:7 --limit=x": 2,
    "log agent:7 --since=nothing": 2,
    "log agent:7 --since=": 2,
    "log agent:7 --kind=nothing": 2,
    "key list agent:7 --limit=1.5": 2,
    "scope list --kind=nothing": 2,
    "scope list --limit=-1": 2,
    "checkpoint create agent:7 c --type=nothing": 2,
    "checkpoint list agent:7 --type=nothing": 2,
    "verify --budget=x": 2,
    "verify --budget=-1": 2,
    "verify --expect=nothing": 2,
    "verify --expect=text.txt": 2,
    "verify --identity=nothing": 2,
    "verify --resume=nothing": 2,
    "witness --out=none/a": 2,
    "key set agent:7 plan '{'": 2,
    "key set agent:7 plan NaN": 2,
    """key set agent:7 plan '{"$bytes": "!"}'""": 2,
    """key set agent:7 plan '{"$time": "x"}'""": 2,
    "key set agent:7 plan " + "[" * 2000: 2,
    "key set agent:7 plan 1 --if-version=-1": 2,
    "key set agent:7 plan 1 --if-version=99": 5,
    "key append agent:7 plan 1": 2,
    "key set agent:7 'a//b' 1": 2,
    "key get agent:7 ''": 2,
    "key get agent:7 nothing": 4,
    "key get agent:7 plan --timeline nothing": 4,
    "key get agent:7 plan --timeline a@b": 2,
    "fork agent:7 main": 5,
    "fork agent:7 a@b": 2,
}


@pytest.fixture
def places(agent: str, here: Path) -> str:
    """More files to name by mistake."""
    (here / "text.txt").write_text("no store " * 1000)
    (here / "empty.db").touch()
    (here / "keys").mkdir()
    for name, key in (("sealed", "one"), ("another", "other")):
        with sync.open(f"sqlite:{name}.db", key=f"file:keys/{key}", durability="normal") as store:
            store.agent("7").set("plan", 1)
    return agent


def refused(cli: Cli, here: Path, lines: dict[str, int]) -> None:
    before = sync.open("sqlite:holdfast.db", read_only=True)
    position = before.position()
    before.close()
    wrong = []
    for line, code in lines.items():
        for words in (shlex.split(line), ["--json", *shlex.split(line)]):
            result = cli(*words)
            plain = words[0] != "--json"
            told = result.err.startswith("error: ") if plain else "message" in result.error
            lines_said = result.err.rstrip("\n").count("\n")
            most = 1 if "see `holdfast" in result.err else 0
            if result.code != code or not told or result.out or lines_said > most:
                wrong.append((line, result.code, code, result.out, result.err))
    assert wrong == []
    assert not (here / "none.db").exists()
    with sync.open("sqlite:holdfast.db", read_only=True) as after:
        assert after.position() == position, "nothing was written"


@pytest.mark.parametrize("command", COMMANDS)
def test_places_and_keys(cli: Cli, places: str, here: Path, command: str) -> None:
    lines = {f"{command} {place}": code for place, code in PLACES.items()}
    if command == "log agent:7":  # behind it, --key is a filter
        lines = {f"{place} {command}": code for place, code in PLACES.items()}
    refused(cli, here, lines)


@pytest.mark.parametrize("command", AT)
def test_points(cli: Cli, agent: str, here: Path, command: str) -> None:
    refused(cli, here, {command.format(point): code for point, code in POINTS.items()})


@pytest.mark.parametrize("command", IN_SCOPE)
def test_scopes(cli: Cli, agent: str, here: Path, command: str) -> None:
    refused(cli, here, {command.format(scope): code for scope, code in SCOPES.items()})


def test_other_arguments(cli: Cli, agent: str, here: Path) -> None:
    (here / "text.txt").write_text("no witness")
    refused(cli, here, OTHERS)


def test_a_ring_that_is_missing(cli: Cli, places: str, here: Path) -> None:
    shutil.move(here / "sealed.db.keys", here / "elsewhere")
    for command in COMMANDS:
        result = cli(f"--store sealed.db --key file:keys/one {command}")
        assert result.code == 2
        assert "ring" in result.err
