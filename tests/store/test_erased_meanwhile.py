"""A scope that is erased by others while it is read or written: it is absent, or begins anew."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

from holdfast import Lookup, sync
from holdfast.errors import Conflict, ScopeNotFoundError
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import Counting
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core

LONG = [f"{number} {'x' * 90}" for number in range(200)]
OLD = {"k": "old", "list": [1, 2], "long": LONG, "text": "y" * 3000, "words": ["z" * 200] * 4}
NEW = {"k": "new", "list": [3]}


class Late(Counting):
    """A storage that lets others act before its nth call, and whose lock holds nobody back."""

    due = 0

    def turn(self) -> Any:
        return nullcontext()

    def commit(self, batch: Batch) -> None:
        self._count("commit")
        self.inner.commit(batch)

    def _count(self, name: str) -> None:
        self.due -= 1
        if self.due == 0:
            self.act()

    def act(self) -> None:
        """What others do."""


def fill(store: sync.Store, values: dict[str, Any]) -> None:
    with store.agent("a").change() as change:
        for key, value in values.items():
            change.set(key, value)


Act = Callable[[sync.State], Any]
READS: dict[str, Act] = {
    "get": lambda state: state.get("k"),
    "text": lambda state: state.get("text"),
    "long": lambda state: state.get("long"),
    "items": lambda state: dict(state.items()),
    "many": lambda state: state.get_many(["k", "text", "long"]),
    "tail": lambda state: state.tail("long", 3),
    "item": lambda state: getattr(state.item("k"), "value", None),
}
WRITES: dict[str, Act] = {
    "set": lambda state: state.set("k", "mine"),
    "append": lambda state: state.append("list", 9),
    "extend": lambda state: state.extend("long", LONG[:3]),
    "append to what is read": lambda state: state.append("words", "last"),
    "set what is long": lambda state: state.set("long", [*LONG, "last"]),
    "update": lambda state: state.update("list", lambda value: [*(value or []), 9]),
    "delete": lambda state: state.delete("text"),
}


class Lives:
    """A store in which one scope lives, and is erased, again and again."""

    def __init__(self, place: Place, *, wait: bool) -> None:
        self.place = place
        self.wait = wait
        self.storage = Late(place.storage())
        self.store = place.open()

    def begin(self, values: dict[str, Any]) -> sync.State:
        """Erase the scope, and make it again if it is to have values."""
        with suppress(ScopeNotFoundError):
            self.store.erase("agent:a", wait=self.wait)
        if values:
            fill(self.store, values)
        return self.store.agent("a")


@pytest.fixture(params=["plain", "sealed", "sealed, at once"])
def lives(tmp_path: Path, request: Any) -> Lives:
    place = Place("memory", tmp_path, sealed=request.param != "plain")
    return Lives(place, wait=request.param != "sealed")


def each_moment(
    lives: Lives, do: Act, *, again: bool, fresh: bool
) -> list[tuple[Any, dict[str, Any]]]:
    """What it gives, and what is there then, if the scope is erased before each of its calls."""
    found: list[tuple[Any, dict[str, Any]]] = []
    place, storage, store = lives.place, lives.storage, lives.store
    storage.act = lambda: lives.begin(NEW if again else {})  # type: ignore[assignment,method-assign]
    for nth in range(1, 200):
        lives.begin(OLD)
        core = open_core(place.url, storage=storage, **place.options())
        state = sync.Store(StoreHandle(core)).agent("a")
        if not fresh:
            assert state.get("k") == "old"
        storage.due = nth
        answer = do(state)
        over = storage.due > 0
        storage.due = 0
        found.append((answer, dict(store.agent("a").items())))
        if over:
            assert store.verify().ok
            return found
    raise AssertionError("it never ends")


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", READS)
def test_reads_give_one_life_of_it(lives: Lives, name: str, again: bool, fresh: bool) -> None:
    """The old state, none, or that of the scope which has the name now; never a part of one."""
    states: list[dict[str, Any]] = [OLD, {}, NEW] if again else [OLD, {}]
    expected = [READS[name](lives.begin(values)) for values in states]
    for answer, _ in each_moment(lives, READS[name], again=again, fresh=fresh):
        assert answer in expected


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_blind_writes_are_never_refused(lives: Lives, name: str, again: bool, fresh: bool) -> None:
    """They stand in the old life, or are the beginning or the next entry of another."""
    expected = [NEW if again else {}]  # it was written before the scope was erased
    for values in (OLD, *expected):
        state = lives.begin(values)
        WRITES[name](state)
        expected.append(dict(state.items()))
    for _, there in each_moment(lives, WRITES[name], again=again, fresh=fresh):
        assert there in expected


def test_what_was_read_of_an_erased_scope_is_expected(lives: Lives) -> None:
    """A change that read it is in conflict, and writes nothing into a new life."""

    def both(state: sync.State) -> Any:
        try:
            with state.change() as change:
                change.set("seen", [change.get("text"), change.get("long")])
        except Conflict:
            return None

    expected = [NEW, {**NEW, "seen": [None, None]}, {**OLD, "seen": [OLD["text"], LONG]}]
    for _, there in each_moment(lives, both, again=True, fresh=False):
        assert there in expected


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_lookup_is_declared(
    lives: Lives, again: bool, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands, or went with the scope that it was declared for."""
    begin, lookup = lives.begin, Lookup("by_n", "item/", ("n",))

    def with_items(values: dict[str, Any]) -> sync.State:
        state = begin(values)
        if values:
            state.set("item/1", {"n": 1})
            if known and values is OLD:
                state.declare(lookup)
        return state

    monkeypatch.setattr(lives, "begin", with_items)
    for _, there in each_moment(
        lives, lambda state: state.declare(lookup), again=again, fresh=True
    ):
        assert there.get("k") in ("old", "new", None)
        if lookup in lives.store.agent("a").declared():
            assert lives.store.agent("a").find("by_n", n=1) is not None
