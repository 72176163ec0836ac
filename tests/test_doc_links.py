"""Links between the documents lead somewhere, and the pages name what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from holdfast import sync

ROOT = Path(__file__).parent.parent
HAND = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*HAND, *sorted((ROOT / "docs" / "reference").glob("*.md"))]
# A private word of the project's own making has no place in what users read.
FOREIGN = re.compile(r"/(?:wor[k]|roo[t]|hom[e]|User[s])/|localhos[t]|TO[D]O|FIX[M]E")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are usually made."""
    text = re.sub(r"^(`{3,}).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: "/".join(page.parts[-2:]))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(file), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: "/".join(page.parts[-2:]))
def test_pages_name_no_machine(page: Path) -> None:
    assert FOREIGN.findall(page.read_text()) == []


def test_every_page_is_reachable_from_the_readme() -> None:
    """Those by hand by way of their list, those that are made by way of others."""
    listed = (ROOT / "docs" / "README.md").read_text()
    missing = [p.name for p in HAND[1:] if f"({p.name}" not in listed and p.name != "README.md"]
    assert missing == []
    seen, waiting = set(), [HAND[0]]
    while waiting:
        page = waiting.pop()
        if page.suffix == ".md" and page.exists() and page not in seen:
            seen.add(page)
            targets = re.findall(r"\]\(([^)\s#]+)", page.read_text())
            waiting += [(page.parent / t).resolve() for t in targets if "://" not in t]
    assert set(PAGES) - seen == set()


def test_names_of_ours_exist() -> None:
    """Of docs/names.md: `state.x`, `store.x` and `Class.x` in the right column."""
    page = (ROOT / "docs" / "names.md").read_text()
    kinds = {"state": sync.State, "store": sync.Store}
    wanted = re.findall(r"`(state|store|Checkpoint|Entry|Item)\.(\w+)", page)
    assert len(wanted) > 30
    for owner, name in wanted:
        kind = kinds.get(owner) or getattr(holdfast, owner)
        fields = set(dir(kind)) | set(getattr(kind, "__dataclass_fields__", {}))
        assert name in fields, f"{owner}.{name}"
