"""Undoing what some entries did, and nothing else."""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Hands, Place, same

import holdfast
from holdfast import Registry, Typed, sync
from holdfast.errors import (
    GateRefusedError,
    InvalidInputError,
    LimitExceededError,
    PointNotFoundError,
    ReadOnlyError,
    ScopeNotFoundError,
)
from holdfast.store.history import revert
from holdfast.store.journal import timeline as timeline_module
from holdfast.store.names.items import Left

LONG = [{"n": n, "text": "x" * 50} for n in range(300)]


def why(left: list[Left]) -> dict[str, str]:
    """What was left alone, by key."""
    return {one.key: one.why for one in left}


# ---- what goes back ------------------------------------------------------------------------


def test_only_the_keys_of_a_correlation_go_back(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    state.set("plan", {"goal": "ship"})
    state.set("long", LONG)
    state.set("gone", 7)
    state.set("mine", 1)
    root = state.root()
    with store.acting("bot", correlation="run-42"):
        state.set("plan", {"goal": "sink"})
        state.set("plan", {"goal": "sink", "fast": True})
        state.set("long", [*LONG[:100], "other", *LONG[150:]])
        state.delete("gone")
        state.set("new", b"bytes")
    before = len(state.log(limit=None))
    result = state.revert(correlation="run-42", reason="it went wrong")
    assert result.done == ["gone", "long", "new", "plan"]
    assert result.left == []
    assert state.root() == root, "equal states have equal roots"
    assert len(state.log(limit=None)) == before + 1, "one entry"
    entry = state.log(limit=1)[0]
    assert (entry.sequence, entry.cause.reason) == (result.entry, "it went wrong")
    assert place.reopen().agent("1").root() == root
    assert place.open().verify().ok


def test_other_keys_stay(store: sync.Store) -> None:
    state = store.agent("1")
    with store.acting(correlation="run"):
        state.set("a", 1)
    state.set("b", 2)
    state.revert(correlation="run")
    assert state.items() == [("b", 2)]


def test_by_entries_and_by_actor(store: sync.Store) -> None:
    state = store.agent("1")
    with store.acting("bot"):
        numbers = [state.set("a", 1), state.set("b", 1), state.set("c", 1)]
    state.set("d", 1)
    assert state.revert(entries=[numbers[0], state.log(key="b")[0]]).done == ["a", "b"]
    assert state.keys() == ["c", "d"]
    result = state.revert(actor="bot")
    assert result.done == ["c"]
    assert set(why(result.left)) == {"a", "b"}, "they are what they were before"
    assert state.keys() == ["d"]


def test_a_revert_can_be_undone(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("a", LONG)
    with store.acting(correlation="run"):
        state.append("a", "more")
        state.set("b", 1)
    root = state.root()
    first = state.revert(correlation="run")
    second = state.revert(entries=[first.entry])
    assert second.done == ["a", "b"]
    assert state.root() == root
    state.revert(entries=[second.entry])
    assert state.items() == [("a", LONG)]


def test_again_does_nothing(store: sync.Store) -> None:
    state = store.agent("1")
    with store.acting(correlation="run"):
        state.set("a", 1)
    state.revert(correlation="run")
    head = state._handle.place()
    again = state.revert(correlation="run")
    assert (again.done, again.entry) == ([], None)
    assert why(again.left) == {"a": "it is what it was before"}
    assert state._handle.place() == head


def test_a_dry_run_changes_nothing(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    state.set("plan", {"step": 1})
    with store.acting(correlation="run"):
        state.set("plan", {"step": 2})
    head = state._handle.place()
    for one in (state, place.open(read_only=True).agent("1")):
        dry = one.revert(correlation="run", dry_run=True)
        assert (dry.done, dry.entry, dry.dry_run) == (["plan"], None, True)
        assert [(c.path, c.before, c.after) for c in dry.diff] == [("plan.step", 2, 1)]
    assert state._handle.place() == head
    with pytest.raises(ReadOnlyError):
        place.open(read_only=True).agent("1").revert(correlation="run")


# ---- what is left alone --------------------------------------------------------------------


def test_a_key_that_somebody_changed_since_is_left_alone(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("a", 0)
    with store.acting("bot", correlation="run"):
        state.set("a", 1)
        state.set("b", 1)
    with store.acting("human"):
        state.set("a", 2)
    result = state.revert(correlation="run")
    assert result.done == ["b"]
    assert why(result.left) == {"a": "it was changed since, at entry 4 by human"}
    assert result.left[0].entry.cause.actor == "human"
    assert state.items() == [("a", 2)]


def test_changes_of_others_in_between_count(store: sync.Store) -> None:
    state = store.agent("1")
    with store.acting("bot"):
        state.set("a", 1)
    state.set("a", 2)
    with store.acting("bot"):
        state.set("a", 3)
    assert [left.entry.sequence for left in state.revert(actor="bot").left] == [2]
    assert state.get("a") == 3


@pytest.mark.parametrize("start", [[], ["s"], LONG])
def test_appended_items_are_taken_from_the_end(store: sync.Store, start: list[Any]) -> None:
    state = store.agent("1")
    if start:
        state.set("list", start)
    with store.acting("bot"):
        state.append("list", "one")
        state.extend("list", ["two", {"n": 3}])
    assert state.revert(actor="bot").done == ["list"]
    assert state.get("list", []) == start
    assert state.exists("list") == bool(start), "a list that was not there is gone"


@pytest.mark.parametrize("start", [["s"], LONG])
def test_items_that_others_appended_behind_stay(store: sync.Store, start: list[Any]) -> None:
    state = store.agent("1")
    state.set("list", start)
    with store.acting("bot"):
        state.append("list", "wrong")
    with store.acting("user"):
        state.append("list", "hello")
    result = state.revert(actor="bot")
    text = "it was changed since, at entry 3 by user"
    assert why(result.left) == {"list": text}
    assert state.get("list") == [*start, "wrong", "hello"]


def test_checkpoints_forks_and_restores_stay(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("a", 0)
    with store.acting("bot"):
        state.set("a", 1)
        safe = state.checkpoint("safe")
        state.set("a", 2)
        state.set("b", 2)
        state.restore(safe)
    result = state.revert(actor="bot")
    assert result.done == []
    told = " ".join(left.why for left in result.left)
    assert "a restore set it since" in told
    assert "a checkpoint stays" in told
    assert "is a restore" in told
    assert state.items() == [("a", 1)]
    with store.acting("bot"):
        trial = state.fork("trial")
        trial.set("a", 5)
    result = trial.revert(actor="bot")
    assert result.done == ["a"]
    assert trial.get("a") == 1
    assert any("began this timeline" in left.why for left in result.left)


def test_a_restore_that_did_not_touch_the_key_is_not_in_the_way(store: sync.Store) -> None:
    state = store.agent("1")
    with store.acting("bot"):
        state.set("a", 1)
    safe = state.checkpoint()
    state.set("b", 1)
    state.restore(safe)
    assert state.revert(actor="bot").done == ["a"]
    assert state.keys() == []


# ---- several scopes ------------------------------------------------------------------------


def test_over_several_scopes_in_one_change(place: Place) -> None:
    store = place.open()
    a, b, other = store.agent("a"), store.session("b"), store.agent("other")
    a.set("task", "t")
    other.set("k", 1)
    with store.acting("bot", correlation="handover"), store.change() as change:
        change[a].delete("task")
        change[b].set("task", "t")
    half = a.revert(correlation="handover", dry_run=True)
    assert "session:b main@1" in half.left[0].why
    assert "reverting the correlation 'handover' undoes both" in half.left[0].why
    with store.acting(correlation="undo"):
        done = store.revert(correlation="handover")
    assert [(str(one.scope), one.done) for one in done] == [
        ("agent:a", ["task"]),
        ("session:b", ["task"]),
    ]
    assert (a.get("task"), b.keys()) == ("t", [])
    entry = a.log(limit=1)[0]
    assert entry.also == (("session:b", "main", done[1].entry),), "one commit"
    store.revert(correlation="undo")
    assert (a.keys(), b.get("task")) == ([], "t")


def test_a_scope_that_was_deleted_since_stays_deleted(store: sync.Store) -> None:
    with store.acting(correlation="run"):
        store.agent("a").set("k", 1)
        store.agent("b").set("k", 1)
        store.agent("c").set("k", 1)
    store.delete("agent:a")
    store.delete("agent:b")
    store.agent("b").set("k", 2)
    found = {str(one.scope): one for one in store.revert(correlation="run")}
    assert {name: one.done for name, one in found.items()} == {
        "agent:a": [],
        "agent:b": [],
        "agent:c": ["k"],
    }
    assert "deleted" in found["agent:b"].left[0].why
    assert store.agent("b").get("k") == 2


def test_forks_are_reverted_where_they_are(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("a", 0)
    trial = state.fork("trial")
    with store.acting(correlation="run"):
        state.set("a", 1)
        number = trial.set("a", 2)
    with pytest.raises(InvalidInputError, match="revert it on that timeline"):
        state.revert(entries=[trial.log(limit=1)[0]])
    assert [one.timeline for one in store.revert(correlation="run")] == ["main", "trial"]
    assert (state.get("a"), trial.get("a")) == (0, 0)
    assert trial.revert(entries=[number]).done == []


# ---- with others ---------------------------------------------------------------------------


def test_nobody_who_is_faster_is_overwritten(store: sync.Store) -> None:
    state = store.agent("1")
    with store.acting(correlation="run"):
        state.set("a", 1)
        state.set("b", 1)

    class Meanwhile(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            if request.attempt == 1 and any(o.kind == "delete" for o in request.operations):
                store.remove_gate(self)
                state.set("a", "newer")

    store.add_gate(Meanwhile())
    result = state.revert(correlation="run")
    assert result.done == ["b"]
    assert [left.key for left in result.left] == ["a"]
    assert state.items() == [("a", "newer")]


@pytest.mark.parametrize("again", [False, True])
def test_a_scope_that_is_deleted_meanwhile_does_not_come_back(
    store: sync.Store, again: bool
) -> None:
    state = store.agent("1")
    state.set("a", 1)
    number = state.set("b", 1)
    state.delete("a")

    class Meanwhile(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            store.remove_gate(self)
            store.delete("agent:1")
            if again:
                state.set("c", 1)

    store.add_gate(Meanwhile())
    with pytest.raises(PointNotFoundError if again else ScopeNotFoundError):
        state.revert(entries=[number + 1])
    assert state.keys() == (["c"] if again else [])


def test_beside_writers_in_threads(store: sync.Store) -> None:
    state = store.agent("1")
    stop = threading.Event()

    def write() -> None:
        for number in itertools.count():
            state.set("busy", number)
            if stop.is_set():  # behind a first one, however late this thread begins
                return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for turn in range(10):
            with store.acting(correlation=f"run-{turn}"):
                state.set("a", turn)
                state.append("list", turn)
            assert state.revert(correlation=f"run-{turn}").done == ["a", "list"]
    finally:
        stop.set()
        thread.join()
    assert state.keys() == ["busy"]


OTHER = """
import sys
from holdfast import sync
url, key, signer = sys.argv[1:]
with sync.open(url, key=key or None, signer=signer, durability="normal") as store:
    print(store.agent("1").revert(correlation="run").done)
"""


@pytest.mark.parametrize("sealed", [False, True])
def test_another_process_reverts(tmp_path: Any, sealed: bool) -> None:
    place = Place("sqlite", tmp_path, sealed=sealed)
    store = place.open()
    state = store.agent("1")
    with store.acting(correlation="run"):
        state.set("a", LONG)
    words = [place.url, place.key or "", place.signer]
    done = subprocess.run(
        [sys.executable, "-c", OTHER, *words],
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "['a']\n", done.stderr
    assert state.keys() == []
    place.close()


def test_gates_see_it(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("a", 0)
    with store.acting(correlation="run"):
        state.set("a", 1)

    class No(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            assert [(o.kind, o.key, o.value) for o in request.operations] == [("set", "a", 0)]
            raise GateRefusedError("no")

    store.add_gate(No())
    with pytest.raises(GateRefusedError):
        state.revert(correlation="run")
    assert state.get("a") == 1


def test_objects_need_no_classes(plain: Place) -> None:
    store = plain.open(registry=Registry())
    state = store.agent("1")
    state.set("plan", Typed("Plan", 3, {"goal": "x"}))
    with store.acting("bot"):
        state.set("plan", 1)
    state.revert(actor="bot")
    assert state.get("plan", plain=True) == Typed("Plan", 3, {"goal": "x"})


def test_async() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            state = store.agent("1")
            with store.acting("bot", correlation="run"):
                await state.set("a", 1)
                await store.agent("2").set("a", 1)
            assert (await state.revert(correlation="run", dry_run=True)).done == ["a"]
            with store.acting("human"):
                result = await state.revert(correlation="run", reason="why")
            assert result.done == ["a"]
            assert (await state.log(limit=1))[0].cause.actor == "human"
            assert [one.done for one in await store.revert(correlation="run")] == [[], ["a"]]

    asyncio.run(main())


# ---- what is refused -----------------------------------------------------------------------


def test_what_cannot_be_meant_is_refused(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("a", 1)
    bad: list[dict[str, Any]] = [
        {},
        {"correlation": "c", "actor": "a"},
        {"entries": []},
        {"entries": "1"},
        {"entries": [True]},
        {"entries": [1.5]},
        {"correlation": ""},
        {"correlation": 7},
        {"actor": ""},
        {"actor": 7},
        {"entries": [1], "dry_run": "no"},
        {"entries": [1], "reason": 7},
    ]
    for options in bad:
        with pytest.raises(InvalidInputError):
            state.revert(**options)
    for options in ({"entries": [9]}, {"entries": [0]}, {"correlation": "x"}, {"actor": "x"}):
        with pytest.raises(PointNotFoundError):
            state.revert(**options)
    with pytest.raises(PointNotFoundError):
        store.revert(correlation="nobody")
    with pytest.raises(ScopeNotFoundError):
        store.agent("2").revert(actor="bot")
    assert state.items() == [("a", 1)]


def test_what_does_not_fit_into_one_entry_is_refused_whole(plain: Place) -> None:
    store = plain.open()
    state = store.agent("1")
    with store.acting("bot"):
        for _ in range(4):
            with state.change() as change:
                for _ in range(3000):
                    change.set(os.urandom(100).hex(), 1)
    head = state._handle.place()
    with pytest.raises(LimitExceededError):
        state.revert(actor="bot")
    assert state._handle.place() == head


# ---- against a model -----------------------------------------------------------------------

_names = itertools.count()
_keys = st.sampled_from(["a", "b", "c", "list"])
_values = st.integers(0, 2) | st.builds(lambda n: [{"n": n, "t": "x" * 70}] * 40, st.integers(0, 2))
_steps = st.one_of(
    st.tuples(st.just("set"), _keys, _values),
    st.tuples(st.just("append"), st.just("list"), st.integers(0, 3)),
    st.tuples(st.just("delete"), _keys, st.none()),
    st.tuples(st.just("restore"), st.integers(0, 30), st.none()),
    st.tuples(st.just("checkpoint"), st.none(), st.none()),
)
_runs = st.lists(st.tuples(st.sampled_from(["x", "y", "z"]), _steps), min_size=1, max_size=25)


class _Model:
    """The state after every entry, who made it, and which keys it names."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = [{}]
        self.made: list[tuple[str, str]] = [("", "")]

    def add(self, actor: str, key: str, change: dict[str, Any]) -> None:
        self.states.append(change)
        self.made.append((actor, key))

    def reverted(self, actor: str) -> tuple[list[str], list[str], dict[str, Any]]:
        """Keys that go back, keys that are left alone, and the state after that."""
        after = copy.deepcopy(self.states[-1])
        done, left = [], []
        for key in sorted({k for who, k in self.made if who == actor and k}):
            first = self.made.index((actor, key))
            was, now = self.states[first - 1].get(key, _model_none), after.get(key, _model_none)
            touched = any(
                (k == key and who != actor)
                or (k == "*" and not same(self.states[n - 1].get(key), self.states[n].get(key)))
                for n, (who, k) in enumerate(self.made)
                if n > first
            )
            if touched or (type(was) is type(now) and same(was, now)):
                left.append(key)
                continue
            done.append(key)
            after.pop(key, None)
            if was is not _model_none:
                after[key] = was
        return done, left, after


_model_none = object()


def _play(state: sync.State, store: sync.Store, model: _Model, actor: str, step: Any) -> None:
    kind, what, value = step
    with store.acting(actor):
        if kind == "restore":
            point = what % len(model.states)
            if len(model.states) > 1:
                state.restore(point)
                model.add("", "", copy.deepcopy(model.states[-1]))  # the backup
                model.add("", "*", copy.deepcopy(model.states[point]))
            return
        new = copy.deepcopy(model.states[-1])
        if kind == "checkpoint":
            state.checkpoint()
            model.add(actor, "", new)
            return
        if kind == "append":
            if type(new.get(what, [])) is not list:
                return
            state.append(what, value)
            new[what] = [*new.get(what, []), value]
        elif kind == "set":
            state.set(what, value)
            new[what] = value
        elif len(model.states) == 1:
            return  # there is nothing yet, which a delete leaves so
        else:
            state.delete(what)
            new.pop(what, None)
        model.add(actor, what, new)


@settings(deadline=None, max_examples=150)
@given(_runs, st.sampled_from(["x", "y"]))
def test_against_a_plain_model(run: list[Any], actor: str) -> None:
    old = [(timeline_module, n, getattr(timeline_module, n)) for n in ("DELTA_EVERY", "TAIL")]
    old += [(revert, n, getattr(revert, n)) for n in ("DELTA_EVERY", "FOLLOWED")]
    timeline_module.DELTA_EVERY, timeline_module.TAIL = 4, 3
    revert.DELTA_EVERY, revert.FOLLOWED = 3, 6
    try:
        with sync.open(f"memory:revert-{os.getpid()}-{next(_names)}") as store:
            state, model = store.agent("1"), _Model()
            for who, step in run:
                _play(state, store, model, who, step)
            if not any(who == actor for who, _ in model.made):
                return
            done, left, after = model.reverted(actor)
            result = state.revert(actor=actor)
            assert (result.done, [one.key for one in result.left if one.key]) == (done, left)
            assert dict(state.items()) == after
            if result.entry is not None:
                state.revert(entries=[result.entry])
                assert dict(state.items()) == model.states[-1]
    finally:
        for module, name, number in old:
            setattr(module, name, number)


# ---- pruned ----------------------------------------------------------------------------------


def test_what_is_pruned_is_left_alone_and_named(place: Place) -> None:
    store = place.open()
    old, new = store.agent("old"), store.agent("new")
    with store.acting("bot", correlation="run"):
        old.set("kept", 5)
    old.set("other", 1)
    old.checkpoint("c")
    old.prune("c")
    with store.acting("bot", correlation="run"):
        new.set("k", 1)
        old.set("later", 1)
    for result in (old.revert(correlation="run", dry_run=True), old.revert(actor="bot")):
        assert result.done == ["later"]
        assert "what was before it is pruned" in why(result.left)[""]
    assert [one.done for one in store.revert(correlation="run")] == [["k"], []]
    assert (old.get("kept"), new.get("k")) == (5, None)
    with pytest.raises(PointNotFoundError, match="pruned up to"):
        old.revert(correlation="nobody's")


# ---- beside others -------------------------------------------------------------------------


def test_a_timeline_that_was_ended_is_left_and_named(place: Place) -> None:
    store = place.open()
    state, other = store.agent("1"), store.agent("2")
    state.set("x", 1)
    checkpoint = state.checkpoint()
    with store.acting("bot", correlation="run"):
        state.set("x", 2)
        other.set("y", 1)
        state.fork("trial").set("x", 3)
        with pytest.raises(ZeroDivisionError):
            sync.checkpoints.Checkpoints(state).simulate(lambda _: 1 // 0, checkpoint)
    sync.checkpoints.Retention(store).end(state, "trial")
    found = {(str(one.scope), one.timeline): one for one in store.revert(correlation="run")}
    assert found.pop(("agent:1", "main")).done == ["x"]
    assert found.pop(("agent:2", "main")).done == ["y"]
    assert "trial" in [timeline for _, timeline in found]
    for one in found.values():
        assert (one.done, one.entry) == ([], None)
        assert why(one.left) == {"": "the timeline was ended since, and stays so"}
    assert (state.get("x"), other.get("y")) == (1, None)


def test_a_timeline_that_is_ended_before_the_commit(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    state.set("x", 1)
    with store.acting("bot", correlation="run"):
        state.set("x", 2)
        trial = state.fork("trial")
        trial.set("x", 3)
    other = place.open()

    class Meanwhile(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            if request.attempt == 1 and request.timeline == "trial":
                sync.checkpoints.Retention(other).end(other.agent("1"), "trial")

    store.add_gate(Meanwhile())
    main, left = store.revert(correlation="run")
    assert (main.timeline, main.done, left.timeline, left.done) == ("main", ["x"], "trial", [])
    assert why(left.left) == {"": "the timeline was ended since, and stays so"}
    assert state.get("x") == 1


@pytest.mark.parametrize("sliding", [False, True])
def test_when_a_key_expires_is_a_change_of_others_unless_it_was_read(
    timed: sync.Store, hands: Hands, sliding: bool
) -> None:
    state = timed.agent("1")
    for key in ("expire", "persist", "slide", "read"):
        state.set(key, ["old"], ttl=100, sliding=sliding)
    with timed.acting("bot", correlation="run"):
        for key in ("expire", "persist", "slide"):
            state.append(key, "new")
        state.set("read", "new", ttl=100, sliding=sliding)
    hands.move(50)
    with timed.acting("ann"):
        assert state.get("read") == "new"
        state.expire("expire", 3600)
        state.persist("persist")
        state.expire("slide", 200, sliding=True)
    kept = {key: state.item(key) for key in ("expire", "persist", "slide")}
    done = state.revert(correlation="run")
    assert done.done == ["read"]
    assert state.get("read") == ["old"]
    assert {one.key: one.entry.cause.actor for one in done.left} == dict.fromkeys(kept, "ann")
    assert {key: (state.item(key).value, state.item(key).expires) for key in kept} == {
        key: (item.value, item.expires) for key, item in kept.items()
    }


def test_a_dry_run_shows_what_is_sealed_as_it_is_read(place: Place) -> None:
    if not place.sealed:
        pytest.skip("a plain store seals nothing for subjects")
    store = place.open()
    state = store.agent("1")
    state.set("name", "Ada", subject="user:1")
    with store.acting("bot", correlation="run"):
        state.set("name", "Bob")
    (shown,) = state.revert(correlation="run", dry_run=True).diff
    assert (shown.before, shown.after) == ("Bob", "Ada")
    store.erase_subject("user:1")
    (shown,) = state.revert(correlation="run", dry_run=True).diff
    assert (shown.before, shown.after) == ("Bob", holdfast.ERASED)
