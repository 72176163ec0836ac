"""Handovers: a task and its conversation go from one agent to another, whole or not at all."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import nan
from typing import Any

import pytest
from handover_kit import busy, heard, message, put, say, tasks
from store_kit import Hands, Place

import holdfast
from holdfast import Scope, sync
from holdfast.agents import Message, Task
from holdfast.agents.agent_keys import CONVERSATION, CURRENT_TASK
from holdfast.agents.handover_package import LOG
from holdfast.errors import (
    Conflict,
    HandoverValidationError,
    HoldfastError,
    InvalidInputError,
    MissingError,
)
from holdfast.storage.wrappers import MODES, Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.inner import own_change
from holdfast.store.open import open_core


@pytest.mark.spec("M65", "M68")
def test_offered_and_accepted(store: sync.Store) -> None:
    """Until it is accepted it is the giver's; then all of it moves, in one change."""
    ada, bob = busy(store), store.agent("bob")
    say(bob, "good morning")
    handovers = sync.agents.Handovers(store)
    offer = handovers.offer(ada, "agent:bob", "t1", reason="about money")
    assert (offer.status, offer.giver, offer.taker) == ("offered", ada.scope, bob.scope)
    assert handovers.offers(bob) == [offer]
    assert (tasks(ada), tasks(bob), heard(bob)) == (["t1"], [], ["good morning"])
    put(ada, t1={"id": "t1", "status": "running", "progress": 0.5})  # it is still at work on it
    done = handovers.accept(bob, offer.id)
    assert (done.status, done.reason, done.messages) == ("accepted", "about money", 2)
    assert (tasks(ada), heard(ada), ada.get(CURRENT_TASK)) == ([], [], None)
    assert bob.get("$agent/tasks/t1") == {"id": "t1", "status": "running", "progress": 0.5}
    assert heard(bob) == ["good morning", "hello", "it is about money"]
    assert bob.get(CURRENT_TASK) == "t1"
    entry = bob.log(limit=1)[0]
    assert entry.also == ((str(ada.scope), "main", ada._handle.place()[2]),), "one change over both"
    assert entry.cause.reason == f"handover {offer.id} accepted"
    assert handovers.accept(bob, offer.id) == done, "once, however often it is sent"
    assert handovers.history(ada) == handovers.history(bob) == [done]
    assert handovers.offers(bob) == []
    assert store.verify().findings == []


@pytest.mark.spec("M67")
def test_refused_and_withdrawn(store: sync.Store) -> None:
    """With a reason, which both keep; the task never left."""
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    first = handovers.offer(ada, bob, "t1", reason="about money")
    with pytest.raises(HandoverValidationError, match="offered already"):
        handovers.offer(ada, "agent:cid", "t1", reason="to somebody else, too")
    refused = handovers.refuse(bob, first.id, reason="not my department")
    assert (refused.status, refused.answer) == ("refused", "not my department")
    second = handovers.offer(ada, bob, "t1", reason="please")
    withdrawn = handovers.withdraw(ada, second.id, reason="did it myself")
    assert withdrawn.status == "withdrawn"
    for id in (first.id, second.id):
        with pytest.raises(InvalidInputError, match="offer it again"):
            handovers.accept(bob, id)
    assert handovers.history(ada) == handovers.history(bob) == [refused, withdrawn]
    assert (tasks(ada), heard(ada)) == (["t1"], ["hello", "it is about money"])
    assert (tasks(bob), heard(bob)) == ([], [])
    assert handovers.refuse(bob, first.id, reason="again") == refused
    assert handovers.owner(ada, "t1") == ada.scope
    for ask in (handovers.owner, handovers.chain):
        with pytest.raises(MissingError, match="has no task 't1'"):
            ask(bob, "t1")


