"""What an entry says, as bytes: whatever can be written can be read again."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import msgspec
import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.store.journal.entry import Body, decode_body, encode_body
from holdfast.store.names.cause import Cause

FIELDS: dict[str, tuple[Any, Any]] = {
    "time": (0, 1_700_000_000_000_000),
    "ops": ([], [[4, "key"]]),
    "atoms": ([], [b"\1"]),
    "cause": (None, Cause(reason="why", operation="what")),
    "save": (None, (3, 0, b"hash")),
    "packs": ([], [b"pack"]),
    "change": (None, "id"),
    "also": ([], [(1, 2, 3)]),
    "reads": ([], [(4, 5, 6)]),
    "step": (0, -61),
}
EMPTY = [None, Cause(), Cause(actor=""), Cause(reason="", operation="")]


def test_every_body_can_be_read_again() -> None:
    """Each field empty or not, in every combination."""
    for values in product(*FIELDS.values()):
        body = Body(*values)
        assert decode_body(encode_body(body)) == body


@pytest.mark.parametrize("cause", EMPTY)
def test_cause_that_says_nothing_is_none(cause: Cause | None) -> None:
    for values in product(*FIELDS.values()):
        body = Body(*values)
        body.cause = cause
        again = decode_body(encode_body(body))
        body.cause = None
        assert again == body


def test_body_of_its_time_alone_can_be_read() -> None:
    assert decode_body(msgspec.msgpack.encode([7])) == Body(7, [])


def test_entry_that_does_and_says_nothing_is_read_again(place: Place) -> None:
    with place.open() as store:
        state = store.agent("a")
        state.set("k", 1)
        with store.acting(), state.change() as change:
            change.persist("k")
        with store.acting(""), state.change(reason="") as change:
            change.persist("k")
        assert state._handle.place()[2] == 3
    store = place.reopen()
    state = store.agent("a")
    assert state.get("k") == 1
    assert [entry.cause.reason for entry in state.log()] == [None] * 3
    assert store.verify().ok


def test_expiry_that_is_so_already_writes_nothing(store: sync.Store) -> None:
    state = store.agent("a")
    state.set("k", 1)
    state.set("soon", 1, ttl=1000, class_="trusted")
    moment = state.item("soon").expires  # type: ignore[union-attr]
    assert state.persist("k") == 2
    assert state.expire("soon", expires=moment) == 2
    assert state.expire("k", expires=moment) == 3
    assert state.persist("k") == 4
    state.set("slides", 1, ttl=1000, sliding=True)
    fixed = state.item("slides").expires  # type: ignore[union-attr]
    assert state.expire("slides", expires=fixed) == 6  # it slides no more
    with pytest.raises(holdfast.errors.MissingError):
        state.persist("nope")


def test_expiry_that_is_so_already_writes_nothing_async() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            state = store.agent("a")
            await state.set("k", 1)
            with store.acting():
                assert await state.persist("k") == 1
            assert await state.expire("k", 1000) == 2
            assert await state.persist("k") == 3
            assert (await store.verify()).ok

    asyncio.run(main())
