"""The real program in processes of its own: pipes, terminals, signals, shells."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_kit import PROGRAM, Cli

from holdfast import sync

COLOUR = re.compile(r"\x1b\[[0-9;]+m")


def test_the_main_path(program: Cli, here: Path) -> None:
    (here / "safe").mkdir(mode=0o700)
    os.environ["HOLDFAST_KEY"] = "file:safe/agent.key"
    try:
        assert "identity: holdfast1:" in program("init").out
        assert program("key", "set", "agent:7", "plan", '{"step": 1}').code == 0
        assert program("checkpoint create agent:7 safe").code == 0
        assert program("key set agent:7 plan -", stdin=b'{"step": 2}').code == 0
        assert program("restore agent:7 safe").code == 0
        assert json.loads(program("key get agent:7 plan").out) == {"step": 1}
        assert program("verify").code == 0
    finally:
        del os.environ["HOLDFAST_KEY"]
    refused = program("key get agent:7 plan")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.count("\n") == 1


def test_a_read_loads_only_what_it_needs(program: Cli, agent: str) -> None:
    """Most of the time of a short command is its start."""
    source = (
        "import sys; from holdfast.cli.main import main; code = main(sys.argv[1:]);"
        "print(sorted({'asyncio', 'rich', 'difflib', 'holdfast.store.proof.verify'}"
        " & set(sys.modules)))"
    )
    words = [sys.executable, "-c", source, "key", "get", agent, "talk"]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_python_dash_m_is_the_same(program: Cli, agent: str) -> None:
    words = [sys.executable, "-m", "holdfast", "key", "get", agent, "plan"]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert out == program("key", "get", agent, "plan").out != ""


def test_importing_the_package_is_light_and_complete() -> None:
    source = (
        "import sys, holdfast; assert 'asyncio' not in sys.modules\n"
        "assert {*holdfast.__all__, 'sync'} <= set(dir(holdfast))\n"
        "for name in holdfast.__all__: getattr(holdfast, name)\n"
        "assert holdfast.sync.open and holdfast.errors.Conflict\n"
        "try: holdfast.nothing\n"
        "except AttributeError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert "nothing" in done.stdout


# ---- pipes ---------------------------------------------------------------------------------


def test_no_colours_in_a_pipe(program: Cli, agent: str) -> None:
    for words in (f"show {agent}", f"log {agent}", f"diff {agent} 1", "verify", "stats", "init"):
        result = program(words)
        assert not COLOUR.search(result.out + result.err)
        assert "\x1b" not in result.out + result.err


@pytest.mark.parametrize("words", ["show agent:7", "show agent:7 --json"])
def test_a_pipe_that_breaks(cli: Cli, agent: str, words: str) -> None:
    cli("key set agent:7 long -", stdin=json.dumps(["x" * 100] * 5000).encode())
    command = f"{shlex.join(PROGRAM)} {words} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout == "{\n141\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words",
    ["stats", "log agent:7", "verify --json", "key get agent:7 plan", "show agent:7", "--help"],
)
def test_output_that_goes_nowhere(agent: str, words: str) -> None:
    def run(how: str) -> tuple[int, str]:
        command = f"{shlex.join(PROGRAM)} {words} {how}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    assert run(">&-") == (0, "")
    assert run("<&- >&- 2>&-") == (0, "")
    assert run("| true; exit ${PIPESTATUS[0]}")[0] in (0, 141)
    code, said = run(">/dev/full")
    assert code == 74
    assert "output cannot be written" in said
    assert said.count("\n") == 1


def test_errors_that_go_nowhere(agent: str) -> None:
    for how, code in (("2>&-", 4), ("2>/dev/full", 4), ("2>/dev/full >/dev/full", 4)):
        command = f"{shlex.join(PROGRAM)} key get agent:7 nothing {how}"
        assert subprocess.run(["bash", "-c", command], timeout=60).returncode == code
    command = f"{shlex.join(PROGRAM)} key set agent:7 plan - <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "not JSON" in done.stderr


# ---- terminals -----------------------------------------------------------------------------


def on_terminal(
    *words: str, answers: tuple[tuple[str, str], ...] = (), **settings: str
) -> tuple[int, str]:
    """Run on a terminal, answer what is asked; exit code and all that was shown."""
    main, other = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **settings}
    child = subprocess.Popen(
        [*PROGRAM, *words],
        stdin=other,
        stdout=other,
        stderr=other,
        env=environment,
        start_new_session=True,
    )
    os.close(other)
    shown, waiting, deadline = "", list(answers), time.monotonic() + 60
    while time.monotonic() < deadline:
        ended = child.poll() is not None  # asked first: what it showed before its end is there then
        if not select.select([main], [], [], 0.2)[0]:
            if ended:
                break
            continue
        try:
            chunk = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        shown += chunk.decode(errors="replace")
        if waiting and waiting[0][0] in shown.rpartition("\n")[2]:
            os.write(main, f"{waiting.pop(0)[1]}\n".encode())
    code = child.wait(60)
    os.close(main)
    return code, shown


def test_tables_and_colours_on_a_terminal(agent: str) -> None:
    code, shown = on_terminal("log", agent)
    assert code == 0
    assert "entry" in shown
    assert "correlation" in shown
    _, shown = on_terminal("diff", agent, "1")
    assert COLOUR.search(shown)
    assert "+ talk" in shown
    _, shown = on_terminal("key", "get", agent, "plan")
    assert json.loads(COLOUR.sub("", shown)) == {"goal": "ship", "step": 2}
    assert COLOUR.search(shown)
    _, shown = on_terminal("key", "get", agent, "plan", NO_COLOR="1")
    assert not COLOUR.search(shown)
    code, shown = on_terminal("verify")
    assert code == 0
    assert "nothing was found" in shown


def test_nothing_stored_moves_the_cursor(cli: Cli, agent: str) -> None:
    cli("key", "set", agent, "trap", "\x1b[2J\x9b31m", "--text", "--actor", "\x1b]0;title\x07")
    for words in (["log", agent], ["key", "get", agent, "trap"], ["diff", agent, "1"]):
        code, shown = on_terminal(*words, NO_COLOR="1")
        assert code == 0
        assert "\x1b[2J" not in shown
        assert "\x1b]0;" not in shown
        assert "\x9b" not in shown


def test_a_passphrase_is_asked_for(here: Path) -> None:
    twice = (("Passphrase", "correct horse"), ("Repeat", "correct horse"))
    code, shown = on_terminal("init", "--key", "passphrase:", answers=twice)
    assert code == 0
    assert "identity: holdfast1:" in COLOUR.sub("", shown)
    assert "correct horse" not in shown
    once = (("Passphrase", "correct horse"),)
    words = ("key", "set", "agent:7", "plan", "1", "--key", "passphrase:")
    assert on_terminal(*words, answers=once)[0] == 0
    wrong = (("Passphrase", "wrong horse"),)
    code, shown = on_terminal(*words, answers=wrong)
    assert code == 2
    assert "error:" in shown


def test_deleting_asks_on_a_terminal(cli: Cli, agent: str) -> None:
    code, _ = on_terminal("scope", "delete", agent, answers=(("[y/N]", "n"),))
    assert code == 130
    assert cli(f"key get {agent} plan").code == 0
    code, _ = on_terminal("scope", "delete", agent, answers=(("[y/N]", "y"),))
    assert code == 0
    assert cli(f"key get {agent} plan").code == 4


def test_ctrl_c_is_clean(agent: str, here: Path) -> None:
    os.mkfifo("phrase")
    waiting = subprocess.Popen(
        [*PROGRAM, "scope", "list", "--passphrase-file", "phrase"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    writer = open_when_read("phrase")
    time.sleep(0.2)  # it has it open; a moment later it waits for the passphrase
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=60)
    os.close(writer)
    assert waiting.returncode == 130
    assert (out, err) == ("", "error: interrupted\n")


def open_when_read(fifo: str) -> int:
    """Open a pipe for writing as soon as somebody has it open for reading."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


