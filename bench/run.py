"""`make bench`: every figure that Holdfast is held to, measured in one run.

    python bench/run.py [--quick] [--only NAME ...] [--folder PATH]

Prints the machine's own figures, then the musts, then the goals, as tables in Markdown. A figure
that is not reached says `missed`; the exit code is 0 all the same, for a busy machine misses too.
It is 1 only if something could not be measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from collections.abc import Sequence

import common
from common import Row

THEMES = (
    "users",
    "size", "lists", "checkpoints", "scale", "travel", "merge", "processes", "throughput", "watch",
    "retention", "keys", "forks", "streams", "lookups", "schemas", "policies", "schedules",
    "langgraph_saver", "langgraph_store", "agents_state", "agents_machines", "recovery", "rules",
    "runtime", "servers", "redis_cache",
)  # fmt: skip


def main() -> int:
    """Measure what was asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller cases, about a minute")
    parser.add_argument("--only", nargs="+", choices=THEMES, metavar="NAME", help=", ".join(THEMES))
    parser.add_argument("--folder", help="where the stores are made: decides which disk is used")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        return _child(*chosen.child)
    common.FOLDER = chosen.folder
    names = ("machine", *(name for name in THEMES if name in (chosen.only or THEMES)))
    start = time.perf_counter()
    found = {name: _measure(name, chosen.quick) for name in names}
    _print(found, time.perf_counter() - start, chosen.quick)
    return int(any(row.measured.startswith("failed: ") for rows in found.values() for row in rows))


def _measure(name: str, quick: bool) -> list[Row]:
    print(f"{name} …", end=" ", file=sys.stderr, flush=True)
    start = time.perf_counter()
    try:
        rows: list[Row] = importlib.import_module(name).run(quick)
    except Exception as error:
        # A run takes a quarter of an hour: what else was measured is not thrown away.
        traceback.print_exc()
        rows = [Row(f"{name} as a whole", "", f"failed: {type(error).__name__}", False)]
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return rows


def _print(found: dict[str, list[Row]], seconds: float, quick: bool) -> None:
    rows = [(name, row) for name, rows in found.items() for row in rows]
    machine = [(row.figure, row.measured) for name, row in rows if name == "machine"]
    rows = [pair for pair in rows if pair[0] != "machine"]
    _table("The machine", ("figure", "measured"), machine)
    kinds = {
        "Musts": [pair for pair in rows if pair[1].ok is not None and not pair[1].goal],
        "Goals": [pair for pair in rows if pair[1].ok is not None and pair[1].goal],
    }
    for title, chosen in kinds.items():
        lines = [(n, r.figure, r.limit, r.measured, "ok" if r.ok else "missed") for n, r in chosen]
        missed = sum(line[-1] == "missed" for line in lines)
        title = f"{title}: {len(lines) - missed} of {len(lines)} reached"
        _table(title, ("theme", "figure", "limit", "measured", ""), lines)
    others = [(name, row.figure, row.measured) for name, row in rows if row.ok is None]
    _table("Told besides", ("theme", "figure", "measured"), others)
    print(f"{'Quick run, smaller cases' if quick else 'Full run'}: {seconds:.0f} s.")


def _table(title: str, head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> None:
    if not lines:
        return
    width = [max(len(line[n]) for line in [head, *lines]) for n in range(len(head))]
    print(f"\n## {title}\n")
    for line in [head, tuple("-" * w for w in width), *lines]:
        print("|", " | ".join(text.ljust(w) for text, w in zip(line, width, strict=True)), "|")
    print()


def _child(function: str, arguments: str) -> int:
    """Run one function of a theme in this process of its own, and print what it returns."""
    module, _, name = function.partition(":")
    answer = getattr(importlib.import_module(module), name)(**json.loads(arguments)) or {}
    print(json.dumps({**answer, "memory": common.peak_memory()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
