"""Setting a whole value again stores only what differs; equal states have equal roots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import Place

from holdfast import sync

CHANGE = 1_500
"""Bytes of records that one change may cost beyond the new items."""


def message(number: int) -> dict[str, Any]:
    return {"role": "user", "id": number, "content": f"{number} says " + f"word{number % 97} " * 70}


MESSAGES = [message(n) for n in range(1000)]


def shapes() -> dict[str, Callable[[list[Any]], Any]]:
    return {
        "list": lambda rows: rows,
        "in a mapping": lambda rows: {"a": {"messages": rows, "n": 1}, "b": [1, 2]},
        "in a list of mappings": lambda rows: [
            {"thread": n, "rows": rows if n == 5 else [n]} for n in range(9)
        ],
    }


EDITS: dict[str, tuple[Callable[[list[Any]], Any], int, int]] = {
    "nothing": (lambda rows: rows, 1, 0),
    "one changed": (lambda rows: rows.__setitem__(500, message(5003)), 1, 1),
    "first changed": (lambda rows: rows.__setitem__(0, message(5000)), 1, 1),
    "one inserted": (lambda rows: rows.insert(333, message(5004)), 1, 1),
    "one removed": (lambda rows: rows.pop(700), 1, 0),
    "one added": (lambda rows: rows.append(message(5005)), 1, 1),
    "window slid": (
        lambda rows: rows.__setitem__(slice(0, None), [*rows[3:], message(5002)]),
        2,
        1,
    ),
    "ten hunks": (
        lambda rows: [rows.__setitem__(n * 97, message(5100 + n)) for n in range(10)],
        10,
        10,
    ),
    "inserted, removed and changed": (
        lambda rows: (rows.insert(900, message(5001)), rows.pop(500), rows.__setitem__(9, 1)),
        3,
        1,
    ),
}
NEW_ITEM = 700


@pytest.mark.parametrize("shape", shapes())
@pytest.mark.parametrize("warm", [True, False], ids=["same handle", "fresh handle"])
def test_only_what_differs_is_stored(place: Place, shape: str, warm: bool) -> None:
    made = shapes()[shape]
    store, counting = place.open_counting()
    rows = list(MESSAGES)
    store.agent("1").set("k", made(rows))
    store.agent("1").set("other", 1)  # the index is saved after so much; that belongs to the first
    for name, (edit, changes, new) in EDITS.items():
        if not warm:
            store, counting = place.open_counting()
        edit(rows)
        counting.reset()
        store.agent("1").set("k", made(rows))
        assert counting.bytes_written <= changes * CHANGE + new * NEW_ITEM, name
        assert store.agent("1").get("k") == made(rows), name
    assert place.open().agent("1").get("k") == made(rows)


def test_long_texts_and_mappings_share_too(place: Place) -> None:
    text = "".join(f"line {n} of a long text\n" for n in range(20_000))
    table = {f"row {n}": {"n": n, "text": "x" * 60} for n in range(3_000)}
    first = place.open().agent("1")
    first.set("k", {"text": text, "table": table, "blob": text.encode()})
    first.set("other", 1)  # the index is saved after so much; that belongs to the first
    store, counting = place.open_counting()
    counting.reset()
    table["row 1500"] = {"n": -1}
    text = text[:200_000] + "INSERTED" + text[200_000:]
    store.agent("1").set("k", {"text": text, "table": table, "blob": text.encode()})
    # In text and blob the chunks that the insertion touches, one as a rule and seldom two or three,
    # compressed; and the new row of the table.
    assert counting.bytes_written < 4 * 32_768 < len(text)
    assert place.open().agent("1").get("k") == {
        "text": text,
        "table": table,
        "blob": text.encode(),
    }


def test_sharing_survives_the_saves_of_the_index(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the index is saved, unchanged parts of a value are not written again."""
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 8)
    store, counting = plain.open_counting()
    state = store.agent("1")
    rows = list(MESSAGES)
    state.set("k", {"rows": rows})
    counting.reset()
    for number in range(60):
        rows[number * 13] = message(6000 + number)
        state.set("k", {"rows": rows})
    assert counting.bytes_written < 60 * (CHANGE + NEW_ITEM + 5_000)
    assert plain.open().agent("1").get("k") == {"rows": rows}


