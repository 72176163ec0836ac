"""A long value set again: whatever changed in it, and whoever changed it meanwhile, it is what was
set, kept as if it had been set at once."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_kit import Place

NUMBERS = st.integers(0, 10_000)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), NUMBERS),
        st.tuples(st.just("insert"), NUMBERS),
        st.tuples(st.just("remove"), NUMBERS),
        st.tuples(st.just("move"), NUMBERS),
        st.tuples(st.just("slide"), st.integers(0, 100)),
        st.tuples(st.just("twice"), NUMBERS),
        st.tuples(st.just("long"), NUMBERS),
    ),
    max_size=6,
)


def item(number: int) -> dict[str, Any]:
    return {"number": number, "text": "some words " * 8, "sure": number % 3 == 0}


def edited(items: list[Any], edits: list[tuple[str, int]]) -> list[Any]:
    items = list(items)
    for kind, number in edits:
        place = number % max(1, len(items))
        if kind == "change" and items:
            items[place] = item(-number)
        elif kind == "insert":
            items.insert(place, item(-number))
        elif kind == "remove" and items:
            del items[place]
        elif kind == "move" and items:
            items.insert(number * 7 % len(items), items.pop(place))
        elif kind == "slide":
            items = [*items[number:], *(item(20_000 + n) for n in range(number))]
        elif kind == "twice" and items:
            items.insert(number * 7 % len(items), items[place])
        elif kind == "long":
            items.insert(place, [item(number + n) for n in range(20)])
    return items


def wrapped(items: list[Any], nested: bool) -> Any:
    return {"agent": {"goal": "ship", "messages": items}, "turn": len(items)} if nested else items


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(EDITS, min_size=1, max_size=4), st.booleans())
def test_it_is_what_was_set(place: Place, turns: list[list[tuple[str, int]]], nested: bool) -> None:
    with place.open() as store:
        state = store.agent("again")
        items = [item(n) for n in range(120)]
        state.set("list", wrapped(items, nested))
        for edits in turns:
            items = edited(items, edits)
            state.set("list", wrapped(items, nested))
            assert state.get("list") == wrapped(items, nested)
        root = state.root()
        state.delete("list")
        state.set("list", wrapped(items, nested))
        assert state.root() == root
    with place.open() as other:
        assert other.agent("again").get("list") == wrapped(items, nested)
        assert not other.verify("agent:again").findings


def test_somebody_else_has_set_it_meanwhile(place: Place) -> None:
    mine, other = place.open().agent("a"), place.open().agent("a")
    items = [item(n) for n in range(100)]
    for nested in (False, True):
        mine.set("list", wrapped(items, nested))
        other.set("list", wrapped(items[5:], nested))
        mine.set("list", wrapped([*items[:50], *items[51:]], nested))
        assert other.get("list") == wrapped([*items[:50], *items[51:]], nested)
        mine.restore(mine._handle.place()[2] - 1)
        mine.set("list", wrapped(items[1:], nested))
        assert other.get("list") == wrapped(items[1:], nested)


def test_a_list_that_was_appended_to_and_trimmed(place: Place) -> None:
    state = place.open().agent("a")
    items = [item(n) for n in range(100)]
    state.set("list", items)
    state.extend("list", [item(n) for n in range(100, 110)])
    state.trim("list", keep_last=90)
    state.set("list", items[1:])
    assert state.get("list") == items[1:]


def test_an_item_that_became_another_type_is_seen(place: Place) -> None:
    state = place.open().agent("a")
    items = [{**item(n), "raw": b"x"} for n in range(50)]
    state.set("list", items)
    items[7]["number"] = 7.0
    state.set("list", items)
    found = state.get("list")
    assert type(found[7]["number"]) is float
    assert type(found[8]["number"]) is int
