"""How many terms a value may have, on every way it grows; what cannot be built breaks nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Lookup, Sticky, sync
from holdfast.errors import DamagedRecordError, LimitExceededError, LookupNotBuiltError
from holdfast.store.history.restore import rebuild_lookup
from holdfast.store.names import rowkinds
from holdfast.store.read import lookup_terms
from holdfast.store.rules.lookup import MOST_TERMS

TAGS = Lookup("tags", "t/", {"tag": "[]"})
HALF = MOST_TERMS // 2


def numbers(state: sync.State) -> int:
    """How many numbers a lookup leads from to the list."""
    return sum(state.find("tags", tag=n).items == ["t/x"] for n in range(0, MOST_TERMS + 90, 70))


GROWING: dict[str, Callable[[sync.State], object]] = {
    "set": lambda state: state.set("t/x", list(range(MOST_TERMS + 1))),
    "extend": lambda state: state.extend("t/x", range(HALF, MOST_TERMS + 1)),
    "update": lambda state: state.update("t/x", lambda old: [*old, *range(HALF, MOST_TERMS + 1)]),
    "merge": lambda state: state.merge("trial"),
}


@pytest.mark.parametrize("way", GROWING)
def test_no_value_grows_beyond_the_limit(plain: Place, way: str) -> None:
    store = plain.open()
    state = store.agent("a")
    state.set("t/x", list(range(HALF)))
    # The fork knows nothing of the lookup: it may grow.
    state.fork("trial").extend("t/x", range(HALF, MOST_TERMS + 1))
    state.declare(TAGS)
    before = state.log(limit=1)[0].sequence
    with pytest.raises(LimitExceededError, match=r"'t/x' has more than 1000 terms.*'tags'"):
        GROWING[way](state)
    assert state.log(limit=1)[0].sequence == before
    assert state.get("t/x") == list(range(HALF))
    assert numbers(state) == len(range(0, HALF, 70))
    rebuild_lookup(state._handle, "tags")
    assert numbers(state) == len(range(0, HALF, 70))
    assert store.verify().findings == []


def test_the_last_term_that_fits(plain: Place) -> None:
    """A list may be as long as it likes: its terms are counted, not its items."""
    state = plain.open().agent("a")
    state.declare(TAGS)
    state.set("t/x", list(range(MOST_TERMS - 1)) * 2)
    state.append("t/x", 3)
    state.append("t/x", MOST_TERMS - 1)
    with pytest.raises(LimitExceededError, match="more than 1000 terms"):
        state.append("t/x", MOST_TERMS)
    state.append("t/x", 3)
    assert state.length("t/x") == 2 * MOST_TERMS + 1
    rebuild_lookup(state._handle, "tags")
    assert state.find("tags", tag=MOST_TERMS - 1).items == ["t/x"]
    state.trim("t/x", keep_last=2)
    state.append("t/x", MOST_TERMS)
    assert state.find("tags", tag=MOST_TERMS).items == ["t/x"]
    state.delete("t/x")
    assert state.find("tags", tag=3).items == []


def test_what_cannot_be_built_is_not_declared(place: Place) -> None:
    store = place.open()
    state = store.agent("a")
    state.set("t/a", list(range(MOST_TERMS + 1)))
    with pytest.raises(LimitExceededError, match="'t/a' has more than 1000 terms"):
        state.declare(TAGS, Sticky("effects/"))
    assert state.declared() == []
    state.set("t/b", {"tags": ["x"], "all": list(range(MOST_TERMS + 1))})
    state.declare(Lookup("tags", "t/", {"tag": "tags[]"}))
    with pytest.raises(LimitExceededError, match="'t/b' has more than 1000 terms"):
        state.declare(Lookup("tags", "t/", {"tag": "all[]"}))
    assert state.find("tags", tag="x").items == ["t/b"]
    assert store.verify().findings == []


def test_a_lookup_outlives_a_rebuild_that_a_damaged_value_forbids(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 5)
    kinds = Lookup("kinds", "v/", "kind")
    state = place.open().agent("a")
    for n in range(12):
        state.set(f"v/{n:02}", {"kind": f"k{n % 3}", "text": "t" * 90})
    state.declare(kinds)
    for n in range(12):
        state.set(f"w/{n}", n)
    place.close()
    storage = place.storage()
    key, row = next(r for r in rows_of(storage, b"E") if rowkinds.sequence_of(r[0]) == 3)
    put_row(storage, key, row[:-9] + bytes(9))
    state = place.open().agent("a")
    changed = Lookup("kinds", "v/", {"kind": "kind", "text": "text"})
    for broken in (lambda: rebuild_lookup(state._handle, "kinds"), lambda: state.declare(changed)):
        with pytest.raises(DamagedRecordError):
            broken()
        assert state.declared() == [kinds]
        assert state.find("kinds", kind="k1").items == ["v/01", "v/04", "v/07", "v/10"]


def test_a_restore_forgets_a_lookup_that_it_could_not_keep(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that came too late to be refused: a state can be restored all the same."""
    monkeypatch.setattr(lookup_terms, "check_values", lambda *_: None)
    store = plain.open()
    state = store.agent("a")
    state.declare(TAGS, Sticky("t/"))
    state.set("plan", 1)
    state.checkpoint("safe")
    state.undeclare(TAGS)
    state.set("t/x", list(range(MOST_TERMS + 1)))
    with pytest.raises(LimitExceededError):
        state.declare(TAGS)
    state.set("plan", 2)
    state.restore("safe")
    assert (state.get("plan"), state.length("t/x")) == (1, MOST_TERMS + 1)
    with pytest.raises(LookupNotBuiltError):
        state.find("tags", tag=1)
    state.trim("t/x", keep_last=3)
    rebuild_lookup(state._handle, "tags")
    assert state.find("tags", tag=MOST_TERMS).items == ["t/x"]
    assert store.verify().findings == []


def test_sticky_keys_with_many_terms(plain: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where their terms might not fit into the restore's entry, the lookup is built behind it."""
    monkeypatch.setattr(lookup_terms, "MOST_BYTES", 1000)
    store = plain.open()
    state = store.agent("a")
    state.declare(TAGS, Sticky("t/"))
    state.checkpoint("safe")
    for n in range(2):
        state.set(f"t/{n}", list(range(50 * n, 50 * n + 50)))
    entry = state.restore("safe").sequence
    assert state.log(limit=1)[0].sequence > entry
    assert state.find("tags", tag=60).items == ["t/1"]
    assert store.verify().findings == []


def test_a_lookup_of_which_nothing_is_built_yet(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = plain.open().agent("a")
    state.set("t/x", [1])

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lookup_terms.Step, "_build", stop)
    with pytest.raises(KeyboardInterrupt):
        state.declare(TAGS)
    with pytest.raises(LookupNotBuiltError, match="being built, no key so far"):
        state.find("tags", tag=1)
