"""Scopes: six kinds, isolated, listed, deleted; and the rules for names."""

from __future__ import annotations

import asyncio
import pickle
import unicodedata
from typing import Any

import pytest
from store_kit import Place

import holdfast
from holdfast import Gate, GateRequest, Scope, sync
from holdfast.errors import (
    Conflict,
    GateRefusedError,
    InvalidInputError,
    InvalidKeyError,
    InvalidScopeError,
    PointNotFoundError,
    ReadOnlyError,
    ScopeNotFoundError,
)

SIX = ["global", "agent:7", "workflow:7", "step:7/7", "session:7", "custom:7"]


@pytest.mark.spec("L3", "L34", "L42")
def test_six_kinds_are_apart(store: sync.Store) -> None:
    for name in SIX:
        store.scope(name).set("k", name)
    assert [store.scope(name).get("k") for name in SIX] == SIX
    assert {str(info.scope) for info in store.scopes().items} == set(SIX)


@pytest.mark.spec("L35", "L36", "L37", "L38", "L39")
def test_short_ways_to_name_them(store: sync.Store) -> None:
    states = [
        store.shared,
        store.agent("7"),
        store.workflow("7"),
        store.step("7", "7"),
        store.session("7"),
        store.custom("7"),
    ]
    assert [str(state.scope) for state in states] == SIX


@pytest.mark.spec("L40", "L46")
def test_the_document_s_example(place: Place) -> None:
    store = place.open()
    store.shared.set("app_version", "1.0.0")
    store.agent("agent_123").set("conversation", ["hello"])
    store.workflow("wf_456").set("progress", {"step": 3, "total": 10})
    store.step("wf_456", "validate").set("validation_results", {"passed": True})
    store.custom("namespace").set("app_version", "other")
    store = place.reopen()
    assert store.shared.get("app_version") == "1.0.0"
    assert store.agent("agent_123").get("conversation") == ["hello"]
    assert store.workflow("wf_456").get("progress") == {"step": 3, "total": 10}
    assert store.step("wf_456", "validate").get("validation_results") == {"passed": True}
    assert store.step("wf_456", "validate").scope.workflow == "wf_456"
    assert store.custom("namespace").keys() == ["app_version"]


@pytest.mark.spec("L42")
def test_ids_that_look_alike_do_not_meet(store: sync.Store) -> None:
    """Also where kind, id and key, joined with ':' or '/', would give the same text."""
    names = [
        Scope("agent", "1"),
        Scope("agent", "10"),
        Scope("agent", "1:k"),
        Scope("custom", "agent:1"),
        Scope("custom", "global"),
        Scope.step("a/b", "c"),
        Scope.step("a", "b/c"),
        Scope.step("a%2Fb", "c"),
        Scope("workflow", "a/b"),
    ]
    for number, scope in enumerate(names):
        store.scope(scope).set("k", number)
        store.scope(scope).set("1:k", -number)
    assert len({str(scope) for scope in names}) == len(names)
    assert [store.scope(scope).get("k") for scope in names] == list(range(len(names)))
    for scope in names:
        assert store.scope(str(scope)).get("k") == store.scope(scope).get("k")
        assert store.scope(scope).keys() == ["1:k", "k"]


def test_a_scope_is_a_plain_value() -> None:
    for name in SIX:
        scope = Scope.parse(name)
        assert Scope.parse(str(scope)) == scope == pickle.loads(pickle.dumps(scope))  # noqa: S301
        assert len({scope, Scope.parse(name)}) == 1
    assert Scope.step("a/b%", "c").workflow == "a/b%"
    assert Scope("agent", "7").workflow is None


def test_making_a_handle_touches_nothing(plain: Place) -> None:
    store, counting = plain.open_counting()
    counting.reset()
    store.agent("7").at  # noqa: B018
    store.scope("custom:x").on("what-if")
    assert not counting.calls
    assert store.scopes().items == []


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "agent",
        "agent:",
        "nonsense:7",
        "global:7",
        "global:",
        "../x",
        "agent:../x",
        "custom:..",
        "step:only-one",
        "step:a/b/c",
        "step:/b",
        "agent:a\0b",
        "agent:a\nb",
        "agent:a\\b",
        "agent:a//b",
        "agent:\ud800",
        "agent:$system",
        "agent:" + "x" * 257,
        "agent:" + unicodedata.normalize("NFD", "é"),
        None,
        7,
    ],
)
def test_names_that_are_no_scope(store: sync.Store, bad: object) -> None:
    with pytest.raises(InvalidScopeError) as caught:
        store.scope(bad)  # type: ignore[arg-type]
    assert len(str(caught.value)) > 20
    assert store.scopes().items == []


