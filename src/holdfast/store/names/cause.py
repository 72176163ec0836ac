"""Who acts, and why: the cause of every entry made in this task or thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec
from msgspec import structs

from holdfast.store.names.arguments import check_text

WITHIN = " > "
"""Stands between an operation and one that is part of it."""


class Cause(msgspec.Struct, array_like=True, frozen=True):
    """Why an entry was made. Remarks of the caller; nothing is decided by them."""

    actor: str | None = None
    reason: str | None = None
    correlation: str | None = None
    parent: str | None = None
    component: str | None = None
    operation: str | None = None


CAUSE: ContextVar[Cause | None] = ContextVar("holdfast_cause", default=None)


@contextmanager
def acting(
    actor: str | None = None,
    *,
    reason: str | None = None,
    correlation: str | None = None,
    parent: str | None = None,
    component: str | None = None,
    operation: str | None = None,
) -> Iterator[Cause]:
    """Name the cause of all that this task or thread writes inside the block.

    Blocks nest: what an inner one leaves out is taken from the outer one. An inner correlation
    that differs gets the outer one as its parent, unless a parent is given. An inner operation
    stands behind the outer one: `deploy > migrate`.
    """
    cause = combined(Cause(actor, reason, correlation, parent, component, operation), CAUSE.get())
    token = CAUSE.set(cause)
    try:
        yield cause
    finally:
        CAUSE.reset(token)


def combined(cause: Cause, outer: Cause | None) -> Cause:
    """A cause, checked, with its gaps filled from the one around it."""
    if cause.operation and outer is not None and outer.operation:
        cause = structs.replace(cause, operation=f"{outer.operation}{WITHIN}{cause.operation}")
    for name in Cause.__struct_fields__:
        text = getattr(cause, name)
        if text is not None:
            check_text(text, f"the {name} of a change")
    if outer is None:
        return cause
    parent = cause.parent
    if parent is None:
        nested = cause.correlation is not None and cause.correlation != outer.correlation
        parent = outer.correlation if nested else outer.parent
    return Cause(
        cause.actor or outer.actor,
        cause.reason or outer.reason,
        cause.correlation or outer.correlation,
        parent,
        cause.component or outer.component,
        cause.operation or outer.operation,
    )


def cause_now(
    actor: str | None = None,
    reason: str | None = None,
    correlation: str | None = None,
    parent: str | None = None,
) -> Cause | None:
    """The cause of an entry that is made now."""
    outer = CAUSE.get()
    if actor is None and reason is None and correlation is None and parent is None:
        return outer
    return combined(Cause(actor, reason, correlation, parent), outer)
