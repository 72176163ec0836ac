"""Handovers between agents whose process is killed around every one of its commits."""

from __future__ import annotations

import pytest
from handover_kit import busy, heard, message, tasks

from holdfast import sync
from holdfast.agents.agent_keys import CONVERSATION
from holdfast.store.inner import own_change
from holdfast.testing import crash

AGENTS = ("ada", "bob", "cid")
SAID = ["hello", "it is about money", "bob was here", "cid was here"]


def say_once(state: sync.State, text: str) -> None:
    parts = own_change(state, id=text)
    parts.part(state._handle).append(CONVERSATION, message(text))
    plan = parts.plan()
    assert plan is not None
    state._run(plan)


def office(store: sync.Store) -> None:
    """From ada to bob to cid and back to bob. Begun again, it goes on where it was."""
    ada, bob, cid = map(store.agent, AGENTS)
    owners = [name for name in AGENTS if "t1" in tasks(store.agent(name))]
    assert len(owners) == 1, f"exactly one has it, not {owners}"
    texts = heard(store.agent(owners[0]))
    assert texts == SAID[: len(texts)], "and all that was said"
    assert len(texts) >= 2
    assert sum(len(heard(store.agent(name))) for name in AGENTS) == len(texts), "nobody else has"
    handovers = sync.agents.Handovers(store)
    if handovers.owner(ada, "t1") == ada.scope:
        handovers.hand_over(ada, bob, "t1", reason="about money", id="first")
    if handovers.owner(ada, "t1") == bob.scope and not handovers.history(cid):
        say_once(bob, SAID[2])
    if handovers.owner(ada, "t1") == bob.scope and len(handovers.chain(ada, "t1")) == 1:
        handovers.hand_over(bob, cid, "t1", reason="about law", id="second")
    if handovers.owner(ada, "t1") == cid.scope:
        say_once(cid, SAID[3])
        back = handovers.give_back(cid, "t1", reason="solved", id="back")
        handovers.accept(bob, back.id)


def said(store: sync.Store) -> list[object]:
    """The end, as people see it."""
    handovers = sync.agents.Handovers(store)
    chain = [(one.id, str(one.taker), one.reason) for one in handovers.chain("agent:ada", "t1")]
    return [chain, *((tasks(s), heard(s)) for s in map(store.agent, AGENTS))]


@pytest.mark.spec("M67", "M77", "M93", "M102")
def test_killed_at_any_point_exactly_one_has_the_task_and_all_that_was_said() -> None:
    report = crash(office, prepare=busy, see=said)
    assert report.ok, str(report)
    assert report.commits >= 8
    assert report.kills == 2 * report.commits
