"""Values with parts that are sealed for subjects, as they are stored and as they look."""

from __future__ import annotations

from operator import is_not
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.seal.codec import Codec, Typed
from holdfast.seal.subject_parts import ERASED, ID, SEALED
from holdfast.store.tree.difference import DELETED, Diff, Difference, same, value_changes

if TYPE_CHECKING:
    from holdfast.store.commit.core import Core


class Shown(NamedTuple):
    """A value in plain form, and what it is to those who look."""

    stored: Any
    """With its sealed parts as they are."""
    value: Any
    ids: frozenset[bytes]
    """The subjects that parts of it are sealed for."""

    @property
    def whole(self) -> bool:
        """Whether all of it is sealed for one subject, if it is there at all."""
        sealed = type(self.stored) is Typed and self.stored.name == SEALED
        return self.stored is DELETED or (sealed and len(self.ids) == 1)


def has_sealed(value: Any) -> bool:
    """Whether a part of a value in plain form is sealed for a subject."""
    if type(value) is Typed:
        return value.name == SEALED or has_sealed(value.value)
    if type(value) is dict:
        return any(map(has_sealed, value.values()))
    return type(value) is list and any(map(has_sealed, value))


def shown(core: Core, stored: Any) -> Shown:
    """A value in plain form with its sealed parts opened; the very same if there are none."""
    with core.subjects.noting() as parts:
        value = _opened(core.codec.plain_viewer, stored)
    return Shown(stored, value, frozenset(part[:ID] for part in parts))


def _opened(codec: Codec, value: Any) -> Any:
    kind = type(value)
    if kind is Typed and value.name == SEALED:
        return codec.opened(value)
    if kind is Typed:
        inner = _opened(codec, value.value)
        return value if inner is value.value else Typed(value.name, value.version, inner)
    if kind is dict:
        fields = {name: _opened(codec, part) for name, part in value.items()}
        return fields if any(fields[name] is not value[name] for name in value) else value
    if kind is list:
        items = [_opened(codec, part) for part in value]
        return items if any(map(is_not, items, value)) else value
    return value


def opened_changes(core: Core, key: str, before: Any, after: Any, found: Diff) -> None:
    """Add how two values in plain form differ, with their sealed parts opened."""
    was, now, listed = shown(core, before), shown(core, after), len(found)
    value_changes(key, key, was.value, now.value, found)
    if len(found) == listed and not same(before, after):
        subject_changes(core, key, was, now, found)


def subject_changes(core: Core, key: str, before: Shown, after: Shown, found: Diff) -> None:
    """Add how two values differ that look alike: in whom they are sealed for, if that can be said.

    Of what is sealed for erased subjects nobody can say more than that it changed.
    """
    names = [_names(core, one.ids) for one in (before, after)]
    if names[0] == names[1]:
        shown = ERASED if ERASED in names[0] else after.value
        found.changes.append(Difference(key, key, "changed", shown, shown))
        return
    told = [(name if len(name) > 1 else name[0]) if name else DELETED for name in names]
    value_changes(key, f"{key} (subject)", told[0], told[1], found)


def _names(core: Core, ids: frozenset[bytes]) -> list[Any]:
    """The names of subjects, then `ERASED` once if some have none any more."""
    names = [core.subjects.name_of(id) for id in ids]
    erased = [ERASED] if None in names else []
    return [*sorted(name for name in names if name is not None), *erased]
