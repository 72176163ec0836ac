"""Running the command line, in this process and as the real program."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from cli_kit import PROGRAM, SOURCE, Cli, Result
from click.testing import CliRunner

from holdfast.cli.main import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and none of the reader's own settings."""
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "_HOLDFAST"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    monkeypatch.setenv("LOGNAME", "tester")
    monkeypatch.delenv("NO_COLOR", raising=False)
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
        done = subprocess.run([*PROGRAM, *words], input=stdin, capture_output=True, timeout=60)
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def agent(cli: Cli) -> str:
    """A plain store with a scope of two entries and a checkpoint, then one more change."""
    assert cli("init").code == 0
    cli("key", "set", "agent:7", "plan", '{"goal": "ship", "step": 1}')
    cli("key", "append", "agent:7", "talk", "hello", "--text")
    cli("checkpoint create agent:7 safe --tag release --description 'all good'")
    cli("key", "set", "agent:7", "plan", '{"goal": "ship", "step": 2}')
    return "agent:7"
