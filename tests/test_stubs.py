"""The types of the async classes, which are made when the program runs, are those of the stubs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

PROGRAM = """
import holdfast
from holdfast.backup import Backups
from holdfast.runtime import Events


async def work(store: holdfast.Store, wrong: int) -> None:
    backups = Backups(store, "dir:backups")
    made = await backups.create("monthly")
    reveal_type(made.id)
    await backups.create(named="monthly")
    await backups.verify(wrong)
    backups.list().clear()
    Backups(wrong, "dir:backups")


async def read(log: Events) -> None:
    async with log.subscribe("agent:*") as events:
        async for event in events:
            print(event.event_name, events.missed)
"""
FOUND = [
    'Revealed type is "',
    'Unexpected keyword argument "named" for "create" of "Backups"',
    'Argument 1 to "verify" of "Backups" has incompatible type "int"; expected "str"',
    'has no attribute "clear"',  # nobody awaited it
    'Argument 1 to "Backups" has incompatible type "int"; expected "Store | None"',
]


def test_the_stubs_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/stubs.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_call_is_found_through_them(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    for expected in FOUND:
        assert any(expected in line for line in lines), done.stdout
    wrong = [line for line in lines if ": error:" in line]
    assert len(wrong) == len(FOUND) - 1, done.stdout
