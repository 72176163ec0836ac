"""Merging against a plain model: mappings as dicts, three at a time, and laws of merging."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import pytest

from holdfast import DELETED, MergeConflict, sync
from holdfast.errors import MergeConflictError
from holdfast.store.history.merge_values import merge_values

Tree = dict[str, Any]
NAMES = "abcdef"


def tree(random: Random, depth: int = 3) -> Tree:
    """A mapping of mappings and numbers."""
    made: Tree = {}
    for name in NAMES:
        chance = random.random()
        if chance < 0.3 and depth:
            made[name] = tree(random, depth - 1)
        elif chance < 0.7:
            made[name] = random.randrange(3)
    return made


def changed(random: Random, value: Tree) -> Tree:
    """The same with some parts changed, added and removed."""
    made = deepcopy(value)
    for _ in range(random.randrange(5)):
        part = made
        while True:
            inner = [one for one in part.values() if type(one) is dict]
            if not inner or random.random() < 0.4:
                break
            part = random.choice(inner)
        name = random.choice(NAMES)
        if random.random() < 0.3:
            part.pop(name, None)
        else:
            part[name] = tree(random, 1) if random.random() < 0.2 else random.randrange(3, 6)
    return made


def model(path: str, base: Any, ours: Any, theirs: Any, found: dict[str, Any], side: int) -> Any:
    """Three-way by the book: for one name, what of it; `found` gets what both changed."""
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    if type(ours) is dict and type(theirs) is dict:
        base = base if type(base) is dict else {}
        made = {}
        for name in sorted({*base, *ours, *theirs}):
            three = [one.get(name, DELETED) for one in (base, ours, theirs)]
            value = model(f"{path}.{name}", three[0], three[1], three[2], found, side)
            if value is not DELETED:
                made[name] = value
        return made
    found[path] = (base, ours, theirs)
    return (ours, theirs)[side]


def top(base: Tree, ours: Tree, theirs: Tree, side: int) -> tuple[Tree, dict[str, Any]]:
    """The model over a whole state."""
    found: dict[str, Any] = {}
    made = {}
    for key in sorted({*base, *ours, *theirs}):
        three = [one.get(key, DELETED) for one in (base, ours, theirs)]
        value = model(key, three[0], three[1], three[2], found, side)
        if value is not DELETED:
            made[key] = value
    return made, found


def put(state: sync.State, wanted: Tree) -> None:
    """Make a state hold just this."""
    with state.change() as change:
        for key in change.keys(""):
            if key not in wanted:
                change.delete(key)
        for key, value in wanted.items():
            if change.get(key) != value:
                change.set(key, value)


def everything(state: sync.State) -> Tree:
    return dict(state.items())


@pytest.mark.parametrize("seed", range(12))
def test_merging_is_what_the_model_says(seed: int) -> None:
    random = Random(seed)
    with sync.open("memory:", durability="normal") as store:
        for number in range(12):
            main = store.agent(str(number))
            base = tree(random)
            main.set("first", 1)
            put(main, base)
            trial = main.fork("trial")
            for _ in range(3):
                # Three rounds: after the first, the common past is what was merged before.
                ours, theirs = (changed(random, everything(one)) for one in (main, trial))
                put(main, ours)
                put(trial, theirs)
                base = round_(main, trial, base, ours, theirs, random.randrange(2))
        assert store.verify().ok


def round_(
    main: sync.State, trial: sync.State, base: Tree, ours: Tree, theirs: Tree, side: int
) -> Tree:
    """One merge against the model; what is common past after it."""
    wanted, clashes = top(base, ours, theirs, side)
    planned = main.merge(trial, dry_run=True)
    assert {c.path: (c.base, c.ours, c.theirs) for c in planned.conflicts} == clashes
    if clashes:
        with pytest.raises(MergeConflictError):
            main.merge(trial)
    assert everything(main) == ours
    main.merge(trial, strategy=("ours", "theirs")[side])
    assert everything(main) == wanted
    assert everything(trial) == theirs
    head = main._handle.place()
    assert main.merge(trial).entry is None
    assert main._handle.place() == head
    return theirs


@pytest.mark.parametrize("seed", range(6))
def test_laws(seed: int) -> None:
    random = Random(1000 + seed)
    with sync.open("memory:", durability="normal") as store:
        for number in range(12):
            base = tree(random)
            sides: list[list[sync.State]] = []
            ours, theirs = changed(random, base), changed(random, base)
            for twin in range(2):
                state = store.agent(f"{number}/{twin}")
                state.set("first", 1)
                put(state, base)
                trial = state.fork("trial")
                idle = state.fork("idle")
                # The unchanged side becomes the other one, the changed side stays.
                put(trial, theirs)
                idle.merge(trial)
                assert idle.root() == trial.root()
                assert trial.merge("main").entry is None
                put(state, ours)
                sides.append([state, trial])
            # Who merges whom makes no difference but for the names of the sides.
            sides[0][0].merge("trial", strategy="theirs")
            sides[1][1].merge("main", strategy="ours")
            assert everything(sides[0][0]) == everything(sides[1][1])


# ---- lists, values alone --------------------------------------------------------------------


def never(path: str, *_: Any) -> Any:
    raise AssertionError(f"{path} is no conflict")


@pytest.mark.parametrize("seed", range(20))
def test_edits_of_different_items_all_arrive(seed: int) -> None:
    """Items are edited, removed and put in by two sides that keep apart: nothing is asked."""
    random = Random(seed)
    for _ in range(40):
        base = [f"item {n}" for n in range(random.randrange(1, 60))]
        sides: dict[str, list[str]] = {"ours": [], "theirs": []}
        wanted: list[str] = []
        for number, item in enumerate(base):
            side, kind = random.choice(["ours", "theirs"]), random.randrange(3)
            new = [[f"{item} by {side}"], [], [f"before {item} by {side}", item]][kind]
            if number % 2:  # what stays between them says which item is which
                new = [item]
            for name, made in sides.items():
                made += new if name == side else [item]
            wanted += new
        for one in (base, wanted, *sides.values()):
            one.append("end")
        ours, theirs = [*sides["ours"], "our tail"], [*sides["theirs"], "their tail"]
        assert merge_values("l", base, ours, theirs, never) == [*wanted, "our tail", "their tail"]
        assert merge_values("l", base, theirs, ours, never) == [*wanted, "their tail", "our tail"]


@pytest.mark.parametrize("seed", range(20))
def test_a_list_with_one_unchanged_side_is_the_other_side(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        base = [random.randrange(4) for _ in range(random.randrange(8))]
        other = [random.randrange(4) for _ in range(random.randrange(8))]
        assert merge_values("l", base, base, other, never) == other
        assert merge_values("l", base, other, base, never) == other
        assert merge_values("l", base, other, deepcopy(other), never) == other


@pytest.mark.parametrize("seed", range(20))
def test_deciding_for_one_side_everywhere_keeps_what_only_the_other_changed(seed: int) -> None:
    """With any lists at all: nothing fails, and each item of the result is of one of the three."""
    random = Random(seed)
    for _ in range(100):
        base, ours, theirs = (
            [random.randrange(6) for _ in range(random.randrange(9))] for _ in range(3)
        )
        asked: list[tuple[Any, ...]] = []

        def decide(*conflict: Any, asked: list[tuple[Any, ...]] = asked) -> Any:
            asked.append(conflict)
            return conflict[3]

        merged = merge_values("l", base, ours, theirs, decide)
        assert set(merged) <= {*base, *ours, *theirs}
        if not asked and base:
            assert not set(merged) - {*ours, *theirs}


def test_a_conflict_reads_well() -> None:
    found = MergeConflict("plan", "plan.goal", "ship", "win", DELETED, None, None)
    assert str(found) == "plan.goal: was 'ship'\n  ours: 'win'\n  theirs: DELETED"