@pytest.mark.spec("M66", "M76")
def test_the_giver_is_validated(store: sync.Store) -> None:
    """All that is wrong is said at once, and nothing is written."""
    ada = busy(store)
    handovers = sync.agents.Handovers(store)
    call = {"id": "c1", "name": "pay"}
    put(ada, conversation=[{"role": "assistant", "tool_calls": [call]}])
    put(ada, t1={"id": "t2", "status": "completed"})
    with suppress(ZeroDivisionError), sync.agents.Effects(ada).once("pay", id="c0") as effect:
        assert effect.due
        raise ZeroDivisionError
    before = ada._handle.place()[2]
    with pytest.raises(HandoverValidationError) as caught:
        handovers.offer(ada, "agent:bob", "t1", reason="x", check=lambda *_: "no")
    assert caught.value.problems == (
        "the task 't1' is completed",
        "the tool call c1 has no result: let it end, or repair the conversation",
        "the effect pay c0 is unknown: settle it first",
        "tasks.current: the task 't2' has the status 'completed'",
        "tasks.t1.id: is another one",
    )
    with pytest.raises(HandoverValidationError, match="there is no task 'nothing'"):
        handovers.offer(ada, "agent:bob", "nothing", reason="x")
    sync.agents.Effects(ada).settle("pay", "drop", id="c0")
    sync.agents.Effects(ada).repair()
    put(ada, t1={"id": "t1"})
    for check in (lambda *_: "no", lambda *_: ["no"], lambda *_: False, lambda *_: 1 / 0):
        with pytest.raises(HandoverValidationError, match=r"no|ZeroDivisionError"):
            handovers.offer(ada, "agent:bob", "t1", reason="x", check=check)
    assert ada._handle.place()[2] == before + 3
    assert handovers.history(ada) == []
    assert handovers.offer(ada, "agent:bob", "t1", reason="x", check=lambda *_: True).id


@pytest.mark.spec("M66")
def test_the_taker_is_validated(store: sync.Store) -> None:
    """What it finds is the reason for which the offer is refused; the task stays."""
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    put(bob, t1={"id": "t1", "title": "another"})
    offer = handovers.offer(ada, bob, "t1", reason="x")
    seen: list[Any] = []

    def check(state: sync.State, package: holdfast.agents.HandoverPackage) -> str:
        seen.append((state.scope, package.task["id"], len(package.context)))
        return "too busy"

    with pytest.raises(HandoverValidationError) as caught:
        handovers.accept(bob, offer.id, check=check)
    problems = ("'$agent/tasks/t1' is there already", "too busy")
    assert caught.value.problems == problems
    assert seen == [(bob.scope, "t1", 2)]
    [refused] = handovers.history(ada)
    assert (refused.status, refused.answer) == ("refused", "; ".join(problems))
    assert tasks(ada) == ["t1"]
    assert bob.get("$agent/tasks/t1") == {"id": "t1", "title": "another"}


@pytest.mark.spec("M68")
def test_all_that_belongs_to_a_task_goes_with_it(store: sync.Store) -> None:
    """Subtasks at any depth and what was done for them; both states are valid before and after."""
    ada, bob = store.agent("ada"), store.agent("bob")
    one, two = sync.agents.AgentState(ada), sync.agents.AgentState(bob)
    for id, parent in (("t1", ""), ("t2", "t1"), ("t3", "t2"), ("t4", ""), ("t5", "t4")):
        one.put("tasks", id, Task(id=id, parent=parent))
    commands = [{"id": f"c{n}", "task_id": f"t{n}"} for n in (1, 4, 3)]
    one.append("execution_trace/commands", *commands)
    one.append("conversation", Message(role="user", content="hello"))
    two.put("tasks", "mine", Task(id="mine"))
    two.append("execution_trace/commands", {"id": "c9", "task_id": "mine"})
    handovers = sync.agents.Handovers(store)
    with pytest.raises(HandoverValidationError, match="is part of 't1': hand that one over"):
        handovers.offer(ada, bob, "t2", reason="x")

    def check(_: sync.State, package: holdfast.agents.HandoverPackage) -> bool:
        ids = [command["id"] for command in package.commands]
        return list(package.subtasks) == ["t2", "t3"] and ids == ["c1", "c3"]

    done = handovers.hand_over(ada, bob, "t1", reason="x", check=check)
    assert done.status == "accepted"
    assert (tasks(ada), tasks(bob)) == (["t4", "t5"], ["mine", "t1", "t2", "t3"])
    assert [c.id for c in one.get("execution_trace").commands] == ["c4"]
    assert [c.id for c in two.get("execution_trace").commands] == ["c9", "c1", "c3"]
    assert (one.problems(), two.problems()) == ([], [])
    handovers.accept(ada, handovers.give_back(bob, "t1", reason="done").id)
    assert (tasks(ada), tasks(bob)) == (["t1", "t2", "t3", "t4", "t5"], ["mine"])
    assert (one.problems(), two.problems()) == ([], [])
    put(bob, mine={"id": "other"})
    offer = handovers.offer(ada, bob, "t4", reason="x")
    with pytest.raises(HandoverValidationError, match=r"tasks\.mine\.id: is another one"):
        handovers.accept(bob, offer.id)
    assert [one.status for one in handovers.history(ada, "t4")] == ["refused"]


