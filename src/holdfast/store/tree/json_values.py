"""Values as JSON and back, without loss.

What JSON has is itself. What it lacks is a mapping with one key that begins with `$`:

    {"$bytes": "aGk="}                              bytes, in base64
    {"$float": "nan"}                               nan, inf, -inf
    {"$int": "36893488147419103232"}                whole numbers beyond ±(2**53 - 1), which many
                                                    programs would round; past 4,000 digits 0x…
    {"$time": "2026-11-15T10:30:00+01:00"}          a datetime with a fixed offset
    {"$time": {"at": "2026-…+01:00", "zone": "Europe/Berlin"}}    with a zone; also "name" (of a
                                                    fixed offset) and "fold" (1: the later of two)
    {"$text": "7aCA"}                               text with lone surrogates, base64 of its bytes
    {"$map": [["$bytes", 1], [7, 2]]}               a mapping with whole numbers as keys, or one
                                                    whose only key begins with $
    {"$object": {"name": "Plan", "version": 1, "fields": {…}}}    an object of a registered class
    {"$erased": true}                               what was sealed for a subject that is erased; it
                                                    is shown, and cannot be written

Not kept: the sign and payload bits of a nan.
"""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, cast

from holdfast.errors import InvalidInputError, InvalidValueError
from holdfast.seal.codec import Typed
from holdfast.seal.registry import check_name
from holdfast.seal.subject_keys import ERASED
from holdfast.store.names.items import LongValue, Masked

SAFE = (1 << 53) - 1
_LONG = 13_000  # bits; Python refuses to print whole numbers of more than 4,300 digits
# Characters that could move a terminal's cursor, or reorder what it shows.
_UNSEEN = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def dumps(value: Any, *, indent: int | None = None) -> str:
    """The text of a value; only valid, visible characters."""
    return write(tagged(value), indent=indent)


def write(plain: Any, *, indent: int | None = None) -> str:
    """The text of something that is JSON already."""
    text = json.dumps(plain, ensure_ascii=False, indent=indent, allow_nan=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def loads(text: str, *, hint: str = "") -> Any:
    """The value of a text; `InvalidValueError` says what is wrong, never what it holds; `hint`
    stands behind that if it is no JSON."""
    try:
        return json.loads(
            text, object_pairs_hook=_mapping, parse_constant=_constant, parse_float=_float
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidValueError(f"the value is not JSON ({error.msg}, {place}){hint}") from None
    except RecursionError:
        raise InvalidValueError("the value is nested too deeply; flatten it") from None
    except ValueError:
        raise InvalidValueError(
            'a whole number has too many digits; write it as {"$int": "0x…"}'
        ) from None


# ---- to JSON -------------------------------------------------------------------------------


def tagged(value: Any) -> Any:
    """The value with everything that JSON lacks in its tagged form."""
    kind = type(value)
    if kind is dict:
        plain = all(type(key) is str for key in value)
        if plain and not (len(value) == 1 and next(iter(value)).startswith("$")):
            return {key: tagged(part) for key, part in value.items()}
        return {"$map": [[tagged(key), tagged(part)] for key, part in value.items()]}
    if kind is list:
        return [tagged(part) for part in value]
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            return {"$text": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
        return value
    if kind is int:
        if -SAFE <= value <= SAFE:
            return value
        return {"$int": str(value) if value.bit_length() <= _LONG else hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    if kind is datetime:
        return {"$time": _time(value)}
    if kind is Masked:
        return {"$sensitive": True}
    if kind is LongValue:
        return {"$long": {"bytes": value.size, "hash": value.hash}}
    if kind is Typed:
        fields = {"name": value.name, "version": value.version, "fields": tagged(value.value)}
        return {"$object": fields}
    return {"$erased": True} if value is ERASED else value  # None, True, False


def _time(value: datetime) -> Any:
    zone = value.tzinfo
    more: dict[str, Any] = {"at": value.isoformat()}
    key = getattr(zone, "key", None)
    if key is not None:
        more["zone"] = key
    elif type(zone) is timezone:
        given = zone.__getinitargs__()  # type: ignore[attr-defined]
        if len(given) > 1:  # only so can a given name be told from one made of the offset
            more["name"] = given[1]
    if value.fold:
        more["fold"] = value.fold
    return more if len(more) > 1 else more["at"]


# ---- from JSON -----------------------------------------------------------------------------


def _mapping(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidValueError("a mapping names one key twice; remove one of them")
    if len(pairs) != 1 or not pairs[0][0].startswith("$"):
        return found
    tag, content = pairs[0]
    read = _TAGS.get(tag)
    if read is None:
        raise InvalidValueError(
            "a mapping whose only key begins with $ is a tag, and this one is unknown; known are "
            f'{", ".join(_TAGS)}. For a plain mapping write {{"$map": [[key, value]]}}'
        )
    try:
        return read(content)
    except (ValueError, TypeError, OverflowError, LookupError, AttributeError, InvalidInputError):
        raise InvalidValueError(f"what {tag} holds does not fit; {_FORMS[tag]}") from None


def _constant(_: str) -> Any:
    raise InvalidValueError('JSON has no NaN or Infinity; write {"$float": "nan"}, "inf" or "-inf"')


def _float(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise InvalidValueError('a number is too large; write {"$float": "inf"} if that is meant')
    return found


_b64 = partial(base64.b64decode, validate=True)


def _odd_float(content: Any) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise ValueError
    return float(content)


def _int(content: Any) -> int:
    if type(content) is not str or not re.fullmatch(r"-?(0x[0-9a-fA-F]+|[0-9]+)", content):
        raise ValueError
    return int(content, 16 if "x" in content else 10)


def _moment(content: Any) -> datetime:
    if type(content) is str:
        content = {"at": content}
    if not content.keys() <= {"at", "zone", "name", "fold"}:
        raise ValueError
    moment = datetime.fromisoformat(content["at"])
    offset = cast(timedelta, moment.utcoffset())
    if offset is None:
        raise ValueError
    zone: Any = timezone(offset, content["name"]) if "name" in content else moment.tzinfo
    if "zone" in content:
        from zoneinfo import ZoneInfo

        zone = ZoneInfo(content["zone"])
    moment = moment.replace(tzinfo=zone, fold=content.get("fold", 0))
    if moment.utcoffset() != offset:
        raise ValueError
    return moment


def _pairs(content: Any) -> dict[Any, Any]:
    if type(content) is not list or any(type(pair) is not list for pair in content):
        raise ValueError
    found = dict(content)
    if len(found) < len(content) or any(type(key) not in (str, int) for key in found):
        raise ValueError
    return found


def _typed(content: Any) -> Typed:
    name, version, fields = content["name"], content["version"], content["fields"]
    if len(content) != 3:
        raise ValueError
    check_name(name, version)
    return Typed(name, version, fields)


_TAGS: dict[str, Any] = {
    "$bytes": _b64,
    "$float": _odd_float,
    "$int": _int,
    "$time": _moment,
    "$text": lambda content: _b64(content).decode("utf-8", "surrogatepass"),
    "$map": _pairs,
    "$object": _typed,
}
_FORMS = {
    "$bytes": "it holds base64",
    "$float": "it holds nan, inf or -inf",
    "$int": "it holds digits, or 0x and hexadecimal digits, as text",
    "$time": "it holds an ISO 8601 time with its offset, or at, zone, name and fold",
    "$text": "it holds base64 of UTF-8 with surrogates",
    "$map": "it holds a list of [key, value] with texts or whole numbers as keys, each once",
    "$object": "it holds name, version and fields",
}
