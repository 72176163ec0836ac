"""The ring: the wrapped keys of a store, in a storage of their own, apart from its data.

    M + generation   record  what is known of a master without the key: see `masters`
    R + generation   record  the same of a retired one
    G                cell    the oldest and the newest generation that open the ring, 4 bytes each
    S + generation                     record  wrapped store key
    K + scope id + generation + epoch  record  wrapped [commitment key, data key]
    U + subject id + generation + 0    record  wrapped [name, key] of a subject; 0 in 4 bytes
    X + subject or scope id            record  empty: it is erased
    P + generation                     record  wrapped private key of the signer
    O + generation                     record  the master before, wrapped, while both open the ring

Rows are written once: another master, or another data key of a scope, has rows of its own, so
that rotation adds before it removes. While the master is rotated (`master_rotation`) two
generations open the ring: every key is wrapped under both, and whoever has the new master has the
old one, too.
Every commit that adds a key expects the cell, so that no key is made for a master that is gone.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NoReturn, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    DamagedRingError,
    DamagedStorageError,
    HoldfastError,
    InvalidInputError,
    KeyMissingError,
    KeyRetiredError,
    KeyRetiringError,
    KeyringError,
    NewerFormatError,
    WrongKeyError,
)
from holdfast.seal.keys import (
    DEFAULT_ARGON,
    KEY,
    PASSPHRASE,
    RAW,
    SALT,
    Argon,
    KeySource,
    Secret,
    check_argon,
    derive,
)
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.rows import again
from holdfast.storage.wrappers import Around

CACHED_SCOPES = 4096
_T = TypeVar("_T")

_random = os.urandom
"""The only source of randomness of this module; `holdfast.testing` may replace it."""


@dataclass(frozen=True, slots=True)
class ScopeKeys:
    """The keys of one scope; shows nothing and cannot be pickled."""

    commitment: bytes = field(repr=False)
    data: dict[int, bytes] = field(repr=False)
    epoch: int

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("keys are not pickled or copied")


class _ScopeRow(msgspec.Struct, array_like=True):
    commitment: bytes
    data: bytes


class Ring:
    """An opened ring. Made by `create` or `open`; safe for threads."""

    def __init__(self, storage: Storage, lineage: bytes, source: KeySource) -> None:
        self.storage = storage
        self.lineage = lineage
        self.span: Span = (1, 1)
        """Which generations open the ring, as far as is known here."""
        self.store_key = b""
        self._sources = [source]
        self._masters: dict[int, Secret] = {}
        self._wraps: dict[int, dict[bytes, Wrap]] = {}
        """By generation, of the masters that are held here."""
        self._cache: OrderedDict[bytes, ScopeKeys] = OrderedDict()
        self._lock = threading.Lock()  # of the cache; for moments only
        self._looking = threading.Lock()  # one derives what opens a new master: that takes long

    def __repr__(self) -> str:
        return f"Ring(generations={self.span[0]}-{self.span[1]})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a ring is not pickled or copied; open it again")

    @classmethod
    def create(cls, storage: Storage, source: KeySource, lineage: bytes) -> Ring:
        """A new ring, in one commit that applies only if there is none (else `Conflict`).

        A key file is made here if it is missing, and is durable before the ring is.
        """
        _check_id(lineage, "lineage")
        first = row_key(META, 1)
        if stored_masters(storage):
            raise Conflict("the ring is there already; open it instead", [first])
        meta, master = new_meta(source, lineage, 1)
        ring = cls(storage, lineage, source)
        ring.hold(1, master)
        ring.store_key = _random(KEY)
        puts = [(first, pack_meta(meta)), *ring.wrapped(STORE, ring.store_key)]
        storage.commit(
            Batch(
                puts=puts,
                absent=[key for key, _ in puts],
                cells=[(GENERATIONS, None, pack_span(ring.span))],
            )
        )
        return ring

    @classmethod
    def open(cls, storage: Storage, source: KeySource | None, lineage: bytes) -> Ring:
        """The ring of the store of this lineage.

        Raises `KeyMissingError` if key or ring is missing, `WrongKeyError` if the key does not
        fit, `KeyRetiredError` if it did once, `DamagedRingError` if a row is damaged,
        `FormatError` if its passphrase parameters are out of bounds.
        """
        _, metas = read_masters(storage)
        if metas[-1].lineage != lineage:
            raise WrongKeyError("this ring belongs to another store; give the ring of this one")
        if source is None:
            raise KeyMissingError("the store is encrypted: give its key with key= or HOLDFAST_KEY")
        ring = cls(storage, lineage, source)
        for meta in reversed(metas):
            key = fitting(meta, source)
            if key is not None:
                ring.hold(meta.generation, master_of(meta, key))
                break
        else:
            if was_retired(storage, source):
                raise retired(metas[-1].generation)
            told = (
                "the key does not open this store; give the one it was created with, or that its "
                "master was rotated to"
            )
            if all(meta.kind != source.kind for meta in metas):
                kinds = {PASSPHRASE: "passphrase:TEXT", RAW: "file:PATH or env:NAME"}
                wanted = kinds[metas[-1].kind]
                told = f"this store is opened with {wanted}, another kind of key was given"
            raise WrongKeyError(
                f"{told}. If it is the right one, the ring beside the store, which is of this "
                "store and does not know the key, is an older copy: put today's ring back"
            )
        ring.refresh()
        ring.store_key = ring._read(STORE) or b""
        if len(ring.store_key) != KEY:
            raise damaged("store row")
        return ring

    @staticmethod
    def unused(storage: Storage) -> bytes | None:
        """The lineage of a ring that holds no scope's keys yet, so that no data rests on it."""
        if not stored_masters(storage) or storage.scan(SCOPE, SCOPE + b"\xff" * (ID + 1), limit=1):
            return None
        return read_masters(storage)[1][0].lineage

    def lies_in(self, storage: Storage) -> bool:
        """Whether a storage is the ring's own, by whatever name each was opened."""
        return bool(storage.cells(GENERATIONS, GENERATIONS + b"\0"))

    def discard(self) -> None:
        """Remove a ring that was just created, on which nothing rests."""
        made = [row_key(META, 1), *(key for key, _ in self.wrapped(STORE, self.store_key))]
        self.storage.commit(Batch(drops=made, cells=[(GENERATIONS, pack_span(self.span), None)]))

    # masters

    def hold(self, generation: int, master: bytes) -> None:
        """Use a master from now on."""
        kinds = (STORE, SCOPE, SIGNER, BEFORE, SUBJECT)
        held = {kind: Wrap(master, kind, self.lineage) for kind in kinds}
        self._masters = {**self._masters, generation: Secret(master)}
        self._wraps = {**self._wraps, generation: held}

    def hand_over(self, generation: int, master: bytes) -> tuple[bytes, bytes]:
        """The row by which the holder of a new master has the one before, too."""
        before = self._masters[generation - 1].reveal()
        row = Wrap(master, BEFORE, self.lineage).wrap(before, generation=generation)
        return row_key(BEFORE, generation), row

    def holds_master(self, generation: int) -> bool:
        """Whether the master of a generation is held here."""
        return generation in self._wraps

    def opens(self, key: bytes) -> bool:
        """Whether the master that a row is wrapped under is held here."""
        return generation_of(key) in self._wraps

    def check_masters(self) -> None:
        """Refuse if a master that opens the ring is not held here: no key can be made."""
        if not self._wraps.keys() >= set(self.span):
            raise self.shut_out()

    def add_source(self, source: KeySource) -> None:
        """Another place to look for a master: the one that is coming, or has come."""
        self._sources.append(source)
        self.refresh()

    def refresh(self) -> None:
        """Take up what a rotation of the master has changed since."""
        span, metas = read_masters(self.storage)
        with self._looking:
            for meta, source in product(metas, self._sources):
                with suppress(HoldfastError):  # a key file that is gone: what is held is enough
                    held = meta.generation in self._wraps
                    if not held and (key := fitting(meta, source)) is not None:
                        self.hold(meta.generation, master_of(meta, key))
            old, new = span
            if old not in self._wraps and new in self._wraps:
                key = row_key(BEFORE, new)
                row = self.storage.get([key])[0]
                if row is not None:  # else the rotation was finished meanwhile
                    self.hold(old, self.unwrap(key, row))
            self._wraps = {g: wraps for g, wraps in self._wraps.items() if old <= g <= new}
            self.span = span

    def shut_out(self) -> KeyringError:
        """Why a row opens with no master that is held here."""
        old, new = self.span
        if old in self._wraps:
            return KeyRetiringError(
                "the master key is being rotated, and with the old one alone no new key can be "
                "made: open the store with the new key, or give it to this one with add_key()"
            )
        return retired(new)

    # wrapping

    def wrapped(
        self, kind: bytes, plain: bytes, *, epoch: int = 0, scope: bytes = b""
    ) -> list[tuple[bytes, bytes]]:
        """Rows that hold something under every master that opens the ring.

        `KeyRetiringError` or `KeyRetiredError` if one of them is not held here.
        """
        self.check_masters()
        made = []
        for generation in sorted(set(self.span)):
            wrap = self._wraps[generation][kind]
            row = wrap.wrap(plain, generation=generation, epoch=epoch, scope=scope)
            made.append((row_key(kind, generation, scope, epoch), row))
        return made

    def unwrap(self, key: bytes, row: bytes) -> bytes:
        """What a row of a generation that is held here holds.

        `Conflict` if its master was retired meanwhile: its rows are blanked before they go.
        """
        generation = generation_of(key)
        try:
            return self._wrap(generation, key).unwrap(key, row)
        except DamagedRingError:
            # Rows of a master that was retired meanwhile are blanked before they go: no damage.
            if generation < read_span(self.storage)[0]:
                raise turned() from None
            raise

    def _wrap(self, generation: int, key: bytes) -> Wrap:
        held = self._wraps.get(generation)
        if held is None:  # as another thread has noticed
            raise turned()
        return held[key[:1]]

    def wrapped_again(self, key: bytes, row: bytes, twin: bytes) -> bytes:
        """The row under the key `twin`: what the row under `key` holds, for another master."""
        generation = generation_of(twin)
        return self._wrap(generation, key).wrap(
            self.unwrap(key, row), generation=generation, epoch=epoch_of(key), scope=scope_of(key)
        )

    def read(self, step: Callable[[], _T]) -> _T:
        """Do what reads rows; once more with the masters of today, if it says that they turned.

        `KeyRetiredError` or `KeyRetiringError` if the one that it needs is not held here.
        """
        try:
            return step()
        except Conflict:  # the master was rotated since: what opens the rows is looked for anew
            self.refresh()
        try:
            return step()
        except Conflict:  # nothing that is held here opens them
            raise self.shut_out() from None

    def _read(self, kind: bytes) -> bytes | None:
        """What a row that is there once for the store holds, under the newest master held."""

        def read() -> bytes | None:
            for generation in sorted(self._wraps, reverse=True):
                key = row_key(kind, generation)
                row = self.storage.get([key])[0]
                if row is not None:
                    return self.unwrap(key, row)
            if not self._wraps or read_span(self.storage) != self.span:
                raise turned()
            return None

        return self.read(read)

    # scopes

    def scope_keys(self, scope_id: bytes) -> ScopeKeys | None:
        """The keys of a scope, or None if the ring has none (never made, or erased).

        The last 4,096 scopes are kept in memory; `forget` drops one.
        """
        with self._lock:
            keys = self._cache.get(scope_id)
            if keys is not None:
                self._cache.move_to_end(scope_id)
                return keys
        keys = self._read_scope(scope_id)
        if keys is not None:
            with self._lock:
                self._cache[scope_id] = keys
                self._cache.move_to_end(scope_id)
                if len(self._cache) > CACHED_SCOPES:
                    self._cache.popitem(last=False)
        return keys

    def _read_scope(self, scope_id: bytes) -> ScopeKeys | None:
        _check_id(scope_id, "scope id")

        def read() -> ScopeKeys | None:
            rows = self._rows(scope_id)
            found = {epoch_of(key): (key, row) for key, row in rows if self.opens(key)}
            if any(epoch_of(key) not in found for key, _ in rows):
                raise turned()
            commitments: set[bytes] = set()
            data: dict[int, bytes] = {}
            for epoch, (key, row) in found.items():
                try:
                    keys = msgspec.msgpack.decode(self.unwrap(key, row), type=_ScopeRow)
                except msgspec.DecodeError:
                    raise damaged("scope row") from None
                data[epoch] = keys.data
                commitments.add(keys.commitment)
            lengths = {len(key) for key in (*commitments, *data.values())}
            if len(commitments) > 1 or not lengths <= {KEY}:
                raise damaged("scope row")
            return ScopeKeys(commitments.pop(), data, max(data)) if found else None

        return self.read(read)

    def _rows(self, scope_id: bytes) -> list[tuple[bytes, bytes]]:
        prefix = SCOPE + scope_id
        return self.storage.scan(prefix, prefix + b"\xff" * 9)

    def forget(self, scope_id: bytes) -> None:
        """Drop a scope's keys from memory; the next use reads the ring again."""
        with self._lock:
            self._cache.pop(scope_id, None)

    def holds(self, scope_id: bytes) -> bool:
        """Whether the ring, not only memory, has keys of a scope."""
        return bool(self._rows(scope_id))

    def erase(self, scope_id: bytes) -> int:
        """Remove a scope's keys, of all generations and epochs; how many rows that were.

        Nothing sealed with them opens any more, but with a copy of the ring made before. The
        ring then says that the scope is erased, also to copies of the store made before.
        """
        _check_id(scope_id, "scope id")
        count = self.drop_epochs(scope_id, 1 << 32)
        self.storage.commit(Batch(puts=[(GONE + scope_id, b"")]))
        return count

    def drop_epochs(self, scope_id: bytes, below: int) -> int:
        """Remove a scope's data keys of epochs below one; how many rows that were."""
        count = 0
        # A rotation may wrap a row once more while it is about to be dropped: it is looked for
        # again, until the row that it is made from is gone and no more can come.
        while found := [key for key, _ in self._rows(scope_id) if epoch_of(key) < below]:
            # Blanked first: dropping one moves the others, and traces of them could stay.
            self.storage.commit(Batch(blanks=found, drops=found))
            count += len(found)
        self.forget(scope_id)
        return count

    def stage_scope(self, scope_id: bytes) -> tuple[ScopeKeys, list[tuple[bytes, bytes]]]:
        """Fresh keys for a scope, and the records that `commit` must put before their use."""
        _check_id(scope_id, "scope id")
        self.look()
        keys = ScopeKeys(_random(KEY), {1: _random(KEY)}, 1)
        return keys, self._scope_rows(scope_id, keys, 1)

    def look(self) -> None:
        """Notice a rotation of the master, before keys are made."""
        if read_span(self.storage) != self.span or set(self.span) - self._wraps.keys():
            self.refresh()

    def _scope_rows(
        self, scope_id: bytes, keys: ScopeKeys, epoch: int
    ) -> list[tuple[bytes, bytes]]:
        plain = msgspec.msgpack.encode(_ScopeRow(keys.commitment, keys.data[epoch]))
        return self.wrapped(SCOPE, plain, epoch=epoch, scope=scope_id)

    def add_epoch(self, scope_id: bytes, epoch: int) -> ScopeKeys | None:
        """Let a scope have a data key of this epoch, which is durable when this returns.

        One that is there already is left. None if the scope has no keys: it was erased.
        """

        def add() -> ScopeKeys | None:
            self.look()
            keys = self._read_scope(scope_id)
            self.forget(scope_id)
            if keys is None or epoch in keys.data:
                return keys
            more = ScopeKeys(keys.commitment, {**keys.data, epoch: _random(KEY)}, epoch)
            # The newest of the keys that are there must stay: without it the scope is erased.
            there = [key for key, _ in self._rows(scope_id) if epoch_of(key) == keys.epoch]
            if not there:
                raise turned()
            self.commit(self._scope_rows(scope_id, more, epoch), present=there)
            return more

        return again(add, BUSY)

    def commit(self, records: list[tuple[bytes, bytes]], *, present: Iterable[bytes] = ()) -> None:
        """Put staged records if none of them is there and the same masters still open the ring.

        `Conflict` names what did not hold: for a scope row, someone else made its keys first
        (drop the staged ones and ask `scope_keys`); for the cell, the master is rotated (stage
        the records again).
        """
        self.storage.commit(
            Batch(
                puts=list(records),
                absent=[key for key, _ in records],
                present=list(present),
                cells=[self.unturned()],
            )
        )

    def unturned(self) -> tuple[bytes, bytes, bytes]:
        """The expectation that the same masters open the ring as are known here."""
        return GENERATIONS, pack_span(self.span), pack_span(self.span)

    # the signer

    def signer_seed(self) -> bytes | None:
        """The signer's private key, or None if the ring holds none."""
        return self._read(SIGNER)

    def put_signer(self, seed: bytes) -> None:
        """Keep the signer's private key; `Conflict` if there is one already."""
        if len(seed) != KEY:
            raise InvalidInputError(f"a signer's seed has {KEY} bytes")
        self.commit(self.wrapped(SIGNER, seed))


