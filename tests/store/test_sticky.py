"""Sticky keys: covered by checkpoints, left alone by restore and adopt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Place

import holdfast
from holdfast import Ephemeral, Sticky, sync
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.journal.timeline import Timeline
from holdfast.store.open import open_core

LONG = [{"n": n, "text": "x" * 50} for n in range(300)]


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    return store.agent("1")


def all_of(state: sync.State | sync.View) -> dict[str, Any]:
    return dict(state.items())


def from_entries(state: sync.State) -> str:
    """The root as somebody finds it who has the entries alone."""
    line = state._handle.reader.now()
    assert line is not None
    return Timeline(line.ledger, line.number).load(saves=False).folded().hash.hex()


def test_a_restore_leaves_sticky_keys_alone(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    state.declare(Sticky("effects/"))
    state.set("plan", 1)
    state.set("effects/kept", "then")
    state.set("effects/removed since", LONG)
    safe = state.checkpoint("safe")
    state.set("plan", 2)
    state.set("effects/kept", "now")
    state.set("effects/new", LONG)
    state.append("effects/list", "a")
    state.delete("effects/removed since")

    planned = state.restore(safe, dry_run=True)
    assert planned.diff.keys == ["plan"]
    done = state.restore(safe)
    expected = {"plan": 1, "effects/kept": "now", "effects/new": LONG, "effects/list": ["a"]}
    changed = ("effects/kept", "effects/list", "effects/new", "effects/removed since")
    assert all_of(state) == expected
    assert done.left == planned.left == changed
    assert done.root == planned.root == state.root() == from_entries(state)
    assert done.keys == planned.keys == 5, "the declaration is a key, too"
    assert all_of(state.at(safe))["effects/kept"] == "then", "the checkpoint covers them"

    assert done.backup is not None
    state.set("effects/kept", "later")
    again = state.restore(done.backup)
    assert all_of(state) == expected | {"plan": 2, "effects/kept": "later"}
    assert again.left == ("effects/kept",)
    for opening in (place.open, place.reopen):
        other = opening()
        assert all_of(other.agent("1")) == expected | {"plan": 2, "effects/kept": "later"}
        assert other.verify().findings == []


def test_without_sticky_keys_nothing_is_left(state: sync.State) -> None:
    state.set("k", 1)
    state.declare(Sticky("effects/"))
    state.set("k", 2)
    assert state.restore(2).left == ()
    assert state.restore(1).left == (), "declarations are left alone, and not counted"
    assert state.declared() == [Sticky("effects/")]
    assert state.get("k") == 1
    assert state.root() == from_entries(state)


def test_a_key_is_sticky_by_what_is_declared_now(state: sync.State) -> None:
    state.set("effects/a", 1)
    state.set("effects/a", 2)
    state.declare(Sticky("effects/"))
    assert state.restore(1).left == ("effects/a",)
    state.undeclare(Sticky("effects/"))
    assert state.restore(1).left == ()
    assert (state.get("effects/a"), state.declared()) == (1, [])


def test_adopt_and_fork(state: sync.State) -> None:
    state.declare(Sticky("effects/"))
    state.set("effects/a", 1)
    state.set("k", 1)
    trial = state.fork("trial")
    assert all_of(trial) == {"effects/a": 1, "k": 1}, "a fork takes sticky keys along"
    trial.set("effects/a", "trial")
    trial.set("k", 2)
    state.set("effects/b", 2)
    done = state.adopt(trial)
    assert all_of(state) == {"effects/a": 1, "effects/b": 2, "k": 2}
    assert done.left == ("effects/a", "effects/b")


def test_prefixes_within_prefixes_and_neighbours(state: sync.State) -> None:
    keys = ["a", "a/", "a/b", "a/b/c", "a0", "b/x", "bz", "b0"]
    keys = [key if not key.endswith("/") else key + "z" for key in keys]
    for key in keys:
        state.set(key, "then")
    state.declare(Sticky("b/"), Sticky("a/"), Sticky("a/b"))
    point = state.checkpoint("c")
    for key in keys:
        state.set(key, "now")
    state.restore(point)
    sticky = {key for key, value in state.items() if value == "now"}
    assert sticky == {key for key in keys if key.startswith(("a/", "b/"))}


def test_past_damage_the_sticky_keys_of_then_come_back(place: Place) -> None:
    """Where the newest state cannot be read, its sticky keys cannot be kept; the result says so."""
    from store_kit import put_row, rows_of

    store = place.open()
    state = store.agent("1")
    state.declare(Sticky("effects/"))
    state.set("effects/a", 1)
    state.checkpoint("safe")
    state.set("effects/a", 2)
    storage = store._core.storage
    key, row = rows_of(storage, b"E")[-1]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    again = place.reopen().agent("1")
    done = again.restore("safe", past_damage=True)
    assert (again.get("effects/a"), done.left) == (1, ())
    assert done.passed_over


def test_many_keys_and_few_that_are_sticky(plain: Place) -> None:
    """What is read and written depends on what differs, not on how much there is."""
    store, counting = plain.open_counting()
    state = store.agent("1")
    state.declare(Sticky("effects/"))
    for start in range(0, 20_000, 2000):
        with state.change() as change:
            for number in range(start, start + 2000):
                change.set(f"key/{number:06}", number)
    with state.change() as change:
        for number in range(2000):
            change.set(f"effects/{number:06}", number)
    safe = state.checkpoint("safe")
    state.set("key/000001", "changed")
    state.set("effects/000001", "changed")
    state.restore(safe, verify="none")
    state.set("effects/000002", "changed")
    state.set("key/000001", "changed")
    counting.calls.clear()
    written = counting.bytes_written
    done = state.restore(safe, verify="none")
    assert done.left == ("effects/000001", "effects/000002")
    assert counting.bytes_written - written < 40_000
    assert counting.calls["get"] < 60


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(["a", "a/b", "e/1", "e/2", "e/3", "f", "m/1"])),
        st.tuples(st.just("delete"), st.sampled_from(["a", "e/1", "e/2", "m/1"])),
        st.tuples(st.just("declare"), st.sampled_from(["e/", "e/1", "m/", "a"])),
        st.tuples(st.just("undeclare"), st.sampled_from(["e/", "e/1", "m/", "a"])),
        st.tuples(st.just("restore"), st.integers(0, 40)),
        st.tuples(st.just("reopen"), st.just("")),
    ),
    max_size=40,
)


@settings(max_examples=40)
@given(STEPS)
def test_against_a_plain_model(steps: list[tuple[str, Any]]) -> None:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        place = Place("memory", Path(folder), sealed=False)
        held = place.open()
        try:
            _check_steps(place, steps)
        finally:
            held.close()
            place.close()


def _check_steps(place: Place, steps: list[tuple[str, Any]]) -> None:
    state = place.open().agent("1")
    now: dict[str, Any] = {}
    declared: set[str] = set()
    past: dict[int, dict[str, Any]] = {}
    for number, (kind, what) in enumerate(steps):
        if kind == "set":
            state.set(what, number)
            now[what] = number
        elif kind == "delete":
            state.delete(what)
            now.pop(what, None)
        elif kind == "declare":
            state.declare(Sticky(what))
            declared.add(what)
        elif kind == "undeclare":
            state.undeclare(Sticky(what))
            declared.discard(what)
        elif kind == "reopen":
            state = place.open().agent("1")
        elif past:
            at = sorted(past)[what % len(past)]
            state.restore(at)
            sticky = tuple(declared)
            then = {key: value for key, value in past[at].items() if not key.startswith(sticky)}
            now = then | {key: value for key, value in now.items() if key.startswith(sticky)}
        assert all_of(state) == now
        assert [one.prefix for one in state.declared()] == sorted(  # type: ignore[attr-defined]
            declared, key=lambda prefix: prefix + "*"
        )
        if state._handle.place()[2]:
            past[state._handle.place()[2]] = dict(now)
    if past:
        assert state.root() == from_entries(state)
        assert place.open().verify().findings == []


def test_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            await state.set("k", 1)
            await state.declare(Sticky("effects/"))
            await state.set("effects/a", 1)
            assert (await state.restore(1, dry_run=True)).left == ("effects/a",)
            assert (await state.restore(1)).left == ("effects/a",)
            assert await state.items() == [("effects/a", 1), ("k", 1)]

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["before", "ambiguous-applied", "ambiguous-lost"])
def test_every_storage_call_of_a_restore_fails_once(plain: Place, mode: str) -> None:
    """The state is that of before or that of after, ephemeral keys included, never a mixture."""
    setup = plain.open().agent("1")
    setup.declare(Sticky("effects/"), Ephemeral("tmp/"))
    setup.set("plan", "then")
    safe = setup.checkpoint("safe").sequence
    for nth in range(1, 40):
        faulty = Faulty(plain.storage())
        core = open_core(plain.url, storage=faulty, **plain.options())
        store = sync.Store(StoreHandle(core))
        state = store.agent("1")
        with state.change() as change:
            change.set("plan", "now")
            change.set("effects/n", nth)
            change.set("tmp/n", nth)
        before = {"plan": "now", "effects/n": nth, "tmp/n": nth}
        after = {"plan": "then", "effects/n": nth}
        faulty.plan = (Fault("*", faulty.calls["*"] + nth, mode),)
        try:
            state.restore(safe)
            expected = after
        except (Unavailable, OutcomeUnknown):
            faulty.plan = ()
            expected = after if state.get("plan") == "then" else before
        missed = not faulty.failed
        faulty.plan = ()
        assert all_of(state) == expected
        expected.pop("tmp/n", None)
        assert all_of(plain.open().agent("1")) == expected
        store.close()
        if missed:
            break
    else:
        pytest.fail("a restore makes fewer calls than that")
    assert plain.open().verify().findings == []


def test_a_merge_leaves_sticky_keys_alone(place: Place) -> None:
    state = place.open().agent("1")
    state.declare(Sticky("done/"))
    state.set("done/mail", "one")
    trial = state.fork("trial")
    trial.set("done/mail", "two")
    trial.set("done/more", 1)
    trial.declare(Sticky("other/"))
    trial.set("plan", "new")
    merged = state.merge(trial)
    assert (merged.keys, merged.left) == (["plan"], ("done/mail", "done/more"))
    assert state.items() == [("done/mail", "one"), ("plan", "new")]
    assert state.declared() == [Sticky("done/")]
    assert place.open().verify().ok
