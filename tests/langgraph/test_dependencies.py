"""What the integration imports is declared, not only brought along by something else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import holdfast.integrations.langgraph

ROOT = Path(__file__).parents[2]
EXTRAS = ("langgraph", "postgres")


def imported(source: str) -> set[str]:
    """The packages that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_all_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = (project["optional-dependencies"][name] for name in EXTRAS)
    wanted = [*project["dependencies"], *(one for extra in extras for one in extra)]
    declared = {re.split(r"[\[<>=]", one)[0].replace("-", "_") for one in wanted}
    (folder,) = holdfast.integrations.langgraph.__path__
    found = set().union(*(imported(file.read_text()) for file in Path(folder).glob("*.py")))
    assert {"langgraph", "ormsgpack"} < found
    own = {"holdfast", "pydantic_core"}  # pydantic names the very version of its core
    assert found - sys.stdlib_module_names - own - declared == set()