# ---- letters -------------------------------------------------------------------------------


def test_what_the_terminal_has_no_letter_for_is_escaped(agent: str) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        store.scope(agent).set("way", "→ é")
    there = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    for words, says in (("key get {} way", b'"\\u2192 \xe9"'), ("diff {} 1", b"\\u2192")):
        line = [*PROGRAM, *words.format(agent).split()]
        done = subprocess.run(line, env=there, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        assert says in done.stdout


def test_a_value_that_is_not_utf_8_is_refused(agent: str) -> None:
    for more in ([], ["--text"]):
        line = [*PROGRAM, "key", "set", agent, "odd", b'"a\xffb"', *more]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 2
        assert "not UTF-8" in done.stderr


# ---- completion ----------------------------------------------------------------------------


def complete(shell: str, words: str) -> list[str]:
    """What the program answers to a shell that completes the last word."""
    parts = words.split(" ")
    asked = {
        "_HOLDFAST_COMPLETE": f"{shell}_complete",
        "COMP_TEXT": words,
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(parts) - 1) if shell != "fish" else parts[-1],
    }
    done = subprocess.run(
        PROGRAM, env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\n")


def test_completion_scripts(program: Cli) -> None:
    for shell in ("bash", "zsh", "fish"):
        result = program(f"completion {shell}")
        assert result.code == 0
        assert "_HOLDFAST_COMPLETE" in result.out
        assert "holdfast" in result.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_answers(agent: str, shell: str) -> None:
    assert any("checkpoint" in line for line in complete(shell, "holdfast che"))
    assert any("--reveal" in line for line in complete(shell, "holdfast show --rev"))