def turned() -> Conflict:
    """What says that the masters which open the ring are others than before."""
    return Conflict("the master is rotated meanwhile; try again", [GENERATIONS])


def _check_id(value: bytes, what: str) -> None:
    if type(value) is not bytes or len(value) != ID:
        raise InvalidInputError(f"a {what} has {ID} bytes")


# ---- ring storage -------------------------------------------------------------------------------
# The storage that a ring lies in: what is damaged there is damage of the ring.
#
# An engine says of a file which of its rows cannot be had, and to run recovery. Of a ring nothing
# can be recovered but from a copy: that is what `DamagedRingError` says.


class RingStorage(Around):
    """A storage whose damaged file is a damaged ring; `place` is how texts call it."""

    def __init__(self, storage: Storage, place: str) -> None:
        super().__init__(storage)
        self._place = place

    @contextmanager
    def calling(self, name: str) -> Iterator[None]:
        try:
            yield
        except DamagedRecordError as error:
            # Others than the engine say better what is wrong, and where.
            if type(error) not in (DamagedRecordError, DamagedStorageError):
                raise
            raise damaged(f"file ({self._place})", mendable=True) from None


# ---- ring rows ----------------------------------------------------------------------------------
# Rows of the ring: their keys, and how a key is wrapped under a master.
#
# A wrapped row is format (1), generation (4), epoch (4), nonce (12), ciphertext and tag; sealed
# with AES-256-GCM under a key derived from the master for its kind, with lineage, kind, scope
# id, generation and epoch as associated data.


