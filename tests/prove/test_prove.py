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


def test_a_seeded_bug_is_found_where_it_has_moved(tmp_path: Path) -> None:
    table = importlib.import_module("prove.bugs")
    source = tmp_path / "holdfast"
    source.mkdir()
    (tmp_path / "holdfast_verify.py").write_text("")
    (source / "new.py").write_text("a = 1\n")
    bug = table.Bug("moved", "old.py", "a = 1\n", "a = 2\n", "model")
    assert table.place_of(bug, source) == source / "new.py"
    (source / "other.py").write_text("a = 1\na = 1\n")
    with pytest.raises(LookupError, match=r"moved: .* 1 in holdfast/new.py, 2 in .*other.py"):
        table.place_of(bug, source)
    (source / "old.py").write_text("a = 1\n")
    assert table.place_of(bug, source) == source / "old.py", "where it is said to be"
    with pytest.raises(LookupError, match="gone: its text must occur once; found: none"):
        table.place_of(table.Bug("gone", "old.py", "b", "c", "model"), source)


def test_command_repeats_a_row() -> None:
    script = str(ROOT / "prove" / "run.py")
    command = [sys.executable, script, "--only", "forgeries", "--seed", "3", "--short"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "repeat:  python prove/run.py --only forgeries --seed 3 --short" in done.stdout
