"""The example holds what it claims."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_agent_is_killed_and_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "examples/langgraph_agent.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    steps = done.stdout.strip().split("\n\n")
    assert [step[:2] for step in steps] == ["1.", "2.", "3.", "4."]
    assert all("✓" in step for step in steps), "a step claims nothing"
    assert "the whole store verifies" in done.stdout
