"""Rotation of a scope's data key, and sealing what is stored again under the new one.

`rotate`: the new key is in the ring first. Then one commit adds an entry to every timeline, which
is sealed under the new key, and a row that announces it. Whoever still seals under the old key
finds the place of its next entry taken (or, to make a fork, that row), follows, meets a record
under a key that it does not know, and looks it up. So behind these entries nothing is ever sealed
under an older key.

`reseal`: what lies before them is opened and sealed again, in slices, each row only if it is still
the one that was read. Commitments, and with them the chain, roots and signatures, do not change.
When nothing is left under older keys, they leave the ring, and what was replaced leaves the
engine's logs. Cut short, it is done again: what has the new key already is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import msgspec

from holdfast.errors import (
    DamagedRecordError,
    InvalidInputError,
    KeyMissingError,
    KeyNotNeededError,
    ScopeNotFoundError,
)
from holdfast.seal import master_rotation
from holdfast.seal.keys import KeySource, key_for
from holdfast.seal.ring import ID, RETIRED, SCOPE, SUBJECT, Ring, epoch_of, generation_of, scope_of
from holdfast.storage.contract import Batch
from holdfast.storage.rows import again, each, pages
from holdfast.store.commit.change import Change, Target
from holdfast.store.commit.group import Core
from holdfast.store.commit.stage import Stage
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal import entry
from holdfast.store.journal.directory import IN_LOGS
from holdfast.store.journal.entry import Body
from holdfast.store.journal.ledger import Ledger, gone, sealed_again
from holdfast.store.names import rowkinds as rows
from holdfast.store.names.cause import cause_now
from holdfast.store.names.scope import Scope
from holdfast.store.names.threads import safe_point

SLICE = 64
"""Rows that are read and sealed again together: what bounds memory and the length of a commit."""

_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Resealed:
    """What `reseal` did to a scope."""

    scope: Scope
    epoch: int
    """Nothing is stored under an older data key than that of this epoch."""
    rows: int
    """Rows that this call sealed again; 0 if all had the key already."""
    bytes: int
    keys_removed: int
    """Rows with older data keys that this call took out of the ring."""
    open: tuple[str, ...] = ()
    """Where the older keys, or records under them, may still be, for people."""


_COPIES = (
    "copies of the ring made before still hold the older data keys, and copies of the store's "
    "files made before hold records under them"
)


def rotate_scope(handle: StoreHandle, scope: Scope | str) -> int:
    """Give a scope a new data key for all that is written from now on; its epoch."""
    core = handle.core
    ring = ring_of(core, write=True)
    line = handle.line(scope)
    line.ask("rotate key", str(line.scope))

    def step() -> int:  # again if a timeline was forked, or somebody else has rotated the key
        ledger = _ledger(core, line.scope)
        epoch = _announced(core, ledger) + 1
        core.leases.stand()  # the ring is another storage: its commit expects no token
        # A key that an attempt which was cut short has left is as good as a new one.
        if ring.add_epoch(ledger.id, epoch) is None:
            raise gone(line.scope)
        ledger.seal.know(epoch)
        # An entry on every timeline that is not ended, and the row that forks look at.
        known, lines = core.timelines(ledger), core.lines(ledger)
        if not lines:
            raise ledger.damage(rows.line(b"T", ledger.number, 0), "it is missing")
        key = rows.epoch(ledger.number, epoch)
        # A timeline that is forked meanwhile would not hear of it: then nothing is done.
        next_line = rows.line(b"T", ledger.number, known[-1][0] + 1)

        def special(stage: Stage, body: Body) -> None:
            body.ops = [[entry.REKEY, epoch]]
            stage.finish(body)
            if stage.timeline.number == lines[-1][0]:
                row = ledger.seal_row(key, _encode(core.clock.claimed()), ledger.commit_line)
                stage.rows.append((key, row))
                stage.absent += [key, next_line]

        names = [name for _, name, _, _ in lines]
        targets = [Target(ledger.scope, name, special=special, create=False) for name in names]
        core.run(Change(targets, cause_now()))
        return epoch

    return again(step, f"{line.scope}: other writers were always faster; try again")


def rotate_all(handle: StoreHandle) -> int:
    """Give every scope that is there a new data key; how many that were."""
    return sum(1 for _ in _each(handle, rotate_scope))


def _each(handle: StoreHandle, do: Callable[[StoreHandle, Scope], _T]) -> Iterator[_T]:
    ring_of(handle.core, write=True)
    for scope in sorted((scope for scope, _, _, _ in handle.core.scopes()), key=str):
        safe_point()
        with suppress(ScopeNotFoundError):  # deleted meanwhile
            yield do(handle, scope)


def _ledger(core: Core, scope: Scope) -> Ledger:
    main = core.current(scope)
    if main is None:
        raise ScopeNotFoundError(f"there is no scope {scope} in this store")
    return main.ledger


def _announced(core: Core, ledger: Ledger) -> int:
    """The epoch of the data key under which everything new is sealed."""
    prefix = rows.epoch(ledger.number, 0)[:7]
    found = core.storage.scan(prefix, rows.after(prefix), limit=1, reverse=True)
    return int.from_bytes(found[0][0][7:], "big") if found else 1


def reseal(handle: StoreHandle, scope: Scope | str | None) -> list[Resealed]:
    """Seal everything of a scope, or of every one that is there, under its newest data key, and
    remove the older ones; the engine's logs are rid of these, and of what was replaced."""
    done = [_resealed(handle, scope)] if scope is not None else list(_each(handle, _resealed))
    core = handle.core
    still = [_COPIES] if core.settle() else [_COPIES, IN_LOGS]
    still += [core.near.left()] if core.near is not None else []
    return [replace(one, open=tuple(still)) for one in done]


