"""Recoveries: every kind of failure, with a mishap at each step of its procedure; then a fleet.

A step fails before or after it has done its work, once or always, takes too long and writes late,
or goes on late in the middle of its work while a later step fails, or the recovery ends with it and
another goes on. The agent must be where the report says: in the recovered state, or exactly where
it was. For kinds that are damage this is done twice: with an agent that is whole, for which
somebody only says so, and with one whose newest entry is damaged (where no step comes too late: how
long mending takes is not known). That one is repaired, or as damaged as it was, or what a repair
made stands and the report says so; and another recovery repairs it. Each kind is answered by its
own procedure, in a soak by every other one, too.

Then a fleet of agents works in several stores at once, while they crash, are damaged and led
astray, also in the middle of recoveries: none is lost, none runs twice, none is stuck.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from holdfast import sync
from holdfast.errors import HoldfastError, RecoveryFailedError, StateIntegrityError
from holdfast.recovery.failure_kinds import DAMAGED, FAILURES
from holdfast.recovery.procedure import Procedure
from holdfast.recovery.report import RecoveryReport
from holdfast.recovery.steps import STEPS
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.store.names import rowkinds
from prove import fleet
from prove.common import LONG, MOST_FINDINGS, SHORT, Findings, Result, TooMany, folder

LITTLE = 0.2
"""Seconds that a step is given which takes longer: what it does otherwise must fit, beside what
else the machine does."""
STORE = 30
"""Cases in one store."""
MISHAPS = ("before", "after", "once", "late", "stuck", "ended", "ended twice")
GOOD: dict[str, Any] = {"task": {"id": 1}, "log": ["a"]}
NOW: dict[str, Any] = {"task": {"id": 2}, "log": ["a", "b"], "plan": "odd"}
BACK = ("newest_valid",)
"""Strategies that return to the checkpoint; all others keep what is there, for it is whole."""


class Ended(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Case:
    """One recovery, and what happens to one of its steps."""

    kind: str
    procedure: str
    step: str
    mishap: str
    damaged: bool
    """Whether the newest entry of the agent is damaged."""

    def __str__(self) -> str:
        what = f"{self.kind} (damaged)" if self.damaged else self.kind
        return f"{what} by {self.procedure}, {self.step} {self.mishap}"


def cases(recovery: sync.recovery.Recovery, *, every: bool) -> Iterator[Case]:
    """Each kind of failure, each step of what answers it, or of every procedure, each mishap."""
    for kind in FAILURES:
        answers = recovery.procedures() if every else [recovery.select(sync_failure(kind))]
        for procedure in answers:
            for damaged in (False, True) if kind in DAMAGED else (False,):
                for step in procedure.steps:
                    for mishap in MISHAPS:
                        if not (damaged and mishap == "late"):  # to mend takes a time of its own
                            yield Case(kind, procedure.id, step.type, mishap, damaged)


def sync_failure(kind: str) -> Any:
    """A failure of a kind, as users make it."""
    from holdfast.recovery import AgentFailure

    return AgentFailure(kind).check()


class Spoiled:
    """A type of step with a mishap."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.calls = 0
        self.over = threading.Event()
        """What came too late is over."""
        self.on = threading.Event()
        """What is stuck may go on: another attempt has come to its checks."""

    def __call__(self, context: Any, action: Mapping[str, Any]) -> Any:
        self.calls += 1
        do, mishap = STEPS[self.case.step], self.case.mishap
        if mishap == "late" and self.calls == 2:
            self.over.wait(0.8 * LITTLE)  # the recovery is still at work when it writes
        if mishap == "before" or (mishap == "once" and self.calls == 1):
            raise OSError("the disk went away")
        if mishap == "stuck" and self.calls == 1:
            stuck: Any = Stuck(context, self.on)
            try:
                return do(stuck, action)
            finally:
                self.over.set()
        if mishap == "late" and self.calls == 1:
            try:
                return self._come_late(context, do(context, action))
            finally:
                self.over.set()
        result = do(context, action)
        if mishap == "after":
            raise OSError("the disk went away")
        return result

    def _come_late(self, context: Any, result: Any) -> Any:
        time.sleep(1.4 * LITTLE)
        context.state.set("late", True)
        return result

    def refuse(self, context: Any, action: Mapping[str, Any]) -> None:
        """A check that fails, once what was stuck has gone on beside this attempt."""
        self.on.set()
        if not self.over.wait(20):
            raise RuntimeError(f"{self.case}: what was stuck never ended")
        raise OSError("the disk went away")


