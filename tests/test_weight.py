"""scripts/weight counts what it says it counts."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

WEIGHT = Path(__file__).parent.parent / "scripts" / "weight"
weight = SimpleNamespace(**runpy.run_path(str(WEIGHT)))

TEXT = '''"""A module."""

__all__ = ["A"]


class A:  # a remark
    """A class."""

    # why
    def f(self) -> str:
        return """two
lines"""
'''


def test_one_file() -> None:
    lines, code, comments, files, functions, names = weight.weigh(TEXT)
    assert (lines, code, comments, files, functions, names) == (12, 5, 1, 1, 1, 1)


def test_a_table_of_the_changelog_is_read_again() -> None:
    now = {"store": (1200, 900, 80, 7, 60, 5), "total": (1200, 900, 80, 7, 60, 5)}
    old = weight.before(f"# Changelog\n\n{weight.markdown(now)}\n\nText.\n")
    assert old == now
    grown = {**now, "store": (1100, 900, 80, 7, 60, 5)}
    assert "1,100 (-100)" in weight.plain(grown, old)
    assert weight.before("# Changelog\n") == {}


def test_all_packages_are_weighed() -> None:
    found = weight.packages()
    assert {"store", "seal", "storage", "(top)", "total"} <= found.keys()
    assert found["total"][0] == sum(row[0] for name, row in found.items() if name != "total")
