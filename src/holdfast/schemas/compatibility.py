"""Whether data of one version can be read by another, and how dangerous a migration is.

Compared are the properties of two JSON Schemas, into mappings at any depth, by dotted paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.schemas.transforms import Custom, Default, Merge, Step

LEVELS = ("none", "backward", "forward", "full")
"""Of `compatible`: no check; newer schemas read older data; older ones read newer data; both."""
VALIDATION = ("none", "basic", "strict", "paranoid")
RISKS = ("low", "medium", "high", "critical")
_ALL = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_NARROWER = (
    *(("maxLength", -1), ("maxItems", -1), ("maxProperties", -1)),
    *(("minLength", 1), ("minItems", 1), ("minProperties", 1)),
    *(("maximum", -1), ("exclusiveMaximum", -1), ("minimum", 1), ("exclusiveMinimum", 1)),
)
"""Bounds, and in which direction they leave out what was allowed."""
_EXACT = ("const", "format", "multipleOf", "pattern", "uniqueItems")
"""What may have been left out, and otherwise has to be as it was."""


@dataclass(frozen=True, slots=True)
class MigrationCheck:
    """What is to be said of a migration between two schemas."""

    errors: tuple[str, ...]
    risk: str
    """low, medium, high or critical"""
    reasons: tuple[str, ...]
    """Why it is not lower."""

    @property
    def is_valid(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.errors


_Field = tuple[Mapping[str, Any], bool]
Fields = dict[str, _Field]
"""By the dotted path of each property what it is, and whether it must be there.

Items of a list lie at `[]`, the value itself at ''.
"""
_FITS: Mapping[str, Any] = {}
"""What a step has made, which counts as fitting."""


def fields_of(document: Mapping[str, Any]) -> Fields:
    """The fields of a schema; a reference within itself ends there."""
    import jsonschema_rs

    return dict(_fields(jsonschema_rs.dereference(dict(document)), "", must=True))


def _fields(one: Any, path: str, *, must: bool) -> Iterator[tuple[str, _Field]]:
    document = one if isinstance(one, Mapping) else {}
    yield path, (document, must)
    required = document.get("required", ())
    for name, inner in document.get("properties", {}).items():
        yield from _fields(inner, f"{path}.{name}".removeprefix("."), must=name in required)
    if "items" in document:
        yield from _fields(document["items"], f"{path}[]", must=False)


def led(fields: Fields, steps: Iterable[Step]) -> tuple[Fields, list[str], list[str]]:
    """Fields as steps leave them, what those read that is not there, and what they write over."""
    there, missing, over = dict(fields), list[str](), list[str]()
    for one in (one for step in steps for one in step.transformations):
        said = f"which {type(one).__name__} reads, is no field"
        reads = one.paths(one.READS)
        missing += [f"{path}, {said}" for path in reads if path not in there]
        found = [there.get(path, (_FITS, False)) for path in reads]
        must = all(sure for _, sure in found)  # where what it reads is missing it does nothing
        if isinstance(one, Merge):  # it takes what is there, and not null
            must = any(sure and (old is _FITS or "null" not in _types(old)) for old, sure in found)
        for path in one.paths(one.DROPS):
            there.pop(path, None)
        for path in one.paths(one.WRITES):
            if path in there and path not in reads and not isinstance(one, Default):
                over.append(f"{path} would be written over")
            there[path] = (_FITS, must or there.get(path, (_FITS, False))[1])
            while path := path.rpartition(".")[0]:  # mappings on the way are made
                kind, was = there.get(path, ({"type": "object"}, False))
                there[path] = (kind, must or was)
    return there, missing, over


def unreadable(reader: Fields, data: Fields) -> list[str]:
    """What a schema would refuse of data that another one allows, field by field."""
    fits = {path for path, (old, _) in data.items() if old is _FITS}
    problems = []
    for path, (new, must) in reader.items():
        if path not in fits and path.rpartition(".")[0] in fits:
            fits.add(path)
        elif path in data:
            old, was = data[path]
            found = ["is required, and was optional"] if must and not was else []
            found += _narrowed(new, old) if path not in fits else []
            problems += [f"{path or 'the value'}: {text}" for text in found]
        elif must:
            problems.append(f"{path}: is required, and older data do not have it")
    for path in data:
        if path not in reader and _closed(reader.get(path.rpartition(".")[0], ({}, False))[0]):
            problems.append(f"{path}: is no field of it any more")
    return problems


def _closed(document: Mapping[str, Any]) -> bool:
    return document.get("additionalProperties") is False


def _narrowed(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    """What one leaves out that the other allows, but for what lies inside."""
    if not _types(old) <= _types(new):
        yield f"its type is {' or '.join(sorted(_types(new)))} now"
    for name, direction in _NARROWER:
        bound, was = new.get(name), old.get(name)
        if bound is not None and (was is None or (bound - was) * direction > 0):
            yield f"{name} is {bound} now"
    for name in _EXACT:
        if new.get(name) not in (None, False, old.get(name)):
            yield f"{name} is {new[name]} now"
    choices, were = new.get("enum"), old.get("enum")
    if choices is not None and (were is None or not all(one in choices for one in were)):
        yield "fewer choices are allowed now"
    if _closed(new) and "properties" in old and not _closed(old):
        yield "other fields are refused now"


def _types(document: Any) -> frozenset[str]:
    """The types that a schema allows. A whole number is a number."""
    if not isinstance(document, Mapping):
        return _ALL
    kind, either = document.get("type"), document.get("anyOf")
    if kind is None:
        return frozenset().union(*map(_types, either)) if either else _ALL
    found = frozenset([kind] if isinstance(kind, str) else kind)
    return found | {"integer"} if "number" in found else found


def check_migration(
    old: Mapping[str, Any], new: Mapping[str, Any], steps: list[Step], level: str
) -> MigrationCheck:
    """Whether steps lead from the data of one schema to those of another.

    `basic`: what the transforms read is there. `strict`: what they leave fits the newer schema.
    `paranoid`: nothing of the older data is lost or written over, and no function decides.
    """
    if level not in VALIDATION:
        raise InvalidInputError(f"level is {', '.join(VALIDATION)}")
    known, targets = fields_of(old), fields_of(new)
    there, missing, lost = led(known, steps)
    broken = unreadable(targets, there)
    done = [one for step in steps for one in step.transformations]
    kept = {*targets, *(path for one in done for path in one.paths(one.READS))}
    lost += [f"{path} would be lost" for path in known if path not in kept]
    lost += [f"the function {one.name} decides" for one in done if isinstance(one, Custom)]
    checks = [missing, broken, lost][: VALIDATION.index(level)]
    reasons = [("critical", problem) for problem in broken]
    reasons += [(one.RISK, repr(one)) for one in done if one.RISK != "low"]
    risk = max((risk for risk, _ in reasons), key=RISKS.index, default="low")
    said = tuple(f"{risk}: {text}" for risk, text in reasons)
    return MigrationCheck(tuple(text for some in checks for text in some), risk, said)
