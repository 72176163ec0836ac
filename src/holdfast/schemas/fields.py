"""Fields of a schema, and the JSON Schema that they become: what is checked is always that.

fields={"user_id": Text(max_length=36), "preferences": Mapping(required=["theme"]),
        "created_at": Timestamp()}
"""

from __future__ import annotations

from collections.abc import Mapping as Mapped
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from holdfast.errors import InvalidSchemaError, MissingExtraError
from holdfast.store.names.arguments import check_text, listed


class Field(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base of fields."""

    BASE: ClassVar[Mapped[str, Any]] = {}
    """What it is as JSON Schema, whatever its attributes say; those have its names."""

    def document(self) -> dict[str, Any]:
        """What it is as JSON Schema."""
        made = {**self.BASE, **msgspec.to_builtins(self)}
        made.pop("optional", None)
        return made


class AnyValue(Field, frozen=True, kw_only=True):
    """Whatever can be stored. One that is `optional` may be missing, as those below may be."""

    optional: bool = False


class Text(AnyValue, frozen=True):
    """Text, of bounded length."""

    BASE = {"type": "string"}
    max_length: int | None = None
    min_length: int | None = None
    choices: Sequence[str] | None = msgspec.field(default=None, name="enum")


class Number(AnyValue, frozen=True):
    """A number, or with `whole` a whole one."""

    minimum: float | None = None
    maximum: float | None = None
    whole: bool = False

    def document(self) -> dict[str, Any]:
        """What it is as JSON Schema."""
        made = Field.document(self)
        return {"type": "integer" if made.pop("whole", False) else "number", **made}


class Flag(AnyValue, frozen=True):
    """True or False."""

    BASE = {"type": "boolean"}


class Timestamp(AnyValue, frozen=True):
    """A moment: a datetime with a zone, or the same as ISO 8601 text."""

    BASE = {"type": "string", "format": "date-time"}


class ListOf(AnyValue, frozen=True):
    """A list of items of one kind."""

    BASE = {"type": "array"}
    items: Field = AnyValue()
    max_items: int | None = None

    def document(self) -> dict[str, Any]:
        """What it is as JSON Schema."""
        return {**Field.document(self), "items": document_of(self.items)}


class Mapping(Field, frozen=True):
    """A mapping: fields that it must have and may have, by their names or with what they are.

    Others are refused, unless `extra` is True.
    """

    required: Sequence[str] | Mapped[str, Field] = ()
    optional: Any = ()
    """Fields that may be missing; or True: it may be missing itself."""
    extra: bool = False

    def document(self) -> dict[str, Any]:
        """What it is as JSON Schema."""
        must = _named(self.required)
        may = _named(self.optional) if not isinstance(self.optional, bool) else {}
        made: dict[str, Any] = {
            "type": "object",
            "properties": {name: document_of(one) for name, one in {**must, **may}.items()},
            "required": list(must),
        }
        return made if self.extra else made | {"additionalProperties": False}


def _named(fields: Any) -> dict[str, Any]:
    """Fields by their names; those that are only named may be anything."""
    if not isinstance(fields, Mapped):
        fields = dict.fromkeys(listed(fields, "the fields of a Mapping"), AnyValue())
    for name in fields:
        check_text(name, "the name of a field", 200, least=1)
    return dict(fields)


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
            # No reference leads out of the document: nothing is fetched, no file is read. What is
            # said of a value does not show it: it may be a secret.
            self._validator = jsonschema_rs.Draft202012Validator(
                dict(document), validate_formats=True, offline=True, mask="it"
            )
        except (ValueError, RecursionError) as error:
            said = str(error).partition("\n")[0][:500]
            raise InvalidSchemaError([f"that is no JSON Schema: {said}"]) from None

    def problems(self, value: Any) -> list[str]:
        """All that is wrong with a value in plain form: a path, and what is expected there."""
        # As JSON has it: moments and bytes as text, objects (`Typed`) as their data.
        form = msgspec.to_builtins(value, str_keys=True, enc_hook=lambda one: one.value)
        if self._validator.is_valid(form):  # as most are
            return []
        found = []
        for error in self._validator.iter_errors(form):
            steps = (
                f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.instance_path
            )
            found.append(f"{''.join(steps).removeprefix('.') or 'the value'}: {error.message}")
        return found
