"""The guide's examples, killed where they say so, and started again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from store_kit import Place

PAGE = Path(__file__).parents[2] / "docs" / "state-places.md"
PROGRAMS = {
    text.partition("\n")[0].removeprefix("# "): text
    for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
}
KILL = "__import__('os').kill(__import__('os').getpid(), 9)"


class Program:
    """A program of the guide, in a folder of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.text = PROGRAMS[name]
        self._folder = folder
        self._environment = Place("sqlite", folder, sealed=False).environment()

    def __call__(self, *, kill: bool = False, text: str = "") -> list[str]:
        """What it prints; with `kill` it is killed at the line that speaks of it."""
        text, count = re.subn(r"# a kill here.*", KILL if kill else "pass", text or self.text)
        assert count == 1
        told = subprocess.run(
            [sys.executable, "-u", "-c", text],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert told.returncode == (-9 if kill else 0), told.stderr
        return told.stdout.splitlines()


@pytest.mark.spec("S147", "S149", "S152")
def test_memory_is_gone_and_agents_subscribe_again(tmp_path: Path) -> None:
    program = Program("subscribers.py", tmp_path)
    assert program(kill=True) == ["subscribers at the start: []"]
    assert program() == ["subscribers at the start: []", "received: are you there?"]
    assert not [one for one in tmp_path.iterdir() if one.name != "data"], "nothing is stored"


@pytest.mark.spec("S130", "S150")
def test_what_lies_in_the_store_needs_no_recovery(tmp_path: Path) -> None:
    program = Program("fleet.py", tmp_path)
    assert program(kill=True) == []
    wanted = ["[('writer', 1)]"]
    assert program() == wanted
    assert program(kill=True) == []
    assert program() == wanted, "and nothing twice"


def test_killed_behind_any_write_the_next_run_does_what_is_left(tmp_path: Path) -> None:
    writes = re.findall(r"^ +entities\.(?:create|relate).*$", PROGRAMS["fleet.py"], re.MULTILINE)
    assert len(writes) == 2
    for number, line in enumerate(writes):
        folder = tmp_path / str(number)
        folder.mkdir()
        program = Program("fleet.py", folder)
        indent = line[: len(line) - len(line.lstrip())]
        assert program(kill=True, text=program.text.replace(line, f"{line}\n{indent}{KILL}")) == []
        assert program() == ["[('writer', 1)]"]


@pytest.mark.spec("S131", "S146", "S151")
def test_what_lies_in_files_is_built_again(tmp_path: Path) -> None:
    program = Program("profiles.py", tmp_path)
    assert program(kill=True) == []
    assert program() == ["['critic'] {}", "1 messages, index built: True"]


@pytest.mark.spec("S132", "S149", "S152")
def test_the_ring_is_gone_and_what_was_flushed_is_there(tmp_path: Path) -> None:
    program = Program("log.py", tmp_path)
    assert program(kill=True) == ["in the ring: 0", "in the store: 0"]
    assert program() == ["in the ring: 0", "in the store: 1"]
    assert program() == ["in the ring: 0", "in the store: 3"], "ended well, both are there"


@pytest.mark.spec("S133", "S145", "S150")
def test_what_is_kept_at_the_end_comes_back_and_what_was_killed_does_not(tmp_path: Path) -> None:
    program = Program("waiting.py", tmp_path)
    assert program(kill=True) == ["came back: []"]
    assert program() == ["came back: []"]
    assert program() == ["came back: ['hello']"]
    assert program(kill=True)[0].startswith("came back: ")
    assert program() == ["came back: []"], "given back once, then lost by the kill"


@pytest.mark.spec("S148", "S150")
def test_identities_stay_and_state_is_read_again(tmp_path: Path) -> None:
    program = Program("identity.py", tmp_path)
    assert program(kill=True) == ["known: []"]
    wanted = ["known: [('planner', 'Planner')]", "plan: ['write', 'send']"]
    assert program() == wanted


def test_the_examples_of_the_runtime_run_again_in_the_same_store(tmp_path: Path) -> None:
    page = PAGE.with_name("runtime.md").read_text()
    environment = Place("sqlite", tmp_path, sealed=False).environment()
    for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) * 2:
        told = subprocess.run(
            [sys.executable, "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert told.returncode == 0, text + told.stderr
