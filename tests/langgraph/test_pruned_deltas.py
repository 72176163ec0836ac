"""Pruning the scope of a thread whose newest state is made of its past: delta channels."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from graph_kit import thread
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph

from holdfast import Keep, sync
from holdfast.errors import PrunedError
from holdfast.integrations.langgraph import HoldfastSaver


def fold(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*(state or []), *(item for items in writes for item in items)]


def graph(store: Any, often: int, *more: str) -> Any:
    channel = Annotated[list[str], DeltaChannel(fold, list, snapshot_frequency=often)]
    state: Any = TypedDict("state", dict.fromkeys(("log", *more), channel))  # type: ignore[misc]
    builder = StateGraph(state)
    builder.add_node("step", lambda values: {"log": [f"step {len(values['log'])}"]})
    builder.add_edge(START, "step")
    return builder.compile(checkpointer=HoldfastSaver(store))


def values(store: Any, often: int, id: str = "one") -> list[str]:
    """The newest state, read by a saver that remembers nothing."""
    found: list[str] = graph(store, often).get_state(thread(id)).values["log"]
    return found


def prune(store: Any, way: str) -> None:
    state = store.custom("langgraph/one")
    if way == "prune":
        state.prune(state.log(limit=1)[0].sequence)
    else:
        state.declare(Keep(count=0))
        sync.checkpoints.Retention(store).run(state)


def floor(store: Any) -> int:
    state = store.custom("langgraph/one")
    done = state.prune(state.log(limit=1)[0].sequence, dry_run=True)
    return int(done.floor)


@pytest.mark.parametrize("way", ["prune", "retention"])
@pytest.mark.parametrize("often", [4, 50])
def test_the_newest_state_stays_whatever_is_pruned(often: int, way: str) -> None:
    with sync.open("memory:") as store:
        made = graph(store, often)
        for turn in range(9):
            made.invoke({"log": [f"in {turn}"]}, thread())
            if turn % 3 == 2:
                before = values(store, often)
                prune(store, way)
                assert values(store, often) == before
        assert len(values(store, often)) == 18
        # What came before the stored value that the rest is added to is gone.
        assert (floor(store) > 0) == (often == 4)
        assert store.verify().ok


def test_an_older_state_that_was_pruned_in_part_is_refused() -> None:
    """Two lines that go on in turn: one stored its value late, the other one when it began."""
    with sync.open("memory:") as store:
        made = graph(store, 6)

        def go_on(config: Any, *inputs: str) -> Any:
            for said in inputs:
                made.invoke({"log": [said]}, config)
                config = made.get_state(thread()).config
            return config

        line = go_on(thread(), "a", "b")
        early = [*made.get_state_history(thread())][-2]
        branch = go_on(early.config, "branch")
        line = go_on(line, "c", "d", "e", "f", "g")
        branch = go_on(branch, "more")
        line = go_on(line, "h")
        whole = {
            point.config["configurable"]["checkpoint_id"]: point.values["log"]
            for point in made.get_state_history(thread())
        }
        prune(store, "prune")
        refused = set()
        for found in HoldfastSaver(store).list(thread()):
            try:
                state = graph(store, 6).get_state(found.config)
            except PrunedError as error:
                assert "what checkpoint" in str(error)
                refused.add(found.checkpoint["id"])
            else:
                assert state.values["log"] == whole[found.checkpoint["id"]]
        assert branch["configurable"]["checkpoint_id"] in refused
        assert line["configurable"]["checkpoint_id"] not in refused


@pytest.mark.parametrize("turns", [8, 9])
def test_a_channel_that_a_graph_got_since_is_empty(turns: int) -> None:
    """The newest state holds the other one's value, or rests on one that does."""
    with sync.open("memory:") as store:
        for turn in range(turns):
            graph(store, 4).invoke({"log": [f"in {turn}"]}, thread())
        before = values(store, 4)
        prune(store, "prune")
        assert floor(store) > 0
        found = graph(store, 4, "new").get_state(thread()).values
        assert found == {"log": before, "new": []}


def test_a_branch_off_an_older_state_needs_what_that_is_made_of() -> None:
    with sync.open("memory:") as store:
        made = graph(store, 6)
        for turn in range(3):
            made.invoke({"log": [f"in {turn}"]}, thread())
        point = [*made.get_state_history(thread())][2]
        for turn in range(3, 7):
            made.invoke({"log": [f"in {turn}"]}, thread())
        made.invoke({"log": ["branch"]}, point.config)
        before = values(store, 6)
        assert "branch" in before
        prune(store, "prune")
        assert values(store, 6) == before


def test_a_copy_of_a_pruned_thread_can_be_pruned_too() -> None:
    with sync.open("memory:") as store:
        made = graph(store, 4)
        for turn in range(9):
            made.invoke({"log": [f"in {turn}"]}, thread("source"))
        saver = HoldfastSaver(store)
        before = values(store, 4, "source")
        saver.copy_thread("source", "one")
        prune(store, "prune")
        assert values(store, 4) == before
        assert floor(store) > 0
        saver.copy_thread("one", "two")
        assert values(store, 4, "two") == before


@pytest.mark.parametrize("rare", [[], [5]], ids=["never", "once"])
def test_a_channel_that_is_hardly_ever_written_keeps_nothing_from_before(rare: list[int]) -> None:
    with sync.open("memory:") as store:
        for turn in range(9):
            said = {"log": [f"in {turn}"]} | ({"rare": ["once"]} if turn in rare else {})
            graph(store, 4, "rare").invoke(said, thread())
        before = graph(store, 4, "rare").get_state(thread()).values
        assert before["rare"] == ["once"] * len(rare)
        prune(store, "prune")
        assert floor(store) > 0
        assert graph(store, 4, "rare").get_state(thread()).values == before
        HoldfastSaver(store).prune(["one"], strategy="keep_latest")
        assert graph(store, 4, "rare").get_state(thread()).values == before
        assert len(list(HoldfastSaver(store).list(thread()))) < 27
        graph(store, 4, "rare").invoke({"log": ["on"], "rare": ["twice"]}, thread())
        assert graph(store, 4, "rare").get_state(thread()).values["rare"][-1] == "twice"
