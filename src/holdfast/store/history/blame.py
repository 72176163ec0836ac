"""Who wrote each part of a value.

From the newest version of a key back to the first, each is compared with the one before: a part
that is the same in both was written earlier, any other by the entry of the newer one. Nothing is
stored for this. Fields of mappings are known by their names, items of lists by their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.store.names.cause import Cause
from holdfast.store.names.items import MASK, Item

DEPTH = 8
"""How deep a value is taken apart; what is deeper is one part."""
MOST = 10_000
"""Parts that are told apart; behind so many, the rest of a mapping or list is one part each."""
Path = tuple[str | int, ...]
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Blamed:
    """One part of a value, and the entry that wrote it."""

    path: str
    """The key, then the way into the value: `plan.steps[3].done`."""
    value: Any
    """Masked if it is sensitive, unless it was asked for."""
    entry: int
    time: datetime
    cause: Cause
    exact: bool = True
    """False if it may be older: it is the same in all the versions that were looked at."""


def blame_value(
    versions: Iterable[Item], *, whole: bool, reveal: bool, hide: Any = None
) -> list[Blamed]:
    """Lead each part of the newest of some versions, newest first, back to who wrote it.

    `whole` says that these are all the versions that there are; `hide` makes of a part, and of the
    way to it, what is shown.
    """
    left = iter(versions)
    newest = next(left, None)
    if newest is None:
        return []
    open_parts: dict[Path, Any] = dict(_parts(newest.value))
    found: dict[Path, tuple[Item, bool]] = {}
    newer = newest
    for older in left:
        for path in [one for one in open_parts if not _same(older.value, one, open_parts[one])]:
            found[path] = newer, True
            del open_parts[path]
        newer = older
        if not open_parts:
            break
    found |= dict.fromkeys(open_parts, (newer, whole))
    hidden = newest.class_ == "sensitive" and not reveal
    return [
        Blamed(
            newest.key
            + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path),
            MASK if hidden else hide(value, path) if hide is not None else value,
            found[path][0].version,
            found[path][0].time,
            found[path][0].cause,
            found[path][1],
        )
        for path, value in _parts(newest.value)
    ]


def _parts(value: Any) -> Iterator[tuple[Path, Any]]:
    """The parts of a value, in their order: what is no mapping or list, or lies too deep."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    count = 0
    while waiting:
        path, one = waiting.pop()
        inner: list[tuple[Path, Any]] = []
        if len(path) < DEPTH and count < MOST:
            if type(one) is dict:
                inner = [((*path, name), part) for name, part in one.items()]
            elif type(one) is list:
                inner = [((*path, number), part) for number, part in enumerate(one)]
        if inner:
            waiting += reversed(inner)
        else:
            count += 1
            yield path, one


def _same(value: Any, path: Path, part: Any) -> bool:
    """Whether a value has the same part, of the same type, at a path."""
    for step in path:
        if type(value) is dict and type(step) is str:
            value = value.get(step, _MISSING)
        elif type(value) is list and type(step) is int:
            value = value[step] if step < len(value) else _MISSING
        else:
            return False
    return type(value) is type(part) and repr(value) == repr(part)
