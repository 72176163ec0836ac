"""Rotation of the master: every key of the ring is wrapped under a new one, the store in use.

`begin`: the new key file is durable first. One commit makes the new master known; from then on
both open the ring, and every new key is wrapped under both. Then each row gets its second wrap.
`finish`: every row of the old master is compared with its second wrap; then one commit retires
the old master, and its rows are dropped. The engine's log, in which they still lie, is for the
caller to empty.

Cut short anywhere, one of the two has all keys: the old one until that commit, the new one from
then on. Either step can be done again, by whoever has the new key.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import msgspec

from holdfast.errors import Conflict, InvalidInputError, KeyMissingError
from holdfast.seal.keys import KeySource
from holdfast.seal.ring import (
    BEFORE,
    BUSY,
    GENERATIONS,
    ID,
    META,
    RETIRED,
    SCOPE,
    SIGNER,
    STORE,
    SUBJECT,
    Ring,
    damaged,
    fitting,
    generation_at,
    generation_of,
    new_meta,
    pack_meta,
    pack_span,
    read_masters,
    read_span,
    row_key,
    stored_masters,
    was_retired,
)
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.rows import again, pages

SLICE = 5000
"""Rows that are wrapped, compared or dropped together, which waits for the disk once."""


def begin(ring: Ring, source: KeySource) -> None:
    """Let a new master open the ring beside the old one.

    With the key of a rotation that was begun before, it goes on with that one; with that of the
    last one there is nothing left to begin, and `finish` does what it did not come to. Another key
    is refused until the rotation is finished.
    """
    ring.refresh()
    with suppress(KeyMissingError):  # a key file that is still to be made
        _drop_retired(ring)
        if 1 < ring.span[0] == ring.span[1] and _is_newest(ring, source):
            return
    if ring.span[0] == ring.span[1]:
        with suppress(Conflict):  # somebody else has begun one: is it this one?
            _announce(ring, source)
        ring.refresh()
    ring.add_source(source)
    try:
        newest = _is_newest(ring, source)
    except KeyMissingError as error:  # it is not made here: a rotation was begun before
        raise KeyMissingError(
            "a rotation of the master is under way: if it was begun with another key than this "
            f"one, finish the rotation first; if with this one: {error}"
        ) from None
    if not newest:
        raise InvalidInputError(
            "the master is being rotated to another key than this one; finish that rotation first"
        )
    _wrap_all(ring)


def _is_newest(ring: Ring, source: KeySource) -> bool:
    """Whether the key, which must be there, is that of the newest master."""
    return fitting(read_masters(ring.storage)[1][-1], source) is not None


def _announce(ring: Ring, source: KeySource) -> None:
    """One commit: the new master opens the ring, too. Its key file is durable before."""
    ring.check_masters()
    source.load(create=True)
    if _is_newest(ring, source) or was_retired(ring.storage, source):
        raise InvalidInputError("this key opens the store already, or did once; give a new one")
    new = ring.span[1] + 1
    meta, master = new_meta(source, ring.lineage, new)
    puts = [(row_key(META, new), pack_meta(meta)), ring.hand_over(new, master)]
    cell = (GENERATIONS, pack_span(ring.span), pack_span((new - 1, new)))
    ring.storage.commit(Batch(puts=puts, absent=[key for key, _ in puts], cells=[cell]))
    ring.hold(new, master)


def finish(ring: Ring) -> int:
    """Retire the old master; how many of its rows were dropped.

    What `begin` did not come to is done first. If no rotation is under way, only what an earlier
    one left behind is dropped.
    """
    ring.refresh()
    old, new = ring.span
    if old != new:
        ring.check_masters()
        _wrap_all(ring, compare=True)
        meta = read_masters(ring.storage)[1][0]
        if meta.generation == old:
            kept = msgspec.structs.replace(meta, wrapped=b"")
            gone = [row_key(META, old), row_key(BEFORE, new)]
            batch = Batch(
                puts=[(row_key(RETIRED, old), pack_meta(kept))],
                blanks=gone,  # a passphrase's row holds the old master, and so does the other
                drops=gone,
                cells=[(GENERATIONS, pack_span((old, new)), pack_span((new, new)))],
            )
            with suppress(Conflict):  # somebody else has finished it
                ring.storage.commit(batch)
        ring.refresh()
    return _drop_retired(ring)


def make_cell_again(storage: Storage) -> bool:
    """Make the generation cell again, if it is missing and the other rows leave no doubt which
    masters open the ring: those that every wrapped key is wrapped under. Whether it has done so.

    That they are rows of this store's key is found when the ring is opened: the key vouches for
    the generation in a master's row.
    """
    masters = {generation_of(key) for key, _ in stored_masters(storage)}
    if not masters or storage.cells(GENERATIONS, GENERATIONS + b"\0"):
        return False
    begun = [key for key, _ in storage.scan(BEFORE, BEFORE + b"\xff" * 5)]
    wrapped = {generation_of(key) for keys in (begun, *_keys(storage)) for key in keys}
    span = min(masters), max(masters)
    if wrapped != masters or bool(begun) != (span[1] - span[0] == 1):
        raise damaged("generation cell")
    storage.commit(Batch(cells=[(GENERATIONS, None, pack_span(span))]))
    return True


def _keys(storage: Storage) -> Iterator[list[bytes]]:
    """Keys of the rows that hold keys, so many at a time."""
    for kind in (STORE, SIGNER, SCOPE, SUBJECT):
        for page in pages(storage.scan, kind, kind + b"\xff" * (ID + 9), limit=SLICE):
            yield [key for key, _ in page]


def _wrap_all(ring: Ring, *, compare: bool = False) -> None:
    """Wrap what the old master opens for the new one, too; compare what was wrapped before."""
    old, new = ring.span
    if old == new:
        return  # finished by somebody else meanwhile
    ring.check_masters()
    for keys in _keys(ring.storage):
        mine = [key for key in keys if generation_of(key) == old]
        again(partial(_wrap_page, ring, mine, new, compare=compare), BUSY)


def _wrap_page(ring: Ring, mine: list[bytes], new: int, *, compare: bool) -> None:
    """Do so with these rows; some may be erased, or wrapped by somebody else meanwhile."""
    if read_span(ring.storage) != ring.span:
        return  # finished by somebody else meanwhile
    # The keys of the rows that hold the same for the new master.
    cuts = [(key, generation_at(key)) for key in mine]
    twins = [key[:at] + new.to_bytes(4, "big") + key[at + 4 :] for key, at in cuts]
    rows, seconds = ring.storage.get(mine), ring.storage.get(twins)
    batch = Batch(cells=[ring.unturned()])
    for key, row, twin, second in zip(mine, rows, twins, seconds, strict=True):
        if row is None:
            continue
        if second is None:
            batch.puts.append((twin, ring.wrapped_again(key, row, twin)))
            batch.absent.append(twin)
            batch.present.append(key)  # a key that is erased meanwhile must not come back
        elif compare and not hmac.compare_digest(ring.unwrap(key, row), ring.unwrap(twin, second)):
            raise damaged("second wrap of a key")
    if batch.puts:
        ring.storage.commit(batch)


def _drop_retired(ring: Ring) -> int:
    """Drop the rows of masters that open the ring no more.

    All are blanked before the first is dropped: dropping moves rows that lie near, and where they
    lay, traces of them can stay.
    """
    for old in _retired_rows(ring):
        ring.storage.commit(Batch(blanks=old))
    dropped = 0
    for old in _retired_rows(ring):
        ring.storage.commit(Batch(drops=old))
        dropped += len(old)
    return dropped


def _retired_rows(ring: Ring) -> Iterator[list[bytes]]:
    for keys in _keys(ring.storage):
        old = [key for key in keys if generation_of(key) < ring.span[0]]
        if old:
            yield old
