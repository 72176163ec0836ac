"""Where long work may stop, because whoever asked for it was cancelled: see `cancelling`.

Apart from that, for blocking programs need no event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Stopped(BaseException):
    """Work ends at a safe point, because its task was cancelled; no `except Exception` keeps it."""


current: ContextVar[Any] = ContextVar("holdfast_work", default=None)
"""The work that runs in this context, if somebody may give it up: `unwanted` says that."""


def safe_point() -> None:
    """Stop here if whoever asked for this work was cancelled; for between two steps of long work.

    What was done so far stands for itself, or the errors' way undoes it.
    """
    work = current.get()
    if work is not None and work.unwanted:
        raise Stopped


@contextmanager
def undivided() -> Iterator[None]:
    """A block in which no safe point stops: what is begun in it is also finished."""
    token = current.set(None)
    try:
        yield
    finally:
        current.reset(token)
