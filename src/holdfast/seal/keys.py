"""Where the master key comes from, and how a passphrase becomes one.

    file:PATH          a key file: one line, "holdfast-key-1 " and base64 of 32 bytes
    env:NAME           an environment variable with the same line or the bare base64
    passphrase:TEXT    Argon2id; wraps a random master, never is one

A key file is made only when a new store is created, never for one that exists.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hmac
import os
import stat
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from holdfast.errors import (
    DiskFullError,
    FormatError,
    HoldfastError,
    InvalidInputError,
    KeyMissingError,
    MissingExtraError,
    StorageReadOnlyError,
    Unavailable,
    UnsafePlaceError,
    WrongKeyError,
)

KEY = 32
_LINE = "holdfast-key-1 "
RAW, PASSPHRASE = 1, 2
"""What a source gives: a master of 32 bytes, or a passphrase that opens a wrapped one."""

_random = os.urandom


class Secret:
    """Bytes that do not show: not in repr, str, format or pickle. `reveal()` gives them.

    Python cannot wipe memory: the bytes stay in the process until they are overwritten.
    """

    __slots__ = ("_bytes",)

    def __init__(self, content: bytes) -> None:
        self._bytes = bytes(content)

    def reveal(self) -> bytes:
        """The bytes themselves."""
        return self._bytes

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Secret:
            return NotImplemented
        return hmac.compare_digest(self._bytes, other._bytes)

    __hash__ = None  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a secret is not pickled or copied; pass it on or reveal() it")


class KeySource(ABC):
    """Where a key comes from. `kind` says what `load` gives: RAW or PASSPHRASE."""

    kind = RAW

    @abstractmethod
    def load(self, *, create: bool = False) -> Secret:
        """The key. With `create` a source that can make one does so if there is none."""


class FileKey(KeySource):
    """A key file, readable by its owner only."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser()

    def __repr__(self) -> str:
        return f"FileKey({str(self.path)!r})"

    def load(self, *, create: bool = False) -> Secret:
        """Made exclusively, mode 0600, durable before this returns; an existing one is used."""
        if create and not self.path.exists():
            make_secret(self.path, key_line(_random(KEY)).encode(), "key file")
        content = read_secret(self.path, "key file")
        return _parse(content, f"the key file {self.path}", bare=False)


class EnvKey(KeySource):
    """An environment variable; removed once read, so that programs started later lack it, and put
    back if what it was read for fails."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._found: Secret | None = None
        self._text: Secret | None = None

    def __repr__(self) -> str:
        return f"EnvKey({self.name!r})"

    def load(self, *, create: bool = False) -> Secret:
        """The key; kept by this object, because the variable is gone after the first call."""
        if self._found is None:
            text = os.environ.pop(self.name, None)
            if text is None:
                raise KeyMissingError(
                    f"the environment variable {self.name} is not set; set it to the key "
                    "(it is removed once read: a second store in this process needs it again)"
                )
            content = text.encode("utf-8", "surrogateescape")
            self._text = Secret(content)
            self._found = _parse(content, f"the environment variable {self.name}", bare=True)
        return self._found

    def put_back(self) -> None:
        """What it was read for has failed: the next try finds it, unless another one was set."""
        if self._text is not None:
            text = self._text.reveal().decode("utf-8", "surrogateescape")
            os.environ.setdefault(self.name, text)
        self._found = self._text = None


class PassphraseKey(KeySource):
    """A text that a person remembers. Unicode spelling variants count as equal (NFC)."""

    kind = PASSPHRASE

    def __init__(self, text: str) -> None:
        if not text:
            raise InvalidInputError("the passphrase is empty; give one")
        self._text = Secret(
            unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass"),
        )

    def __repr__(self) -> str:
        return "PassphraseKey(...)"

    def load(self, *, create: bool = False) -> Secret:
        """The passphrase's bytes; `derive` makes a key of them."""
        return self._text


_SOURCES: dict[str, type[FileKey] | type[EnvKey] | type[PassphraseKey]] = {
    "file": FileKey,
    "env": EnvKey,
    "passphrase": PassphraseKey,
}


