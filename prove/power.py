"""Power loss: no acknowledged write is lost at `full`, and what is left opens and verifies.

A process carries out all operations on a plain and on an encrypted store while strace records
what it does to its files. From the record every prefix is rebuilt with what was not yet synced
kept, lost or torn; each wreck is opened, must verify without findings, and must hold exactly the
state after the last acknowledged operation or after the one that was under way.

Controls: at `normal`, without any sync, with one sync of the log dropped and with the folder's
syncs dropped, the same search must find losses; if it does not, the search is blind.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from holdfast import sync
from holdfast.errors import HoldfastError
from holdfast.storage.sqlite import guard
from holdfast.store import open
from prove import power_trace as trace
from prove.common import Findings, Result, TooMany, child_env, folder, pick, python
from prove.ops import Dump, Plain, dump_store
from prove.power_work import operations, options

Wreck = tuple[int, dict[str, bytes]]
"""Number of acknowledged operations (-1: not even created), and the files by their names."""
Story = list[Dump]
"""What the store should hold after each operation; the first is the empty store."""


@dataclass
class Search:
    """One recorded run, and where in it losses are looked for."""

    mode: str
    level: str
    drop: str = ""
    """A control: which sync is taken out of the record."""

    def __str__(self) -> str:
        return f"{self.mode} {self.level}{' without ' + self.drop if self.drop else ''}"


def record(search: Search, seed: int, length: int, place: Path) -> list[trace.Event]:
    """The events of one run."""
    place.mkdir()
    (place / "keys").mkdir()
    script = str(Path(__file__).with_name("power_work.py"))
    numbers = (str(seed), str(length))
    command = python("-W", "ignore", script, str(place), search.mode, search.level, *numbers)
    events = trace.record(command, child_env(), place, timeout=120)
    shutil.rmtree(place)
    return without(events, search.drop, place)


def without(events: list[trace.Event], drop: str, place: Path) -> list[trace.Event]:
    """The record with syncs taken out that the disk is said to have ignored."""
    if not drop:
        return events
    if drop == "folder syncs":
        return [event for event in events if event[0] != "syncdir"]
    log = {e[2] for e in events if e[0] == "name" and e[1] == f"{place}/store.db-wal"}
    syncs = [n for n, event in enumerate(events) if event[0] == "sync" and event[1] in log]
    # One in the middle of the run that comes right before an acknowledgement: a commit's own.
    own = [n for n in syncs if n + 1 < len(events) and events[n + 1][0] == "ack"]
    return [event for n, event in enumerate(events) if n != own[len(own) // 2]]


def story(seed: int, length: int) -> Story:
    """What should be there after each operation."""
    model = Plain()
    found = [model.dump()]
    for op in operations(seed, length):
        model.apply(op)
        found.append(model.dump())
    return found


def wrecks(events: list[trace.Event], most: int, draw: random.Random) -> Iterator[Wreck]:
    """Different states that a power loss may leave, with what was acknowledged until then."""
    disk = trace.Disk()
    seen: set[bytes] = set()
    for event in events:
        disk.step(event)
        for chosen in trace.choices(disk.pending, most, draw):
            files, names = trace.applied(disk.files, disk.names, chosen)
            image = {name: files.get(file, b"") for name, file in names.items()}
            digest = hashlib.blake2b(b"%d" % disk.acks, digest_size=16)
            for name in sorted(image):
                digest.update(name.encode() + hashlib.blake2b(image[name]).digest())
            if digest.digest() not in seen:
                seen.add(digest.digest())
                yield disk.acks, image


def inspect(wreck: Wreck, mode: str, expected: list[Dump], base: str, place: str) -> str:
    """Open a wreck; what is wrong with it, or ""."""
    acks, image = wreck
    root = Path(place)
    (root / "keys").mkdir(parents=True)
    for name, data in image.items():
        path = Path(place + name.removeprefix(base))
        path.write_bytes(data)
        path.chmod(0o600)
    try:
        return _inspect(mode, expected, root, acks)
    except HoldfastError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(root)


def _inspect(mode: str, expected: list[Dump], root: Path, acks: int) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = sync.open(**options(root, mode), durability="normal", create=acks < 0)
    with store:
        report = store.verify()
        if report.findings:
            return f"verify: {report.findings[0].place}: {report.findings[0].message}"
        seen = dump_store(store)
        if seen in expected:
            return ""
        return "what is there is neither the acknowledged state nor the one under way"


def _inspect_many(work: list[tuple[Wreck, str, list[Dump], str, str]]) -> list[str]:
    # An interrupted creation is waited for in case it is still under way; here nobody is.
    open.time = SimpleNamespace(sleep=lambda _: None)  # type: ignore[assignment]
    guard.this_boot = lambda: "started again"  # type: ignore[assignment]
    return [inspect(*one) for one in work]


def explore(search: Search, seed: int, length: int, most: int, limit: int) -> tuple[int, list[str]]:
    """(states looked at, what was wrong with them); a control stops at the first."""
    findings = Findings()
    states = 0
    told = story(seed, length)
    draw = random.Random(seed)
    with folder() as place:
        events = record(search, seed, length, place / "run")
        found = list(wrecks(events, most, draw))
        draw.shuffle(found)
        control = search.drop != "" or search.level != "full"
        jobs = []
        for number, wreck in enumerate(found[:limit]):
            expected = told[max(wreck[0], 0) : max(wreck[0], 0) + 2]
            where = str(place / "run"), str(place / f"w{number}")
            jobs.append((wreck, search.mode, expected, *where))
        chunks = [jobs[start : start + 40] for start in range(0, len(jobs), 40)]
        with ProcessPoolExecutor(2) as pool:
            try:
                for chunk, answers in zip(chunks, pool.map(_inspect_many, chunks), strict=True):
                    states += len(chunk)
                    for job, wrong in zip(chunk, answers, strict=True):
                        if wrong:
                            findings.note(f"{search}, after operation {job[0][0]}: {wrong}")
                    if control and findings:
                        break
            except TooMany:
                pass
            finally:
                pool.shutdown(cancel_futures=True)
    return states, findings


CONTROLS = (
    Search("plain", "normal"),
    Search("plain", "off"),
    Search("plain", "full", "one sync of the log"),
    Search("plain", "full", "folder syncs"),
)


def run(seed: int, scale: int) -> Result:
    """Explore both kinds of stores, then the controls."""
    if shutil.which("strace") is None:
        return Result("not run", "needs strace", seed, ["strace is missing; install it"])
    length = pick(scale, 16, 40, 150)
    most = pick(scale, 3, 14, 60)
    limit = pick(scale, 110, 2500, 60_000)
    findings: list[str] = []
    states = 0
    for mode in ("plain", "encrypted"):
        count, wrong = explore(Search(mode, "full"), seed, length, most, limit)
        states += count
        findings += wrong
    controls = CONTROLS if scale else CONTROLS[:1]
    for control in controls:
        _, wrong = explore(control, seed, length, most, 2000)
        if control.level == "normal":  # what is lost there was torn, which is no damage
            findings += [one for one in wrong if "DamagedStorageError" in one]
        if not wrong:
            findings.append(f"control {control}: no loss was found, so the search is blind")
    scope = f"{length} operations, plain and encrypted, {len(controls)} controls"
    return Result(f"{states} states", scope, seed, findings)
