"""What the loop of an agent asks for, because it cannot do it itself.

To `Call` a function of the agent, which may be async, to do `Work` on the store, which blocks, and
to `Wait`. A face answers, or throws the error in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the agent is to be called; if it is async, its answer is waited for."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """A function that reads or writes the store, and blocks."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    undo: Callable[[Any], object] | None = None
    """Called with what it gave, if the loop was cancelled meanwhile."""


@dataclass(frozen=True, slots=True)
class Wait:
    """So many seconds are to pass, or the loop is to be stopped."""

    seconds: float


Asked = Call | Work | Wait
Part = Generator[Asked, Any, Any]
