"""A value that is too long to be read whole is refused by its scope and key, wherever it is met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.errors import LimitExceededError

CALLS: dict[str, Callable[[sync.Store, sync.State], Any]] = {
    "revert": lambda _, state: state.revert(correlation="run"),
    "revert of a store": lambda store, _: store.revert(correlation="run"),
    "some keys restored": lambda _, state: sync.checkpoints.Checkpoints(state).restore(
        "c", keys=["report"]
    ),
    "get": lambda _, state: state.get("report"),
    "items": lambda _, state: state.items(),
    "many": lambda _, state: state.get_many(["k0", "report"]),
    "changed": lambda _, state: state.update("report", lambda value: value),
}


@pytest.mark.parametrize("name", CALLS)
def test_refusal_names_scope_and_key(name: str) -> None:
    limits = holdfast.ValueLimits(size=2_000_000)
    with sync.open("memory:", limits=limits) as store:
        state = store.agent("a")
        with state.open_write("report") as file:
            file.write(b"x" * 3_000_000)
        state.checkpoint("c")
        if name.startswith(("revert", "some")):
            with store.acting("bot", correlation="run"):
                state.set("k0", 1)
                state.set("report", 1)
        before = state._handle.place()
        with pytest.raises(LimitExceededError, match="agent:a: the value of 'report' "):
            CALLS[name](store, state)
        assert state._handle.place() == before
