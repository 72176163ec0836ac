"""Handovers against a plain model: who has a task, and what was said of it."""

from __future__ import annotations

import itertools
from contextlib import closing

from handover_kit import heard, put, say, tasks
from hypothesis import given
from hypothesis import strategies as st

from holdfast import sync
from holdfast.agents.state.agent_state import AgentState

AGENTS = ("ada", "bob", "cid")
agents = st.sampled_from(AGENTS)
steps = st.one_of(
    st.tuples(st.just("begin"), agents),
    st.tuples(st.just("say"), agents),
    st.tuples(st.just("hand"), agents, agents, st.sampled_from(["move", "copy"])),
    st.tuples(st.just("back"), agents),
    st.tuples(st.just("refuse"), agents, agents),
)


class Model:
    """Each task: who has it, who gave it, and what its owners said while they had it."""

    def __init__(self) -> None:
        self.owner: dict[str, str] = {}
        self.givers: dict[str, list[str]] = {}
        self.said: dict[str, list[str]] = {}

    def of(self, agent: str) -> list[str]:
        return sorted(task for task, owner in self.owner.items() if owner == agent)


def is_within(inner: list[str], outer: list[str]) -> bool:
    """Whether all of one list stands in another, in order."""
    rest = iter(outer)
    return all(one in rest for one in inner)


def step(store: sync.Store, model: Model, number: int, what: str, agent: str, *more: str) -> None:
    handovers = sync.agents.Handovers(store)
    mine = model.of(agent)
    if what == "begin":
        task = f"t{number}"
        put(store.agent(agent), **{task: {"id": task}})
        model.owner[task], model.givers[task], model.said[task] = agent, [], []
    elif what == "say":
        say(store.agent(agent), f"m{number}")
        for task in mine:
            model.said[task].append(f"m{number}")
    elif what == "hand" and mine and more[0] != agent:
        place = f"agent:{agent}", f"agent:{more[0]}"
        handovers.hand_over(*place, mine[0], reason="x", context=more[1])
        model.owner[mine[0]] = more[0]
        model.givers[mine[0]].append(agent)
    elif what == "refuse" and mine and more[0] != agent:
        offer = handovers.offer(f"agent:{agent}", f"agent:{more[0]}", mine[0], reason="x")
        handovers.refuse(f"agent:{more[0]}", offer.id, reason="y")
    elif what == "back" and mine and model.givers[mine[0]]:
        giver = model.givers[mine[0]].pop()
        offer = handovers.give_back(f"agent:{agent}", mine[0], reason="x")
        assert offer.taker.id == giver
        handovers.accept(f"agent:{giver}", offer.id)
        model.owner[mine[0]] = giver


@given(st.lists(steps, max_size=25))
def test_one_owner_who_has_heard_all(program: list[tuple[str, ...]]) -> None:
    model = Model()
    with closing(sync.open("memory:")) as store:
        for number, (what, agent, *more) in zip(itertools.count(), program, strict=False):
            step(store, model, number, what, agent, *more)
        for agent in AGENTS:
            assert tasks(store.agent(agent)) == model.of(agent)
            assert AgentState(store.agent(agent)).problems() == []
        for task, owner in model.owner.items():
            assert is_within(model.said[task], heard(store.agent(owner)))
            assert sync.agents.Handovers(store).owner(f"agent:{owner}", task).id == owner
            chain = sync.agents.Handovers(store).chain(f"agent:{owner}", task)
            assert [one.giver for one in chain[1:]] == [one.taker for one in chain[:-1]]
        assert store.verify().findings == []


TWO = AGENTS[:2]
two = st.sampled_from(TWO)
moves = st.one_of(
    st.tuples(st.just("begin"), two),
    st.tuples(st.just("hand"), two, st.sampled_from(["bob", "ada"])),
    st.tuples(st.just("back"), two),
    st.tuples(st.just("mark"), two),
    st.tuples(st.just("put back"), two, st.sampled_from(["", "$agent/", "$agent/tasks/"])),
    st.tuples(st.just("fork"), two),
    st.tuples(st.just("merge"), two),
    st.tuples(st.just("revert"), two),
)


class Moved:
    """Agents whose states are put back, reverted and merged beside their handovers."""

    def __init__(self, store: sync.Store) -> None:
        self.store = store
        self.handovers = sync.agents.Handovers(store)
        self.owner: dict[str, str] = {}
        """Of each task that was handed over."""
        self.forks: dict[str, str] = {}

    def take(self, number: int, what: str, agent: str, *more: str) -> None:
        state = self.store.agent(agent)
        mine = tasks(state)
        if what == "begin":
            put(state, **{f"t{number}": {"id": f"t{number}"}})
        elif what == "hand" and mine and more[0] != agent:
            self.handovers.hand_over(state, f"agent:{more[0]}", mine[0], reason="x")
            self.owner[mine[0]] = more[0]
        elif what == "back":
            came = [one for one in self.handovers.history(state) if one.taker == state.scope]
            ids = [one.task for one in came if self.owner[one.task] == agent and not one.returns]
            for id in ids[:1]:
                offer = self.handovers.give_back(state, id, reason="x")
                self.handovers.accept(offer.taker, offer.id)
                self.owner[id] = offer.taker.id
        elif what == "mark" and mine:
            state.checkpoint("mark")
        elif what == "put back" and mine and state.checkpoints(name="mark"):
            sync.checkpoints.Checkpoints(state).restore(
                "mark", prefixes=[more[0]] if more[0] else None
            )
            self.handovers.reconcile(state)
        elif what == "fork" and mine:
            fork = state.fork(f"f{number}")
            put(fork, **{id: {"id": id, "title": f"as of {number}"} for id in mine})
            self.forks[agent] = fork.timeline
        elif what == "merge" and agent in self.forks:
            state.merge(self.forks[agent], strategy="theirs")
            self.handovers.reconcile(state)
        elif what == "revert":
            state.revert(entries=state.log(limit=1))
            self.handovers.reconcile(state)


@given(st.lists(moves, max_size=15))
def test_one_owner_whatever_is_put_back_or_merged(program: list[tuple[str, ...]]) -> None:
    with closing(sync.open("memory:")) as store:
        moved = Moved(store)
        begun = [(what, agent) for agent in TWO for what in ("begin", "mark", "fork")]
        for number, (what, agent, *more) in enumerate([*begun, *program]):
            moved.take(number, what, agent, *more)
        for task, owner in moved.owner.items():
            having = [agent for agent in TWO if task in tasks(store.agent(agent))]
            assert having == [owner]
            assert moved.handovers.owner(f"agent:{owner}", task).id == owner
