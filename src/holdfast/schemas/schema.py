"""Schemas: what values below a prefix have to be, in versions.

state.declare(Schema("profile", version=1, prefix="profiles/", fields={"user_id": Text()}))

A schema is a declaration of a scope, like a lookup: every process that writes the scope keeps to
it. The declaration is small; the document with all it says lies beside it, `$schema/NAME/VERSION`,
and stays when a newer version is declared.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from holdfast.errors import (
    DamagedRecordError,
    InvalidSchemaError,
    SchemaViolationError,
    TransformError,
)
from holdfast.schemas.compatibility import LEVELS, fields_of, led, unreadable
from holdfast.schemas.fields import Checker, Field
from holdfast.schemas.fields import Mapping as MappingOf
from holdfast.schemas.transforms import Step
from holdfast.store.inner import CheckingDeclaration, Declaration, Owned
from holdfast.store.names.arguments import check_count, check_flag, check_text, listed
from holdfast.store.names.patterns import MOST
from holdfast.store.names.scope import Scope

DOCUMENTS = Owned("$schema/", restore=Owned.STAY, merge=Owned.UNION)
"""NAME/VERSION: all that a schema says. It stays when the state goes back, as declarations do."""
MIGRATIONS = Owned("$migrations/", restore=Owned.STAY, copy=Owned.NOWHERE)
"""NAME, or NAME/KEY of one value: how far a migration of the scope is."""
_SEMANTIC = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
MOST_KNOWN = 256
"""Schemas whose documents a process remembers."""
_known: OrderedDict[str, Schema] = OrderedDict()
_WHOLE = ("minItems", "maxItems", "uniqueItems", "contains", "prefixItems", "enum", "const")
"""What JSON Schema says of a list as a whole."""
_HERE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""What it says of the value itself, and not of what is in it."""
_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, order=True, slots=True)
class SemanticVersion:
    """MAJOR.MINOR.PATCH, for people: what counts is the version."""

    major: int
    minor: int = 0
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> SemanticVersion:
        """The opposite of `str`."""
        found = _SEMANTIC.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidSchemaError([f"semantic is MAJOR.MINOR.PATCH, as 2.1.0, not {text!r}"])
        return cls(*map(int, found.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True)
class SchemaRule(CheckingDeclaration):
    """That values below a prefix are of a schema."""

    kind: ClassVar[str] = "schema"
    name: str = ""
    """What it is known by; a newer version takes its place."""
    version: int = 1
    digest: str = ""

    @property
    def place(self) -> str:
        """Where the document lies."""
        return f"{DOCUMENTS.prefix}{self.name}/{self.version}"

    def schema(self, read: Callable[[str], Any]) -> Schema:
        """All that it says; `read` gives values of the scope's keys."""
        if isinstance(self, Schema):
            return self
        found = _known.get(self.digest)
        if found is None:
            data = read(self.place)
            found = Schema.of_document(data) if isinstance(data, Mapping) else None
            if found is None or found.digest != self.digest:
                raise DamagedRecordError(
                    f"the document of the schema {self.name!r}, version {self.version}, is not "
                    f"there or not as it was: declare it again",
                    self.place,
                )
        return found

    def admit(
        self, scope: Scope, key: str, value: Any, read: Callable[[str], Any], *, items: bool = False
    ) -> int:
        """Refuse a value that breaks the schema, with all that is wrong with it.

        Items that are added to a list (none if some go) are told by their place among these; what
        counts for a list as a whole is refused, for the rest of it would have to be read.
        """
        schema = self.schema(read)
        whole = [name for name in _WHOLE if items and name in schema._words]
        problems = [f"{name} is checked by set alone" for name in whole]
        problems = problems or schema.checker.problems(value)
        if problems:
            more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
            told = f"{scope}: {key!r} breaks the schema {self.name} {self.version}"
            raise SchemaViolationError(f"{told}: {'; '.join(problems[:5])}{more}", problems)
        return self.version

    def leads(self, version: int, read: Callable[[str], Any]) -> bool:
        """Whether the schema says that older values are led on when they are read."""
        return version < self.version and self.schema(read).auto_migrate

    def led(self, key: str, value: Any, version: int, read: Callable[[str], Any]) -> Any:
        """An older value as this version has it."""
        try:
            return self.schema(read).migrated(value, version)
        except (TransformError, InvalidSchemaError) as error:
            raise TransformError(
                f"{key!r} is of {self.name} {version} and cannot be led to {self.version}: "
                f"{error}; set it anew, or mend the steps in a newer version"
            ) from None

    def check_fit(
        self, read: Callable[[str], Any], known: Callable[[], Sequence[Declaration]]
    ) -> bool:
        """Refuse a version that does not follow the one that is declared, or breaks with it."""
        before = next((one for one in known() if one.key == self.key), None)
        if not isinstance(before, SchemaRule) or before.digest == self.digest:
            return False
        if self.version < before.version and _digest(read(self.place) or {}) == self.digest:
            return True  # an older program begins again
        if self.version <= before.version:
            raise InvalidSchemaError(
                [f"version {before.version} of {self.name} is declared; give a later one"]
            )
        old, new = before.schema(read), self.schema(read)
        was, fields, problems = fields_of(old.document), fields_of(new.document), list[str]()
        steps = new.way(before.version)
        if old.compatible in ("backward", "full"):
            problems += unreadable(fields, led(was, steps)[0])
        if old.compatible in ("forward", "full"):
            problems += [f"{text} (for older readers)" for text in unreadable(was, fields)]
        if problems:
            raise InvalidSchemaError(
                [f"{self.name} {self.version} is not {old.compatible} compatible", *problems]
            )
        return False


class Schema(SchemaRule):
    """What values of keys below a prefix are, from a version on.

    Give `fields`, or a JSON Schema (`document`), or a class (`of`: a dataclass, a `msgspec.Struct`
    or a pydantic model). `steps` say how values of older versions become newer ones. `compatible`
    (none, backward, forward, full) is kept to when the next version is declared. With
    `auto_migrate` an older value is led through the steps when it is read.
    """

    semantic: SemanticVersion
    compatible: str
    steps: tuple[Step, ...]
    auto_migrate: bool
    document: dict[str, Any]
    _said: dict[str, Any]

    def __init__(
        self,
        name: str,
        version: int = 1,
        *,
        prefix: str = "",
        fields: Mapping[str, Field] | None = None,
        document: Mapping[str, Any] | None = None,
        of: type | None = None,
        semantic: str | SemanticVersion | None = None,
        compatible: str = "backward",
        steps: Iterable[Step] = (),
        extra: bool = False,
        auto_migrate: bool = False,
    ) -> None:
        check_text(name, "the name of a schema", 64, least=1)
        if "/" in name:
            raise InvalidSchemaError(["the name of a schema has no slash"])
        check_count(version, "the version of a schema", 1)
        if compatible not in LEVELS:
            raise InvalidSchemaError([f"compatible is {', '.join(LEVELS)}"])
        if sum(one is not None for one in (fields, document, of)) != 1:
            raise InvalidSchemaError(["a schema has fields, a document, or a class: one of them"])
        steps = tuple(listed(steps, "steps"))
        if not all(isinstance(one, Step) for one in steps):
            raise InvalidSchemaError(["steps are made like Step(1, 2, [Copy('a', 'b')])"])
        if not isinstance(semantic, SemanticVersion):
            semantic = SemanticVersion.parse(semantic or f"{version}.0.0")
        vars(self).update(name=name, version=version, prefix=prefix)
        self.__post_init__()
        said = {
            "name": name,
            "version": version,
            "prefix": self.prefix,
            "compatible": compatible,
            "auto_migrate": check_flag(auto_migrate, "auto_migrate"),
            "document": _document(fields, document, of, extra=extra),
            "semantic": str(semantic),
            "steps": msgspec.to_builtins([*steps], builtin_types=(bytes, datetime)),
        }
        made = {"semantic": semantic, "steps": steps, "digest": _digest(said), "_said": said}
        vars(self).update(said | made)
        _ = self.checker  # refused now, not with the first value
        self.way(min((one.from_version for one in self.steps), default=version))
        _known[self.digest] = self  # it need not be read for each value
        while len(_known) > MOST_KNOWN:
            _known.popitem(last=False)

    @cached_property
    def checker(self) -> Checker:
        """What checks values."""
        return Checker(self.document)

    @cached_property
    def _words(self) -> frozenset[str]:
        """The words in which the document speaks of a value itself, not of what is in it."""
        return frozenset(name for one in _same(self.document, self.document) for name in one or ())

    def migrated(self, value: Any, version: int) -> Any:
        """A value of an older version as this one has it; not checked yet."""
        for step in self.way(version):
            value = step.apply(value)
        return value

    def way(self, version: int) -> list[Step]:
        """The steps from an older version, in order; refused if one is missing between them.

        A schema that has none leaves values as they are.
        """
        known, found = {one.from_version: one for one in self.steps}, list[Step]()
        while known and version < self.version:
            step = known.get(version)
            if step is None or step.to_version > self.version:
                raise InvalidSchemaError(
                    [f"there is no step from version {version} towards {self.version}"]
                )
            found.append(step)
            version = step.to_version
        return found

    def says(self) -> dict[str, Any]:
        """All it says, as plain data: the document that lies beside its declaration."""
        return dict(self._said)

    @classmethod
    def of_document(cls, data: Mapping[str, Any]) -> Schema:
        """The opposite of `says`."""
        try:
            steps = msgspec.convert(data["steps"], list[Step])
        except msgspec.ValidationError as error:
            raise InvalidSchemaError([f"a step has transforms that are known: {error}"]) from None
        return _known.get(_digest(data)) or cls(**{**data, "steps": steps})

    def along(self) -> dict[str, Any]:
        """What is written with its declaration: all it says."""
        return {self.place: self.says()}


def _digest(says: Mapping[str, Any]) -> str:
    """What tells a schema from all others."""
    return hashlib.sha256(_encode(says)).hexdigest()


def _document(
    fields: Mapping[str, Field] | None,
    document: Mapping[str, Any] | None,
    of: Any,
    *,
    extra: bool,
) -> dict[str, Any]:
    """The JSON Schema of what was given."""
    made: Any = document
    if fields is not None:
        may = {name: one for name, one in fields.items() if getattr(one, "optional", 0) is True}
        must = {name: one for name, one in fields.items() if name not in may}
        made = MappingOf(must, may, check_flag(extra, "extra")).document()
    elif hasattr(of, "model_json_schema"):
        made = of.model_json_schema()
    elif of is not None:
        try:
            made = msgspec.json.schema(of)
        except TypeError as error:
            named = getattr(of, "__name__", of)
            raise InvalidSchemaError([f"{named} has no schema: {error}"]) from None
    try:
        plain = msgspec.json.decode(_encode(made), type=dict[str, Any])
    except (TypeError, msgspec.MsgspecError, RecursionError):
        raise InvalidSchemaError(["a document is JSON, and not part of itself"]) from None
    if problems := list(_endless(plain, plain)):
        raise InvalidSchemaError(problems)
    return plain


def _endless(root: dict[str, Any], one: Any) -> Iterator[str]:
    """What of a document, or of a part of it, would say nothing, or take for ever."""
    for inner in one.values() if isinstance(one, dict) else one if isinstance(one, list) else ():
        yield from _endless(root, inner)
    if isinstance(one, dict):
        texts = [one.get("pattern", ""), *one.get("patternProperties", ())]
        if any(isinstance(text, str) and len(text) > MOST for text in texts):
            yield f"a pattern has at most {MOST} characters"
        if isinstance(one.get("$ref"), str) and None in _same(root, one):
            yield f"the reference {one['$ref'][:MOST]!r} leads back to itself"


def _same(
    root: dict[str, Any], one: dict[str, Any], above: tuple[int, ...] = ()
) -> Iterator[dict[str, Any] | None]:
    """The parts of a document that speak of the same value: one, and those that it leads to; None
    where that leads back."""
    if id(one) in above:
        yield None
        return
    yield one
    there = [one.get(name) for name in _HERE]
    if isinstance(one.get("$ref"), str) and one["$ref"][:1] == "#":
        at: Any = root
        for name in one["$ref"].split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            at = at.get(name, {}) if isinstance(at, dict) else {}
        there.append(at)
    for part in there:
        for each in part if isinstance(part, list) else [part]:
            if isinstance(each, dict):
                yield from _same(root, each, (*above, id(one)))
