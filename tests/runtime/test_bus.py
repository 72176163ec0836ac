"""The bus: topics in memory, bounded queues, requests and replies."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.errors import InvalidInputError, MissingError
from holdfast.runtime import Bus


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(main, 30)

    asyncio.run(bounded())


@pytest.mark.spec("S124", "S125", "S126")
def test_subscribers_get_what_fits_their_topics() -> None:
    async def main() -> None:
        bus = Bus()
        assert (bus.topics(), bus.queues()) == ({}, []), "queues come with subscribers"
        async with bus.subscribe("agent:*", name="a") as one, bus.subscribe(["x", "*"]) as two:
            assert await bus.publish("agent:spawned", {"id": 1}, sender="me") == 2
            assert await bus.publish("x", 2) == 1
            assert bus.topics() == {"agent:*": ["a"], "x": [""], "*": [""]}
            assert bus.queues() == [("a", 1, 0), ("", 2, 0)]
            message = await one.get()
            assert message is not None
            assert (message.topic, message.content, message.sender) == (
                *("agent:spawned", {"id": 1}, "me"),
            )
            assert [(await two.get()).topic for _ in range(2)] == ["agent:spawned", "x"]  # type: ignore[union-attr]
            assert (len(one), len(two)) == (0, 0)
        assert bus.topics() == {}
        assert await bus.publish("x") == 0
        assert await one.get() is None, "over"

    run(main())


@pytest.mark.spec("S123", "S127", "S128")
def test_nothing_is_kept_and_who_comes_again_subscribes_again() -> None:
    async def main() -> None:
        bus = Bus()
        await bus.publish("x", 1)
        async with bus.subscribe("x") as found:
            await bus.publish("x", 2)
        async with bus.subscribe("x") as again:
            await bus.publish("x", 3)
            assert len(again) == 1
            assert (await again.get()).content == 3  # type: ignore[union-attr]
        assert len(found) == 1, "what was there can still be taken"
        assert (await found.get()).content == 2  # type: ignore[union-attr]
        other = Bus()
        assert other.topics() == {}

    run(main())


@pytest.mark.spec("S126")
@pytest.mark.parametrize(("full", "left"), [("drop_oldest", [2, 3, 4]), ("drop_newest", [0, 1, 2])])
def test_a_full_queue_drops_and_counts(full: str, left: list[int]) -> None:
    async def main() -> None:
        bus, few = Bus(), {"size": 3, "full": full}
        async with bus.subscribe("x", name="slow", **few) as slow, bus.subscribe("x") as wide:  # type: ignore[arg-type]
            got = [await bus.publish("x", n) for n in range(5)]
            assert got == ([2, 2, 2, 2, 2] if full == "drop_oldest" else [2, 2, 2, 1, 1])
            assert slow.dropped == 2
            assert bus.queues()[0] == ("slow", 3, 2)
            assert [(await slow.get()).content for _ in range(3)] == left  # type: ignore[union-attr]
            assert len(wide) == 5

    run(main())


@pytest.mark.spec("S126", "S68")
def test_who_publishes_waits_for_room_and_for_nobody_who_is_gone() -> None:
    async def main() -> None:
        bus = Bus()
        async with bus.subscribe("x", size=1) as found:
            await bus.publish("x", 1)
            waits = asyncio.create_task(bus.publish("x", 2))
            await asyncio.sleep(0.05)
            assert not waits.done()
            assert (await found.get()).content == 1  # type: ignore[union-attr]
            assert await waits == 1
            left = asyncio.create_task(bus.publish("x", 3))
            await asyncio.sleep(0.05)
        assert await left == 0, "the subscriber left"

    run(main())


@pytest.mark.spec("S124")
def test_a_request_has_the_first_reply() -> None:
    async def main() -> None:
        bus = Bus()

        async def serve() -> None:
            async with bus.subscribe("ask:*") as found:
                async for message in found:
                    assert message.reply(message.content + 1)
                    assert not message.reply("again")

        server = asyncio.create_task(serve())
        await asyncio.sleep(0)
        assert await bus.request("ask:sum", 41) == 42
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
        with pytest.raises(MissingError, match="nobody subscribes to ask:sum"):
            await bus.request("ask:sum", 1)
        async with bus.subscribe("ask:*") as found:
            with pytest.raises(TimeoutError):
                await bus.request("ask:sum", 1, timeout=0.05)
            late = await found.get()
            assert late is not None
            assert not late.reply(2), "nobody waits any more"
            await bus.publish("ask:plain")
            plain = await found.get()
            assert plain is not None
            assert not plain.reply(1)

    run(main())


@pytest.mark.parametrize("given", [{"size": 0}, {"size": "1"}, {"full": "explode"}])
def test_bad_input(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Bus().subscribe("x", **given)

    async def main() -> None:
        bus = Bus()
        for topics in ("", [], 5):
            with pytest.raises(InvalidInputError):
                bus.subscribe(topics)  # type: ignore[arg-type]
        for topic in ("", 5):
            with pytest.raises(InvalidInputError):
                await bus.publish(topic)  # type: ignore[arg-type]

    run(main())