class Stuck:
    """The context of a step that hangs in the middle: when it looks at the agent once more."""

    def __init__(self, context: Any, on: threading.Event) -> None:
        self._context = context
        self._on = on
        self._looks = 0

    def __getattr__(self, name: str) -> Any:
        self._looks += name in ("handle", "state")
        if self._looks == 2:
            self._on.wait(20)
        return getattr(self._context, name)


def hurried(procedure: Procedure, case: Case) -> dict[str, Any]:
    """The procedure without pauses, and with little time for a step that takes too long."""
    data = {**procedure.data(), "backoff": 1}
    if case.mishap == "stuck":
        data["validation"] = [{"type": "refuse"}]
    if case.mishap in ("late", "stuck"):
        data["steps"] = [
            {**step, "timeout": 1000 * LITTLE} if step["type"] == case.step else step
            for step in data["steps"]
        ]
    return data


def made(store: sync.Store, case: Case, spoiled: Spoiled) -> sync.recovery.Recovery:
    """What recovers, with the mishap in it."""
    steps: dict[str, Any] = {case.step: spoiled, "refuse": spoiled.refuse}
    if case.mishap.startswith("ended"):
        steps = {}
    recovery = sync.recovery.Recovery(store, steps=steps)
    recovery.set(hurried(recovery.select(sync_failure(case.kind), case.procedure), case))
    return recovery


def agent(store: sync.Store, name: str) -> sync.State:
    """One with a checkpoint, and more since."""
    state = store.agent(name)
    with state.change() as change:
        for key, value in GOOD.items():
            change.set(key, value)
    state.checkpoint("good")
    with state.change() as change:
        change.set("task", NOW["task"])
        change.append("log", "b")
        change.set("plan", NOW["plan"])
    return state


def damage(url: str, keys: Sequence[bytes]) -> None:
    """Flip a bit of rows, while nobody has the store open."""
    storage = open_storage(url, durability="normal")
    for key in keys:
        row = storage.get([key])[0]
        assert row is not None
        storage.commit(Batch(drops=[key]))
        storage.commit(Batch(puts=[(key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])]))
    storage.close()


def newest_row(state: sync.State) -> bytes:
    """The key of the row of an agent's newest entry."""
    line = state._handle.history.points.line()
    return rowkinds.entry(line.prefix, line.sequence)


def plain(state: sync.State) -> dict[str, Any] | None:
    """What a user sees of an agent; None if it cannot be read."""
    try:
        return dict(state.items())
    except StateIntegrityError:
        return None


def recovered(store: sync.Store, state: sync.State, case: Case) -> RecoveryReport:
    """Recover it, whatever happens; the report."""
    spoiled = Spoiled(case)
    recovery = made(store, case, spoiled)
    ends = {"ended": 1, "ended twice": 2}.get(case.mishap, 0)

    def progress(step: str, _: str) -> None:
        nonlocal ends
        if ends and step == case.step:
            ends -= 1
            raise Ended

    for _ in range(3):
        try:
            if recovery.reports(state):
                recovery.resume(state, progress=progress)
            else:
                recovery.recover(state, case.kind, procedure=case.procedure, progress=progress)
            break
        except Ended:
            recovery = made(store, case, spoiled)
        except RecoveryFailedError:
            break
    if case.mishap == "late" and not spoiled.over.wait(20):
        raise RuntimeError(f"{case}: the late step never ended")
    return recovery.reports(state)[0]


def wrong_with(store: sync.Store, case: Case, name: str) -> Iterator[str]:
    """Run a case; what is wrong."""
    state = store.agent(name)
    report = recovered(store, state, case)
    if case.damaged:
        yield from _wrong_with_repair(state, report)
        wanted = GOOD
    else:
        if report.status not in ("succeeded", "rolled_back"):
            yield f"ended as {report.status}: {report.why}"
        wanted = GOOD if report.success and report.strategy in BACK else NOW
        if plain(state) != wanted:
            yield f"{report.status} by {report.strategy}, and the agent has {plain(state)}"
    yield from _wrong_with_report(case, report)
    told = [
        one
        for one in sync.recovery.Recovery(store).notices(limit=1000)
        if one.agent == f"agent:{name}"
    ]
    if len(told) != 1:
        yield f"told {len(told)} times"
    held = [
        one.name for one in store.leases() if one.owner and f"agent:{name}" in one.name.split("/")
    ]
    if held:
        yield f"leases are held: {held}"
    again = sync.recovery.Recovery(store).recover(
        state, case.kind if case.damaged else "agent_crash"
    )
    if not again.success or plain(state) != wanted:
        yield "it could not be recovered again"


