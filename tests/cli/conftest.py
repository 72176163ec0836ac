"""Running the command line, in this process and as the real program."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_kit import PROGRAM, SOURCE, Cli, Result
from click.testing import CliRunner

from holdfast import sync
from holdfast.cli.main import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and none of the reader's own settings."""
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "_HOLDFAST"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    monkeypatch.setenv("LOGNAME", "tester")
    # Unbuffered, Python does not notice that a pipe broke in the middle of a write.
    for name in ("NO_COLOR", "PYTHONUNBUFFERED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli() -> Cli:
    """`cli("key list agent:7")`: runs in this process. Words may also be given one by one."""

    def run(*words: str, stdin: bytes = b"") -> Result:
        words = tuple(shlex.split(words[0])) if len(words) == 1 else words
        with CliRunner().isolation(input=stdin) as streams:
            code = main(words)
            return Result(code, *(stream.getvalue().decode() for stream in streams[:2]))

    return run


@pytest.fixture
def program() -> Cli:
    """The same, in a process of its own."""

    def run(*words: str, stdin: bytes = b"") -> Result:
        words = tuple(shlex.split(words[0])) if len(words) == 1 else words
        done = subprocess.run([*PROGRAM, *words], input=stdin, capture_output=True, timeout=300)
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that every test may have a copy of."""
    folder = tmp_path_factory.mktemp("made")
    with sync.open(f"sqlite:{folder / 'holdfast.db'}") as store, store.acting("tester"):
        state = store.agent("7")
        state.set("plan", {"goal": "ship", "step": 1})
        state.append("talk", "hello")
        state.checkpoint("safe", tags=["release"], description="all good")
        state.set("plan", {"goal": "ship", "step": 2})
    return folder


@pytest.fixture
def agent(made: Path, here: Path) -> str:
    """A plain store here, with a scope of two entries, a checkpoint, and one more change."""
    for file in made.iterdir():
        shutil.copy2(file, here)
    return "agent:7"
