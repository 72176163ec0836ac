"""Sticky keys: covered by checkpoints, left alone by restore."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.errors import InvalidInputError
from holdfast.store.declared import PrefixDeclaration


@dataclass(frozen=True)
class Sticky(PrefixDeclaration):
    """Keys that begin with the prefix are left alone by a restore.

    For what has happened in the world and is not undone by going back: effects done, money
    spent. Checkpoints cover such keys like all others.
    """

    kind: ClassVar[str] = "sticky"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.prefix:
            raise InvalidInputError(
                "Sticky takes a prefix that is not empty: else a restore would restore nothing"
            )
