"""The store's keys: what a ring holds, and rotation of the master that opens it.

What it takes is done by `holdfast.seal.rotation`; data keys are rotated by `rotate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.errors import InvalidInputError, KeyNotNeededError
from holdfast.seal import rotation
from holdfast.seal.keys import KeySource, key_for
from holdfast.seal.ring import Ring
from holdfast.seal.ring_masters import RETIRED
from holdfast.seal.ring_rows import ID, SCOPE, SUBJECT, epoch_of, generation_of, scope_of
from holdfast.store.commit.core import Core
from holdfast.store.names.engine_logs import IN_LOGS, settle


@dataclass(frozen=True, slots=True)
class Keyring:
    """What the ring of a store holds, without any key."""

    generation: int
    """How many masters the store has had, the newest included."""
    rotating: bool
    """A rotation of the master was begun and is not finished: the old one still opens the store."""
    new_key_held: bool
    """Whether this process has the newest master; with the old one alone no new keys are made."""
    scopes: int
    """Scopes that have keys; also those that are deleted and not erased."""
    data_keys: int
    """More than one a scope where a data key was rotated and old records are not resealed."""
    subjects: int
    """Subjects that have keys."""
    retired: int
    """Masters that opened the store once."""
    left: int
    """Rows under retired masters; `finish_rotation()` drops them."""


@dataclass(frozen=True, slots=True)
class MasterRotated:
    """What `finish_rotation` did, and what it cannot reach."""

    generation: int
    """That of the one master that opens the store now."""
    rows: int
    """Rows under retired masters that this call dropped; 0 if an earlier one had finished."""
    open: tuple[str, ...]
    """Where the old master still opens something, for people."""


_COPIES = "copies of the ring made before still open with the old key: replace them, and destroy it"


def ring_of(core: Core, *, write: bool) -> Ring:
    """The ring of an open store; refused if it has none, or may not be written."""
    core.check_open()
    if core.ring is None:
        raise KeyNotNeededError("the store is not encrypted: it has no keys")
    if write:
        core.check_writable()
        core.leases.stand()
    return core.ring


@contextmanager
def _new_key(key: str) -> Iterator[KeySource]:
    with key_for(key) as source:
        if source is None:
            raise InvalidInputError("give the new key: file:PATH, env:NAME or passphrase:TEXT")
        yield source


def begin_rotation(core: Core, key: str) -> None:
    """Let a new master open the store beside the old one."""
    with _new_key(key) as source:
        rotation.begin(ring_of(core, write=True), source)


def finish_rotation(core: Core) -> MasterRotated:
    """Retire the old master."""
    ring = ring_of(core, write=True)
    dropped = rotation.finish(ring)
    settled = settle(core, data=False)
    return MasterRotated(ring.span[1], dropped, (_COPIES,) if settled else (_COPIES, IN_LOGS))


def add_key(core: Core, key: str) -> None:
    """Give an open store the key that its master is, or will be, rotated to."""
    with _new_key(key) as source:
        ring_of(core, write=False).add_source(source)


def show_keyring(core: Core) -> Keyring:
    """What the ring holds."""
    ring = ring_of(core, write=False)
    ring.refresh()
    scopes: set[bytes] = set()
    data: set[tuple[bytes, int]] = set()
    left = 0
    for key in _keys(ring, SCOPE):
        if generation_of(key) < ring.span[0]:
            left += 1
            continue
        scopes.add(scope_of(key))
        data.add((scope_of(key), epoch_of(key)))
    return Keyring(
        ring.span[1],
        ring.span[0] != ring.span[1],
        ring.holds_master(ring.span[1]),
        len(scopes),
        len(data),
        len({scope_of(key) for key in _keys(ring, SUBJECT) if generation_of(key) >= ring.span[0]}),
        sum(1 for _ in _keys(ring, RETIRED)),
        left,
    )


def _keys(ring: Ring, kind: bytes) -> Iterator[bytes]:
    low, high = kind, kind + b"\xff" * (ID + 9)
    while page := ring.storage.scan(low, high, limit=1000):
        yield from (key for key, _ in page)
        low = page[-1][0] + b"\0"
