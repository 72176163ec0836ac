"""Drift: cycles that are noted, alarms that they raise, and what is kept over restarts."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from drift_traces import (
    DRIFTS,
    FULL,
    NORMAL,
    SIGNS,
    Watching,
    delay,
    false_alarms,
    normal,
    replace_cycle,
    table,
)
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.agents import DriftSignal
from holdfast.agents.drift import RECENT, WINDOW, Cycle, Signs
from holdfast.errors import InvalidInputError, ReadOnlyError

EACH = 4
"""Traces of each pair of normal work and drift; drift_figures.md has the figures of more."""


def fields(cycle: Cycle) -> dict[str, Any]:
    """What `note` takes."""
    return {
        name: getattr(cycle, name) for name in ("task", "progress", "seconds", "failed", "signals")
    }


@pytest.mark.spec("D11", "D45", "D46", "D47", "X53")
@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift_is_found_within_twenty_cycles(name: str) -> None:
    delays = [
        delay(name, work, seed, before=60 + 17 * (seed % 12))
        for work in NORMAL.values()
        for seed in range(EACH)
    ]
    missed = sum(one is None for one in delays)
    assert missed <= 0.05 * len(delays) + 1, delays


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("name", NORMAL)
def test_normal_work_raises_hardly_any_alarm(name: str, told: bool) -> None:
    assert len(false_alarms(NORMAL[name], 2500, seed=7, told=told)) <= 1


def test_who_never_says_its_progress_does_not_repeat_itself_in_vain(place: Place) -> None:
    state = place.open().agent("7")
    drift = sync.agents.Drift(state)
    for number in range(300):
        assert drift.note("poll", seconds=1.0) == [], number
    assert drift.note("poll", progress=1) == []
    drift.reset()
    found = [one.kind for _ in range(20) for one in sync.agents.Drift(state).note("poll")]
    assert found[0] == "repetition", "once it was said, for the rest of its life"


def test_a_step_that_returns_a_name_goes_on(place: Place) -> None:
    state = place.open().agent("7")
    sync.agents.AgentState(state).append("conversation", {"role": "user", "content": "remember me"})

    class Poller:
        count = 0

        def step(self) -> Any:
            self.count += 1
            return "poll" if self.count < 60 else holdfast.agents.StepResult("poll", done=True)

    result = sync.agents.run(Poller(), state)
    assert (result.outcome, result.cycles, result.restarts) == ("done", 60, 0)
    assert len(sync.agents.AgentState(state).get("conversation")) == 1


@pytest.mark.slow
def test_the_table_of_the_document_is_what_is_measured() -> None:
    page = (Path(__file__).parent / "drift_figures.md").read_text()
    assert table(*FULL) in page


def test_the_table_of_the_document_holds_what_is_promised() -> None:
    page = (Path(__file__).parent / "drift_figures.md").read_text()
    shares = re.findall(r"^\| .* \| ([\d.]+) % \|", page, re.MULTILINE)
    assert len(shares) == len(DRIFTS)
    assert min(map(float, shares)) >= 95
    counts = re.findall(r"^\| .* \| ([\d]+,000) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(counts) == len(NORMAL)
    for cycles, *alarms in counts:
        assert max(map(int, alarms)) <= int(cycles.replace(",", "")) / 10_000


@pytest.mark.spec("X53")
def test_the_same_action_three_times_is_no_alarm_and_more_often_is() -> None:
    """Once it is known what the agent is used to; the very first cycles say as much."""
    for warm in (0, 100):
        watching = Watching()
        source = normal(NORMAL["varied"], random.Random(3))
        for _ in range(warm):
            assert watching.note(next(source)) == []
        found = []
        for count in range(1, 21):
            cycle = Cycle(number=warm + count, action="fetch", task="t", progress=0.0)
            found += [(count, alarm) for alarm in watching.note(cycle)]
        first, alarm = found[0]
        assert 3 < first <= 8
        assert (alarm.kind, alarm.details["actions"]) == ("repetition", ["fetch"])
        assert alarm.evidence >= SIGNS.evidence
        assert "fetch" in alarm.why


def test_repetition_with_progress_is_work() -> None:
    watching = Watching()
    for number in range(1, 200):
        cycle = Cycle(number=number, action="read page", task="book", progress=number)
        assert watching.note(cycle) == []


def test_one_odd_cycle_is_no_drift() -> None:
    watching = Watching()
    source = normal(NORMAL["varied"], random.Random(5))
    for number, cycle in zip(range(300), source, strict=False):
        if number % 50 == 49:
            odd = {"seconds": 10_000.0, "failed": True, "signals": {"tokens": 1e9}}
            cycle = replace_cycle(cycle, **odd)
        assert watching.note(cycle) == []


def test_a_signal_that_falls() -> None:
    watching = Watching(Signs(signals=(DriftSignal("score", "falls"),)))
    rng = random.Random(1)
    for number in range(1, 100):
        assert watching.note(Cycle(number=number, signals={"score": rng.gauss(8, 1)})) == []
    found = []
    for number in range(100, 120):
        found += watching.note(Cycle(number=number, signals={"score": rng.gauss(5, 1)}))
    assert found[0].kind == "signal:score"
    assert found[0].details["usual"] == pytest.approx(8, abs=1)
    assert found[0].details["recent"] == pytest.approx(5, abs=1)


@pytest.mark.spec("D44", "D45")
def test_what_is_noted_is_kept(place: Place) -> None:
    drift = sync.agents.Drift(place.open().agent("7"))
    for number in range(10):
        failed = number % 2 == 0
        assert (
            drift.note("search", task="t", progress=number / 10, seconds=2.0, failed=failed) == []
        )
    again = sync.agents.Drift(place.reopen().agent("7")) if place.engine == "sqlite" else drift
    status = again.status()
    assert (status.cycles, status.since_refresh, status.looked_at) == (10, 10, 10)
    assert (status.error_rate, status.seconds, status.stalled, status.repeats) == (0.5, 2.0, 0, 1)
    again.note("search", task="t", progress=0.2)
    again.note("search", task="t", progress=0.2)
    assert (again.status().stalled, again.status().repeats) == (2, 3)


def test_making_one_writes_nothing(store: sync.Store) -> None:
    state = store.agent("7")
    drift = sync.agents.Drift(state)
    assert (drift.status().cycles, drift.alarms()) == (0, [])
    drift.reset()
    assert state._handle.place()[2] == 0


@pytest.mark.spec("D46")
def test_an_alarm_is_kept_and_comes_once(place: Place, hands: Hands) -> None:
    state = place.open(clock=hands.clock).agent("7")
    drift = sync.agents.Drift(state)
    raised = [number for number in range(14) if drift.note("fetch", task="t", progress=0.5)]
    assert len(raised) == 2, "again only after as much evidence again"
    newest, first = drift.alarms()
    assert first.kind == newest.kind == "repetition"
    assert first.cycle == raised[0] + 1 < newest.since
    assert first.time == hands.time()
    assert drift.alarms(limit=1) == [newest]
    drift.reset()
    assert drift.status().since_refresh == 0
    assert drift.note("fetch", task="t", progress=0.5) == []
    assert drift.status().cycles == 15


def test_max_cycles(store: sync.Store) -> None:
    drift = sync.agents.Drift(store.agent("7"), max_cycles=3)
    kinds = [[alarm.kind for alarm in drift.note()] for _ in range(7)]
    assert kinds == [[], [], ["cycles"], [], [], ["cycles"], []]
    drift.reset()
    assert [bool(drift.note()) for _ in range(3)] == [False, False, True]


@pytest.mark.spec("D44")
def test_a_restore_undoes_no_cycle(store: sync.Store) -> None:
    state = store.agent("7")
    drift = sync.agents.Drift(state)
    state.set("plan", 1)
    drift.note("a")
    safe = state.checkpoint()
    state.set("plan", 2)
    drift.note("b")
    state.restore(safe)
    assert (state.get("plan"), drift.status().cycles) == (1, 2)


@pytest.mark.parametrize("how", ["restore", "adopt", "fork", "elsewhere"])
def test_work_that_is_done_again_after_going_back_is_no_drift(place: Place, how: str) -> None:
    state = place.open().agent("7")
    state.set("plan", 1)
    safe = state.checkpoint()
    drift = sync.agents.Drift(state)
    for page in range(1, 41):
        assert drift.note("read", task="book", progress=page) == []
    if how == "adopt":
        state.adopt(state.fork("again", at=safe))
    elif how == "fork":
        state = state.fork("again")
        drift = sync.agents.Drift(state)
    elif how == "elsewhere" and place.engine == "sqlite":
        place.open().agent("7").restore(safe)
    else:
        state.restore(safe)
    status = drift.status()
    assert (status.cycles, status.since_refresh, status.looked_at) == (40, 0, 0)
    drift.reset()  # there is nothing to forget: it began anew by itself
    for page in range(1, 41):
        assert drift.note("read", task="book", progress=page) == []
    status = drift.status()
    assert (status.cycles, status.since_refresh, status.looked_at) == (80, 40, 40)
    assert sync.agents.Drift(state).status() == status, "the same for who reads it anew"
    found = [alarm for _ in range(20) for alarm in drift.note("read", task="book", progress=40)]
    assert [found[0].kind, found[0].since > 80] == ["repetition", True]


def test_a_restart_in_between_makes_no_difference(plain: Place) -> None:
    """The same alarms in the same cycles, whether one process notes all or each a few."""
    rng = random.Random(11)
    cycles = [cycle for _, cycle in zip(range(90), normal(NORMAL["varied"], rng), strict=False)]
    cycles += [DRIFTS["loop of 3"][1](rng, cycles[-1], cycles[-1], n) for n in range(25)]

    def run(name: str, restart: int) -> list[Any]:
        store = plain.open()
        found = []
        for number, cycle in enumerate(cycles):
            if number % restart == 0:
                drift = sync.agents.Drift(store.agent(name), signals=[DriftSignal("tokens")])
            found += drift.note(cycle.action, **fields(cycle))
        return found

    assert run("a", 1000) == run("b", 7) != []


def test_two_that_note_see_each_other(store: sync.Store) -> None:
    one, two = (sync.agents.Drift(store.agent("7")) for _ in range(2))
    raised = [(one, two)[n % 2].note("fetch", task="t", progress=0.5) for n in range(8)]
    assert sum(map(len, raised)) == 1
    assert one.status() == two.status()
    one.reset()
    assert two.note("fetch") == []


def test_the_list_is_trimmed(store: sync.Store) -> None:
    state = store.agent("7")
    drift = sync.agents.Drift(state, max_cycles=1)
    for number in range(2 * WINDOW + 10):
        drift.note(f"a{number}", seconds=1.0)
    assert WINDOW <= state.length("$drift/cycles") < 2 * WINDOW
    assert state.length("$drift/alarms") == 100
    assert drift.status().looked_at == WINDOW > RECENT


def test_the_async_face(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            drift = holdfast.agents.Drift(store.agent("7"), max_cycles=3)
            await drift.note("search", progress=0.1)
            await drift.note("search", failed=True)
            [alarm] = await drift.note("search")
            assert alarm.kind == "cycles"
            noted = [msgspec.structs.replace(one, time=None) for one in await drift.alarms()]
            assert noted == [alarm]
            assert (await drift.status()).cycles == 3
            await drift.reset()
            assert (await drift.status()).since_refresh == 0

    asyncio.run(main())


def test_what_cannot_be_meant_is_refused(place: Place) -> None:
    state = place.open().agent("7")
    state.set("k", 1)
    wrong: list[dict[str, Any]] = [
        {"evidence": 0},
        {"max_cycles": 0},
        {"signals": ["tokens"]},
        {"signals": "tokens"},
        {"without": ["nonsense"]},
    ]
    for options in wrong:
        with pytest.raises(InvalidInputError):
            sync.agents.Drift(state, **options)
    drift = sync.agents.Drift(state, without=["time"])
    noted: list[dict[str, Any]] = [
        {"action": 7},
        {"progress": float("nan")},
        {"progress": "half"},
        {"progress": 10**400},
        {"progress": True},
        {"failed": "yes"},
        {"signals": 5},
        {"signals": {5: 1.0}},
        {"seconds": -1.0},
        {"signals": {"tokens": "many"}},
    ]
    for one in noted:
        with pytest.raises(InvalidInputError):
            drift.note(**one)
    with pytest.raises(InvalidInputError):
        DriftSignal("tokens", "wobbles")
    with pytest.raises(InvalidInputError):
        sync.agents.Drift("agent:7")  # type: ignore[arg-type]
    assert state._handle.place()[2] == 1
    drift.note(progress=2**80, signals=None)
    assert sync.agents.Drift(state).status().cycles == 1, "what was noted can be read"
    with pytest.raises(ReadOnlyError):
        sync.agents.Drift(place.open(read_only=True).agent("7")).note("a")
