"""What the documents show is run.

Of README.md and docs/*.md, the blocks of a file run in order, in one namespace and one empty
folder:
- ```python blocks, with `await` at the top level if they like;
- in ```console and ```shell blocks, each line that starts with `$ holdfast ` or
  `$ holdfast-verify `. It must exit with 0, or with N where a line `# exit N` follows.

No block can be exempted: what cannot run does not belong into the documents as code.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("README.md"), *(ROOT / "docs").glob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*_example.py"))

PYTHON = {"python", "py", "python3"}
CONSOLE = {"console", "shell", "bash", "sh"}
SKIPPED = ("make", "pip", "git", "cd")  # they set up what is already there when tests run
SECONDS = 300
PROGRAMS = ("holdfast", "holdfast-verify")
CLI = "import sys; from holdfast.cli.main import main; sys.exit(main())"
VERIFY = "import sys; from holdfast_verify import main; sys.exit(main())"


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after the fence, its text, and the line it starts at."""

    info: list[str]
    text: str
    line: int

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""


@dataclass(frozen=True)
class Command:
    """A shell command and the exit code that the document shows for it."""

    text: str
    exit: int = 0


def blocks(page: str) -> Iterator[Block]:
    fence, info, start, lines = "", [], 0, []
    for number, line in enumerate(page.splitlines(), 1):
        bare = line.strip()
        if fence and set(bare) == {fence[0]} and len(bare) >= len(fence):
            yield Block(info, textwrap.dedent("\n".join(lines)), start)
            fence = ""
        elif fence:
            lines.append(line)
        elif match := re.match(r"(`{3,}|~{3,})(.*)", bare):
            fence, info, start, lines = match[1], match[2].split(), number + 1, []
    if fence:
        raise AssertionError(f"line {start}: the block is not closed")


def commands(block: Block) -> list[Command]:
    """The `$ holdfast` commands of a block; a command that would silently not run is refused."""
    found: list[Command] = []
    text = block.text.replace("\\\n", " ")
    prompts = [line for line in text.splitlines() if line.startswith("$ ")]
    assert prompts, f"line {block.line}: begin each command with `$ `"
    for line in text.splitlines():
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            word = command.split()[0]
            assert word in (*PROGRAMS, *SKIPPED), f"line {block.line}: {word} is not run by tests"
            found.append(Command(command))
        elif found and (match := re.fullmatch(r"# exit (\d+)", line.strip())):
            found[-1] = Command(found[-1].text, int(match[1]))
    return [command for command in found if command.text.split()[0] in PROGRAMS]


def run_command(command: Command, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == command.exit, (
        f"$ {command.text}\nexit {done.returncode}, not {command.exit}\n{done.stdout}{done.stderr}"
    )


def run_python(block: Block, page: str, module: ModuleType, runner: asyncio.Runner) -> None:
    # Empty lines in front, so that a traceback shows the line of the document.
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    waiting = eval(code, vars(module))
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(asyncio.wait_for(waiting, SECONDS))


def run_page(name: str, page: str, folder: Path, cli: str = CLI) -> int:
    """Runs a document in a folder that is the working directory; how many things it ran."""
    ran = 0
    module = ModuleType("__main__")
    sys.modules["__main__"] = module  # so that `if __name__ == "__main__"` hides nothing
    path = f"{make_program(folder, cli)}{os.pathsep}{os.environ['PATH']}"
    with asyncio.Runner() as runner:
        for block in blocks(page):
            if block.language in PYTHON:
                assert len(block.info) == 1, f"line {block.line}: every python block must run"
                run_python(block, name, module, runner)
                ran += 1
            elif block.language in CONSOLE:
                for command in commands(block):
                    run_command(command, folder, {**os.environ, "PATH": path})
                    ran += 1
    return ran


def make_program(folder: Path, cli: str) -> Path:
    """A folder, for PATH, with programs that run in this interpreter."""
    place = folder.with_name(f"{folder.name}-bin")
    place.mkdir()
    for name, source in zip(PROGRAMS, (cli, VERIFY), strict=True):
        program = place / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-c", source])} "$@"\n')
        program.chmod(0o755)
    return place


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, and a process that is put back as it was."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("HOLDFAST_")]:
        del os.environ[name]
    source = str(ROOT / "src")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, before.get("PYTHONPATH")]))
    os.environ["HOME"] = str(tmp_path)
    yield place
    os.environ.clear()
    os.environ.update(before)


def _marked(page: Path) -> Any:
    """The page that makes an engine of its own, tries it and opens a store on it."""
    own = page.name == "storage-engines.md"
    return pytest.param(page, marks=pytest.mark.spec("L203", "L205")) if own else page


@pytest.mark.parametrize("page", [_marked(page) for page in PAGES], ids=lambda page: page.name)
def test_document_runs(page: Path, folder: Path, request: pytest.FixtureRequest) -> None:
    if page.name == "postgresql.md":
        os.environ["DATABASE_URL"] = request.getfixturevalue("postgres").url
    if page.name == "mongodb.md":
        os.environ["MONGODB_URL"] = request.getfixturevalue("mongodb").place("page")
    if page.name == "redis.md":
        os.environ["REDIS_URL"] = request.getfixturevalue("redis").url(1)
    run_page(str(page), page.read_text(), folder)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_runs(example: Path, folder: Path) -> None:
    run_command(Command(shlex.join([sys.executable, str(example)])), folder, dict(os.environ))


# ---- the runner itself ---------------------------------------------------------------------

ECHO = "import sys; print(sys.argv[1:]); sys.exit(int(sys.argv[-1]))"

GOOD = """
```python
import asyncio
from pathlib import Path
lock = asyncio.Lock()
await lock.acquire()
```
1. Text.

   ```python
   async def later():
       return lock.locked()
   ```
```python
assert await later()
if __name__ == "__main__":
    Path("seen").write_text("x")
```
```console
$ make demo
$ holdfast get \\
    'a b' 0 | cat
['get', 'a b', '0']
$ holdfast fail 3
['fail', '3']
# exit 3
```
```json
{"not": "run"}
```
"""

BAD = {
    "python raises": "```python\nassert False\n```",
    "await raises": "```python\nawait f()\n```",
    "exempted": "```python no-run\n1\n```",
    "other exit": "```console\n$ holdfast x 1\n```",
    "exit 0 shown as 2": "```shell\n$ holdfast x 0\n# exit 2\n```",
    "fails in a pipe": "```shell\n$ holdfast x 1 | cat\n```",
    "no prompt": "```shell\nholdfast x 0\n```",
    "unknown command": "```console\n$ frobnicate\n```",
    "not closed": "```python\n1\n",
}


def test_good_page_runs(folder: Path) -> None:
    assert run_page("good.md", GOOD, folder, ECHO) == 5
    assert (folder / "seen").read_text() == "x"


@pytest.mark.parametrize("page", BAD.values(), ids=BAD.keys())
def test_bad_page_fails(page: str, folder: Path) -> None:
    with pytest.raises((AssertionError, NameError)):
        run_page("bad.md", page, folder, ECHO)


def test_traceback_names_the_line_of_the_document(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("page.md", "Text.\n\n```python\nx = 1\nx / 0\n```", folder)
    assert caught.traceback[-1].lineno + 1 == 5
