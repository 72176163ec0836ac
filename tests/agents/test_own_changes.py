"""Keys that the layer of agents owns: it writes them, users do not, restores leave some alone."""

from __future__ import annotations

import pytest

from holdfast import sync
from holdfast.agents.agent_keys import AGENT, EFFECTS, IDENTITY
from holdfast.errors import InvalidKeyError
from holdfast.store.inner import own_change, sticky


def test_only_the_layer_writes_its_keys(store: sync.Store) -> None:
    state = store.agent("7")
    with pytest.raises(InvalidKeyError), state.change() as change:
        change.set(IDENTITY, {})
    parts = own_change(state, reason="born")
    part = parts.part(state._handle)
    part.set(IDENTITY, {"name": "seven"})
    part.operations += sticky(state._handle, EFFECTS)
    part.set(EFFECTS + "mail", "sent")
    plan = parts.plan()
    assert plan is not None
    state._run(plan)
    assert state.keys(AGENT) == [IDENTITY]
    assert state.keys() == []
    assert sticky(state._handle, EFFECTS) == []
    assert state.log(limit=1)[0].cause.reason == "born"


def test_a_restore_leaves_sticky_ones_alone(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("x", 1)
    before = state.checkpoint()
    parts = own_change(state)
    part = parts.part(state._handle)
    part.operations += sticky(state._handle, EFFECTS)
    part.set(EFFECTS + "mail", "sent")
    part.set(IDENTITY, {"name": "seven"})
    plan = parts.plan()
    assert plan is not None
    state._run(plan)
    state.restore(before)
    assert state.get(EFFECTS + "mail") == "sent"
    assert state.get(IDENTITY) is None
