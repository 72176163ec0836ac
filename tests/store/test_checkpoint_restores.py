"""Restores in part, into another agent, validated, recovered and simulated."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Hands, Place, put_row, rows_of

import holdfast
from holdfast import Classed, Ephemeral, Lookup, Sticky, sync
from holdfast.checkpoints import Condition, Policy
from holdfast.checkpoints import restore_request as partial
from holdfast.errors import (
    CheckpointNotFoundError,
    Conflict,
    ErasedError,
    GateRefusedError,
    InvalidInputError,
    OutcomeUnknown,
    PointNotFoundError,
    RestoreValidationError,
    StateIntegrityError,
    StateValidationError,
    Unavailable,
)
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core

LONG = [{"n": n, "text": "x" * 50} for n in range(300)]


def all_of(state: sync.State | sync.View) -> dict[str, Any]:
    return dict(state.items())


def flip(place: Place, kind: bytes, number: int) -> None:
    """Damage a row behind the store's back."""
    storage = place.storage()
    key, row = rows_of(storage, kind)[number]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    state = store.agent("1")
    state.set("plan", 1)
    state.set("memory/a", LONG)
    state.set("memory/b", 1)
    state.set("memory2", 1)
    state.checkpoint("safe")
    state.set("plan", 2)
    state.delete("memory/a")
    state.set("memory/b", 2)
    state.set("memory/new", 2)
    state.set("memory2", 2)
    return state


NOW = {"plan": 2, "memory/b": 2, "memory/new": 2, "memory2": 2}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"prefixes": ["memory/"]}, NOW | {"memory/a": LONG, "memory/b": 1}),
        ({"keys": ["plan"]}, NOW | {"plan": 1}),
        ({"keys": ["memory"]}, NOW),
        ({"keys": ["memory/a", "plan", "none"]}, NOW | {"plan": 1, "memory/a": LONG}),
        (
            {"keys": ["plan", "memory/b"], "prefixes": ["memory/b", "memory/", "memory/a"]},
            NOW | {"plan": 1, "memory/a": LONG, "memory/b": 1},
        ),
    ],
    ids=["prefix", "key", "absent", "keys", "both"],
)
def test_some_keys_go_back(
    state: sync.State, store: sync.Store, part: dict[str, Any], expected: dict[str, Any]
) -> None:
    gone = {"memory/new"} if "prefixes" in part else set()
    expected = {key: value for key, value in expected.items() if key not in gone}
    checkpoints = sync.checkpoints.Checkpoints(state)
    head = state._handle.place()[2]
    planned = checkpoints.restore("safe", **part, dry_run=True)
    assert (state._handle.place()[2], planned.backup_created, planned.restored_at) == (
        head,
        None,
        None,
    )
    done = checkpoints.restore("safe", **part)
    assert all_of(state) == expected
    assert done.restored.root == state.root()
    if expected == NOW:
        assert (planned.restored.diff.keys, done.backup_created) == ([], None)
        assert state._handle.place()[2] == head
    else:
        assert state._handle.place()[2] == head + 2, "a backup, and one entry"
        assert set(planned.restored.diff.keys) == set(state.diff(head).keys)
        assert done.restored.backup is not None
        state.restore(done.restored.backup)
        assert all_of(state) == NOW
    assert store.verify().findings == []


