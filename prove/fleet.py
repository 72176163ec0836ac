"""A fleet of agents in several stores on one file, which fail at random and are recovered.

Each store stands for a process: it has a storage of its own that can be made to fail from some
call on, which is all that the others see of a process that died. Time that leases take to run out
is not waited for: they are broken.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from holdfast import sync
from holdfast.errors import HoldfastError, LeaseHeldError, MissingError
from holdfast.recovery import run as running
from holdfast.recovery.failure_kinds import FAILURES
from holdfast.recovery.report import RecoveryReport
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core
from prove.common import Findings, folder

PROCESSES = 3
BEGUN = 3
"""Entries with which an agent begins."""
CALM = ("agent_crash", "missed_beats", "memory_leak", "network_partition", "interrupted_handover")
"""Kinds in which the state is taken as it is."""
DAMAGED = ("corruption_detected", "hash_mismatch", "partial_corruption")
running.OUTAGE = 0.0  # storage that does not answer here never will: its process is dead
ASTRAY = ("state_corruption", "validation_failed", "drift", "error_rate", "failed_transition")


class Worker:
    """An agent whose whole work is to count."""

    def __init__(self) -> None:
        self.work: list[int] = []


class Process:
    """A store with a registry, and a storage that can be made to fail."""

    def __init__(self, url: str) -> None:
        self.storage = Faulty(open_storage(url))
        self.store = sync.Store(StoreHandle(open_core(url, storage=self.storage)))
        self.agents = sync.agents.Agents(
            self.store, {"worker": lambda _: Worker()}, fields={"worker": ["work"]}
        )
        self.recovery = sync.recovery.Recovery(self.store)

    def die(self, after: int = 1) -> None:
        """From some commit on nothing of it reaches the storage."""
        self.storage.plan = (Fault("commit", self.storage.calls["commit"] + after, onward=True),)

    def forget(self, id: str) -> None:
        """An agent crashes: nobody says so."""
        self.agents._running.pop(id, None)

    def end(self) -> None:
        """Let go of what a dead process held in this one."""
        self.agents._running.clear()
        self.store.close()


class Fleet:
    """Agents, where they run, and what they are known to have done."""

    def __init__(self, place: Path, count: int, rng: random.Random, found: Findings) -> None:
        self.url = f"sqlite:{place / 'fleet.db'}"
        self.rng = rng
        self.found = found
        self.processes = [Process(self.url) for _ in range(PROCESSES)]
        self.home: dict[str, Process] = {}
        self.done: dict[str, list[int]] = {}
        self.saved: dict[str, list[int]] = {}
        """What each had done at its newest checkpoint."""
        self.damaged = 0
        for number in range(count):
            id = f"w{number}"
            home = self.processes[number % PROCESSES]
            home.agents.register(id, kind="worker")
            home.agents.spawn(id)
            self.home[id], self.done[id] = home, []
            self.work(id)
            self.checkpoint(id)

    def work(self, id: str) -> None:
        """Some agent does a piece of work, and saves it."""
        kept = self.home[id].agents.running()[id]
        self.done[id] = [*self.done[id], len(self.done[id]) + 1]
        kept.agent.work.append(self.done[id][-1])
        kept.save()

    def checkpoint(self, id: str) -> None:
        """Keep what it has done."""
        self.home[id].store.agent(id).checkpoint("good")
        self.saved[id] = list(self.done[id])

    def other(self, process: Process) -> Process:
        """A process that lives, and is another one."""
        return self.rng.choice([one for one in self.processes if one is not process])

    def replace(self, process: Process) -> None:
        """A process that died is started again."""
        process.end()
        self.processes[self.processes.index(process)] = Process(self.url)

    def lapse(self, store: sync.Store, *ids: str) -> None:
        """The leases of agents run out: whoever held them is gone."""
        for one in store.leases():
            names = one.name.split("/")
            if one.owner and any(id in names or f"agent:{id}" in names for id in ids):
                try:
                    store.break_lease(one.name)
                except MissingError:
                    continue

    # what happens

    def fail(self) -> int:
        """One failure, or several at once; how many."""
        for id in self.rng.sample(sorted(self.home), min(5, len(self.home))):
            self.work(id)
            if self.rng.random() < 0.2:
                self.checkpoint(id)
        id = self.rng.choice(sorted(self.home))
        event = self.rng.choice(
            [self.crash, self.crash, self.astray, self.damage, self.cut_short, self.at_once]
        )
        if self.rng.random() < 0.03:
            return self.process_dies()
        event(id)
        return 1

    def crash(self, id: str) -> None:
        """An agent is gone, and another process takes it over."""
        self.home[id].forget(id)
        here = self.other(self.home[id])
        self.lapse(here.store, id)
        report = here.recovery.recover(f"agent:{id}", self.rng.choice(CALM))
        self.check(id, here, report, self.done[id])

    def process_dies(self) -> int:
        """All agents of a process are gone, some in the middle of a save."""
        gone = self.rng.choice(self.processes)
        lost = sorted(id for id, home in self.home.items() if home is gone)
        here = self.other(gone)
        gone.die()
        for id in lost[:2]:
            try:
                kept = gone.agents.running()[id]
                kept.agent.work.append(-1)
                kept.save()
            except HoldfastError:
                continue
        self.lapse(here.store, *lost)
        reports = here.recovery.recover_each([f"agent:{id}" for id in lost], "agent_crash")
        self.replace(gone)
        for id, report in zip(lost, reports.values(), strict=True):
            if isinstance(report, RecoveryReport):
                self.check(id, self.other(gone), report, self.done[id])
            else:
                self.found.note(f"{id}: {report}")
        return len(lost)

    def astray(self, id: str) -> None:
        """An agent has saved nonsense: it goes back to its checkpoint."""
        home = self.home[id]
        kept = home.agents.running()[id]
        kept.agent.work = [-1, *kept.agent.work]
        kept.save()
        home.forget(id)
        self.lapse(home.store, id)
        report = home.recovery.recover(f"agent:{id}", self.rng.choice(ASTRAY))
        self.check(id, home, report, self.saved[id])

    def damage(self, id: str) -> None:
        """A row of the agent is damaged while nobody runs it."""
        self.home[id].forget(id)
        here = self.other(self.home[id])
        self.lapse(here.store, id)
        line = here.store.agent(id)._handle.history.points.line("main")
        storage = here.storage.inner
        rows = storage.scan(line.prefix, line.prefix + b"\xff" * 9, limit=100_000)
        rows = rows[BEGUN:]  # an agent whose registration is lost has to be registered again
        key, row = rows[-1 - self.rng.randrange(min(4, len(rows)))]
        at = len(row) - 1 - self.rng.randrange(8)  # the body: who knows the chain goes on with it
        storage.commit(Batch(drops=[key]))
        storage.commit(Batch(puts=[(key, row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :])]))
        self.damaged += 1
        fresh = Process(self.url)  # nobody has the row in memory
        report = fresh.recovery.recover(f"agent:{id}", self.rng.choice(DAMAGED))
        fresh.end()
        self.check(id, self.rng.choice(self.processes), report, None)

    def cut_short(self, id: str) -> None:
        """The process that recovers dies in the middle; another goes on."""
        self.home[id].forget(id)
        dying, here = Process(self.url), self.other(self.home[id])
        self.lapse(here.store, id)
        kind = self.rng.choice(sorted(FAILURES))
        dying.die(after=self.rng.randrange(1, 16))
        with suppress(HoldfastError):
            dying.recovery.recover(f"agent:{id}", kind)
        dying.end()
        self.lapse(here.store, id)
        here.recovery.resume(f"agent:{id}")
        reports = here.recovery.reports(f"agent:{id}", 1)
        if not reports or reports[0].failure.kind != kind:
            reports = [here.recovery.recover(f"agent:{id}", kind)]  # it had not begun
        back = reports[0].strategy == "newest_valid"
        self.check(id, here, reports[0], self.saved[id] if back else self.done[id])

    def at_once(self, id: str) -> None:
        """Two processes find the failure and recover, then both want to run the agent."""
        self.home[id].forget(id)
        one, two = self.rng.sample(self.processes, 2)
        self.lapse(one.store, id)

        def recover(process: Process) -> RecoveryReport:
            return process.recovery.recover(f"agent:{id}", "agent_crash", wait=20)

        with ThreadPoolExecutor(2) as pool:
            reports = list(pool.map(recover, (one, two)))
        if not all(report.success for report in reports):
            self.found.note(f"{id}: of two at once, not both succeeded")
        self.check(id, two, reports[0], self.done[id])

    # what must hold

    def check(self, id: str, here: Process, report: RecoveryReport, done: list[int] | None) -> None:
        """It runs again, in one process, with all that it is known to have done."""
        if not report.success:
            self.found.note(f"{id}: {report}")
        try:
            worker = here.agents.spawn(id, wait=20).agent
        except HoldfastError as error:
            self.found.note(f"{id} is stuck after {report.failure.kind}: {error}")
            return
        self.home[id] = here
        try:
            self.other(here).agents.spawn(id)
            self.found.note(f"{id} runs twice after {report.failure.kind}")
        except LeaseHeldError:
            pass
        expected = self.done[id] if done is None else done
        if done is None:  # what is lost is what was damaged, and is said
            fits = set(worker.work) <= set(expected) and worker.work == sorted(worker.work)
            if report.lost == "nothing":
                fits = worker.work == expected
        else:
            fits = worker.work == expected
        if not fits:
            self.found.note(f"{id} after {report}: has {worker.work}, not {expected}")
        self.done[id] = list(worker.work)
        self.checkpoint(id)

    def close(self) -> None:
        """All are there, none is being recovered any more; what was not damaged is whole."""
        first = self.processes[0]
        known = {one.id for one in first.agents.list()}
        for id in self.home:
            if id not in known:
                self.found.note(f"{id} is lost")
            if first.recovery.resume(f"agent:{id}"):
                self.found.note(f"{id} was still being recovered")
        if not self.damaged:
            for finding in first.store.verify().findings:
                self.found.note(f"verify: {finding}")
        for process in self.processes:
            process.end()


def run(seed: int, agents: int, failures: int, found: Findings) -> int:
    """Let a fleet fail so often; how often it did."""
    with folder() as place:
        fleet = Fleet(place, agents, random.Random(seed), found)
        count = 0
        while count < failures:
            count += fleet.fail()
        fleet.close()
    return count
