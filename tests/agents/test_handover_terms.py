"""Offers with a term: nobody answers, and the task is free again; by no wall clock."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from handover_kit import busy, heard, message, put, tasks
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.errors import HandoverValidationError, HoldfastError, InvalidInputError
from holdfast.storage.wrappers import MODES, Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names import clock
from holdfast.store.open import open_core

A, B, C = "agent:ada", "agent:bob", "agent:cy"


@pytest.mark.spec("M67")
def test_an_offer_that_nobody_answers_expires(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    busy(store)
    handovers = sync.agents.Handovers(store)
    offer = handovers.offer(A, B, "t1", reason="x", term=60)
    assert (offer.status, offer.term) == ("offered", 60)
    hands.move(59)
    assert handovers.expire(A) == []
    with pytest.raises(HandoverValidationError, match="offered already"):
        handovers.offer(A, C, "t1", reason="y")
    hands.move(1)
    other = handovers.offer(A, C, "t1", reason="y", term=timedelta(minutes=1))
    [first, second] = handovers.history(A)
    assert (first.status, first.answer) == ("expired", "no answer within 60 s")
    assert (second.status, second.term) == ("offered", 60)
    taker = sync.agents.Handovers(place.open(clock=hands.clock))
    assert taker.offers(B) == []
    with pytest.raises(InvalidInputError, match="is expired; offer it again"):
        taker.accept(B, offer.id)
    taker.accept(C, other.id)
    assert [tasks(store.agent(name)) for name in ("ada", "bob", "cy")] == [[], [], ["t1"]]
    assert heard(store.agent("cy")) == ["hello", "it is about money"]
    assert store.verify().findings == []


def test_expire_tells_what_it_ended_and_leaves_what_has_no_term(
    timed: sync.Store, hands: Hands
) -> None:
    ada = busy(timed)
    put(ada, t2={"id": "t2"}, t3={"id": "t3"})
    handovers = sync.agents.Handovers(timed)
    one = handovers.offer(A, B, "t1", reason="x", term=60)
    handovers.offer(A, B, "t2", reason="x")
    handovers.offer(A, B, "t3", reason="x", term=600)
    hands.move(100)
    assert [(done.id, done.status) for done in handovers.expire(A)] == [(one.id, "expired")]
    assert handovers.expire(A) == []
    assert {one.task for one in handovers.offers(B)} == {"t2", "t3"}
    assert handovers.offer(A, B, "t1", reason="x", id=one.id).status == "expired", "sent again"
    assert handovers.offer(A, B, "t1", reason="again").status == "offered"


def test_more_open_offers_than_are_remembered_for_ever_expire_all_the_same(
    timed: sync.Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if each is looked at in turn, and others that nobody asks for any more are forgotten."""
    monkeypatch.setattr(clock, "SEEN", 5)
    put(busy(timed), **{f"x{n}": {"id": f"x{n}"} for n in range(12)})
    handovers = sync.agents.Handovers(timed)
    for n in range(12):
        handovers.offer(A, B, f"x{n}", reason="x", term=60)
    assert handovers.expire(A) == []
    hands.move(61)
    assert len(handovers.expire(A)) == 12
    lapses = timed._handle.core.lapses
    assert len(lapses._seen) == 0, "what is answered is over"
    for n in range(100):
        hands.move(clock.KEPT / 10)
        assert not lapses.lapsed(n, "", 0)
        assert len(lapses._seen) <= 12


def test_an_offer_of_who_was_deleted_ends_with_its_term(timed: sync.Store, hands: Hands) -> None:
    busy(timed)
    handovers = sync.agents.Handovers(timed)
    offer = handovers.offer(A, B, "t1", reason="x", term=60)
    timed.delete(A)
    hands.move(61)
    with pytest.raises(InvalidInputError, match=f"{offer.id} is expired; offer it again"):
        handovers.accept(B, offer.id)
    assert [one.status for one in handovers.history(B)] == ["expired"]


def test_a_process_that_looks_for_the_first_time_is_never_early(place: Place, hands: Hands) -> None:
    busy(place.open(clock=hands.clock))
    sync.agents.Handovers(place.open(clock=hands.clock)).offer(A, B, "t1", reason="x", term=60)
    hands.move(1000)
    later = sync.agents.Handovers(place.open(clock=hands.clock))
    assert later.expire(A) == []
    hands.move(30)
    assert later.expire(A) == []
    hands.wall += 1_000_000
    assert later.expire(A) == [], "a wall clock that jumps is not looked at"
    hands.move(30)
    assert [one.status for one in later.expire(A)] == ["expired"]