def test_sticky_keys_and_declarations_stay(state: sync.State) -> None:
    state.declare(Sticky("memory/b"))
    done = sync.checkpoints.Checkpoints(state).restore("safe", prefixes=["memory", "$"])
    assert all_of(state) == {"plan": 2, "memory/a": LONG, "memory/b": 2, "memory2": 1}
    assert done.restored.left == ("memory/b",)
    assert state.declared() == [Sticky("memory/b")]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_expiry_and_class_come_along(timed: sync.Store, hands: Hands, elsewhere: bool) -> None:
    state = timed.agent("1")
    state.declare(Classed("secret/", "sensitive"))
    state.set("short", 1, ttl=10)
    state.set("long", 1, ttl=100)
    state.set("secret/a", "hidden value")
    state.set("marked", "hidden value", class_="sensitive")
    safe = state.checkpoint("safe")
    target = timed.agent("2") if elsewhere else state
    target.set("short", 2)
    target.set("long", 2)
    for key in ("secret/a", "marked"):
        target.set(key, "another", class_="sensitive")
    hands.move(50)
    checkpoints = sync.checkpoints.Checkpoints(target)
    asked: dict[str, Any] = {"prefixes": ["s", "l", "m"], "source": state}
    shown = str(checkpoints.restore(safe, dry_run=True, **asked).restored.diff)
    assert "long (expires)" in shown
    assert "hidden value" not in shown
    done = checkpoints.restore(safe, **asked)
    assert all_of(target) == {"long": 1, "secret/a": "hidden value", "marked": "hidden value"}
    assert target.item("long").expires == hands.time(100)  # type: ignore[union-attr]
    assert [target._handle.reader.class_of(key) for key in ("secret/a", "marked")] == [
        "sensitive"
    ] * 2
    assert done.restored.root == target.root()
    assert checkpoints.restore(safe, **asked).backup_created is None, "nothing differs"
    hands.move(51)
    assert not target.exists("long")
    assert timed.verify().findings == []


