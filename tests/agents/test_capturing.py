"""An agent's state at a checkpoint, as one object."""

from __future__ import annotations

import os

import pytest
from store_kit import Place, put_row, rows_of
from test_agent_state import WHOLE, filled

from holdfast import sync
from holdfast.agents.state.agent_state import Captured
from holdfast.checkpoints.policy.policy import PRIORITIES
from holdfast.errors import CheckpointValidationError
from holdfast.sync.agents import AgentState
from holdfast.sync.checkpoints import Checkpoints


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
    assert found.about.parent == first.id
    return state, found


@pytest.mark.spec("K20", "K23", "K25", "K107", "K108")
def test_it_holds_all_components(store: sync.Store) -> None:
    _, found = made(store)
    assert found.components == WHOLE
    assert (found.agent_id, found.version) == ("7", "1.2")


@pytest.mark.spec("K29", "K40", "K109", "K110", "K112")
def test_it_knows_where_it_comes_from(store: sync.Store) -> None:
    state, found = made(store)
    about = found.about
    assert (about.checkpoint.type, about.trigger) == ("triggered", "tool failed")
    assert (about.checkpoint.tags, about.priority) == (("night",), "high")
    assert len(about.children) == 1
    assert about.compression is not None
    assert [one.name for one in state.checkpoints() if one.id == found.state_id] == ["second"]
    assert len({one.id for one in state.checkpoints()}) == 3
    assert [str(one.scope) for one in about.dependencies] == ["agent:8"]
    at = next(one.time for one in state.checkpoints() if one.id == found.state_id)
    assert found.timestamp == round(at.timestamp() * 1000)


@pytest.mark.spec("K50")
def test_it_says_how_it_is_packed(store: sync.Store) -> None:
    state = store.agent("7")
    agent = filled(state)
    few = agent.capture(state.checkpoint("few")).about.compression
    for number in range(3):
        state.set(f"page {number}", f"{number}" * 3000)
    many = agent.capture(state.checkpoint("many")).about.compression
    assert few is not None
    assert many is not None
    assert many.records["lz4"] == few.records.get("lz4", 0) + 3
    assert few.stored < many.stored < few.stored + 3000, "a fraction of what they say"


@pytest.mark.spec("K51", "K57")
def test_a_changed_byte_is_told_as_far_as_it_was_looked_for(place: Place) -> None:
    state = place.open().agent("7")
    filled(state)
    state.set("page", os.urandom(20_000))
    with state.change() as change:
        for number in range(400):
            change.set(f"k{number}", number)
    for number in range(300):  # until the index is saved: then one value can be damaged alone
        state.set("count", number)
    safe = state.checkpoint("safe")
    assert AgentState(state).capture(safe).about.integrity.valid
    place.close()
    storage = place.storage()
    key, row = max(rows_of(storage, b"V"), key=lambda one: len(one[1]))
    put_row(storage, key, row[:-9] + bytes([row[-9] ^ 1]) + row[-8:])
    agent = AgentState(place.open().agent("7"))
    looked = agent.capture(safe.id).about.integrity
    assert (looked.verification, looked.valid, looked.tamper_proof) == ("full", False, False)
    assert looked.reason
    assert looked.hash == safe.root, "what it should be is still known"
    unlooked = agent.capture(safe.id, verify="none").about.integrity
    assert (unlooked.verification, unlooked.tamper_proof) == ("none", False)


@pytest.mark.spec("K51", "K58")
def test_hash_and_checksum_are_those_of_what_is_stored(store: sync.Store) -> None:
    """Catches: a capture that verifies less if nothing is said, or that says so; a hash or checksum
    that is empty, or not of the checkpoint that is captured; `tamper_proof` left False."""
    state = store.agent("7")
    agent = filled(state)
    point = state.checkpoint("first")
    first = agent.capture(point).about.integrity
    assert (first.verification, first.tamper_proof, first.valid) == ("full", True, True)
    assert first.hash == state.root() == point.root
    assert first.checksum == state.log(kind="checkpoint", limit=1)[0].hash != first.hash
    assert agent.capture(point).about.integrity == first
    same = agent.capture(state.checkpoint("same")).about.integrity
    assert (same.hash == first.hash, same.checksum == first.checksum) == (True, False)
    agent.put("short_term_memory", "new", 1)
    other = agent.capture(state.checkpoint("other")).about.integrity
    assert other.hash not in (first.hash, "")


@pytest.mark.spec("K49")
def test_it_has_the_priority_that_was_asked_for(store: sync.Store) -> None:
    state = store.agent("7")
    agent, checkpoints = filled(state), Checkpoints(state)
    made = [checkpoints.create(one, priority=one).checkpoint for one in PRIORITIES]
    assert [agent.capture(one).about.priority for one in made] == list(PRIORITIES)
    with pytest.raises(CheckpointValidationError, match="priority"):
        checkpoints.create("x", priority="whatever")


def test_it_says_whether_it_is_what_was_written(place: Place) -> None:
    state, found = made(place.open())
    whole = found.about.integrity
    assert (whole.verification, whole.tamper_proof, whole.valid) == ("full", True, True)
    assert whole.hash == state.at(found.state_id).root()
    assert len(whole.checksum) == 64
    assert whole.signed_by
    agent = AgentState(state)
    assert agent.capture(found.state_id, verify="references").about.integrity.verification == (
        "references"
    )
    unlooked = agent.capture(found.state_id, verify="none").about.integrity
    assert (unlooked.verification, unlooked.tamper_proof) == ("none", False)


@pytest.mark.spec("K111")
def test_the_agents_version_is_that_of_the_time(store: sync.Store) -> None:
    state = store.agent("7")
    agent = AgentState(state)
    agent.set("identity", {"version": "1"})
    first = state.checkpoint()
    agent.set("identity", {"version": "2"})
    assert agent.capture(first).version == "1"
    assert agent.capture(state.checkpoint()).version == "2"
