"""Changes: several operations as one entry, over one scope and over several."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import Place

from holdfast import Ephemeral, sync
from holdfast.errors import (
    ChangeIdError,
    Conflict,
    InvalidInputError,
    InvalidKeyError,
    ReadOnlyError,
)
from holdfast.store.history.handle import ChangeParts, StoreHandle


def test_one_entry(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("draft", 1)
    with state.change(reason="plan revised", actor="planner", correlation="run-42") as change:
        change.set("plan", {"step": 4})
        change.append("trace", {"tool": "search"})
        change.extend("trace", [1, 2])
        change.delete("draft")
        change.delete("never there")
    assert state.items() == [("plan", {"step": 4}), ("trace", [{"tool": "search"}, 1, 2])]
    entry = state.log()[0]
    assert entry.sequence == 2
    assert entry.keys == ("plan", "trace", "trace", "draft", "never there")
    assert (entry.cause.actor, entry.cause.reason) == ("planner", "plan revised")


def test_it_reads_its_own_writes_and_nobody_else_does(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("a", 1)
    state.set("l", [1, 2])
    with state.change() as change:
        change.set("a", 2)
        change.append("l", 3)
        change.append("new", "x")
        change.delete("l")
        change.append("l", 4)
        assert change.get("a") == 2
        assert change.get("l") == [4]
        assert change.tail("new", 5) == ["x"]
        assert change.length("l") == 1
        assert change.exists("new")
        assert change.keys() == ["a", "l", "new"]
        assert change.get("absent", "default") == "default"
        assert (state.get("a"), state.get("l"), state.exists("new")) == (1, [1, 2], False)
    assert state.items() == [("a", 2), ("l", [4]), ("new", ["x"])]


def test_reads_of_what_is_no_list_are_refused(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("map", {"a": 1})
    state.set("text", "abc")
    for key in ("map", "text"):
        for read in ("tail", "length", "append"):
            with pytest.raises(InvalidInputError, match="not a list"), state.change() as change:
                if read == "tail":
                    change.tail(key, 1)
                elif read == "length":
                    change.length(key)
                else:
                    change.append(key, 1)
                    change.get(key)
    with pytest.raises(InvalidInputError), state.change() as change:
        change.tail("absent", -1)
    assert state._handle.place()[2] == 2


def test_an_exception_leaves_no_trace(store: sync.Store) -> None:
    state, other = store.agent("1"), store.agent("2")
    state.set("k", 1)
    with pytest.raises(KeyError), state.change() as change:
        change.set("k", 2)
        raise KeyError
    with pytest.raises(KeyError), store.change() as both:
        both[state].set("k", 3)
        both[other].set("k", 3)
        raise KeyError
    assert (state.get("k"), state._handle.place()[2]) == (1, 1)
    assert [str(info.scope) for info in store.scopes().items] == ["agent:1"]


def test_nothing_written_is_no_entry(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("k", 1)
    with state.change() as change:
        assert change.get("k") == 1
    with store.change() as both:
        assert both[state].get("k") == 1
    assert both.entries == []
    assert state._handle.place()[2] == 1


READS: dict[str, Any] = {
    "get": lambda change: change.get("k"),
    "exists": lambda change: change.exists("k"),
    "tail": lambda change: change.tail("k", 1),
    "length": lambda change: change.length("k"),
    "keys": lambda change: change.keys(),
    "append, then get": lambda change: (change.append("k", 9), change.get("k")),
}


@pytest.mark.parametrize("how", READS)
def test_what_it_reads_it_expects(place: Place, how: str) -> None:
    a, b = place.open().agent("1"), place.open().agent("1")
    a.set("k", [1])
    with pytest.raises(Conflict), a.change() as change:
        READS[how](change)
        change.set("copy", 1)
        b.set("k", [2])
    assert a.items() == [("k", [2])]


@pytest.mark.parametrize("how", READS)
def test_also_that_something_is_absent(place: Place, how: str) -> None:
    a, b = place.open().agent("1"), place.open().agent("1")
    a.set("other", 1)
    with pytest.raises(Conflict), a.change() as change:
        READS[how](change)
        change.set("copy", 1)
        b.set("k", [2])
    assert a.keys() == ["k", "other"]


def test_also_in_a_scope_that_was_deleted_and_made_again(place: Place) -> None:
    """What was read is gone, whatever stands there now."""
    a, b = place.open(), place.open()
    a.agent("1").set("k", "old life")
    with pytest.raises(Conflict), a.agent("1").change() as change:
        seen = change.get("k")
        change.set("copy", seen)
        b.delete("agent:1")
        b.agent("1").set("k", "new life")
    assert a.agent("1").items() == [("k", "new life")]


def test_writes_alone_are_never_in_conflict(place: Place) -> None:
    a, b = place.open().agent("1"), place.open().agent("1")
    a.append("l", 0)
    with a.change() as change:
        change.append("l", 1)
        change.set("k", "a")
        b.append("l", 2)
        b.set("k", "b")
    assert a.items() == b.items() == [("k", "a"), ("l", [0, 2, 1])]


def test_other_keys_may_change_meanwhile(place: Place) -> None:
    a, b = place.open().agent("1"), place.open().agent("1")
    a.set("k", 1)
    with a.change() as change:
        change.set("k", change.get("k") + 1)
        b.set("other", 1)
    assert a.items() == [("k", 2), ("other", 1)]


def test_if_version_inside(store: sync.Store) -> None:
    state = store.agent("1")
    version = state.set("k", 1)
    with state.change() as change:
        change.set("k", 2, if_version=version)
        change.set("new", 1, if_version=0)
    with pytest.raises(Conflict), state.change() as change:
        change.set("fine", 1)
        change.delete("k", if_version=version)
    with pytest.raises(Conflict), state.change() as change:
        change.get("k")
        change.set("k", 1, if_version=version)
    assert state.items() == [("k", 2), ("new", 1)]


def test_what_was_meant_is_what_it_was_then(store: sync.Store) -> None:
    state = store.agent("1")
    value = {"a": [1]}
    with state.change() as change:
        change.set("k", value)
        change.append("l", value)
        value["a"].append(2)
        change.get("k")["a"].append(3)
    assert state.items() == [("k", {"a": [1]}), ("l", [{"a": [1]}])]


# ---- several scopes ------------------------------------------------------------------------


def test_handover(place: Place) -> None:
    store = place.open()
    a, b = store.agent("a"), store.agent("b")
    a.set("task", {"id": 17})
    with store.change(id="handover-17", actor="boss", correlation="run") as change:
        task = change[a].get("task")
        change[a].delete("task")
        change[b].set("task", task)
    assert (a.get("task"), b.get("task")) == (None, {"id": 17})
    assert [(str(w.scope), w.sequence) for w in change.entries] == [("agent:a", 2), ("agent:b", 1)]
    for again in (place.open, place.reopen):
        seen = again()
        left, right = seen.agent("a").log()[0], seen.agent("b").log()[0]
        assert left.also == (("agent:b", "main", 1),)
        assert right.also == (("agent:a", "main", 2),)
        assert left.change == right.change == "handover-17"
        assert left.cause == right.cause
        assert left.cause.actor == "boss"


def test_all_or_none(place: Place) -> None:
    store, other = place.open(), place.open()
    names = ["a", "b", "c"]
    for name in names:
        store.agent(name).set("n", 0)
    with pytest.raises(Conflict), store.change() as change:
        for name in names:
            change[store.agent(name)].set("n", change[store.agent(name)].get("n") + 1)
        other.agent("c").set("n", 10)
    assert [store.agent(name).get("n") for name in names] == [0, 0, 10]
    with pytest.raises(InvalidInputError), store.change() as change:
        change[store.agent("a")].set("n", 5)
        change[store.agent("new")].set("n", {1, 2})
    assert store.agent("a").get("n") == 0
    assert len(store.scopes().items) == 3
    assert store.verify().findings == []


def test_a_scope_that_is_only_read_is_expected_too(place: Place) -> None:
    store, other = place.open(), place.open()
    store.agent("source").set("k", 1)
    with pytest.raises(Conflict), store.change() as change:
        change[store.agent("target")].set("copy", change[store.agent("source")].get("k"))
        other.agent("source").set("k", 2)
    assert store.agent("target").get("copy") is None
    with store.change() as change:
        change[store.agent("target")].set("copy", change[store.agent("source")].get("k"))
    assert store.agent("target").get("copy") == 2
    assert store.agent("source")._handle.place()[2] == 2, "a scope that is only read gets no entry"


def test_also_that_a_scope_is_not_there(place: Place) -> None:
    store, other = place.open(), place.open()
    with pytest.raises(Conflict), store.change() as change:
        assert not change[store.agent("source")].exists("k")
        change[store.agent("target")].set("k", 1)
        other.agent("source").set("k", 2)
    assert store.agent("target").get("k") is None
    with store.change() as change:
        assert not change[store.agent("nobody")].exists("k")
        change[store.agent("target")].set("k", 1)
    assert store.agent("target").get("k") == 1
    assert "agent:nobody" not in [str(info.scope) for info in store.scopes().items]


def test_timelines_of_one_scope_in_one_change(store: sync.Store) -> None:
    main = store.agent("1")
    main.set("k", 1)
    trial = main.fork("trial")
    with store.change() as change:
        change[main].set("k", 2)
        change[trial].set("k", 3)
    assert (main.get("k"), trial.get("k")) == (2, 3)
    assert main.log()[0].also == (("agent:1", "trial", 2),)


def test_a_view_cannot_be_changed(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("k", 1)
    view = state.at(1)
    for name in ("set", "append", "delete", "checkpoint", "restore", "fork"):
        assert not hasattr(view, name)
    with pytest.raises(ReadOnlyError), store.change() as change:
        change[view].set("k", 2)  # type: ignore[index]


# ---- ids -----------------------------------------------------------------------------------


def test_applied_once(place: Place) -> None:
    store, other = place.open(), place.open()
    for seen in (store, store, other, place.open()):
        with seen.agent("1").change(id="once") as change:
            change.append("l", 0)
    assert store.agent("1").get("l") == [0]
    store = place.reopen()
    with store.agent("1").change(id="once") as change:
        change.append("l", 0)
    with store.agent("1").change(id="another") as change:
        change.append("l", 10)
    assert store.agent("1").get("l") == [0, 10]
    assert store.agent("1")._handle.place()[2] == 2


def test_applied_once_over_several_scopes(place: Place) -> None:
    entries = []
    for _ in range(3):
        store = place.reopen()
        with store.change(id="pay-1") as change:
            change[store.agent("a")].append("paid", 1)
            change[store.agent("b")].append("got", 1)
        entries.append([(str(w.scope), w.sequence, w.hash) for w in change.entries])
        repeated = [w.repeated for w in change.entries]
    assert entries[0] == entries[1] == entries[2]
    assert repeated == [True, True]
    assert (store.agent("a").get("paid"), store.agent("b").get("got")) == ([1], [1])


def _one(change: Any) -> None:
    change.set("k", {"a": 1, "b": 2})
    change.append("l", 1)
    change.delete("d")


def _other_value(change: Any) -> None:
    change.set("k", {"a": 1, "b": 3})
    change.append("l", 1)
    change.delete("d")


def _other_order(change: Any) -> None:
    change.append("l", 1)
    change.set("k", {"a": 1, "b": 2})
    change.delete("d")


def _other_key(change: Any) -> None:
    change.set("k", {"a": 1, "b": 2})
    change.append("l", 1)
    change.delete("e")


def _other_type(change: Any) -> None:
    change.set("k", {"a": 1, "b": 2.0})
    change.append("l", 1)
    change.delete("d")


@pytest.mark.parametrize("again", [_other_value, _other_order, _other_key, _other_type])
def test_an_id_cannot_be_used_for_another_change(place: Place, again: Any) -> None:
    for scopes in (["agent:1"], ["agent:1", "agent:2"]):
        store, id_ = place.reopen(), f"pay-{len(scopes)}"
        with store.change(id=id_) as change:
            for scope in scopes:
                _one(change[scope])
        first = [(w.sequence, w.hash) for w in change.entries]
        position = store.position()
        for seen in (store, place.open()):
            with (
                pytest.raises(ChangeIdError, match=rf"'{id_}' was used before.*agent:1 main@"),
                seen.change(id=id_) as change,
            ):
                for scope in scopes:
                    again(change[scope])
            with seen.change(id=id_) as change:
                for scope in scopes:
                    _one(change[scope])
            assert [(w.sequence, w.hash) for w in change.entries] == first
            assert seen.position() == position, "nothing was written"


def test_an_id_that_two_use_at_once_for_different_changes(store: sync.Store) -> None:
    core, state = store._core, store.agent("1")
    plans = []
    for value in (1, 2, 1):
        parts = ChangeParts(StoreHandle(core), None, "x")
        parts.part(state._handle).set("k", value)
        plan = parts.plan()
        assert plan is not None
        plans.append(core.submit(plan[0]))
    core.committer.drain()
    assert plans[0].outcome()[0].sequence == plans[2].outcome()[0].sequence == 1
    with pytest.raises(ChangeIdError):
        plans[1].outcome()


def test_a_change_that_reads_can_be_sent_again(place: Place) -> None:
    for _ in range(3):
        store = place.reopen()
        with store.change(id="handover-17") as change:
            task = change["agent:a"].get("task", "nothing left")
            change["agent:a"].delete("task")
            change["agent:b"].set("task", task)
        assert store.agent("b").get("task") == "nothing left"


def test_the_order_in_which_scopes_are_named_makes_no_difference(place: Place) -> None:
    for names, repeated in (("ab", False), ("ba", True)):
        store = place.reopen()
        with store.change(id="i") as change:
            for name in names:
                change[f"agent:{name}"].append("list", name)
        assert change.repeated == repeated
    assert store.agent("a").get("list") == ["a"]


@pytest.mark.parametrize("read", [False, True])
def test_an_id_is_not_used_for_a_change_of_other_scopes(place: Place, read: bool) -> None:
    """Also where the first one read, and its content is not compared: no write is dropped."""
    store = place.open()
    store.agent("b").declare(Ephemeral("tmp/"))

    def together(names: str, *, read: bool) -> bool:
        with store.change(id="i") as change:
            for name in names:
                if read:
                    change[f"agent:{name}"].get("k")
                change[f"agent:{name}"].append("tmp/list" if name == "b" else "list", 1)
        return change.repeated

    assert (together("ab", read=read), together("ab", read=read)) == (False, True)
    store = place.reopen()
    position = store.position()
    for names in ("ac", "abc", "cd"):
        for again in (False, True):
            with pytest.raises(ChangeIdError, match=r"a change of other scopes \(agent:a main@1\)"):
                together(names, read=again)
    assert together("ab", read=read)
    assert store.position() == position


def test_ids_belong_to_their_scope(store: sync.Store) -> None:
    for name in ("1", "2"):
        with store.agent(name).change(id="same") as change:
            change.set("k", name)
    assert (store.agent("1").get("k"), store.agent("2").get("k")) == ("1", "2")


def test_an_id_is_used_up_also_after_a_restore(store: sync.Store) -> None:
    """It is told that the change was found, not applied; and where, on another timeline."""
    state = store.agent("1")
    safe = state.checkpoint("safe")

    def turn(on: sync.State, *, read: bool = False) -> bool:
        with on.change(id="turn-1") as change:
            change.append("log", change.get("log") if read else "paid")
        return change.repeated

    assert (turn(state), turn(state)) == (False, True)
    state.restore(safe)
    assert turn(state)
    assert state.get("log") is None
    for read in (False, True):
        fork = state.fork(f"fork {read}", at=safe)
        with pytest.raises(ChangeIdError, match=r"another timeline \(agent:1 main@2\)"):
            turn(fork, read=read)
    with store.change(id="both") as both:
        both[state].set("k", 1)
        both["agent:2"].set("k", 1)
    assert not both.repeated
    with store.change(id="both") as both:
        both[state].set("k", 1)
        both["agent:2"].set("k", 1)
    assert both.repeated
    assert both["agent:2"].repeated


def begun(store: sync.Store, *scopes: str) -> None:
    with store.change(id="begin") as change:
        for scope in scopes:
            change[scope].append("p", 1)


@pytest.mark.parametrize("end", ["delete", "erase"])
def test_a_scope_made_again_has_none_of_the_old_ids(place: Place, end: str) -> None:
    store, other = place.open(), place.open()

    def begin(store: sync.Store) -> None:
        with store.agent("a").change(id="begin") as change:
            change.append("p", 1)

    for _ in range(3):
        begin(store)
        begin(other)  # also after another process has ended it
        assert store.agent("a").get("p") == other.agent("a").get("p") == [1]
        getattr(store, end)("agent:a")
    begin(other)
    begin(store)
    assert [one.get("p") for one in (store.agent("a"), place.open().agent("a"))] == [[1], [1]]
    assert store.verify().ok
    store.erase("agent:a")
    assert store.verify().ok


def test_an_id_over_several_scopes_is_the_store_s(place: Place) -> None:
    store = place.open()
    begun(store, "agent:a", "agent:b")
    store.delete("agent:b")
    begun(store, "agent:a", "agent:b")
    assert (store.agent("a").get("p"), store.agent("b").get("p")) == ([1], None)
    store.erase("agent:a")
    store.erase("agent:b")
    begun(store, "agent:a", "agent:b")
    assert (store.agent("a").get("p"), store.agent("b").get("p")) == ([1], [1])
    assert store.verify().ok


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize(("first", "second"), [("a", "ab"), ("ab", "a"), ("a", "b")])
def test_an_id_of_the_store_is_used_once_whatever_it_touches(
    place: Place, first: str, second: str, read: bool
) -> None:
    """What a change touches can depend on what it finds: it is the same id all the same."""

    def send(store: sync.Store, names: str) -> bool:
        with store.change(id="i") as change:
            for name in names:
                if read:
                    change[f"agent:{name}"].get("list")
                change[f"agent:{name}"].append("list", 1)
        return change.repeated

    assert not send(place.open(), first)
    store = place.reopen()
    assert send(store, first)
    if read and second < first:  # content that rests on reads is not compared
        assert send(store, second)
    else:
        with pytest.raises(ChangeIdError, match="the id 'i' was used before"):
            send(store, second)
    assert [store.agent(name).get("list") for name in first] == [[1]] * len(first)
    assert store.verify().ok


def test_an_id_of_the_store_is_none_of_its_one_scope(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    with state.change(id="begin") as change:
        change.append("p", 1)
    begun(store, "agent:b")
    begun(store, "agent:b")
    assert (state.get("p"), store.agent("b").get("p")) == ([1], [1])
    store.delete("agent:b")
    begun(store, "agent:b")
    assert store.agent("b").get("p") is None
    assert store.verify().ok
    store.erase(state)  # its own id goes with it, that of the store does not
    begun(store, "agent:b")
    assert store.agent("b").get("p") is None
    assert store.verify().ok
    assert not any("shared" in text for text in store.erase("agent:b").open)
    assert list(place.storage().scan(b"I", b"J", limit=1)) == []
    begun(store, "agent:b")
    assert store.agent("b").get("p") == [1]
    assert store.verify().ok


def test_an_id_that_failed_was_not_used(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("k", 1)
    with pytest.raises(Conflict), state.change(id="x") as change:
        change.set("k", 2, if_version=99)
    with state.change(id="x") as change:
        change.set("k", 3)
    assert state.get("k") == 3


@pytest.mark.parametrize("bad", ["", "x" * 257, 7, b"x", "\ud800"])
def test_ids_are_texts(store: sync.Store, bad: Any) -> None:
    with pytest.raises(InvalidInputError), store.agent("1").change(id=bad) as change:
        change.set("k", 1)
    assert store.scopes().items == []


def test_keys_are_checked_at_once(store: sync.Store) -> None:
    with store.agent("1").change() as change:
        with pytest.raises(InvalidKeyError):
            change.set("a/../b", 1)
        change.set("k", 1)
    assert store.agent("1").keys() == ["k"]


def test_many_operations_in_one_change(plain: Place) -> None:
    state = plain.open().agent("1")
    with state.change() as change:
        for number in range(30_000):
            change.set(f"some/longer/path/of/a/key/{number:06}", {"number": number})
    state = plain.reopen().agent("1")
    assert len(state.keys()) == 30_000
    assert state.get("some/longer/path/of/a/key/029999") == {"number": 29_999}
    assert state._handle.place()[2] == 1


def test_too_many_operations_are_refused(plain: Place) -> None:
    store = plain.open()
    state = store.agent("1")
    with pytest.raises(InvalidInputError, match="operations"), state.change() as change:
        for number in range(100_001):
            change.delete(f"{number}")
    assert store.scopes().items == []


def test_what_is_read_twice_in_a_change_is_the_same(place: Place) -> None:
    """Who compares what was made of a value with the value, and writes nothing, is not misled."""
    one, other = place.open().agent("1"), place.open().agent("1")
    one.set("n", 1)
    with one.change() as change:
        made = change.get("n") + 1
        keys = change.keys("n")
        other.set("n", 2)
        other.set("n2", 2)
        assert change.get("n") == 1 != made
        assert change.keys("n") == keys
    with pytest.raises(Conflict), one.change() as change:
        assert change.get("n") == 2
        other.set("n", 3)
        change.set("n", change.get("n") + 1)
    assert one.get("n") == 3
