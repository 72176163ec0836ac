"""Storage: records and cells with atomic, conditional commits.

Glossary of this layer:

- **record**: bytes under a key, written once, never changed, at most 1 MiB;
- **cell**: a small row that is only ever compared and swapped;
- **batch**: puts, drops, expectations and cells that are applied together or not at all;
- **expectation**: what must hold at commit time: a record absent or present, a cell's bytes;
- **engine**: what keeps the bytes (`memory`, `sqlite`, …); it states its limits by name;
- **handle**: one open engine; it is *dead* after a failed write and then refuses everything;
- **version**: a token that stays equal while nobody commits;
- **turn**: the right to commit, taken early;
- **wrapper**: something with the same contract around an engine: counting, faults.

`contract` says what may and may not be assumed; `holdfast.testing` has the conformance
suite that every engine passes.
"""

from __future__ import annotations

from holdfast.errors import InvalidInputError
from holdfast.storage.contract import Batch, Limits, Storage

__all__ = ["Batch", "Limits", "Storage", "open_storage"]

_KNOWN = ("memory:", "memory:NAME", "sqlite:PATH")
_DEFAULT_FILE = "holdfast.db"


def open_storage(
    url: str, *, durability: str = "full", create: bool = True, read_only: bool = False
) -> Storage:
    """Open the storage that `url` names: `memory:`, `memory:NAME` or `sqlite:PATH`.

    `durability` is `full` (survives power loss) or `normal` (survives the end of the
    process); engines are imported only when they are named.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or "/" in scheme or "\\" in scheme:
        raise InvalidInputError(f"storage {url!r} names no engine; did you mean 'sqlite:{url}'?")
    if scheme == "memory":
        from holdfast.storage.memory import open_memory

        return open_memory(rest, durability=durability, create=create, read_only=read_only)
    if scheme == "sqlite":
        from holdfast.storage.sqlite import SqliteStorage

        path = rest or _DEFAULT_FILE
        return SqliteStorage(path, durability=durability, create=create, read_only=read_only)
    known = ", ".join(_KNOWN)
    raise InvalidInputError(f"unknown storage {scheme + ':'!r}; known are: {known}")
