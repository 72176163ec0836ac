"""Rules for what triggers bring along and for a machine's data: what is wrong with it, as texts.

Texts name fields, never what is in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.store.inner import same

LONGEST_MATCHED = 100_000
"""Characters of a text that a pattern is tried on; a longer one is refused unseen."""
MOST_PROBLEMS = 100
_MISSING: Any = object()


class MachineRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a field has to be. All that is given must hold.

    `field` is a path of names (`order.city`). `pattern` is a regular expression that the whole
    text has to match; `allow` a list of the only values that are allowed. A field that is absent
    or None is only refused if it is `required`. `message` is what people are told instead of our
    own words.
    """

    field: str
    pattern: str = ""
    allow: tuple[Any, ...] = ()
    required: bool = False
    message: str = ""

    def problem(self, content: Mapping[str, Any]) -> str | None:
        """What is wrong with the field in some content; None if nothing is."""
        value = _field(content, self.field)
        if value is _MISSING or value is None:
            found = "is missing" if self.required else None
        elif self.pattern and not isinstance(value, str):
            found = "is not text"
        elif self.pattern and len(value) > LONGEST_MATCHED:
            found = f"has more than {LONGEST_MATCHED} characters"
        elif self.pattern and not _compiled(self.pattern).fullmatch(value):
            found = "does not match its pattern"
        elif self.allow and not any(same(one, value) for one in self.allow):
            found = "is none of the allowed values"
        else:
            found = None
        return f"{self.field}: {self.message or found}" if found else None

    def wrong(self) -> str | None:
        """What is wrong with the rule itself; None if nothing is."""
        if not self.field or "" in self.field.split("."):
            return f"{self.field!r} is no field; write a name, or names with dots between"
        try:
            _compiled(self.pattern)
        except re.error as error:
            return f"the pattern of {self.field!r} cannot be read: {error}"
        return None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _field(content: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(content, Mapping) or name not in content:
            return _MISSING
        content = content[name]
    return content


def broken(rules: Iterable[MachineRule], content: Mapping[str, Any]) -> list[str]:
    """What is wrong with some content by rules."""
    return [text for rule in rules if (text := rule.problem(content))]


def empty_names(content: Any, path: str = "data") -> Iterator[str]:
    """Where a mapping, at any depth, has an empty name, or one that is no text."""
    if isinstance(content, Mapping):
        for name, inner in content.items():
            if not isinstance(name, str) or not name.strip():
                yield f"{path}: a name is empty, or no text"
            else:
                yield from empty_names(inner, f"{path}.{name}")
    elif isinstance(content, list | tuple):
        for number, inner in enumerate(content):
            yield from empty_names(inner, f"{path}[{number}]")
