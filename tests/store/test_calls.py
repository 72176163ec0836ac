"""How often the core calls storage: it has to stay fit for servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.storage.wrappers import Counting

READS = ("get", "scan", "cells")


def cost(counting: Counting, call: Callable[[], Any]) -> tuple[int, int]:
    """(reads, commits) of a call."""
    counting.reset()
    call()
    return sum(counting.calls[name] for name in READS), counting.calls["commit"]


@pytest.fixture
def warm(place: Place) -> tuple[sync.Store, Counting]:
    store, counting = place.open_counting()
    state = store.agent("1")
    for number in range(30):
        state.set(f"k{number}", {"n": number, "text": "x" * 100})
        state.append("l", {"n": number, "text": "x" * 100})
    store.agent("2").set("k", 1)
    return store, counting


def test_writes_are_one_commit(warm: tuple[sync.Store, Counting]) -> None:
    store, counting = warm
    state, other = store.agent("1"), store.agent("2")
    rows = [{"n": n, "text": "x" * 60} for n in range(200)]

    def several() -> None:
        with store.change(correlation="run") as change:
            change[state].set("k1", 2)
            change[other].set("k1", 2)
            change[store.agent("new")].set("k1", 2)

    def one() -> None:
        with state.change() as change:
            change.set("k1", 3)
            change.append("l", 3)
            change.delete("k2")

    calls: dict[str, Callable[[], Any]] = {
        "set": lambda: state.set("k1", 1),
        "long set": lambda: state.set("long", rows),
        "set again": lambda: state.set("long", [*rows, 1]),
        "append": lambda: state.append("l", 1),
        "delete": lambda: state.delete("k1"),
        "first set in a scope": lambda: store.agent("fresh").set("k", 1),
        "change": one,
        "change over several scopes": several,
        "checkpoint": lambda: state.checkpoint("c"),
        "update": lambda: state.update("k3", lambda _: 1),
        "restore": lambda: state.restore("c"),
        "fork": lambda: state.fork("f"),
        "revert": lambda: state.revert(entries=[state.set("k4", "wrong")]),
        "revert over several scopes": lambda: store.revert(correlation="run"),
        "merge": lambda: (state.on("f").set("k5", "theirs"), state.merge("f")),
        "merge of nothing": lambda: state.merge("f"),
    }
    writes = {"revert": 2, "merge": 2, "merge of nothing": 0}  # with the set before
    for name, call in calls.items():
        assert cost(counting, call)[1] == writes.get(name, 1), name


def test_a_warm_set_reads_next_to_nothing(warm: tuple[sync.Store, Counting]) -> None:
    store, counting = warm
    state = store.agent("1")
    state.set("k1", 0)
    for name, call in {
        "set": lambda: state.set("k1", 1),
        "append": lambda: state.append("l", 1),
        "checkpoint": lambda: state.checkpoint(),
    }.items():
        call()
        assert cost(counting, call)[0] <= 1, name


@pytest.mark.spec("M107")
def test_a_warm_get_is_at_most_one_read(warm: tuple[sync.Store, Counting], place: Place) -> None:
    store, counting = warm
    state = store.agent("1")
    for call in (
        lambda: state.get("k7"),
        lambda: state.exists("k7"),
        lambda: state.get_many(["k7", "k8"]),
        lambda: state.tail("l", 5),
        lambda: state.keys(),
    ):
        call()
        assert cost(counting, call) == (0, 0), "nobody has written since"
        store.agent("2").set("k", 2)
        assert cost(counting, call)[0] <= 1
        place.open().agent("1").set("other", 1)
        assert cost(counting, call)[0] <= 1
        assert cost(counting, call)[0] <= 1


def test_opening_a_scope_is_at_most_three_reads(
    warm: tuple[sync.Store, Counting], place: Place
) -> None:
    store, _ = warm
    store.agent("1").checkpoint("c")
    for call in (
        lambda state: state.keys(limit=1),
        lambda state: state._handle.place(),
        lambda state: state.exists("k7"),
    ):
        fresh, counting = place.open_counting()
        assert cost(counting, lambda call=call, fresh=fresh: call(fresh.agent("1")))[0] <= 3
    fresh, counting = place.open_counting()
    reads, commits = cost(counting, lambda: fresh.agent("1").set("k1", "cold"))
    assert commits == 1
    lanes = 16  # whose newest rows must name no entry that the timeline lacks
    assert reads <= 5 + lanes, "three for the scope, one for the feed, one for a refresh"
    assert cost(counting, lambda: fresh.agent("1").set("k1", "warm"))[0] <= 1, "once a process"


def test_a_scope_that_is_not_there_is_one_read(warm: tuple[sync.Store, Counting]) -> None:
    store, counting = warm
    assert cost(counting, lambda: store.agent("nobody").get("k"))[0] == 1


def test_many_keys_are_fetched_together(place: Place) -> None:
    state = place.open().agent("1")
    for number in range(100):
        state.set(f"k{number}", {"text": "x" * 200, "n": number})
    store, counting = place.open_counting()
    store.agent("1").exists("k1")
    assert cost(counting, lambda: store.agent("1").items())[0] <= 3
