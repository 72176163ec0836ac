"""Seeded bugs: each of a table of plausible mistakes is caught by the check that it names.

Every bug is patched into a copy of the source; then the named check (at its shortest) or test
file runs against the copy and must fail. The same commands run against an unpatched copy and
must pass, else a failure would mean nothing. A bug that survives is a finding.
"""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import holdfast
from prove.bugs import BUGS, Bug
from prove.common import ROOT, SHORT, Result, child_env, folder, python

SECONDS = 240
QUICK = ("commitment to the body not compared", "signature not checked", "lane conflict ignored")
"""Enough to see that patching and catching work; the others run with `make prove`."""


def copy_of(source: Path, place: Path, bug: Bug | None) -> str:
    """Copy the package and patch it; what is wrong with the patch, or ""."""
    shutil.copytree(source, place / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source.parent / "holdfast_verify.py", place)
    if bug is None:
        return ""
    path = place / "holdfast" / bug.file
    text = path.read_text() if path.exists() else ""
    if text.count(bug.old) != 1:
        return f"{bug.name}: its text occurs {text.count(bug.old)} times in {bug.file}; rewrite it"
    path.write_text(text.replace(bug.old, bug.new))
    return ""


def command(by: str, place: Path, seed: int) -> list[str]:
    """What runs a check or a test file against a copy."""
    if "/" in by:
        paths = f"pythonpath={place} {ROOT / 'tests' / 'store'}"
        given = ("-o", paths, "-o", "filterwarnings=default", "-o", "addopts=")
        return python("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *given, str(ROOT / by))
    script = str(ROOT / "prove" / "run.py")
    return python(script, "--only", by, "--short", "--seed", str(seed))


def outcome(by: str, place: Path, seed: int) -> tuple[int, str]:
    """(exit code, last lines): 0 passed, 1 failed as a check or test fails, else it broke down."""
    paths = f"{place}:{ROOT}"
    env = child_env(PYTHONPATH=paths, PROVE_SRC=str(place))
    try:
        done = subprocess.run(
            command(by, place, seed),
            env=env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, "it did not come to an end"
    return done.returncode, (done.stdout + done.stderr)[-600:]


def catch(bug: Bug, source: Path, seed: int) -> str:
    """Try one bug; what is wrong if it was not caught."""
    with folder() as place:
        wrong = copy_of(source, place, bug)
        if wrong:
            return wrong
        code, told = outcome(bug.by, place, seed)
    if code == 1:
        return ""
    if code == 0:
        return f"{bug.name}: survived {bug.by}"
    return f"{bug.name}: {bug.by} broke down instead of failing: {told}"


def control(by: str, source: Path, seed: int) -> str:
    """Run a check against an unpatched copy, where it must pass."""
    with folder() as place:
        copy_of(source, place, None)
        code, told = outcome(by, place, seed)
    return f"without any bug, {by} fails: {told}" if code else ""


def run(seed: int, scale: int) -> Result:
    """Try all bugs, two at a time."""
    source = Path(holdfast.__file__).parent
    bugs = [bug for bug in BUGS if scale != SHORT or bug.name in QUICK]
    checks = sorted({bug.by for bug in bugs})
    with ThreadPoolExecutor(2) as pool:
        controls = list(pool.map(lambda by: control(by, source, seed), checks))
        caught = list(pool.map(lambda bug: catch(bug, source, seed), bugs))
    findings = [text for text in controls + caught if text]
    figure = f"{caught.count('')} of {len(bugs)} caught"
    return Result(figure, f"by {', '.join(checks)}", seed, findings)
