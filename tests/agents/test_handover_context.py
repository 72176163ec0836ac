"""The messages of a task: all of them go with it, none twice, where equal ones are said again."""

from __future__ import annotations

import pytest
from handover_kit import heard, message, put, say
from hypothesis import given
from hypothesis import strategies as st

from holdfast import sync
from holdfast.agents.handover_package import Standing, begins, known, without

said = st.lists(st.integers(0, 2), max_size=6)


@given(said, said, said, st.integers(0, 6))
def test_where_the_messages_of_a_task_begin(
    own: list[int], context: list[int], later: list[int], cut: int
) -> None:
    """Also where the oldest messages were trimmed since, and all of them were said before."""
    standing = Standing(handover="h", at=len(own), follows=own[-1] if own else None)
    messages = [*own, *context, *later]
    assert begins(messages, standing, context) == len(own)
    trimmed = messages[min(cut, len(own)) :]
    place = begins(trimmed, standing, context)
    assert trimmed[place : place + len(context)] == context
    assert begins(messages[len(own) + 1 :], standing, context) <= len(own)


@given(said, said, said)
def test_what_an_earlier_conversation_had_of_a_context(
    own: list[int], context: list[int], later: list[int]
) -> None:
    whole = [*context, *later]
    assert without([*own, *context], whole, len(own)) == own
    assert without(own, whole, len(own)) == own, "none of it was there yet"


@given(said, said, st.integers(0, 6))
def test_how_much_of_a_copy_comes_back(given: list[int], later: list[int], cut: int) -> None:
    """What is not sure to be known comes back, rather twice than never."""
    assert known([*given, *later], given) == len(given)
    new = [9, *later]
    left = given[min(cut, len(given)) :]
    assert [*left, *new][known([*left, *new], given) :][-len(new) :] == new
    assert known(given[-1:], given) == (len(given) == 1)


def test_a_conversation_that_was_taken_anew_is_not_torn(store: sync.Store) -> None:
    """One message that is equal to the one that came along is no sign of where it begins."""
    ada, bob, cid = (store.agent(name) for name in ("ada", "bob", "cid"))
    handovers = sync.agents.Handovers(store)
    put(ada, t1={"id": "t1"})
    say(ada, "yes")
    say(bob, "own", "words", "of bob")
    handovers.hand_over(ada, bob, "t1", reason="x")
    put(bob, conversation=[message(text) for text in ("one", "two", "yes", "three")])
    handovers.hand_over(bob, cid, "t1", reason="x")
    assert (heard(bob), heard(cid)) == ([], ["one", "two", "yes", "three"])


@pytest.mark.parametrize("cut", [0, 2])
def test_a_context_whose_first_message_is_said_twice_goes_on_whole(
    store: sync.Store, cut: int
) -> None:
    """Also where the one that hands it on has let its oldest messages go."""
    ada, bob, cid = (store.agent(name) for name in ("ada", "bob", "cid"))
    handovers = sync.agents.Handovers(store)
    put(ada, t1={"id": "t1"})
    texts = ["hi", "what?", "hi", "now?"]
    say(ada, *texts)
    say(bob, "b0", "b1", "b2", "b3")
    handovers.hand_over(ada, bob, "t1", reason="x")
    put(bob, conversation=[message(text) for text in heard(bob)[cut:]])
    handovers.hand_over(bob, cid, "t1", reason="x")
    assert heard(cid) == texts
    assert heard(bob) == ["b0", "b1", "b2", "b3"][cut:]


def test_a_context_is_found_after_the_task_came_back_to_a_copy(store: sync.Store) -> None:
    """It begins where it first came to, not where the last handover brought some of it."""
    ada, bob, cid = (store.agent(name) for name in ("ada", "bob", "cid"))
    handovers = sync.agents.Handovers(store)
    put(ada, t1={"id": "t1"})
    say(ada, "please", "do it")
    put(bob, own={"id": "own"})
    say(bob, "please", "of bob", "more")
    handovers.hand_over(ada, bob, "t1", reason="x")
    handovers.hand_over(bob, cid, "t1", reason="x")
    say(cid, "please")
    handovers.accept(bob, handovers.give_back(cid, "t1", reason="y").id)
    assert heard(bob) == ["please", "of bob", "more", "please", "do it", "please"]
    put(bob, conversation=[message(text) for text in heard(bob)[2:]])
    handovers.hand_over(bob, cid, "t1", reason="z")
    assert heard(cid)[-3:] == ["please", "do it", "please"]
    assert heard(bob)[:1] == ["more"]


def test_a_copy_that_was_trimmed_comes_back_without_what_is_known(store: sync.Store) -> None:
    ada, bob = store.agent("ada"), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    put(ada, t1={"id": "t1"}, own={"id": "own"})
    say(ada, "one", "two", "three")
    handovers.hand_over(ada, bob, "t1", reason="x")
    say(bob, "answer")
    put(bob, conversation=[message(text) for text in heard(bob)[1:]])
    handovers.accept(ada, handovers.give_back(bob, "t1", reason="y").id)
    assert heard(ada) == ["one", "two", "three", "answer"]


def test_reconcile_removes_no_message_of_before_the_task_came(store: sync.Store) -> None:
    """One of the agent's own that is equal to the first that came along stays its own."""
    ada, bob, cid = (store.agent(name) for name in ("ada", "bob", "cid"))
    handovers = sync.agents.Handovers(store)
    say(bob, "of bob", "ok")
    safe = bob.checkpoint("before")
    put(ada, t1={"id": "t1"})
    say(ada, "ok", "please")
    handovers.hand_over(ada, bob, "t1", reason="x")
    came = bob.checkpoint("came")
    handovers.hand_over(bob, cid, "t1", reason="x")
    for point in (safe, came):
        bob.restore(point)
        assert handovers.reconcile(bob).removed == ("t1",)
        assert heard(bob) == ["of bob", "ok"]
    assert heard(cid) == ["ok", "please"]
