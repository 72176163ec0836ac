"""The messages of a task: all of them go with it, none twice, where equal ones are said again."""

from __future__ import annotations

import pytest
from handover_kit import heard, message, put, say
from hypothesis import given
from hypothesis import strategies as st

from holdfast import sync
from holdfast.agents.handover_package import Standing, begins, without

said = st.lists(st.integers(0, 2), max_size=6)


@given(said, said, said, st.integers(0, 6))
def test_where_the_messages_of_a_task_begin(
    own: list[int], context: list[int], later: list[int], cut: int
) -> None:
    """Also where the oldest messages were trimmed since: none of the task is left behind."""
    own = [10 + number for number in range(len(own))]  # else nobody can tell
    standing = Standing(handover="h", at=len(own), follows=own[-1] if own else None)
    messages = [*own, *context, *later]
    assert begins(messages, standing) == len(own)
    trimmed = messages[min(cut, len(own)) :]
    assert begins(trimmed, standing) <= len(own) - min(cut, len(own))


@given(said, said, said)
def test_what_an_earlier_conversation_had_of_a_context(
    own: list[int], context: list[int], later: list[int]
) -> None:
    kept = without([*own, *context], [*context, *later])
    assert kept == [*own, *context][: len(kept)]
    assert len(kept) <= len(own)


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
