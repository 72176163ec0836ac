"""A second reader of the format, written from docs/format.md alone.

It imports nothing of Holdfast: what it can read, the page describes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import lz4.block
import msgspec
import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

unpack = msgspec.msgpack.decode
pack = msgspec.msgpack.encode
Commit = Callable[[bytes, bytes], bytes]


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def hasher(key: bytes | None) -> Commit:
    """Commitment under a domain: SHA-256, and with a key what is built on it."""

    def commit(label: bytes, data: bytes) -> bytes:
        digest = sha256(b"holdfast/1/", label, b"\0", data)
        if key is None:
            return digest
        return sha256(
            b"holdfast/1/keyed\0", hashlib.blake2b(digest, key=key, digest_size=32).digest(), digest
        )

    return commit


def expand(method: int, data: bytes, length: int) -> bytes:
    if method == 1:
        return bytes(lz4.block.decompress(data, uncompressed_size=length))
    if method == 3:
        assert len(data) == length
        assert length % 256 == 0
        return data[: data.rstrip(b"\0").rindex(b"\x80")]
    return zstandard.ZstdDecompressor().decompress(data) if method == 2 else data


def open_record(ad: bytes, row: bytes, data_keys: dict[int, bytes] | None, writer: bytes) -> bytes:
    """A sealed record; `writer` counts only where the record does not hold its own."""
    flags = row[0]
    assert flags >> 4 == 1
    assert bool(flags & 1) == (data_keys is not None)
    method, at = flags >> 1 & 3, 1
    if data_keys is None:
        length, at = varint(row, at)
        head, payload, check = row[:at], row[at:-16], row[-16:]
        size = len(ad).to_bytes(8, "big")
        assert check == sha256(b"holdfast/1/plain-record\0", size, ad, head, payload)[:16]
        return expand(method, payload, length)
    epoch, at = varint(row, at)
    if not flags & 8:
        writer, at = row[at : at + 16], at + 16
    length, at = varint(row, at)
    key = hmac.digest(data_keys[epoch], b"holdfast/writer" + writer, "sha256")
    nonce, sealed = row[at : at + 12], row[at + 12 :]
    return expand(method, AESGCM(key).decrypt(nonce, sealed, ad + row[:at] + bytes([at])), length)


class Ring:
    """The keys of an encrypted store."""

    def __init__(self, rows: dict[bytes, bytes], master: bytes, lineage: bytes) -> None:
        self.rows, self.master, self.lineage = rows, master, lineage
        self.generations = [self.fits(key) for key in sorted(rows) if key[:1] == b"M"]
        self.retired = [self.fits(key) for key in sorted(rows) if key[:1] == b"R"]
        (self.generation,) = filter(None, self.generations)

    def fits(self, key: bytes) -> int:
        """The generation of a master's row, 0 if this key is another one."""
        meta = self.rows[key]
        assert meta[-16:] == sha256(b"holdfast/1/ring-meta\0", meta[:-16])[:16]
        format, kind, lineage, generation = unpack(meta[:-16])[:4]
        assert (format, kind, lineage, key[1:]) == (
            1,
            1,
            self.lineage,
            generation.to_bytes(4, "big"),
        )
        numbers = (format, kind, generation, 0, 0, 0)
        head = lineage + b"".join(n.to_bytes(4, "big") for n in numbers)
        check = hmac.digest(self.master, b"holdfast/1/key-check\0" + head, "sha256")
        return generation if check == unpack(meta[:-16])[7] else 0

    def unwrap(self, kind: bytes, scope: bytes = b"", epoch: bytes = b"") -> bytes:
        row = self.rows[kind + scope + self.generation.to_bytes(4, "big") + epoch]
        head, nonce, sealed = row[:9], row[9:21], row[21:]
        parts = (self.lineage, kind, scope, head)
        bound = b"holdfast/1/ring\0" + b"".join(bytes([len(p)]) + p for p in parts)
        key = hmac.digest(self.master, b"holdfast/1/wrap/" + kind + b"\0", "sha256")
        return AESGCM(key).decrypt(nonce, sealed, bound)

    def scope(self, scope_id: bytes) -> tuple[bytes, dict[int, bytes]]:
        prefix = b"K" + scope_id + self.generation.to_bytes(4, "big")
        epochs = [key[-4:] for key in self.rows if key.startswith(prefix)]
        found = {int.from_bytes(e, "big"): unpack(self.unwrap(b"K", scope_id, e)) for e in epochs}
        (commitment,) = {commitment for commitment, _ in found.values()}
        return commitment, {epoch: data for epoch, (_, data) in found.items()}

    def subject(self, id: bytes) -> tuple[str, bytes]:
        """Name and key of a subject."""
        name, key = unpack(self.unwrap(b"U", id, bytes(4)))
        return name, key


