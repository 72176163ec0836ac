"""Values that a serializer of the user's own turns into bytes."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol, maybe_add_typed_methods

from holdfast.errors import InvalidValueError
from holdfast.integrations.langgraph.types.types import In, Out, Types
from holdfast.seal.codec import Typed

_NAME = "serialized"


class Serialised(Types):
    """Takes whatever the serializer takes, as bytes that nobody looks into.

    Such values are stored whole each time they change, and what the serializer does when it
    reads them, running code perhaps, is its own.
    """

    keeps_messages_apart = False

    def __init__(self, serde: SerializerProtocol) -> None:
        super().__init__()
        self._serde = maybe_add_typed_methods(serde)

    def plain(self, value: Any, message: Out | None = None) -> Any:
        """The value as the serializer writes it."""
        kind, data = self._serde.dumps_typed(value)
        return Typed(_NAME, 1, [kind, data])

    def build(self, plain: Any, message: In | None = None) -> Any:
        """The value as the serializer reads it; others as `Types` does."""
        if type(plain) is Typed and plain.name == _NAME:
            return self._serde.loads_typed((plain.value[0], plain.value[1]))
        if type(plain) is list:
            return [self.build(part, message) for part in plain]
        return super().build(plain, message)

    def register(self, *_: Any, **__: Any) -> Any:
        """Refused: the serializer decides."""
        raise InvalidValueError("a saver with a serializer of its own registers no classes", "$")
