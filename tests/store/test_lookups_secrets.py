"""What a lookup keeps is the store's own: shown by no read, and nothing sensitive is in it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place

from holdfast import Begins, Classed, Lookup, Range, sync
from holdfast.errors import InvalidInputError
from holdfast.store.history.restore import rebuild_lookup

BY_PIN = Lookup("by_pin", terms={"pin": "pin"})
BY_TAG = Lookup("by_tag", terms={"tag": "[]"})


def kept(state: Any) -> str:
    """All names that the index of a state keeps for lookups."""
    return "\n".join(key for key, _ in state._handle.reader.now().scan("$terms/"))


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    state = store.agent("a")
    state.declare(BY_PIN, BY_TAG)
    return state


def test_sensitive_keys_are_in_no_lookup(store: sync.Store, state: sync.State) -> None:
    state.declare(Classed("billing/", "sensitive"))
    state.set("user/password", {"pin": "HUSH"})
    state.set("billing/1", {"pin": "HUSH"})
    state.set("note", {"pin": "HUSH"}, class_="sensitive")
    state.extend("tokens/api_key", ["HUSH"])
    state.append("tokens/api_key", "HUSH")
    state.set("billing/open", {"pin": "plain"}, class_="standard")
    state.set("card", {"pin": "plain"})
    assert state.find("by_pin").items == ["billing/open", "card"]
    assert state.find("by_pin", pin="HUSH").items == []
    assert state.find("by_tag").items == []
    assert "HUSH" not in kept(state)
    rebuild_lookup(state._handle, "by_pin")
    assert state.find("by_pin").items == ["billing/open", "card"]
    assert "HUSH" not in kept(state)
    assert store.verify().ok


def test_what_becomes_sensitive_leaves_the_lookup_in_that_entry(
    store: sync.Store, state: sync.State
) -> None:
    state.set("note", {"pin": "ONE"})
    entry = state.set("note", {"pin": "ONE"}, class_="sensitive")
    assert (state._handle.place()[2], kept(state)) == (entry, "")
    state.update("note", lambda value: {**value, "more": 1})  # which keeps the class
    assert kept(state) == ""
    state.set("note", {"pin": "ONE"})
    assert state.find("by_pin", pin="ONE").items == ["note"]
    assert store.verify().ok


def test_class_that_is_declared_builds_the_lookup_anew(
    store: sync.Store, state: sync.State
) -> None:
    state.set("people/1", {"pin": "HUSH"})
    state.set("other/password", {"pin": "HUSH"})
    before = state.checkpoint("before")
    state.declare(Classed("people/", "sensitive"))
    assert state.find("by_pin").items == []
    assert kept(state) == ""
    after = state.checkpoint("after")
    state.restore(before)  # declarations stay as they are now
    assert state.find("by_pin").items == []
    assert kept(state) == ""
    state.undeclare(Classed("people/", "sensitive"))
    assert state.find("by_pin").items == ["people/1"]
    state.restore(after)
    assert state.find("by_pin").items == ["people/1"]
    state.declare(Classed("other/", "standard"))
    assert state.find("by_pin").items == ["other/password", "people/1"]
    assert store.verify().ok


def test_class_of_other_keys_leaves_a_lookup_as_it_is(state: sync.State) -> None:
    state.declare(Lookup("people", prefix="people/", terms=["pin"]))
    state.undeclare(BY_PIN, BY_TAG)
    state.set("people/1", {"pin": 1})
    entry = state.declare(Classed("billing/", "sensitive"))
    assert state._handle.place()[2] == entry
    assert state.find("people", pin=1).items == ["people/1"]


def test_no_read_shows_what_a_lookup_keeps(state: sync.State) -> None:
    for number in range(300):
        state.set(f"people/{number}", {"pin": f"PIN{number}"})
    state.set("people/x", {"pin": 7})
    own = next(name for name in kept(state).splitlines() if name.endswith("/people/x"))
    view = state.at(state._handle.place()[2])
    for one in (state, view):
        assert one.keys("$") == ["$declared/lookup/by_pin", "$declared/lookup/by_tag"]
        assert one.keys("$", limit=1, after="$declared/lookup/by_pin") == [
            "$declared/lookup/by_tag"
        ]
        for prefix in ("$terms/", "$terms/by_pin/7PIN", "$lookup/", "$t", own):
            assert one.keys(prefix) == []
            assert one.items(prefix) == []
        for key in (own, "$lookup/by_pin"):
            assert one.get(key, "none") == "none"
            assert not one.exists(key)
            assert one.item(key) is None
        assert one.get_many([own]) == {}
    with state.change() as change:
        assert change.keys("$terms/") == []
        assert change.get(own, "none") == "none"


def test_cursor_tells_nothing_and_is_checked(place: Place) -> None:
    state = place.open().agent("a")
    state.declare(BY_PIN, Lookup("again", terms={"pin": "pin"}))
    for number in range(4):
        state.set(f"people/{number}", {"pin": f"PIN{number}"})
    page = state.find("by_pin", limit=2)
    assert page.after is not None
    assert state.find("by_pin", limit=2) == page
    sealed = base64.urlsafe_b64decode(page.after + "==")
    assert b"PIN" not in sealed
    assert b"people" not in sealed
    other = place.open().agent("a")
    assert other.find("by_pin", after=page.after).items == ["people/2", "people/3"]
    assert state.fork("f").find("by_pin", after=page.after).items == ["people/2", "people/3"]
    for number in range(len(page.after)):
        letter = "A" if page.after[number] != "A" else "Q"
        changed = page.after[:number] + letter + page.after[number + 1 :]
        with pytest.raises(InvalidInputError, match="'by_pin'"):
            state.find("by_pin", after=changed)
    for wrong in ("", "A", "nonsense", "!", "é" * 30, page.after + "A", page.after[:-4]):
        with pytest.raises(InvalidInputError, match="after is what a page"):
            state.find("by_pin", after=wrong)
    with pytest.raises(InvalidInputError, match="'again'"):
        state.find("again", after=page.after)


def test_proof_of_another_key_holds_no_long_term(place: Place, tmp_path: Path) -> None:
    text = "Ada Lovelace, born 1815, " + "x" * 39 + ", a note that is nobody's business"
    state = place.open().agent("a")
    state.declare(Lookup("by_text", prefix="people/", terms=["text"]))
    state.set("people/1", {"text": text, "password": "HUSH"})
    state.set("plan", "ship")
    state.checkpoint("safe")
    proof = state.prove("plan")
    proof.save(tmp_path / "plan.proof")
    data = (tmp_path / "plan.proof").read_bytes()
    assert text[:65].encode() not in data
    assert b"nobody" not in data
    assert all(text[:65] not in key for key in proof.reveals)
    assert state.find("by_text", text=text).items == ["people/1"]
    assert state.find("by_text", text=text + ".").items == []
    assert state.find("by_text", text=Begins(text[:64])).items == ["people/1"]
    assert state.find("by_text", text=Range(ge="Ada", lt="Adb")).items == ["people/1"]
    with pytest.raises(InvalidInputError, match="store's own"):
        state.prove("$terms/by_text/7A")
