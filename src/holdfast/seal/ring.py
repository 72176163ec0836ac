"""The ring: the wrapped keys of a store, in a storage of their own, apart from its data.

    M              record  msgpack [format, kind, lineage, generation, argon cost, salt,
                           wrapped master, key check] and a 16-byte checksum
    G              cell    generation, 4 bytes
    S + generation                     record  wrapped store key
    K + scope id + generation + epoch  record  wrapped [commitment key, [[epoch, data key], ...]]
    P + generation                     record  wrapped private key of the signer

Rows are written once: another master, or another data key of a scope, has rows of its own, so
that rotation adds before it removes. The row of the highest epoch holds a scope's keys.

A wrapped row is format (1), generation (4), epoch (4), nonce (12), ciphertext and tag; sealed
with AES-256-GCM under a key derived from the master for its kind, with lineage, kind, scope
id, generation and epoch as associated data. Whether the key is the right one is decided by a
key check (HMAC) before anything is unwrapped, so that a wrong key, a damaged ring and a
missing ring are different errors.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import (
    Conflict,
    DamagedRecordError,
    InvalidInputError,
    KeyMissingError,
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
    check_argon,
    derive,
)
from holdfast.storage.contract import Batch, Storage

FORMAT = 1
CACHED_SCOPES = 4096
ID = 16

_META, _GENERATION, _STORE, _SCOPE, _SIGNER = b"M", b"G", b"S", b"K", b"P"
_ROW_HEAD = 9
_NONCE = 12
_TAG = 16

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


class _Meta(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
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


class _ScopeRow(msgspec.Struct, array_like=True):
    commitment: bytes
    data: list[tuple[int, bytes]]


def _derive(key: bytes, label: bytes, data: bytes = b"") -> bytes:
    return hmac.digest(key, b"holdfast/1/" + label + b"\0" + data, "sha256")


def _damaged(row: str) -> DamagedRecordError:
    return DamagedRecordError(
        f"the {row} of the ring is damaged; put the ring back from a copy", f"ring: {row}"
    )


class _Wrap:
    """Wraps and unwraps the rows of one kind under keys derived from the master."""

    __slots__ = ("_aead", "_kind", "_lineage", "_nonce_key")

    def __init__(self, master: bytes, kind: bytes, lineage: bytes) -> None:
        self._aead = AESGCM(_derive(master, b"wrap/" + kind))
        self._nonce_key = _derive(master, b"wrap-nonce/" + kind)
        self._kind = kind
        self._lineage = lineage

    def _bound(self, head: bytes, scope: bytes) -> bytes:
        parts = (self._lineage, self._kind, scope, head)
        return b"holdfast/1/ring\0" + b"".join(bytes((len(p),)) + p for p in parts)

    def wrap(self, plain: bytes, *, generation: int, epoch: int = 0, scope: bytes = b"") -> bytes:
        """The row; the nonce is hedged with the plaintext, as in sealed records."""
        head = bytes((FORMAT,)) + generation.to_bytes(4, "big") + epoch.to_bytes(4, "big")
        bound = self._bound(head, scope)
        state = hashlib.blake2b(bound, key=self._nonce_key, digest_size=_NONCE)
        state.update(hashlib.sha256(plain).digest() + _random(16))
        nonce = state.digest()
        return head + nonce + self._aead.encrypt(nonce, plain, bound)

    def unwrap(self, row: bytes, name: str, *, generation: int, scope: bytes = b"") -> bytes:
        """The wrapped bytes; `DamagedRecordError` if anything is off."""
        head, nonce = row[:_ROW_HEAD], row[_ROW_HEAD : _ROW_HEAD + _NONCE]
        if len(row) < _ROW_HEAD + _NONCE + _TAG or head[0] != FORMAT:
            raise _damaged(name)
        if int.from_bytes(head[1:5], "big") != generation:
            raise _damaged(name)
        try:
            return self._aead.decrypt(nonce, row[_ROW_HEAD + _NONCE :], self._bound(head, scope))
        except InvalidTag:
            raise _damaged(name) from None


class Ring:
    """An opened ring. Made by `create` or `open`; safe for threads."""

    def __init__(self, storage: Storage, master: bytes, lineage: bytes, generation: int) -> None:
        self._storage = storage
        self._wraps = {kind: _Wrap(master, kind, lineage) for kind in (_STORE, _SCOPE, _SIGNER)}
        self._cache: OrderedDict[bytes, ScopeKeys] = OrderedDict()
        self._lock = threading.Lock()
        self.generation = generation
        self.store_key = b""

    def __repr__(self) -> str:
        return f"Ring(generation={self.generation})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a ring is not pickled or copied; open it again")

    @classmethod
    def create(cls, storage: Storage, source: KeySource, lineage: bytes) -> Ring:
        """A new ring, in one commit that applies only if there is none (else `Conflict`).

        A key file is made here if it is missing, and is durable before the ring is.
        """
        _check_id(lineage, "lineage")
        if storage.get([_META])[0] is not None:
            raise Conflict("the ring is there already; open it instead", [_META])
        meta, master = _new_meta(source, lineage)
        ring = cls(storage, master, lineage, meta.generation)
        ring.store_key = _random(KEY)
        row = ring._wraps[_STORE].wrap(ring.store_key, generation=meta.generation)
        storage.commit(
            Batch(
                puts=[(_META, _pack_meta(meta)), (ring._key(_STORE), row)],
                absent=[_META, ring._key(_STORE)],
                cells=[(_GENERATION, None, meta.generation.to_bytes(4, "big"))],
            )
        )
        return ring

    @classmethod
    def open(cls, storage: Storage, source: KeySource | None, lineage: bytes) -> Ring:
        """The ring of the store of this lineage.

        Raises `KeyMissingError` if key or ring is missing, `WrongKeyError` if the key does not
        fit, `DamagedRecordError` if a row is damaged, `FormatError` if its passphrase
        parameters are out of bounds.
        """
        row = storage.get([_META])[0]
        if row is None:
            raise KeyMissingError(
                "the store is encrypted and its ring, which holds the wrapped keys, is missing or "
                "empty; put it back from a copy"
            )
        meta = _unpack_meta(row)
        if meta.lineage != lineage:
            raise WrongKeyError("this ring belongs to another store; give the ring of this one")
        master = _master(meta, source)
        ring = cls(storage, master, lineage, meta.generation)
        expected = meta.generation.to_bytes(4, "big")
        if storage.cells(_GENERATION, _GENERATION + b"\0") != [(_GENERATION, expected)]:
            raise _damaged("generation cell")
        store_row = storage.get([ring._key(_STORE)])[0]
        if store_row is None:
            raise _damaged("store row")
        ring.store_key = ring._unwrap(_STORE, store_row, "store row")
        if len(ring.store_key) != KEY:
            raise _damaged("store row")
        return ring

    def _key(self, kind: bytes, scope_id: bytes = b"") -> bytes:
        return kind + scope_id + self.generation.to_bytes(4, "big")

    @staticmethod
    def unused(storage: Storage) -> bytes | None:
        """The lineage of a ring that holds no scope's keys yet, so that no data rests on it."""
        row = storage.get([_META])[0]
        if row is None or storage.scan(_SCOPE, _SCOPE + b"\xff" * (ID + 1), limit=1):
            return None
        return _unpack_meta(row).lineage

    def _unwrap(self, kind: bytes, row: bytes, name: str, scope: bytes = b"") -> bytes:
        return self._wraps[kind].unwrap(row, name, generation=self.generation, scope=scope)

    def scope_keys(self, scope_id: bytes) -> ScopeKeys | None:
        """The keys of a scope, or None if the ring has none (never made, or erased).

        The last 4,096 scopes are kept in memory; `forget` drops one.
        """
        with self._lock:
            keys = self._cache.get(scope_id)
            if keys is not None:
                self._cache.move_to_end(scope_id)
                return keys
        _check_id(scope_id, "scope id")
        prefix = self._key(_SCOPE, scope_id)
        found = self._storage.scan(prefix, prefix + b"\xff" * 5, limit=1, reverse=True)
        if not found:
            return None
        row = found[0][1]
        plain = self._unwrap(_SCOPE, row, "scope row", scope_id)
        keys = _unpack_scope(plain, int.from_bytes(row[5:_ROW_HEAD], "big"))
        self._keep(scope_id, keys)
        return keys

    def _keep(self, scope_id: bytes, keys: ScopeKeys) -> None:
        with self._lock:
            self._cache[scope_id] = keys
            self._cache.move_to_end(scope_id)
            if len(self._cache) > CACHED_SCOPES:
                self._cache.popitem(last=False)

    def forget(self, scope_id: bytes) -> None:
        """Drop a scope's keys from memory; the next use reads the ring again."""
        with self._lock:
            self._cache.pop(scope_id, None)

    def holds(self, scope_id: bytes) -> bool:
        """Whether the ring, not only memory, has keys of a scope."""
        prefix = _SCOPE + scope_id
        return bool(self._storage.scan(prefix, prefix + b"\xff" * 9, limit=1))

    def erase(self, scope_id: bytes) -> int:
        """Remove a scope's keys, of all generations and epochs; how many rows that were.

        Nothing sealed with them opens any more, but with a copy of the ring made before.
        """
        _check_id(scope_id, "scope id")
        prefix = _SCOPE + scope_id
        found = [key for key, _ in self._storage.scan(prefix, prefix + b"\xff" * 9)]
        if found:
            self._storage.commit(Batch(drops=found))
        self.forget(scope_id)
        return len(found)

    def stage_scope(self, scope_id: bytes) -> tuple[ScopeKeys, list[tuple[bytes, bytes]]]:
        """Fresh keys for a scope, and the records that `commit` must put before their use."""
        _check_id(scope_id, "scope id")
        keys = ScopeKeys(_random(KEY), {1: _random(KEY)}, 1)
        plain = msgspec.msgpack.encode(_ScopeRow(keys.commitment, list(keys.data.items())))
        row = self._wraps[_SCOPE].wrap(
            plain, generation=self.generation, epoch=keys.epoch, scope=scope_id
        )
        return keys, [(self._key(_SCOPE, scope_id) + keys.epoch.to_bytes(4, "big"), row)]

    def commit(self, records: list[tuple[bytes, bytes]]) -> None:
        """Put staged records if none of them is there and the generation is still ours.

        `Conflict` names what did not hold: for a scope row, someone else made its keys first
        (drop the staged ones and ask `scope_keys`); for the generation cell, the master was
        rotated (open the store again).
        """
        generation = self.generation.to_bytes(4, "big")
        self._storage.commit(
            Batch(
                puts=list(records),
                absent=[key for key, _ in records],
                cells=[(_GENERATION, generation, generation)],
            )
        )

    def signer_seed(self) -> bytes | None:
        """The signer's private key, or None if the ring holds none."""
        row = self._storage.get([self._key(_SIGNER)])[0]
        return None if row is None else self._unwrap(_SIGNER, row, "signer row")

    def put_signer(self, seed: bytes) -> None:
        """Keep the signer's private key; `Conflict` if there is one already."""
        if len(seed) != KEY:
            raise InvalidInputError(f"a signer's seed has {KEY} bytes")
        row = self._wraps[_SIGNER].wrap(seed, generation=self.generation)
        self.commit([(self._key(_SIGNER), row)])


