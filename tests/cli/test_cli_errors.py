"""Every exit code, and what people and programs are told."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import click
import pytest
from cli_kit import Cli
from click.testing import CliRunner

from holdfast import errors
from holdfast.cli import output
from holdfast.cli.failures import exit_code, text_of
from holdfast.cli.main import main
from holdfast.storage import open_storage
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store import open

CODES = {
    errors.MissingError: 4,
    errors.Conflict: 5,
    errors.MergeConflictError: 5,
    errors.StateIntegrityError: 6,
    errors.RefusedError: 2,
    errors.Unavailable: 7,
    errors.OutcomeUnknown: 8,
    errors.RecoveryFailedError: 9,
    errors.InternalError: 70,
}


def test_every_error_has_its_code() -> None:
    found = inspect.getmembers(errors, inspect.isclass)
    for _, kind in found:
        if kind is not errors.HoldfastError and kind.__module__ == errors.__name__:
            branch = next(base for base in kind.__mro__ if base in CODES)
            assert exit_code(kind("text")) == CODES[branch]
    assert exit_code(RuntimeError()) == 70
    assert exit_code(click.UsageError("")) == 2
    assert exit_code(KeyboardInterrupt()) == 130


# ---- 2: bad usage, refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "nothing",
        "key get",
        "key get agent:7",
        "key get agent:7 plan more",
        "key get agent:7 plan --nothing",
        "key get nonsense plan",
        "key get agent:../x plan",
        "key get agent:7 a//b",
        "key set agent:7 __x 1",
        "key list agent:7 --limit 0",
        "diff agent:7",
        "diff agent:7 2026-99-99",
        "stats --durability some",
        "verify --budget -1",
        "completion tcsh",
        "log agent:7 --limit many",
        "key get agent:7 plan --key nonsense",
        "key get agent:7 plan --signer nonsense",
    ],
)
def test_bad_usage(cli: Cli, agent: str, words: str) -> None:
    result = cli(words)
    assert result.code == 2
    told = cli(f"{words} --json")
    assert told.code == 2
    assert result.err.startswith("error: ")
    assert result.out == told.out == ""
    assert set(told.error) == {"error", "message"}
    assert "\n" not in told.error["message"]


@pytest.mark.parametrize("words", [(), ("key",), ("checkpoint",)])
def test_a_bare_word_shows_its_help(words: tuple[str, ...]) -> None:
    with CliRunner().isolation() as streams:
        assert main(words) == 0
        shown = streams[0].getvalue().decode()
    assert shown.startswith("Usage: holdfast")
    assert shown.count("\n") > 5


def test_a_slip_of_the_pen(cli: Cli) -> None:
    assert "Did you mean" in cli("chekpoint list").err
    assert "Did you mean" in cli("key lst").err
    for slip, meant in (
        ("backup run", "create"),
        ("checkpoint restore agent:7 3", "holdfast restore"),
        ("checkpoint ls", "list"),
        ("agent verify", "holdfast verify"),
        ("rollback agent:7", "restore"),
        ("get agent:7 plan", "key get"),
        ("ls agent:7", "key list"),
        ("rotate", "keyring rotate"),
    ):
        assert f"Did you mean {meant!r}?" in cli(slip).err, slip


# ---- keys that do not fit ------------------------------------------------------------------


@pytest.fixture
def sealed(cli: Cli, here: Path) -> None:
    """An encrypted store, its key in a folder of its own, and another key."""
    (here / "keys").mkdir(mode=0o700)
    assert cli("init --key file:keys/right").code == 0
    assert cli("init --store other.db --key file:keys/wrong").code == 0
    assert cli("key set agent:7 plan 1 --key file:keys/right").code == 0


def test_right_key(cli: Cli, sealed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("--key file:keys/right key get agent:7 plan").out == "1\n"
    monkeypatch.setenv("HOLDFAST_KEY", "file:keys/right")
    assert cli("key get agent:7 plan").out == "1\n"
    assert cli("log agent:7 --key plan").code == 0
    monkeypatch.setenv("SECRET", Path("keys/right").read_text())
    assert cli("key get agent:7 plan --key env:SECRET").out == "1\n"


def test_missing_key(cli: Cli, sealed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for empty in (None, ""):
        if empty is not None:
            monkeypatch.setenv("HOLDFAST_KEY", empty)
        result = cli("key get agent:7 plan")
        assert result.code == 2
        assert "encrypted" in result.err
        assert "--key or HOLDFAST_KEY" in result.err
    told = cli("key get agent:7 plan --json").error
    assert told["error"] == "KeyMissingError"
    gone = cli("key get agent:7 plan --key file:keys/none")
    assert gone.code == 2
    assert "not there" in gone.err
    assert cli("key get agent:7 plan --key env:NONE").code == 2
    assert not Path("keys/none").exists()


def test_wrong_key(cli: Cli, sealed: None) -> None:
    result = cli("key get agent:7 plan --key file:keys/wrong --json")
    assert result.code == 2
    assert result.error["error"] == "WrongKeyError"


def test_superfluous_key(cli: Cli, sealed: None) -> None:
    cli("init --store plain.db")
    result = cli("scope list --store plain.db --key file:keys/right")
    assert result.code == 2
    assert "not encrypted" in result.err
    assert "leave out --key" in result.err


def test_a_passphrase_on_the_command_line_is_refused(cli: Cli, here: Path) -> None:
    for words in ("init --key passphrase:geheim", "--json scope list --key passphrase:geheim"):
        result = cli(words)
        assert result.code == 2
        assert "geheim" not in result.err + result.out
        assert "--passphrase-file" in result.err
    assert list(here.iterdir()) == []
    nobody = cli("init --key passphrase:")
    assert nobody.code == 2
    assert "no terminal" in nobody.err


def test_passphrase_file(cli: Cli, here: Path) -> None:
    Path("phrase").write_text("correct horse\nbattery\n")
    os.chmod("phrase", 0o600)
    made = cli("init --passphrase-file phrase --json").json
    assert made["key"] == "passphrase"
    assert cli("key set agent:7 plan 1 --passphrase-file phrase").code == 0
    Path("wrong").write_text("incorrect horse")
    os.chmod("wrong", 0o600)
    assert cli("scope list --passphrase-file wrong --json").error["error"] == "WrongKeyError"
    os.chmod("phrase", 0o644)
    open_to_all = cli("scope list --passphrase-file phrase")
    assert open_to_all.code == 2
    assert "chmod 600" in open_to_all.err
    assert cli("scope list --passphrase-file none").code == 2
    assert cli("scope list --passphrase-file phrase --key file:k").code == 2


# ---- 4 to 8 and 70 -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "key get agent:7 nothing",
        "key get agent:8 plan",
        "key list agent:8",
        "show agent:8",
        "log agent:8",
        "timelines agent:8",
        "checkpoint list agent:8",
        "key get agent:7 plan --at 99",
        "key get agent:7 plan --at nothing",
        "key get agent:7 plan --at 1999-01-01",
        "key get agent:7 plan --at other@1",
        "key get agent:7 plan --timeline other",
        "diff agent:7 1 99",
        "scope list --store nothing.db",
        "scope list --store no/folder.db",
    ],
)
def test_not_found(cli: Cli, agent: str, words: str) -> None:
    result = cli(words)
    assert result.code == 4
    assert result.err.count("\n") == 1
    assert "()" not in result.err, "the words of the library, not of this program"


def test_conflict(cli: Cli, agent: str) -> None:
    result = cli("key set agent:7 plan 1 --if-version 1 --json")
    assert result.code == 5
    assert result.error["error"] == "Conflict"
    assert "agent:7" in result.error["message"]


def test_damage(cli: Cli, agent: str) -> None:
    change_values("holdfast.db")
    result = cli("key get agent:7 plan")
    assert result.code == 6
    assert result.err.startswith("error: ")
    report = cli("verify --json")
    assert report.code == 1
    assert report.json["findings"]
    shown = cli("verify")
    assert shown.code == 1
    assert "findings" in shown.out


def change_values(path: str) -> None:
    """Flip a bit in every row of an entry, past its envelope."""
    connection = apsw.Connection(path)
    for number, key, content in list(connection.execute("SELECT rowid, k, v FROM records")):
        if key[:1] == b"E":
            changed = content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]
            connection.execute("UPDATE records SET v=? WHERE rowid=?", (changed, number))
    connection.close()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let calls to the store's storage fail by a plan."""

    def fail(*plan: Fault) -> None:
        def open_faulty(url: str, **options: Any) -> Any:
            return Faulty(open_storage(url, **options), plan)

        monkeypatch.setattr(open, "open_storage", open_faulty)

    return fail


