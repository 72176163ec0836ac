"""The watchdog: agents that fail are found, recovered once, and run again."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from beats_kit import beat, by_hand, pass_a_lease
from store_kit import Hands, Place, put_row, rows_of

from holdfast import Failure, Scope, sync
from holdfast.errors import InvalidInputError, LeaseLostError

RUNNER = """
import sys, time
from holdfast import sync
class Counter(sync.Agent):
    persistent = ("count",)
    count = 0
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
store = sync.open(url, key=key, durability="normal", signer=signer)
agents = sync.Agents(store, {"counter": lambda identity: Counter()}, duration=0.6)
agents.register("7", kind="counter")
kept = agents.spawn("7")
kept.agent.count = 41
kept.save()
print("ready", flush=True)
time.sleep(60)
"""


class Counter(sync.Agent):
    """Counts."""

    persistent = ("count",)
    count = 0


def registry(store: sync.Store, **more: Any) -> sync.Agents:
    """Agents that count."""
    return sync.Agents(store, {"counter": lambda identity: Counter()}, **more)


def spawned(store: sync.Store, id: str = "7") -> Any:
    """A running agent that has something to lose."""
    agents = registry(store)
    agents.register(id, kind="counter")
    kept = agents.spawn(id)
    kept.agent.count = 41
    kept.save()
    return kept


@pytest.mark.spec("M73", "M85", "S86")
def test_an_agent_whose_process_was_killed_runs_again(place: Place) -> None:
    if place.engine == "memory":
        pytest.skip("a process is needed")
    place.open()
    command = [sys.executable, "-c", RUNNER, place.url, place.key or "", place.signer]
    store = place.open()
    agents = registry(store)
    watchdog = sync.Watchdog(store, restart=agents.spawn)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=place.environment()
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert watchdog.look() == []
        process.kill()
    answered: list[Any] = []
    while not answered:
        answered = watchdog.look()
    [one] = answered
    assert (str(one.agent), one.failure.kind, one.outcome) == (
        "agent:7",
        "agent_crash",
        "recovered",
    )
    assert one.report.lost == "nothing"
    assert agents.running()["7"].agent.count == 41
    assert watchdog.unanswered() == []
    assert watchdog.look() == []
    agents.close()


def test_one_that_is_not_heard_is_fenced_off_and_recovered_once(place: Place, hands: Hands) -> None:
    runner = by_hand(place.open(clock=hands.clock))
    kept = spawned(runner)
    guards = [by_hand(place.open(clock=hands.clock)) for _ in range(2)]
    watchdogs = [sync.Watchdog(one) for one in guards]
    assert [one.look() for one in watchdogs] == [[], []]
    hands.move(20)
    beat(runner, guards[0])
    hands.move(20)
    beat(guards[0])
    assert watchdogs[0].look() == []  # it was heard 20 seconds ago
    hands.move(20)
    beat(guards[0])
    assert watchdogs[0].look() == []
    hands.move(15)
    beat(guards[0])
    found = [one.look() for one in watchdogs]
    assert [(one.failure.kind, one.outcome) for one in found[0]] == [("missed_beats", "recovered")]
    assert found[1] == []  # another one acts
    kept.agent.count = 42
    with pytest.raises(LeaseLostError):
        kept.save()
    assert watchdogs[0].look() == []


@pytest.mark.parametrize("id", ["x" * 256, "/a", "a/b"])
def test_agents_are_found_whatever_their_ids(plain: Place, hands: Hands, id: str) -> None:
    runner = by_hand(plain.open(clock=hands.clock))
    spawned(runner, id)
    guard = by_hand(plain.open(clock=hands.clock))
    watchdog = sync.Watchdog(guard)
    with runner.lease("agent/$not-an-agent"):
        assert watchdog.look() == []
        pass_a_lease(hands, guard)
        [one] = watchdog.look()
    assert (one.agent, one.outcome) == (Scope("agent", id), "recovered")


def test_a_watchdog_takes_over_from_one_that_died(place: Place, hands: Hands) -> None:
    spawned(by_hand(place.open(clock=hands.clock)))
    first = sync.Watchdog(by_hand(place.open(clock=hands.clock)))
    other = by_hand(place.open(clock=hands.clock))
    second = sync.Watchdog(other)
    first.look()
    assert second.look() == []
    hands.move(35)
    assert second.look() == []  # it acts now, and counts from here on
    assert second.acting
    hands.move(20)
    beat(other)
    assert second.look() == []
    hands.move(20)
    beat(other)
    assert [one.outcome for one in second.look()] == ["recovered"]


@pytest.mark.spec("M96")
def test_a_function_may_answer_and_is_asked_again_if_it_fails(place: Place, hands: Hands) -> None:
    spawned(by_hand(place.open(clock=hands.clock)))
    guard = by_hand(place.open(clock=hands.clock))
    asked: list[Any] = []

    def answer(scope: Scope, failure: Failure) -> None:
        asked.append((str(scope), failure.kind, failure.severity))
        if len(asked) == 1:
            raise OSError("nobody answers the phone")

    watchdog = sync.Watchdog(guard, on_failure=answer)
    watchdog.look()
    pass_a_lease(hands, guard)
    [one] = watchdog.look()
    assert (one.outcome, one.error) == ("failed", "OSError: nobody answers the phone")
    [waiting] = watchdog.unanswered()
    assert (waiting.tries, waiting.agent) == (1, Scope("agent", "7"))
    assert watchdog.look() == []  # not so soon
    hands.move(2)
    assert [one.outcome for one in watchdog.look()] == ["told"]
    assert asked == [("agent:7", "missed_beats", "high")] * 2
    assert watchdog.unanswered() == []


def test_an_agent_that_another_runs_by_now_is_let_be(place: Place, hands: Hands) -> None:
    spawned(by_hand(place.open(clock=hands.clock)))
    guard = by_hand(place.open(clock=hands.clock))

    def fail(scope: Scope, failure: Failure) -> None:
        raise OSError

    watchdog = sync.Watchdog(guard, on_failure=fail)
    watchdog.look()
    pass_a_lease(hands, guard)
    assert [one.outcome for one in watchdog.look()] == ["failed"]
    spawned(by_hand(place.open(clock=hands.clock)))
    hands.move(5)
    assert [one.outcome for one in watchdog.look()] == ["passed"]


def test_drift_that_nobody_answers_is_recovered_from(place: Place) -> None:
    store = place.open()
    kept = spawned(store)
    state = store.agent("7")
    state.checkpoint("good")
    state.set("wrong", True)
    drift = sync.Drift(state)
    for n in range(60):
        drift.note("read", task="t", progress=float(n))
    while not drift.note("read", task="t", progress=59.0):
        pass
    watchdog = sync.Watchdog(store)
    assert watchdog.look() == []  # a loop might answer it by itself
    [one] = watchdog.look()
    assert (one.failure.kind, one.outcome) == ("drift", "recovered")
    assert state.get("wrong") is None
    assert drift.status().since_refresh == 0
    kept.agent.count = 1
    with pytest.raises(LeaseLostError):
        kept.save(replace=True)
    spawned(store)
    assert [watchdog.look(), watchdog.look()] == [[], []]


@pytest.mark.spec("X54")
def test_an_emergency_from_the_recovery_checkpoint_to_the_report(place: Place) -> None:
    """What was begun is whole or not there; the state before is kept; the captain is told once."""
    store = place.open()
    agents = registry(store)
    agents.register("7", kind="counter")
    agents.spawn("7").save()
    state = store.agent("7")
    with state.change() as change:
        change.set("core", "kept")
        change.set("both", "kept")
    good = state.checkpoint("good")
    drift = sync.Drift(state, max_cycles=3)
    state.set("core", "astray")
    for _ in range(3):
        drift.note()
    recovery = sync.Recovery(store)
    watchdog = sync.Watchdog(store, recovery, restart=agents.spawn)
    watchdog.look()
    [one] = watchdog.look()
    assert (one.report.strategy, one.report.restored_from) == ("newest_valid", good.id)
    assert (state.get("core"), state.get("both")) == ("kept", "kept")
    [before] = [
        made
        for made in state.checkpoints(type="recovery")
        if made.name == f"before recovery {one.report.id}"
    ]
    assert state.at(before).get("core") == "astray"
    assert agents.running()["7"].agent.count == 0
    for reader in ("captain", "feedback"):
        inbox = store.agent(reader)
        for _ in range(2):
            recovery.deliver(
                inbox, reader, lambda change, notice: change.append("reports", notice.agent)
            )
        assert inbox.get("reports") == ["agent:7"]
    agents.close()


def test_too_many_failed_cycles_are_told_once(place: Place) -> None:
    store = place.open()
    spawned(store)
    told: list[Any] = []
    watchdog = sync.Watchdog(store, on_failure=lambda scope, failure: told.append(failure))
    drift = sync.Drift(store.agent("7"), without=["errors", "repetition"])
    for n in range(30):
        drift.note(f"try {n}", failed=n % 3 > 0)
    for _ in range(4):
        watchdog.look()
    assert [one.kind for one in told] == ["error_rate"]
    assert told[0].evidence["error_rate"] > 0.5


@pytest.mark.spec("X11")
def test_a_state_that_fails_verification_is_recovered(place: Place) -> None:
    state = place.open().agent("7")
    for n in range(10):
        state.set(f"k{n}", n)
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[3]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    store = place.open()
    watchdog = sync.Watchdog(store, scrubber=sync.Scrubber(store, budget=30))
    [one] = watchdog.look()
    assert one.outcome == "recovered"
    assert one.report.lost == "what entry 4 did"
    assert key.hex() in {aside.id for aside in sync.Recovery(store).quarantine("agent:7").list()}
    assert [watchdog.look() for _ in range(3)] == [[], [], []]  # what is past harms nobody


def test_in_the_background(place: Place) -> None:
    store = place.open()
    kept = spawned(store)
    again: list[str] = []
    with sync.Watchdog(store, restart=again.append, interval=0.01, lease=5) as watchdog:
        drift = sync.Drift(store.agent("7"), max_cycles=3)
        for _ in range(3):
            drift.note()
        while not again:
            pass
        assert watchdog.acting
    assert again == ["7"]
    assert not watchdog.acting
    assert kept.status == "running"  # it does not know yet, but what it writes is refused


def test_what_makes_no_sense_is_refused(store: sync.Store) -> None:
    for more in (
        {"error_rate": 2},
        {"interval": -1},
        {"lease": 0},
        {"on_failure": 3},
        {"recovery": sync.Recovery(store), "on_failure": print},
        {"scrubber": 1},
        {"recovery": 1},
    ):
        with pytest.raises(InvalidInputError):
            sync.Watchdog(store, **more)
    with pytest.raises(InvalidInputError, match="open store"):
        sync.Watchdog("store")
