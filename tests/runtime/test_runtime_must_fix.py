"""What daemons of this kind got wrong about their checkpoints and identities, and is right here.

Each test is named after one such defect; those of entities, events, queues and requests are in
their own files.
"""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.errors import PrunedError
from holdfast.sync.agents import Agents
from holdfast.sync.checkpoints import Retention, ShutdownCheckpoints
from holdfast.testing import crash


class Part:
    """Holds something in memory only."""

    def __init__(self, held: Any = None) -> None:
        self.held = held

    def collect(self) -> Any:
        return self.held

    def restore(self, kept: Any) -> None:
        self.held = kept


def around(store: sync.Store, **parts: Part) -> ShutdownCheckpoints:
    taking: dict[Any, Any] = {f"custom:{name}": part for name, part in parts.items()}
    return ShutdownCheckpoints(store, list(taking), signals=(), participants=taking)


@pytest.mark.spec("X38")
def test_participants_state_must_be_stored(place: Place) -> None:
    with around(place.open(), one=Part({"n": [1]}), two=Part("text")):
        pass
    one, two = Part(), Part()
    with around(place.reopen(), one=one, two=two):
        assert (one.held, two.held) == ({"n": [1]}, "text")


@pytest.mark.spec("X38")
def test_keep_last_5_must_delete_not_only_archive(place: Place) -> None:
    """What was left out cannot be read any more, and its rows are gone."""
    store = place.open()
    state = store.custom("queue")
    for n in range(8):
        with around(store, queue=Part({"secret": f"waits {n} " * 200})):
            state.set("n", n)
    made = state.checkpoints()
    assert len(made) == 8
    Retention(store).run("custom:queue")
    assert [one.id for one in state.checkpoints()] == [one.id for one in made[:5]]
    for gone in made[5:]:
        with pytest.raises(PrunedError):
            state.at(gone)
    assert state.at(made[4]).get("n") == 3
    assert store.verify().ok


def register(store: sync.Store) -> None:
    agents = Agents(store)
    for name in ("planner", "writer"):
        agents.register(name, name=name.title(), kind="daemon", version="1.0")


def identities(store: sync.Store) -> list[tuple[str, str, str]]:
    found = Agents(store).list()
    return [(one.id, one.identity.name, one.identity.kind) for one in found]


@pytest.mark.spec("X38", "S148")
def test_identity_file_must_be_written_atomically() -> None:
    """Killed at any commit, each identity is whole or not there; the rest comes with the retry."""
    report = crash(register, see=identities)
    assert report.ok, str(report)
    assert report.commits >= 2
