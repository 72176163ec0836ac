"""What `make test` leaves to `make soak`: the same cases in other places, and no case."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from store_kit import PLACES, SERVER_PLACES

ROOT = Path(__file__).parent.parent
FILES = ["agents/test_loop.py", "store/test_forks.py", "langgraph/test_safety.py"]
BYTES = "store/test_damaged_cells.py"
ASKS = "test_it_runs_steps_and_saves_each"
"""It opens the store anew if it lies in a file."""
PLACE = "|".join([*PLACES, *SERVER_PLACES, "memory", "sqlite", "plain", "encrypted"])


def collected(files: list[str], *options: str) -> Counter[str]:
    """Ids of the tests of some files."""
    paths = [f"tests/{file}" for file in files]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *paths, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return Counter(line for line in done.stdout.splitlines() if "::" in line)


def cases(ids: Counter[str]) -> Counter[str]:
    """How often each case is there, whatever its place."""
    return Counter(re.sub(rf"([\[-])({PLACE})(?=[\]-])", r"\1", id) for id in ids)


def test_each_case_runs_in_one_place_and_all_places_are_used() -> None:
    files = [*FILES, BYTES]
    here, everywhere = collected(files), collected(files, "--all-places")
    assert not here - everywhere
    assert set(cases(here)) == set(cases(everywhere))
    on_server = [id for id in everywhere if any(place in id for place in SERVER_PLACES)]
    assert set(on_server) <= set(here)
    everywhere_too = {id for id in everywhere if BYTES in id or ASKS in id}
    assert everywhere_too <= set(here)
    assert set(cases(Counter(everywhere_too)).values()) == {len(PLACES)}
    chosen = Counter(set(here) - everywhere_too - set(on_server))
    assert set(cases(chosen).values()) == {1}
    assert len(chosen) < len(everywhere) / 2
    used = Counter(place for id in chosen for place in PLACES if place in id)
    assert set(used) == set(PLACES)
    assert min(used.values()) > max(used.values()) / 2


def test_a_place_that_is_asked_for_is_not_left_out() -> None:
    asked = collected(FILES[:1], "-k", PLACES[0])
    assert asked
    assert asked == collected(FILES[:1], "-k", PLACES[0], "--all-places")
