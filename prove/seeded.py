"""Seeded bugs: each of a table of plausible mistakes is caught by the check or test that it names.

Every bug is patched into a copy of the source; then the named check (at its shortest) or test
runs against the copy and must fail. All of them run against an unpatched copy as well and must
pass there, else a failure would mean nothing. A bug that survives is a finding.
"""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import holdfast
from prove.bugs import BUGS, Bug, place_of
from prove.common import LONG, ROOT, SHORT, Result, child_env, folder, python

SECONDS = 240
"""After which a bug has brought its test to a stand: that is caught, too."""
TOGETHER = 20
"""Tests that run in one process against the unpatched copy."""
QUICK = (
    "commitment to the body not compared",
    "signature not checked",
    "lane conflict ignored",
    "operation that does not undo what one inside of it did",
)
"""Enough to see that patching and catching work; the others run with `make prove`."""


def copy_source(source: Path, place: Path) -> None:
    """Copy the package, compiled: all patched copies share this one's files but the patched."""
    shutil.copytree(source, place / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source.parent / "holdfast_verify.py", place)
    compileall.compile_dir(place, quiet=1, workers=os.cpu_count() or 1)


@contextmanager
def patched(bug: Bug, base: Path) -> Iterator[Path]:
    """A copy with a bug in it; links, for a hundred processes would else copy and compile all."""
    with folder() as place:
        shutil.copytree(base, place, copy_function=os.link, dirs_exist_ok=True)
        path = place_of(bug, place / "holdfast")
        text = path.read_text()
        path.unlink()
        path.write_text(text.replace(bug.old, bug.new))
        yield place


def command(by: list[str], place: Path, seed: int) -> list[str]:
    """What runs a check or tests against a copy."""
    if is_test(by[0]):
        paths = f"pythonpath={place} {ROOT / 'tests' / 'store'} {ROOT / 'examples'}"
        plugins = ("cacheprovider", "langsmith_plugin", "anyio", "asyncio", "xdist")
        given = [part for name in plugins for part in ("-p", f"no:{name}")]
        given += ["--all-places", "-o", paths, "-o", "filterwarnings=default", "-o", "addopts="]
        return python("-m", "pytest", "-q", *given, *(str(ROOT / one) for one in by))
    script = str(ROOT / "prove" / "run.py")
    return python(script, "--only", by[0], "--short", "--seed", str(seed))


def is_test(by: str) -> bool:
    """Whether it is a test, not a check."""
    return "/" in by


def outcome(given: list[str], place: Path, seconds: float) -> tuple[int, str]:
    """(exit code, last lines): 0 passed, 1 failed as a check or test fails, else it broke down."""
    env = child_env(PYTHONPATH=f"{place}:{ROOT}", PROVE_SRC=str(place))
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # tests would be compiled anew for each bug
    child = subprocess.Popen(
        given,
        env=env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told = child.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # with the processes that a test began
        child.communicate()
        return 1, "it did not come to an end"
    code = child.returncode
    if code == 1 and "pytest" not in given and "  FINDING " not in told:
        code = 2  # an exception ends a check with 1 as well
    return code, told[-1000:]


def catch(bug: Bug, base: Path, seed: int) -> str:
    """Try one bug; what is wrong if it was not caught."""
    try:
        with patched(bug, base) as place:
            given = command([bug.by], place, seed)
            code, told = outcome([*given, "-x"] if is_test(bug.by) else given, place, SECONDS)
    except LookupError as error:
        return str(error)
    if code == 1:
        return ""
    if code == 0:
        return f"{bug.name}: survived {bug.by}"
    return f"{bug.name}: {bug.by} broke down instead of failing: {told}"


def control(by: list[str], base: Path, seed: int) -> str:
    """Run a check or tests against the unpatched copy, where they must pass."""
    code, told = outcome(command(by, base, seed), base, SECONDS * len(by))
    return f"without any bug, {', '.join(by)} fails: {told}" if code else ""


def run(seed: int, scale: int) -> Result:
    """Try the bugs, one a processor at a time; those that take long in a soak alone."""
    source = Path(holdfast.__file__).parent
    bugs = [bug for bug in BUGS if scale == LONG or not bug.slow]
    if scale == SHORT:
        bugs = [bug for bug in bugs if bug.name in QUICK]
    checks = sorted({bug.by for bug in bugs if not is_test(bug.by)})
    tests = sorted({bug.by for bug in bugs if is_test(bug.by)})
    apart = [[one] for one in checks]
    apart += [tests[at : at + TOGETHER] for at in range(0, len(tests), TOGETHER)]
    with folder() as base, ThreadPoolExecutor(os.cpu_count()) as pool:
        copy_source(source, base)
        jobs: list[Callable[[], str]] = [partial(control, by, base, seed) for by in apart]
        jobs += [partial(catch, bug, base, seed) for bug in bugs]
        told = list(pool.map(lambda job: job(), jobs))
    caught = told[len(apart) :].count("")
    by = f"by {', '.join(checks)}" + f" and {len(tests)} tests" * bool(tests)
    return Result(f"{caught} of {len(bugs)} caught", by, seed, [text for text in told if text])
