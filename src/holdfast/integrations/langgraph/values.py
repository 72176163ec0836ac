"""Channel values that are read when they are first looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_LATER: Any = object()


class Values(dict[str, Any]):
    """A dict whose values are read all together, once one of them is looked at.

    Listing hundreds of checkpoints then reads no conversation that nobody asks for. Looking
    needs the store to be open still.
    """

    def __init__(self, names: list[str], load: Callable[[], dict[str, Any]]) -> None:
        super().__init__(dict.fromkeys(names, _LATER))
        self._load: Callable[[], dict[str, Any]] | None = load

    def _now(self) -> dict[str, Any]:
        if self._load is not None:
            found = self._load()
            self._load = None
            for name in found:
                if super().get(name) is _LATER:
                    super().__setitem__(name, found[name])
        return self

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return super().__getitem__(name) if value is _LATER and self._now() is self else value

    def get(self, name: str, default: Any = None) -> Any:
        value = super().get(name, default)
        return self[name] if value is _LATER else value

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def items(self) -> Any:
        self._now()
        return super().items()

    def values(self) -> Any:
        self._now()
        return super().values()

    def copy(self) -> dict[str, Any]:
        self._now()
        return dict(super().items())

    __copy__ = copy

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        self._now()
        return super().__eq__(other._now() if isinstance(other, Values) else other)

    def __repr__(self) -> str:
        self._now()
        return super().__repr__()

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def pop(self, *args: Any) -> Any:
        self._now()
        return super().pop(*args)

    def popitem(self) -> Any:
        self._now()
        return super().popitem()

    def setdefault(self, name: str, default: Any = None) -> Any:
        self._now()
        return super().setdefault(name, default)

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)
