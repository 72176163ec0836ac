"""Lookups: what is found, in which order, at which point, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import Begins, Lookup, Range, Sticky, sync
from holdfast.errors import (
    Conflict,
    InvalidInputError,
    LimitExceededError,
    LookupNotBuiltError,
    LookupNotFoundError,
    ReadOnlyError,
)
from holdfast.store.history.handle import LineHandle
from holdfast.store.history.restore import rebuild_lookup
from holdfast.store.read import lookup_terms
from holdfast.store.rules.lookup import BUILT, TERMS

BY_STATUS = Lookup("by_status", prefix="tasks/", terms={"status": "status", "due": "plan.due"})
BY_TAG = Lookup("by_tag", prefix="tasks/", terms={"tag": "tags[]"})
START = datetime(2026, 11, 15, tzinfo=UTC)


def task(status: Any, due: Any = None, *tags: str, **more: Any) -> dict[str, Any]:
    plan = {} if due is None else {"due": due}
    return {"status": status, "plan": plan, "tags": list(tags), **more}


def found(state: Any, lookup: str, /, *args: Any, **asked: Any) -> list[str]:
    return [key.removeprefix("tasks/") for key in state.find(lookup, *args, **asked).items]


@pytest.fixture
def state(place: Place) -> sync.State:
    state = place.open().agent("a")
    state.set("tasks/1", task("open", 3, "x", "y"))
    state.set("tasks/2", task("done", 1, "x"))
    state.declare(BY_STATUS, BY_TAG)
    state.set("tasks/3", task("open", 2))
    state.set("tasks/4", task("open", None, "z"))
    state.set("other", task("open", 9, "x"))
    return state


def test_equality_range_prefix_and_several_terms(state: sync.State) -> None:
    assert found(state, "by_status", status="open") == ["4", "3", "1"]  # the one without due first
    assert found(state, "by_status", status="open", due=3) == ["1"]
    assert found(state, "by_status", status="open", due=Range(ge=2)) == ["3", "1"]
    assert found(state, "by_status", status="open", due=Range(gt=2, le=3)) == ["1"]
    assert found(state, "by_status", {"status": Begins("op")}, due=Range(lt=3)) == ["3"]
    assert found(state, "by_status", due=1) == ["2"]
    assert found(state, "by_status") == ["2", "4", "3", "1"]
    assert found(state, "by_tag", tag="x") == ["1", "2"]
    assert found(state, "by_status", status="nothing of it") == []


def test_order_limit_and_paging(state: sync.State) -> None:
    assert found(state, "by_status", status="open", order="-due") == ["1", "3", "4"]
    assert found(state, "by_status", order="-status", limit=2) == ["1", "3"]
    for order in ("due", "-due"):
        every = found(state, "by_status", status="open", order=order)
        gathered, after = [], None
        while True:
            page = state.find("by_status", status="open", order=order, limit=2, after=after)
            gathered += page.items
            after = page.after
            if after is None:
                break
        assert [key.removeprefix("tasks/") for key in gathered] == every
    page = state.find("by_status", status="open", values=True, order="due", limit=1)
    assert page.items == [("tasks/4", task("open", None, "z"))]


def test_every_way_a_value_changes(state: sync.State) -> None:
    state.set("tasks/1", task("done", 3))
    assert found(state, "by_status", status="open") == ["4", "3"]
    assert found(state, "by_tag", tag="y") == []
    state.update("tasks/3", lambda value: {**value, "status": "done"})
    state.delete("tasks/4")
    assert found(state, "by_status", status="open") == []
    with state.change() as change:
        change.set("tasks/5", task("open", 1))
        change.set("tasks/5", task("late", 1))
        change.set("tasks/6", task("late", 0))
        change.delete("tasks/2")
    assert found(state, "by_status") == ["3", "1", "6", "5"]
    entry = state.log(limit=1)[0]
    state.revert(entries=[entry])
    assert found(state, "by_status") == ["2", "3", "1"]


def test_long_values_and_lists_that_grow(state: sync.State) -> None:
    filler = {f"field {n}": "text " * 20 for n in range(60)}
    long = task("open", 5, "long", **filler)
    state.set("tasks/9", long)
    state.set("tasks/9", {**long, "status": "shut"})  # a patch of a tree
    assert found(state, "by_status", status="shut", due=5) == ["9"]
    assert "9" not in found(state, "by_status", status="open")
    state.set("tasks/9", {**long, "tags": [f"tag {n}" for n in range(500)]})
    assert found(state, "by_tag", tag="tag 499") == ["9"]
    state.declare(Lookup("by_role", prefix="talk/", terms={"role": "[].role"}))
    for n in range(300):
        state.append("talk/1", {"role": ["user", "tool"][n % 2], "text": "words " * 10})
    assert state.find("by_role", role="tool").items == ["talk/1"]
    state.extend("talk/1", [{"role": "system"}, {"role": "user"}])
    assert state.find("by_role", role="system").items == ["talk/1"]
    assert state.find("by_role", role=Begins("")).items == ["talk/1"]  # once, not three times
    state.set("talk/1", [])
    assert state.find("by_role").items == []


def test_a_key_comes_once_on_all_pages(state: sync.State) -> None:
    for n in range(20):
        state.set(f"tasks/m{n:02}", task("many", n, *[f"t{(n + m) % 9}" for m in range(4)]))
    for order in ("tag", "-tag"):
        gathered, after = [], None
        while True:
            page = state.find("by_tag", tag=Begins("t"), order=order, limit=3, after=after)
            gathered += page.items
            after = page.after
            if after is None:
                break
        assert sorted(gathered) == [f"tasks/m{n:02}" for n in range(20)]


def test_types_are_never_confused(state: sync.State) -> None:
    terms = {"i": 1, "t": "1", "b": True, "f": 1.0, "n": None, "d": START, "y": b"1"}
    for key, status in terms.items():
        state.set(f"tasks/{key}", task(status))
    for key, status in terms.items():
        assert found(state, "by_status", status=status) == [key]
    assert found(state, "by_status", status=Range(ge=0)) == ["i"]
    assert found(state, "by_status", status=Range(ge=0.0)) == ["f"]
    assert found(state, "by_status", status=Range(gt=START - timedelta(1))) == ["d"]
    state.set("tasks/nan", task(float("nan")))
    assert found(state, "by_status", status=float("nan")) == ["nan"]
    assert found(state, "by_status", status=Range(ge=0.0)) == ["f"]


def test_objects_and_containers_are_no_terms(state: sync.State) -> None:
    state.set("tasks/c", {"status": ["open"], "plan": {"due": {"at": 1}}})
    state.set("tasks/t", holdfast.Typed("Task", 1, {"status": "typed", "plan": {"due": 4}}))
    assert "c" not in found(state, "by_status")
    assert found(state, "by_status", status="typed", due=4) == ["t"]


def test_long_texts_are_told_apart(state: sync.State) -> None:
    for n in (1, 2):
        state.set(f"tasks/l{n}", task("long " * 100 + str(n)))
    assert found(state, "by_status", status="long " * 100 + "2") == ["l2"]
    assert found(state, "by_status", status=Begins("long long")) != []
    assert found(state, "by_status", status="long " * 100) == []


def test_at_any_point_and_in_every_process(place: Place, state: sync.State) -> None:
    before = state._handle.place()[2]
    other = place.open().agent("a")
    other.set("tasks/1", task("shut"))
    assert found(state, "by_status", status="shut") == ["1"]
    assert found(state.at(before), "by_status", status="open") == ["4", "3", "1"]
    assert found(state.at(before), "by_status", status="shut") == []
    with pytest.raises(LookupNotFoundError):
        state.at(2).find("by_status")
    again = place.reopen().agent("a")
    assert found(again, "by_status", status="shut") == ["1"]
    assert found(again.at(before), "by_status", status="open", order="-due") == ["1", "3", "4"]


def test_forks_restores_and_adoption_take_it_along(state: sync.State) -> None:
    safe = state.checkpoint("safe")
    trial = state.fork("trial")
    trial.set("tasks/1", task("tried"))
    assert found(trial, "by_status", status="tried") == ["1"]
    assert found(state, "by_status", status="tried") == []
    state.adopt(trial)
    assert found(state, "by_status", status="tried") == ["1"]
    assert state.restore(safe).keys == len(state.keys()) + 2  # the declarations are keys, too
    assert found(state, "by_status", status="open") == ["4", "3", "1"]


def test_a_restore_to_before_the_declaration(place: Place, state: sync.State) -> None:
    state.restore(2)
    if state.declared():
        assert found(state, "by_status") == ["2", "1"]
    state.declare(BY_STATUS)
    assert found(state, "by_status") == ["2", "1"]
    assert place.open().verify().ok


def test_another_declaration_of_the_same_name(place: Place, state: sync.State) -> None:
    state.declare(Lookup("by_status", prefix="tasks/", terms={"due": "plan.due"}))
    assert found(state, "by_status", due=Range(ge=2)) == ["3", "1"]
    with pytest.raises(InvalidInputError, match="status"):
        state.find("by_status", status="open")
    state.undeclare(BY_STATUS)
    with pytest.raises(LookupNotFoundError, match="by_tag"):
        state.find("by_status")
    assert not state.keys(f"{TERMS}by_status/")
    state.set("tasks/1", task("later"))
    state.declare(BY_STATUS)
    assert found(state, "by_status", status="later") == ["1"]
    assert place.open().verify().ok


def test_a_declaration_that_comes_back(
    place: Place, state: sync.State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody kept its terms while it was away, also where removing them was cut short."""
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.store.state.settle_lookups", lambda handle: None)
        state.undeclare(BY_STATUS)
    state.set("tasks/1", task("later"))
    state.declare(BY_STATUS)
    assert found(state, "by_status", status="later") == ["1"]
    assert place.open().verify().ok


