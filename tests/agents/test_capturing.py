"""An agent's state at a checkpoint, as one object."""

from __future__ import annotations

import pytest
from store_kit import Place
from test_agent_state import WHOLE, filled

from holdfast import sync
from holdfast.agents.capturing import Captured
from holdfast.sync import AgentState, Checkpoints


def made(store: sync.Store) -> tuple[sync.State, Captured]:
    state = store.agent("7")
    agent = filled(state)
    first = state.checkpoint("first")
    other = store.agent("8")
    other.set("x", 1)
    done = Checkpoints(state).create(
        "second",
        type="triggered",
        trigger="tool failed",
        tags=["night"],
        priority="high",
        depends_on=[other],
    )
    state.checkpoint("third")
    agent.set("metadata", None)
    found = agent.capture(done.checkpoint)
    assert found.metadata.parent_state == first.id
    return state, found


@pytest.mark.spec("K20", "K23", "K25", "K107", "K108")
def test_it_holds_all_components(store: sync.Store) -> None:
    _, found = made(store)
    assert found.components == WHOLE
    assert (found.agent_id, found.version) == ("7", "1.2")


@pytest.mark.spec("K29", "K40", "K109", "K110", "K112")
def test_it_knows_where_it_comes_from(store: sync.Store) -> None:
    state, found = made(store)
    about = found.metadata
    assert (about.checkpoint_type, about.trigger_event) == ("triggered", "tool failed")
    assert (about.tags, about.priority) == (("night",), "high")
    assert len(about.child_states) == 1
    assert about.compression is not None
    assert [one.name for one in state.checkpoints() if one.id == found.state_id] == ["second"]
    assert len({one.id for one in state.checkpoints()}) == 3
    assert [str(one.scope) for one in found.dependencies] == ["agent:8"]
    at = next(one.time for one in state.checkpoints() if one.id == found.state_id)
    assert found.timestamp == round(at.timestamp() * 1000)


@pytest.mark.spec("K49", "K50", "K51", "K57", "K58")
def test_it_says_whether_it_is_what_was_written(place: Place) -> None:
    state, found = made(place.open())
    whole = found.integrity
    assert (whole.verification_level, whole.tamper_proof, whole.valid) == ("high", True, True)
    assert whole.hash == state.at(found.state_id).root()
    assert len(whole.checksum) == 64
    assert whole.signature
    agent = AgentState(state)
    assert agent.capture(found.state_id, verify="references").integrity.verification_level == (
        "medium"
    )
    unlooked = agent.capture(found.state_id, verify="none").integrity
    assert (unlooked.verification_level, unlooked.tamper_proof) == ("none", False)
    low = Checkpoints(state).create("low", priority="low").checkpoint
    assert agent.capture(low).metadata.priority == "low"


@pytest.mark.spec("K111")
def test_the_agents_version_is_that_of_the_time(store: sync.Store) -> None:
    state = store.agent("7")
    agent = AgentState(state)
    agent.set("identity", {"version": "1"})
    first = state.checkpoint()
    agent.set("identity", {"version": "2"})
    assert agent.capture(first).version == "1"
    assert agent.capture(state.checkpoint()).version == "2"