def test_a_giver_who_is_in_the_middle_of_something(store: sync.Store) -> None:
    """The offer stays, and is taken when it is over."""
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    offer = handovers.offer(ada, bob, "t1", reason="x")
    with sync.agents.Effects(ada).once("pay", id="c1") as effect:
        assert effect.due
        with pytest.raises(HandoverValidationError, match="pay c1 is running"):
            handovers.accept(bob, offer.id)
    assert handovers.accept(bob, offer.id).status == "accepted"


def test_chains_and_returns(timed: sync.Store, hands: Hands) -> None:
    """Each takes the messages since the task came; the way of a task is known from everywhere."""
    ada, bob, cid = busy(timed), timed.agent("bob"), timed.agent("cid")
    say(bob, "bob's own")
    handovers = sync.agents.Handovers(timed)
    ids = []
    for giver, taker, text in ((ada, bob, "from bob"), (bob, cid, "from cid")):
        hands.move(60)
        ids.append(handovers.hand_over(giver, taker, "t1", reason=f"to {taker.scope}").id)
        say(taker, text)
    assert heard(bob) == ["bob's own"], "what was there before stays"
    assert heard(cid) == ["hello", "it is about money", "from bob", "from cid"]
    for agent in (ada, bob, cid):
        assert handovers.owner(agent, "t1") == cid.scope
        assert [one.id for one in handovers.chain(agent, "t1")] == ids
    hands.move(60)
    back = handovers.give_back(cid, "t1", reason="solved", id="back")
    assert (back.taker, back.returns, back.before) == (bob.scope, ids[1], ids[1])
    assert handovers.give_back(cid, "t1", reason="solved", id="back") == back
    handovers.accept(bob, back.id)
    assert heard(bob) == ["bob's own", "hello", "it is about money", "from bob", "from cid"]
    assert handovers.give_back(cid, "t1", reason="solved", id="back").status == "accepted"
    hands.move(60)
    last = handovers.give_back(bob, "t1", reason="solved")
    handovers.accept(ada, last.id)
    assert heard(ada) == ["hello", "it is about money", "from bob", "from cid"]
    assert (heard(bob), heard(cid)) == (["bob's own"], [])
    chain = handovers.chain(cid, "t1")
    assert [str(one.giver) for one in chain] == ["agent:ada", "agent:bob", "agent:cid", "agent:bob"]
    assert [one.answered_at for one in chain] == [hands.time(60 * n) for n in range(1, 5)]
    for id in (None, last.id):
        with pytest.raises(MissingError, match="is not here"):
            handovers.give_back(cid, "t1", reason="x", id=id)
    with pytest.raises(InvalidInputError, match="was another one"):
        handovers.give_back(bob, "t2", reason="x", id=last.id)
    assert timed.verify().findings == []


@pytest.mark.parametrize(
    ("context", "left", "given", "back"),
    [
        ("copy", ["hello", "it is about money"], ["hello", "it is about money"], ["said"]),
        ("none", ["hello", "it is about money"], [], []),
    ],
)
def test_context_that_is_copied_or_stays(
    store: sync.Store, context: str, left: list[str], given: list[str], back: list[str]
) -> None:
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    handovers.hand_over(ada, bob, "t1", reason="x", context=context)
    assert (heard(ada), heard(bob)) == (left, given)
    say(bob, "said")
    handovers.accept(ada, handovers.give_back(bob, "t1", reason="y").id)
    assert heard(ada) == left + back, "nothing comes twice"


def test_another_who_is_faster(place: Place) -> None:
    """Of an accept and a withdrawal at the same time one is told; there is one owner."""
    store, other = place.open(), place.open()
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    offer = handovers.offer(ada, bob, "t1", reason="x")

    def meanwhile(*_: Any) -> None:
        if not taken:
            taken.append(sync.agents.Handovers(other).withdraw("agent:ada", offer.id, reason="no"))

    taken: list[Any] = []
    with pytest.raises(InvalidInputError, match="withdrawn"):
        handovers.accept(bob, offer.id, check=meanwhile)
    assert (tasks(ada), tasks(bob)) == (["t1"], [])
    # What the giver writes while it is taken is not lost.
    offer = handovers.offer(ada, bob, "t1", reason="x")
    texts = iter(["one more thing", "and another"])

    def talking(*_: Any) -> None:
        for text in texts:
            say(other.agent("ada"), text)
            return

    handovers.accept(bob, offer.id, check=talking)
    assert heard(bob) == ["hello", "it is about money", "one more thing", "and another"]