def test_what_is_sealed_for_a_subject_stays_so(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    state, other = store.agent("1"), store.agent("2")
    for key, value in (("short", 1), ("long", LONG)):
        state.set(key, value, subject="user:42")
    safe = state.checkpoint("safe")
    put(state, {"short": 2})
    sync.checkpoints.Checkpoints(state).restore(safe, keys=["short", "long"])
    sync.checkpoints.Checkpoints(other).restore(safe, source=state)
    assert all_of(state) == all_of(other) == {"short": 1, "long": LONG}
    store.erase_subject("user:42")
    for one in (state, other):
        for key in ("short", "long"):
            with pytest.raises(ErasedError):
                one.get(key)
    assert store.verify().findings == []
    place.close()


def test_ephemeral_keys_are_left_alone(store: sync.Store) -> None:
    state = store.agent("1")
    put(state, {"scratch/a": 1, "k": 1})
    safe = state.checkpoint("safe")
    put(state, {"k": 2})
    state.declare(Ephemeral("scratch/"))
    state.set("scratch/a", 2)
    sync.checkpoints.Checkpoints(state).restore(safe, prefixes=["scratch/", "k"])
    assert state.get_many(["scratch/a", "k"]) == {"scratch/a": 2, "k": 1}


def test_lookups_follow(store: sync.Store) -> None:
    state = store.agent("1")
    state.declare(Lookup("by status", "task/", {"status": "status"}))
    for number in range(10):
        state.set(f"task/{number}", {"status": "open"})
    state.checkpoint("safe")
    for number in range(10):
        state.set(f"task/{number}", {"status": "done"})
    sync.checkpoints.Checkpoints(state).restore("safe", keys=["task/3", "task/4"])
    assert state.find("by status", status="open").items == ["task/3", "task/4"]
    assert len(state.find("by status", status="done").items) == 8
    other = store.agent("2")
    other.declare(Lookup("by status", "task/", {"status": "status"}))
    sync.checkpoints.Checkpoints(other).restore("safe", source=state)
    assert len(other.find("by status", status="open").items) == 10
    assert store.verify().findings == []


@pytest.mark.parametrize("most", [2, 2000])
def test_into_another_agent(place: Place, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """However many entries it takes, the agent has all of it or none, and it can be undone."""
    monkeypatch.setattr(partial, "MOST_KEYS", most)
    store = place.open()
    source = store.agent("source")
    values = {"a": 1, "b": LONG, "c": b"\0" * 5000, "d": {"x": [1.0, None]}}
    with source.change() as change:
        for key, value in values.items():
            change.set(key, value)
    source._run(source._handle._plan([holdfast.Operation("set", "$own/x", 1)], lambda _: None))
    source.checkpoint("safe")
    source.set("a", 2)
    new, old = store.agent("new"), store.session("old")
    old.set("a", 1)
    old.set("mine", 1)
    with pytest.raises(PointNotFoundError, match="belongs to agent:source"):
        sync.checkpoints.Checkpoints(new).restore(source.checkpoint("x"))
    for target, before in ((new, {}), (old, {"a": 1, "mine": 1})):
        checkpoints = sync.checkpoints.Checkpoints(target)
        planned = checkpoints.restore("safe", source=source, dry_run=True)
        assert ("mine" in planned.restored.diff.keys) == (target is old)
        done = checkpoints.restore("safe", source="agent:source", reason="moved")
        assert done.restored_from == "agent:source main@3"
        assert all_of(target) == values
        assert target.get("$own/x") == 1, "what others keep in the scope comes along"
        assert done.restored.root == target.root()
        assert target.log(limit=1)[0].cause.reason == "moved"
        assert done.restored.backup is not None
        assert checkpoints.held()[0].checkpoint == done.restored.backup
        again = checkpoints.restore("safe", source=source)
        assert again.backup_created is None, "nothing differs"
        target.restore(done.restored.backup)
        assert all_of(target) == before
    assert place.reopen().verify().findings == []


@pytest.mark.parametrize("most", [2, 2000])
def test_policies_stay_with_their_agent(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(partial, "MOST_KEYS", most)
    when = (Condition("operation_count", "operation_count", "greater_than", 1000),)
    a, b, new = store.agent("a"), store.agent("b"), store.agent("new")
    with sync.checkpoints.Policies(store, defaults=()) as policies:
        for state in (a, b):
            for key in "xyz":
                state.set(key, str(state.scope))
            policies.set(state, Policy(f"of-{state.scope.id}", when))
        a.checkpoint("safe")
        for target, own in ((b, ["of-b"]), (new, [])):
            sync.checkpoints.Checkpoints(target).restore("safe", source=a)
            assert target.get("x") == "agent:a"
            assert [one.id for one in policies.list(target)] == own
        policies.remove(a, "of-a")
        sync.checkpoints.Checkpoints(a).restore("safe")
        assert [one.id for one in policies.list(a)] == ["of-a"], "its own come back"


def test_a_source_is_of_the_same_store(state: sync.State) -> None:
    with sync.open("memory:") as other:
        other.agent("1").set("k", 1)
        with pytest.raises(InvalidInputError, match="another store"):
            sync.checkpoints.Checkpoints(state).restore(1, source=other.agent("1"))


def test_a_hundred_thousand_keys(plain: Place) -> None:
    """All or nothing: into another agent, in part, and whole."""
    if plain.engine == "memory":
        pytest.skip("one engine is enough for the size")
    store = plain.open()
    state, other = store.agent("1"), store.agent("2")
    for start in range(0, 100_000, 10_000):
        with state.change() as change:
            for number in range(start, start + 10_000):
                change.set(f"k{number:06}", number)
    safe = state.checkpoint("safe")
    seen: list[int] = []

    class Watcher(holdfast.Gate):
        def after(self, *_: Any) -> None:
            seen.append(len(other.keys(limit=10)))

    watcher = Watcher()
    store.add_gate(watcher)
    done = sync.checkpoints.Checkpoints(other).restore(safe, source=state)
    store.remove_gate(watcher)
    assert done.restored.keys == len(other.keys()) == 100_000
    assert set(seen) == {0, 10}, "nobody saw a part of it"
    state.delete("k050000")
    sync.checkpoints.Checkpoints(state).restore(safe, prefixes=["k0"])
    for prefix in range(0, 100_000, 1000):
        state.set(f"k{prefix:06}", "changed")
    assert sync.checkpoints.Checkpoints(state).restore(safe).restored.keys == 100_000
    assert state.get("k000000") == 0


@given(
    then=st.dictionaries(st.sampled_from(["a", "a/b", "a/c", "b", "b/a", "ab"]), st.integers(0, 2)),
    now=st.dictionaries(st.sampled_from(["a", "a/b", "a/c", "b", "b/a", "ab"]), st.integers(0, 2)),
    keys=st.lists(st.sampled_from(["a", "a/b", "b", "x"]), max_size=2),
    prefixes=st.lists(st.sampled_from(["a", "a/", "b", "b/"]), max_size=2),
    elsewhere=st.booleans(),
    most=st.sampled_from([1, 100]),
)
@settings(max_examples=100)
def test_like_a_plain_model(
    then: dict[str, int],
    now: dict[str, int],
    keys: list[str],
    prefixes: list[str],
    elsewhere: bool,
    most: int,
) -> None:
    def chosen(key: str) -> bool:
        every = not keys and not prefixes
        return every or key in keys or key.startswith(tuple(prefixes))

    with sync.open("memory:") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial, "MOST_KEYS", most)
        state = store.agent("1")
        put(state, then)
        safe = state.checkpoint("safe")
        target = store.agent("2") if elsewhere else state
        put(target, now)
        expected = {key: value for key, value in now.items() if not chosen(key)}
        expected |= {key: value for key, value in then.items() if chosen(key)}
        checkpoints = sync.checkpoints.Checkpoints(target)
        asked = {
            "keys": keys or None,
            "prefixes": prefixes or None,
            "source": state if elsewhere else None,
        }
        planned = checkpoints.restore(safe, dry_run=True, **asked)
        differing = {key for key in {*now, *expected} if now.get(key) != expected.get(key)}
        assert set(planned.restored.diff.keys) == differing
        done = checkpoints.restore(safe, **asked)
        assert all_of(target) == expected
        assert not target._handle.place()[2] or done.restored.root == target.root()
        assert store.verify().findings == []


def put(state: sync.State, wanted: dict[str, int]) -> None:
    """Make a state hold just this."""
    with state.change() as change:
        for key in all_of(state):
            if key not in wanted:
                change.delete(key)
        for key, value in wanted.items():
            change.set(key, value)


def test_what_others_write_meanwhile_is_kept(plain: Place) -> None:
    """A part that is brought rests on the keys it changes, and on no others."""
    store, other = plain.open(), plain.open()
    state = store.agent("1")
    state.set("k", 1)
    safe = state.checkpoint("safe")
    state.set("k", 2)

    class Faster(holdfast.Gate):
        times = 0

        def before(self, request: holdfast.GateRequest) -> None:
            if request.operations[0].kind == "set" and self.times < 3:
                self.times += 1
                other.agent("1").set("k", 10 + self.times)
                other.agent("1").set(f"other{self.times}", 1)

    store.add_gate(Faster())
    done = sync.checkpoints.Checkpoints(state).restore(safe, keys=["k"])
    assert all_of(state) == {"k": 1, "other1": 1, "other2": 1, "other3": 1}
    assert done.restored.backup is not None
    assert state.at(done.restored.backup).get("k") == 13
    with pytest.raises(Conflict):
        sync.checkpoints.Checkpoints(state).restore(1, keys=["other1"], if_head=3)


def test_also_if_it_takes_many_pieces(plain: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "MOST_KEYS", 1)
    store, other = plain.open(), plain.open()
    state = store.agent("1")
    put(state, {"a": 1, "b": 1})
    safe = state.checkpoint("safe")
    put(state, {"a": 2, "b": 2, "c": 2})

    class Faster(holdfast.Gate):
        times = 0

        def before(self, request: holdfast.GateRequest) -> None:
            if request.operations[0].kind == "set" and self.times < 3:
                self.times += 1
                other.agent("1").set(f"other{self.times}", 1)

    store.add_gate(Faster())
    done = sync.checkpoints.Checkpoints(state).restore(safe, keys=["a", "b", "c"])
    assert all_of(state) == {"a": 1, "b": 1, "other1": 1, "other2": 1}
    assert done.restored.root == state.root()
    with pytest.raises(Conflict):
        sync.checkpoints.Checkpoints(state).restore(1, prefixes=["a", "b", "o"], if_head=3)
    assert store.verify().findings == []


def test_gates_are_asked(state: sync.State, store: sync.Store) -> None:
    class No(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            if request.operations[0].kind == "restore":
                raise GateRefusedError("no")

    store.add_gate(No())
    for more in ({}, {"keys": ["plan"]}):
        with pytest.raises(GateRefusedError):
            sync.checkpoints.Checkpoints(state).restore("safe", **more)
    assert all_of(state) == NOW


# validation


@pytest.mark.spec("K93", "K100", "K101", "K102", "K103")
@pytest.mark.parametrize("part", [{}, {"keys": ["plan"]}], ids=str)
def test_a_state_that_fails_its_validation_is_put_back(
    state: sync.State, store: sync.Store, part: dict[str, Any]
) -> None:
    checkpoints = sync.checkpoints.Checkpoints(state)
    seen = []

    def broken(given: sync.State) -> None:
        seen.append(given.get("plan"))
        raise KeyError("secret")

    for validate, why in (
        (broken, "KeyError"),
        (lambda _: "too old", "too old"),
        (lambda _: 0, ""),
    ):
        with pytest.raises(StateValidationError, match=f"validation failed: {why}") as raised:
            checkpoints.restore("safe", validate=validate, **part)
        assert all_of(state) == NOW
        assert raised.value.rolled_back is not None
        assert "secret" not in str(raised.value)
        assert checkpoints.held() == []
    assert seen == [1], "it is asked about the restored state"
    done = checkpoints.restore("safe", validate=lambda given: given.get("plan") == 1, **part)
    assert done.success
    assert state.get("plan") == 1
    assert store.verify().findings == []


def test_an_end_of_the_program_puts_it_back_too(state: sync.State) -> None:
    def stopped(_: sync.State) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sync.checkpoints.Checkpoints(state).restore("safe", validate=stopped)
    assert all_of(state) == NOW


def test_what_others_wrote_before_the_rollback_is_named(state: sync.State) -> None:
    checkpoints = sync.checkpoints.Checkpoints(state)

    def validate(given: sync.State) -> bool:
        given.set("somebody", "else")
        return False

    with pytest.raises(StateValidationError, match="1 entries of others are kept in") as raised:
        checkpoints.restore("safe", validate=validate)
    assert all_of(state) == NOW
    assert [entry.keys for entry in raised.value.overtaken] == [("somebody",)]
    [kept] = checkpoints.held()
    assert state.at(kept.checkpoint).get("somebody") == "else"


@pytest.mark.spec("K106")
def test_a_backup_is_held_until_it_is_confirmed(state: sync.State) -> None:
    checkpoints = sync.checkpoints.Checkpoints(state)
    whole = checkpoints.restore("safe")
    part = checkpoints.restore(whole.backup_created, keys=["plan"])
    plain = state.restore("safe")
    assert plain.backup is not None
    ids = [one.checkpoint.id for one in checkpoints.held()]
    assert ids == [plain.backup.id, part.backup_created, whole.backup_created]
    assert (whole.agent_id, whole.restored_from, whole.restored_to) == ("1", "main@5", "main@12")
    assert whole.restored_at == state.log(since=12, until=12)[0].time
    checkpoints.confirm(part)
    checkpoints.confirm(plain.backup)
    assert [one.checkpoint.id for one in checkpoints.held()] == [whole.backup_created]
    for wrong in (part, "safe", whole.restored_to):
        with pytest.raises(CheckpointNotFoundError, match="still needed"):
            checkpoints.confirm(wrong)
    checkpoints.confirm(whole.backup_created)
    assert checkpoints.held() == []


# recovery


def test_recovering_again_does_not_bring_back_what_was_left(store: sync.Store) -> None:
    """The backup of a restore is whole and new; it is wanted back only by who names it."""
    state = store.agent("1")
    checkpoints = sync.checkpoints.Checkpoints(state)
    state.set("plan", "good")
    safe = state.checkpoint("safe")
    state.set("plan", "broken")
    for _ in range(3):
        assert checkpoints.recover().restored_from == safe.id
        assert state.get("plan") == "good"
    assert checkpoints.locate(valid=True) == safe
    assert checkpoints.restore(valid=True).restored_from == safe.id
    state.set("plan", "broken again")
    part = checkpoints.restore("safe", keys=["plan"])
    assert checkpoints.recover().restored_from == safe.id
    backup = checkpoints.locate()
    assert backup.name.startswith("before restore")
    for named in ({"id": backup.id}, {"name": backup.name}, {"type": "recovery"}):
        assert checkpoints.locate(valid=True, **named) == backup
    assert part.backup_created in [one.id for one in checkpoints.find(valid=True)]


@pytest.mark.spec("K98", "K99")
def test_recovery_passes_over_what_is_damaged(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    for number in range(4):
        state.set("k", f"{number}" * 200)
        state.checkpoint(f"c{number}")
    flip(place, b"E", 4)  # the value of c2
    flip(place, b"E", 7)  # the entry of c3 itself
    store = place.reopen()
    state = store.agent("1")
    checkpoints = sync.checkpoints.Checkpoints(state)
    with pytest.raises(StateIntegrityError):
        checkpoints.restore("main@6")
    assert checkpoints.locate(valid=True).name == "c1"
    done = checkpoints.recover()
    assert state.get("k") == "1" * 200
    assert [(one.id, one.valid) for one in done.tried] == [
        ("main@8", False),
        ("main@6", False),
        ("main@4", True),
    ]
    assert all(one.reason for one in done.tried[:2])
    assert done.restored_from == "main@4"
    for part in ("restored main@4", "main@8", "main@6", "whole"):
        assert part in str(done)
    state.set("k", "later")
    again = checkpoints.recover(before="main@9")
    assert [one.valid for one in again.tried] == [False, False, True]
    assert state.get("k") == "1" * 200


def test_what_was_before_an_import_can_be_recovered(store: sync.Store, tmp_path: Path) -> None:
    """It was not left by somebody who returned from it."""
    state, other = store.agent("1"), store.agent("2")
    checkpoints = sync.checkpoints.Checkpoints(state)
    other.set("k", "theirs")
    other.checkpoint("theirs")
    sync.checkpoints.export_checkpoint(other, tmp_path / "out", plain=True)
    sync.checkpoints.import_checkpoint(
        state, tmp_path / "out"
    )  # into a new one, which has no other
    with pytest.raises(CheckpointNotFoundError):
        checkpoints.locate(valid=True, name="theirs")
    for number in range(3):
        state.set("k", number)
        state.checkpoint(f"c{number}")
    state.restore("c1")  # what it left stays left
    for _ in range(2):
        sync.checkpoints.import_checkpoint(state, tmp_path / "out")
        state.set("k", "bad")
        assert checkpoints.locate(valid=True).name == "c1"
    assert checkpoints.recover().restored_from == checkpoints.locate(name="c1").id
    assert state.get("k") == 1


def test_without_a_checkpoint_that_is_whole(place: Place) -> None:
    store = place.open()
    store.agent("1").set("k", "x" * 200)
    with pytest.raises(CheckpointNotFoundError, match="there is no checkpoint"):
        sync.checkpoints.Checkpoints(store.agent("1")).recover()
    store.agent("1").checkpoint("c")
    flip(place, b"E", 0)
    with pytest.raises(CheckpointNotFoundError, match="main@2"):
        sync.checkpoints.Checkpoints(place.reopen().agent("1")).recover()


def test_a_missing_checkpoint_is_passed_over(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    for number in range(3):
        state.set("k", number)
        state.checkpoint(f"c{number}")
    state.set("k", "last")
    storage = place.storage()
    key, _ = rows_of(storage, b"E")[5]
    put_row(storage, key, None)
    state = place.reopen().agent("1")
    done = sync.checkpoints.Checkpoints(state).recover()
    assert [(one.id, one.valid) for one in done.tried] == [("main@4", True)]
    assert done.restored.passed_over
    assert (done.restored_from, state.get("k")) == ("main@4", 1)


def test_an_outage_is_not_damage(plain: Place) -> None:
    store = plain.open()
    state = store.agent("1")
    state.set("k", "x" * 5000)
    state.checkpoint("c0")
    state.checkpoint("c1")
    plain.close()
    faulty = Faulty(plain.storage())
    core = open_core(plain.url, storage=faulty, **plain.options())
    checkpoints = sync.checkpoints.Checkpoints(sync.Store(StoreHandle(core)).agent("1"))
    faulty.plan = (Fault("*", faulty.calls["*"] + 3, onward=True),)
    with pytest.raises(Unavailable):
        checkpoints.recover()
    faulty.plan = ()
    assert checkpoints.recover().restored_from == "main@3"
    core.close()


# simulation


def test_a_simulation_touches_nothing(state: sync.State) -> None:
    state.declare(Sticky("memory2"))
    checkpoints = sync.checkpoints.Checkpoints(state)
    before = state._handle.place()

    def migrate(trial: sync.State) -> Any:
        seen = trial.get_many(["plan", "memory2"])
        trial.set("plan", "tried")
        return seen

    done = checkpoints.simulate(migrate, "safe")
    assert done.result == {"plan": 1, "memory2": 2}, "as a restore would leave it"
    assert done.diff.keys == ["plan"]
    assert state.on(done.timeline).get("plan") == "tried"
    assert (state._handle.place(), all_of(state)) == (before, NOW)
    part = checkpoints.simulate(all_of, name="safe", keys=["plan"])
    assert part.result == NOW | {"plan": 1}
    lines = state.timelines()
    with pytest.raises(ZeroDivisionError) as failed:
        checkpoints.simulate(lambda trial: trial.set("plan", 1 // 0), "safe")
    assert (all_of(state), state.timelines()) == (NOW, lines)
    assert not hasattr(failed.value, "__notes__")

    def needed(trial: sync.State) -> None:
        trial.set("plan", "tried")
        trial.fork("from-there")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as failed:
        checkpoints.simulate(needed, "safe")
    (left,) = {one.name for one in state.timelines()} - {one.name for one in lines} - {"from-there"}
    assert f"the timeline {left} is left behind" in failed.value.__notes__[0]


def test_a_simulation_of_what_is_damaged_leaves_nothing(place: Place) -> None:
    state = place.open().agent("1")
    for number in range(4):
        state.set("k", f"{number}" * 200)
        state.checkpoint(f"c{number}")
    flip(place, b"E", 4)  # the value of c2
    state = place.reopen().agent("1")
    checkpoints = sync.checkpoints.Checkpoints(state)
    checkpoints.recover()  # from a newest state that cannot be read
    with pytest.raises(StateIntegrityError) as failed:
        checkpoints.simulate(all_of, "c2")
    assert [one.name for one in state.timelines()] == ["main"]
    assert not hasattr(failed.value, "__notes__")


def test_a_simulation_that_is_cancelled_is_ended(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as store:
            state = store.agent("1")
            await state.set("plan", 1)
            await state.checkpoint("safe")
            reached = asyncio.Event()

            async def waits(trial: holdfast.State) -> None:
                await trial.set("plan", 2)
                reached.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(
                holdfast.checkpoints.Checkpoints(state).simulate(waits, "safe")
            )
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [one.name for one in await state.timelines()] == ["main"]
            with pytest.raises(ZeroDivisionError):
                await holdfast.checkpoints.Checkpoints(state).simulate(lambda _: 1 // 0, "safe")
            assert [one.name for one in await state.timelines()] == ["main"]

    asyncio.run(main())


def test_a_simulation_does_what_it_is_asked_or_says_that_it_does_not(state: sync.State) -> None:
    checkpoints = sync.checkpoints.Checkpoints(state)
    head = state._handle.place()[2]
    assert checkpoints.simulate(lambda trial: trial.get("plan"), "safe", if_head=head).result == 1
    with pytest.raises(Conflict):
        checkpoints.simulate(all_of, "safe", if_head=head - 1)
    with pytest.raises(RestoreValidationError) as refused:
        checkpoints.simulate(all_of, "safe", dry_run=True, validate=all_of, verify="?")
    assert len(refused.value.problems) == 4
    timelines = len(state.timelines())

    async def later(_: Any) -> bool:
        return False

    with pytest.raises(InvalidInputError, match="async def"):
        checkpoints.simulate(later, "safe")
    with pytest.raises(InvalidInputError, match="async def"):
        checkpoints.restore("safe", validate=later)
    assert (all_of(state), len(state.timelines())) == (NOW, timelines)
    with pytest.raises(StateValidationError, match="awaited"):
        checkpoints.restore("safe", validate=lambda given: later(given))
    assert all_of(state) == NOW


# crashes


@pytest.mark.parametrize("most", [1, 2000])
@pytest.mark.parametrize("mode", ["before", "ambiguous-lost", "ambiguous-applied"])
def test_whatever_fails_it_is_all_or_nothing(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, most: int, mode: str
) -> None:
    """Every storage call fails once: the state is the one before or the one asked for."""
    monkeypatch.setattr(partial, "MOST_KEYS", most)
    then, now = {"a": 1, "b": 2}, {"a": 3, "c": 4}
    place = Place("memory", tmp_path, sealed=False)
    place.open()  # as long as it is open, there is something in memory
    with place.open() as store:
        state = store.agent("1")
        put(state, then)
        state.checkpoint("safe")
        put(state, now)
    done = 0
    for number in range(1, 200):
        faulty = Faulty(place.storage())
        core = open_core(place.url, storage=faulty, **place.options())
        state = sync.Store(StoreHandle(core)).agent("1")
        checkpoints = sync.checkpoints.Checkpoints(state)
        faulty.plan = (Fault("*", faulty.calls["*"] + number, mode),)
        try:
            checkpoints.restore("safe", prefixes=["a", "b", "c"])
            done += 1
        except (Unavailable, OutcomeUnknown):
            pass
        hit = bool(faulty.failed)
        core.close()
        with place.open() as store:
            found = all_of(store.agent("1"))
            assert found in (then, now)
            put(store.agent("1"), now)
        if not hit:
            break
    assert done
    with place.open() as store:
        assert store.verify().findings == []


def test_a_killed_restore_leaves_the_state_before(tmp_path: Any) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    with place.open() as store:
        with store.agent("1").change() as change:
            for number in range(30_000):
                change.set(f"k{number}", number)
        store.agent("1").checkpoint("safe")
        store.agent("2").set("mine", 1)
    program = textwrap.dedent("""
        import sys
        from holdfast import sync
        store = sync.open(sys.argv[1], key=sys.argv[2], signer=sys.argv[3], durability="normal")
        print("go", flush=True)
        sync.checkpoints.Checkpoints(store.agent("2")).restore("safe", source=store.agent("1"))
        print("done", flush=True)
    """)
    for wait in (0.1, 0.4):
        command = [sys.executable, "-c", program, place.url, str(place.key), place.signer]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=place.environment()
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "go\n"
            time.sleep(wait)
            process.kill()
            finished = "done" in process.stdout.read()
        with place.open() as store:
            found = len(store.agent("2").keys())
            assert found in (1, 30_000)
            assert found == 30_000 or not finished
            assert store.verify().findings == []


def test_the_async_face(store_url: str) -> None:
    async def run() -> None:
        async with holdfast.open(store_url) as store:
            state = store.agent("1")
            checkpoints = holdfast.checkpoints.Checkpoints(state)
            await state.set("k", 1)
            await state.checkpoint("safe")
            await state.set("k", 2)

            async def good(given: holdfast.State) -> bool:
                return bool(await given.get("k") == 1)

            async def bad(_: holdfast.State) -> str:
                return "no"

            async def endless(_: holdfast.State) -> None:
                await asyncio.sleep(60)

            with pytest.raises(StateValidationError, match="no"):
                await checkpoints.restore("safe", validate=bad)
            assert await state.get("k") == 2
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(checkpoints.restore("safe", validate=endless), 0.3)
            assert await state.get("k") == 2, "a cancelled validation puts it back, too"
            assert (await checkpoints.simulate(good, "safe")).result is True
            assert (await checkpoints.simulate(lambda _: 7, "safe")).result == 7
            assert await state.get("k") == 2
            done = await checkpoints.restore("safe", validate=good)
            assert await state.get("k") == 1
            await checkpoints.confirm(done)
            other = holdfast.checkpoints.Checkpoints(store.agent("2"))
            await other.restore("safe", source=state)
            assert await store.agent("2").get("k") == 1
            assert (await checkpoints.recover()).success

    asyncio.run(run())
