"""Who wrote each part of a value."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import sync


def told(found: list[Any]) -> list[tuple[str, Any, str | None]]:
    return [(one.path, one.value, one.cause.actor) for one in found]


def test_each_part_is_led_back_to_who_wrote_it() -> None:
    with sync.open("memory:") as store:
        state = store.agent("a")
        with store.acting("ann"):
            state.set("plan", {"goal": "ship", "steps": [{"do": "build"}, {"do": "test"}], "n": 1})
        with store.acting("bob"):
            state.update("plan", lambda plan: {**plan, "n": True})
        with store.acting("cid"):
            state.update("plan", lambda plan: {**plan, "steps": [*plan["steps"], {"do": "sell"}]})
        found = state.blame("plan")
        assert told(found) == [
            ("plan.goal", "ship", "ann"),
            ("plan.steps[0].do", "build", "ann"),
            ("plan.steps[1].do", "test", "ann"),
            ("plan.steps[2].do", "sell", "cid"),
            ("plan.n", True, "bob"),
        ]
        assert [one.entry for one in found] == [1, 1, 1, 3, 2]
        assert all(one.exact for one in found)


def test_what_came_back_is_of_who_wrote_it_anew() -> None:
    with sync.open("memory:") as store:
        state = store.agent("a")
        for actor, value in (("ann", 1), ("bob", 2), ("cid", 1)):
            with store.acting(actor):
                state.set("n", value)
        assert told(state.blame("n")) == [("n", 1, "cid")]
        with store.acting("dan"):
            state.delete("n")
        state.set("n", 1)
        assert told(state.blame("n")) == [("n", 1, None)]


def test_beyond_the_limit_it_is_not_known_exactly() -> None:
    with sync.open("memory:") as store:
        state = store.agent("a")
        for number in range(5):
            state.set("n", {"same": 0, "new": number})
        same, new = state.blame("n", limit=3)
        assert (same.exact, same.entry, new.exact, new.entry) == (False, 3, True, 5)
        assert [one.exact for one in state.blame("n", limit=5)] == [True, True]


@pytest.mark.parametrize("reveal", [False, True])
def test_what_is_sensitive_is_masked(reveal: bool) -> None:
    with sync.open("memory:") as store:
        state = store.agent("a")
        state.set("api_token", "s3cr3t")
        assert ("s3cr3t" in str(state.blame("api_token", reveal=reveal))) is reveal


def test_nothing_is_there() -> None:
    with sync.open("memory:") as store:
        assert store.agent("a").blame("none") == []
