"""What the documents show is run, as a reader would.

Of README.md and docs/*.md, the blocks of a page run in order, in one empty folder:
- a ```python block is a whole program. It is put into a file and run with `python file.py`.
  Its name is `example.py`, or the one in its first line, as in `# shop.py`, so that later
  blocks of the page can import it or name it;
- in ```console and ```shell blocks, each line that starts with `$ holdfast `,
  `$ holdfast-verify ` or `$ python ` is run. It must exit with 0, or with N where a line
  `# exit N` follows.

No block can be exempted: what cannot run does not belong into the documents as code.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("README.md"), *(ROOT / "docs").glob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*_example.py"))

PYTHON = {"python", "py", "python3"}
CONSOLE = {"console", "shell", "bash", "sh"}
SKIPPED = ("make", "pip", "git", "cd")  # they set up what is already there when tests run
SECONDS = 300
MOST_PAGES, MOST_WORDS = 36, 80  # of a paragraph
LONGEST = 30  # lines of a program that can be read at a glance
CLASS = re.compile(r"(?<!`)`([A-Z][a-z]\w+)(?:\.\w+)?(?:\([^`]*\))?`(?!`)")
ELSEWHERE = {  # classes that are not ours, or examples of a name
    *("AsyncPostgresSaver", "AsyncSqliteSaver", "BaseStore", "InMemorySaver", "InMemoryStore"),
    *("InitVar", "Interrupt", "Mstore", "Password", "StateGraph"),
}
PROGRAMS = ("holdfast", "holdfast-verify", "python")
CLI = "import sys; from holdfast.cli.main import main; sys.exit(main())"
VERIFY = "import sys; from holdfast_verify import main; sys.exit(main())"
WARM = """
import importlib, json, os, sys
from holdfast.cli.command import home_of
from holdfast.cli.main import HOMES, main
for home in sorted(set(map(home_of, HOMES.values())) - {home_of("langgraph")}):
    importlib.import_module(home)
for line in sys.stdin:
    words, folder, environment, told = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(told, os.O_WRONLY | os.O_CREAT)
    for number, file in enumerate((nothing, output, output)):
        os.dup2(file, number)
    code = main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking all modules down again takes longer than most commands
"""


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
    """The commands of a block that run; a command that would silently not run is refused."""
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
    shell = ["bash", "-o", "pipefail", "-c", command.text]
    done = run(shell, folder, environment)
    assert done.returncode == command.exit, (
        f"$ {command.text}\nexit {done.returncode}, not {command.exit}\n{done.stdout}{done.stderr}"
    )


def run_python(block: Block, page: str, folder: Path, environment: dict[str, str]) -> None:
    lines = [line for line in block.text.splitlines() if line.strip()]
    assert len(lines) <= LONGEST, f"{page}:{block.line}: {len(lines)} lines, at most {LONGEST}"
    named = re.fullmatch(r"# (\w+\.py)", lines[0]) if lines else None
    file = folder / (named[1] if named else "example.py")
    # Empty lines in front, so that a traceback shows the line of the document.
    file.write_text("\n" * (block.line - 1) + block.text + "\n")
    done = run([sys.executable, file.name], folder, environment)
    assert done.returncode == 0, f"{page}:{block.line}: {done.stdout}{done.stderr}"


class Warm:
    """Runs commands in processes of their own that have imported the command line already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def takes(self, command: Command) -> bool:
        """Whether a command needs no shell."""
        return command.text.startswith("holdfast ") and not re.search(r"[|<>;&$*`]", command.text)

    def run(self, command: Command, environment: dict[str, str]) -> None:
        if self.process is None:
            line, pipe = [sys.executable, "-c", WARM], subprocess.PIPE
            self.process = subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdin
        assert self.process.stdout
        told = self.folder.with_name(f"{self.folder.name}-told")
        told.write_text("")
        asked = [shlex.split(command.text)[1:], str(self.folder), environment, str(told)]
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        assert code == command.exit, (
            f"$ {command.text}\nexit {code}, not {command.exit}\n{told.read_text()}"
        )

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate(timeout=SECONDS)


