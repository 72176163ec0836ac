"""Fields of a schema, and the JSON Schema that they become: what is checked is always that.

fields={"user_id": Text(max_length=36), "preferences": Mapping(required=["theme"]),
        "created_at": Timestamp()}
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from collections.abc import Mapping as Mapped
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from holdfast.errors import InvalidSchemaError, MissingExtraError
from holdfast.seal.codec import Typed
from holdfast.store.names.arguments import check_text, listed

MOST_BYTES = 256 << 10
"""Of a document, as JSON."""


@dataclass(frozen=True, slots=True)
class Field:
    """Base of fields. One that is `optional` may be missing."""

    BASE: ClassVar[Mapped[str, Any]] = {}
    """What it is as JSON Schema, whatever its attributes say."""
    SAYS: ClassVar[Mapped[str, str]] = {}
    """What JSON Schema calls what they say."""
    optional: bool = field(default=False, kw_only=True)

    def document(self) -> dict[str, Any]:
        """What it is as JSON Schema."""
        made = dict(self.BASE)
        for name, word in self.SAYS.items():
            if (said := getattr(self, name)) is not None:
                made[word] = said if isinstance(said, int | float | str) else list(said)
        return made


@dataclass(frozen=True, slots=True)
class AnyValue(Field):
    """Whatever can be stored."""


@dataclass(frozen=True, slots=True)
class Text(Field):
    """Text, of bounded length."""

    BASE: ClassVar = {"type": "string"}
    SAYS: ClassVar = {"max_length": "maxLength", "min_length": "minLength", "choices": "enum"}
    max_length: int | None = None
    min_length: int | None = None
    choices: Iterable[str] | None = None


@dataclass(frozen=True, slots=True)
class Number(Field):
    """A number, or with `whole` a whole one."""

    SAYS: ClassVar = {"type": "type", "minimum": "minimum", "maximum": "maximum"}
    minimum: float | None = None
    maximum: float | None = None
    whole: bool = False

    @property
    def type(self) -> str:
        """What JSON Schema calls it."""
        return "integer" if self.whole else "number"


@dataclass(frozen=True, slots=True)
class Flag(Field):
    """True or False."""

    BASE: ClassVar = {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Timestamp(Field):
    """A moment: a datetime with a zone, or the same as ISO 8601 text."""

    BASE: ClassVar = {"type": "string", "format": "date-time"}


@dataclass(frozen=True, slots=True)
class ListOf(Field):
    """A list of items of one kind."""

    BASE, SAYS = {"type": "array"}, {"max_items": "maxItems"}
    items: Field = AnyValue()
    max_items: int | None = None

    def document(self) -> dict[str, Any]:
        """What it is as JSON Schema."""
        return {**Field.document(self), "items": document_of(self.items)}


@dataclass(frozen=True, slots=True)
class Mapping(Field):
    """A mapping: fields that it must have and may have, by their names or with what they are.

    Others are refused, unless `extra` is True.
    """

    required: Iterable[str] | Mapped[str, Field] = ()
    optional: Any = field(default=(), kw_only=True)
    """Fields that may be missing; or True: it may be missing itself."""
    extra: bool = field(default=False, kw_only=True)

    def document(self) -> dict[str, Any]:
        """What it is as JSON Schema."""
        must = _named(self.required)
        may = _named(self.optional) if not isinstance(self.optional, bool) else {}
        return mapping_document({**must, **may}, list(must), extra=self.extra)


def _named(fields: Iterable[str] | Mapped[str, Field]) -> dict[str, Field]:
    """Fields by their names; those that are only named may be anything."""
    if isinstance(fields, Mapped):
        return dict(fields)
    return {name: AnyValue() for name in listed(fields, "the fields of a Mapping")}


def mapping_document(
    fields: Mapped[str, Field], required: Iterable[str], *, extra: bool
) -> dict[str, Any]:
    """The JSON Schema of a mapping."""
    for name in fields:
        check_text(name, "the name of a field", 200, least=1)
    made: dict[str, Any] = {
        "type": "object",
        "properties": {name: document_of(one) for name, one in fields.items()},
        "required": list(required),
    }
    return made if extra else made | {"additionalProperties": False}


def document_of(one: Any) -> dict[str, Any]:
    """What a field is as JSON Schema."""
    if not isinstance(one, Field):
        raise InvalidSchemaError(
            [f"a field is Text(), Number(), Timestamp() and the like, not {type(one).__name__}"]
        )
    return one.document()


# ---- checking -----------------------------------------------------------------------------------


class Checker:
    """Checks values by a JSON Schema, compiled once; needs `holdfast[schemas]`."""

    def __init__(self, document: Mapped[str, Any]) -> None:
        try:
            import jsonschema_rs
        except ImportError:
            raise MissingExtraError(
                "schemas need jsonschema-rs: install holdfast[schemas]"
            ) from None
        try:
            # No reference leads out of the document: nothing is fetched, no file is read.
            self._validator = jsonschema_rs.Draft202012Validator(
                dict(document), validate_formats=True, retriever=_nothing_outside
            )
        except (ValueError, RecursionError) as error:
            said = str(error).partition("\n")[0][:500]
            raise InvalidSchemaError([f"that is no JSON Schema: {said}"]) from None

    def problems(self, value: Any) -> list[str]:
        """All that is wrong with a value in plain form: a path, and what is expected there."""
        form = json_form(value)
        if self._validator.is_valid(form):  # as most are
            return []
        found = []
        for error in self._validator.iter_errors(form):
            steps = (
                f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.instance_path
            )
            found.append(f"{''.join(steps).removeprefix('.') or 'the value'}: {_said(error)}")
        return found


def _nothing_outside(uri: str) -> Any:
    raise ValueError(f"a schema refers to nothing outside of itself, as it does to {uri[:200]}")


def _said(error: Any) -> str:
    """What is expected, without the value: that may be a secret."""
    kind = error.kind
    text, name = _SAID.get(type(kind).__name__.rpartition("_")[2], ("breaks its schema", ""))
    told = getattr(kind, name, "") if name else ""
    told = ", ".join(map(str, told)) if isinstance(told, list) else told
    rule = f" ({error.schema_path[-1]})" if not name and error.schema_path else ""
    return text.format(told) + rule


_SAID = {
    "Type": ("it is to be {}", "types"),
    "Required": ("{} is missing", "property"),
    "AdditionalProperties": ("{} is no field of it", "unexpected"),
    "MaxLength": ("at most {} characters", "limit"),
    "MinLength": ("at least {} characters", "limit"),
    "MaxItems": ("at most {} items", "limit"),
    "MinItems": ("at least {} items", "limit"),
    "Maximum": ("at most {}", "limit"),
    "Minimum": ("at least {}", "limit"),
    "Enum": ("one of {}", "options"),
    "Format": ("it is no {}", "format"),
    "Pattern": ("it does not fit {}", "pattern"),
}
"""What is said of a rule that is broken, and which of its attributes tells more."""


_AS_THEY_ARE = frozenset([str, int, bool, type(None)])


def json_form(value: Any) -> Any:
    """A value in plain form as JSON has it: moments and bytes as text, objects as their data."""
    kind = type(value)
    if kind is dict:
        return {
            str(name): one if type(one) in _AS_THEY_ARE else json_form(one)
            for name, one in value.items()
        }
    if kind is list:
        return [one if type(one) in _AS_THEY_ARE else json_form(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Typed):
        return json_form(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
