"""Links between the documents lead somewhere, and the pages name what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from holdfast import errors, sync

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A private word of the project's own making has no place in what users read.
FOREIGN = re.compile(r"/(?:wor[k]|roo[t]|hom[e]|User[s])/|localhos[t]|TO[D]O|FIX[M]E")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are usually made."""
    text = re.sub(r"^(`{3,}).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(file), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_no_machine(page: Path) -> None:
    assert FOREIGN.findall(page.read_text()) == []


def test_every_page_is_reachable_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    missing = [p.name for p in PAGES[1:] if f"docs/{p.name}" not in readme]
    assert missing == []


def test_every_error_is_explained() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    classes = [name for name in vars(errors) if isinstance(getattr(errors, name), type)]
    abstract = {"HoldfastError", "KeyringError", "FormatError", "Sequence"}
    assert [name for name in classes if name not in abstract and f"`{name}`" not in page] == []


def test_names_of_ours_exist() -> None:
    """Of docs/names.md: `state.x`, `store.x` and `Class.x` in the right column."""
    page = (ROOT / "docs" / "names.md").read_text()
    kinds = {"state": sync.State, "store": sync.Store}
    wanted = re.findall(r"`(state|store|Checkpoint|Entry|Item|Restored|TimelineInfo)\.(\w+)", page)
    assert len(wanted) > 30
    for owner, name in wanted:
        kind = kinds.get(owner) or getattr(holdfast, owner)
        fields = set(dir(kind)) | set(getattr(kind, "__dataclass_fields__", {}))
        assert name in fields, f"{owner}.{name}"