ODD = {"role": "user", "content": "odd", "metadata": {"score": nan}}
"""A message that is not equal to itself."""


def test_a_message_that_is_not_equal_to_itself_is_known_again(store: sync.Store) -> None:
    ada, bob, eve = busy(store), store.agent("bob"), store.agent("eve")
    handovers = sync.agents.Handovers(store)
    put(ada, conversation=[ODD])
    say(bob, "only bob's")
    before = ada.checkpoint("before")
    handovers.hand_over(ada, bob, "t1", reason="x")
    handovers.hand_over(bob, eve, "t1", reason="x")
    assert (heard(bob), heard(eve)) == (["only bob's"], ["odd"])
    ada.restore(before)
    assert handovers.reconcile(ada).removed == ("t1",)
    assert heard(ada) == []
    handovers.hand_over(eve, bob, "t1", reason="x", context="copy")
    say(bob, "new")
    back = handovers.give_back(bob, "t1", reason="x")
    handovers.accept(eve, back.id)
    assert heard(eve) == ["odd", "new"]


def owners(store: sync.Store, *agents: str) -> list[str]:
    return [name for name in agents if "t1" in tasks(store.agent(name))]


@pytest.mark.spec("M77")
@pytest.mark.parametrize("mode", MODES)
def test_storage_that_fails_at_any_call(plain: Place, mode: str) -> None:
    """Exactly one agent has the task and all of the conversation, whatever call failed how."""
    for nth in range(1, 200):
        names = f"ada{nth}", f"bob{nth}"
        store = plain.open()
        ada = store.agent(names[0])
        put(ada, t1={"id": "t1"}, conversation=[message("hello")])
        faulty = Faulty(plain.storage())
        broken = sync.Store(StoreHandle(open_core(plain.url, storage=faulty, **plain.options())))
        faulty.plan = (Fault("*", faulty.calls["*"] + nth, mode),)
        a, b = (f"agent:{name}" for name in names)
        with suppress(HoldfastError):
            sync.agents.Handovers(broken).hand_over(a, b, "t1", reason="x", id=f"h{nth}")
        broken.close()
        again = plain.open()
        [owner] = owners(again, *names)
        assert heard(again.agent(owner)) == ["hello"]
        assert sum(len(heard(again.agent(name))) for name in names) == 1
        sync.agents.Handovers(again).hand_over(a, b, "t1", reason="x", id=f"h{nth}")
        assert owners(again, *names) == [names[1]]
        assert len(sync.agents.Handovers(again).history(a)) == 1
        if not faulty.failed:
            assert again.verify().findings == []
            return
    raise AssertionError("there are more calls than were tried")


def test_a_restored_giver_does_not_have_it_again(store: sync.Store) -> None:
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    early = ada.checkpoint("early")
    say(ada, "later")
    safe = ada.checkpoint("before")
    handovers.hand_over(ada, bob, "t1", reason="x")
    for point, own in ((safe, []), (early, [])):
        ada.restore(point)
        assert tasks(ada) == ["t1"], "a restore brings back what was there"
        assert handovers.owner(ada, "t1") == bob.scope, "and what was handed over is still known"
        done = handovers.reconcile(ada)
        assert (done.removed, done.put_back) == (("t1",), ())
        assert (tasks(ada), heard(ada)) == ([], own)
        assert not ada.exists(CURRENT_TASK)
        entry = ada._handle.place()[2]
        assert handovers.reconcile(ada).removed == ()
        assert ada._handle.place()[2] == entry
    assert heard(bob) == ["hello", "it is about money", "later"]