def test_a_taker_who_has_seen_it_for_so_long_cannot_accept_either(
    place: Place, hands: Hands
) -> None:
    store = place.open(clock=hands.clock)
    busy(store)
    offer = sync.agents.Handovers(store).offer(A, B, "t1", reason="x", term=60)
    taker = sync.agents.Handovers(place.open(clock=hands.clock))
    assert [one.id for one in taker.offers(B)] == [offer.id]
    hands.move(61)
    assert taker.offers(B) == []
    with pytest.raises(InvalidInputError, match="is expired"):
        taker.accept(B, offer.id)
    assert [one.status for one in sync.agents.Handovers(store).history(A)] == ["expired"]
    assert tasks(store.agent("ada")) == ["t1"]


def test_an_answer_that_is_faster_than_the_end_counts(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    busy(store)
    handovers = sync.agents.Handovers(store)
    offer = handovers.offer(A, B, "t1", reason="x", term=60)
    other = sync.agents.Handovers(place.open(clock=hands.clock))

    class Meanwhile(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            store.remove_gate(self)
            other.accept(B, offer.id)

    hands.move(61)
    store.add_gate(Meanwhile())
    assert handovers.expire(A) == []
    assert [one.status for one in handovers.history(A)] == ["accepted"]
    assert [tasks(store.agent(name)) for name in ("ada", "bob")] == [[], ["t1"]]


@pytest.mark.spec("M77")
@pytest.mark.parametrize("mode", MODES)
def test_storage_that_fails_at_any_call_while_it_ends(
    plain: Place, hands: Hands, mode: str
) -> None:
    for nth in range(1, 200):
        names = [f"{name}{nth}" for name in ("ada", "bob", "cy")]
        a, b, c = (f"agent:{name}" for name in names)
        put(plain.open().agent(names[0]), t1={"id": "t1"}, conversation=[message("hello")])
        faulty = Faulty(plain.storage())
        options = plain.options(clock=hands.clock)
        broken = sync.Store(StoreHandle(open_core(plain.url, storage=faulty, **options)))
        handovers = sync.agents.Handovers(broken)
        handovers.offer(a, b, "t1", reason="x", id=f"h{nth}", term=60)
        hands.move(61)
        faulty.plan = (Fault("*", faulty.calls["*"] + nth, mode),)
        with suppress(HoldfastError):
            handovers.offer(a, c, "t1", reason="y", id=f"i{nth}")
        broken.close()
        store = plain.open()
        again = sync.agents.Handovers(store)
        assert [name for name in names if "t1" in tasks(store.agent(name))] == [names[0]]
        told = [one.status for one in again.history(a)]
        assert told in (["offered"], ["expired"], ["expired", "offered"])
        assert [one.status for one in again.history(b)] == told[:1]
        if not faulty.failed:
            assert store.verify().findings == []
            return
    raise AssertionError("there are more calls than were tried")


@pytest.mark.parametrize("gone", [A, B])
def test_an_offer_ends_also_after_the_other_agent_was_deleted(
    timed: sync.Store, hands: Hands, gone: str
) -> None:
    handovers = sync.agents.Handovers(timed)
    put(busy(timed), t2={"id": "t2"})
    one = handovers.offer(A, B, "t1", reason="x", term=60)
    two = handovers.offer(A, B, "t2", reason="x")
    timed.delete(gone)
    if gone == A:
        with pytest.raises(InvalidInputError, match="not known to both"):
            handovers.accept(B, one.id)
        for offer in (one, two):
            assert handovers.refuse(B, offer.id, reason="nobody asks").status == "refused"
        assert handovers.offers(B) == []
    else:
        hands.move(61)
        assert [done.status for done in handovers.expire(A)] == ["expired"]
        assert handovers.withdraw(A, two.id, reason="nobody there").status == "withdrawn"
        assert tasks(timed.agent("ada")) == ["t1", "t2"]
        handovers.offer(A, C, "t1", reason="y")
    assert gone not in [str(one.scope) for one in timed.scopes(kind="agent").items]


def test_returns_have_terms_as_well_on_both_faces(place: Place, hands: Hands) -> None:
    store = place.open(clock=hands.clock)
    busy(store)
    sync.agents.Handovers(store).hand_over(A, B, "t1", reason="x")

    async def main() -> None:
        options = place.options(clock=hands.clock)
        async with holdfast.open(place.url, **options) as opened:
            handovers = holdfast.agents.Handovers(opened)
            back = await handovers.give_back(B, "t1", reason="done", term=60)
            hands.move(61)
            assert [one.id for one in await handovers.expire(B)] == [back.id]
            again = await handovers.give_back(B, "t1", reason="done", term=60)
            await handovers.accept(A, again.id)

    asyncio.run(main())
    assert tasks(store.agent("ada")) == ["t1"]


@pytest.mark.parametrize("term", [0, -1, "60", True, float("nan"), float("inf"), timedelta(0), [1]])
def test_what_is_no_term_is_refused(store: sync.Store, term: Any) -> None:
    busy(store)
    handovers = sync.agents.Handovers(store)
    with pytest.raises(InvalidInputError, match="term is a number of seconds"):
        handovers.offer(A, B, "t1", reason="x", term=term)
    assert handovers.history(A) == []
