"""Lookups that are not what the values give: found by verify, made anew; faults on the way."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Begins, Lookup, sync
from holdfast.errors import (
    DamagedRecordError,
    LookupNotBuiltError,
    LookupNotFoundError,
    Unavailable,
)
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.history.restore import rebuild_lookup
from holdfast.store.names import rowkinds
from holdfast.store.open import open_core
from holdfast.store.read import lookup_terms
from holdfast.store.read.lookup_terms import Keeper

BY_KIND = Lookup("by_kind", prefix="v/", terms={"kind": "kind", "tag": "tags[]"})


def filled(state: sync.State, count: int = 12) -> None:
    for n in range(count):
        state.set(f"v/{n:02}", {"kind": f"k{n % 3}", "tags": ["x", f"t{n}"], "text": "t" * 90})


def forgetful(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A writer with a bug: it does not add terms, or does not remove them."""
    plain = Keeper._differences

    def difference(self: Any, *args: Any) -> None:
        plain(self, *args)
        self._more = [op for op in self._more if op[0] != what]

    monkeypatch.setattr(Keeper, "_differences", difference)


@pytest.mark.parametrize("what", ["set", "delete"])
def test_verify_names_the_lookup_and_rebuild_repairs(
    place: Place, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    store = place.open()
    state = store.agent("a")
    filled(state)
    state.declare(BY_KIND)
    with monkeypatch.context() as bug:
        forgetful(bug, what)
        state.set("v/03", {"kind": "other", "tags": ["x"]})
        state.delete("v/04")
    (finding,) = store.verify().findings
    assert (finding.kind, finding.place) == ("lookup", "lookup by_kind of agent:a")
    assert "rebuild=True" in finding.message
    if what == "delete":
        with pytest.raises(DamagedRecordError, match="rebuild=True"):
            state.find("by_kind", kind="k1", values=True)
    rebuild_lookup(state._handle, "by_kind")
    assert store.verify().ok
    assert state.find("by_kind", kind="other").items == ["v/03"]
    assert state.find("by_kind", kind="k1", values=True, limit=1).items[0][0] == "v/01"


def test_a_damaged_value_can_be_overwritten_and_deleted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 5)
    state = place.open().agent("a")
    filled(state)
    state.declare(BY_KIND)
    for n in range(12):
        state.set(f"w/{n}", n)
    place.close()
    storage = place.storage()
    for number in (3, 5):
        key, row = next(r for r in rows_of(storage, b"E") if rowkinds.sequence_of(r[0]) == number)
        put_row(storage, key, row[:-9] + bytes(9))
    store = place.open()
    state = store.agent("a")
    with pytest.raises(DamagedRecordError):
        state.get("v/02")
    state.set("v/02", {"kind": "mended", "tags": []})
    state.delete("v/04")
    assert state.find("by_kind", kind="mended").items == ["v/02"]
    assert "v/04" not in state.find("by_kind", tag=Begins("t")).items
    assert not [f for f in store.verify().findings if f.kind == "lookup"]


def test_a_damaged_value_hides_no_lookup_that_is_wrong(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 5)
    state = place.open().agent("a")
    state.declare(Lookup("a first one", "v/", ["kind"]))
    state.declare(Lookup("by_kind", "w/", ["kind"]))
    with state.change() as change:
        for n in range(40):
            change.set(f"v/{n}", {"kind": f"k{n}", "text": f"{n} " * 100})
    with monkeypatch.context() as bug:
        forgetful(bug, "set")
        state.set("w/1", {"kind": "k1"})
    for n in range(9):  # a saved index leads to what the entries alone do not give any more
        state.set("n", n)
    place.close()
    key, row = rows_of(place.storage(), b"V")[1]
    put_row(place.storage(), key, row[:-9] + bytes(9))
    found = place.open().verify().findings
    assert {f.kind for f in found} == {"damage", "lookup"}
    assert [f.place for f in found if f.kind == "lookup"] == ["lookup by_kind of agent:a"]


def test_a_damaged_saved_index_costs_time_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 5)
    state = place.open().agent("a")
    filled(state, 40)
    state.declare(BY_KIND)
    filled(state, 40)
    place.close()
    storage = place.storage()
    for key, row in rows_of(storage, b"N"):
        put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    state = place.open().agent("a")
    assert len(state.find("by_kind", kind="k1").items) == 13
    state.set("v/01", {"kind": "k9", "tags": []})
    assert state.find("by_kind", kind="k9").items == ["v/01"]


def test_faults_while_building_and_writing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever call fails: nothing false is found, and declaring again finishes it."""
    monkeypatch.setattr(lookup_terms, "KEYS", 4)
    for nth in range(1, 40, 3):
        name = f"s{nth}"
        filled(place.open().agent(name))
        faulty = Faulty(place.storage())
        store = sync.Store(StoreHandle(open_core(place.url, storage=faulty, **place.options())))
        state = store.agent(name)
        state.keys()
        faulty.plan = (Fault("*", faulty.calls["*"] + nth),)
        kind = {f"v/{n:02}": f"k{n % 3}" for n in range(12)}
        try:
            state.declare(BY_KIND)
            state.set("v/00", {"kind": "new", "tags": []})
            kind["v/00"] = "new"
            state.delete("v/01")
            del kind["v/01"]
        except Unavailable:
            pass
        try:
            found = sorted(state.find("by_kind", kind="k2").items)
            assert found == [key for key in sorted(kind) if kind[key] == "k2"]
        except (LookupNotBuiltError, LookupNotFoundError, Unavailable):
            state.declare(BY_KIND)
        faulty.plan = ()
        values = dict(state.items("v/"))
        for one in ("k0", "k1", "k2", "new"):
            expected = sorted(key for key, value in values.items() if value["kind"] == one)
            assert sorted(state.find("by_kind", kind=one).items) == expected
        store.close()
    assert place.open().verify().findings == []
