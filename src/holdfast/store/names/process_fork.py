"""Stores carried through `os.fork()`: in the child they are over.

It has none of the threads that serve a call, and whoever held a lock is not there to open it:
what were allowed to go on would wait for ever.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from holdfast.errors import StoreClosedError, StoreForkedError

_FORKED = "this store was opened before os.fork(); open it again in the child"


class Opened(Protocol):
    """A store that is open, or says why it is not."""

    closed: str


_open: weakref.WeakSet[Opened] = weakref.WeakSet()


def joined(core: Opened) -> None:
    """Note an open store, for a child that inherits it."""
    _open.add(core)


def over(why: str) -> StoreClosedError:
    """The error for a call to a store that is closed, or carried through a fork."""
    return StoreForkedError(why) if why is _FORKED else StoreClosedError(why)


def _in_child() -> None:
    for core in list(_open):
        core.closed = core.closed or _FORKED
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
