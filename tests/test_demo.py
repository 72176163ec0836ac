"""The demo holds what it claims, and fails where it is sabotaged."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parent.parent / "examples" / "demo.py"
STEPS = range(1, 7)


def run(*options: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"TMPDIR": str(folder)} if folder is not None else {})
    command = [sys.executable, str(DEMO), "--turns", "6", "--kills", "1", *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env=environment
    )


def headings(output: str) -> list[int]:
    return [int(number) for number in re.findall(r"^(\d)\. ", output, re.MULTILINE)]


def test_demo_holds(tmp_path: Path) -> None:
    done = run(folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert headings(done.stdout) == list(STEPS)
    assert "✗" not in done.stdout
    for step in done.stdout.split("\n\n")[: len(STEPS)]:
        assert "✓" in step, "a step claims nothing"
    for cost in ("durable", "opening", "verifying", "restore", "checkpoint in the file", "bytes"):
        assert cost in done.stdout.partition("What it cost")[2]


def test_the_next_steps_of_the_demo_are_commands_that_work(tmp_path: Path) -> None:
    done = run(folder=tmp_path)
    commands = re.findall(r"^    \$ (.*)$", done.stdout, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        tried = subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=600, cwd=tmp_path
        )
        assert tried.returncode == 0, tried.stdout + tried.stderr
        assert tried.stdout.strip(), command


@pytest.mark.parametrize("step", STEPS)
def test_sabotage_fails_at_its_step(step: int) -> None:
    done = run("--sabotage", str(step))
    assert done.returncode == 1, done.stdout + done.stderr
    assert headings(done.stdout) == list(range(1, step + 1))
    assert done.stdout.rstrip().endswith(f"FAILED at step {step}")
    assert done.stdout.count("✗") == 1
    # It is the claim that fails, not the demo that breaks.
    assert "Error" not in done.stdout.partition(f"\n{step}. ")[2]
    assert "Traceback" not in done.stderr
