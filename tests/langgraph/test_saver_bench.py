"""The measurements beside LangGraph's own saver run. What they measure is never asserted here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_theme_runs_and_prints_its_verdicts() -> None:
    done = subprocess.run(
        [sys.executable, "bench/run.py", "--quick", "--only", "langgraph_saver"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| langgraph_saver ")]
    verdicts = [line.split("|")[-2].strip() for line in lines if line.count("|") == 6]
    assert len(verdicts) == 5, "what does not depend on the length of a thread is judged"
    assert set(verdicts) <= {"ok", "missed"}
