"""A short selection of the proofs; `make prove` runs them at length."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKS = [
    *("faults", "flips", "forgeries", "kills", "model"),
    *("pages", "power", "recoveries", "repairs"),
]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness lies beside the package, not in it."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize("name", CHECKS)
def test_check_finds_nothing(name: str) -> None:
    if name == "power" and shutil.which("strace") is None:
        pytest.skip("needs strace")
    check = importlib.import_module(f"prove.{name}")
    result = check.run(1, importlib.import_module("prove.common").SHORT)
    assert result.findings == []
    assert any(digit in result.figure for digit in "123456789")


@pytest.mark.spec("D5")
def test_seeded_bugs_are_caught() -> None:
    """Some are, one of checkpoints among them; that all of them are is for `make prove`."""
    result = importlib.import_module("prove.seeded").run(1, 0)
    assert result.findings == []
    assert result.figure == "4 of 4 caught"


def test_every_seeded_bug_can_be_patched() -> None:
    """Its text is there, and so are the checks and tests that are to catch it."""
    import holdfast

    table = importlib.import_module("prove.bugs")
    source = Path(holdfast.__file__).parent
    assert len({bug.name for bug in table.BUGS}) == len(table.BUGS) >= 12
    assert {bug.by for bug in table.BUGS if "/" not in bug.by and not bug.slow} == {*CHECKS}
    for bug in table.BUGS:
        assert bug.new != bug.old
        text = table.place_of(bug, source).read_text().replace(bug.old, bug.new)
        compile(text, bug.name, "exec")  # what no longer fits breaks down, and catches nothing
        path, _, test = bug.by.partition("::")
        if "/" in path:
            text = (ROOT / path).read_text()
            names = test.partition("[")[0].split("::")
            assert names[0] in text, f"{bug.name}: {bug.by} is not there"


def test_a_seeded_bug_is_tried_nowhere_else_than_where_it_is_said_to_be(tmp_path: Path) -> None:
    table, source = importlib.import_module("prove.bugs"), tmp_path / "holdfast"
    source.mkdir()
    bug = table.Bug("a name", "old.py", "if a:", "if b:", "power")
    (source / "new.py").write_text("if a:\n")
    with pytest.raises(LookupError, match=r"in old\.py, and does 0x"):
        table.place_of(bug, source)
    (source / "old.py").write_text("if a:\n")
    assert table.place_of(bug, source) == source / "old.py"
    (source / "old.py").write_text("if a:\n" * 2)
    with pytest.raises(LookupError, match="2x"):
        table.place_of(bug, source)


def test_command_repeats_a_row() -> None:
    script = str(ROOT / "prove" / "run.py")
    command = [sys.executable, script, "--only", "forgeries", "--seed", "3", "--short"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "repeat:  python prove/run.py --only forgeries --seed 3 --short" in done.stdout