def _check_id(value: bytes, what: str) -> None:
    if type(value) is not bytes or len(value) != ID:
        raise InvalidInputError(f"a {what} has {ID} bytes")


def _unpack_scope(plain: bytes, epoch: int) -> ScopeKeys:
    try:
        row = msgspec.msgpack.decode(plain, type=_ScopeRow)
    except msgspec.DecodeError:
        raise _damaged("scope row") from None
    data = dict(row.data)
    if epoch not in data or any(len(key) != KEY for key in (row.commitment, *data.values())):
        raise _damaged("scope row")
    return ScopeKeys(row.commitment, data, epoch)


# --- the meta row ---------------------------------------------------------------------------


def _new_meta(source: KeySource, lineage: bytes) -> tuple[_Meta, bytes]:
    """The meta row of a new ring, and its master."""
    secret = source.load(create=True)
    meta = _Meta(FORMAT, source.kind, lineage, 1, None, b"", b"", b"")
    if source.kind == RAW:
        key = master = secret.reveal()
    else:
        cost = DEFAULT_ARGON
        meta.argon = (cost.memory, cost.passes, cost.lanes)
        meta.salt = _random(SALT)
        key, master = derive(secret, meta.salt, cost), _random(KEY)
        # Under a fresh random salt the key is used once, so a random nonce cannot repeat.
        nonce = _random(_NONCE)
        sealed = AESGCM(_derive(key, b"wrap/M")).encrypt(nonce, master, meta.head())
        meta.wrapped = nonce + sealed
    meta.check = _derive(key, b"key-check", meta.head())
    return meta, master


