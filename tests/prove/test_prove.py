"""A short selection of the proofs; `make prove` runs them at length."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness lies beside the package, not in it."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize(
    "name", ["faults", "flips", "forgeries", "kills", "model", "pages", "power", "recoveries"]
)
def test_check_finds_nothing(name: str) -> None:
    if name == "power" and shutil.which("strace") is None:
        pytest.skip("needs strace")
    check = importlib.import_module(f"prove.{name}")
    result = check.run(1, importlib.import_module("prove.common").SHORT)
    assert result.findings == []
    assert any(digit in result.figure for digit in "123456789")


def test_seeded_bugs_are_caught() -> None:
    """Some are; that all of them are is for `make prove`."""
    result = importlib.import_module("prove.seeded").run(1, 0)
    assert result.findings == []
    assert result.figure == "3 of 3 caught"


def test_every_seeded_bug_can_be_patched() -> None:
    import holdfast

    bugs = importlib.import_module("prove.bugs").BUGS
    source = Path(holdfast.__file__).parent
    assert len({bug.name for bug in bugs}) == len(bugs) >= 12
    checks = {b.by for b in bugs}
    assert checks >= {"faults", "flips", "forgeries", "kills", "model", "power"}
    assert [b.name for b in bugs if (source / b.file).read_text().count(b.old) != 1] == []


def test_command_repeats_a_row() -> None:
    script = str(ROOT / "prove" / "run.py")
    command = [sys.executable, script, "--only", "forgeries", "--seed", "3", "--short"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "repeat:  python prove/run.py --only forgeries --seed 3 --short" in done.stdout
