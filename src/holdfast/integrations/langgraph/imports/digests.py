"""Digests of values, to compare what a source holds with what was stored of it."""

from __future__ import annotations

import hashlib
import marshal
from typing import Any

from langchain_core.messages import BaseMessage

from holdfast.integrations.langgraph.messages import only_messages
from holdfast.integrations.langgraph.types.types import Types
from holdfast.seal.codec import Codec

MOST = 100_000
"""Messages that are recognised."""


class Digests:
    """Digests that are equal just for values that are the same, types and order included.

    Every checkpoint of a conversation holds the messages of the one before. Those met again are
    recognised by their bytes, in a tenth of the time that taking them apart needs.
    """

    def __init__(self, codec: Codec, types: Types) -> None:
        self._codec = codec
        self._types = types
        self._known: dict[bytes, bytes] = {}

    def of(self, value: Any) -> bytes:
        """The digest of a value."""
        if only_messages(value):
            return _digest(b"messages" + b"".join(map(self._message, value)))
        return _digest(self._codec.encode(self._codec.plain(self._types.plain(value))))

    def _message(self, message: BaseMessage) -> bytes:
        try:
            # Exact for the types of Python itself, and refuses all others.
            state = (
                message.__dict__,
                message.__pydantic_extra__,
                message.__pydantic_private__,
                sorted(message.__pydantic_fields_set__),
            )
            key = _digest(repr(type(message)).encode() + marshal.dumps(state, 2))
        except ValueError:
            return self._whole(message)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST:
                self._known.clear()
            known = self._known[key] = self._whole(message)
        return known

    def _whole(self, message: BaseMessage) -> bytes:
        return _digest(self._codec.encode(self._codec.plain(self._types.plain(message))))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
