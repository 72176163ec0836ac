"""Refs: the canonical bytes that say what a value is, without saying where it lies.

| first byte | then | meaning |
| --- | --- | --- |
| 0 | atom | a value of at most 64 encoded bytes, itself |
| 1 | hash(32) length | an atom kept in a pack, by its commitment |
| 2 | kind(1) root hash(32) count size | a list, mapping, bytes or text, as a tree |
| 3 | name length, name, version, ref | an object of a registered type whose fields are a tree |
| 4 | length, meta, ref | only in an index: what else is known of the key (see `journal.lifetime`) |

A container is a tree if it takes more than `WHOLE` bytes encoded, else an atom; text and bytes
if more than `LONG`. The rule looks at the content alone, so that equal state has equal roots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.seal.sealer import read_varint, write_varint

INLINE = 64
"""Bytes of an atom that its ref carries itself: a row of its own would take more."""
WHOLE = 1024
LONG = 16 * 1024

ATOM_INLINE, ATOM, TREE, TYPED, META = 0, 1, 2, 3, 4
LIST, MAP, BYTES, TEXT = 1, 2, 3, 4


def inline(atom: bytes) -> bytes:
    """The ref of a small atom."""
    return b"\0" + atom


def tree(kind: int, hash_: bytes, count: int, size: int) -> bytes:
    """The ref of a tree."""
    return b"\2" + bytes([kind]) + hash_ + write_varint(count) + write_varint(size)


def typed(name: str, version: int, inner: bytes) -> bytes:
    """The ref of a registered object around the ref of its fields."""
    text = name.encode()
    return b"\3" + write_varint(len(text)) + text + write_varint(version) + inner


def read_tree(ref: bytes) -> tuple[int, bytes, int, int]:
    """kind, root hash, count and size of a tree's ref."""
    count, at = read_varint(ref, 34)
    size, _ = read_varint(ref, at)
    return ref[1], ref[2:34], count, size


def read_typed(ref: bytes) -> tuple[str, int, bytes]:
    """name, version and inner ref."""
    length, at = read_varint(ref, 1)
    name = ref[at : at + length].decode()
    version, at = read_varint(ref, at + length)
    return name, version, ref[at:]


def described(meta: bytes, ref: bytes) -> bytes:
    """A key's ref as it stands in the index."""
    return b"\4" + write_varint(len(meta)) + meta + ref if meta else ref


def read_described(ref: bytes) -> tuple[bytes, bytes]:
    """meta and inner ref of a key's ref in the index."""
    if ref[0] != META:
        return b"", ref
    length, at = read_varint(ref, 1)
    return ref[at : at + length], ref[at + length :]


def bare(ref: bytes) -> bytes:
    """The ref of the tree or atom inside a registered object, or the ref itself."""
    if ref[0] == META:
        ref = read_described(ref)[1]
    while ref[0] == TYPED:
        ref = read_typed(ref)[2]
    return ref


def is_tree(ref: bytes) -> bool:
    """Whether a ref leads to nodes."""
    return ref[0] == TREE or (ref[0] >= TYPED and bare(ref)[0] == TREE)


def size_of(ref: bytes) -> int:
    """Encoded bytes of the value, near enough: what its atoms and keys take."""
    first = ref[0]
    if first == ATOM_INLINE:
        return len(ref) - 1
    if first == ATOM:
        return read_varint(ref, 33)[0]
    if first == TREE:
        return read_tree(ref)[3]
    if first == META:
        meta, inner = read_described(ref)
        return size_of(inner) + len(meta)
    name, _, inner = read_typed(ref)
    return size_of(inner) + len(name) + 4


def leaf_size(elements: Sequence[tuple[Any, ...]]) -> int:
    """Encoded bytes of a leaf's elements with their keys."""
    total = 0
    for key, ref, _ in elements:
        if ref[0] == ATOM_INLINE:
            total += len(ref) - 1
        elif ref[0] == ATOM and ref[33] < 128:
            total += ref[33]
        elif ref[0] == ATOM and ref[34] < 128:
            total += ref[33] & 127 | ref[34] << 7
        else:
            total += size_of(ref)
        if key is not None:
            total += len(key) + 1 if type(key) is str else 4
    return total