FORMAT = 1
ID = 16
STORE, SCOPE, SIGNER, BEFORE, SUBJECT = b"S", b"K", b"P", b"O", b"U"
"""Kinds of rows that hold something wrapped."""
GONE = b"X"
"""Kind of the rows that say that a scope or a subject is erased."""
OWNED = (SCOPE, SUBJECT)
"""Kinds whose rows belong to a scope or a subject, whose id stands in their keys."""
_NAMES = {
    STORE: "store row",
    SCOPE: "scope row",
    SIGNER: "signer row",
    BEFORE: "row of the master before",
    SUBJECT: "subject row",
}
_ROW_HEAD = 9
_TAG = 16


def row_key(kind: bytes, generation: int, scope: bytes = b"", epoch: int = 0) -> bytes:
    """Key of a row; only those of scopes and subjects (for whom it is 0) have an epoch."""
    tail = epoch.to_bytes(4, "big") if scope else b""
    return kind + scope + generation.to_bytes(4, "big") + tail


def generation_at(key: bytes) -> int:
    """Where in a row's key the generation stands."""
    return 1 + ID if key[:1] in OWNED else 1


def generation_of(key: bytes) -> int:
    """The generation in a row's key."""
    at = generation_at(key)
    return int.from_bytes(key[at : at + 4], "big")


