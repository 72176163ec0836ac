"""Merging timelines: what a user relies on. The model is in test_merge_model.py."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of, same

import holdfast
from holdfast import DELETED, MergeConflict, sync
from holdfast.errors import (
    GateRefusedError,
    InvalidInputError,
    LimitExceededError,
    MergeConflictError,
    OutcomeUnknown,
    PointNotFoundError,
    ReadOnlyError,
    ScopeNotFoundError,
    TimelineNotFoundError,
    Unavailable,
)
from holdfast.seal.registry import Registry
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core


def everything(state: sync.State) -> dict[str, Any]:
    return dict(state.items(plain=True))


def forked(place: Place, **values: Any) -> tuple[sync.Store, sync.State, sync.State]:
    """A store, its agent and a fork of the agent that began with these values."""
    store = place.open()
    main = store.agent("a")
    with main.change() as change:
        change.set("started", True)
        for key, value in values.items():
            change.set(key, value)
    return store, main, main.fork("trial")


# ---- what is taken --------------------------------------------------------------------------


def test_what_only_one_side_changed_is_taken_from_it(place: Place) -> None:
    store, main, trial = forked(place, a=1, b=1, c=1, d=1, both=1)
    main.set("a", 2)
    main.delete("c")
    main.set("mine", [1])
    trial.set("b", 3)
    trial.delete("d")
    trial.set("theirs", {"x": b"bytes"})
    for state in (main, trial):
        state.set("both", "alike")
    before = everything(trial)
    done = main.merge("trial")
    assert everything(main) == {
        "a": 2,
        "b": 3,
        "both": "alike",
        "mine": [1],
        "started": True,
        "theirs": {"x": b"bytes"},
    }
    assert (done.keys, done.conflicts) == (["b", "d", "theirs"], [])
    assert (done.point, done.base) == ("trial@5", ("main@1",))
    assert done.entry == main._handle.place()[2]
    assert everything(trial) == before
    assert store.verify().ok
    merged = everything(main)
    assert everything(place.reopen().agent("a")) == merged


def test_it_is_one_entry_that_names_what_it_merged(place: Place) -> None:
    store, main, trial = forked(place)
    trial.set("a", 1)
    trial.set("b", 1)
    head = main._handle.place()[2]
    with store.acting("judge"):
        main.merge(trial, reason="good")
    assert main._handle.place()[2] == head + 1
    (entry,) = main.log(limit=1)
    assert entry.kinds == ("merge", "set")
    assert (entry.keys, entry.point) == (("a", "b"), "trial@3")
    assert (entry.cause.actor, entry.cause.reason) == ("judge", "good")
    assert [one.sequence for one in main.log(kind="merge")] == [entry.sequence]


def test_mappings_are_merged_by_field_at_any_depth(place: Place) -> None:
    plan = {"goal": "ship", "who": {"lead": "a", "team": {"x": 1, "y": 1}}, "gone": 1}
    _, main, trial = forked(place, plan=plan)
    main.set("plan", {"goal": "win", "who": {"lead": "a", "team": {"x": 2, "y": 1}}, "gone": 1})
    trial.set("plan", {"goal": "ship", "who": {"lead": "b", "team": {"x": 1, "y": 3}}, "z": 0})
    main.merge(trial)
    wanted = {"goal": "win", "who": {"lead": "b", "team": {"x": 2, "y": 3}}, "z": 0}
    assert same(main.get("plan"), wanted)


def test_what_both_added_is_merged_as_if_it_had_been_empty(place: Place) -> None:
    _, main, trial = forked(place)
    main.set("m", {"a": 1})
    trial.set("m", {"b": 2})
    main.extend("notes", ["same", "ours"])
    trial.extend("notes", ["same", "theirs"])
    main.merge(trial)
    assert main.get("m") == {"a": 1, "b": 2}
    assert main.get("notes") == ["same", "ours", "theirs"]


def test_the_order_of_fields_follows_who_changed_it(place: Place) -> None:
    _, main, trial = forked(place, m={"a": 1, "b": 1})
    main.set("m", {"a": 2, "b": 1})
    trial.set("m", {"b": 1, "a": 1})
    main.merge(trial)
    assert same(main.get("m"), {"b": 1, "a": 2})


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        ("abcdX", "abcdY", "abcdXY"),
        ("Xabcd", "abcdY", "XabcdY"),
        ("aXbcd", "abcYd", "aXbcYd"),
        ("bcd", "abc", "bc"),
        ("aBcd", "abCd", "aBCd"),
        ("abd", "abcdY", "abdY"),
        ("abXcd", "abXcd", "abXcd"),
        ("", "abcdY", "Y"),
    ],
)
def test_lists_are_merged_by_item(place: Place, ours: str, theirs: str, wanted: str) -> None:
    _, main, trial = forked(place, items=list("abcd"))
    main.set("items", list(ours))
    trial.set("items", list(theirs))
    main.merge(trial)
    assert "".join(main.get("items")) == wanted


def test_items_that_both_changed_are_merged_inside(place: Place) -> None:
    steps = [{"name": f"step {n}", "done": False, "by": None} for n in range(200)]
    store, main, trial = forked(place, steps=steps)
    ours = [dict(step) for step in steps]
    ours[7]["done"] = True
    theirs = [dict(step) for step in steps]
    theirs[7]["by"] = "trial"
    theirs[150]["done"] = True
    main.set("steps", ours)
    trial.set("steps", theirs)
    main.merge(trial)
    merged = main.get("steps")
    assert merged[7] == {"name": "step 7", "done": True, "by": "trial"}
    assert merged[150]["done"] is True
    assert len(merged) == 200
    assert store.verify().ok


def test_appended_tails_of_both_are_kept_ours_first(place: Place) -> None:
    _, main, trial = forked(place, log=[{"n": n, "text": "x" * 40} for n in range(100)])
    trial.extend("log", [{"by": "trial", "n": n} for n in range(3)])
    main.extend("log", [{"by": "main", "n": n} for n in range(2)])
    main.merge(trial)
    assert [item["by"] for item in main.tail("log", 5)] == ["main"] * 2 + ["trial"] * 3
    assert main.length("log") == 105
    assert main.log(limit=1)[0].operations == (("merge", ""), ("append", "log"))


@dataclass
class Plan:
    goal: str
    budget: int
    tags: list[str]


def test_objects_are_merged_by_field(place: Place) -> None:
    registry = Registry()
    registry.register(Plan, name="plan", version=1)
    store = place.open(registry=registry)
    main = store.agent("a")
    main.set("plan", Plan("ship", 1, ["x"]))
    trial = main.fork("trial")
    main.set("plan", Plan("win", 1, ["x", "ours"]))
    trial.set("plan", Plan("ship", 2, ["x", "theirs"]))
    # A program that does not know the class merges them all the same.
    place.close()
    place.open().agent("a").merge("trial")
    state = place.reopen(registry=registry).agent("a")
    assert state.get("plan") == Plan("win", 2, ["x", "ours", "theirs"])


def test_types_are_not_confused(place: Place) -> None:
    _, main, trial = forked(place, a=1, b=1.0, c=0.0)
    trial.set("a", True)
    trial.set("b", 1)
    trial.set("c", -0.0)
    main.merge(trial)
    assert same([main.get(key) for key in "abc"], [True, 1, -0.0])


# ---- conflicts ------------------------------------------------------------------------------


def conflicting(place: Place) -> tuple[sync.Store, sync.State, sync.State]:
    store, main, trial = forked(
        place, plan={"goal": "ship", "step": 1}, budget=10, gone=1, items=[1, 2, 3], free=0
    )
    with store.acting("ann"):
        main.set("plan", {"goal": "win", "step": 2})
        main.set("budget", 20)
        main.delete("gone")
        main.set("items", [1, 20, 3])
    with store.acting("bob"):
        trial.set("plan", {"goal": "lose", "step": 1})
        trial.set("budget", 30)
        trial.set("gone", 2)
        trial.set("items", [1, 200, 3])
        trial.set("free", 1)
    return store, main, trial


PATHS = ["budget", "gone", "items[1]", "plan.goal"]


def test_conflicts_are_data_and_nothing_is_written(place: Place) -> None:
    store, main, trial = conflicting(place)
    before, head = everything(main), main._handle.place()
    with pytest.raises(MergeConflictError) as caught:
        main.merge(trial)
    assert (everything(main), main._handle.place()) == (before, head)
    found = {conflict.path: conflict for conflict in caught.value.conflicts}
    assert sorted(found) == PATHS
    goal, gone = found["plan.goal"], found["gone"]
    assert (goal.key, goal.base, goal.ours, goal.theirs) == ("plan", "ship", "win", "lose")
    assert goal.our_entry is not None
    assert goal.their_entry is not None
    assert (goal.our_entry.cause.actor, goal.their_entry.cause.actor) == ("ann", "bob")
    assert (goal.our_entry.timeline, goal.their_entry.timeline) == ("main", "trial")
    assert (gone.base, gone.ours, gone.theirs) == (1, DELETED, 2)
    assert gone.our_entry is None, "our side removed it"
    text = str(caught.value)
    assert "plan.goal" in text
    assert "lose" not in text, "an error shows no values"
    assert store.verify().ok


def test_a_dry_run_says_what_would_happen(place: Place) -> None:
    _, main, trial = conflicting(place)
    before, head = everything(main), main._handle.place()
    planned = main.merge(trial, dry_run=True)
    assert sorted(conflict.path for conflict in planned.conflicts) == PATHS
    assert planned.entry is None
    assert planned.keys == ["free"]
    assert [change.path for change in planned.diff] == ["free"]
    decided = main.merge(trial, strategy="theirs", dry_run=True)
    assert (everything(main), main._handle.place()) == (before, head)
    wanted = {change.path: change.after for change in decided.diff}
    assert wanted == {"budget": 30, "free": 1, "gone": 2, "items[1]": 200, "plan.goal": "lose"}


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        (
            "ours",
            {"plan": {"goal": "win", "step": 2}, "budget": 20, "items": [1, 20, 3]},
        ),
        (
            "theirs",
            {"plan": {"goal": "lose", "step": 2}, "budget": 30, "gone": 2, "items": [1, 200, 3]},
        ),
    ],
)
def test_strategies(place: Place, strategy: str, wanted: dict[str, Any]) -> None:
    store, main, trial = conflicting(place)
    done = main.merge(trial, strategy=strategy)
    assert everything(main) == {"free": 1, "started": True, **wanted}
    assert sorted(conflict.path for conflict in done.conflicts) == PATHS
    assert main.merge(trial).entry is None, "what was decided is not asked again"
    assert store.verify().ok


def test_a_function_decides_each_conflict(place: Place) -> None:
    _, main, trial = conflicting(place)
    seen: list[MergeConflict] = []

    def decide(conflict: MergeConflict) -> Any:
        seen.append(conflict)
        if conflict.path == "budget":
            return max(conflict.ours, conflict.theirs) + 1
        return {"plan.goal": "agreed", "gone": DELETED, "items[1]": DELETED}[conflict.path]

    main.merge(trial, strategy=decide)
    assert sorted(conflict.path for conflict in seen) == PATHS
    assert everything(main) == {
        "budget": 31,
        "free": 1,
        "items": [1, 3],
        "plan": {"goal": "agreed", "step": 2},
        "started": True,
    }


def test_a_function_that_fails_leaves_everything_as_it_was(place: Place) -> None:
    _, main, trial = conflicting(place)
    before, head = everything(main), main._handle.place()

    def broken(_: MergeConflict) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        main.merge(trial, strategy=broken)
    with pytest.raises(InvalidInputError):
        main.merge(trial, strategy=lambda _: object())
    assert (everything(main), main._handle.place()) == (before, head)


def test_an_item_that_both_changed_is_a_conflict_of_its_own(place: Place) -> None:
    _, main, trial = forked(place, items=["a", "b", "c", "d"])
    main.set("items", ["new", "a", "X", "d"])
    trial.set("items", ["a", "b", "Y", "Z", "d"])
    (conflict,) = main.merge(trial, dry_run=True).conflicts
    assert conflict.path == "items[3]"
    assert (conflict.base, conflict.ours, conflict.theirs) == ("c", DELETED, "Y")
    main.merge(trial, strategy="theirs")
    assert main.get("items") == ["new", "a", "X", "Y", "Z", "d"]


# ---- common past ----------------------------------------------------------------------------


def test_merging_again_brings_only_what_is_new(place: Place) -> None:
    store, main, trial = forked(place, a=0, log=["start"])
    trial.append("log", "one")
    first = main.merge(trial)
    assert main.merge(trial).entry is None
    trial.append("log", "two")
    main.append("log", "mine")
    second = main.merge(trial)
    assert main.get("log") == ["start", "one", "mine", "two"]
    assert (first.base, second.base) == (("main@1",), ("trial@2",))
    # And back: all that main has is new to the trial, and then they are equal.
    back = trial.merge(main)
    assert back.base == ("trial@3",)
    assert trial.root() == main.root()
    assert main.merge(trial).entry is None
    assert store.verify().ok


def test_forks_of_forks_have_a_common_past(place: Place) -> None:
    _, main, trial = forked(place, a=0, b=0, c=0)
    trial.set("a", "trial")
    deep = trial.fork("deep")
    deep.set("b", "deep")
    trial.set("c", "not for main")
    main.set("mine", 1)
    done = main.merge("deep")
    assert done.base == ("main@1",)
    assert everything(main) == {"a": "trial", "b": "deep", "c": 0, "mine": 1, "started": True}
    assert trial.merge("deep").base == ("trial@2",)
    # The trial learns of main by way of what both have from deep.
    assert trial.merge(main).base == ("deep@2",)
    assert trial.get("mine") == 1


def test_an_adopted_timeline_is_common_past(place: Place) -> None:
    _, main, trial = forked(place, a=0, b=0)
    main.set("a", "lost by adopting")
    trial.set("b", 1)
    main.adopt(trial)
    trial.set("b", 2)
    main.set("a", 3)
    done = main.merge(trial)
    assert done.base == ("trial@2",)
    assert everything(main) == {"a": 3, "b": 2, "started": True}


def test_a_merge_is_undone_by_restoring_to_before_and_can_be_made_again(place: Place) -> None:
    store, main, trial = forked(place, a=0)
    trial.set("a", 1)
    before = main._handle.place()[2]
    main.merge(trial)
    main.restore(before)
    assert main.get("a") == 0
    done = main.merge(trial)
    assert done.base == ("main@1",)
    assert main.get("a") == 1
    # A restore to after a merge knows of it.
    after = main._handle.place()[2]
    main.set("a", 5)
    main.restore(after)
    assert main.merge(trial).entry is None
    assert store.verify().ok
    assert place.reopen().agent("a").merge("trial").entry is None


def test_a_merge_is_reverted_like_any_entry(place: Place) -> None:
    _, main, trial = forked(place, a=0, b=0)
    trial.set("a", 1)
    main.set("b", 1)
    done = main.merge(trial)
    undone = main.revert(entries=[done.entry])
    assert undone.done == ["a"]
    assert "does not bring it back" in undone.left[0].why
    assert everything(main) == {"a": 0, "b": 1, "started": True}
    assert main.merge(trial).entry is None
    main.revert(entries=[undone.entry])
    assert main.get("a") == 1


def test_merged_crosswise(place: Place) -> None:
    """What the two newest common states agree on is merged; the rest is asked."""
    store, main, trial = forked(place, a=0, b=0, c=0)
    main.set("a", "main")
    trial.set("b", "trial")
    here, there = main._handle.place()[2], trial._handle.place()[2]
    main.merge(f"trial@{there}")
    trial.merge(f"main@{here}")
    assert main.root() == trial.root()
    trial.set("a", "newer")
    trial.set("c", "newer")
    planned = main.merge(trial, dry_run=True)
    assert planned.base == (f"main@{here}", f"trial@{there}")
    assert [conflict.path for conflict in planned.conflicts] == ["a"]
    assert planned.keys == ["c"]
    main.merge(trial, strategy="theirs")
    assert main.get("a") == main.get("c") == "newer"
    assert main.merge(trial).entry is None
    assert store.verify().ok


def test_a_long_past_of_restores_and_merges(place: Place) -> None:
    store, main, trial = forked(place, n=0)
    for round_ in range(12):
        main.set(f"main/{round_}", round_)
        trial.set(f"trial/{round_}", round_)
        if round_ % 3 == 0:
            safe = main.checkpoint("safe")
            main.set("n", -1)
            main.restore(safe)
        main.merge(trial)
        if round_ % 4 == 0:
            trial.merge(main)
    trial.merge(main)
    assert main.root() == trial.root()
    assert len(main.keys()) == 26
    assert store.verify().ok
    assert place.reopen().agent("a").merge("trial").entry is None


def test_the_past_is_found_where_it_lies_far_back(place: Place) -> None:
    """Behind many entries and saves, with merges and restores that only saves remember."""
    _, main, trial = forked(place, n=0)
    trial.set("t", 1)
    main.merge(trial)
    for number in range(700):
        main.set(f"k{number % 7}", number)
    reopened = place.reopen()
    main, trial = reopened.agent("a"), reopened.agent("a").on("trial")
    trial.set("t", 2)
    assert main.merge(trial).base == ("trial@2",)
    assert main.get("t") == 2
    assert reopened.verify().ok


# ---- others who write meanwhile -------------------------------------------------------------


def overtaken(
    main: sync.State, trial: sync.State, by: Callable[[], Any]
) -> holdfast.store.history.merge.Merged:
    """Merge, while somebody else writes between looking and committing, once."""
    calls: list[MergeConflict] = []

    def decide(conflict: MergeConflict) -> Any:
        calls.append(conflict)
        if len(calls) == 1:
            by()
        return "decided"

    return main.merge(trial, strategy=decide)


def test_a_key_that_is_changed_meanwhile_is_looked_at_again(place: Place) -> None:
    store, main, trial = forked(place, a=0, b=0)
    main.set("a", 1)
    trial.set("a", 2)
    trial.set("b", {"x": 1})
    other = place.open().agent("a")
    done = overtaken(main, trial, lambda: other.set("b", {"y": 2}))
    assert everything(main) == {"a": "decided", "b": {"y": 2, "x": 1}, "started": True}
    assert done.entry == main._handle.place()[2]
    assert store.verify().ok


def test_what_the_merge_does_not_touch_may_change_meanwhile(place: Place) -> None:
    _, main, trial = forked(place, a=0)
    main.set("a", 1)
    trial.set("a", 2)
    other = place.open().agent("a")
    done = overtaken(main, trial, lambda: other.set("elsewhere", 1))
    assert len(done.conflicts) == 1
    assert everything(main) == {"a": "decided", "elsewhere": 1, "started": True}


def test_a_restore_or_another_merge_meanwhile(place: Place) -> None:
    store, main, trial = forked(place, a=0)
    start = main._handle.place()[2]
    main.set("a", 1)
    trial.set("a", 2)
    trial.set("new", 2)
    other = place.open().agent("a")
    overtaken(main, trial, lambda: other.restore(start))
    assert main.get("a") == 2, "after the restore only the trial has changed it"
    main.set("a", 3)
    trial.set("a", 4)
    done = overtaken(main, trial, lambda: other.merge("trial", strategy="ours"))
    assert done.entry is None, "somebody else had merged it"
    assert main.get("a") == 3
    assert store.verify().ok


def test_a_scope_that_is_deleted_meanwhile_does_not_come_back(place: Place) -> None:
    store, main, trial = forked(place, a=0)
    main.set("a", 1)
    trial.set("a", 2)
    with pytest.raises(ScopeNotFoundError):
        overtaken(main, trial, lambda: store.delete("agent:a"))
    assert store.scopes().items == []


def test_merging_beside_busy_writers(place: Place) -> None:
    store, main, trial = forked(place, counter=0)
    trial.set("result", 42)
    stop = threading.Event()

    def write() -> None:
        state = store.agent("a")
        while not stop.is_set():
            state.update("counter", lambda n: n + 1)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(5):
            trial.set("result", number)
            main.merge(trial)
            assert main.get("result") == number
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert store.verify().ok


def test_processes_that_merge_the_same_merge_it_once(tmp_path: Any) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    _, _, trial = forked(place, log=[])
    trial.extend("log", list(range(20)))
    place.close()
    code = (
        "import sys\nfrom holdfast import sync\n"
        f"with sync.open({place.url!r}, signer={place.signer!r}) as store:\n"
        "    state = store.agent('a')\n"
        "    sys.stdin.readline()\n"
        "    print(state.merge('trial').entry)\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=place.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=60)[0].strip() for process in started]
    assert sorted(told) == ["2", "None", "None"]
    store = place.open()
    assert store.agent("a").get("log") == list(range(20))
    assert store.verify().ok
    place.close()


@pytest.mark.parametrize("mode", ["before", "ambiguous-applied", "ambiguous-lost"])
def test_storage_that_fails_at_any_call_leaves_all_or_nothing(plain: Place, mode: str) -> None:
    _, _, trial = forked(plain, a=0, log=list(range(50)))
    nth = failed = 0
    while nth == failed:
        nth += 1
        trial.set("a", nth)
        trial.append("log", "x" * nth)
        faulty = Faulty(plain.storage())
        store = sync.Store(StoreHandle(open_core(plain.url, storage=faulty, **plain.options())))
        main = store.agent("a")
        before = everything(main)
        faulty.plan = (Fault("*", faulty.calls["*"] + nth, mode),)
        with suppress(Unavailable, OutcomeUnknown):
            main.merge("trial")
        failed += bool(faulty.failed)
        store.close()
        main = plain.open().agent("a")
        assert everything(main) in (before, everything(trial))
        main.merge("trial")
        assert everything(main) == everything(trial)
        assert main.merge("trial").entry is None
    assert nth > 8
    assert plain.open().verify().ok


# ---- refusals -------------------------------------------------------------------------------


def test_what_cannot_be_merged_is_refused(place: Place) -> None:
    store, main, trial = forked(place, a=0)
    other = store.agent("b")
    other.set("a", 1)
    with pytest.raises(PointNotFoundError, match="agent:b"):
        main.merge(other)
    with pytest.raises(TimelineNotFoundError):
        main.merge("nothing")
    with pytest.raises(ScopeNotFoundError):
        store.agent("nobody").merge("trial")
    for wrong in ("mine", None, 1, ["ours"]):
        with pytest.raises(InvalidInputError, match="strategy"):
            main.merge(trial, strategy=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        main.merge(None)
    trial.set("a", 1)
    reader = place.open(read_only=True).agent("a")
    assert reader.merge("trial", dry_run=True).keys == ["a"]
    with pytest.raises(ReadOnlyError):
        reader.merge("trial")
    assert main.merge(main).entry is None, "a timeline has nothing that is new to itself"


def test_a_point_of_the_other_timeline_is_merged_up_to_there(place: Place) -> None:
    _, main, trial = forked(place, a=0)
    trial.set("a", 1)
    safe = trial.checkpoint("safe")
    trial.set("a", 2)
    assert main.merge(safe).point == "trial@3"
    assert main.get("a") == 1
    assert main.merge(trial.at(4)).point == "trial@4"
    assert main.get("a") == 2


def test_gates_see_what_a_merge_writes(place: Place) -> None:
    store, main, trial = forked(place, a=0)
    trial.set("secret", 1)

    seen = []

    class NoSecrets(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            seen.extend((operation.kind, operation.value) for operation in request.operations)
            if any(operation.key == "secret" for operation in request.operations):
                raise GateRefusedError("no secrets in main")

    store.add_gate(NoSecrets())
    with pytest.raises(GateRefusedError):
        main.merge(trial)
    assert seen == [("merge", "trial@2"), ("set", 1)]
    assert everything(main) == {"a": 0, "started": True}


def test_more_than_an_entry_holds_says_what_to_do(place: Place) -> None:
    _, main, trial = forked(place)
    random = Random(1)
    for _ in range(3):
        with trial.change() as change:
            for number in range(3000):
                change.set(random.randbytes(125).hex(), number)
    with pytest.raises(LimitExceededError, match="adopt"):
        main.merge(trial)
    assert main.keys() == ["started"]


# ---- both faces, damage, verify -------------------------------------------------------------


def test_the_async_face() -> None:
    async def run() -> None:
        async with holdfast.open("memory:") as store:
            main = store.agent("a")
            await main.set("a", {"x": 1, "y": 1})
            trial = await main.fork("trial")
            await trial.set("a", {"x": 2, "y": 1})
            await main.set("a", {"x": 1, "y": 2})
            done = await main.merge(trial)
            assert (await main.get("a"), done.conflicts) == ({"x": 2, "y": 2}, [])
            await trial.set("a", 1)
            await main.set("a", 2)
            with pytest.raises(MergeConflictError):
                await main.merge("trial")
            await main.merge("trial", strategy=lambda conflict: conflict.theirs)
            assert await main.get("a") == 1

    asyncio.run(run())


def test_damaged_saves_do_not_keep_from_merging(place: Place) -> None:
    _, main, trial = forked(place, a={"x": 1})
    for number in range(600):
        main.set(f"k{number % 300}", number)
    trial.merge(main)
    trial.set("a", {"x": 1, "y": 2})
    main.set("a", {"x": 3})
    place.close()
    storage = place.storage()
    for key, row in rows_of(storage, b"N"):
        put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    main = place.open().agent("a")
    main.merge("trial")
    assert main.get("a") == {"x": 3, "y": 2}


def test_an_older_point_of_a_timeline_whose_newest_entry_is_damaged(place: Place) -> None:
    """Its past is found, and what it declares there counts; what cannot be read says nothing."""
    _, main, trial = forked(place, a=0)
    main.set("a", 1)
    trial.set("b", 2)
    good = trial._handle.place()[2]
    trial.set("c", 3)
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[-1]
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    main = place.open().agent("a")
    merged = main.merge(f"trial@{good}")
    assert (merged.base, merged.keys) == (("main@1",), ["b"])
    assert everything(main) == {"a": 1, "b": 2, "started": True}
    assert main.merge(f"trial@{good}").entry is None


def test_verify_notices_that_what_was_merged_is_another_history(place: Place) -> None:
    store, main, trial = forked(place, a=0)
    trial.set("a", 1)
    main.merge(trial)
    assert store.verify().ok
    place.close()
    storage = place.storage()
    # The whole newest entry of the trial is dropped, as by somebody who can write the file.
    put_row(storage, rows_of(storage, b"E")[-1][0], None)
    found = place.open().verify().findings
    assert any("not the entry that it merged" in finding.message for finding in found)


def test_copies_of_deleted_are_itself() -> None:
    assert copy(DELETED) is deepcopy(DELETED) is DELETED
    assert repr(DELETED) == "DELETED"


def two_sided(store: sync.Store, value: Any, ours: Any, theirs: Any, **terms: Any) -> sync.State:
    state = store.agent("dry")
    state.set("k", value, **terms)
    fork = state.fork("g")
    fork.set("k", theirs, **terms)
    state.set("k", ours, **terms)
    return state


@pytest.mark.parametrize("dry_run", [True, False])
def test_strategy_that_nobody_awaits_is_refused(store: sync.Store, dry_run: bool) -> None:
    async def decide(conflict: Any) -> Any:
        return conflict.theirs

    state = two_sided(store, 1, 2, 3)
    with pytest.raises(InvalidInputError, match="async def"):
        state.merge("g", strategy=decide, dry_run=dry_run)
    assert state.get("k") == 2
