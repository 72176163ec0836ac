"""Reading what is kept of recoveries past what of it is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from holdfast.errors import StateIntegrityError
from holdfast.recovery.user_calls import log

_T = TypeVar("_T")


def readable(items: Iterable[Any], read: Callable[[Any], _T]) -> list[_T]:
    """What is read of each; those that are damaged are passed over, with a warning."""
    found = []
    for one in items:
        try:
            found.append(read(one))
        except StateIntegrityError as error:
            pass_over(one, error)
    return found


def pass_over(what: object, error: Exception) -> None:
    """Warn of something that is left out."""
    log.warning("%s: what is kept of recoveries is damaged, and passed over: %s", what, error)