def _master(meta: _Meta, source: KeySource | None) -> bytes:
    """The master that this source opens; the key check decides before anything is unwrapped."""
    if source is None:
        raise KeyMissingError("the store is encrypted: give its key with key= or HOLDFAST_KEY")
    if source.kind != meta.kind:
        wanted = "passphrase:TEXT" if meta.kind == PASSPHRASE else "file:PATH or env:NAME"
        raise WrongKeyError(f"this store is opened with {wanted}, another kind of key was given")
    if meta.kind == RAW:
        key = source.load().reveal()
    else:
        cost = Argon(*(meta.argon or (0, 0, 0)))
        check_argon(cost)
        key = derive(source.load(), meta.salt, cost)
    if not hmac.compare_digest(_derive(key, b"key-check", meta.head()), meta.check):
        raise WrongKeyError("the key does not open this store; give the one it was created with")
    if meta.kind == RAW:
        return key
    nonce, sealed = meta.wrapped[:_NONCE], meta.wrapped[_NONCE:]
    try:
        return AESGCM(_derive(key, b"wrap/M")).decrypt(nonce, sealed, meta.head())
    except (InvalidTag, ValueError):
        raise _damaged("meta row") from None


def _checksum(packed: bytes) -> bytes:
    return hashlib.sha256(b"holdfast/1/ring-meta\0" + packed).digest()[:16]


def _pack_meta(meta: _Meta) -> bytes:
    packed = msgspec.msgpack.encode(meta)
    return packed + _checksum(packed)


def _unpack_meta(row: bytes) -> _Meta:
    """The checksum is for accidents, so that a flipped bit is not reported as a wrong key."""
    packed, found = row[:-16], row[-16:]
    if found != _checksum(packed):
        raise _damaged("meta row")
    try:
        if msgspec.msgpack.decode(packed)[0] != FORMAT:
            raise NewerFormatError("the ring was written by a newer version; update holdfast")
        meta = msgspec.msgpack.decode(packed, type=_Meta)
        meta.head()
    except (msgspec.DecodeError, ValueError, LookupError, TypeError, OverflowError):
        raise _damaged("meta row") from None
    if meta.kind not in (RAW, PASSPHRASE):
        raise NewerFormatError("the ring uses a kind of key that this version does not know")
    return meta
