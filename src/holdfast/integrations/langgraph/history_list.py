"""Checkpoints as `list` gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

_PLACE = CheckpointTuple._fields.index("checkpoint")


class Unread:
    """Stands in a listed tuple for values that were not read yet; nobody can take it for them."""

    def __repr__(self) -> str:
        return "<values that are read by .checkpoint>"


class Listed(CheckpointTuple):
    """A checkpoint that is whole once its `checkpoint` is looked at.

    Listing hundreds of them then reads no conversation that nobody asks for. What is looked at is
    a plain dict in plain dicts. Looking needs the store to be open still.
    """

    _load: Callable[[], dict[str, Any]] | None = None
    _whole: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, found: CheckpointTuple, load: Callable[[], dict[str, Any]]) -> Listed:
        """A checkpoint whose values `load` reads."""
        made = cls(*found)
        made._load = load
        return made

    def _items(self) -> tuple[Any, ...]:
        if self._whole is None:
            items: list[Any] = [*super().__iter__()]
            if self._load is not None:
                items[_PLACE] = {**items[_PLACE], "channel_values": self._load()}
            self._whole = tuple(items)
        return self._whole

    @property
    def checkpoint(self) -> Any:
        """The checkpoint with its values."""
        return self._items()[_PLACE]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __getitem__(self, at: Any) -> Any:
        return self._items()[at]

    def __eq__(self, other: object) -> bool:
        return self._items() == (other._items() if isinstance(other, Listed) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = CheckpointTuple.__hash__

    def __repr__(self) -> str:
        return repr(CheckpointTuple(*self))

    def __reduce__(self) -> Any:
        return CheckpointTuple, self._items()
