"""Transforms: what a step of a migration does to a value, by dotted paths of its fields.

Step(1, 2, [Copy("lang", "preferences.language"), Remove("lang")])

Each is plain data, kept with the schema, and checks both ends: what it reads must be there, where
it writes there must be room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.errors import InvalidSchemaError, TransformError
from holdfast.seal.codec import Typed
from holdfast.seal.subject_keys import SEALED
from holdfast.store.inner import copied
from holdfast.store.names.arguments import check_function, check_text, listed

CUSTOM: dict[str, Callable[[dict[str, Any]], Any]] = {}
"""Functions that `Custom` names, by `transform`."""
_MISSING: Any = object()


def transform(name: str) -> Callable[[Any], Any]:
    """Register a function for `Custom(name)`: it gets the value, and returns what it becomes."""
    check_text(name, "the name of a transform", 100, least=1)

    def add(function: Any) -> Any:
        check_function(function, "a transform")
        CUSTOM[name] = function
        return function

    return add


class Transform(Struct, frozen=True, tag=True, tag_field="transform"):
    """Base of transforms, which say by the names of their fields what they do to which paths."""

    READS: ClassVar[tuple[str, ...]] = ()
    """Fields with paths that must be there before."""
    WRITES: ClassVar[tuple[str, ...]] = ()
    """Those that are there afterwards."""
    DROPS: ClassVar[tuple[str, ...]] = ()
    """Those that are gone afterwards."""
    SEVERAL: ClassVar[tuple[str, ...]] = ()
    """Fields with more than one path."""
    HOW: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        how = getattr(self, "how", None)
        if how is not None and how not in self.HOW:
            name = type(self).__name__
            raise InvalidSchemaError([f"{name} takes {', '.join(self.HOW)}, not {how!r}"])
        for name in self.SEVERAL:
            force_setattr(self, name, _paths(getattr(self, name)))

    def paths(self, names: tuple[str, ...]) -> list[str]:
        """What its fields of these names say: `READS`, `WRITES` or `DROPS`."""
        return [path for name in names for path in _paths(getattr(self, name))]

    def _apply(self, value: dict[str, Any]) -> None:
        """Do it to a value, in place; `TransformError` says what does not fit."""


class Copy(Transform, frozen=True):
    """Copy a field to another path, which may lie inside of mappings that are made."""

    READS, WRITES = ("from_field",), ("to_field",)
    from_field: str
    to_field: str

    def _apply(self, value: dict[str, Any]) -> None:
        put_at(value, self.to_field, copied(get_at(value, self.from_field)))


class Move(Copy, frozen=True):
    """The same, and the field is gone where it was."""

    DROPS = ("from_field",)

    def _apply(self, value: dict[str, Any]) -> None:
        moved = get_at(value, self.from_field)
        drop_at(value, self.from_field)
        put_at(value, self.to_field, moved)


class Convert(Transform, frozen=True):
    """Turn a field into another kind: `parse_int`, `parse_float` or `to_string`."""

    READS = WRITES = ("field",)
    HOW = {
        "parse_int": lambda one: _parsed(int, one),
        "parse_float": lambda one: _parsed(float, one),
        "to_string": lambda one: one if isinstance(one, str) else _shown(one),
    }
    field: str
    how: str

    def _apply(self, value: dict[str, Any]) -> None:
        put_at(value, self.field, self.HOW[self.how](get_at(value, self.field)))


class Default(Transform, frozen=True):
    """Give a field a value where it has none."""

    WRITES = ("field",)
    field: str
    value: Any

    def _apply(self, value: dict[str, Any]) -> None:
        if get_at(value, self.field, CUSTOM) is CUSTOM:  # nobody's value
            put_at(value, self.field, copied(self.value))


class Remove(Transform, frozen=True):
    """Remove a field; one that is missing is no error."""

    DROPS = ("field",)
    field: str

    def _apply(self, value: dict[str, Any]) -> None:
        drop_at(value, self.field)


class Split(Transform, frozen=True):
    """Split a text into a list (`into` one path), or into several fields, at commas."""

    READS, WRITES, SEVERAL = ("field",), ("into",), ("into",)
    HOW = {"comma_split": lambda text: [one.strip() for one in text.split(",")]}
    field: str
    into: list[str]
    how: str = "comma_split"

    def _apply(self, value: dict[str, Any]) -> None:
        text = get_at(value, self.field)
        if not isinstance(text, str):
            raise TransformError(f"{self.field} is no text that could be split")
        parts = self.HOW[self.how](text)
        if len(self.into) == 1:
            parts = [parts]
        if len(parts) != len(self.into):
            raise TransformError(f"{self.field} has {len(parts)} parts, not {len(self.into)}")
        for path, part in zip(self.into, parts, strict=True):
            put_at(value, path, part)


class Merge(Transform, frozen=True):
    """Make one field of several: `concat_strings`, `sum_numbers` or `first_non_null`."""

    READS, WRITES, SEVERAL = ("fields",), ("into",), ("fields",)
    HOW = dict.fromkeys(("concat_strings", "sum_numbers", "first_non_null"))
    fields: list[str]
    into: str
    how: str
    separator: str = " "

    def _apply(self, value: dict[str, Any]) -> None:
        found = [get_at(value, path, None) for path in self.fields]
        there = [one for one in found if one is not None]
        if self.how == "first_non_null":
            put_at(value, self.into, there[0] if there else None)
            return
        kind: Any = str if self.how == "concat_strings" else (int, float)
        if not all(isinstance(one, kind) and not isinstance(one, bool) for one in there):
            what = "texts" if kind is str else "numbers"
            raise TransformError(f"{', '.join(self.fields)} are not all {what}")
        put_at(value, self.into, self.separator.join(there) if kind is str else sum(there))


class Custom(Transform, frozen=True):
    """Call a function that was registered by `transform(name)`: it gets and returns the value.

    Which fields it writes is for you to say: a check of the migration rests on it.
    """

    WRITES = SEVERAL = ("fields",)
    name: str
    fields: Sequence[str] = ()

    def _apply(self, value: dict[str, Any]) -> None:
        function = CUSTOM.get(self.name)
        if function is None:
            raise TransformError(
                f"there is no transform {self.name!r} here; import the module that registers it"
            )
        try:
            made = function(copied(value))
        except Exception as error:  # the migration names the key; what it says may be a secret
            raise TransformError(
                f"the transform {self.name} failed: {type(error).__name__}"
            ) from error
        if not isinstance(made, dict):
            raise TransformError(f"the transform {self.name} gave no mapping")
        value.clear()
        value.update(made)


class Step(
    Struct,
    frozen=True,
    rename={"from_version": "from", "to_version": "to", "transformations": "do"},
):
    """How values of one version become those of the next. As plain data it is kept with a schema:
    see `msgspec.to_builtins` and `convert`."""

    from_version: int
    to_version: int
    transformations: Sequence[
        Copy | Move | Convert | Default | Remove | Split | Merge | Custom
    ] = ()

    def __post_init__(self) -> None:
        found = listed(self.transformations, "the transforms of a step")
        versions = (self.from_version, self.to_version)
        if not all(type(one) is int and one >= 1 for one in versions):
            raise InvalidSchemaError(["versions are whole numbers of 1 or more"])
        if self.to_version <= self.from_version:
            raise InvalidSchemaError([f"a step leads to a later version, not from {versions}"])
        if not all(isinstance(one, Transform) for one in found):
            raise InvalidSchemaError(["a step has transforms: Copy(...), Default(...)"])
        force_setattr(self, "transformations", found)

    def apply(self, value: Any) -> Any:
        """The value of the next version; the one that is given is not touched."""
        if isinstance(value, Typed) and value.name != SEALED:
            return Typed(value.name, value.version, self.apply(value.value))
        if not isinstance(value, dict):
            raise TransformError("only mappings have fields that can be transformed")
        made: dict[str, Any] = copied(value)
        for one in self.transformations:
            one._apply(made)
        return made


def way(steps: Iterable[Step], start: int, end: int) -> list[Step]:
    """The steps from one version to another, in order; refused if one is missing between them."""
    known = {one.from_version: one for one in steps}
    found: list[Step] = []
    at = start
    while at < end:
        step = known.get(at)
        if step is None or step.to_version > end:
            raise InvalidSchemaError([f"there is no step from version {at} towards {end}"])
        found.append(step)
        at = step.to_version
    return found


# ---- paths --------------------------------------------------------------------------------------


def _paths(paths: Any) -> list[str]:
    return [paths] if isinstance(paths, str) else listed(paths, "paths")


def get_at(value: Any, path: str, default: Any = _MISSING) -> Any:
    """What lies at a dotted path."""
    inner, last = _inside(value, path)
    if last not in inner and default is _MISSING:
        raise TransformError(f"{path} is missing")
    return inner.get(last, default)


def put_at(value: dict[str, Any], path: str, new: Any) -> None:
    """Put something at a dotted path; mappings on the way are made."""
    *names, last = path.split(".")
    for name in names:
        value = value.setdefault(name, {})
        if not isinstance(value, dict):
            raise TransformError(f"{path} leads through {name}, which is no mapping")
    value[last] = new


def drop_at(value: dict[str, Any], path: str) -> None:
    """Remove what lies at a dotted path, if there is something."""
    inner, last = _inside(value, path)
    inner.pop(last, None)


def _inside(value: Any, path: str) -> tuple[dict[str, Any], str]:
    """The mapping that a dotted path ends in, an empty one if there is none; and the last name."""
    *names, last = path.split(".")
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}, last


def _parsed(kind: Callable[[Any], Any], one: Any) -> Any:
    try:
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise ValueError
        return kind(one)
    except (ValueError, OverflowError):
        raise TransformError(f"it cannot be made {kind.__name__}") from None


def _shown(one: Any) -> str:
    if isinstance(one, bool) or one is None:
        return {True: "true", False: "false", None: "null"}[one]
    if isinstance(one, int | float):
        return repr(one)
    raise TransformError("only numbers, flags and None become text")