def test_tasks_below_one_that_is_away_do_not_stay_behind(store: sync.Store) -> None:
    """Also those that were gone when it was handed over, and are there again by a restore."""
    ada, bob = busy(store), store.agent("bob")
    put(ada, below={"id": "below", "parent": "t1"}, deeper={"id": "deeper", "parent": "below"})
    safe = ada.checkpoint("before")
    agent = sync.agents.AgentState(ada)
    agent.remove("tasks", "deeper")
    agent.remove("tasks", "below")
    put(ada, other={"id": "other"})
    handovers = sync.agents.Handovers(store)
    handovers.hand_over(ada, bob, "t1", reason="x")
    ada.restore(safe)
    assert tasks(ada) == ["below", "deeper", "t1"]
    assert handovers.reconcile(ada).removed == ("t1",)
    assert (tasks(ada), agent.problems()) == ([], [])
    assert tasks(bob) == ["t1"], "what was gone is not given to the taker"


def test_a_restored_taker_does_not_lose_it(store: sync.Store) -> None:
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    say(bob, "bob's own")
    safe = bob.checkpoint("before")
    handovers.hand_over(ada, bob, "t1", reason="x")
    put(bob, t1={"id": "t1", "progress": 0.9})
    bob.restore(safe)
    assert owners(store, "ada", "bob") == []
    done = handovers.reconcile(bob)
    assert (done.removed, done.put_back) == ((), ("t1",))
    assert bob.get("$agent/tasks/t1") == {"id": "t1", "status": "running"}, "as it came"
    assert heard(bob) == ["bob's own", "hello", "it is about money"]
    handovers.accept(ada, handovers.give_back(bob, "t1", reason="y").id)
    assert heard(ada) == ["hello", "it is about money"]


def test_what_an_agent_did_with_its_tasks_is_left_alone(store: sync.Store) -> None:
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    handovers.hand_over(ada, bob, "t1", reason="x")
    put(ada, t1={"id": "t1", "title": "another of that name"})
    parts = own_change(bob)
    parts.part(bob._handle).delete("$agent/tasks/t1")
    bob._run(parts.plan())
    assert handovers.reconcile(ada) == handovers.reconcile(bob)
    assert (tasks(ada), tasks(bob)) == (["t1"], [])


def test_slips(store: sync.Store) -> None:
    ada = busy(store)
    handovers = sync.agents.Handovers(store)
    before = ada._handle.place()[2]
    wrong: list[dict[str, Any]] = [
        {"taker": ada},
        {"taker": "bob"},
        {"taker": "agent:"},
        {"task": 7},
        {"task": "a//b"},
        {"reason": ""},
        {"reason": None},
        {"id": ""},
        {"id": "x" * 129},
        {"context": "half"},
        {"check": "no function"},
    ]
    for one in wrong:
        asked = {"giver": ada, "taker": "agent:bob", "task": "t1", "reason": "x"}
        with pytest.raises(InvalidInputError):
            handovers.offer(**asked | one)
    for id in ("nothing", "a//b", ""):
        with pytest.raises(HoldfastError):
            handovers.accept("agent:bob", id)
        with pytest.raises(HoldfastError):
            handovers.refuse("agent:bob", id, reason="x")
    offer = handovers.offer(ada, "agent:bob", "t1", reason="x", id="h")
    with pytest.raises(InvalidInputError, match="was another one"):
        handovers.offer(ada, "agent:cid", "t1", reason="x", id="h")
    with pytest.raises(MissingError, match=r"history\(\) lists them"):
        handovers.refuse(ada, offer.id, reason="ada is not its taker")
    with pytest.raises(MissingError):
        handovers.withdraw("agent:bob", offer.id, reason="bob is not its giver")
    with pytest.raises(InvalidInputError):
        handovers.refuse("agent:bob", offer.id, reason="")
    assert ada._handle.place()[2] == before + 1
    with pytest.raises(InvalidInputError):
        sync.agents.Handovers(ada)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"holdfast\.sync"):
        holdfast.agents.Handovers(store)  # type: ignore[arg-type]