@pytest.mark.parametrize("bad", [7, None, "", b"x", "../x", "a\0b"])
def test_ids_that_cannot_be_used(store: sync.Store, bad: str) -> None:
    for make in (store.agent, store.workflow, store.session, store.custom):
        with pytest.raises(InvalidScopeError):
            make(bad)
    with pytest.raises(InvalidScopeError):
        store.step(bad, "s")
    with pytest.raises(InvalidScopeError):
        store.step("w", bad)


@pytest.mark.parametrize("bad", ["../x", "a\0b", "$x", "x" * 300, "\ud800"])
def test_the_error_shows_the_id(store: sync.Store, bad: str) -> None:
    with pytest.raises(InvalidScopeError) as caught:
        store.agent(bad)
    assert ascii(bad[:40]) in str(caught.value)


def test_listing_by_kind_and_prefix_in_pages(store: sync.Store) -> None:
    names = [f"agent:{n:03}" for n in range(25)] + [f"session:{n}" for n in range(5)]
    for name in names:
        store.scope(name).set("k", 1)
    assert [str(info.scope) for info in store.scopes().items] == names
    assert len(store.scopes(kind="session").items) == 5
    assert [info.scope.id for info in store.scopes(prefix="01").items] == [
        f"{n:03}" for n in range(10, 20)
    ]
    found: list[str] = []
    after = None
    pages = 0
    while True:
        page = store.scopes(kind="agent", limit=10, after=after)
        found += [str(info.scope) for info in page.items]
        pages += 1
        after = page.after
        if after is None:
            break
    assert (found, pages) == (names[:25], 3)
    assert all(info.created.tzinfo for info in store.scopes().items)
    with pytest.raises(InvalidInputError):
        store.scopes(kind="nonsense")


# ---- the end of a scope --------------------------------------------------------------------


@pytest.mark.spec("L43")
def test_delete_ends_one_scope_only(store: sync.Store) -> None:
    a, b = store.agent("1"), store.agent("10")
    for state in (a, b):
        state.set("k", 1)
        state.fork("trial").set("k", 2)
    store.delete(a)
    assert a.get("k") is None
    assert a.keys() == []
    assert not a.exists("k")
    assert [str(info.scope) for info in store.scopes().items] == ["agent:10"]
    assert b.get("k") == 1
    assert b.on("trial").get("k") == 2
    assert store.verify().findings == []


def test_delete_of_what_is_not_there(store: sync.Store) -> None:
    with pytest.raises(ScopeNotFoundError, match="agent:1"):
        store.delete("agent:1")
    store.agent("1").set("k", 1)
    store.delete("agent:1")
    with pytest.raises(ScopeNotFoundError):
        store.delete("agent:1")


def test_made_again_it_sees_nothing_old(place: Place) -> None:
    store, other = place.open(), place.open()
    state = store.agent("1")
    state.set("old", 1)
    state.append("list", 1)
    state.checkpoint("safe")
    state.fork("trial")
    with state.change(id="once") as change:
        change.set("by id", 1)
    assert other.agent("1").get("old") == 1
    store.delete(state)
    assert other.agent("1").get("old") is None, "another handle must see the end too"
    other.agent("1").set("new", 2)
    for seen in (store, other, place.open()):
        again = seen.agent("1")
        assert again.keys() == ["new"]
        assert again.get("old") is None
        assert again.length("list") == 0
        assert again.checkpoints() == []
        assert [line.name for line in again.timelines()] == ["main"]
        assert [entry.kinds for entry in again.log()] == [("set",)]
    again = place.reopen().agent("1")
    assert (again.keys(), again.get("old")) == (["new"], None)
    assert place.open().verify().findings == []


def test_writes_of_another_handle_go_to_the_new_one(place: Place) -> None:
    a, b = place.open(), place.open()
    b.agent("1").set("b", 1)
    a.agent("1").set("a", 1)
    a.delete("agent:1")
    b.agent("1").append("list", {"x": "long " * 20})
    assert a.agent("1").items() == b.agent("1").items() == [("list", [{"x": "long " * 20}])]
    assert a.verify().findings == []