def _resealed(handle: StoreHandle, scope: Scope | str) -> Resealed:
    core = handle.core
    ring = ring_of(core, write=True)
    ledger = _ledger(core, handle.line(scope).scope)
    epoch = _announced(core, ledger)
    ledger.seal.know(epoch)
    work = _Resealing(core, ledger, epoch)
    while work.sweep():
        pass  # until one finds nothing to do: then nothing is left, and nothing can come
    core.leases.stand()
    removed = ring.drop_epochs(ledger.id, epoch)
    return Resealed(ledger.scope, epoch, work.rows, work.bytes, removed)


class _Resealing:
    def __init__(self, core: Core, ledger: Ledger, epoch: int) -> None:
        self.core = core
        self.storage = core.storage
        self.ledger = ledger
        self.epoch = epoch
        self.rows = self.bytes = 0

    def sweep(self) -> int:
        """Seal again what is found under older keys; how many rows that were.

        Damage in one row does not keep the others from it, but it keeps the old key.
        """
        before = self.rows
        damage: list[Exception] = []
        number = self.ledger.number.to_bytes(rows.SCOPE, "big")
        for kind in rows.OF_SCOPE:
            low, high = kind + number, rows.after(kind + number)
            for page in pages(self.storage.scan, low, high, limit=SLICE):
                safe_point()
                step = partial(self._slice, [key for key, _ in page], damage)
                # Again if somebody else reseals the scope, too, or erases it.
                again(step, f"{self.ledger.scope}: others were always faster; try again")
        if damage:
            raise damage[-1]
        return self.rows - before

    def _slice(self, keys: list[bytes], damage: list[Exception]) -> None:
        swaps: list[tuple[bytes, bytes, bytes]] = []
        for key, row in zip(keys, self.storage.get(keys), strict=True):
            try:
                new = sealed_again(self.ledger, key, row, self.epoch) if row else None
            except (DamagedRecordError, KeyMissingError) as error:  # others do not wait for it
                damage.append(self.ledger.damage(key, f"{error}; the old key stays"))
                continue
            if row is not None and new is not None:
                swaps.append((key, row, new))
        if self.ledger.erased():
            raise gone(self.ledger.scope)
        if swaps:
            self.core.leases.commit(Batch(swaps=swaps, absent=[self.ledger.tombstone]))
        self.rows += len(swaps)
        self.bytes += sum(len(new) for _, _, new in swaps)


# ---- keyring ------------------------------------------------------------------------------------
# The store's keys: what a ring holds, and rotation of the master that opens it.
#
# What it takes is done by `holdfast.seal.master_rotation`; data keys are rotated by `rotate`.


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


_STALE_RINGS = (
    "copies of the ring made before still open with the old key: replace them, and destroy it"
)


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
        master_rotation.begin(ring_of(core, write=True), source)


def finish_rotation(core: Core) -> MasterRotated:
    """Retire the old master."""
    ring = ring_of(core, write=True)
    dropped = master_rotation.finish(ring)
    settled = core.settle(data=False)
    return MasterRotated(
        ring.span[1], dropped, (_STALE_RINGS,) if settled else (_STALE_RINGS, IN_LOGS)
    )


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
    return (key for key, _ in each(ring.storage.scan, kind, kind + b"\xff" * (ID + 9)))
