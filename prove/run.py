"""Run the proofs: `python prove/run.py [--long | --short] [--only NAME] [--seed N]`.

Prints one table and exits with 1 if anything was found. `--only NAME --seed N` repeats a row.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Another source than this tree's own is what the seeded bugs are tried on.
sys.path[:1] = [os.environ.get("PROVE_SRC", str(ROOT / "src")), str(ROOT)]

CHECKS = (
    *("power", "faults", "flips", "pages", "forgeries"),
    *("kills", "model", "recoveries", "seeded"),
)


def main() -> int:
    """Run the checks that were asked for; the exit code."""
    from prove.bugs import caught_by
    from prove.common import LONG, NORMAL, SHORT, Result

    parser = argparse.ArgumentParser(description="crash, damage and race it, check every promise")
    parser.add_argument("--only", choices=CHECKS, action="append", help="run this check alone")
    parser.add_argument("--seed", type=int, default=1, help="repeat a run")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--long", action="store_true", help="soak: every bit, many rounds")
    group.add_argument("--short", action="store_true", help="a selection, in seconds")
    given = parser.parse_args()
    scale = LONG if given.long else SHORT if given.short else NORMAL
    lines: list[tuple[str, Result, str, float]] = []
    for name in given.only or CHECKS:
        check = importlib.import_module(f"prove.{name}")
        print(f"{name}: {(check.__doc__ or '').splitlines()[0]}", flush=True)
        started = time.monotonic()
        result = check.run(given.seed, scale)
        lines.append((name, result, caught_by(name), time.monotonic() - started))
        for finding in result.findings:
            print(f"  FINDING {finding}", flush=True)
    show(lines, " --long" if given.long else " --short" if given.short else "")
    return 1 if any(result.findings for _, result, _, _ in lines) else 0


def show(lines: list[tuple[str, object, str, float]], how: str) -> None:
    """One table, one block a check."""
    print()
    print(f"{'check':<11}{'figure':<21}{'found':<7}{'seconds':<9}{'seed':<6}scope")
    for name, result, catches, seconds in lines:
        found = str(len(result.findings)) if result.findings else "none"  # type: ignore[attr-defined]
        row = f"{name:<11}{result.figure:<21}{found:<7}{seconds:<9.1f}{result.seed:<6}"  # type: ignore[attr-defined]
        print(row + result.scope)  # type: ignore[attr-defined]
        print(f"{'':<11}catches: {catches}")
        print(f"{'':<11}repeat:  python prove/run.py --only {name} --seed {result.seed}{how}")  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main())
