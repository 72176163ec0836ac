"""The measurements run and judge truthfully. What they measure is never asserted here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def common() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_common", ROOT / "bench" / "common.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_common"] = module
    spec.loader.exec_module(module)
    return module


def test_a_figure_is_judged_by_its_limit(common: ModuleType) -> None:
    assert [common.at_most("f", measured, 2, "ms").ok for measured in (1, 2, 2.1)] == [
        True,
        True,
        False,
    ]
    assert [common.at_least("f", measured, 2).ok for measured in (1.9, 2, 3)] == [False, True, True]
    assert common.told("f", 1).ok is None


def test_bytes_are_counted_by_kind_of_row(common: ModuleType) -> None:
    with common.place() as here:
        with here.sync("normal", counted=True) as store:
            store.agent("a").set("key", "value")
            assert here.counting.kinds["E"] > 0
            assert sum(here.counting.kinds.values()) == here.counting.bytes_written
        assert here.bytes() >= here.counting.bytes_written


@pytest.mark.spec("M72")
def test_a_theme_runs_and_prints_its_verdicts() -> None:
    done = subprocess.run(
        [sys.executable, "bench/run.py", "--quick", "--only", "checkpoints"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| checkpoints ")]
    rows = [[one.strip() for one in line.split("|")[2:-1]] for line in lines]
    judged = [row for row in rows if len(row) == 4]
    assert len(judged) == 6
    for figure, limit, measured, verdict in judged:  # each by what was measured, whatever that is
        most, unit = limit.removeprefix("≤ ").split()
        assert measured.split()[1] == unit, figure
        kept = float(measured.split()[0].replace(",", "")) <= float(most.replace(",", ""))
        assert verdict == ("ok" if kept else "missed"), figure
    sizes = {figure: verdict for figure, limit, _, verdict in judged if limit.endswith(" B")}
    assert set(sizes.values()) == {"ok"}, sizes  # the machine has no part in those
    assert len(sizes) == 2
