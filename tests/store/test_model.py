"""The store against a plain dict: a state machine, and long histories."""

from __future__ import annotations

import copy
import itertools
import os
import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from store_kit import Place, same

from holdfast import sync
from holdfast.errors import Conflict
from holdfast.store.journal import timeline as timeline_module

KEYS = [f"k{n}" for n in range(12)] + ["list/a", "list/b"]
LISTS = ["list/a", "list/b"]
keys = st.sampled_from(KEYS[:12])
lists = st.sampled_from(LISTS)
small = st.none() | st.integers(-3, 3) | st.text("xyz", max_size=9)
items = small | st.builds(
    lambda n, c: {"n": n, "text": c * 70}, st.integers(0, 40), st.sampled_from("ab")
)
values = (
    items
    | st.lists(items, max_size=60)
    | st.builds(lambda rows: {"in": {"side": rows}}, st.lists(items, min_size=20, max_size=60))
    | st.builds(lambda n: {f"m{i}": "v" * 20 for i in range(n)}, st.integers(0, 90))
    | st.builds(lambda n, c: (c * 7 + "é") * n, st.integers(0, 4000), st.sampled_from("pq"))
)
_names = itertools.count()
State = dict[str, Any]


class Model(RuleBasedStateMachine):
    """Two handles on one store, several timelines; `past` knows the state after every entry."""

    points = Bundle("points")

    @initialize()
    def start(self) -> None:
        self.old = {n: getattr(timeline_module, n) for n in ("DELTA_EVERY", "DELTAS", "TAIL")}
        timeline_module.DELTA_EVERY, timeline_module.DELTAS, timeline_module.TAIL = 5, 3, 6
        self.url = f"memory:model-{os.getpid()}-{next(_names)}"
        self.handles = [sync.open(self.url), sync.open(self.url)]
        self.past: dict[str, list[State]] = {"main": [{}]}
        self.turn = 0
        self.set("k0", 1)

    def teardown(self) -> None:
        if not hasattr(self, "handles"):
            return
        try:
            assert self.handles[0].verify().findings == []
            self.check_points()
        finally:
            for handle in self.handles:
                handle.close()
            for name, value in self.old.items():
                setattr(timeline_module, name, value)

    def check_points(self) -> None:
        choose = random.Random(len(self.past["main"]))
        for name, states in self.past.items():
            line = self.handles[1].agent("1").on(name)
            for sequence in choose.sample(range(len(states)), min(4, len(states))):
                view = line.at(sequence)
                assert same(dict(view.items()), dict(sorted(states[sequence].items())))

    # what the rules share

    def state(self, name: str = "main") -> sync.State:
        self.turn += 1
        return self.handles[self.turn % 2].agent("1").on(name)

    def line(self) -> str:
        return sorted(self.past)[self.turn % len(self.past)]

    def wrote(self, name: str, after: State) -> None:
        self.past[name].append(after)

    def now(self, name: str) -> State:
        return copy.deepcopy(self.past[name][-1])

    @rule(key=keys, value=values)
    def set(self, key: str, value: Any) -> None:
        name = self.line()
        after = self.now(name)
        after[key] = copy.deepcopy(value)
        assert self.state(name).set(key, value) == len(self.past[name])
        self.wrote(name, after)

    @rule(key=keys, how=st.integers(0, 4), at=st.integers(0, 99), item=items)
    def edit(self, key: str, how: int, at: int, item: Any) -> None:
        """Set a list again with something inserted, removed or changed."""
        name = self.line()
        after = self.now(name)
        value = after.get(key)
        if isinstance(value, dict) and isinstance(value.get("in"), dict):
            rows = value["in"]["side"]
        elif isinstance(value, list):
            rows = value
        else:
            return
        place = at % (len(rows) + 1)
        if how == 0:
            rows.insert(place, item)
        elif how == 1:
            del rows[place : place + 2]
        elif how == 2:
            rows[place : place + 1] = [item]
        elif how == 3:
            del rows[: place // 2]
            rows.append(item)
        else:
            rows[place:place] = [item] * 30
        self.state(name).set(key, value)
        self.wrote(name, after)

    @rule(key=lists, added=st.lists(items, min_size=1, max_size=9))
    def extend(self, key: str, added: list[Any]) -> None:
        name = self.line()
        after = self.now(name)
        after[key] = after.get(key, []) + copy.deepcopy(added)
        self.state(name).extend(key, added)
        self.wrote(name, after)

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: str) -> None:
        name = self.line()
        after = self.now(name)
        there = after.pop(key, self) is not self
        assert self.state(name).delete(key) is there
        self.wrote(name, after)

    @rule(pairs=st.lists(st.tuples(keys, small), min_size=1, max_size=6), gone=keys, more=items)
    def change(self, pairs: list[tuple[str, Any]], gone: str, more: Any) -> None:
        name = self.line()
        after = self.now(name)
        with self.state(name).change() as change:
            for key, value in pairs:
                change.set(key, value)
                after[key] = value
            change.delete(gone)
            after.pop(gone, None)
            change.append("list/a", more)
            after["list/a"] = [*after.get("list/a", []), copy.deepcopy(more)]
            assert same(change.get("list/a"), after["list/a"])
        self.wrote(name, after)

    @rule(key=keys, value=small, off=st.integers(0, 2))
    def versions(self, key: str, value: Any, off: int) -> None:
        name = self.line()
        item = self.state(name).item(key)
        version = item.version if item else 0
        assert (item is not None) == (key in self.past[name][-1])
        if off:
            with pytest.raises(Conflict):
                self.state(name).set(key, value, if_version=version + off)
            return
        self.state(name).set(key, value, if_version=version)
        self.wrote(name, self.now(name) | {key: value})

    @rule(target=points)
    def checkpoint(self) -> tuple[str, int]:
        name = self.line()
        made = self.state(name).checkpoint()
        assert made.root == self.state(name).root()
        self.wrote(name, self.now(name))
        return name, made.sequence

    @rule(target=points, back=st.integers(0, 30))
    def any_entry(self, back: int) -> tuple[str, int]:
        name = self.line()
        return name, max(0, len(self.past[name]) - 1 - back)

    @rule(point=points)
    def restore(self, point: tuple[str, int]) -> None:
        name = self.line()
        before = self.now(name)
        wanted = copy.deepcopy(self.past[point[0]][point[1]])
        result = self.state(name).restore(f"{point[0]}@{point[1]}")
        self.wrote(name, before)
        self.wrote(name, wanted)
        assert result.sequence == len(self.past[name]) - 1

    @precondition(lambda self: len(self.past) < 5)
    @rule(point=points)
    def fork(self, point: tuple[str, int]) -> None:
        name = f"fork{len(self.past)}"
        self.state().fork(name, at=f"{point[0]}@{point[1]}")
        self.past[name] = [{}, copy.deepcopy(self.past[point[0]][point[1]])]

    @rule()
    def adopt(self) -> None:
        name, other = self.line(), sorted(self.past)[0]
        if name == other:
            return
        before = self.now(name)
        self.state(name).adopt(other)
        self.wrote(name, before)
        self.wrote(name, self.now(other))

    @rule(point=points)
    def travel(self, point: tuple[str, int]) -> None:
        view = self.state().at(f"{point[0]}@{point[1]}")
        assert same(dict(view.items()), dict(sorted(self.past[point[0]][point[1]].items())))

    @rule(one=points, two=points)
    def compare(self, one: tuple[str, int], two: tuple[str, int]) -> None:
        diff = self.state().diff(f"{one[0]}@{one[1]}", f"{two[0]}@{two[1]}")
        a, b = self.past[one[0]][one[1]], self.past[two[0]][two[1]]
        differ = {k for k in a.keys() | b.keys() if not same(a.get(k, self), b.get(k, self))}
        assert set(diff.keys) == differ

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.handles[which].close()
        self.handles[which] = sync.open(self.url)

    @rule(low=st.integers(-70, 70), high=st.integers(-70, 70), key=lists)
    def parts_of_lists(self, low: int, high: int, key: str) -> None:
        name = self.line()
        expected = self.past[name][-1].get(key, [])
        state = self.state(name)
        assert state.length(key) == len(expected)
        assert same(state.slice(key, low, high), expected[low:high])
        assert same(state.tail(key, abs(low)), expected[-abs(low) :] if low else [])

    @invariant()
    def the_newest_state(self) -> None:
        if not hasattr(self, "past"):
            return
        for name, states in self.past.items():
            state = self.state(name)
            assert state._handle.place()[2] == len(states) - 1
            assert same(dict(state.items()), dict(sorted(states[-1].items())))


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.mark.slow
class TestModelForLong(Model.TestCase):  # type: ignore[misc]
    """The same, for `make soak`."""

    settings = settings(max_examples=1500, stateful_step_count=60, deadline=None)