@pytest.mark.spec("K6", "D50")
def test_a_checkpoint_and_a_fork_copy_nothing(place: Place) -> None:
    store, counting = place.open_counting()
    state = store.agent("1")
    with state.change() as change:
        for number in range(2_000):
            change.set(f"key {number}", message(number))
    state.checkpoint("warm")
    counting.reset()
    state.checkpoint("again")
    assert counting.bytes_written < 600, "500 for the checkpoint, and its row of the feed"
    state.set("key 1", 1)
    point = state.checkpoint("one more")
    first = state.fork("first", at=point)
    counting.reset()
    second = state.fork("second", at=point)
    assert counting.bytes_written < 1_500
    assert len(first.keys()) == len(second.keys()) == 2_000


# ---- roots ---------------------------------------------------------------------------------

keys = st.sampled_from([f"k{n}" for n in range(40)])
items = st.one_of(st.integers(0, 9), st.text("ab", max_size=80), st.just(message(1)))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys, st.lists(items, max_size=30) | items),
        st.tuples(st.just("delete"), keys, st.none()),
        st.tuples(st.just("append"), st.sampled_from(["l0", "l1"]), st.lists(items, max_size=40)),
        st.tuples(st.just("cut"), st.sampled_from(["l0", "l1"]), st.integers(0, 30)),
        st.tuples(st.just("checkpoint"), st.none(), st.none()),
        st.tuples(st.just("fold"), st.none(), st.none()),
    ),
    max_size=40,
)


def play(state: sync.State, model: dict[str, Any], kind: str, key: Any, value: Any) -> None:
    if kind == "set":
        state.set(key, value)
        model[key] = value
    elif kind == "delete":
        state.delete(key)
        model.pop(key, None)
    elif kind == "append" and value:
        state.extend(key, value)
        model[key] = model.get(key, []) + value
    elif kind == "cut" and key in model:
        model[key] = model[key][value:]
        state.set(key, model[key])
    elif kind == "checkpoint":
        state.checkpoint()
    elif kind == "fold":
        state.root()


@given(steps=steps)
def test_a_root_tells_the_state_and_not_how_it_came_about(steps: list[Any]) -> None:
    with sync.open("memory:") as store:
        state = store.agent("1")
        state.set("first", 1)
        model: dict[str, Any] = {"first": 1}
        for step in steps:
            play(state, model, *step)
        assert dict(state.items()) == model
        edited = state.root()
        trial = state.fork("rebuilt", at=0)
        with trial.change() as change:
            for key in reversed(model):
                change.set(key, model[key])
        assert dict(trial.items()) == model
        assert trial.root() == edited
        trial.set("first", 2)
        assert trial.root() != edited


def test_sealed_roots_differ_between_scopes_and_stores(place: Place) -> None:
    """Else a root would tell others what is in a scope. Those of plain stores are bare hashes."""
    roots = set()
    store = place.open()
    for name in ("1", "2"):
        store.agent(name).set("k", 1)
        roots.add(store.agent(name).root())
    with sync.open("memory:", key=place.key) as other:
        other.agent("1").set("k", 1)
        roots.add(other.agent("1").root())
    assert len(roots) == (3 if place.sealed else 1)


def test_order_of_a_mapping_counts(store: sync.Store) -> None:
    state = store.agent("1")
    state.set("k", {"a": 1, "b": 2})
    first = state.root()
    state.set("k", {"b": 2, "a": 1})
    assert state.root() != first
    assert list(state.get("k")) == ["b", "a"]