class HiddenText(str):
    """A text with a passphrase in it: tracebacks that show local variables do not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'passphrase:...'"


def parse_key(spec: str | None) -> KeySource | None:
    """The source that `file:PATH`, `env:NAME` or `passphrase:TEXT` names; None for None."""
    if spec is None:
        return None
    scheme, colon, rest = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    if scheme == "passphrase":
        spec, rest = None, HiddenText(rest)
    made = _SOURCES.get(scheme)
    if made is None or not colon or not rest or "\0" in rest:
        # The text may be a key that was pasted here: it is not repeated.
        raise InvalidInputError(
            "a key is given as file:PATH, env:NAME or passphrase:TEXT; the text given is none "
            "of these"
        )
    return made(rest)


def variable_of(spec: str | None) -> dict[str, str]:
    """The environment variable that a key's text names, with its content, if it is set.

    It is removed once it is read: for who opens the store again, or starts a program that does.
    """
    scheme, _, name = (spec or "").partition(":")
    return {name: os.environ[name]} if scheme == "env" and name in os.environ else {}


@contextmanager
def key_for(spec: str | None) -> Iterator[KeySource | None]:
    """The source that `parse_key` finds, for a block that uses up its key only if it succeeds."""
    source = parse_key(spec)
    try:
        yield source
    except BaseException:  # whatever made it fail: who tries again needs the key
        if isinstance(source, EnvKey):
            source.put_back()
        raise


def key_line(key: bytes) -> str:
    """The line that a key file holds."""
    return f"{_LINE}{base64.b64encode(key).decode()}\n"


def _parse(content: bytes, what: str, *, bare: bool) -> Secret:
    """The key in a line; the text itself never gets into an error."""
    try:
        text = content.decode("ascii").strip()
        if text.startswith(_LINE):
            text = text[len(_LINE) :]
        elif not bare:
            raise ValueError
        key = base64.b64decode(text, validate=True)
    except (UnicodeDecodeError, binascii.Error, ValueError):
        key = b""
    if len(key) != KEY:
        form = f'"{_LINE}" and base64 of {KEY} bytes'
        raise WrongKeyError(f"{what} does not hold a key; it holds one line: {form}") from None
    return Secret(key)


# --- passphrases ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Argon:
    """Cost of one guess: memory in KiB, passes, lanes."""

    memory: int = 64 * 1024
    passes: int = 3
    lanes: int = 4


DEFAULT_ARGON = Argon()
SALT = 16

_BOUNDS = {"memory": (64 * 1024, 1024 * 1024), "passes": (2, 16), "lanes": (1, 8)}


def check_argon(cost: Argon) -> None:
    """`FormatError` unless within bounds.

    The numbers come from the store: too high ones would exhaust the machine at every open,
    too low ones would make guessing cheap.
    """
    for name, (low, high) in _BOUNDS.items():
        value = getattr(cost, name)
        if type(value) is not int or not low <= value <= high:
            raise FormatError(
                f"the ring asks for Argon2id {name} outside {low} to {high}; it was changed or "
                "is not a ring of this version: put it back from a copy"
            )


def derive(passphrase: Secret, salt: bytes, cost: Argon) -> bytes:
    """32 bytes from a passphrase; about 0.2 s and 64 MiB at the default cost."""
    check_argon(cost)
    if len(salt) != SALT:
        raise FormatError(f"a passphrase's salt has {SALT} bytes")
    try:
        kdf = Argon2id(
            salt=salt,
            length=KEY,
            iterations=cost.passes,
            lanes=cost.lanes,
            memory_cost=cost.memory,
        )
    except UnsupportedAlgorithm:
        raise MissingExtraError(
            "this build of cryptography lacks Argon2id; install its wheel from PyPI, or use a "
            "key file"
        ) from None
    return kdf.derive(passphrase.reveal())


# ---- secret files -------------------------------------------------------------------------------
# Small secret files: made once, exclusively, readable by their owner only.


LARGEST = 4096


def read_secret(path: Path, what: str) -> bytes:
    """The content of a secret file of at most 4 KiB.

    Raises `KeyMissingError` if it is not there, `UnsafePlaceError` if group or others may
    touch it or it is no ordinary file, `Unavailable` if reading fails. Never makes the file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise KeyMissingError(
            f"the {what} {path} is not there; put it back from where you keep a copy, "
            "it cannot be made again"
        ) from None
    except OSError as error:
        raise _cannot("read", path, what, error) from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise UnsafePlaceError(f"the {what} {path} is not an ordinary file; give another path")
        if os.name == "posix" and mode & 0o077:
            raise UnsafePlaceError(
                f"the {what} {path} can be read or written by other users: run `chmod 600 {path}`, "
                "and make a new key if someone may have seen it"
            )
        return os.read(handle, LARGEST)
    except OSError as error:
        raise _cannot("read", path, what, error) from None
    finally:
        os.close(handle)


def check_home(path: Path, what: str) -> None:
    """Refuse a place where a secret file is to be made and cannot be."""
    folder = path.parent
    if not folder.is_dir():
        raise KeyMissingError(
            f"the {what} {path} is not there, and neither is its folder: check the path, or, for "
            "a new store, create the folder first"
        )
    if not os.access(folder, os.W_OK):
        raise _cannot("write", path, what, OSError(errno.EACCES, "not writable"))


def make_secret(path: Path, content: bytes, what: str) -> bool:
    """Make the file, durable when this returns; False if one is there already.

    The file appears whole or not at all: it is written under a passing name and linked.
    """
    check_home(path, what)
    passing = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        _write_exclusively(passing, content)
        try:
            os.link(passing, path)
        except FileExistsError:
            return False
        except OSError:
            # A file system without links: exclusive, but a crash may leave half a file, which
            # is then refused as malformed.
            _write_exclusively(path, content)
        finally:
            os.unlink(passing)
        from holdfast.storage.sqlite.guard import sync_folder  # others need no SQLite

        sync_folder(str(path))
    except FileExistsError:
        return False
    except OSError as error:
        raise _cannot("write", path, what, error) from None
    return True


def _write_exclusively(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        # A short write must not pass for a key.
        if os.write(handle, content) != len(content):
            raise OSError(errno.ENOSPC, "short write")
        os.fsync(handle)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(handle)


def _cannot(verb: str, path: Path, what: str, error: OSError) -> HoldfastError:
    told = f"cannot {verb} the {what} {path}: {errno.errorcode.get(error.errno or 0, 'OSError')}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{told}; free some room")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR):
        kind = KeyMissingError if verb == "read" else StorageReadOnlyError
        return kind(f"{told}; check the folder and the user that runs this")
    return Unavailable(f"{told}; try again")
