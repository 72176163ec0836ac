"""What is carried along in a handover keeps its subject, its class and its expiry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from handover_kit import busy, tasks
from store_kit import Hands, Place

from holdfast import Classed, sync
from holdfast.agents.agent_keys import AGENT, SEEN
from holdfast.agents.handover_package import LOG
from holdfast.errors import ErasedError
from holdfast.seal.subject_keys import ERASED
from holdfast.store.inner import own_change

A, B = "agent:ada", "agent:bob"
SECRET = "4111-1111"


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Place]:
    place = Place("sqlite", tmp_path, sealed=True)
    yield place
    place.close()


def kept(state: sync.State) -> str:
    """All that the records of handovers hold, as a reader sees it."""
    found = []
    for key in state.keys(LOG):
        try:
            found.append(state.get(key))
        except ErasedError:
            found.append(ERASED)
    return repr(found)


def lost(state: sync.State) -> None:
    """As if it had been put back to before it was given anything; records are sticky."""
    parts = own_change(state)
    part = parts.part(state._handle)
    for key in [*state.keys(), *state.keys(AGENT), *state.keys(SEEN)]:
        part.delete(key)
    state._run(parts.plan())


@pytest.mark.parametrize("back", [False, True])
def test_what_is_sealed_for_a_subject_is_closed_at_the_taker_too(sealed: Place, back: bool) -> None:
    store = sealed.open()
    ada, bob = busy(store), store.agent("bob")
    ada.set("customer", {"name": SECRET}, subject="user:42")
    ada.append("notes", "open")
    ada.append("notes", SECRET, subject="user:42")
    ada.append("notes", "of another", subject="user:43")
    seen: list[Any] = []
    handovers = sync.agents.Handovers(store)
    offer = handovers.offer(A, B, "t1", reason="x", carry=["customer", "notes"])
    handovers.accept(B, offer.id, check=lambda _, package: seen.append(dict(package.carried)))
    assert seen == [{"customer": {"name": SECRET}, "notes": ["open", SECRET, "of another"]}]
    assert bob.get("customer") == {"name": SECRET}
    assert bob.get("notes") == ["open", SECRET, "of another"]
    assert not ada.exists("customer")
    if back:
        lost(bob)
        assert handovers.reconcile(bob).put_back == ("t1",)
        assert bob.get("customer") == {"name": SECRET}
    store.erase_subject("user:42")
    with pytest.raises(ErasedError):
        bob.get("customer")
    assert bob.get("notes") == ["open", ERASED, "of another"]
    assert SECRET not in kept(bob)
    assert SECRET not in kept(ada)
    lost(bob)
    handovers.reconcile(bob)
    assert tasks(bob) == ["t1"]
    assert bob.get("notes") == ["open", ERASED, "of another"]
    assert store.verify().findings == []


@pytest.mark.parametrize("way", ["named", "by its name", "declared"])
def test_what_is_sensitive_stays_so(place: Place, way: str) -> None:
    store = place.open()
    ada, bob = busy(store), store.agent("bob")
    key = "api_token" if way == "by its name" else "note"
    if way == "declared":
        ada.declare(Classed("note", "sensitive"))
    ada.set(key, SECRET, class_="sensitive" if way == "named" else None)
    handovers = sync.agents.Handovers(store)
    before = bob.checkpoint()
    handovers.hand_over(A, B, "t1", reason="x", carry=[key])
    for _ in range(2):
        assert (bob.get(key), bob._handle.reader.class_of(key)) == (SECRET, "sensitive")
        holding = [one for one in bob.keys(LOG) if SECRET in repr(bob.get(one))]
        assert holding, "it can be put back"
        assert {bob._handle.reader.class_of(one) for one in holding} == {"sensitive"}
        assert SECRET not in str(bob.diff(before))
        lost(bob)
        handovers.reconcile(bob)


def test_a_task_whose_name_tells_that_it_is_sensitive(store: sync.Store) -> None:
    ada, bob = store.agent("ada"), store.agent("bob")
    sync.agents.AgentState(ada).put("tasks", "password", {"id": "password", "title": SECRET})
    sync.agents.Handovers(store).hand_over(A, B, "password", reason="x")
    before = [key for key in bob.keys(LOG) if SECRET in repr(bob.get(key))]
    assert {bob._handle.reader.class_of(key) for key in before} == {"sensitive"}


def test_how_long_a_key_lasts_goes_with_it(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    ada, bob = busy(store), store.agent("bob")
    ada.set("lock", SECRET, ttl=60)
    ada.set("slides", 1, ttl=60, sliding=True)
    handovers = sync.agents.Handovers(store)
    hands.move(10)
    handovers.hand_over(A, B, "t1", reason="x", carry=["lock", "slides"])
    assert (bob.item("lock").value, bob.item("slides").value) == (SECRET, 1)
    hands.move(49)
    assert bob.exists("lock")
    hands.move(2)
    assert not bob.exists("lock")
    assert SECRET not in kept(bob)
    assert bob.get("slides") == 1, "it was read meanwhile"
    lost(bob)
    assert handovers.reconcile(bob).put_back == ("t1",)
    assert not bob.exists("lock")
