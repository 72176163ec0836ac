"""Values as the type that a reader asked for, and what is told where they do not fit."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from holdfast.errors import InvalidValueError
from holdfast.seal.codec import step_text


def convert(value: Any, type_: Any, what: str) -> Any:
    """The value as `type_`: a builtin, dataclass, Struct, enum, container type or model.

    Raises `InvalidValueError` that says of `what` where it does not fit, and what was expected,
    never the value.
    """
    if isinstance(type_, type) and type(value) is type_:
        return value
    validate = getattr(type_, "model_validate", None)
    if isinstance(type_, enum.EnumMeta):
        validate = type_  # msgspec knows only enums of text or of numbers
    try:
        return validate(value) if validate else msgspec.convert(value, type_)
    except Exception as error:
        text, path = complaints(error)[0]
    wanted = getattr(type_, "__qualname__", None) or str(type_)
    raise InvalidValueError(f"{what} does not fit {wanted}: {text} at {path}", path)


def complaints(error: Exception) -> list[tuple[str, str]]:
    """What msgspec or pydantic says is wrong, and where; no text that would repeat a value.

    Of what a class raised itself, such as in `__post_init__`, the kind only.
    """
    if isinstance(error, msgspec.ValidationError):
        own = error.__cause__  # msgspec repeats its text, and says the path behind it
        said = str(error) if own is None else str(error)[len(str(own)) :]
        text, _, path = said.partition(" - at `")
        if own is not None:
            text = f"{type(own).__name__} was raised"
        elif not text.startswith(("Expected", "Object missing", "Object contains")):
            text = "a part is not allowed there"
        return [(text, path.rstrip("`") or "$")]
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return [(f"{type(error).__name__} was raised", "$")]
    found = errors(include_input=False, include_url=False, include_context=False)
    return [(str(one["type"]), "$" + "".join(map(step_text, one["loc"]))) for one in found]
