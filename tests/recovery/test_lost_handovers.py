"""An agent that lost entries of a handover: exactly one of the two has the task in the end."""

from __future__ import annotations

import itertools

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Message, Task, sync

SAID = ["find it", "found"]


def lose(place: Place, agent: str, count: int) -> bool:
    """Lose the newest entries of an agent; False if it does not have as many and one more."""
    store = place.open()
    prefix = store.agent(agent)._handle.history.points.line().prefix
    place.close()
    storage = place.storage()
    mine = [key for key, _ in rows_of(storage, b"E") if key.startswith(prefix)]
    for key in mine[-count:]:
        put_row(storage, key, None)
    storage.close()
    return count < len(mine)


def worked(place: Place, steps: int) -> None:
    """A task that goes from one to another, back, and to a third, as many steps as are asked."""
    with place.open() as store:
        a, b, c = (store.agent(one) for one in "abc")
        sync.AgentState(a).put("tasks", "t", Task(id="t", title="a search"))
        sync.AgentState(a).append("conversation", Message(role="user", content=SAID[0]))
        for state in (b, c):
            state.set("k", 1)
        book = sync.Handovers(store)
        todo = [
            lambda: book.offer(a, b, "t", reason="it searches", id="1"),
            lambda: book.accept(b, "1"),
            lambda: sync.AgentState(b).append(
                "conversation", Message(role="assistant", content=SAID[1])
            ),
            lambda: book.give_back(b, "t", reason="done", id="2"),
            lambda: book.accept(a, "2"),
            lambda: book.offer(a, c, "t", reason="it writes", id="3"),
            lambda: book.accept(c, "3"),
        ]
        for step in todo[:steps]:
            step()


def check(store: sync.Store, before: str, said: list[str]) -> None:
    """Exactly one has the task, it is who had it before, and all of them say so."""
    states = {one: store.agent(one) for one in "abc"}
    having = [one for one, state in states.items() if sync.AgentState(state).ids("tasks") == ["t"]]
    assert having == [before]
    book = sync.Handovers(store)
    for state in states.values():
        if book.history(state):
            known = [one for one in book.history(state) if one.status == "accepted"]
            if known:
                assert str(book.owner(state, "t")) == f"agent:{before}"
            for one in book.history(state):
                other = one.giver if one.taker == state.scope else one.taker
                assert one in book.history(store.scope(other))
    kept = [one.content for one in sync.AgentState(states[before]).get("conversation")]
    assert kept[: len(said)] == said
    assert store.verify().ok


@pytest.mark.parametrize("steps", range(1, 8))
@pytest.mark.parametrize("agent", ["a", "b", "c"])
def test_who_lost_its_side_has_it_again(plain: Place, agent: str, steps: int) -> None:
    before = {0: "a", 1: "a", 2: "b", 3: "b", 4: "b", 5: "a", 6: "a", 7: "c"}[steps]
    for count in itertools.count(1):
        worked(plain, steps)
        if not lose(plain, agent, count):
            return  # it would have nothing left
        store = plain.open()
        kind = ("agent_crash", "interrupted_handover")[count % 2]
        report = sync.Recovery(store).recover(f"agent:{agent}", kind)
        assert "which the feed names" in report.lost
        # What it had said itself, and nobody else was told, may be lost.
        own = {"a": 2, "b": 5}.get(agent, 0) > steps
        check(store, before, SAID[: steps >= 2] if own else SAID[: 1 + (steps >= 3)])
        for one in "abc":
            store.delete(f"agent:{one}")
        plain.close()


def test_a_group_has_it_once(place: Place) -> None:
    worked(place, 2)
    lose(place, "b", 1)
    store = place.open()
    report = sync.Recovery(store).recover_group(["agent:a", "agent:b"], "interrupted_handover")
    assert report.success
    check(store, "b", SAID[:1])


def test_a_task_that_cannot_be_had_again_is_said_to_be_lost(place: Place) -> None:
    worked(place, 2)
    with place.open() as store:
        state = store.agent("a")
        state.prune(before=state.checkpoint("late"), keep=())
    lose(place, "b", 1)
    report = sync.Recovery(place.open()).recover("agent:b", "agent_crash")
    assert "the task 't', which agent:a handed to it (1), which cannot be had again" in report.lost