def test_the_same_on_the_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            ada, bob = store.agent("ada"), store.agent("bob")
            put(ada, t1={"id": "t1"}, conversation=[message("hello")])
            handovers = holdfast.agents.Handovers(store)
            calls: list[Any] = []

            async def check(
                state: holdfast.State, package: holdfast.agents.HandoverPackage
            ) -> list[str]:
                calls.append(await state.keys())
                return ["busy"] if len(calls) == 1 else []

            offer = await handovers.offer(ada, bob, "t1", reason="x")
            assert await handovers.offers(bob) == [offer]
            with pytest.raises(HandoverValidationError, match="busy"):
                await handovers.accept(bob, offer.id, check=check)
            again = await handovers.hand_over(ada, bob, "t1", reason="x", check=check)
            assert await handovers.owner(ada, "t1") == Scope.parse("agent:bob")
            back = await handovers.give_back("agent:bob", "t1", reason="y", check=lambda *_: True)
            await handovers.refuse(ada, back.id, reason="keep it")
            back = await handovers.give_back(bob, "t1", reason="y")
            await handovers.withdraw(bob, back.id, reason="found it")
            assert [one.id for one in await handovers.chain(ada, "t1")] == [again.id]
            found = [one.status for one in await handovers.history(ada, "t1")]
            assert found == ["refused", "accepted", "refused", "withdrawn"]
            assert (await handovers.reconcile(ada)).removed == ()
            assert len(await bob.get(CONVERSATION)) == 1

    asyncio.run(main())


def test_handovers_are_between_main_timelines(store: sync.Store) -> None:
    """On a fork each step would act on copies: it is refused, and both mains stay as they are."""
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    handovers.hand_over(ada, bob, "t1", reason="x")
    offer = handovers.give_back(bob, "t1", reason="y")
    one, other = ada.fork("trial"), bob.fork("trial")
    steps = [
        lambda: handovers.offer(other, "agent:carl", "t1", reason="z"),
        lambda: handovers.offer(bob, store.agent("carl").on("trial"), "t1", reason="z"),
        lambda: handovers.hand_over(other, "agent:carl", "t1", reason="z"),
        lambda: handovers.accept(one, offer.id),
        lambda: handovers.refuse(one, offer.id, reason="z"),
        lambda: handovers.withdraw(other, offer.id, reason="z"),
        lambda: handovers.give_back(other, "t1", reason="z"),
        lambda: handovers.reconcile(one),
        lambda: handovers.offers(one),
        lambda: handovers.owner(one, "t1"),
    ]
    for step in steps:
        with pytest.raises(InvalidInputError, match="main timelines"):
            step()
    assert handovers.offers(ada) == [offer], "nothing happened"
    put(other, t2={"id": "t2"})
    handovers.accept(ada, offer.id)
    bob.restore(f"trial@{other._handle.place()[2]}", reason="the trial was good")
    assert handovers.reconcile(bob).removed == ("t1",)
    assert (tasks(bob), owners(store, "ada", "bob")) == (["t2"], ["ada"])


@pytest.mark.parametrize("gone", ["agent:ada", "agent:bob"])
def test_an_offer_ends_also_after_the_other_agent_was_deleted(store: sync.Store, gone: str) -> None:
    ada, handovers = busy(store), sync.agents.Handovers(store)
    offer = handovers.offer(ada, "agent:bob", "t1", reason="x")
    store.delete(gone)
    if gone == "agent:ada":
        with pytest.raises(InvalidInputError, match="not known to both"):
            handovers.accept("agent:bob", offer.id)
        assert handovers.refuse("agent:bob", offer.id, reason="nobody asks").status == "refused"
        assert handovers.offers("agent:bob") == []
    else:
        assert handovers.withdraw(ada, offer.id, reason="nobody there").status == "withdrawn"
        assert tasks(ada) == ["t1"]
        handovers.offer(ada, "agent:cid", "t1", reason="y")
    assert gone not in [str(one.scope) for one in store.scopes(kind="agent").items]


def test_a_conflict_without_end_is_told(store: sync.Store) -> None:
    ada, bob = busy(store), store.agent("bob")
    handovers = sync.agents.Handovers(store)
    offer = handovers.offer(ada, bob, "t1", reason="x")
    with pytest.raises(Conflict):
        handovers.accept(bob, offer.id, check=lambda *_: say(ada, "and"))
    assert owners(store, "ada", "bob") == ["ada"]


def test_a_task_whose_name_tells_that_it_is_sensitive(store: sync.Store) -> None:
    ada, bob = store.agent("ada"), store.agent("bob")
    sync.agents.AgentState(ada).put("tasks", "password", {"id": "password", "title": "4111-1111"})
    sync.agents.Handovers(store).hand_over(ada, bob, "password", reason="x")
    before = [key for key in bob.keys(LOG) if "4111-1111" in repr(bob.get(key))]
    assert {bob._handle.reader.class_of(key) for key in before} == {"sensitive"}