def test_a_version_kept_from_before_a_deletion_never_fits(place: Place) -> None:
    """Entry numbers go on where those of the deleted scope ended, on every timeline."""
    store = place.open()
    kept = []
    for life in range(3):
        state = store.agent("1")
        kept += [state.set("k", life), state.set("k", life), state._handle.place()[2]]
        state.checkpoint("safe")
        trial = state.fork("trial")
        for number in range(3):
            kept.append(trial.set("k", number))
        store.delete(state)
        store = place.reopen()
        state = store.agent("1")
        for version in kept:  # of absent keys, too
            with pytest.raises(Conflict):
                state.set("k", "overwritten", if_version=version)
        state.set("k", "mine")
        state.append("l", 1)
        safe = state.checkpoint("now")
        trial = state.fork("trial")
        for timeline in (state, trial):
            for version in kept:
                with pytest.raises(Conflict):
                    timeline.set("k", "overwritten", if_version=version)
                with pytest.raises(Conflict):
                    timeline.delete("k", if_version=version)
                with pytest.raises(Conflict):
                    state.restore(safe, if_head=version)
                with pytest.raises(PointNotFoundError):
                    timeline.at(version)
            assert timeline.get("k") == "mine"
        assert state.set("k", life, if_version=state.item("k").version) > max(kept)
        assert state.at(0).keys() == []
        assert state.restore(0).keys == 0
        store.delete("agent:1")
    assert place.open().verify().findings == []


def test_made_again_it_can_be_looked_back_on(place: Place) -> None:
    store = place.open()
    for _ in range(2):
        state = store.agent("1")
        state.extend("list", range(700))
        for number in range(300):
            state.set(f"k{number % 7}", number)
        store.delete(state)
    state = store.agent("1")
    state.set("k", 1)
    first = state.item("k")
    state.set("k", 2)
    with state.change() as change:
        assert change.keys() == ["k"]
        change.set("n", 1)
    state = place.reopen().agent("1")
    assert state.at(first.version).items() == state.at(first.time).items() == [("k", 1)]
    assert [entry.sequence - first.version for entry in state.log()] == [2, 1, 0]
    assert state.replay(lambda count, _: count + 1, 0) == 3
    assert len(state.diff(0)) == 2
    assert place.open().stats()["entries"] == 3


def test_a_change_that_lists_a_deleted_scope_can_make_it_again(place: Place) -> None:
    store = place.open()
    store.agent("1").set("k", 1)
    store.delete("agent:1")
    with store.agent("1").change() as change:
        assert change.keys() == []
        change.set("new", 1)
    assert place.reopen().agent("1").keys() == ["new"]


def test_one_name_many_lives(plain: Place) -> None:
    """A name that is used again and again, as sessions are, never shows an older life."""
    store = plain.open()
    for number in range(520):
        store.session("s").set("k", number)
        assert store.session("s").keys() == ["k"]
        store.delete("session:s")
    store = plain.reopen()
    assert store.session("s").get("k") is None
    store.session("s").set("last", True)
    assert plain.reopen().session("s").keys() == ["last"]


def test_a_scope_that_failed_to_begin_shows_what_others_put_there(place: Place) -> None:
    """A refused write leaves nothing behind, not even in the handle's memory."""
    a, b = place.open(), place.open()
    with pytest.raises(InvalidInputError):
        b.agent("1").set("k", {1, 2})
    assert b.scopes().items == []
    a.agent("1").set("k", 1)
    assert b.agent("1").get("k") == 1
    assert b.agent("1").keys() == ["k"]
    assert len(b.agent("1").log()) == 1
    b.agent("1").set("k", 2)
    assert a.agent("1").get("k") == 2


# ---- keys ----------------------------------------------------------------------------------

BAD_KEYS = {
    "empty": "",
    "too long": "x" * 257,
    "dots": "a/../b",
    "only dots": "..",
    "backslash": "a\\b",
    "double slash": "a//b",
    "NUL": "a\0b",
    "CR": "a\rb",
    "LF": "a\nb",
    "other control": "a\x1bb",
    "reserved __": "__x",
    "reserved $$": "$$x",
    "owned $": "$machine/x",
    "slash first": "/a",
    "slash last": "a/",
    "surrogate": "a\udc80",
    "number": 7,
    "bytes": b"a",
    "none": None,
}


