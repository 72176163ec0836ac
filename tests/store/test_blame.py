"""Who wrote each part of a value."""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Place

import holdfast
from holdfast import Typed, sync
from holdfast.errors import InvalidInputError, MissingError
from holdfast.store.history import blame
from holdfast.store.journal import timeline as timeline_module


def told(state: sync.State, key: str, path: Any = None, **more: Any) -> dict[str, int]:
    """The entry of each part."""
    return {part.path: part.entry for part in state.blame(key, path, **more)}


def test_fields_and_items(place: Place) -> None:
    store = place.open()
    state = store.agent("1")
    with store.acting("planner", correlation="run-1"):
        state.set("plan", {"goal": "ship", "steps": ["a", "b", "c"], "owner": {"name": "x"}})
    with store.acting("bot", correlation="run-2"):
        state.set("plan", {"goal": "ship", "steps": ["a", "new", "b", "c"], "owner": {"name": "y"}})
    state.set("plan", {**state.get("plan"), "late": True})
    found = place.reopen().agent("1").blame("plan")
    assert {part.path: part.entry for part in found} == {
        "plan.goal": 1,
        "plan.steps[0]": 1,
        "plan.steps[1]": 2,
        "plan.steps[2]": 1,
        "plan.steps[3]": 1,
        "plan.owner.name": 2,
        "plan.late": 3,
    }
    bot = next(part for part in found if part.path == "plan.steps[1]")
    assert (bot.value, bot.timeline, bot.exact) == ("new", "main", True)
    assert (bot.cause.actor, bot.cause.correlation) == ("bot", "run-2")
    assert bot.time == place.open().agent("1").log(since=2, until=2)[0].time
    assert (found.complete, found.versions, len(found)) == (True, 3, 7)
    line = str(found).splitlines()[2]
    assert line.startswith("main@2")
    assert line.endswith("bot      run-2  plan.steps[1]: 'new'")