def object_of(part: Any) -> tuple[str, int, Any]:
    """Name, version and fields of a registered object that is kept whole."""
    assert (type(part), part.code) == (msgspec.msgpack.Ext, 4)
    name, version, fields = unpack(part.data)
    return name, version, fields


class EntryRow(NamedTuple):
    sequence: int
    hash: bytes
    before: bytes
    statement: bytes
    signed: bytes
    body: list[Any]
    """Empty if it was pruned."""


class Node(NamedTuple):
    hash: bytes
    count: int
    size: int


class Scope:
    """One scope: opens its rows, follows its chain, reads its trees."""

    def __init__(
        self, store: Store, name: str, number: int, id: bytes, salt: bytes, before: int
    ) -> None:
        self.store, self.name, self.number, self.id = store, name, number, id
        self.before = before
        self.data_keys: dict[int, bytes] | None = None
        key = None
        if store.ring is not None:
            key, self.data_keys = store.ring.scope(id)
        self.commit = hasher(key)
        self.boundary = self.commit(b"boundary-key", salt)
        self.prefix = store.lineage + id

    def key(self, kind: bytes, timeline: int, *numbers: tuple[int, int]) -> bytes:
        place = self.number.to_bytes(6, "big") + timeline.to_bytes(2, "big")
        return kind + place + b"".join(n.to_bytes(size, "big") for n, size in numbers)

    def ad(self, key: bytes) -> bytes:
        return b"holdfast/ad/1\0" + self.prefix + bytes([len(key)]) + key

    def open(self, key: bytes) -> bytes:
        return open_record(self.ad(key), self.store.rows[key], self.data_keys, b"")

    def entries(self, timeline: int) -> Iterator[EntryRow]:
        line = self.key(b"E", timeline)
        before = sha256(b"holdfast/first/1\0", self.prefix, line)
        rows = sorted(k for k in self.store.rows if k.startswith(line))
        for sequence, key in enumerate(rows, self.before + 1):
            entry = self.entry(key)
            assert (entry.before, entry.sequence) == (before, sequence)
            before = entry.hash
            yield entry

    def entry(self, key: bytes) -> EntryRow:
        row = self.store.rows[key]
        assert row[0] == 1
        writer = row[2:18]
        _, at = varint(row, 18)
        end = at + 64 + 110 * (row[1] & 1)
        envelope, before, commitment = row[:end], row[at : at + 32], row[at + 32 : at + 64]
        plain = b"\x90"
        if len(row) > end:
            plain = open_record(self.ad(key) + envelope, row[end:], self.data_keys, writer)
            assert self.commit(b"body", plain) == commitment
        statement = row[at + 64 : end]
        signed = b"holdfast/checkpoint/1\0" + self.prefix + key
        signed += envelope[:-69] + bytes(64) + envelope[-5:]
        hash_ = sha256(b"holdfast/entry/1\0", self.prefix, key, envelope)
        sequence = int.from_bytes(key[9:14], "big")
        return EntryRow(sequence, hash_, before, statement, signed, unpack(plain))

    def floor(self, timeline: int) -> tuple[int, dict[int, list[Any]]]:
        """The entry up to which a timeline is pruned, and the saves of the states kept there."""
        line = self.key(b"A", timeline)
        newest = max(key for key in self.store.rows if key.startswith(line))
        anchor = self.entry(self.key(b"E", timeline, (unpack(self.open(newest)), 5)))
        ((operation, floor, hash_, bases),) = anchor.body[1]
        assert operation == 12
        assert floor < anchor.sequence
        assert self.entry(self.key(b"E", timeline, (floor, 5))).hash == hash_
        kept = {}
        for sequence, commitment in bases:
            plain = self.open(self.key(b"B", timeline, (sequence, 5)))
            assert self.commit(b"save", plain) == commitment
            kept[sequence] = unpack(plain)
            assert kept[sequence][2] == self.entry(self.key(b"E", timeline, (sequence, 5))).hash
        return floor, kept

    def check_signature(self, entry: EntryRow) -> None:
        Ed25519PublicKey.from_public_bytes(self.store.public).verify(
            entry.statement[41:105], entry.signed
        )

    def cosigners(self, entry: EntryRow) -> Iterator[bytes]:
        """Public keys of those whose signatures lie beside a checkpoint."""
        place = self.key(b"E", 0, (entry.sequence, 5))
        for key in sorted(k for k in self.store.rows if k.startswith(b"C" + place[1:])):
            public, signature = unpack(self.open(key))
            assert key[14:] == sha256(b"holdfast/1/signer\0", public)[:8]
            text = b"holdfast/cosign/1\0" + self.prefix + place + entry.hash + public
            Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
            yield public

    # values

    def atom(self, ref: bytes, place: list[int]) -> bytes:
        timeline, sequence, ordinal, index = place
        if ordinal == 0:
            found = self.entry(self.key(b"E", timeline, (sequence, 5))).body[2]
        else:
            key = self.key(b"V", timeline, (sequence, 5), (ordinal, 3))
            found = unpack(self.open(key))
        assert self.commit(b"value", found[index]) == ref[1:33]
        assert varint(ref, 33)[0] == len(found[index])
        return bytes(found[index])

    def atoms_of(self, timeline: int, sequence: int) -> list[bytes]:
        """All atoms of an entry: its own, then those of its packs."""
        body = self.entry(self.key(b"E", timeline, (sequence, 5))).body
        found = list(body[2])
        for ordinal in range(len(body[5]) if len(body) > 5 else 0):
            found += unpack(self.open(self.key(b"V", timeline, (sequence, 5), (ordinal + 1, 3))))
        return found

    def value(self, ref: bytes, place: list[int]) -> Any:
        """A value in plain form; extension parts and registered objects as they are stored."""
        if ref[0] == 0:
            return unpack(ref[1:])
        if ref[0] == 1:
            return unpack(self.atom(ref, place))
        if ref[0] == 3:
            length, at = varint(ref, 1)
            name = ref[at : at + length].decode()
            version, at = varint(ref, at + length)
            return (name, version, self.value(ref[at:], place))
        kind = ref[1]
        found = list(self.walk(place, ref[2:34]))
        assert self.build(found, indexed=False).hash == ref[2:34]
        values = [self.value(r, hint) for _, r, hint in found]
        if kind == 2:
            return {key: value for (key, _, _), value in zip(found, values, strict=True)}
        if kind == 1:
            return values
        return b"".join(values) if kind == 3 else b"".join(values).decode()

    # trees

    def walk(self, place: list[int], hash_: bytes) -> Iterator[tuple[Any, bytes, Any]]:
        """(key, ref, hint) of every leaf element."""
        timeline, sequence, ordinal, number = place
        nodes = unpack(self.open(self.key(b"N", timeline, (sequence, 5), (ordinal, 3))))
        canonical, hints = unpack(nodes[number])
        assert self.commit(b"node", canonical) == hash_
        level, keys, content, *_ = unpack(canonical)
        if level == 0:
            for position, ref in enumerate(content):
                yield (keys[position] if keys else None), ref, hints[position]
            return
        for position, hint in enumerate(hints):
            yield from self.walk(hint, content[32 * position : 32 * position + 32])

    def index(self, place: list[int], root: bytes) -> dict[str, Any]:
        """The whole state that an index describes."""
        found = list(self.walk(place, root))
        assert self.build(found, indexed=True).hash == root
        state = {}
        self.terms: dict[str, list[Any]] = {}
        for key, ref, hint in found:
            where = hint[2:] if len(hint) == 6 else hint
            if ref[0] == 4:
                meta, ref = described(ref)
                self.terms[key] = unpack(meta)
            state[key] = self.value(ref, where)
        return state

    def ends(self, key: Any, ref: bytes) -> int:
        data = ref if key is None else key.encode() if type(key) is str else b"\0%d" % key
        digest = hashlib.blake2b(data, key=self.boundary, digest_size=8, person=b"ends").digest()
        number = int.from_bytes(digest, "big")
        end = ((number & -number).bit_length() - 1) // 3
        return max(end, 1) if key is not None and len(data) > 1024 else end

    def build(self, found: list[tuple[Any, bytes, Any]], *, indexed: bool) -> Node:
        """The root that these elements must have, level by level from the bottom."""
        level = 0
        elements: list[Any] = [(key, ref, self.ends(key, ref)) for key, ref, _ in found]
        while True:
            chunks: list[list[Any]] = [[]]
            for element in elements:
                chunks[-1].append(element)
                if element[2] > level or len(chunks[-1]) == 64:
                    chunks.append([])
            chunks = [chunk for chunk in chunks if chunk]
            nodes = [self.make(level, chunk, indexed) for chunk in chunks]
            if len(nodes) == 1:
                return nodes[0]
            level += 1
            elements = [(c[-1][0], n, c[-1][2]) for c, n in zip(chunks, nodes, strict=True)]

    def make(self, level: int, chunk: list[Any], indexed: bool) -> Node:
        keys = [element[0] for element in chunk]
        if level == 0:
            body: list[Any] = [0, keys if keys[0] is not None else None, [e[1] for e in chunk]]
            count, size = len(chunk), sum(size_of(e[0], e[1]) for e in chunk)
        else:
            below = [element[1] for element in chunk]
            counts, sizes = [n.count for n in below], [n.size for n in below]
            hashes, ends = b"".join(n.hash for n in below), bytes(e[2] for e in chunk)
            body = [level, keys if indexed else None, hashes, counts, sizes, ends]
            count, size = sum(counts), sum(sizes)
        return Node(self.commit(b"node", pack(body)), count, size)