# ---- long histories ------------------------------------------------------------------------


def test_thousands_of_entries(plain: Place) -> None:
    """More entries than several saves take, more keys than one delta holds."""
    store = plain.open()
    state = store.agent("1")
    choose = random.Random(1)
    model: State = {}
    kept: dict[int, State] = {0: {}}
    sequence = 0
    while sequence < 3200:
        with store.change() as change:
            part = change[state]
            for _ in range(choose.randrange(1, 4)):
                key = f"key/{choose.randrange(900)}"
                if choose.random() < 0.15:
                    part.delete(key)
                    model.pop(key, None)
                elif choose.random() < 0.2:
                    part.append("list", sequence)
                    model["list"] = [*model.get("list", []), sequence]
                else:
                    model[key] = {"n": sequence, "pad": "x" * choose.randrange(120)}
                    part.set(key, model[key])
        sequence += 1
        if sequence == 1800:
            result = state.restore(900)
            kept[sequence], model = dict(model), dict(kept[900])
            sequence = result.sequence
            kept[sequence] = dict(model)
        if sequence % 300 == 0:
            kept[sequence] = dict(model)
    kept[sequence] = dict(model)
    for again in (lambda: state, lambda: plain.reopen().agent("1")):
        seen = again()
        assert dict(seen.items()) == model
        assert seen.keys("key/5", limit=20) == sorted(k for k in model if k[:5] == "key/5")[:20]
        assert seen.tail("list", 30) == model["list"][-30:]
        assert seen.get_many(sorted(model)[:50]) == {k: model[k] for k in sorted(model)[:50]}
        for number, then in kept.items():
            view = seen.at(number)
            assert dict(view.items()) == then
            assert view.length("list") == len(then.get("list", []))
    assert len([key for key in model if key.startswith("key/")]) > 600
    assert plain.open().verify().findings == []
