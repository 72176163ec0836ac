"""A second reader of exports, written from docs/format.md alone; it imports nothing of Holdfast."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from reader import expand, sha256, unpack

MAGIC = b"holdfast-export/1\0"


class Read(NamedTuple):
    """What is in a file."""

    said: list[Any]
    records: dict[str, tuple[int, Any]]
    """Kind, and the encoded value, the bytes, or the encoded items."""
    metas: dict[str, list[Any]]
    """When a key expires, its term, its class; trimmed."""


def mac(key: bytes, label: bytes, data: bytes = b"") -> bytes:
    return hmac.digest(key, b"holdfast/1/" + label + b"\0" + data, "sha256")


def read_export(data: bytes, key: bytes | None) -> Read:
    """What is in a file; `key` is the content of a key file."""
    assert data.startswith(MAGIC)
    assert sha256(data[:-32]) == data[-32:]
    data, start = data[:-32], len(MAGIC)
    at = start + 2 + int.from_bytes(data[start : start + 2], "big")
    head, frames = data[:at], []
    id = unpack(head[start + 2 : -16])[2] if key else b""
    while at < len(data):
        method, plain = data[at], int.from_bytes(data[at + 1 : at + 5], "big")
        end = at + 9 + int.from_bytes(data[at + 5 : at + 9], "big")
        stored = data[at + 9 : end]
        if key is not None:
            bound = head + len(frames).to_bytes(8, "big") + data[at : at + 9]
            aead = AESGCM(mac(key, b"export/seal", id))
            stored = aead.decrypt(stored[:12], stored[12:], bound)
        frames.append(expand(method, stored, plain))
        assert len(frames[-1]) == plain
        at = end
    packed, signature = unpack(frames[0])
    said = unpack(packed)
    public = Ed25519PublicKey.from_public_bytes(said[19])
    public.verify(signature, b"holdfast/export/1\0" + packed)
    content = b"".join(frames[1:])
    assert (len(content), hashlib.sha256(content).digest()) == (said[16], said[17])
    return Read(said, *read_records(content))


def read_records(content: bytes) -> tuple[dict[str, tuple[int, Any]], dict[str, list[Any]]]:
    """Kind and content of each record, and what else is said of its key."""
    metas: dict[str, list[Any]] = {}
    found: dict[str, tuple[int, Any]] = {}
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return content[at - size : at]

    while at < len(content):
        key, kind, size, meta = unpack(take(int.from_bytes(take(2), "big")))
        metas[key] = unpack(meta) if meta else []
        if kind == 2:
            items = [take(int.from_bytes(take(4), "big")) for _ in range(size)]
            found[key] = kind, items
        else:
            assert kind in (0, 1)
            found[key] = kind, take(size)
    assert at == len(content)
    return found, metas
