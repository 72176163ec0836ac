"""Runs LangGraph's own behavioural tests with our saver in the place of theirs.

    python tests/langgraph/behaviour/run.py [--work FOLDER] [-k EXPRESSION]

The tests come with the source distribution of the LangGraph that uv.lock names, by its hash. They
run twice, with LangGraph's SQLite saver and with ours; whatever fails only with ours is listed and
fails the run. With --work, what was fetched and installed is kept there for the next time.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
USES_A_SAVER = ("_checkpointer", "MemorySaver")
LEFT_OUT = {
    "test_delta_channel_benchmark.py": "measures",
    "test_prune_postgres.py": "needs PostgreSQL",
}
Outcomes = dict[str, str]


def prepare_python(work: Path) -> Path:
    """An environment with all that their tests import, as locked."""
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(work / "venv")}
    command = [sys.executable, "-m", "uv", "sync", "--frozen", "--quiet", "--no-install-project"]
    command += ["--python", sys.executable, "--extra", "dev", "--group", "langgraph-tests"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return work / "venv" / "bin" / "python"


def fetch_tests(work: Path) -> Path:
    """The folder with their tests, of exactly the archive that uv.lock names."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    (package,) = [package for package in lock["package"] if package["name"] == "langgraph"]
    url, expected = package["sdist"]["url"], package["sdist"]["hash"].removeprefix("sha256:")
    archive = work / Path(url).name
    if not archive.exists():
        print(f"fetching {archive.name}", flush=True)
        with urllib.request.urlopen(url, timeout=120) as answer:
            archive.write_bytes(answer.read())
    if hashlib.sha256(archive.read_bytes()).hexdigest() != expected:
        raise SystemExit(f"{archive} is not what uv.lock names; remove it and try again")
    with tarfile.open(archive) as opened:
        opened.extractall(work, filter="data")
    (source,) = [path for path in work.glob("langgraph-*") if path.is_dir()]
    # Without the library beside them, so that they test the one that is installed.
    tests = work / "checkout" / "tests"
    if not tests.exists():
        (source / "tests").rename(work / "checkout" / "tests")
    return tests


def chosen(tests: Path) -> list[str]:
    """The files that use a saver at all."""
    return [
        f"tests/{path.name}"
        for path in sorted(tests.glob("test_*.py"))
        if path.name not in LEFT_OUT and any(word in path.read_text() for word in USES_A_SAVER)
    ]


def run(python: Path, tests: Path, saver: str, options: list[str]) -> Outcomes:
    report = tests.parent / f"{saver}.xml"
    command = [str(python), "-m", "pytest", "-q", "-n", "2", "--timeout", "120", "--tb", "short"]
    command += ["--durations", "10"]
    command += ["-p", "no:cacheprovider", "-p", "no:langsmith_plugin", "--snapshot-warn-unused"]
    command += ["-p", "substitute", "--saver", saver, f"--junitxml={report}"]
    environment = {**os.environ, "NO_DOCKER": "true", "PYTHONPATH": f"{ROOT / 'src'}:{HERE}"}
    print(f"running LangGraph's tests with the {saver} saver", flush=True)
    with (tests.parent / f"{saver}.log").open("w") as log:
        subprocess.run(
            command + chosen(tests) + options,
            cwd=tests.parent,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=3600,
            check=False,
        )
    if not report.exists():
        raise SystemExit(
            f"pytest did not run: see {log.name}\n{Path(log.name).read_text()[-3000:]}"
        )
    return outcomes(report)


def outcomes(report: Path) -> Outcomes:
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name')}"
        kinds = {part.tag for part in case}
        failed = bool(kinds & {"failure", "error"})
        found[name] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
    return found


def file_of(name: str) -> str:
    return name.split("::")[0].split(".")[0]


def compare(theirs: Outcomes, ours: Outcomes) -> int:
    """Prints both, and gives how many tests fail with ours only."""
    print(f"\n{'file':<40}{'tests':>7}{'sqlite fails':>14}{'holdfast fails':>16}{'only ours':>11}")
    only_ours = sorted(
        name for name, outcome in theirs.items() if outcome != ours.get(name) == "failed"
    )
    only_ours += sorted(theirs.keys() ^ ours.keys())
    files = Counter(file_of(name) for name in theirs | ours)
    for file, tests in sorted(files.items()):
        counts = [
            sum(
                1 for name, outcome in side.items() if file_of(name) == file and outcome == "failed"
            )
            for side in (theirs, ours)
        ]
        bad = sum(1 for name in only_ours if file_of(name) == file)
        print(f"{file:<40}{tests:>7}{counts[0]:>14}{counts[1]:>16}{bad:>11}")
    total = Counter(ours.values())
    print(f"\nwith ours: {', '.join(f'{n} {kind}' for kind, n in sorted(total.items()))}")
    for name in only_ours:
        print(f"ONLY OURS {name}")
    return len(only_ours)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="keep what is fetched and installed here")
    parser.add_argument("-k", dest="expression", help="only tests that match, as with pytest")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        (work / "checkout").mkdir(parents=True, exist_ok=True)
        python, tests = prepare_python(work), fetch_tests(work)
        options = ["-k", arguments.expression] if arguments.expression else []
        theirs = run(python, tests, "sqlite", options)
        ours = run(python, tests, "holdfast", options)
        return 1 if compare(theirs, ours) or not ours else 0


if __name__ == "__main__":
    sys.exit(main())
