"""Damage to one entry or value of an agent undoes nothing else that has happened in the world."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import suppress

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.agents import Message, Task
from holdfast.errors import EffectUnknownError

TEAM = ("agent:a", "agent:b")
KINDS = ["drift", "missed_beats", "group"]
FIRST, LAST = 3, 16
"""Entries of the agent `b` behind its checkpoint."""


def flipped(row: bytes) -> bytes:
    return row[:-3] + bytes([row[-3] ^ 1]) + row[-2:]


def rows_of_agent(place: Place, agent: str, kind: bytes) -> dict[bytes, bytes]:
    """The rows of one agent; the store is closed then."""
    prefix = place.open().agent(agent)._handle.history.points.line().prefix
    place.close()
    storage = place.storage()
    found = {key: row for key, row in rows_of(storage, kind) if key[1:9] == prefix[1:9]}
    storage.close()
    return found


def put(place: Place, rows: dict[bytes, bytes]) -> None:
    place.close()
    storage = place.storage()
    for key, row in rows.items():
        put_row(storage, key, row)
    storage.close()


def entry_of(key: bytes) -> int:
    return int.from_bytes(key[9:14], "big")


def recover(store: sync.Store, kind: str) -> str:
    """Recover `b`, or both agents; what `b` lost."""
    recovery = sync.recovery.Recovery(store)
    if kind == "group":
        return recovery.recover_group(TEAM, "corruption_detected")[store.agent("b").scope].lost
    return recovery.recover("agent:b", kind).lost


def paid(store: sync.Store) -> list[str]:
    """Effects of `b` that are done when they are asked for again."""
    done: list[str] = []
    for id in ("1", "2"):
        with suppress(EffectUnknownError):  # nobody knows whether it happened: it is not repeated
            sync.agents.Effects(store.agent("b")).call(
                "pay", lambda effect: done.append(effect.id), id=id
            )
    return done


def having(store: sync.Store) -> list[str]:
    return [one for one in "ab" if sync.agents.AgentState(store.agent(one)).ids("tasks") == ["t"]]


def worked(place: Place) -> None:
    """Two agents of one moment; a task, effects and letters came to one of them since."""
    with place.open() as store:
        a, b = store.agent("a"), store.agent("b")
        sync.agents.AgentState(a).put("tasks", "t", Task(id="t", title="a search"))
        sync.agents.AgentState(a).append("conversation", Message(role="user", content="hi"))
        b.set("k", 1)
        sync.checkpoints.CheckpointGroups(store).create([a, b], "good")
        b.set("k", 2)
        sync.agents.Handovers(store).hand_over(a, b, "t", reason="it searches")
        for id in ("1", "2"):
            sync.agents.Effects(b).call("pay", lambda effect: "paid", id=id)
        for n in range(4):
            sync.agents.Mailbox(b).send(n)
        sync.agents.Mailbox(b).process(lambda mail: None, limit=2)
        b.set("k", 3)
        assert b._handle.place()[2] == LAST


@pytest.mark.parametrize("entry", range(FIRST, LAST + 1))
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_entry_takes_back_what_it_did_and_no_more(
    plain: Place, kind: str, entry: int
) -> None:
    worked(plain)
    rows = rows_of_agent(plain, "b", b"E")
    put(plain, {key: flipped(row) for key, row in rows.items() if entry_of(key) == entry})
    store = plain.open()
    recover(store, kind)
    # Of 5, which brought it the task, nothing is left: who gave it away does not have it either.
    has_task = ["b"] if entry != 5 else []
    assert having(store) == has_task
    assert paid(store) == []
    b = store.agent("b")
    first = (1 if entry == 15 else 2) if kind == "missed_beats" else 0  # 15: two are processed
    letters = [letter.content for letter in sync.agents.Mailbox(b).waiting()]
    # An item of a list that others follow is in more than one row.
    assert letters == [n for n in range(first, 4) if (n, entry) != (3, 13)]
    assert b.get("k") == (1 if kind != "missed_beats" else 2 if entry == LAST else 3)
    b.restore("good")  # what is sticky is so again, whatever entry had said so
    assert paid(store) == []
    sync.agents.Handovers(store).reconcile(b)
    assert having(store) == has_task
    assert store.agent("b").get("k") == 1


TEXT = random.Random(7).randbytes(4000).hex()


def done_once(place: Place, key: str | None, asked: int) -> None:
    """An effect of `b` whose result cannot be read, nor what it was about, if that is long."""
    with place.open() as store:
        a, b = store.agent("a"), store.agent("b")
        for state in (a, b):
            state.set("k", 1)
        sync.checkpoints.CheckpointGroups(store).create([a, b], "good")
        with sync.agents.Effects(b).once("pay", id="1", key=key, about="x" * asked) as effect:
            assert effect.due
            effect.result = TEXT
        done = b._handle.place()[2]
        for n in range(300):  # so that the index is saved, which leads to the values
            b.set("k", n)
    rows = rows_of_agent(place, "b", b"V").items()
    put(place, {at: flipped(row) for at, row in rows if done - 1 <= entry_of(at) <= done})


def recover_somehow(store: sync.Store, kind: str) -> None:
    if kind == "checkpoints":
        sync.checkpoints.Checkpoints(store.agent("b")).recover()
    elif kind == "past damage":
        sync.checkpoints.Checkpoints(store.agent("b")).restore("good", past_damage=True)
    else:
        recover(store, kind)


WAYS = [*KINDS, "corruption_detected", "checkpoints", "past damage"]


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("asked", [1, 50_000])
def test_an_effect_whose_record_cannot_be_read_is_unknown(
    plain: Place, kind: str, asked: int
) -> None:
    done_once(plain, None, asked)
    store = plain.open()
    recover_somehow(store, kind)
    effects = sync.agents.Effects(store.agent("b"))
    with pytest.raises(EffectUnknownError) as caught:
        effects.call("pay", lambda effect: "again", id="1", about="x" * asked)
    assert (caught.value.effect.status, caught.value.effect.repeatable) == ("unknown", False)
    effects.plan("mail", id="2")
    assert [str(one) for one in effects.unfinished()] == ["pay 1", "mail 2"]
    assert effects.settle("pay", "repeat", id="1").status == "planned"
    assert effects.call("pay", lambda effect: "again", id="1", about="x" * asked) == "again"
    assert effects.call("pay", lambda effect: "twice", id="1") == "again"


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("asked", [1, 50_000])
def test_an_unread_effect_of_a_tool_with_a_key_is_asked_for_again_with_it(
    plain: Place, kind: str, asked: int
) -> None:
    done_once(plain, "order-17", asked)
    store = plain.open()
    recover_somehow(store, kind)
    effects = sync.agents.Effects(store.agent("b"))
    with effects.once("pay", id="1", key="order-17") as effect:
        assert effect.due
        assert effect.attempts > 1 or asked > 1
        effect.result = effect.key
    assert effects.get("pay", id="1").result == "order-17"


@pytest.mark.parametrize("face", ["holdfast", "holdfast.sync"])
def test_a_process_that_knows_no_effects_takes_none_for_not_begun(face: str) -> None:
    """One that only goes back: nothing else in it has loaded their part."""
    code = (
        f"import {face}; {face}.checkpoints.Checkpoints\n"
        "from holdfast.store.inner import TABLE\n"
        "assert TABLE.index.rule('$effects/open/x').unreadable is not None"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
