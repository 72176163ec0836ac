"""Groups of which one has a value that cannot be read: all are back, whole, or it is said."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Sticky, sync
from holdfast.errors import RecoveryFailedError

DAMAGED = "corruption_detected"
TEAM = ("agent:a", "agent:b")


def damaged(place: Place, what: str) -> sync.Store:
    """Two agents of one moment, one of which has a letter or an effect that cannot be read."""
    store = place.open()
    a, b = states = [store.agent("a"), store.agent("b")]
    for state in states:
        state.declare(Sticky("eff/"))
        state.set("plan", "good")
        sync.agents.Mailbox(state).send("first")
    sync.checkpoints.CheckpointGroups(store).create(states, "together")
    before = a._handle.place()[2]
    if what == "letter":
        sync.agents.Mailbox(a).send("x" * 50_000)
    else:
        a.set("eff/paid", os.urandom(50_000))
    entry = a._handle.place()[2]
    assert entry == before + 1
    a.set("eff/other", "done")
    b.set("eff/other", "done")
    sync.agents.Mailbox(b).process(lambda mail: mail.send(a, "an answer"))
    for n in range(300):  # so that the index is saved, which leads to the value
        a.set("plan", n)
    b.set("plan", "odd")
    prefix = a._handle.history.points.line().prefix
    place.close()
    storage = place.storage()
    rows = [
        (key, row)
        for key, row in rows_of(storage, b"V")
        if key[1:9] == prefix[1:9] and int.from_bytes(key[9:14], "big") == entry
    ]
    key, row = rows[0]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    return place.open()


@pytest.mark.parametrize("what", ["letter", "effect"])
def test_a_group_goes_back_past_a_sticky_value_that_cannot_be_read(plain: Place, what: str) -> None:
    store = damaged(plain, what)
    recovery = sync.recovery.Recovery(store)
    reports = recovery.recover_group(TEAM, DAMAGED)
    assert [one.strategy for one in reports.values()] == ["newest_valid"] * 2
    key = "$mailbox/inbox/messages" if what == "letter" else "eff/paid"
    assert key in recovery.reports("agent:a")[1].lost  # it was recovered by itself before
    assert len(recovery.reports("agent:b")) == 1
    for name in ("a", "b"):
        assert dict(store.agent(name).items()) == {"plan": "good", "eff/other": "done"}
        waiting = [one.content for one in sync.agents.Mailbox(store.agent(name)).waiting()]
        assert waiting == ["first"]  # the answer is given again
    # Of a list of letters that cannot be read, the damaged one alone is lost.
    taken = [one.steps[-1][1].result["letters_taken_back"] for one in reports.values()]
    assert taken == [1, 0]
    sync.agents.Mailbox(store.agent("b")).process(
        lambda mail: mail.send(store.agent("a"), "an answer")
    )
    waiting = [one.content for one in sync.agents.Mailbox(store.agent("a")).waiting()]
    assert waiting == ["first", "an answer"]


@pytest.mark.parametrize("kind", [DAMAGED, "state_corruption", "agent_crash"])
def test_damaged_rows_of_a_member_are_set_aside(plain: Place, kind: str) -> None:
    store = damaged(plain, "effect")
    recovery = sync.recovery.Recovery(store)
    with suppress(RecoveryFailedError):
        recovery.recover_group(TEAM, kind)
    assert [one.kind for one in recovery.quarantine("agent:a").list()] == ["damage"]
    assert recovery.quarantine("agent:b").list() == []
