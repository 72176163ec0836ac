"""Storage: records and cells with atomic, conditional commits.

Glossary of this layer:

- **record**: bytes under a key, written once, never changed, at most 1 MiB;
- **cell**: a small row that is only ever compared and swapped;
- **batch**: puts, drops, expectations and cells that are applied together or not at all;
- **expectation**: what must hold at commit time: a record absent or present, a cell's bytes;
- **engine**: what keeps the bytes (`memory`, `sqlite.engine`, …); it states its limits by name;
- **handle**: one open engine; that of a file is *dead* after a failed read or write and then
  refuses everything, that of a server replaces its connection and goes on;
- **version**: a token that stays equal while nobody else commits;
- **turn**: the right to commit, taken early;
- **wrapper**: something with the same contract around an engine: counting, faults, a cache.

`contract` says what may and may not be assumed; `holdfast.testing` has the conformance
suite that every engine passes.
"""

from __future__ import annotations

import os
from pathlib import PurePath

from holdfast.errors import InvalidInputError
from holdfast.storage.contract import Batch, Limits, Storage
from holdfast.storage.server import MongoAddress, PostgresAddress, on_server, shown

__all__ = [
    "Batch",
    "Limits",
    "Storage",
    "address_of",
    "check_names_file",
    "file_of",
    "on_server",
    "open_storage",
    "shown",
    "url_of",
]

_KNOWN = (
    "memory:",
    "memory:NAME",
    "sqlite:PATH",
    "postgresql://USER:PASSWORD@HOST/DATABASE",
    "mongodb://USER:PASSWORD@HOST/DATABASE",
)
_DEFAULT_FILE = "holdfast.db"


def open_storage(
    url: str,
    *,
    durability: str = "full",
    create: bool = True,
    read_only: bool = False,
    private: bool = False,
) -> Storage:
    """Open the storage that `url` names: `memory:`, `memory:NAME`, `sqlite:PATH`,
    `postgresql://USER:PASSWORD@HOST:PORT/DATABASE` or `mongodb://USER:PASSWORD@HOST:PORT/DATABASE`.

    `durability` is `full` (survives power loss) or `normal` (survives the end of the
    process); engines are imported only when they are named. A file that is made is, if `private`,
    for its owner alone, with all that lies beside it.
    """
    url = url_of(url)
    scheme, colon, rest = url.partition(":")
    if scheme.startswith("mongodb") and on_server(url):
        from holdfast.storage.mongodb.engine import MongoStorage

        return MongoStorage(url, durability=durability, create=create, read_only=read_only)
    if on_server(url):
        from holdfast.storage.postgres.engine import PostgresStorage

        return PostgresStorage(url, durability=durability, create=create, read_only=read_only)
    if not colon or "/" in scheme or "\\" in scheme:
        url = shown(url)
        meant = "memory:" if url == "memory" else f"sqlite:{url}"
        raise InvalidInputError(f"storage {url!r} names no engine; did you mean {meant!r}?")
    if scheme == "memory":
        from holdfast.storage.memory import open_memory

        return open_memory(rest, durability=durability, create=create, read_only=read_only)
    if scheme == "sqlite":
        from holdfast.storage.sqlite.engine import SqliteStorage

        check_names_file(rest or _DEFAULT_FILE, "the store's file")
        path = file_of(url) or ""
        return SqliteStorage(
            path,
            durability=durability,
            create=create,
            read_only=read_only,
            private=private,
        )
    known = ", ".join(_KNOWN)
    raise InvalidInputError(f"unknown storage {scheme + ':'!r}; known are: {known}")


def check_names_file(path: str, what: str) -> None:
    """Refuse a path that can only be a folder's, such as `new/` or `new/.`."""
    if os.path.basename(path) in ("", os.curdir, os.pardir):
        raise InvalidInputError(f"{path!r} names a folder; name {what} in it")


def url_of(place: str | PurePath) -> str:
    """The URL of a store that is named like this; a path is one of SQLite.

    `sqlite:///FILE` and `sqlite:////FOLDER/FILE` mean what they mean to SQLAlchemy: a relative
    path and an absolute one.
    """
    if isinstance(place, PurePath):
        return f"sqlite:{place}"
    if not isinstance(place, str):
        raise InvalidInputError(
            "a store is named by text or a Path, for example 'sqlite:agents.db'"
        )
    if not place.startswith("sqlite://"):
        return place
    host, slash, path = place.removeprefix("sqlite://").partition("/")
    if host or not slash:
        file = shown(host + slash + path) or _DEFAULT_FILE
        raise InvalidInputError(
            f"a file has no host: write 'sqlite:///{file}' for a relative path, "
            f"or 'sqlite:////{file}' for an absolute one"
        )
    return "sqlite:" + ("/" if path.startswith("/") else "") + path.lstrip("/")


def address_of(url: str) -> PostgresAddress | MongoAddress:
    """What the URL of a store on a server says."""
    kind = MongoAddress if url.startswith("mongodb") else PostgresAddress
    return kind.of(url)


def file_of(url: str) -> str | None:
    """The real path of the file that `url` names; None if it names none.

    What belongs to the file lies beside it, not beside a symbolic link that leads to it.
    """
    scheme, _, rest = url_of(url).partition(":")
    return os.path.realpath(rest or _DEFAULT_FILE) if scheme == "sqlite" else None