def described(ref: bytes) -> tuple[bytes, bytes]:
    """What is known of a key besides its value, and the ref of that."""
    length, at = varint(ref, 1)
    return ref[at : at + length], ref[at + length :]


def size_of(key: Any, ref: bytes) -> int:
    extra = 0 if key is None else len(key) + 1 if type(key) is str else 4
    if ref[0] == 0:
        return extra + len(ref) - 1
    if ref[0] == 1:
        return extra + varint(ref, 33)[0]
    if ref[0] == 2:
        return extra + varint(ref, varint(ref, 34)[1])[0]
    if ref[0] == 4:
        meta, inner = described(ref)
        return extra + len(meta) + size_of(None, inner)
    length, at = varint(ref, 1)
    name = ref[at : at + length].decode()
    _, at = varint(ref, at + length)
    return extra + size_of(None, ref[at:]) + len(name) + 4


class Store:
    """A store, given as its rows."""

    def __init__(
        self,
        rows: dict[bytes, bytes],
        ring: dict[bytes, bytes] | None = None,
        master: bytes = b"",
    ) -> None:
        self.rows = rows
        plain = open_record(b"holdfast/meta/1\0Mstore", rows[b"Mstore"], None, b"")
        self.meta = unpack(plain)
        self.lineage, self.public = self.meta[3], self.meta[6]
        self.ring = Ring(ring, master, self.lineage) if ring is not None else None
        self.key = self.ring.unwrap(b"S") if self.ring else None
        self.commit = hasher(self.key)

    def open(self, key: bytes) -> bytes:
        """A row of the store itself."""
        ad = b"holdfast/ad/1\0" + self.lineage + bytes(16) + bytes([len(key)]) + key
        return open_record(ad, self.rows[key], {1: self.key} if self.key else None, b"")

    def tag(self, label: bytes, text: str) -> bytes:
        return self.commit(b"tag/" + label, text.encode())[:16]

    def unseal(self, part: Any) -> bytes:
        """The encoded value in a part that is sealed for a subject."""
        assert self.ring is not None
        name, version, payload = part if type(part) is tuple else object_of(part)
        assert (name, version) == ("$sealed", 1)
        bound = [b"holdfast/1/part", self.lineage, payload[:16]]
        key = self.ring.subject(payload[:16])[1]
        return bytes(AESSIV(key).decrypt(payload[16:], bound))

    def scopes(self) -> Iterator[Scope]:
        """Every incarnation of every scope."""
        for key in sorted(self.rows):
            if key[:1] == b"D" and key[21] == 0:
                name, number, scope_id, salt, _, before = unpack(self.open(key))
                assert key[1:17] == self.tag(b"directory", name)
                yield Scope(self, name, number, scope_id, salt, before)

    def erased(self) -> dict[int, tuple[str, int, bytes]]:
        """Number to (tag in hexadecimal, highest entry, id) of the scopes that are erased."""
        found = {}
        for key in self.rows:
            if key[:1] == b"D" and key[21] == 2:
                number, _, last, scope_id = unpack(self.open(key))
                found[number] = (key[1:17].hex(), last, scope_id)
        return found

    def feed(self) -> Iterator[tuple[int, int, int, int, bytes]]:
        """(scope number, timeline, first entry, entries, hash of the last), lanes checked."""
        before: dict[int, bytes] = {}
        for key in sorted(key for key in self.rows if key[:1] == b"F"):
            row = self.rows[key]
            items, tag = row[:-32], row[-32:]
            assert tag == self.commit(b"feed", key[1:] + before.get(key[1], bytes(32)) + items)
            before[key[1]] = tag
            for at in range(0, len(items), 48):
                cuts = [int.from_bytes(items[at + a : at + b], "big") for a, b in _FEED]
                yield (*cuts, items[at + 16 : at + 48])  # type: ignore[misc]


_FEED = ((0, 6), (6, 8), (8, 13), (13, 16))
