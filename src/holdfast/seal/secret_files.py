"""Small secret files: made once, exclusively, readable by their owner only."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from holdfast.errors import (
    DiskFullError,
    HoldfastError,
    KeyMissingError,
    StorageReadOnlyError,
    Unavailable,
    UnsafePlaceError,
)

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
        _refuse_unsafe(os.fstat(handle), path, what)
        return os.read(handle, LARGEST)
    except OSError as error:
        raise _cannot("read", path, what, error) from None
    finally:
        os.close(handle)


def _refuse_unsafe(found: os.stat_result, path: Path, what: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePlaceError(f"the {what} {path} is not an ordinary file; give another path")
    if os.name == "posix" and found.st_mode & 0o077:
        raise UnsafePlaceError(
            f"the {what} {path} can be read or written by other users: run `chmod 600 {path}`, "
            "and make a new key if someone may have seen it"
        )


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
        _sync_folder(path.parent)
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


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
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
