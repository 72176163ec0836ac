"""What the docs take from the code is what the code says, and leaves nothing out."""

from __future__ import annotations

import importlib.util
import inspect
import pkgutil
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

import holdfast
from holdfast import errors
from holdfast.cli.main import HOMES
from holdfast.exports import PARTS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def script(name: str) -> ModuleType:
    """A program of scripts/, as a module."""
    path = ROOT / "scripts" / name
    loader = SourceFileLoader(f"scripts_{name}", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def headings(page: str) -> set[str]:
    return set(re.findall(r"^#+ (.+)$", (DOCS / page).read_text(), re.MULTILINE))


def test_no_page_is_stale() -> None:
    assert script("reference").stale() == [], "run `make reference`"


@pytest.mark.parametrize("part", ["", *PARTS])
def test_every_public_name_has_its_place(part: str) -> None:
    module = importlib.import_module(f"holdfast.{part}") if part else holdfast
    page = f"reference/api-{part}.md" if part else "reference/api.md"
    assert set(module.__all__) - {"errors", "sync"} - headings(page) == set()


def test_no_module_hides_a_public_name() -> None:
    """As `holdfast.recovery.boot` would, which is a module and a function."""
    from holdfast import agents, recovery
    from holdfast.sync import recovery as blocking

    for part in PARTS:
        module = importlib.import_module(f"holdfast.{part}")
        for info in pkgutil.iter_modules(module.__path__):
            importlib.import_module(f"{module.__name__}.{info.name}")
        assert [name for name in module.__all__ if inspect.ismodule(getattr(module, name))] == []
    assert inspect.iscoroutinefunction(recovery.boot)
    assert callable(blocking.boot)
    assert callable(agents.attach)


def test_every_command_has_its_place() -> None:
    assert {f"holdfast {name}" for name in HOMES} - headings("command-line.md") == set()


def test_every_error_says_what_to_do() -> None:
    page = (DOCS / "errors.md").read_text()
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    for kind in kinds:
        if issubclass(kind, errors.HoldfastError):
            assert f"| `{kind.__name__}` |" in page
            advised = "\nTo do: " in (kind.__doc__ or "").replace("\n    ", "\n")
            assert advised or kind is errors.HoldfastError, kind.__name__
