"""Where the keys of a store lie: its ring, and the key file."""

from __future__ import annotations

import warnings
from pathlib import Path

from holdfast.errors import InvalidInputError
from holdfast.seal.keys import FileKey, KeySource
from holdfast.storage import address_of, file_of, on_server


def ring_place(url: str) -> str:
    """Where the ring lies: beside a file; for a store on a server, where its URL says."""
    path = file_of(url)
    if not on_server(url):
        return f"{url}.keys" if path is None else f"sqlite:{path}.keys"
    store = address_of(url)
    if not store.ring:
        raise InvalidInputError(
            "an encrypted store on a server needs a place for its ring, which holds the "
            "wrapped keys: add ring=PATH to the options in its URL (a file), or ring=URL of "
            "another database"
        )
    ring = store.ring if ":" in store.ring else f"sqlite:{store.ring}"
    if on_server(ring) and address_of(ring).place == store.place:
        raise ring_in_store()
    return ring


def ring_in_store() -> InvalidInputError:
    """The error for a ring in the place of its own store."""
    return InvalidInputError("the ring of a store cannot lie in the store's own schema or database")


def warn_beside(source: KeySource, url: str) -> None:
    """Warn who makes a store of a key file that lies in its folder."""
    path = file_of(url)
    if not isinstance(source, FileKey) or path is None:
        return
    if source.path.parent.resolve() == Path(path).parent:
        warnings.warn(
            f"the key file {source.path} lies in the same folder as the store: who copies the "
            "folder has both",
            stacklevel=6,
        )