def test_unavailable(cli: Cli, agent: str, failing: Callable[..., None]) -> None:
    failing(Fault("commit"))
    result = cli("key set agent:7 plan 3 --json")
    assert result.code == 7
    assert result.error["error"] == "Unavailable"


def test_outcome_unknown(cli: Cli, agent: str, failing: Callable[..., None]) -> None:
    for nth in range(1, 20):
        # The commit is lost on the way and the store cannot be asked what became of it.
        failing(Fault("commit", 1, "ambiguous-lost", onward=True), Fault("get", nth, onward=True))
        result = cli("key set agent:7 plan 3 --json")
        if result.code == 8:
            assert result.error["error"] == "OutcomeUnknown"
            return
    raise AssertionError("no plan made the outcome unknown")


def test_a_bug(cli: Cli, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open, "read_meta", lambda storage: 1 // 0)
    result = cli("scope list")
    assert result.code == 70
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err
    assert "HOLDFAST_DEBUG=1" in result.err
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    assert "ZeroDivisionError" in cli("scope list").err


def test_a_file_that_is_no_store(cli: Cli, here: Path) -> None:
    (here / "text.db").write_text("something else " * 50)
    assert cli("scope list --store text.db").code == 2
    (here / "empty.db").touch()
    assert "holdfast init" in cli("scope list --store empty.db").err
    assert cli("scope list --store .").code == 2


def test_texts_are_one_line() -> None:
    assert text_of(errors.RefusedError("one\n  two")) == "one two"


# ---- its own words -------------------------------------------------------------------------


def test_it_speaks_of_its_own_options(cli: Cli) -> None:
    cli("init")
    cli("key set agent:7 plan 1")
    said = cli("agent mailbox 7 --remove 99").err
    assert "`holdfast agent mailbox` shows those that wait, and with --set-aside" in said
    assert "()" not in said
    assert "say with --at which is meant" in cli("agent export 7").err


def test_times_stay_on_one_line_of_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    output.table(["entry", "time", "description", "by"], [[1, moment, "word " * 30, "x" * 60]])
    shown = capsys.readouterr().out
    assert moment.astimezone().strftime("%Y-%m-%d %H:%M:%S ") in shown
    assert max(map(len, shown.splitlines()[1:])) <= 80  # the headings are bold