def test_one_part(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("plan", {"steps": [{"done": False}, {"done": False}], "a.b": 1, 7: "seven"})
    state.set("plan", {"steps": ["first", {"done": False}, {"done": True}], "a.b": 1, 7: "seven"})
    assert told(state, "plan", "steps[2].done") == {"plan.steps[2].done": 2}
    assert told(state, "plan", "steps[1]") == {"plan.steps[1].done": 1}
    assert told(state, "plan", ["a.b"]) == {"plan['a.b']": 1}
    assert told(state, "plan", [7]) == {"plan.7": 1}
    for bad in ("steps[9]", "nothing", ["steps", "0"], "goal..x", "steps[", 7, [None]):
        with pytest.raises(InvalidInputError):
            state.blame("plan", bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [5, 400])
def test_lists_grown_by_append(store: sync.Store, size: int) -> None:
    state = store.agent("1")
    numbers = []
    for n in range(60):
        with store.acting(f"writer-{n % 3}"):
            numbers += [state.extend("list", [{"t": "x" * size, "n": n}])]
        state.set("noise", n)
    found = state.blame("list")
    by_item = {part.path: (part.entry, part.cause.actor) for part in found if ".n" in part.path}
    assert by_item == {f"list[{n}].n": (numbers[n], f"writer-{n % 3}") for n in range(60)}
    state.set("list", state.get("list")[10:])
    assert told(state, "list", "[0].n") == {"list[0].n": numbers[10]}, "items that moved up"


def test_across_restores_and_forks(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("v", {"a": 1, "b": 1})
    safe = state.checkpoint()
    state.set("v", {"a": 2, "b": 2})
    state.restore(safe)
    assert told(state, "v") == {"v.a": 1, "v.b": 1}, "who wrote it, not who brought it back"
    state.set("v", {"a": 3, "b": 1})
    trial = state.fork("trial")
    trial.set("v", {"a": 3, "b": 1, "c": 1})
    parts = [(part.path, part.timeline, part.entry) for part in trial.blame("v")]
    assert parts == [("v.a", "main", 6), ("v.b", "main", 1), ("v.c", "trial", 2)]
    state.adopt(trial)
    assert [(part.path, part.timeline, part.entry) for part in state.blame("v")] == parts


def test_a_value_that_was_deleted_in_between_begins_anew(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("v", {"a": 1})
    state.delete("v")
    assert state.set("v", {"a": 1}) == 3
    assert told(state, "v") == {"v.a": 3}
    store.delete("agent:1")
    number = state.set("v", {"a": 1})
    assert told(state, "v") == {"v.a": number}


def test_versions_are_bounded(store: sync.Store) -> None:
    state = store.agent("1")
    for n in range(20):
        state.set("v", {"old": 1, "n": n})
    found = state.blame("v", limit=5)
    assert [(part.path, part.entry, part.exact) for part in found] == [
        ("v.old", 15, False),
        ("v.n", 20, True),
    ]
    assert (found.complete, found.versions) == (False, 5)
    assert "≤ main@15" in str(found)
    for bad in (0, -1, None, "5"):
        with pytest.raises(InvalidInputError):
            state.blame("v", limit=bad)  # type: ignore[arg-type]


def test_parts_are_bounded(store: sync.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "MOST", 50)
    state = store.agent("1")
    state.extend("list", ["x" * 30] * 100)
    state.append("list", "y")
    found = state.blame("list")
    assert [(part.path, part.entry, len(part.value)) for part in found] == [("list", 2, 101)]
    state.set("deep", {"small": 1, "large": list(range(100))})
    assert told(state, "deep") == {"deep.small": 3, "deep.large": 3}


def test_types_count_and_objects_are_taken_apart(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("v", {"a": 1, "o": Typed("Plan", 1, {"x": 1, "y": 1})})
    state.set("v", {"a": True, "o": Typed("Plan", 1, {"x": 1, "y": 2})})
    assert told(state, "v") == {"v.a": 2, "v.o.x": 1, "v.o.y": 2}
    state.set("v", {"a": True, "o": Typed("Plan", 2, {"x": 1, "y": 2})})
    assert told(state, "v") == {"v.a": 2, "v.o.x": 3, "v.o.y": 3}


def test_plain_values_and_absent_keys(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("n", 7)
    state.set("empty", {})
    assert told(state, "n") == {"n": 1}
    assert told(state, "empty") == {"empty": 2}
    for missing in (state, store.agent("2")):
        with pytest.raises(MissingError):
            missing.blame("nothing")


def test_async() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            state = store.agent("1")
            await state.set("v", {"a": 1})
            await state.set("v", {"a": 1, "b": 2})
            assert [part.entry for part in await state.blame("v")] == [1, 2]
            assert [part.entry for part in await state.blame("v", "b", limit=3)] == [2]

    asyncio.run(main())


# ---- against a model -----------------------------------------------------------------------

_names = itertools.count()
_fields = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4)
_writes = st.lists(
    st.tuples(st.just("set"), _fields, st.booleans())
    | st.tuples(st.just("restore"), st.integers(0, 30), st.none())
    | st.tuples(st.just("delete"), st.none(), st.none()),
    min_size=1,
    max_size=20,
)


@settings(deadline=None, max_examples=100)
@given(_writes)
def test_fields_against_a_plain_model(run: list[Any]) -> None:
    """The model carries, beside each field, the entry that wrote it."""
    old = timeline_module.DELTA_EVERY
    timeline_module.DELTA_EVERY = 4
    try:
        with sync.open(f"memory:blame-{os.getpid()}-{next(_names)}") as store:
            state = store.agent("1")
            past: list[dict[str, tuple[int, int]] | None] = [None]
            for kind, what, long in run:
                now = copy.deepcopy(past[-1])
                if kind == "set":
                    filled = {"z": "z" * 9000} if long else {}
                    number = state.set("v", {"k": what, **filled})
                    before = (past[-1] or {}).items()
                    kept = {name: pair for name, pair in before if what.get(name) == pair[0]}
                    now = {name: kept.get(name, (v, number)) for name, v in what.items()}
                elif len(past) == 1:
                    continue  # there is nothing yet, which a delete leaves so
                elif kind == "delete":
                    state.delete("v")
                    now = None
                else:
                    state.restore(what % len(past))
                    past.append(past[-1])
                    now = past[what % (len(past) - 1)]
                past.append(now)
            expected = past[-1]
            if expected:
                found = {part.path: part.entry for part in state.blame("v", "k")}
                assert found == {f"v.k.{name}": pair[1] for name, pair in expected.items()}
    finally:
        timeline_module.DELTA_EVERY = old


def test_what_a_merge_took_over_is_of_who_wrote_it(place: Place) -> None:
    store = place.open()
    main = store.agent("1")
    with store.acting("first"):
        main.set("plan", {"a": 0, "b": 0, "c": 0, "log": ["x"]})
    trial = main.fork("trial")
    deep = trial.fork("deep")
    with store.acting("ann"):
        main.set("plan", {"a": 1, "b": 0, "c": 1, "log": ["x"]})
    with store.acting("bob"):
        trial.set("plan", {"a": 0, "b": 2, "c": 2, "log": ["x", "y"]})
    with store.acting("eve"):
        deep.set("plan", {"a": 0, "b": 0, "c": 0, "d": 4, "log": ["x"]})
        deep.set("only", [1])
    with store.acting("judge"):
        trial.merge(deep)
        main.merge(trial, strategy=lambda _: "decided")
    found = {part.path: (part.cause.actor, part.timeline) for part in main.blame("plan")}
    assert found == {
        "plan.a": ("ann", "main"),
        "plan.b": ("bob", "trial"),
        "plan.c": ("judge", "main"),
        "plan.d": ("eve", "deep"),
        "plan.log[0]": ("first", "main"),
        "plan.log[1]": ("bob", "trial"),
    }
    (only,) = main.blame("only")
    assert (only.cause.actor, only.timeline) == ("eve", "deep")
    main.append("only", 2)
    assert [part.cause.actor for part in main.blame("only")] == ["eve", None]
    assert not main.blame("only", limit=1).complete


def test_merges_to_and_fro_are_led_through_once(store: sync.Store) -> None:
    """Each version is looked at once or twice, not again from every merge above it."""
    main = store.agent("1")
    main.set("plan", {"first": 0})
    other = main.fork("other")
    wrote = {"plan.first": ("main", 1)}
    for number in range(12):
        for state in (main, other):
            name = f"{state.timeline}{number}"
            entry = state.set("plan", {**state.get("plan"), name: number})
            wrote[f"plan.{name}"] = (state.timeline, entry)
        main.merge("other")
        other.merge("main")
    for state in (main, other):
        found = state.blame("plan")
        assert found.complete
        assert {part.path: (part.timeline, part.entry) for part in found} == wrote
        assert found.versions < 60


def test_tails_that_a_merge_appended_are_of_who_wrote_them(place: Place) -> None:
    store = place.open()
    main = store.agent("1")
    main.extend("log", [f"start {number}" * 20 for number in range(100)])
    trial = main.fork("trial")
    with store.acting("bob"):
        trial.append("log", "by bob")
    with store.acting("ann"):
        main.append("log", "by ann")
    with store.acting("judge"):
        main.merge(trial)
    last = [(part.value, part.cause.actor) for part in main.blame("log")][-2:]
    assert last == [("by ann", "ann"), ("by bob", "bob")]
