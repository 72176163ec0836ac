"""A lease that is lost while failures are answered concerns its own agent alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from beats_kit import by_hand, pass_a_lease
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.recovery.watchdog import WATCHDOG, lease_of
from holdfast.store.names.face import given
from holdfast.store.names.scope import Scope

AGENTS = ("7", "8", "9")


@pytest.fixture
def silent(place: Place, hands: Hands) -> Iterator[tuple[Any, Any]]:
    """A store whose agents are silent, and the one of a watchdog."""
    runner = by_hand(place.open(clock=hands.clock))
    leases = []
    for id_ in AGENTS:
        runner.agent(id_).set("count", 1)
        name = lease_of(Scope("agent", id_))
        assert name is not None
        leases.append(runner._core.leases.take(name, 30.0, "runner"))
    yield runner, by_hand(place.open(clock=hands.clock))
    del leases


def outcomes(found: list[Any]) -> dict[str, str]:
    """How each agent was answered."""
    return {one.agent.id: one.outcome for one in found}


def test_an_agents_lost_lease_drops_no_answer_of_the_others(
    silent: tuple[Any, Any], hands: Hands
) -> None:
    guard = silent[1]

    def lose(context: Any, action: Any) -> None:
        if context.agent.id == "8":  # somebody takes the agent while it is recovered
            guard.break_lease(lease_of(context.agent))

    recovery = sync.recovery.Recovery(guard, steps={"lose": lose})
    recovery.set(
        {
            "id": "losing",
            "triggers": ["missed_beats"],
            "steps": [{"type": "lose"}, {"type": "locate_checkpoint"}, {"type": "restore_state"}],
        }
    )
    watchdog = sync.recovery.Watchdog(guard, recovery)
    watchdog.look()
    pass_a_lease(hands, guard)
    found = watchdog.look()
    assert outcomes(found) == {"7": "recovered", "8": "failed", "9": "recovered"}
    [failed] = [one for one in found if one.outcome == "failed"]
    assert "LeaseLostError" in failed.error
    assert [one.agent.id for one in watchdog.unanswered()] == ["8"]  # it is tried again
    assert watchdog.acting


@pytest.mark.parametrize("face", ["blocking", "async"])
def test_a_watchdog_that_loses_its_own_lease_tells_what_it_did(
    silent: tuple[Any, Any], hands: Hands, face: str
) -> None:
    runner, guard = silent
    done = threading.Semaphore(0)

    def answer(scope: Scope, failure: Any) -> None:
        if scope.id != "8":
            done.release()
            return
        for _ in range(len(AGENTS) - 1):
            assert done.acquire(timeout=60)
        end = time.monotonic() + 60
        while len(watched.unanswered()) > 1:  # the others are answered, and that is kept
            assert time.monotonic() < end
        runner.break_lease(WATCHDOG)

    watched = sync.recovery.Watchdog(guard, on_failure=answer)
    if face == "blocking":
        watched.look()
        pass_a_lease(hands, guard)
        found = watched.look()
    else:

        async def main() -> list[Any]:
            watchdog = holdfast.recovery.Watchdog(given(guard), on_failure=answer)
            await watchdog.look()
            pass_a_lease(hands, guard)
            return await watchdog.look()

        found = asyncio.run(main())
    assert outcomes(found) == {"7": "told", "8": "failed", "9": "told"}
    assert [one.agent.id for one in watched.unanswered()] == ["8"]  # for who acts now


@pytest.mark.parametrize("off", [600.0, -600.0])
def test_who_takes_over_waits_for_no_wall_clock(
    silent: tuple[Any, Any], hands: Hands, off: float
) -> None:
    _, guard = silent
    told: list[str] = []

    def refuse(scope: Scope, failure: Any) -> None:
        raise RuntimeError("not now")

    first = sync.recovery.Watchdog(guard, on_failure=refuse)
    first.look()
    pass_a_lease(hands, guard)
    assert set(outcomes(first.look()).values()) == {"failed"}
    hands.wall += off  # the pause is measured by what passes
    assert first.look() == []
    hands.move(1.1)
    assert set(outcomes(first.look()).values()) == {"failed"}
    hands.wall -= 2 * off
    assert first.look() == []
    first.stop()
    second = sync.recovery.Watchdog(guard, on_failure=lambda scope, failure: told.append(scope.id))
    assert set(outcomes(second.look()).values()) == {"told"}
    assert sorted(told) == sorted(AGENTS)
    assert second.unanswered() == []
