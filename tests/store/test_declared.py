"""Declarations: rules of a scope that are state of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import Sticky, sync
from holdfast.errors import (
    DamagedRecordError,
    InvalidInputError,
    InvalidKeyError,
    NewerFormatError,
    ReadOnlyError,
)
from holdfast.store.rules.gates import Operation


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    return store.agent("1")


def test_declaring_is_one_entry_and_written_once(state: sync.State) -> None:
    assert state.declared() == []
    assert state.declare(Sticky("effects/"), Sticky("money/")) == 1
    assert state.declared() == [Sticky("effects/"), Sticky("money/")]
    assert state.declare(Sticky("money/")) == 1, "it is declared already"
    assert state.declare(Sticky("money/"), Sticky("a")) == 2
    assert state.log(limit=1)[0].keys == ("$declared/sticky/a*",)
    assert state.declared() == [Sticky("a"), Sticky("effects/"), Sticky("money/")]
    assert state.undeclare(Sticky("money/"), Sticky("nothing/")) == 1
    assert state.undeclare(Sticky("money/")) == 0
    assert state.declared() == [Sticky("a"), Sticky("effects/")]
    assert state.keys() == [], "declarations are not among a user's keys"


def test_every_process_knows_what_is_declared(place: Place) -> None:
    mine, theirs = (place.open().agent("1") for _ in range(2))
    mine.set("k", 1)
    assert theirs.declared() == []
    mine.declare(Sticky("effects/"))
    assert theirs.declared() == [Sticky("effects/")]
    theirs.undeclare(Sticky("effects/"))
    theirs.declare(Sticky("money/"))
    assert mine.declared() == [Sticky("money/")]
    assert place.reopen().agent("1").declared() == [Sticky("money/")]
    assert place.open().verify().findings == []


def test_declarations_of_then_and_of_a_fork(state: sync.State) -> None:
    state.set("k", 1)
    state.declare(Sticky("effects/"))
    trial = state.fork("trial")
    before = state.fork("before", at=1)
    trial.declare(Sticky("money/"))
    assert trial.declared() == [Sticky("effects/"), Sticky("money/")]
    assert state.declared() == [Sticky("effects/")]
    assert before.declared() == []
    assert (state.at(1).declared(), state.at(2).declared()) == ([], [Sticky("effects/")])


def test_writers_in_one_group_see_what_is_declared_before_them(place: Place) -> None:
    """A stage knows what the entries before it in the same commit declare, and unlearns it."""
    store = place.open()
    seen: list[Any] = []
    core = store._core
    line = store.agent("1")._handle
    line.core.run(line.plan_set("k", 1, None)[0])

    def looking(then: Any) -> Any:
        change, _ = line.plan_set("k", 2, None)
        change.targets[0].special = lambda stage, body: (
            seen.append(stage.declared.all),
            then(stage, body),
        )
        change.targets[0].ops = []
        return change

    def finish(stage: Any, body: Any) -> None:
        stage.finish(body)

    def fail(stage: Any, body: Any) -> None:
        stage.add([("delete", "$declared/sticky/effects/*")], body)
        raise InvalidInputError("refused")

    data = {"prefix": "effects/"}
    declare, _ = line._plan(
        [Operation("set", "$declared/sticky/effects/*", data)], lambda written: written
    )
    tickets = [core.submit(change) for change in (declare, looking(finish), looking(fail))]
    tickets.append(core.submit(looking(finish)))
    core.committer.drain()
    assert [ticket.error is None for ticket in tickets] == [True, True, False, True]
    assert set(seen) == {(Sticky("effects/"),)}
    assert store.agent("1").declared() == [Sticky("effects/")]


@pytest.mark.parametrize("prefix", ["", "/a", "a//b", "..", "a\n", "x" * 500, "__a", 7, None])
def test_prefixes_that_no_key_has(prefix: Any) -> None:
    with pytest.raises(holdfast.HoldfastError):
        Sticky(prefix)


def test_what_is_refused(state: sync.State) -> None:
    with pytest.raises(InvalidKeyError, match="declare"):
        state.set("$declared/sticky/a*", {"prefix": "a"})
    with pytest.raises(InvalidInputError, match=r"holdfast\.Sticky"):
        state.declare("effects/")  # type: ignore[arg-type]
    state.declare(Sticky("a"))
    past = sync.State(state._handle.view(1))
    with pytest.raises(ReadOnlyError):
        past.declare(Sticky("b"))


def test_a_declaration_of_a_newer_version(state: sync.State) -> None:
    line = state._handle
    plan = line._plan([Operation("set", "$declared/future/a*", {"prefix": "a"})], lambda w: w)
    line.core.run(plan[0])
    with pytest.raises(NewerFormatError, match="newest version"):
        state.declared()


def test_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            assert await state.declare(Sticky("effects/")) == 1
            assert await state.declare(Sticky("effects/")) == 1
            assert await state.declared() == [Sticky("effects/")]
            assert await state.undeclare(Sticky("effects/")) == 1
            assert await state.undeclare(Sticky("effects/")) == 0

    asyncio.run(main())


def test_a_scope_without_declarations_is_looked_at_once(place: Place) -> None:
    state = place.open().agent("1")
    for number in range(300):
        state.set(f"k{number}", number)
    store, counting = place.open_counting()
    again = store.agent("1")
    again.declared()
    counting.calls.clear()
    for _ in range(50):
        again.declared()
    assert counting.calls.get("get", 0) == 0


def test_a_damaged_declaration_is_declared_again(place: Place) -> None:
    """Reads go on, writing is refused until the rule is known again."""
    state = place.open().agent("1")
    state.set("k", 1)
    prefix = "effects/" + "x" * 100  # so long that its value is not in the index
    state.declare(Sticky(prefix))
    for number in range(600):
        state.set(f"k/{number}", number)
    storage = place.storage()
    key, row = next(pair for pair in rows_of(storage, b"E") if pair[0][-1] == 2)
    put_row(storage, key, row[:-5] + bytes([row[-5] ^ 1]) + row[-4:])
    again = place.reopen().agent("1")
    assert again.get("k") == 1
    for refused in (lambda: again.set("k", 2), lambda: again.restore(500, verify="none")):
        with pytest.raises(DamagedRecordError, match="declare it again"):
            refused()
    point = again.declare(Sticky(prefix))
    again.set("k", 2)
    again.restore(point)
    assert (again.get("k"), again.declared()) == (1, [Sticky(prefix)])
