"""What is left of a store whose file was lost or cut off: no new one is made in its place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import DamagedRecordError, NotAStoreError
from holdfast.seal.ring import Ring
from holdfast.seal.ring_masters import stored_masters
from holdfast.storage import file_of, open_storage, shown
from holdfast.storage.contract import Moment

HEADER = 100
"""Bytes at the beginning of a SQLite file without which it is none."""


def check_cut_off(path: str) -> None:
    """An empty file may become a store, but not if it was one: a plain store's signer and an
    encrypted one's ring, which are made after the file has content, lie beside it. A few bytes
    are what is left as well."""
    signer, ring = f"{path}.sign", f"{path}.keys"
    signed, sealed = os.path.exists(signer), os.path.exists(ring)
    size = os.path.getsize(path) if os.path.exists(path) else HEADER  # after what is made later
    if size < HEADER and signed:
        raise _cut_off(path, size, f"signer of a store lies beside it ({signer!r})")
    if size < HEADER and sealed and _holds_keys(f"sqlite:{ring}"):
        raise _cut_off(path, size, f"ring of a store lies beside it ({ring!r})")


def _cut_off(path: str, size: int, beside: str) -> NotAStoreError:
    return NotAStoreError(
        f"{path!r} holds {size} bytes, and the {beside}: the store was cut off. Put its file back "
        "from a copy, or, for a new store, remove both files"
    )


def _holds_keys(ring: str) -> bool:
    """Whether data rests on a ring."""
    storage = open_storage(ring, create=False, read_only=True)
    try:
        return bool(stored_masters(storage)) and Ring.unused(storage) is None
    finally:
        storage.close()


def has_logs(path: str) -> bool:
    """Whether a crash left a log of the store or of its ring."""
    from holdfast.storage.sqlite.guard import left_log  # engines are imported where they are used

    return left_log(path) or left_log(f"{path}.keys")


@contextmanager
def as_left(path: str) -> Iterator[Moment]:
    """What a crash left, to be read before anything is done about it: for who is alone with the
    file, which takes no lock here."""
    from holdfast.storage.sqlite import guard
    from holdfast.storage.sqlite import moment as sqlite_moment

    with sqlite_moment.moment(path, lambda _: False, guard.pair(path)) as moment:
        yield moment


def check_lost(path: str) -> None:
    """Refuse a path without a file whose ring holds keys, before a file is made there: a store is
    made before its ring, so that this one was lost."""
    ring = f"sqlite:{path}.keys"
    if not os.path.exists(f"{path}.keys") or os.path.exists(path):  # in this order
        return
    storage = open_storage(ring, create=False)
    try:
        if Ring.unused(storage) is None:
            raise lost(ring)
    finally:
        storage.close()


def check_no_ring(ring: str) -> None:
    """Refuse a store that is not encrypted where the ring of one that is lies."""
    file = file_of(ring)
    if file is None or not os.path.exists(file) or not os.path.getsize(file):
        return
    storage = open_storage(ring, create=False)
    try:
        if stored_masters(storage):
            raise lost(ring)
    finally:
        storage.close()


def lost(ring: str) -> DamagedRecordError:
    """The error for a ring whose store is not there."""
    return DamagedRecordError(
        f"the store's file is missing, its ring is there ({shown(ring)}): put the store's file "
        "back, or remove the ring's file if it belongs to no store"
    )
