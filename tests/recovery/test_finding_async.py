"""Watchdog, scrubber and boot on the async face, and that both faces are equal."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from beats_kit import by_hand, pass_a_lease
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.agents import MachineArrow, MachineDefinition, MachineState
from holdfast.errors import InvalidInputError


def public(kind: type) -> dict[str, Any]:
    """What a class offers."""
    return {name: thing for name, thing in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize("name", ["Scrubber", "Watchdog"])
def test_both_faces_are_equal(name: str) -> None:
    ours, theirs = getattr(holdfast.recovery, name), getattr(sync.recovery, name)
    assert public(ours).keys() == public(theirs).keys()
    assert inspect.getdoc(ours) == inspect.getdoc(theirs)
    for method, made in {**public(ours), "__init__": ours.__init__}.items():
        other = getattr(theirs, method)
        if callable(made):
            assert inspect.signature(made).parameters.keys() == (
                inspect.signature(other).parameters.keys()
            )
        if method != "__init__":
            assert inspect.getdoc(made) == inspect.getdoc(other)
    assert inspect.getdoc(holdfast.recovery.boot) == inspect.getdoc(sync.recovery.boot)
    assert inspect.signature(holdfast.recovery.boot).parameters.keys() == (
        inspect.signature(sync.recovery.boot).parameters.keys()
    )


class Counter(holdfast.agents.Agent):
    """Counts."""

    persistent = ("count",)
    count = 0


def test_an_agent_that_is_not_heard_is_spawned_again_on_the_loop(
    place: Place, hands: Hands
) -> None:
    async def main() -> None:
        kinds = {"counter": lambda identity: Counter()}
        options = place.options(clock=hands.clock)
        gone = by_hand(await holdfast.open(place.url, **options))
        agents = holdfast.agents.Agents(gone, kinds)
        await agents.register("7", kind="counter")
        kept = await agents.spawn("7")
        kept.agent.count = 41
        await kept.save()
        async with holdfast.open(place.url, **options) as store:
            here = holdfast.agents.Agents(by_hand(store), kinds)
            loop = asyncio.get_running_loop()

            async def spawn(id: str) -> None:
                assert asyncio.get_running_loop() is loop
                await here.spawn(id)

            async with holdfast.recovery.Watchdog(store, restart=spawn, interval=3600) as watchdog:
                while not watchdog.acting:
                    await watchdog.unanswered()
                await watchdog.look()
                pass_a_lease(hands, store)
                found = await watchdog.look()
                assert [one.outcome for one in found] == ["recovered"]
                assert await watchdog.unanswered() == []
                assert here.running()["7"].agent.count == 41
            await here.close()
        await gone.close()

    asyncio.run(main())


def test_who_is_told_on_the_loop_may_stop_the_watchdog(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            agents = holdfast.agents.Agents(store, {"counter": lambda identity: Counter()})
            await agents.register("7", kind="counter")
            await agents.spawn("7")
            drift = holdfast.agents.Drift(store.agent("7"), max_cycles=3)
            for _ in range(3):
                await drift.note()
            told = asyncio.Event()

            async def tell(scope: holdfast.Scope, failure: holdfast.recovery.AgentFailure) -> None:
                await watchdog.stop()
                told.set()

            watchdog = holdfast.recovery.Watchdog(store, on_failure=tell, interval=0.01)
            await watchdog.start()
            await asyncio.wait_for(told.wait(), 60)
            await watchdog.stop()
            assert not watchdog.acting
            assert await watchdog.unanswered() == []
            await agents.close()

    asyncio.run(main())


@pytest.mark.parametrize("of_recovery", [False, True])
def test_boot_settles_machines_with_async_work(place: Place, of_recovery: bool) -> None:
    sent: list[str] = []

    async def work(step: Any) -> None:
        await asyncio.sleep(0)
        sent.append(step.id)
        if len(sent) == 1:
            raise asyncio.CancelledError

    arrow = MachineArrow("sent", work=work, recover="complete")
    mail = MachineDefinition(
        "written", {"written": MachineState(on={"send": arrow}), "sent": MachineState()}
    )

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("7")
            machine = holdfast.agents.Machine(state, mail, "post")
            with pytest.raises(asyncio.CancelledError):
                await machine.fire("send")
            await holdfast.agents.Mailbox(state).send("hello")
            seen: list[Any] = []

            async def ready() -> None:
                seen.append("ready")

            async def request(state: Any, letter: Any) -> None:
                seen.append(letter.content)

            known: dict[str, Any] = {"machines": {"post": mail}}
            if of_recovery:
                known = {"recovery": holdfast.recovery.Recovery(store, **known)}
            report = await holdfast.recovery.boot(store, **known, ready=ready, requests=request)
            assert {one.kind: one.outcome for one in report.items} == {
                "transition": "completed",
                "request": "retry",
            }
            assert seen == ["ready", "hello"]
            now = await machine.now()
            assert now is not None
            assert now.state == "sent"
            assert len(set(sent)) == 1

    asyncio.run(main())


def test_a_store_is_scrubbed_beside_its_work(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            async with holdfast.recovery.Scrubber(store, interval=0.01) as scrubber:
                while (await scrubber.status()).passes < 2:
                    await store.agent("7").append("log", "line")
            done = await scrubber.slice()
            assert done is not None
            assert done.findings == ()
            with pytest.raises(InvalidInputError):
                holdfast.recovery.Watchdog(store, sync.recovery.Recovery(store))  # type: ignore[arg-type]

    asyncio.run(main())
