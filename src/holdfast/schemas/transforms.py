"""Transforms: what a step of a migration does to a value, by dotted paths of its fields.

Step(1, 2, [Copy("lang", "preferences.language"), Remove("lang")])

Each is plain data, kept with the schema, and checks both ends: where what it reads is missing there
is nothing to do, and where it writes there must be room.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.errors import InvalidSchemaError, TransformError
from holdfast.seal.codec import Typed
from holdfast.seal.subject_keys import SEALED
from holdfast.store.inner import copied
from holdfast.store.names.arguments import check_plain_function, check_text

CUSTOM: dict[str, Callable[[dict[str, Any]], Any]] = {}
"""Functions that `Custom` names, by `transform`."""
_MISSING: Any = object()


def transform(name: str) -> Callable[[Any], Any]:
    """Register a function for `Custom(name)`: it gets the value, and returns what it becomes."""
    check_text(name, "the name of a transform", 100, least=1)

    def add(function: Any) -> Any:
        check_plain_function(function, "a transform")
        CUSTOM[name] = function
        return function

    return add


class Transform(Struct, frozen=True, dict=True, tag=True, tag_field="transform"):
    """Base of transforms, which say by the names of their fields which paths have to be there
    before, are there afterwards and are gone afterwards; and how risky they are."""

    READS: ClassVar[tuple[str, ...]] = ()
    WRITES: ClassVar[tuple[str, ...]] = ()
    DROPS: ClassVar[tuple[str, ...]] = ()
    RISK: ClassVar[str] = "low"
    ABSENT: ClassVar[Any] = _MISSING
    """What stands for a field that is missing; where nothing else is read, nothing is done."""

    def paths(self, names: tuple[str, ...]) -> list[str]:
        """What its fields of these names say: `READS`, `WRITES` or `DROPS`."""
        said = [getattr(self, name) for name in names]
        return [one for some in said for one in ([some] if type(some) is str else some)]

    def _apply(self, value: dict[str, Any]) -> None:
        """Do it to a value, in place; `TransformError` says what does not fit."""
        reads, drops, writes = self._paths
        found = [get_at(value, path, self.ABSENT) for path in reads]
        if found and all(one is self.ABSENT for one in found):
            return  # what the newer schema requires is checked behind the steps
        made = self._made(found)
        for path in drops:
            inner, last = _inside(value, path)
            inner.pop(last, None)
        for path, one in zip(writes, made, strict=True):
            put_at(value, path, one)

    @cached_property
    def _paths(self) -> tuple[list[str], ...]:
        return self.paths(self.READS), self.paths(self.DROPS), self.paths(self.WRITES)

    def _made(self, found: list[Any]) -> list[Any]:
        """What it writes, of what it has read."""
        return found


class Copy(Transform, frozen=True):
    """Copy a field to another path, which may lie inside of mappings that are made."""

    READS, WRITES = ("from_field",), ("to_field",)
    from_field: str
    to_field: str

    def _made(self, found: list[Any]) -> list[Any]:
        return copied(found)


class Move(Copy, frozen=True):
    """The same, and the field is gone where it was."""

    DROPS = ("from_field",)


class Convert(Transform, frozen=True):
    """Turn a field into another kind: `parse_int`, `parse_float` or `to_string`."""

    READS, WRITES, RISK = ("field",), ("field",), "medium"
    field: str
    how: Literal["parse_int", "parse_float", "to_string"]

    def _made(self, found: list[Any]) -> list[Any]:
        one = found[0].strip() if isinstance(found[0], str) else found[0]
        kind = {"parse_int": int, "parse_float": float}.get(self.how)
        if kind is not None:
            said = f"{self.field} cannot be made {kind.__name__}"
            made = _as(kind, one, said, strict=False)
            with suppress(ValueError):  # a text with a fraction is the float that is nearest to it
                if type(one) in (int, str) and int(one) != made:
                    raise TransformError(f"{said} without rounding it")
            return [made]
        if isinstance(one, str):
            return found
        said = f"{self.field}: only numbers, flags and None become text"
        return [json.dumps(_as(bool | int | float | None, one, said))]


class Default(Transform, frozen=True):
    """Give a field a value where it has none."""

    WRITES = ("field",)
    field: str
    value: Any

    def _apply(self, value: dict[str, Any]) -> None:
        if get_at(value, self.field, _MISSING) is _MISSING:
            put_at(value, self.field, copied(self.value))


class Remove(Transform, frozen=True):
    """Remove a field; one that is missing is no error."""

    DROPS, RISK = ("field",), "high"
    field: str


class Split(Transform, frozen=True):
    """Split a text into a list (`into` one path), or into several fields, at commas."""

    READS, WRITES, RISK = ("field",), ("into",), "medium"
    field: str
    into: list[str]
    how: Literal["comma_split"] = "comma_split"

    def __post_init__(self) -> None:
        if isinstance(self.into, str):
            force_setattr(self, "into", [self.into])

    def _made(self, found: list[Any]) -> list[Any]:
        text = _as(str, found[0], f"{self.field} is no text")
        parts = [one.strip() for one in text.split(",")]
        if len(self.into) == 1:
            return [parts]
        if len(parts) != len(self.into):
            raise TransformError(f"{self.field} has {len(parts)} parts, not {len(self.into)}")
        return parts


class Merge(Transform, frozen=True):
    """Make one field of those not null: `concat_strings`, `sum_numbers` or `first_non_null`."""

    READS, WRITES, RISK, ABSENT = ("fields",), ("into",), "medium", None
    fields: list[str]
    into: str
    how: Literal["concat_strings", "sum_numbers", "first_non_null"]
    separator: str = " "

    def _made(self, found: list[Any]) -> list[Any]:
        there = [one for one in found if one is not None]
        made: Any = there[0]
        if self.how == "concat_strings":
            said = f"{', '.join(self.fields)} are not all texts"
            made = self.separator.join(_as(list[str], there, said))
        elif self.how == "sum_numbers":
            said = f"{', '.join(self.fields)} are not all numbers"
            made = sum(_as(list[int | float], there, said))
        return [made]


class Custom(Transform, frozen=True):
    """Call a function that was registered by `transform(name)`: it gets and returns the value.

    Which fields it writes is for you to say: a check of the migration rests on it.
    """

    WRITES, RISK = ("fields",), "high"
    name: str
    fields: Sequence[str] = ()

    @property
    def function(self) -> Callable[[dict[str, Any]], Any]:
        """What is registered; refused if nothing is."""
        if self.name not in CUSTOM:
            raise TransformError(
                f"there is no transform {self.name!r} here; import the module that registers it "
                "(on the command line: --module MODULE)"
            )
        return CUSTOM[self.name]

    def _apply(self, value: dict[str, Any]) -> None:
        function = self.function
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


AnyTransform = Copy | Move | Convert | Default | Remove | Split | Merge | Custom


class Step(
    Struct,
    frozen=True,
    rename={"from_version": "from", "to_version": "to", "transformations": "do"},
):
    """How values of one version become those of the next. As plain data it is kept with a schema:
    see `msgspec.to_builtins` and `convert`."""

    from_version: int
    to_version: int
    transformations: Sequence[AnyTransform] = ()

    def __post_init__(self) -> None:
        versions = (self.from_version, self.to_version)
        if not all(type(one) is int for one in versions) or not 0 < versions[0] < versions[1]:
            raise InvalidSchemaError(
                [f"a step leads from a version of 1 or more to a later one, not from {versions}"]
            )
        try:  # as it is read again
            plain = msgspec.to_builtins(self.transformations, builtin_types=(bytes, datetime))
            found = msgspec.convert(plain, list[AnyTransform])
        except (msgspec.ValidationError, TypeError) as error:
            raise InvalidSchemaError(
                [f"a step has transforms that are known, as Copy('a', 'b'): {error}"]
            ) from None
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


# ---- paths --------------------------------------------------------------------------------------


def get_at(value: Any, path: str, default: Any) -> Any:
    """What lies at a dotted path."""
    inner, last = _inside(value, path)
    return inner.get(last, default)


def put_at(value: dict[str, Any], path: str, new: Any) -> None:
    """Put something at a dotted path; mappings on the way are made."""
    inner, last = _inside(value, path, make=True)
    inner[last] = new


def _inside(value: Any, path: str, *, make: bool = False) -> tuple[dict[str, Any], str]:
    """The mapping that a dotted path ends in, an empty one if there is none; and the last name."""
    *names, last = path.split(".")
    for name in names:
        value = value.setdefault(name, {}) if make else value.get(name, {})
        if make and not isinstance(value, dict):
            raise TransformError(f"{path} leads through {name}, which is no mapping")
        if not isinstance(value, dict):
            return {}, last
    return value, last


def _as(kind: Any, one: Any, said: str, *, strict: bool = True) -> Any:
    """A value as one of a kind; refused with what is said if it is none."""
    try:
        return msgspec.convert(one, kind, strict=strict)
    except msgspec.ValidationError:
        raise TransformError(said) from None
