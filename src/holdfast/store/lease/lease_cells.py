"""What the cells of a lease hold, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from holdfast.store.lease.process import shown

encode = msgspec.msgpack.Encoder().encode


class Token(msgspec.Struct, array_like=True, frozen=True):
    """The cell that says who holds a lease."""

    name: str
    term: int
    owner: str | None
    """None: it is free."""
    duration: float
    id: bytes
    """Random: no two tokens are equal."""


class Beat(msgspec.Struct, array_like=True, frozen=True):
    """The cell that changes as long as the holder lives; a free lease has none."""

    id: bytes
    """Of the token."""
    count: int


Cells = tuple[bytes | None, bytes | None]
"""Token and beat as they are stored."""
Seen = tuple[bytes, Token, Cells]
"""Where a lease lies, its token, and both cells."""
token_decoder = msgspec.msgpack.Decoder(Token)
beat_decoder = msgspec.msgpack.Decoder(Beat)


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """What the storage says of a lease."""

    name: str
    owner: str | None
    """Who took it last and has not given it back; None if it is free."""
    term: int
    """How often it was taken or broken; it falls only if its cells were damaged and dropped."""
    duration: float
    beats: int
    """How often it was renewed in this term: who looks twice sees whether the holder lives."""
    gone: bool = False
    """Whether its holder is known to be gone: a process of this machine that is no more."""
    damage: str | None = None
    """What is wrong with its cells. If it is its token, only where it lies is known, which is its
    `name` here; nobody gets it until it is broken by its own name."""


def told(token: Token, gone: Callable[[str | None], bool]) -> LeaseInfo:
    """A lease for people; how often it was renewed is in another cell."""
    owner = token.owner
    return LeaseInfo(token.name, shown(owner), token.term, token.duration, 0, gone(owner))
