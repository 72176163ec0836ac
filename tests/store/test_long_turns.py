"""Long values of which several tasks or threads write and read pieces."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

from store_kit import Place

import holdfast

SIZE = 700_000
"""So much that a piece becomes several chunks, and leaves the event loop."""
PIECES = [bytes([number]) * SIZE for number in range(1, 6)]


def whole_pieces(data: bytes) -> list[int]:
    """Which piece stands where, if none is cut."""
    runs = [(byte, sum(1 for _ in run)) for byte, run in groupby(data)]
    assert {length for _, length in runs} <= {SIZE}
    return [byte for byte, _ in runs]


def test_threads_write_whole_pieces(place: Place) -> None:
    with place.open() as store, ThreadPoolExecutor(5) as pool:
        state = store.agent("1")
        with state.open_write("k") as file:
            list(pool.map(file.write, PIECES))
        assert sorted(whole_pieces(state.get("k"))) == [1, 2, 3, 4, 5]
        assert store.verify().findings == []


def test_threads_read_every_byte_once(place: Place) -> None:
    data = b"".join(number.to_bytes(4, "big") for number in range(500_000))
    with place.open() as store, ThreadPoolExecutor(4) as pool:
        state = store.agent("1")
        state.set("k", data)
        with state.open_read("k") as file:
            found = pool.map(lambda _: list(file.chunks(50_000)), range(4))
            pieces = [piece for pieces in found for piece in pieces]
        assert b"".join(sorted(pieces)) == data


def test_tasks_take_turns(place: Place) -> None:
    async def run() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            async with state.open_write("k") as file:
                await asyncio.gather(*map(file.write, PIECES))
            assert whole_pieces(await state.get("k")) == [1, 2, 3, 4, 5]
            async with state.open_read("k") as found:
                read = await asyncio.gather(*(found.read(SIZE) for _ in PIECES))
            assert read == PIECES
            assert (await store.verify()).findings == []

    asyncio.run(run())
