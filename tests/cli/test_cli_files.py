"""`holdfast key put`, `key fetch` and `sweep`: long values from and to files and pipes."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from cli_kit import PROGRAM, Cli

from holdfast import sync
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.store.rules import upload_pins as pins

DATA = hashlib.shake_256(b"a file").digest(3_000_000)


def test_a_file_in_and_out(cli: Cli, here: Path, agent: str) -> None:
    (here / "in.bin").write_bytes(DATA)
    put = cli(f"key put {agent} artifacts/report in.bin")
    assert (put.code, put.out) == (0, "agent:7 artifacts/report: version 5\n")
    assert cli(f"key fetch {agent} artifacts/report -o out.bin").code == 0
    assert (here / "out.bin").read_bytes() == DATA
    got = cli(f"key fetch {agent} artifacts/report -o again.bin --json").json
    assert (got["bytes"], got["version"], got["file"]) == (len(DATA), 5, "again.bin")
    again = cli(f"key put {agent} artifacts/report in.bin --if-version 5 --json").json
    assert again["version"] == 6
    assert cli(f"key put {agent} artifacts/report in.bin --if-version 5").code == 5
    (here / "in.bin").write_bytes(b"short")
    assert cli(f"key put {agent} artifacts/report in.bin").code == 0
    assert cli(f"key fetch {agent} artifacts/report").out == "short"
    assert cli(f"key fetch {agent} artifacts/report --at 6 -o old.bin").code == 0
    assert (here / "old.bin").read_bytes() == DATA
    assert cli("verify").code == 0


def test_pipes(here: Path, agent: str) -> None:
    put = [*PROGRAM, "key", "put", agent, "f", "-", "--durability", "normal"]
    assert subprocess.run(put, input=DATA, capture_output=True, timeout=60).returncode == 0
    fetch = [*PROGRAM, "key", "fetch", agent, "f"]
    done = subprocess.run(fetch, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, DATA)


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("key put {} f none.bin", 2, "cannot be read"),
        ("key put {} f .", 2, "cannot be read"),
        ("key fetch {} none", 4, "has no key"),
        ("key fetch agent:none k", 4, "no scope"),
        ("key fetch {} plan", 2, "not bytes"),
        ("key fetch {} plan --json", 2, "--output"),
        ("key fetch {} b -o none/out", 2, "cannot be written"),
    ],
)
def test_what_cannot_be_is_said(cli: Cli, agent: str, line: str, code: int, says: str) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        store.agent("7").set("b", b"bytes")
    done = cli(line.format(agent))
    assert (done.code, done.out) == (code, "")
    assert says in done.err


def test_sweep(cli: Cli, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed writer left is cleared away once it is sure that it does not live."""
    monkeypatch.setattr(pins, "TERM", 0.3)
    assert "\n0 unfinished values swept: 0 rows, 0 bytes\n" in cli("sweep").out
    storage = open_storage("sqlite:holdfast.db")
    storage.commit(Batch(cells=[(b"P" + bytes(11), None, b"somebody")]))
    storage.close()
    shown = cli("verify")
    assert (shown.code, "1 long values are not finished" in shown.out) == (0, True)
    assert cli("verify --json").json["unfinished"] == 1
    left = cli("sweep")
    assert "--wait" in left.err
    assert cli("sweep --wait --json").json == {
        "uploads": 1, "rows": 0, "bytes": 0, "waiting": 0, "keys": 0, "erased": 0,
        "damaged": [],
    }  # fmt: skip
    assert cli("verify --json").json["unfinished"] == 0