def scope_of(key: bytes) -> bytes:
    """The id of the scope or subject in a row's key; empty if the row belongs to none."""
    return key[1 : 1 + ID] if key[:1] in OWNED else b""


def epoch_of(key: bytes) -> int:
    """The epoch in the key of a scope's row; 0 of any other."""
    return int.from_bytes(key[5 + ID : 9 + ID], "big")


class Wrap:
    """Wraps and unwraps the rows of one kind under keys derived from the master."""

    __slots__ = ("_aead", "_kind", "_lineage", "_nonce_key")

    def __init__(self, master: bytes, kind: bytes, lineage: bytes) -> None:
        self._aead = AESGCM(subkey(master, b"wrap/" + kind))
        self._nonce_key = subkey(master, b"wrap-nonce/" + kind)
        self._kind = kind
        self._lineage = lineage

    def _bound(self, head: bytes, scope: bytes) -> bytes:
        parts = (self._lineage, self._kind, scope, head)
        return b"holdfast/1/ring\0" + b"".join(bytes((len(p),)) + p for p in parts)

    def wrap(self, plain: bytes, *, generation: int, epoch: int = 0, scope: bytes = b"") -> bytes:
        """The row; the nonce is hedged with the plaintext, as in sealed records."""
        head = _head(generation, epoch)
        bound = self._bound(head, scope)
        state = hashlib.blake2b(bound, key=self._nonce_key, digest_size=NONCE)
        state.update(hashlib.sha256(plain).digest() + _random(16))
        nonce = state.digest()
        return head + nonce + self._aead.encrypt(nonce, plain, bound)

    def unwrap(self, key: bytes, row: bytes) -> bytes:
        """What the row under a key holds; `DamagedRingError` if anything is off."""
        scope = scope_of(key)
        head, nonce = _head(generation_of(key), epoch_of(key)), row[_ROW_HEAD : _ROW_HEAD + NONCE]
        if row[:_ROW_HEAD] != head or len(row) < _ROW_HEAD + NONCE + _TAG:
            raise damaged(_NAMES[self._kind])
        try:
            return self._aead.decrypt(nonce, row[_ROW_HEAD + NONCE :], self._bound(head, scope))
        except InvalidTag:
            raise damaged(_NAMES[self._kind]) from None


