"""Owned prefixes: what is declared of a feature's keys, and what follows from it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from store_kit import Place

import holdfast
from holdfast import Book, Owned, sync
from holdfast.errors import InvalidInputError, LookupNotFoundError, NewerFormatError
from holdfast.store.rules.owned import TABLE


class Todo(msgspec.Struct):
    """A record."""

    text: str
    done: bool = False


class Mark(msgspec.Struct):
    """Another kind of record."""

    tags: list[str] = []


@pytest.fixture
def todos() -> Iterator[Owned]:
    yield Owned("todos/", restore=Owned.STAY, merge=Owned.UNION)
    forget("todos/")


def forget(*prefixes: str) -> None:
    for prefix in prefixes:
        TABLE.entries.pop(prefix, None)
    TABLE.forget()


def put(book: sync.Book[Todo], id: str, text: str = "") -> None:
    book.step(lambda page: page.put(id, Todo(text=text or id)))


# ---- the table ------------------------------------------------------------------------------


def test_keys_are_declared_once(todos: Owned) -> None:
    assert Owned("todos/", restore=Owned.STAY, merge=Owned.UNION) == todos
    for prefix in ("todos/", "todos/old/", "todos/*/notes/"):
        with pytest.raises(InvalidInputError, match="declared already"):
            Owned(prefix)
    for prefix in ("$agent/mine/", "$effects/x", "$machine/a/"):
        with pytest.raises(InvalidInputError, match="declared already"):
            assert TABLE.index
            Owned(prefix)
    other = Owned("todolist/")
    assert TABLE.index.rule("todolist/1") == other
    forget("todolist/")


def test_what_cannot_be_meant_is_refused() -> None:
    for prefix in ("", "a*/", "a/*b/", "*/*/", "a/*/b/*/", "$declared/x/", 7):
        with pytest.raises((InvalidInputError, holdfast.errors.InvalidKeyError)):
            Owned(prefix)  # type: ignore[arg-type]
    for rules in (
        {"restore": "union"},
        {"merge": "back"},
        {"revert": Owned.NEVER},
        {"why": "so"},
        {"copy": "here"},
    ):
        with pytest.raises(InvalidInputError):
            Owned("refused/", **rules)  # type: ignore[arg-type]
    for rules in ({"restore": Owned.ALWAYS}, {"merge": Owned.UNION}, {"needs": True}):
        with pytest.raises(InvalidInputError, match="star"):
            Owned("refused/*/", **rules)  # type: ignore[arg-type]
    assert not any("refused" in one for one in TABLE.entries)


def test_parts_have_the_rules_of_the_whole_but_for_their_own() -> None:
    whole = Owned("kit/", restore=Owned.STAY, copy=Owned.NOWHERE)
    part = whole.part("log/", revert=Owned.NEVER, why="it is a log")
    try:
        assert (part.prefix, part.restore, part.copy) == ("kit/log/", Owned.STAY, Owned.NOWHERE)
        rule = TABLE.index.rule
        assert (rule("kit/log/1"), rule("kit/1"), rule("kitchen")) == (part, whole, None)
        assert part.sticky("kit/log/1") == "kit/", "declared once, for the whole"
    finally:
        forget("kit/", "kit/log/")


def test_a_star_stands_for_a_name() -> None:
    rule, index = TABLE.index.rule("$machine/a/log/intent"), TABLE.index
    assert rule is not None
    assert rule.of("$machine/a/log/intent") == "$machine/a/log/"
    assert rule.sticky("$machine/a/log/intent") == "$machine/a/log/"
    assert index.along("$machine/a/now") == "$machine/a/data"
    assert index.leader("$machine/a/data") == "$machine/a/now"
    assert index.along("$agent/tasks/t/1") == "$handover/seen/t/1"
    assert index.leader("$handover/seen/t/1") == "$agent/tasks/t/1"
    for key in ("$machine/a/b/now", "$machine/a/nowhere", "$machine/now", "$agent/tasks"):
        assert index.along(key) is None, key
        assert index.leader(key) is None, key


def test_the_table_is_whole_in_a_process_that_imported_nothing() -> None:
    code = (
        "from holdfast.store.rules.owned import TABLE\n"
        "assert not TABLE.entries\n"
        "index = TABLE.index\n"
        "for key in ('$effects/open/a', '$retention/pin/a', '$needs/a', '$policy/a', '$drift/a'):\n"
        "    assert index.rule(key) is not None, key\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---- books ----------------------------------------------------------------------------------


def test_records_are_kept_read_and_removed(store: sync.Store, todos: Owned) -> None:
    state = store.agent("7")
    book = sync.Book(state, todos, Todo)
    for id in ("b", "a", "a/1"):
        put(book, id)
    assert book.get("a") == Todo(text="a")
    assert book.get("z") is None
    assert list(book.all()) == ["a", "a/1", "b"]
    assert list(book.all("a")) == ["a", "a/1"]
    assert list(book.all(after="a", limit=1)) == ["a/1"]
    assert state.get("todos/a") == {"text": "a"}, "what has its default is left out"
    book.step(lambda page: page.delete("a/1"))
    assert list(book.all()) == ["a", "b"]
    assert list(sync.Book(state.at(1), todos, Todo).all()) == ["b"]


def test_lists_and_records_of_several_kinds_below_one_prefix(
    store: sync.Store, todos: Owned
) -> None:
    state = store.agent("7")
    plain = sync.Book(state, todos, Todo)
    marks = sync.Book(state, todos, Mark, under="marks/")

    def write(page: Any) -> None:
        page.put("a", Todo(text="a"))
        page.beside(marks).put("a", Mark(tags=["x"]))
        page.beside(marks).put("b", Mark())
        page.extend("log", [Todo(text=text) for text in "xyz"])

    plain.step(write)
    assert list(marks.all()) == ["a", "b"]
    assert (marks.get("a"), plain.get("a")) == (Mark(tags=["x"]), Todo(text="a"))
    assert state.get("todos/marks/b") == {}, "also a default that is made each time"
    assert marks.versioned("a") == (Mark(tags=["x"]), state.log(limit=1)[0].sequence)
    assert marks.versioned("z") == (None, 0)
    assert [one.text for one in plain.tail("log", 2)] == ["y", "z"]
    assert [one.text for one in plain.slice("log", 0, 2)] == ["x", "y"]
    plain.step(lambda page: page.trim("log", keep_last=1))
    assert (plain.length("log"), plain.length("none")) == (1, 0)
    with pytest.raises(InvalidInputError, match="is a Todo"):
        plain.step(lambda page: page.extend("log", [Mark()]))  # type: ignore[list-item]


def test_a_step_is_one_change_and_done_again(store: sync.Store, todos: Owned) -> None:
    state = store.agent("7")
    book, calls = sync.Book(state, todos, Todo), []
    put(book, "a")

    def finish(page: Any) -> str:
        calls.append(page.get("a").text)
        if len(calls) == 1:
            put(book, "a", "bread")
        page.put("a", Todo(text=page.get("a").text, done=True))
        page.change.set("note", "done")
        return "said"

    assert book.step(finish, reason="so") == "said"
    assert (calls, book.get("a")) == (["a", "bread"], Todo(text="bread", done=True))
    last = state.log(limit=1)[0]
    assert (last.cause.reason, set(last.keys)) == ("so", {"todos/a", "note"})
    book.step(lambda page: page.get("a"))
    assert state.log(limit=1)[0] == last, "what writes nothing makes no entry"


def test_pages_of_several_states_and_of_a_users_change(store: sync.Store, todos: Owned) -> None:
    ours, theirs = store.agent("7"), store.agent("8")
    book, other = sync.Book(ours, todos, Todo), sync.Book(theirs, todos, Todo)
    put(book, "a")

    def move(page: Any) -> None:
        found = page.get("a")
        page.delete("a")
        page.beside(other).put("a", found)

    book.step(move)
    assert (list(book.all()), list(other.all())) == ([], ["a"])
    with ours.change() as change:
        change.set("plan", 1)
        book.page(change).put("b", Todo(text="b"), class_="sensitive")
    assert list(book.all()) == ["b"]
    with ours.change() as change, pytest.raises(InvalidInputError, match="not of another"):
        other.page(change)


def test_a_rule_about_all_records_is_kept_beside_others(store: sync.Store, todos: Owned) -> None:
    """`page.all` as `book.all` would let both book the same."""
    book, other = (sync.Book(store.agent("7"), todos, Todo) for _ in range(2))
    seen = []

    def only_one(page: Any) -> bool:
        seen.append([one.text for one in page.all("h/").values()])
        if not seen[1:]:
            put(other, "h/theirs")  # between the look and the commit of this step
        if seen[-1]:
            return False
        page.put("h/mine", Todo(text="mine"))
        return True

    put(book, "i/another")
    assert book.step(only_one) is False
    assert seen == [[], ["h/theirs"]]
    assert list(book.all()) == ["h/theirs", "i/another"]


def test_what_is_no_record_is_refused(store: sync.Store, todos: Owned) -> None:
    state = store.agent("7")
    book = sync.Book(state, todos, Todo)
    with pytest.raises(InvalidInputError, match="is a Todo"):
        book.step(lambda page: page.put("a", {"text": "a"}))  # type: ignore[arg-type]
    for arguments in ((store, todos, Todo), (state, "todos/", Todo), (state, todos, dict)):
        with pytest.raises(InvalidInputError):
            sync.Book(*arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="not one of"):
        Book(state, todos, Todo)  # type: ignore[arg-type]

    async def step(page: Any) -> None: ...

    with pytest.raises(InvalidInputError, match="plain function"):
        book.step(step)
    state.set("todos/new", {"text": "a", "colour": "red"})
    with pytest.raises(NewerFormatError, match="todos/"):
        book.get("new")


def test_the_async_face(todos: Owned) -> None:
    async def use() -> None:
        async with holdfast.open("memory:") as store:
            book = Book(store.agent("7"), todos, Todo)
            await book.step(lambda page: page.put("a", Todo(text="a")))
            assert await book.get("a") == Todo(text="a")
            assert list(await book.all()) == ["a"]

    asyncio.run(use())


# ---- rules of a user's own ------------------------------------------------------------------


def test_what_stays_is_declared_with_the_first_record(place: Place, todos: Owned) -> None:
    state = place.open().agent("7")
    book = sync.Book(state, todos, Todo)
    before = state.checkpoint("before")
    put(book, "a")
    state.restore(before)
    assert list(book.all()) == ["a"]
    forget("todos/")  # a process that does not know the feature leaves them alone, too
    state.restore(before)
    assert state.get("todos/a") == {"text": "a"}


def test_a_union_brings_what_is_not_known(store: sync.Store, todos: Owned) -> None:
    state = store.agent("7")
    book = sync.Book(state, todos, Todo)
    put(book, "old")
    fork = state.fork("other")
    there = sync.Book(fork, todos, Todo)
    put(there, "theirs")
    put(there, "both", "theirs")
    put(there, "old", "changed there")
    put(book, "both", "ours")
    merged = state.merge("other")
    assert {id: one.text for id, one in book.all().items()} == {
        "old": "old",
        "theirs": "theirs",
        "both": "ours",
    }
    assert merged.left == ("todos/both", "todos/old")


def test_a_union_counts_for_adoptions_too(store: sync.Store, todos: Owned) -> None:
    state = store.agent("7")
    book = sync.Book(state, todos, Todo)
    put(book, "old")
    fork = state.fork("other")
    put(sync.Book(fork, todos, Todo), "theirs")
    put(book, "ours")
    state.restore(fork.checkpoint("there"))
    assert list(book.all()) == ["old", "ours", "theirs"]


class Move(msgspec.Struct, array_like=True, rename={"origin": "from"}):
    """A record without names."""

    origin: str
    to: str
    note: str = ""


class Way(msgspec.Struct, rename={"origin": "from"}):
    """A record with another name for a field."""

    origin: str
    to: str = "home"


def test_a_book_for_each_name_and_records_without_the_names_of_fields(place: Place) -> None:
    plans = Owned("plans/*/", restore=Owned.STAY)
    try:
        with place.open() as store:
            state = store.agent("1")
            moves = sync.Book(state, plans, Move, name="a", under="log/")
            ways = sync.Book(state, plans, Way, name="a")
            moves.step(lambda page: page.extend("all", [Move("x", "y"), Move("y", "z", "late")]))
            ways.step(lambda page: page.put("now", Way("x")))
            assert state.get("plans/a/log/all") == [["x", "y"], ["y", "z", "late"]]
            assert state.get("plans/a/now") == {"from": "x"}
            assert moves.tail("all", 2) == [Move("x", "y"), Move("y", "z", "late")]
            assert ways.get("now") == Way("x")
            assert sync.Book(state, plans, Way, name="b").get("now") is None
            ways.step(lambda page: page.put("now", None))  # nothing, at a key that is there
            assert ways.get("now") is None
            assert state.exists("plans/a/now")
            for name in ("", "a/b"):
                with pytest.raises(InvalidInputError, match="a name for the star"):
                    sync.Book(state, plans, Way, name=name)
    finally:
        forget("plans/*/")


def test_nothing_is_found_before_the_first_record_and_a_slip_is_told_behind_it(
    store: sync.Store, todos: Owned
) -> None:
    state = store.custom("plans")
    book = sync.Book(state, todos, Todo)
    assert book.find("by_text", {"text": "milk"}).items == []
    state.declare(holdfast.Lookup("by_text", "todos/", {"text": "text"}))
    put(book, "a", "milk")
    assert [id for id, _ in book.find("by_text", {"text": "milk"}).items] == ["a"]
    with pytest.raises(LookupNotFoundError):
        book.find("by_txt")
