"""The watchdog: agents that fail are found, recovered once, and run again."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest
from beats_kit import beat, by_hand, pass_a_lease
from store_kit import Hands, Place, put_row, rows_of

from holdfast import Scope, sync
from holdfast.agents import Message, StepResult
from holdfast.agents.agent_keys import CONVERSATION
from holdfast.errors import Conflict, InvalidInputError, LeaseLostError, StoreClosedError
from holdfast.recovery import AgentFailure
from holdfast.recovery.watchdog import Sighting, lease_of
from holdfast.store.lease import Asking

RUNNER = """
import sys, time
from holdfast import sync
class Counter(sync.agents.Agent):
    persistent = ("count",)
    count = 0
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
store = sync.open(url, key=key, durability="normal", signer=signer)
agents = sync.agents.Agents(store, {"counter": lambda identity: Counter()}, duration=0.6)
agents.register("7", kind="counter")
kept = agents.spawn("7")
kept.agent.count = 41
kept.save()
print("ready", flush=True)
time.sleep(60)
"""


class Counter(sync.agents.Agent):
    """Counts."""

    persistent = ("count",)
    count = 0


def registry(store: sync.Store, **more: Any) -> sync.agents.Agents:
    """Agents that count."""
    return sync.agents.Agents(store, {"counter": lambda identity: Counter()}, **more)


def spawned(store: sync.Store, id: str = "7") -> Any:
    """A running agent that has something to lose."""
    agents = registry(store)
    agents.register(id, kind="counter")
    kept = agents.spawn(id)
    kept.agent.count = 41
    kept.save()
    return kept


@pytest.mark.spec("M73", "M85")
def test_an_agent_whose_process_was_killed_runs_again(place: Place) -> None:
    if place.engine == "memory":
        pytest.skip("a process is needed")
    place.open()
    command = [sys.executable, "-c", RUNNER, place.url, place.key or "", place.signer]
    store = place.open()
    agents = registry(store)
    watchdog = sync.recovery.Watchdog(store, restart=agents.spawn)
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
    watchdogs = [sync.recovery.Watchdog(one) for one in guards]
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
    watchdog = sync.recovery.Watchdog(guard)
    with runner.lease("agent/$not-an-agent"):
        assert watchdog.look() == []
        pass_a_lease(hands, guard)
        [one] = watchdog.look()
    assert (one.agent, one.outcome) == (Scope("agent", id), "recovered")


def test_a_watchdog_takes_over_from_one_that_died(place: Place, hands: Hands) -> None:
    spawned(by_hand(place.open(clock=hands.clock)))
    first = sync.recovery.Watchdog(by_hand(place.open(clock=hands.clock)))
    other = by_hand(place.open(clock=hands.clock))
    second = sync.recovery.Watchdog(other)
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

    def answer(scope: Scope, failure: AgentFailure) -> None:
        asked.append((str(scope), failure.kind, failure.severity))
        if len(asked) == 1:
            raise OSError("nobody answers the phone")

    watchdog = sync.recovery.Watchdog(guard, on_failure=answer)
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

    def fail(scope: Scope, failure: AgentFailure) -> None:
        raise OSError

    watchdog = sync.recovery.Watchdog(guard, on_failure=fail)
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
    drift = sync.agents.Drift(state)
    for n in range(60):
        drift.note("read", task="t", progress=float(n))
    while not drift.note("read", task="t", progress=59.0):
        pass
    watchdog = sync.recovery.Watchdog(store)
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


def astray(store: sync.Store) -> None:
    """Let the agent drift until there is an alarm, behind a good checkpoint."""
    store.agent("7").checkpoint("good")
    drift = sync.agents.Drift(store.agent("7"), max_cycles=3)
    for _ in range(3):
        drift.note()


@pytest.mark.parametrize("starts", [False, True])
def test_an_answer_that_is_tried_again_takes_no_agent_from_who_runs_it_now(
    place: Place, hands: Hands, starts: bool
) -> None:
    """The restart behind the recovery of drift fails, before or after it started the agent."""
    store, elsewhere = place.open(clock=hands.clock), place.open(clock=hands.clock)
    spawned(store)
    astray(store)
    again: list[Any] = []

    def restart(id: str) -> None:
        again.extend([spawned(elsewhere)] if starts else [])
        raise OSError("no answer")

    watchdog = sync.recovery.Watchdog(store, restart=restart)
    watchdog.look()
    assert [(one.failure.kind, one.outcome) for one in watchdog.look()] == [("drift", "failed")]
    kept = again[0] if starts else spawned(elsewhere)
    kept.agent.count = 1000
    kept.save()
    hands.move(5)
    assert [(one.failure.kind, one.outcome) for one in watchdog.look()] == [("drift", "passed")]
    kept.agent.count += 1
    kept.save()
    hands.move(5)
    assert [watchdog.look(), watchdog.look(), watchdog.unanswered()] == [[], [], []]


@pytest.mark.parametrize("way", ["stopped", "by hand"])
def test_only_the_start_is_tried_again_if_that_alone_failed(
    place: Place, hands: Hands, way: str
) -> None:
    """The state was put back already: what was written to it since is newer than the failure."""
    store, elsewhere = place.open(clock=hands.clock), place.open(clock=hands.clock)
    spawned(store)
    astray(store)
    agents = registry(store)
    down = [1]

    def restart(id: str) -> None:
        if down:
            raise OSError(f"no machine ({down.pop()})")
        agents.spawn(id)

    watchdog = sync.recovery.Watchdog(store, restart=restart)
    watchdog.look()
    assert [one.error for one in watchdog.look()] == ["OSError: no machine (1)"]
    if way == "stopped":
        others = registry(elsewhere)
        kept = others.spawn("7")
        kept.agent.count = 1000
        kept.save()
        others.close()
    elsewhere.agent("7").set("by hand", "mended")
    hands.move(5)
    [one] = watchdog.look()
    assert (one.failure.kind, one.outcome, one.report) == ("drift", "recovered", None)
    assert store.agent("7").get("by hand") == "mended"
    assert agents.running()["7"].agent.count == (1000 if way == "stopped" else 41)
    assert watchdog.unanswered() == []
    agents.close()


@pytest.mark.parametrize("next_", ["drift", "corruption_detected"])
def test_nothing_waits_for_an_end_that_is_over(place: Place, hands: Hands, next_: str) -> None:
    """It could not be answered often, and somebody else runs the agent by now, who fails."""
    store = by_hand(place.open(clock=hands.clock))
    spawned(store)
    guard = by_hand(place.open(clock=hands.clock))

    def restart(id: str) -> None:
        raise OSError("no machine")

    watchdog = sync.recovery.Watchdog(guard, restart=restart)
    watchdog.look()
    pass_a_lease(hands, guard)
    assert [one.failure.kind for one in watchdog.look()] == ["missed_beats"]
    for _ in range(8):
        [one] = watchdog.unanswered()
        watchdog._sightings.failed(one, "no machine")
    spawned(guard)
    if next_ == "drift":
        astray(guard)
    else:
        found = Sighting(Scope("agent", "7"), AgentFailure(next_))
        watchdog._found = lambda: iter([found])  # type: ignore[method-assign]
    done = [*watchdog.look(), *watchdog.look()]
    assert [one.failure.kind for one in done][:2] == ["missed_beats", next_]
    assert done[0].outcome == "passed"


def test_an_end_does_not_wait_for_the_answer_to_drift(place: Place, hands: Hands) -> None:
    store = by_hand(place.open(clock=hands.clock))
    spawned(store)
    astray(store)
    guard = by_hand(place.open(clock=hands.clock))
    told: list[str] = []

    def answer(scope: Scope, failure: AgentFailure) -> None:
        told.append(failure.kind)
        if failure.kind == "drift":
            raise OSError("nobody is there to decide")

    watchdog = sync.recovery.Watchdog(guard, on_failure=answer)
    watchdog.look()
    assert [one.outcome for one in watchdog.look()] == ["failed"]
    for _ in range(8):  # as if it had been tried often, so that the next try is minutes off
        [one] = watchdog.unanswered()
        watchdog._sightings.failed(one, "nobody is there to decide")
    pass_a_lease(hands, guard)
    assert [(one.failure.kind, one.outcome) for one in watchdog.look()] == [
        ("missed_beats", "told")
    ]
    assert told == ["drift", "missed_beats"]


def test_an_agent_astray_that_cannot_be_recovered_goes_on_as_it_was(
    place: Place, hands: Hands
) -> None:
    store = place.open(clock=hands.clock)
    spawned(store)
    astray(store)
    agents = registry(store)
    steps = [{"type": one} for one in ("backup_current", "ask")]

    def ask(context: Any, action: Any) -> None:
        raise TimeoutError("nobody is there to decide")

    procedure = {"id": "ask", "triggers": ["drift"], "steps": steps}
    recovery = sync.recovery.Recovery(store, steps={"ask": ask}, procedures=[procedure])
    watchdog = sync.recovery.Watchdog(store, recovery, restart=agents.spawn)
    watchdog.look()
    [one] = watchdog.look()
    assert (one.failure.kind, one.outcome) == ("drift", "failed")
    assert agents.running()["7"].agent.count == 41
    agents.running()["7"].save()
    hands.move(5)
    assert [one.outcome for one in watchdog.look()] == ["passed"]  # newer work is not undone
    assert [watchdog.look(), watchdog.look(), watchdog.unanswered()] == [[], [], []]
    astray(store)  # alarms that come later are answered
    watchdog.look()
    assert [one.outcome for one in watchdog.look()] == ["failed"]
    agents.close()


@pytest.mark.spec("X54")
def test_an_emergency_from_the_recovery_checkpoint_to_the_report(place: Place) -> None:
    """What was begun is whole or not there; the state before is kept; the captain is told once."""
    store = place.open()
    agents = registry(store)
    agents.register("7", kind="counter")
    first = agents.spawn("7")
    first.agent.count = 41
    first.save()
    state = store.agent("7")
    with state.change() as change:
        change.set("core", "kept")
        change.set("both", "kept")
    context = sync.agents.AgentState(state)
    context.append("conversation", Message(role="user", content="hi"))
    context.put("short_term_memory", "x", 1)
    context.put("session_memory", "y", 2)
    good = state.checkpoint("good")
    first.agent.count = 99
    first.save()
    drift = sync.agents.Drift(state, max_cycles=3)
    state.set("core", "astray")
    for _ in range(3):
        drift.note()
    recovery = sync.recovery.Recovery(store)
    began: list[Any] = []

    class Clean(Counter):
        def step(self) -> StepResult:
            began.append((self.count, context.get("conversation"), context.load()))
            return StepResult(done=True)

    def restart(id: str) -> None:
        loop = sync.agents.Loop(store.agent(id), Clean, signals=())
        loop.restart(good, clean=True, reason="emergency")
        assert loop.run().restarts == 1

    watchdog = sync.recovery.Watchdog(store, recovery, restart=restart)
    watchdog.look()
    [one] = watchdog.look()
    assert (one.report.strategy, one.report.restored_from) == ("newest_valid", good.id)
    [(count, conversation, components)] = began
    assert (count, conversation) == (41, []), "the core is there, the conversation is not"
    assert "short_term_memory" not in components
    assert components["session_memory"] == {"y": 2}
    assert (state.get("core"), state.get("both")) == ("kept", "kept")
    [before] = [
        made
        for made in state.checkpoints(type="recovery")
        if made.name == f"before recovery {one.report.id}"
    ]
    assert state.at(before).get("core") == "astray"
    assert state.at(before).exists(CONVERSATION), "nothing is lost by that"
    for reader in ("captain", "feedback"):
        inbox = store.agent(reader)
        for _ in range(2):
            recovery.deliver(
                inbox, reader, lambda change, notice: change.append("reports", notice.agent)
            )
        assert inbox.get("reports") == ["agent:7"]
    with pytest.raises(Conflict):  # the one that went astray saves nothing more
        agents.close()


@pytest.mark.spec("X11")
@pytest.mark.parametrize("runs", [False, True])
def test_a_state_that_fails_verification_is_recovered(place: Place, runs: bool) -> None:
    state = place.open().agent("7")
    for n in range(10):
        state.set(f"k{n}", n)
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[3]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    store = place.open()
    if runs:
        Asking(store._core, lease_of(Scope("agent", "7")), 60, 0, None).take()
    started: list[str] = []
    watchdog = sync.recovery.Watchdog(store, restart=started.append)
    scrubber = sync.recovery.Scrubber(store, budget=30, found=watchdog.report)
    scrubber.slice()
    [one] = watchdog.look()
    assert one.outcome == "recovered"
    assert started == (["7"] if runs else [])  # what nobody ran is not started
    assert one.report.lost == "what entry 4 did"
    assert key.hex() in {
        aside.id for aside in sync.recovery.Recovery(store).quarantine("agent:7").list()
    }
    scrubber.slice()
    assert [watchdog.look() for _ in range(3)] == [[], [], []]  # what is past harms nobody


def test_in_the_background(place: Place) -> None:
    store = place.open()
    kept = spawned(store)
    again: list[str] = []
    with sync.recovery.Watchdog(store, restart=again.append, interval=0.01, lease=60) as watchdog:
        drift = sync.agents.Drift(store.agent("7"), max_cycles=3)
        for _ in range(3):
            drift.note()
        while not again:
            pass
        assert watchdog.acting
    assert again == ["7"]
    assert not watchdog.acting
    assert kept.status == "running"  # it does not know yet, but what it writes is refused


def test_an_answer_that_hangs_keeps_no_other_agent_waiting(plain: Place) -> None:
    store = plain.open()
    for id in "ab":
        spawned(store, id)
        store.agent(id).checkpoint("good")
    go_on, begun, done = threading.Event(), threading.Event(), threading.Event()
    started: list[str] = []

    def restart(id: str) -> None:
        started.append(id)
        if id == "b":
            done.set()
            return
        begun.set()
        assert go_on.wait(60)

    def astray(id: str) -> None:
        drift = sync.agents.Drift(store.agent(id), max_cycles=3)
        for _ in range(3):
            drift.note()

    watchdog = sync.recovery.Watchdog(store, restart=restart, interval=0.01, lease=60)
    with watchdog:
        astray("a")
        assert begun.wait(60)
        astray("b")
        assert done.wait(60)
        assert Scope("agent", "a") in [one.agent for one in watchdog.unanswered()]
        go_on.set()
    assert watchdog.unanswered() == []  # what is being answered is waited for
    assert started == ["a", "b"]
    assert not watchdog.acting


@pytest.mark.parametrize("what", ["stop", "close"])
@pytest.mark.parametrize("background", [True, False])
def test_who_is_told_may_stop_the_watchdog(plain: Place, what: str, background: bool) -> None:
    if plain.engine == "memory" and what == "close":
        pytest.skip("it is gone with its store")
    store = plain.open()
    spawned(store)
    told, ended = [], threading.Event()

    def tell(scope: Scope, failure: AgentFailure) -> None:
        told.append(str(scope))
        (watchdog.stop if what == "stop" else store.close)()
        ended.set()

    watchdog = sync.recovery.Watchdog(store, on_failure=tell, interval=0.01, lease=60)
    drift = sync.agents.Drift(store.agent("7"), max_cycles=3)
    for _ in range(3):
        drift.note()
    if background:
        watchdog.start()
    else:
        with suppress(StoreClosedError):
            while watchdog.look() == []:
                pass
    assert ended.wait(60)
    watchdog._wait()
    watchdog._background.stop()
    assert told == ["agent:7"]
    assert not watchdog.acting
    other = sync.recovery.Watchdog(plain.reopen() if what == "close" else store, on_failure=tell)
    assert len(other.unanswered()) == (what == "close")  # that could not be noted any more
    if what == "stop":
        assert other.look() == []
        assert other.acting
        other.stop()


@pytest.mark.parametrize("owner", ["watchdog 99", "boot"])
def test_an_agent_that_nobody_ran_is_not_started_if_who_mended_it_is_gone(
    plain: Place, hands: Hands, owner: str
) -> None:
    gone = by_hand(plain.open(clock=hands.clock))
    gone.agent("7").set("plan", 1)
    asking = Asking(gone._core, str(lease_of(Scope("agent", "7"))), 30.0, 0, owner)
    asking.take()
    guard = by_hand(plain.open(clock=hands.clock))
    started: list[str] = []
    watchdog = sync.recovery.Watchdog(guard, restart=started.append)
    if owner != "boot":  # what that one was at is gone on with at once
        failure = AgentFailure("agent_crash")
        watchdog._sightings.add(Sighting(Scope("agent", "7"), failure))
        assert [(one.outcome, one.error) for one in watchdog.look()] == [("recovered", "")]
    for _ in range(3):
        assert watchdog.look() == []
        pass_a_lease(hands, guard)
    assert started == []


@pytest.mark.parametrize("how", ["delete", "erase"])
def test_a_failure_of_an_agent_that_is_no_more_is_let_go(plain: Place, how: str) -> None:
    store, other = plain.open(), plain.open()
    store.agent("7").set("plan", 1)
    recovery = sync.recovery.Recovery(store, validate=[lambda state: "no"])
    watchdog = sync.recovery.Watchdog(store, recovery)
    watchdog._sightings.add(Sighting(Scope("agent", "7"), AgentFailure("corruption_detected")))
    assert [one.outcome for one in watchdog.look()] == ["failed"]
    getattr(other, how)("agent:7")
    assert [one.outcome for one in watchdog.look()] == ["passed"]
    assert watchdog.unanswered() == []


def test_what_makes_no_sense_is_refused(store: sync.Store) -> None:
    for more in (
        {"interval": -1},
        {"lease": 0},
        {"on_failure": 3},
        {"recovery": sync.recovery.Recovery(store), "on_failure": print},
        {"recovery": 1},
    ):
        with pytest.raises(InvalidInputError):
            sync.recovery.Watchdog(store, **more)
    with pytest.raises(InvalidInputError, match="open store"):
        sync.recovery.Watchdog("store")
