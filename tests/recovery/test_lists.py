"""Lists of recoveries and of what they set aside: whole, in their order, whatever stands beside."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.errors import RecoveryFailedError
from holdfast.recovery import quarantine
from holdfast.recovery.records import recovered_agents
from holdfast.recovery.run import recovering_lease
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names.face import given
from holdfast.store.proof.verify_report import Finding


@pytest.mark.parametrize("name", ["x:y", "agent:", "weird:name/z", "x"])
def test_a_scope_of_somebody_else_breaks_no_list(store: sync.Store, name: str) -> None:
    store.agent("7").set("plan", 1)
    recovery = sync.recovery.Recovery(store)
    recovery.recover("agent:7", "agent_crash")
    store.custom(f"$recovery/{name}").set("hello", 1)
    assert [str(one) for one in recovered_agents(StoreHandle(store._core))] == ["agent:7"]
    assert recovery.statistics().recoveries == 1


def test_the_newest_recovery_is_first_whatever_clocks_say(place: Place) -> None:
    """The machine of the first one is ten minutes ahead."""
    right, ahead = Hands(), Hands()
    ahead.wall += 600
    store, other = place.open(clock=right.clock), place.open(clock=ahead.clock)
    states = [store.agent("7"), store.agent("8")]
    for state in states:
        state.set("plan", 1)

    def fail(context: Any, action: Any) -> None:
        raise ValueError("no")

    failing = {"id": "f", "triggers": ["odd"], "steps": [{"type": "fail"}]}
    first = sync.recovery.Recovery(other, steps={"fail": fail}, procedures=[failing])
    with pytest.raises(RecoveryFailedError):
        first.recover("agent:7", "odd")
    recovery = sync.recovery.Recovery(store)
    done = [recovery.recover("agent:7", "agent_crash").id for _ in range(2)]
    found = recovery.reports("agent:7")
    assert [one.status for one in found] == ["succeeded", "succeeded", "rolled_back"]
    assert [one.id for one in found[:2]] == done[::-1]
    assert found[0].started_at == right.time()
    with pytest.raises(RecoveryFailedError):
        recovery.recover_group(states, "state_corruption")
    assert [recovery.reports(one)[0].status for one in states] == ["failed", "failed"]
    assert recovery.recover("agent:7", "agent_crash").id == recovery.reports("agent:7")[0].id
    concerns = recovery.health("agent:7").concerns
    assert not [one for one in concerns if one.kind == "failed_recovery"]


def test_that_not_all_damaged_rows_are_set_aside_is_logged(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(quarantine, "MOST_ROWS", 3)
    store.agent("7").set("plan", 1)
    found = [
        Finding("entry", f"entry {number}", "damaged", "agent:7", row=f"45{number:026x}")
        for number in range(4)
    ]
    kept = sync.recovery.Recovery(store).quarantine("agent:7")
    with caplog.at_level(logging.WARNING, "holdfast.recovery"):
        assert len(kept.add(found[:3])) == 3
        assert not caplog.records
        kept.add(found[:3])  # known ones are not counted
        assert not caplog.records
        store.agent("8").set("plan", 1)
        assert len(sync.recovery.Recovery(store).quarantine("agent:8").add(found)) == 3
    assert "agent:8: more than 3 rows" in caplog.text


def test_recoveries_that_wait_keep_nothing_else_waiting(plain: Place) -> None:
    other = plain.open()
    other.agent("7").set("plan", 1)
    free, held = threading.Event(), threading.Event()

    def hold() -> None:
        with other.lease(recovering_lease("agent:7"), duration=60):
            held.set()
            assert free.wait(120)

    async def main() -> None:
        store = plain.open()
        recovery = holdfast.recovery.Recovery(given(store))
        waits = [
            asyncio.create_task(recovery.recover("agent:7", "agent_crash", wait=300))
            for _ in range(40)  # more than there are threads for reads
        ]
        try:
            await asyncio.sleep(0)
            async with asyncio.timeout(60):
                assert await recovery.reports("agent:7") == []
                assert (await recovery.plan("agent:7", "agent_crash")).strategy == "as_it_is"
        finally:
            free.set()
            done = await asyncio.gather(*waits)
        assert all(one.success for one in done)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    asyncio.run(main())
    holder.join()