def _head(generation: int, epoch: int) -> bytes:
    return bytes((FORMAT,)) + generation.to_bytes(4, "big") + epoch.to_bytes(4, "big")


# ---- ring masters -------------------------------------------------------------------------------
# The rows of the ring that say which masters open it: one of each generation.
#
#     M + generation   record  msgpack [format, kind, lineage, generation, argon cost, salt,
#                              wrapped master, key check] and a 16-byte checksum
#     R + generation   record  the same of a master that was retired, without a wrapped master
#     G                cell    the oldest and the newest generation that open the ring, 4 bytes each
#
# Whether a key is the right one is decided by a key check (HMAC) before anything is unwrapped, so
# that a wrong key, a retired one and a damaged ring are different errors.


NONCE = 12
BUSY = "the ring is always changed by others; try again"
_RETIRED_LOOKED_AT = 8
"""Retired masters that a key which does not fit is compared with, newest first."""

META, RETIRED, GENERATIONS = b"M", b"R", b"G"
Span = tuple[int, int]
"""The oldest and the newest generation that open a ring; equal unless its master is rotated."""


class Meta(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What is known of a master without the key."""

    format: int
    kind: int
    lineage: bytes
    generation: int
    argon: tuple[int, int, int] | None
    salt: bytes
    wrapped: bytes
    check: bytes

    def head(self) -> bytes:
        """What the key check and the wrap of the master cover."""
        cost = self.argon or (0, 0, 0)
        numbers = (self.format, self.kind, self.generation, *cost)
        return self.lineage + b"".join(n.to_bytes(4, "big") for n in numbers) + self.salt


def subkey(key: bytes, label: bytes, data: bytes = b"") -> bytes:
    """A key, or a check, for one purpose."""
    return hmac.digest(key, b"holdfast/1/" + label + b"\0" + data, "sha256")


def damaged(row: str, *, mendable: bool = False) -> DamagedRingError:
    """The error for a row that is not as it was written; some can be made again."""
    way = "run `holdfast repair --yes`, or " if mendable else ""
    return DamagedRingError(
        f"the {row} of the ring is damaged; {way}put the ring back from a copy", f"ring: {row}"
    )


def new_meta(source: KeySource, lineage: bytes, generation: int) -> tuple[Meta, bytes]:
    """The row of a new master, and the master; a key file that is missing is made here."""
    secret = source.load(create=True)
    meta = Meta(FORMAT, source.kind, lineage, generation, None, b"", b"", b"")
    if source.kind == RAW:
        key = master = secret.reveal()
    else:
        cost = DEFAULT_ARGON
        meta.argon = (cost.memory, cost.passes, cost.lanes)
        meta.salt = _random(SALT)
        key, master = derive(secret, meta.salt, cost), _random(KEY)
        # Under a fresh random salt the key is used once, so a random nonce cannot repeat.
        nonce = _random(NONCE)
        sealed = AESGCM(subkey(key, b"wrap/M")).encrypt(nonce, master, meta.head())
        meta.wrapped = nonce + sealed
    meta.check = subkey(key, b"key-check", meta.head())
    return meta, master


def fitting(meta: Meta, source: KeySource) -> bytes | None:
    """The key that the source gives, if it is the one of this row."""
    if source.kind != meta.kind:
        return None
    if meta.kind == RAW:
        key = source.load().reveal()
    else:
        cost = Argon(*(meta.argon or (0, 0, 0)))
        check_argon(cost)
        key = derive(source.load(), meta.salt, cost)
    fits = hmac.compare_digest(subkey(key, b"key-check", meta.head()), meta.check)
    return key if fits else None


def master_of(meta: Meta, key: bytes) -> bytes:
    """The master that a fitting key opens."""
    if meta.kind == RAW:
        return key
    nonce, sealed = meta.wrapped[:NONCE], meta.wrapped[NONCE:]
    try:
        return AESGCM(subkey(key, b"wrap/M")).decrypt(nonce, sealed, meta.head())
    except (InvalidTag, ValueError):
        raise damaged("meta row") from None


def _checksum(packed: bytes) -> bytes:
    return hashlib.sha256(b"holdfast/1/ring-meta\0" + packed).digest()[:16]


def pack_meta(meta: Meta) -> bytes:
    """The row's bytes."""
    packed = msgspec.msgpack.encode(meta)
    return packed + _checksum(packed)


def unpack_meta(row: bytes, generation: int) -> Meta:
    """The checksum is for accidents, so that a flipped bit is not reported as a wrong key."""
    packed, found = row[:-16], row[-16:]
    if found != _checksum(packed):
        raise damaged("meta row")
    try:
        if msgspec.msgpack.decode(packed)[0] != FORMAT:
            raise NewerFormatError("the ring was written by a newer version; update holdfast")
        meta = msgspec.msgpack.decode(packed, type=Meta)
        meta.head()
    except (msgspec.DecodeError, ValueError, LookupError, TypeError, OverflowError):
        raise damaged("meta row") from None
    if meta.kind not in (RAW, PASSPHRASE):
        raise NewerFormatError("the ring uses a kind of key that this version does not know")
    if meta.generation != generation:
        raise damaged("meta row")
    return meta


# --- which of them open a ring ---------------------------------------------------------------


def pack_span(span: Span) -> bytes:
    """The cell's content."""
    return span[0].to_bytes(4, "big") + span[1].to_bytes(4, "big")


def read_span(storage: Storage) -> Span:
    """Which generations open the ring."""
    found = storage.cells(GENERATIONS, GENERATIONS + b"\0")
    content = found[0][1] if found else b""
    span = int.from_bytes(content[:4], "big"), int.from_bytes(content[4:], "big")
    if len(content) != 8 or not 0 <= span[1] - span[0] <= 1:
        raise damaged("generation cell", mendable=not found)
    return span


def stored_masters(storage: Storage) -> list[tuple[bytes, bytes]]:
    """The rows of the masters that open the ring, oldest first."""
    return storage.scan(META, META + b"\xff" * 5)


def read_masters(storage: Storage) -> tuple[Span, list[Meta]]:
    """Which generations open the ring, and what is known of each master, oldest first."""

    def read() -> tuple[Span, list[tuple[bytes, bytes]]]:
        found = stored_masters(storage)
        if not found:
            raise KeyMissingError(
                "the store is encrypted and its ring, which holds the wrapped keys, is missing or "
                "empty; put it back from a copy"
            )
        span = read_span(storage)
        if stored_masters(storage) != found:
            raise Conflict("the master was rotated between the reads")
        return span, found

    span, found = again(read, BUSY)
    metas = [unpack_meta(row, int.from_bytes(key[1:], "big")) for key, row in found]
    if [meta.generation for meta in metas] != sorted(set(span)):
        raise damaged("generation cell")
    return span, metas


def retired(newest: int) -> KeyRetiredError:
    """The error for a master that opened the ring once."""
    return KeyRetiredError(
        f"this master key was retired; the store is at generation {newest} of its master: open "
        "it with the key that it was rotated to"
    )


def was_retired(storage: Storage, source: KeySource) -> bool:
    """Whether the key opened this ring once."""
    rows = storage.scan(RETIRED, RETIRED + b"\xff" * 5, limit=_RETIRED_LOOKED_AT, reverse=True)
    metas = (unpack_meta(row, int.from_bytes(key[1:], "big")) for key, row in rows)
    return any(fitting(meta, source) is not None for meta in metas)
