"""Results as data: the table of shapes is true, and whatever a result holds is shown."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli_kit import SOURCE

from holdfast import Cause, Entry, Scope
from holdfast.cli.plain import _FIELD, SHAPES, Value, part_of, plain

NOW = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)


def classes() -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for path in (Path(SOURCE) / "holdfast").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


CLASSES = classes()


def names_of(kind: ast.ClassDef) -> Iterator[str]:
    """Fields and properties of a class and of its bases."""
    for node in kind.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):  # a property that is made
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))
    for base in kind.bases:
        for other in CLASSES.get(ast.unparse(base), []):
            yield from names_of(other)


@pytest.mark.parametrize("name", SHAPES)
def test_every_field_of_a_shape_is_one_of_the_class(name: str) -> None:
    wanted = {path.partition(".")[0] for _, path, _, _ in _FIELD.findall(SHAPES[name])}
    assert name in CLASSES
    assert any(wanted <= set(names_of(kind)) for kind in CLASSES[name]), "a field has another name"
    assert len(_FIELD.findall(SHAPES[name])) == len(SHAPES[name].split(", ")), "each is understood"


@dataclass
class Unknown:
    """A result that no shape is there for."""

    scope: Scope
    times: tuple[datetime, ...]
    content: bytes
    held: Value


def test_a_result_without_a_shape_shows_all_of_its_fields() -> None:
    made = Unknown(Scope.parse("agent:7"), (NOW,), b"four", Value({"at": NOW}))
    assert plain({"made": [made]}) == {
        "made": [
            {
                "scope": "agent:7",
                "times": ["2026-11-15T10:30:00+00:00"],
                "content": 4,
                "held": {"at": {"$time": "2026-11-15T10:30:00+00:00"}},
            }
        ]
    }


def test_an_entry_has_the_names_that_the_documents_have() -> None:
    scope = Scope.parse("agent:7")
    done, also = (("set", "plan"),), (("agent:8", "main", 3),)
    entry = Entry(scope, "main", 4, NOW, done, Cause("ann"), "ab", also=also)
    shown = plain(entry)
    assert shown["entry"] == 4
    assert shown["operations"] == [{"kind": "set", "key": "plan"}]
    assert shown["also"] == [{"scope": "agent:8", "timeline": "main", "entry": 3}]
    assert shown["cause"] == {"actor": "ann"}, "what is not known of a cause is left out"


def test_a_path_leads_into_what_there_is() -> None:
    nothing: Any = None
    assert part_of({"newest": {"step": 3}}, "newest.step") == 3
    assert part_of({"newest": nothing}, "newest.step") is None
    assert part_of([Cause("ann"), Cause("bob")], "actor") == ["ann", "bob"]
