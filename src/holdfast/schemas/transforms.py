"""Transforms: what a step of a migration does to a value, by dotted paths of its fields.

Step(1, 2, [Copy("lang", "preferences.language"), Remove("lang")])

Each is plain data, kept with the schema, and checks both ends: what it reads must be there, where
it writes there must be room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

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


@dataclass(frozen=True, slots=True)
class Transform:
    """Base of transforms, which say by the names of their fields what they do to which paths."""

    READS: ClassVar[tuple[str, ...]] = ()
    WRITES: ClassVar[tuple[str, ...]] = ()
    DROPS: ClassVar[tuple[str, ...]] = ()

    def apply(self, value: dict[str, Any]) -> None:
        """Do it to a value, in place; `TransformError` says what does not fit."""

    def reads(self) -> tuple[str, ...]:
        """Paths that must be there before."""
        return self._of(self.READS)

    def writes(self) -> tuple[str, ...]:
        """Paths that are there afterwards."""
        return self._of(self.WRITES)

    def drops(self) -> tuple[str, ...]:
        """Paths that are gone afterwards."""
        return self._of(self.DROPS)

    def _of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path for name in names for path in _paths(getattr(self, name)))

    def data(self) -> dict[str, Any]:
        """Plain data, from which `transform_of` makes it again."""
        kept = {one.name: getattr(self, one.name) for one in fields(self)}
        plain = {name: list(one) if isinstance(one, tuple) else one for name, one in kept.items()}
        return {"transform": type(self).__name__, **plain}


@dataclass(frozen=True, slots=True)
class Copy(Transform):
    """Copy a field to another path, which may lie inside of mappings that are made."""

    READS, WRITES = ("from_field",), ("to_field",)
    from_field: str
    to_field: str

    def apply(self, value: dict[str, Any]) -> None:
        """Copy the field."""
        put_at(value, self.to_field, copied(get_at(value, self.from_field)))


@dataclass(frozen=True, slots=True)
class Move(Copy):
    """The same, and the field is gone where it was."""

    DROPS = ("from_field",)

    def apply(self, value: dict[str, Any]) -> None:
        """Move the field."""
        moved = get_at(value, self.from_field)
        drop_at(value, self.from_field)
        put_at(value, self.to_field, moved)


@dataclass(frozen=True, slots=True)
class Convert(Transform):
    """Turn a field into another kind: `parse_int`, `parse_float` or `to_string`."""

    READS = WRITES = ("field",)
    HOW: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "parse_int": lambda one: _parsed(int, one),
        "parse_float": lambda one: _parsed(float, one),
        "to_string": lambda one: one if isinstance(one, str) else _shown(one),
    }
    field: str
    how: str

    def __post_init__(self) -> None:
        if self.how not in self.HOW:
            raise InvalidSchemaError([f"Convert takes {', '.join(self.HOW)}, not {self.how!r}"])

    def apply(self, value: dict[str, Any]) -> None:
        """Convert the field."""
        put_at(value, self.field, self.HOW[self.how](get_at(value, self.field)))


@dataclass(frozen=True, slots=True)
class Default(Transform):
    """Give a field a value where it has none."""

    WRITES = ("field",)
    field: str
    value: Any

    def apply(self, value: dict[str, Any]) -> None:
        """Set the field, if it is missing."""
        if get_at(value, self.field, CUSTOM) is CUSTOM:  # nobody's value
            put_at(value, self.field, copied(self.value))


@dataclass(frozen=True, slots=True)
class Remove(Transform):
    """Remove a field; one that is missing is no error."""

    DROPS = ("field",)
    field: str

    def apply(self, value: dict[str, Any]) -> None:
        """Remove the field."""
        drop_at(value, self.field)


@dataclass(frozen=True, slots=True)
class Split(Transform):
    """Split a text into a list (`into` one path), or into several fields, at commas."""

    READS, WRITES = ("field",), ("into",)
    field: str
    into: tuple[str, ...]
    how: str = "comma_split"

    def __post_init__(self) -> None:
        if self.how != "comma_split":
            raise InvalidSchemaError([f"Split takes comma_split, not {self.how!r}"])
        object.__setattr__(self, "into", _paths(self.into))

    def apply(self, value: dict[str, Any]) -> None:
        """Split the field."""
        text = get_at(value, self.field)
        if not isinstance(text, str):
            raise TransformError(f"{self.field} is no text that could be split")
        parts: list[Any] = [one.strip() for one in text.split(",")]
        if len(self.into) == 1:
            parts = [parts]
        if len(parts) != len(self.into):
            raise TransformError(f"{self.field} has {len(parts)} parts, not {len(self.into)}")
        for path, part in zip(self.into, parts, strict=True):
            put_at(value, path, part)


@dataclass(frozen=True, slots=True)
class Merge(Transform):
    """Make one field of several: `concat_strings`, `sum_numbers` or `first_non_null`."""

    READS, WRITES = ("fields",), ("into",)
    HOW: ClassVar[tuple[str, ...]] = ("concat_strings", "sum_numbers", "first_non_null")
    fields: tuple[str, ...]
    into: str
    how: str
    separator: str = " "

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _paths(self.fields))
        if self.how not in self.HOW:
            raise InvalidSchemaError([f"Merge takes {', '.join(self.HOW)}, not {self.how!r}"])

    def apply(self, value: dict[str, Any]) -> None:
        """Merge the fields."""
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


@dataclass(frozen=True, slots=True)
class Custom(Transform):
    """Call a function that was registered by `transform(name)`: it gets and returns the value.

    Which fields it writes is for you to say: a check of the migration rests on it.
    """

    WRITES = ("fields",)
    name: str
    fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_text(self.name, "the name of a transform", 100, least=1)
        object.__setattr__(self, "fields", _paths(self.fields))

    def apply(self, value: dict[str, Any]) -> None:
        """Call the function."""
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


KINDS = {one.__name__: one for one in (Copy, Move, Convert, Default, Remove, Split, Merge, Custom)}


def transform_of(data: Mapping[str, Any]) -> Transform:
    """The opposite of `Transform.data`."""
    given = dict(data)
    kind: Any = KINDS.get(given.pop("transform", ""))
    try:
        if kind is None:
            raise TypeError
        plain = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
        if kind is Default:  # its value may be a list
            plain = given
        made: Transform = kind(**plain)
        return made
    except TypeError:
        raise InvalidSchemaError([f"a transform is {', '.join(KINDS)}, with its fields"]) from None


@dataclass(frozen=True, slots=True)
class Step:
    """How values of one version become those of the next."""

    from_version: int
    to_version: int
    transformations: Iterable[Transform] = ()

    def __post_init__(self) -> None:
        found = tuple(listed(self.transformations, "the transforms of a step"))
        versions = (self.from_version, self.to_version)
        if not all(type(one) is int and one >= 1 for one in versions):
            raise InvalidSchemaError(["versions are whole numbers of 1 or more"])
        if self.to_version <= self.from_version:
            raise InvalidSchemaError([f"a step leads to a later version, not from {versions}"])
        if not all(isinstance(one, Transform) for one in found):
            raise InvalidSchemaError(["a step has transforms: Copy(...), Default(...)"])
        object.__setattr__(self, "transformations", found)

    def apply(self, value: Any) -> Any:
        """The value of the next version; the one that is given is not touched."""
        if isinstance(value, Typed) and value.name != SEALED:
            return Typed(value.name, value.version, self.apply(value.value))
        if not isinstance(value, dict):
            raise TransformError("only mappings have fields that can be transformed")
        made: dict[str, Any] = copied(value)
        for one in self.transformations:
            one.apply(made)
        return made

    def data(self) -> dict[str, Any]:
        """Plain data."""
        done = [one.data() for one in self.transformations]
        return {"from": self.from_version, "to": self.to_version, "do": done}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Step:
        """The opposite of `data`."""
        return cls(data["from"], data["to"], [transform_of(one) for one in data["do"]])


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


def _paths(paths: Any) -> tuple[str, ...]:
    return (paths,) if isinstance(paths, str) else tuple(listed(paths, "paths"))


def get_at(value: Any, path: str, default: Any = _MISSING) -> Any:
    """What lies at a dotted path."""
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            if default is _MISSING:
                raise TransformError(f"{path} is missing")
            return default
        value = value[name]
    return value


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
    *names, last = path.split(".")
    for name in names:
        value = value.get(name, {})
        if not isinstance(value, dict):
            return
    value.pop(last, None)


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