def test_a_revert_leaves_a_lookup_whole(place: Place, state: sync.State) -> None:
    declare = next(e for e in state.log(limit=None) if "$declared/lookup/by_tag" in e.keys)
    undone = state.revert(entries=[declare])
    assert (undone.done, undone.entry) == ([], None)
    state.set("tasks/2", task("done", 1, "x"))
    assert found(state, "by_tag", tag="x") == ["1", "2"]
    assert place.open().verify().ok


def test_building_is_resumed_beside_writers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_terms, "KEYS", 7)
    state, other = place.open().agent("a"), place.open().agent("a")
    for n in range(60):
        state.set(f"tasks/{n:02}", task("old", n))
    write, turn = LineHandle.write, iter(range(100))

    def interrupted(*args: Any) -> Any:
        written = write(*args)
        if next(turn) == 4:
            raise KeyboardInterrupt
        return written

    monkeypatch.setattr(LineHandle, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        state.declare(BY_STATUS)
    with pytest.raises(LookupNotBuiltError, match="being built"):
        state.find("by_status")
    other.set("tasks/01", task("new", 1))  # built already
    other.set("tasks/50", task("new", 50))  # not yet
    other.delete("tasks/51")
    other.set("tasks/99", task("new", 99))
    other.declare(BY_STATUS)
    assert found(other, "by_status", status="new") == ["01", "50", "99"]
    assert len(found(state, "by_status", status="old")) == 57
    assert place.open().verify().ok
    biggest = max(len(e.keys) for e in state.log(limit=None))
    assert biggest <= 2  # nobody sees the terms


def test_writers_at_the_same_time_as_the_building(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_terms, "KEYS", 5)
    store = place.open()
    state = store.agent("a")
    for n in range(100):
        state.set(f"tasks/{n:02}", task("old", n))
    stop = threading.Event()

    def write() -> None:
        mine, n = place.open().agent("a"), 0
        while not stop.is_set():
            mine.set(f"tasks/{n * 37 % 100:02}", task(f"new {n % 3}", n))
            n += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        state.declare(BY_STATUS)
    finally:
        stop.set()
        thread.join()
    expected = {key for key, value in state.items("tasks/") if value["status"] == "new 1"}
    assert set(state.find("by_status", status="new 1").items) == expected
    assert store.verify().ok


def test_terms_are_seen_by_nobody_else(place: Place, state: sync.State) -> None:
    before = state._handle.place()[2]
    entry = state.set("tasks/1", task("seen", 1))
    assert state.keys(limit=1) == ["other"]
    assert not [key for key, _ in state.items() if key.startswith("$")]
    assert state.log(limit=1)[0].operations == (("set", "tasks/1"),)
    assert state.diff(before).keys == ["tasks/1"]
    assert state.revert(entries=[entry]).done == ["tasks/1"]
    with pytest.raises(InvalidInputError):
        state.set(f"{TERMS}by_status/x", 1)
    with pytest.raises(InvalidInputError):
        state.set(f"{BUILT}by_status", 1)
    assert place.open().verify().ok


def test_in_a_change_it_is_expected(place: Place, state: sync.State) -> None:
    other = place.open().agent("a")
    with pytest.raises(Conflict), state.change() as change:
        assert change.find("by_status", status="open", limit=1).items == ["tasks/4"]
        other.set("tasks/0", task("open"))
        change.set("next", 1)
    with state.change() as change:
        first = change.find("by_status", status="open", order="-due", values=True).items[0]
        change.set(first[0], {**first[1], "status": "taken"})
        with pytest.raises(InvalidInputError, match="find before"):
            change.find("by_status")
    assert found(state, "by_status", status="taken") == ["1"]


def test_what_cannot_be_meant_is_refused(state: sync.State) -> None:
    for asked in (
        {"colour": 1},
        {"status": []},
        {"order": "colour"},
        {"order": "due"},
        {"status": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"after": "§"},
        {"limit": -1},
        {"values": 1},
    ):
        with pytest.raises(InvalidInputError):
            state.find("by_status", **asked)
    for make in (
        lambda: Lookup("a/b", terms="x"),
        lambda: Lookup("", terms="x"),
        lambda: Lookup("a"),
        lambda: Lookup("a", terms=["x[]", "y[]"]),
        lambda: Lookup("a", terms="x..y"),
        lambda: Lookup("a", terms="x[y]"),
        lambda: Lookup("a", prefix="$terms/", terms="x"),
        lambda: Lookup("a", prefix=7, terms="x"),  # type: ignore[arg-type]
        lambda: Lookup("a", terms={"x": 1}),  # type: ignore[dict-item]
        lambda: Lookup("a", terms=[f"t{n}" for n in range(9)]),
    ):
        with pytest.raises(InvalidInputError):
            make()
    with pytest.raises(LookupNotFoundError):
        rebuild_lookup(state._handle, "nothing")
    with pytest.raises(LookupNotFoundError):
        state.on("main").find("nothing")
    with pytest.raises(LimitExceededError, match="by_tag"):
        state.set("tasks/1", task("open", 1, *[f"tag {n}" for n in range(1001)]))
    assert found(state, "by_tag", tag="y") == ["1"]  # nothing of it was applied


def test_a_store_for_reading_finds_and_builds_nothing(place: Place, state: sync.State) -> None:
    reader = place.open(read_only=True, signer=None).agent("a")
    assert found(reader, "by_status", status="done") == ["2"]
    with pytest.raises(ReadOnlyError):
        rebuild_lookup(reader._handle, "by_status")


def test_the_whole_scope_and_names_of_terms_that_are_taken(state: sync.State) -> None:
    state.declare(Lookup("all", terms={"order": "status", "limit": "plan.due"}))
    page = state.find("all", {"order": "open", "limit": 9})
    assert page.items == ["other"]
    state.declare(Sticky("kept/"))
    assert len(state.find("all").items) == 5


def test_a_name_has_one_form(state: sync.State) -> None:
    one, other = "caf\u00e9", "cafe\u0301"
    state.declare(Lookup(other, terms="status"))
    assert state.find(one).items == state.find(other).items
    state.declare(Lookup(one, terms={"due": "plan.due"}))
    assert state.find(other, due=9).items == ["other"]
    rebuild_lookup(state._handle, other)
    assert state.undeclare(Lookup(one, terms="x")) == 1


def test_the_async_face(place: Place) -> None:
    async def run() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("b")
            await state.set("tasks/1", task("open", 1, "x"))
            await state.declare(BY_STATUS)
            await state.set("tasks/2", task("open", 2))
            page = await state.find("by_status", status="open", order="-due", limit=1)
            assert page.items == ["tasks/2"]
            async with state.change() as change:
                found = await change.find("by_status", status="open", due=Range(lt=2), values=True)
                change.set(found.items[0][0], task("done"))
            assert (await state.find("by_status", status="open")).items == ["tasks/2"]
            assert (await state.at(1).keys()) == ["tasks/1"]
            await state.restore(state._handle.place()[2] - 1)
            assert len((await state.find("by_status", status="open")).items) == 2
            await state.declare(BY_STATUS, rebuild=True)
            assert await state.undeclare(BY_STATUS) == 1
            assert (await store.verify()).ok

    asyncio.run(run())


@pytest.mark.parametrize("most", [500, 1])
def test_sticky_keys_keep_their_terms(
    place: Place, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A restore leaves them alone, so the lookup must not go back for them either."""
    monkeypatch.setattr("holdfast.store.read.lookup_terms.MOST_KEPT", most)
    store = place.open()
    state = store.agent("a")
    state.declare(Sticky("tasks/kept/"), BY_STATUS, BY_TAG)
    for n in range(4):
        state.set(f"tasks/kept/{n}", task("then", n, "x"))
        state.set(f"tasks/{n}", task("then", n, "x"))
    safe = state.checkpoint("safe")
    state.set("tasks/kept/1", task("now", 1, "y"))
    state.delete("tasks/kept/2")
    state.set("tasks/kept/9", task("now", 9))
    state.set("tasks/1", task("now", 1))
    restored = state.restore(safe)
    assert found(state, "by_status", status="now") == ["kept/1", "kept/9"]
    assert found(state, "by_status", status="then") == ["0", "kept/0", "1", "2", "3", "kept/3"]
    assert found(state, "by_tag", tag="y") == ["kept/1"]
    if most == 500:
        assert restored.root == state.root()
    assert store.verify().ok
    again = place.reopen().agent("a")
    assert found(again, "by_status", status="now") == ["kept/1", "kept/9"]
    again.restore(restored.backup)
    assert found(again, "by_status", status="now") == ["1", "kept/1", "kept/9"]
    assert place.open().verify().ok


def test_terms_follow_a_merge_and_a_long_value(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.long.SHORT", 10)
    state = place.open().agent("1")
    state.declare(Lookup("by_status", "tasks/", "status"))
    state.set("tasks/1", {"status": "open"})
    state.set("tasks/2", {"status": "open"})
    trial = state.fork("trial")
    trial.set("tasks/1", {"status": "done"})
    trial.set("tasks/3", {"status": "open"})
    assert state.merge(trial).keys == ["tasks/1", "tasks/3"]
    assert state.find("by_status", status="open").items == ["tasks/2", "tasks/3"]
    with state.open_write("tasks/2") as file:
        file.write(b"x" * 50_000)
    assert state.find("by_status", status="open").items == ["tasks/3"]
    assert place.open().verify().findings == []


def test_a_merge_where_a_lookup_is_about_all_keys(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    state.declare(Lookup("all", "", "status"))
    state.set("one", {"status": "open"})
    trial = state.fork("trial")
    trial.set("two", {"status": "open"})
    state.set("one", {"status": "done"})
    assert state.merge(trial).keys == ["two"]
    assert state.find("all", status="open").items == ["two"]
    assert store.verify().findings == []