def run(
    words: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def run_page(name: str, page: str, folder: Path, cli: str = CLI) -> int:
    """Runs a document in a folder that is the working directory; how many things it ran."""
    ran = 0
    path = f"{make_program(folder, cli)}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    with closing(Warm(folder)) as warm:
        for block in blocks(page):
            if block.language in PYTHON:
                assert len(block.info) == 1, f"line {block.line}: every python block must run"
                run_python(block, name, folder, environment)
                ran += 1
            elif block.language in CONSOLE:
                for command in commands(block):
                    if cli == CLI and warm.takes(command):
                        warm.run(command, environment)
                    else:
                        run_command(command, folder, environment)
                    ran += 1
    return ran


def make_program(folder: Path, cli: str) -> Path:
    """A folder, for PATH, with programs that run in this interpreter."""
    place = folder.with_name(f"{folder.name}-bin")
    place.mkdir()
    starts = (["-c", cli], ["-c", VERIFY], [])
    for name, start in zip(PROGRAMS, starts, strict=True):
        program = place / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *start])} "$@"\n')
        program.chmod(0o755)
    return place


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, and a process that is put back as it was."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
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
    own = "(Storage)" in (text := page.read_text()) and "storage=" in text
    return pytest.param(page, marks=pytest.mark.spec("L203", "L205")) if own else page


def _servers(page: str, request: pytest.FixtureRequest) -> None:
    """Starts the servers whose addresses the blocks of a page read."""
    code = "".join(block.text for block in blocks(page))
    if "DATABASE_URL" in code:
        os.environ["DATABASE_URL"] = request.getfixturevalue("postgres").url
    if "MONGODB_URL" in code:
        os.environ["MONGODB_URL"] = request.getfixturevalue("mongodb").place("page")
    if "REDIS_URL" in code:
        os.environ["REDIS_URL"] = request.getfixturevalue("redis").url(1)


@pytest.mark.parametrize("page", [_marked(page) for page in PAGES], ids=lambda page: page.name)
def test_document_runs(page: Path, folder: Path, request: pytest.FixtureRequest) -> None:
    _servers(page.read_text(), request)
    run_page(str(page), page.read_text(), folder)


def paragraphs(page: str) -> Iterator[str]:
    """What is read in one breath: paragraphs and items of lists, of what is written by hand."""
    by_hand = re.sub(r"```.*?```|<!-- walk: .*?<!-- end -->", "", page, flags=re.DOTALL)
    for text in by_hand.partition("<!-- Made by")[0].split("\n"):
        if not text.startswith("|"):
            yield text


def test_pages_are_few_and_paragraphs_short() -> None:
    assert len(list((ROOT / "docs").glob("*.md"))) <= MOST_PAGES
    for page in PAGES:
        for text in paragraphs(page.read_text()):
            assert len(text.split()) <= MOST_WORDS, f"{page.name}: {text[:80]} …"


def test_classes_that_are_named_exist() -> None:
    """A docstring went on naming `Worked` when it was `StepResult`."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.pyi")]
    pages = [one for one in PAGES if one.name not in ("changelog.md", "names.md")]
    known = set(ELSEWHERE)
    for path in sources:
        known.update(re.findall(r"\b[A-Z]\w+\b", re.sub(r"`[^`]*`", "", path.read_text())))
    for path in [*sources, *pages]:
        assert not {*CLASS.findall(path.read_text())} - known, path


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_runs(example: Path, folder: Path) -> None:
    run_command(Command(shlex.join([sys.executable, str(example)])), folder, dict(os.environ))


# ---- the runner itself ---------------------------------------------------------------------

ECHO = "import sys; print(sys.argv[1:]); sys.exit(int(sys.argv[-1]))"

GOOD = """
```python
# shop.py
from pathlib import Path
def seen():
    return Path("seen")
```
1. Text.

   ```python
   from __future__ import annotations
   from shop import seen
   if __name__ == "__main__":
       seen().write_text("x")
   ```
```console
$ make demo
$ python shop.py
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
    "needs the block before": "```python\nx = 1\n```\n```python\nprint(x)\n```",
    "no program": "```python\nawait f()\n```",
    "too long": "```python\n" + "1\n" * (LONGEST + 1) + "```",
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
    with pytest.raises(AssertionError):
        run_page("bad.md", page, folder, ECHO)


def test_traceback_names_the_line_of_the_document(folder: Path) -> None:
    with pytest.raises(AssertionError, match=r'example\.py", line 5'):
        run_page("page.md", "Text.\n\n```python\nx = 1\nx / 0\n```", folder)
