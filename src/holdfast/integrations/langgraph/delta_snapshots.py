"""Stored values of delta channels, which are asked for again in every turn until the next one."""

from __future__ import annotations

from typing import Any

from holdfast.integrations.langgraph.messages import Kept, number_of, whole
from holdfast.integrations.langgraph.types.types import Types
from holdfast.seal.codec import Typed


class Snapshot:
    """Some channels of a checkpoint, as new objects whenever they are asked for.

    Their messages are kept as bytes, of which objects are made in a fifth of the time that
    reading and building them takes; as far as the bytes hold all of them.
    """

    def __init__(self, types: Types, plain: dict[str, Any], parts: dict[int, Any]) -> None:
        self._types = types
        self._plain = plain
        self._parts = parts
        self._kept: Kept | None = None
        self._tried = False

    @property
    def size(self) -> int:
        """Bytes held, roughly."""
        return self._kept.size if self._kept is not None else 1000 * len(self._parts)

    def build(self) -> dict[str, Any]:
        """The values, as new objects."""
        if self._kept is not None:
            fresh = iter(self._kept.build())
            return self._types.build(self._plain, lambda _: next(fresh))  # type: ignore[no-any-return]
        build = self._types.message_builder()
        made: list[Any] = []

        def message(ref: Typed) -> Any:
            made.append(build(whole(ref.value, self._parts[number_of(ref.value)])))
            return made[-1]

        values = self._types.build(self._plain, message)
        if made and not self._tried:
            self._kept = Kept.of(made)
            self._parts = {} if self._kept is not None else self._parts
        self._tried = True
        return values  # type: ignore[no-any-return]
