"""Records that this layer keeps for itself: flat Structs, stored as plain mappings.

Fields that have their default are left out; values are stored as they are, not as JSON.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct, structs

from holdfast.errors import NewerFormatError

_S = TypeVar("_S", bound=Struct)


def stored(record: Struct) -> dict[str, Any]:
    """What is stored of a record: the fields that say something."""
    return {
        field.name: value
        for field in structs.fields(record)
        if (value := getattr(record, field.name)) is not field.default
    }


def loaded(kind: type[_S], data: Any, what: str) -> _S:
    """The opposite of `stored`."""
    try:
        return kind(**data)
    except TypeError:
        raise NewerFormatError(
            f"{what} is stored in a way that this version does not know; "
            "use the newest version of Holdfast"
        ) from None
