"""Whether data of one version can be read by another, and how dangerous a migration is.

Compared are the properties of two JSON Schemas, into mappings at any depth, by dotted paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.schemas.transforms import Custom, Step

LEVELS = ("none", "backward", "forward", "full")
"""Of `compatible`: no check; newer schemas read older data; older ones read newer data; both."""
VALIDATION = ("none", "basic", "strict", "paranoid")
RISKS = ("low", "medium", "high", "critical")
_ALL = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_NARROWER = (
    *(("maxLength", -1), ("maxItems", -1), ("maximum", -1)),
    *(("minLength", 1), ("minItems", 1), ("minimum", 1)),
)
"""Bounds, and in which direction they leave out what was allowed."""


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


def fields_of(document: Mapping[str, Any]) -> dict[str, tuple[Mapping[str, Any], bool]]:
    """By the dotted path of each property what it is, and whether it must be there.

    Items of a list lie at `[]`, the value itself at ''. A reference within itself ends there.
    """
    import jsonschema_rs

    return dict(_fields(jsonschema_rs.dereference(dict(document)), "", must=True))


def _fields(
    one: Any, path: str, *, must: bool
) -> Iterator[tuple[str, tuple[Mapping[str, Any], bool]]]:
    document = one if isinstance(one, Mapping) else {}
    yield path, (document, must)
    required = document.get("required", ())
    for name, inner in document.get("properties", {}).items():
        yield from _fields(inner, f"{path}.{name}".removeprefix("."), must=name in required)
    if "items" in document:
        yield from _fields(document["items"], f"{path}[]", must=False)


def unreadable(
    reader: Mapping[str, Any], data: Mapping[str, Any], steps: Iterable[Step] = ()
) -> list[str]:
    """What a schema would refuse of data that another one allows, field by field.

    What steps fill counts as there, what they remove as gone, what they convert as fitting.
    """
    done = [one for step in steps for one in step.transformations]
    filled = [path for one in done for path in one.paths(one.WRITES)]
    gone = {path for one in done for path in one.paths(one.DROPS)}
    known = fields_of(reader)
    there = {path: one for path, one in fields_of(data).items() if path not in gone}
    problems = []
    for path, (new, must) in known.items():
        # What a step fills inside of a mapping makes the mapping, too.
        if any(f"{one}.".startswith(f"{path}.") for one in filled):
            continue
        if path in there:
            old, was = there[path]
            found = ["is required, and was optional"] if must and not was else []
            problems += [
                f"{path or 'the value'}: {text}" for text in [*found, *_narrowed(new, old)]
            ]
        elif must:
            problems.append(f"{path}: is required, and older data do not have it")
    for path in there:
        if path not in known and _closed(known.get(path.rpartition(".")[0], ({}, False))[0]):
            problems.append(f"{path}: is not a field any more")
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
    `paranoid`: nothing of the older data is lost, and no function decides.
    """
    if level not in VALIDATION:
        raise InvalidInputError(f"level is {', '.join(VALIDATION)}")
    done = [one for step in steps for one in step.transformations]
    known, targets, broken = fields_of(old), fields_of(new), unreadable(new, old, steps)
    basic, there, read, written = list[str](), set(known), set[str](), set[str]()
    for one in done:
        reads, writes = one.paths(one.READS), one.paths(one.WRITES)
        missing = [path for path in reads if path not in there]
        basic += [f"{path}, which {type(one).__name__} reads, is no field" for path in missing]
        there = there.union(writes).difference(one.paths(one.DROPS))
        read.update(reads)
        written.update(writes)
    stray = [f"{path} is no field of the newer schema" for path in sorted(written - set(targets))]
    lost = [f"{path} would be lost" for path in sorted(set(known) - set(targets) - read)]
    lost += [f"the function {one.name} decides" for one in done if isinstance(one, Custom)]
    checks = [basic, [*broken, *stray], lost][: VALIDATION.index(level)]
    reasons = [("critical", problem) for problem in broken]
    reasons += [(one.RISK, repr(one)) for one in done if one.RISK != "low"]
    risk = max((risk for risk, _ in reasons), key=RISKS.index, default="low")
    said = tuple(f"{risk}: {text}" for risk, text in reasons)
    return MigrationCheck(tuple(text for some in checks for text in some), risk, said)
