"""Keys come from where the caller says, and show nowhere."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import stat
import threading
import traceback
from pathlib import Path

import pytest

from holdfast.errors import (
    FormatError,
    InvalidInputError,
    KeyMissingError,
    UnsafePlaceError,
    WrongKeyError,
)
from holdfast.seal import keys
from holdfast.seal.keys import (
    DEFAULT_ARGON,
    PASSPHRASE,
    RAW,
    Argon,
    EnvKey,
    FileKey,
    HiddenText,
    KeySource,
    PassphraseKey,
    Secret,
    check_argon,
    derive,
    key_line,
    parse_key,
)

KEY = bytes(range(32))
HUSH = "hush-hush"


def source(spec: str) -> KeySource:
    made = parse_key(spec)
    assert made is not None
    return made


# --- secrets ----------------------------------------------------------------------------------


def test_a_secret_shows_nothing() -> None:
    secret = Secret(HUSH.encode())
    shown = f"{secret!r} {secret!s} {secret} {[secret]} {secret:>20}" + "%s" % secret  # noqa: UP031
    assert HUSH not in shown
    for fails in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            fails(secret)
    assert secret.reveal() == HUSH.encode()
    assert secret == Secret(HUSH.encode())
    assert secret != Secret(b"other")
    assert not hasattr(secret, "__dict__")


def test_sources_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", base64.b64encode(KEY).decode())
    env, words = EnvKey("MY_KEY"), PassphraseKey(HUSH)
    env.load()
    assert HUSH not in f"{words!r}{words.__dict__}"
    assert base64.b64encode(KEY).decode() not in f"{env!r}{env.__dict__}"


# --- parsing ----------------------------------------------------------------------------------


def test_parse() -> None:
    assert parse_key(None) is None
    assert [type(source(s)) for s in ("file:a.key", "env:A", "passphrase:a:b")] == [
        FileKey,
        EnvKey,
        PassphraseKey,
    ]
    assert source("passphrase:a:b").load().reveal() == b"a:b"
    assert (source("file:a").kind, source("env:a").kind) == (RAW, RAW)
    assert source("passphrase:a").kind == PASSPHRASE


@pytest.mark.parametrize("spec", [HUSH, f"raw:{HUSH}", f":{HUSH}", "file:", "", f"file:{HUSH}\0"])
def test_parse_refuses_without_echo(spec: str) -> None:
    with pytest.raises(InvalidInputError, match="file:PATH, env:NAME") as caught:
        parse_key(spec)
    assert HUSH not in str(caught.value)


# --- key files --------------------------------------------------------------------------------


def test_file_is_made_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    with pytest.raises(KeyMissingError, match=r"a\.key"):
        FileKey(path).load()
    assert list(tmp_path.iterdir()) == []
    key = FileKey(path).load(create=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == key_line(key.reveal())
    assert path.read_text().startswith("holdfast-key-1 ")
    assert FileKey(path).load() == key
    assert FileKey(path).load(create=True) == key
    assert list(tmp_path.iterdir()) == [path]


def test_creation_ignores_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        FileKey(tmp_path / "a.key").load(create=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600


def test_creation_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "not supported")

    monkeypatch.setattr(os, "link", no_links)
    key = FileKey(tmp_path / "a.key").load(create=True)
    assert FileKey(tmp_path / "a.key").load() == key
    assert [path.name for path in tmp_path.iterdir()] == ["a.key"]


def test_racing_creators_get_one_key(tmp_path: Path) -> None:
    found: list[bytes] = []

    def work() -> None:
        found.append(FileKey(tmp_path / "a.key").load(create=True).reveal())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.key"]


def test_file_and_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []

    def fsync(handle: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(handle).st_mode))

    monkeypatch.setattr(os, "fsync", fsync)
    FileKey(tmp_path / "a.key").load(create=True)
    assert synced == [False, True]


def test_a_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda *_: 1)
    with pytest.raises(Exception, match="ENOSPC"):
        FileKey(tmp_path / "a.key").load(create=True)
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeyMissingError, match="create the folder"):
        FileKey(tmp_path / "no" / "a.key").load(create=True)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o666, 0o601])
def test_file_that_others_can_touch(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.key"
    FileKey(path).load(create=True)
    path.chmod(mode)
    with pytest.raises(UnsafePlaceError, match="chmod 600"):
        FileKey(path).load()
    path.chmod(0o400)
    FileKey(path).load()


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UnsafePlaceError, match="ordinary file"):
            FileKey(path).load()


BAD_KEYS = [
    "",
    HUSH,
    key_line(KEY)[:-3],
    key_line(KEY[:31]),
    key_line(KEY + b"x"),
    key_line(KEY).replace("key-1", "key-2"),
    key_line(KEY) + key_line(KEY),
    "holdfast-key-1 é" + HUSH,
]


@pytest.mark.parametrize("text", BAD_KEYS)
def test_malformed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "a.key"
    keys._write_exclusively(path, text.encode() or b"\n")
    monkeypatch.setenv("MY_KEY", text)
    for bad in (FileKey(path), EnvKey("MY_KEY")):
        with pytest.raises(WrongKeyError) as caught:
            bad.load()
        assert HUSH not in str(caught.value)
        assert "a.key" in str(caught.value) or "MY_KEY" in str(caught.value)


def test_bare_base64_is_no_key_file(tmp_path: Path) -> None:
    keys._write_exclusively(tmp_path / "a.key", base64.b64encode(KEY))
    with pytest.raises(WrongKeyError):
        FileKey(tmp_path / "a.key").load()


# --- environment ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [key_line(KEY), base64.b64encode(KEY).decode()])
def test_env_is_removed_once_read(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MY_KEY", text)
    env = EnvKey("MY_KEY")
    assert env.load().reveal() == KEY
    assert "MY_KEY" not in os.environ
    assert env.load().reveal() == KEY
    with pytest.raises(KeyMissingError, match="MY_KEY"):
        EnvKey("MY_KEY").load(create=True)


# --- passphrases ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cost",
    [
        Argon(memory=8),
        Argon(memory=64 * 1024 - 1),
        Argon(memory=16 << 20),
        Argon(passes=1),
        Argon(passes=17),
        Argon(lanes=0),
        Argon(lanes=9),
        Argon(memory=True),
    ],
)
def test_argon_bounds(cost: Argon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.seal.keys.Argon2id", None)  # must not be reached
    with pytest.raises(FormatError, match="Argon2id"):
        derive(Secret(b"x"), bytes(16), cost)


def test_argon_accepts_its_bounds() -> None:
    for cost in (DEFAULT_ARGON, Argon(64 * 1024, 2, 1), Argon(1 << 20, 16, 8)):
        check_argon(cost)
    with pytest.raises(FormatError):
        derive(Secret(b"x"), b"short", DEFAULT_ARGON)


def test_passphrase_spelling() -> None:
    composed, parts = PassphraseKey("caf\u00e9"), PassphraseKey("cafe\u0301")
    assert composed.load() == parts.load()
    with pytest.raises(InvalidInputError):
        PassphraseKey("")


def test_golden_derivation() -> None:
    """Frozen: a passphrase must open its store for ever."""
    assert (
        derive(Secret(b"hush"), bytes(16), DEFAULT_ARGON).hex()
        == "29cb070a6fa3359e2c2b7efc7c3e9de9ca62b2c0dc94f106006d91f4980270c0"
    )


def test_a_passphrase_does_not_show_in_local_variables() -> None:
    """As some tracebacks show them: those of this frame are the caller's own."""
    with pytest.raises(InvalidInputError) as caught:
        parse_key("passphrase:hunter2\0")
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "hunter2" not in "".join(map(str, [one.locals for one in shown.stack][1:]))
    assert "hunter2" not in repr(HiddenText("passphrase:hunter2"))