def _wrong_with_repair(state: sync.State, report: RecoveryReport) -> Iterator[str]:
    """What is wrong with an agent whose newest entry was damaged, and its report."""
    found = plain(state)
    if found not in (None, GOOD):
        yield f"{report.status} by {report.strategy}, and the agent has {found}"
    allowed = {"rolled_back"} if found is None else {"succeeded", "failed"}
    if report.status not in allowed:
        yield f"{report.status}, and it {'can' if found else 'cannot'} be read: {report.why}"
    if found is not None and report.lost == "nothing":
        yield "what was lost is not reported"


def _wrong_with_report(case: Case, report: RecoveryReport) -> Iterator[str]:
    ours = [one for part, one in report.steps if part == "steps" and one.step == case.step]
    critical = {"notify_systems": False, "cleanup": False}.get(case.step, True)
    always = case.mishap in ("before", "after")
    if case.mishap == "stuck":
        if report.success:
            yield "a check always failed, and success is reported"
        return
    if always and critical and report.success:
        yield "a critical step always failed, and success is reported"
    if (not always or not critical) and not report.success:
        yield f"it did not succeed: {report.why}"
    if always and (not ours or any(one.success for one in ours)):
        yield "a step that failed is not reported as failed"
    if report.success and report.strategy in BACK and report.lost == "nothing":
        yield "what was lost is not reported"
    if report.status == "rolled_back" and (not report.why or report.lost != "nothing"):
        yield f"rolled back, but: {report.why!r}, lost: {report.lost}"


def chosen_cases(seed: int, scale: int) -> list[list[Case]]:
    """The mishaps to try, those of one store together."""
    with sync.open("memory:") as store:
        chosen = list(cases(sync.recovery.Recovery(store), every=scale == LONG))
    if scale == SHORT:
        chosen = random.Random(seed).sample(chosen, 60)
    return [chosen[first : first + STORE] for first in range(0, len(chosen), STORE)]


def injected(some: list[Case], scale: int) -> list[str]:
    """Try mishaps in a store of their own; what is wrong."""
    found = Findings()
    with folder() as place, suppress(TooMany):
        url, durability = f"sqlite:{place / 'store.db'}", "full" if scale == LONG else "normal"
        with sync.open(url, durability=durability) as store:
            states = [(case, agent(store, str(n))) for n, case in enumerate(some)]
            damaged = [newest_row(state) for case, state in states if case.damaged]
        damage(url, damaged)
        with sync.open(url, durability=durability) as store:
            _inject(store, some, found)
    return list(found)


def failing(seed: int, scale: int) -> tuple[int, list[str]]:
    """Let a fleet fail; how often it did, and what is wrong."""
    found = Findings()
    count = 0
    with suppress(TooMany):
        count = fleet.run(seed, *FLEETS[scale], found)
    return count, list(found)


def _inject(store: sync.Store, chosen: list[Case], found: Findings) -> None:
    damaged = {f"agent:{number}" for number, case in enumerate(chosen) if case.damaged}
    for number, case in enumerate(chosen):
        try:
            wrong = list(wrong_with(store, case, str(number)))
        except HoldfastError as error:
            wrong = [f"{type(error).__name__}: {error}"]
        for text in wrong:
            found.note(f"{case}: {text}")
    for finding in store.verify().findings:
        if finding.scope not in damaged or finding.keys:  # else it is past: only a copy heals it
            found.note(f"verify: {finding}")


def run(seed: int, scale: int) -> Result:
    """Mishaps at every step, and beside them the fleet."""
    stores = chosen_cases(seed, scale)
    with ProcessPoolExecutor(2) as pool:
        fleet_failing = pool.submit(failing, seed, scale)
        wrong = [text for told in pool.map(injected, stores, repeat(scale)) for text in told]
        failures, more = fleet_failing.result()
    count, agents = sum(map(len, stores)), FLEETS[scale][0]
    scope = f"{count} mishaps at steps, {failures} failures of {agents} agents"
    found = (wrong + more)[:MOST_FINDINGS]
    return Result(f"{count + failures} recoveries", scope, seed, found)


FLEETS = ((10, 40), (50, 500), (50, 5000))
"""Agents and failures, by the scale."""