@pytest.mark.spec("X41")
@pytest.mark.parametrize("bad", BAD_KEYS.values(), ids=BAD_KEYS)
def test_keys_that_are_refused(store: sync.Store, bad: str) -> None:
    state = store.agent("1")
    state.set("k", 1)
    calls = [
        lambda: state.set(bad, 1),
        lambda: state.delete(bad),
        lambda: state.append(bad, 1),
        lambda: state.extend(bad, [1]),
        lambda: state.update(bad, lambda v: v),
    ]
    for call in calls:
        with pytest.raises(InvalidKeyError) as caught:
            call()
        assert str(caught.value)
    with pytest.raises(InvalidKeyError), state.change() as change:
        change.set("fine", 1)
        change.set(bad, 1)
    assert state.items() == [("k", 1)]


@pytest.mark.spec("X41")
def test_keys_at_the_limits(store: sync.Store) -> None:
    state = store.agent("1")
    keys = [
        "x",
        "é" * 256,
        "\u0915\u093c" * 128,
        "_x",
        "a.b",
        "a:b/c d",
        "日本語",
        "😀",
        "x" * 256,
        "a@b",
        "-",
    ]
    for key in keys:
        state.set(key, key)
    assert state.keys() == sorted(keys)
    assert state.get_many(keys) == {key: key for key in keys}


@pytest.mark.spec("X41")
def test_a_key_is_as_long_as_it_is_stored(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("e\u0301" * 256, 1)  # each two become one
    assert state.keys() == ["\u00e9" * 256]
    for longer in ("e\u0301" * 257, "\u0958" * 129):  # each one becomes two
        with pytest.raises(InvalidKeyError, match="at most 256"):
            state.set(longer, 1)
    state.set("\u0958" * 128, 2)
    key = state.keys()[0]
    assert len(key) == 256
    state.set(key, state.get(key))
    assert state.delete(key)


@pytest.mark.spec("X41")
def test_spellings_of_one_key_are_one_key(store: sync.Store) -> None:
    state = store.agent("1")
    composed, apart = "caf\u00e9", "cafe\u0301"
    state.set(apart, [1])
    assert state.keys() == [composed]
    for key in (composed, apart):
        assert state.get(key) == [1]
        assert state.exists(key)
        assert state.item(key) is not None
        assert state.get_many([key]) == {key: [1]}
        assert state.tail(key, 1) == state.slice(key) == [1]
        assert state.length(key) == 1
        assert len(state.log(key=key)) == 1
    version = state.item(apart).version  # type: ignore[union-attr]
    assert state.set(apart, [1, 2], if_version=version) == 2
    with state.change() as change:
        change.append(apart, 3)
        assert change.get(composed) == [1, 2, 3]
        assert change.keys() == [composed]
        assert change.keys(prefix=apart) == [composed]
    assert state.keys(prefix=apart) == [composed]
    assert state.get(composed) == [1, 2, 3]
    assert state.delete(apart)
    assert state.keys() == []


@pytest.mark.parametrize("end", ["delete", "erase"])
def test_a_view_of_an_ended_scope_is_no_point_of_the_next(place: Place, end: str) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("secret", 1)
    state.set("n", 0)
    view = state.at(1)
    getattr(store, end)("agent:a")
    state.set("n", 1)
    for use in (state.at, state.diff, state.restore, lambda one: state.fork("f", at=one)):
        with pytest.raises(PointNotFoundError, match="deleted and made again"):
            use(view)
    assert state.items() == [("n", 1)]


class Deleting(Gate):
    """Refuses to delete one key, and sets another in the place of a second one."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def before(self, request: GateRequest) -> None:
        for one in request.operations:
            self.asked.append(one.key)
            if one.key == "mine":
                raise GateRefusedError("not this one")
            if one.key == "other":
                one.kind, one.value = "set", 1


def test_a_delete_brings_no_scope_into_being(place: Place) -> None:
    store = place.open()
    state = store.agent("ghost")
    assert state.delete("k") is False
    assert state.delete("k", if_version=0) is False
    with pytest.raises(Conflict):
        state.delete("k", if_version=3)
    gate = Deleting()
    store.add_gate(gate)
    assert state.delete("k") is False
    with pytest.raises(GateRefusedError):
        state.delete("mine")
    assert gate.asked == ["k", "mine"]
    assert state._handle.place()[2] == 0
    assert store.scopes().items == []

    async def other_face() -> list[Any]:
        async with holdfast.open("memory:") as apart:
            return [await apart.agent("ghost").delete("k"), (await apart.scopes()).items]

    assert asyncio.run(other_face()) == [False, []]
    assert state.delete("other") is False
    assert state.get("other") == 1
    with place.open(read_only=True) as reader, pytest.raises(ReadOnlyError):
        reader.agent("none").delete("k")
