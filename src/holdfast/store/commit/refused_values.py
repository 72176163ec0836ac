"""Refusing values: the error says which key, and below it where; of what is sensitive, not that.

Names in a path are part of the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.store.rules.classes import SENSITIVE, class_of

if TYPE_CHECKING:
    from holdfast.errors import InvalidValueError
    from holdfast.store.journal.directory import Directory
    from holdfast.store.names.scope import Scope
    from holdfast.store.rules.gate_request import Operation


def refused(
    core: Directory, scope: Scope, timeline: str, operation: Operation, error: InvalidValueError
) -> InvalidValueError:
    """The error for a value that cannot be stored, which now says where it was to be written."""
    masked = _sensitive(core, scope, timeline, operation)
    return error.placed(scope, operation.key, masked=masked)


def _sensitive(core: Directory, scope: Scope, timeline: str, operation: Operation) -> bool:
    """Whether an operation writes something sensitive, or may for all we know."""
    terms, key = operation.terms, operation.key
    if operation.subject is not None:
        return True
    if terms is not None and terms.class_:
        return terms.class_ == SENSITIVE
    try:
        line = core.current(scope, timeline)
        if line is None:
            return class_of(key) == SENSITIVE
        keeps = operation.kind != "set" or (terms is not None and terms.keep)
        slot = line.slot(key) if keeps else None
        return class_of(key, slot.meta if slot is not None else b"", line.declared) == SENSITIVE
    except HoldfastError:
        return True
