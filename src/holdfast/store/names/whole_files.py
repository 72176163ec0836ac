"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from holdfast.errors import DiskFullError, InvalidInputError

Path = str | os.PathLike[str]


def write_whole(path: Path, parts: Iterable[bytes]) -> None:
    """Make a file of parts, or put it in the place of another, once all of it is durable."""
    with whole_file(path) as target:
        target.writelines(parts)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its place when the block ends, durably; after an error all is as before.

    It keeps who may read the file that it replaces. What is no plain file, such as a pipe, is
    written as it is.
    """
    place = os.path.realpath(check_path(path))
    plain = os.path.isfile(place) or not os.path.exists(place)
    made = f"{place}.{os.urandom(6).hex()}.part" if plain else place
    try:
        with open(made, "xb" if plain else "wb") as target:
            if plain:
                with suppress(FileNotFoundError):
                    os.chmod(made, stat.S_IMODE(os.stat(place).st_mode))
            yield target
            target.flush()
            if plain:
                os.fsync(target.fileno())
        if plain:
            os.replace(made, place)
    except BaseException as error:  # whatever it is, half a file is not left behind
        if plain:
            with suppress(OSError):
                os.unlink(made)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise _refused(path, error) from error
        raise


def _refused(path: Path, error: OSError) -> DiskFullError | InvalidInputError:
    name = os.fspath(path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"no room is left to write {name!r}; free some space and try again")
    return InvalidInputError(f"{name!r} cannot be written: {error.strerror}")


def check_path(path: Path) -> Path:
    """Refuse what is no path: Python would take a number for an open file."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InvalidInputError("a file is named by its path, as text or a pathlib.Path")
    text = os.fspath(path)
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InvalidInputError("a path is valid text") from None
    if "\0" in text:
        raise InvalidInputError("a path holds no NUL character")
    return path
