"""Run the proofs: `python prove/run.py [--long | --short] [--only NAME] [--seed N]`.

Prints one table and exits with 1 if anything was found. `--only NAME --seed N` repeats a row.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prove.common import Result

ROOT = Path(__file__).resolve().parent.parent
# Another source than this tree's own is what the seeded bugs are tried on.
sys.path[:1] = [os.environ.get("PROVE_SRC", str(ROOT / "src")), str(ROOT)]

CHECKS = (
    *("power", "faults", "flips", "pages", "repairs", "forgeries"),
    *("kills", "model", "recoveries", "seeded"),
)
SOAK = ("day",)
"""Those that take minutes by their nature: `make soak` runs them, too."""
SERIAL = ("faults", "model", "kills", "forgeries")
"""Those that use one processor: two of them run side by side, the longest first."""


def main() -> int:
    """Run the checks that were asked for; the exit code."""
    from prove.bugs import caught_by
    from prove.common import LONG, NORMAL, SHORT

    parser = argparse.ArgumentParser(description="crash, damage and race it, check every promise")
    parser.add_argument(
        "--only", choices=CHECKS + SOAK, action="append", help="run this check alone"
    )
    parser.add_argument("--seed", type=int, default=1, help="repeat a run")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--long", action="store_true", help="soak: every bit, many rounds")
    group.add_argument("--short", action="store_true", help="a selection, in seconds")
    given = parser.parse_args()
    scale = LONG if given.long else SHORT if given.short else NORMAL
    asked = CHECKS + SOAK if given.long else CHECKS
    lines: dict[str, tuple[str, Result, str, float]] = {}
    for name, result, seconds in results(given.only or asked, given.seed, scale):
        lines[name] = name, result, caught_by(name), seconds
        for finding in result.findings:
            print(f"  FINDING {finding}", flush=True)
    names = [name for name in CHECKS + SOAK if name in lines]
    how = " --long" if given.long else " --short" if given.short else ""
    show([lines[name] for name in names], how)
    return 1 if any(lines[name][1].findings for name in names) else 0


def results(names: Sequence[str], seed: int, scale: int) -> Iterator[tuple[str, Result, float]]:
    """Run checks; each with what it found and the seconds that it took."""
    beside = [name for name in SERIAL if name in names] if len(names) > 1 else []
    with ProcessPoolExecutor(2) as pool:
        for told in zip(
            beside, pool.map(run_one, beside, repeat(seed), repeat(scale)), strict=True
        ):
            yield told[0], *told[1]
    for name in names:
        if name not in beside:
            yield name, *run_one(name, seed, scale)


def run_one(name: str, seed: int, scale: int) -> tuple[Result, float]:
    """Run one check; an error that it did not expect is a finding as well."""
    from holdfast.errors import HoldfastError
    from prove.common import Result

    check = importlib.import_module(f"prove.{name}")
    print(f"{name}: {(check.__doc__ or '').splitlines()[0]}", flush=True)
    started = time.monotonic()
    try:
        result = check.run(seed, scale)
    except HoldfastError as error:
        found = [f"it was stopped by {type(error).__name__}: {error}"]
        result = Result("stopped", "not to its end", seed, found)
    return result, time.monotonic() - started


def show(lines: list[tuple[str, Result, str, float]], how: str) -> None:
    """One table, one block a check."""
    print()
    print(f"{'check':<11}{'figure':<21}{'found':<7}{'seconds':<9}{'seed':<6}scope")
    for name, result, catches, seconds in lines:
        found = str(len(result.findings)) if result.findings else "none"
        row = f"{name:<11}{result.figure:<21}{found:<7}{seconds:<9.1f}{result.seed:<6}"
        print(row + result.scope)
        print(f"{'':<11}catches: {catches}")
        print(f"{'':<11}repeat:  python prove/run.py --only {name} --seed {result.seed}{how}")


if __name__ == "__main__":
    sys.exit(main())
