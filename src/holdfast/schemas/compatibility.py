"""Whether data of one version can be read by another, and how dangerous a migration is.

Compared are the properties of two JSON Schemas, into mappings at any depth, by dotted paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import InvalidInputError
from holdfast.schemas.transforms import Convert, Custom, Merge, Remove, Split, Step

LEVELS = ("none", "backward", "forward", "full")
"""Of `compatible`: no check; newer schemas read older data; older ones read newer data; both."""
VALIDATION = ("none", "basic", "strict", "paranoid")
RISKS = ("low", "medium", "high", "critical")
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


def paths_of(
    root: Mapping[str, Any], part: Any = None, before: str = "", led: tuple[str, ...] = ()
) -> Iterator[tuple[str, Any, bool]]:
    """(dotted path, its schema, whether it must be there) of all properties; `[]` for items.

    `part` lies at a path; `led` are the references on the way, of which none is followed twice.
    """
    document, led = _resolved(root, root if part is None else part, led)
    required = set(document.get("required", ()))
    named = document.get("properties", {})
    inside = [(f".{name}", one, name in required) for name, one in named.items()]
    if "items" in document:
        inside.append(("[]", document["items"], False))
    for name, inner, must in inside:
        path = f"{before}{name}".removeprefix(".")
        yield path, _resolved(root, inner, led)[0], must
        yield from paths_of(root, inner, path, led)


def _resolved(
    root: Mapping[str, Any], document: Any, led: tuple[str, ...]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """What a reference within the document leads to."""
    while isinstance(document, Mapping) and (there := document.get("$ref")) is not None:
        if not isinstance(there, str) or there in led or not there.startswith("#"):
            return {}, led
        led = (*led, there)
        document = root
        for name in there[1:].split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            document = document.get(name, {}) if isinstance(document, Mapping) else {}
    return (document if isinstance(document, Mapping) else {}), led


def unreadable(
    reader: Mapping[str, Any], data: Mapping[str, Any], steps: Iterable[Step] = ()
) -> list[str]:
    """What a schema would refuse of data that another one allows, field by field.

    What steps fill counts as there, what they remove as gone, what they convert as fitting.
    """
    done = [one for step in steps for one in step.transformations]
    filled = {path for one in done for path in one.paths(one.WRITES)}
    gone = {path for one in done for path in one.paths(one.DROPS)}
    there = {path: (inner, must) for path, inner, must in paths_of(data) if path not in gone}
    problems = []
    for path, inner, must in paths_of(reader):
        # What a step fills inside of a mapping makes the mapping, too.
        if path in filled or any(one.startswith(f"{path}.") for one in filled):
            continue
        if path not in there:
            if must:
                problems.append(f"{path} is required, and older data do not have it")
            continue
        old, was_must = there[path]
        if must and not was_must:
            problems.append(f"{path} is required, and was optional")
        problems += [f"{path}: {text}" for text in _narrowed(inner, old)]
    known = {path: inner for path, inner, _ in paths_of(reader)}
    known[""], before = _resolved(reader, reader, ())[0], _resolved(data, data, ())[0]
    above = {path: path.rpartition(".")[0] for path in there}
    lost = [path for path in there if path not in known and _closed(known.get(above[path]))]
    problems += [f"{path} is not a field any more" for path in lost]
    for path, inner in known.items():
        old = before if not path else there.get(path, ({},))[0]
        if _closed(inner) and "properties" in old and not _closed(old):
            problems.append(f"{path or 'the value'}: other fields are refused now")
    return problems


def _closed(document: Any) -> bool:
    return isinstance(document, Mapping) and document.get("additionalProperties") is False


def _narrowed(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    found = []
    kinds, before = _types(new), _types(old)
    if kinds is not None and (before is None or not before <= kinds):
        found.append(f"its type is {' or '.join(sorted(kinds))} now")
    for name, direction in _NARROWER:
        bound, was = new.get(name), old.get(name)
        if bound is not None and (was is None or (bound - was) * direction > 0):
            found.append(f"{name} is {bound} now")
    choices, were = new.get("enum"), old.get("enum")
    if choices is not None and (were is None or not all(one in choices for one in were)):
        found.append("fewer choices are allowed now")
    return found


def _types(document: Mapping[str, Any]) -> set[str] | None:
    """The types that a schema allows; None for all. A whole number is a number."""
    kind, either = document.get("type"), document.get("anyOf")
    if kind is None and either:
        some = [_types(one) if isinstance(one, Mapping) else None for one in either]
        return None if None in some else {name for one in some for name in one or ()}
    if kind is None:
        return None
    found = {kind} if isinstance(kind, str) else set(kind)
    return found | {"integer"} if "number" in found else found


def check_compatible(
    level: str, old: Mapping[str, Any], new: Mapping[str, Any], steps: Iterable[Step]
) -> list[str]:
    """What keeps a newer schema from being declared behind an older one."""
    problems = []
    if level in ("backward", "full"):
        problems += unreadable(new, old, steps)
    if level in ("forward", "full"):
        problems += [f"{text} (for older readers)" for text in unreadable(old, new)]
    return problems


def check_migration(
    old: Mapping[str, Any], new: Mapping[str, Any], steps: list[Step], level: str
) -> MigrationCheck:
    """Whether steps lead from the data of one schema to those of another.

    `basic`: what the transforms read is there. `strict`: what they leave fits the newer schema.
    `paranoid`: nothing of the older data is lost, and no function decides.
    """
    if level not in VALIDATION:
        raise InvalidInputError(f"level is {', '.join(VALIDATION)}")
    errors: list[str] = []
    done = [one for step in steps for one in step.transformations]
    known = {path for path, _, _ in paths_of(old)}
    targets = {path for path, _, _ in paths_of(new)}
    if level != "none":
        there = set(known)
        for one in done:
            missing = [path for path in one.paths(one.READS) if path not in there]
            errors += [f"{path}, which {type(one).__name__} reads, is no field" for path in missing]
            there = (there | set(one.paths(one.WRITES))) - set(one.paths(one.DROPS))
    if level in ("strict", "paranoid"):
        errors += unreadable(new, old, steps)
        stray = {path for one in done for path in one.paths(one.WRITES)} - targets
        errors += [f"{path} is no field of the newer schema" for path in sorted(stray)]
    if level == "paranoid":
        read = {path for one in done for path in one.paths(one.READS)}
        lost = [path for path in known if path not in targets and path not in read]
        errors += [f"{path} would be lost" for path in sorted(lost)]
        errors += [f"the function {one.name} decides" for one in done if isinstance(one, Custom)]
    reasons = [("critical", problem) for problem in unreadable(new, old, steps)]
    for one in done:
        if isinstance(one, Custom):
            reasons.append(("high", f"the function {one.name} decides what becomes of a value"))
        elif isinstance(one, Remove):
            reasons.append(("high", f"{one.field} is removed"))
        elif isinstance(one, Convert | Split | Merge):
            made = ", ".join(one.paths(one.WRITES))
            reasons.append(("medium", f"{made} is made of something else"))
    worst = max((RISKS.index(risk) for risk, _ in reasons), default=0)
    said = tuple(f"{risk}: {text}" for risk, text in reasons)
    return MigrationCheck(tuple(errors), RISKS[worst], said)
