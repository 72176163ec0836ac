"""Witnesses, identity and figures of a store.

A witness is a small signed token over the ends of all lanes of the feed, and so over every entry
committed until then. Kept elsewhere, it shows whether a scope or the whole store was put back.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from holdfast.errors import InvalidInputError, Unavailable
from holdfast.seal.signer import Identity, Signer, format_identity
from holdfast.store.commit.group import Core
from holdfast.store.journal.feed import LANES

_PREFIX = "holdfast-witness1:"
_DOMAIN = b"holdfast/witness/1\0"
_encode = msgspec.msgpack.Encoder().encode


class Witness(msgspec.Struct, array_like=True, frozen=True):
    """What was in a store at a moment."""

    lineage: bytes
    instance: bytes
    time: int
    public: bytes
    lanes: dict[int, tuple[int, bytes]]
    """Number and tag of the newest row of each lane."""


def make_witness(core: Core) -> str:
    """A witness of now, as text."""
    core.check_open()
    if core.signer is None:
        raise Unavailable("this store's signer is not here; give it with signer=file:PATH")
    lanes = {lane: end for lane in range(LANES) if (end := core.lanes.end(lane))[0]}
    time = core.clock.claimed()
    plain = _encode(Witness(core.lineage, core.instance, time, core.public, lanes))
    signature = core.signer.sign(_DOMAIN + plain)
    return _PREFIX + base64.urlsafe_b64encode(_encode((plain, signature))).decode()


def read_witness(text: str) -> Witness:
    """The witness in a text, if it is signed by the key that it names."""
    text = text.strip()
    try:
        if not text.startswith(_PREFIX):
            raise ValueError
        data = base64.urlsafe_b64decode(text[len(_PREFIX) :].encode())
        plain, signature = msgspec.msgpack.decode(data, type=tuple[bytes, bytes])
        witness = msgspec.msgpack.decode(plain, type=Witness)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidInputError(
            f"this is no witness; it begins with {_PREFIX} and is copied whole"
        ) from None
    if not Signer.verify(witness.public, _DOMAIN + plain, signature):
        raise InvalidInputError("the witness was changed: its signature does not fit")
    return witness


def store_identity(core: Core) -> str:
    """Lineage, mode and signer in one text."""
    return format_identity(Identity(core.lineage, core.ring is not None, core.public))


def store_stats(core: Core) -> dict[str, Any]:
    """Figures of a store."""
    core.check_open()
    kinds: dict[str, int] = {}
    entries = 0
    for scope, _, _, _ in core.scopes():
        kinds[scope.kind] = kinds.get(scope.kind, 0) + 1
        main = core.current(scope)
        if main is not None:
            for _, name, _, _ in core.lines(main.ledger):
                line = core.timeline(main.ledger, name)
                line.refresh()  # also of one that is ended meanwhile
                entries += line.sequence - line.ledger.before
    cache = core.atoms
    asked = cache.hits + cache.misses
    return {
        "engine": core.storage.limits.name,
        "encrypted": core.ring is not None,
        "lineage": core.lineage.hex(),
        "identity": store_identity(core),
        "bytes": core.storage.size(),
        "scopes": sum(kinds.values()),
        "scopes_by_kind": kinds,
        "entries": entries,
        "cache_hit_rate": round(cache.hits / asked, 3) if asked else 0.0,
        "waiting": core.committer.waiting,
    }
