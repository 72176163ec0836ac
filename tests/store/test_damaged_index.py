"""A damaged index costs time, never state: the entries give the same state without it."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Sticky, sync
from holdfast.errors import StateIntegrityError
from holdfast.store.inner import core_of
from holdfast.store.journal.timeline import Timeline
from holdfast.store.names import rowkinds


def filled(store: sync.Store) -> dict[str, Any]:
    """A state with saved indexes, deltas, long lists, a restore and a fork."""
    state = store.agent("1")
    with state.change() as change:
        for number in range(700):
            change.set(f"key/{number}", {"number": number, "text": "x" * 90})
    state.extend("list", [{"item": n, "text": "y" * 60} for n in range(300)])
    safe = state.checkpoint("safe")
    for number in range(300):
        state.set(f"key/{number}", {"number": -number, "text": "z" * 90})
    state.restore(safe)
    for number in range(30):
        state.append("list", {"item": number})
    state.fork("side").set("only", "here")
    return dict(state.items())


def index_rows(place: Place) -> list[tuple[bytes, bytes]]:
    """All rows of saved indexes."""
    storage = place.storage()
    return rows_of(storage, b"S") + rows_of(storage, b"N")


@pytest.mark.parametrize("way", ["flipped", "removed"])
def test_every_row_of_every_index(place: Place, way: str) -> None:
    truth = filled(place.open())
    found = index_rows(place)
    assert {key[:1] for key, _ in found} == {b"N", b"S"}
    # Every save, and packs from all over: reading everything after each damage takes its time.
    saves = [row for row in found if row[0][:1] == b"S"]
    for key, good in saves + found[len(saves) :: 9]:
        bad = good[:-5] + bytes([good[-5] ^ 4]) + good[-4:]
        put_row(place.storage(), key, None if way == "removed" else bad)
        store = place.reopen()
        assert dict(store.agent("1").items()) == truth
        assert store.agent("1").on("side").get("only") == "here"
        findings = place.reopen().verify().findings
        assert findings
        assert any("index" in finding.place for finding in findings)
        put_row(place.storage(), key, good)
    assert place.reopen().verify().ok


def test_writing_goes_on_and_replaces_it(place: Place) -> None:
    truth = filled(place.open())
    for key, _ in index_rows(place):
        put_row(place.storage(), key, None)
    state = place.reopen().agent("1")
    assert state.set("key/5", "new") > 0
    truth["key/5"] = "new"
    for number in range(300):
        state.set(f"more/{number}", number)
        truth[f"more/{number}"] = number
    state = place.reopen().agent("1")
    assert dict(state.items()) == truth
    assert index_rows(place), "no index was saved again"
    assert state.at("safe").get("key/7") == {"number": 7, "text": "x" * 90}


@pytest.mark.parametrize("way", ["flipped", "removed"])
def test_revert_does_without_it(place: Place, way: str) -> None:
    store = place.open()
    state = store.agent("1")
    filled(store)
    with store.acting("bot", correlation="run"):
        wrong = state.set("list", ["wrong", *state.get("list")])
        state.set("key/5", "wrong")
    for number in range(300):
        state.set(f"more/{number}", number)
    truth = dict(state.at(wrong - 1).items())
    for key, row in index_rows(place):
        bad = row[:-5] + bytes([row[-5] ^ 4]) + row[-4:]
        put_row(place.storage(), key, None if way == "removed" else bad)
    state = place.reopen().agent("1")
    assert state.revert(correlation="run").done == ["key/5", "list"]
    assert {key: value for key, value in state.items() if not key.startswith("more/")} == truth


def test_comparing_does_without_it(place: Place) -> None:
    """Whichever of the two states it belongs to, also in a dry run of a restore."""
    state = place.open().agent("1")
    filled(place.open())
    changes, would = state.diff("safe").keys, state.restore("safe", dry_run=True)
    for key, good in rows_of(place.storage(), b"N")[::5]:
        put_row(place.storage(), key, good[:-5] + bytes([good[-5] ^ 4]) + good[-4:])
        state = place.reopen().agent("1")
        assert state.diff("safe").keys == changes
        state = place.reopen().agent("1")
        dry = state.restore("safe", dry_run=True)
        assert (dry.root, dry.diff.keys) == (would.root, would.diff.keys)
        put_row(place.storage(), key, good)


def pruned(place: Place) -> list[tuple[bytes, bytes]]:
    """A state whose past is pruned but for a checkpoint; the nodes of its index."""
    with place.open() as store:
        state = store.agent("1")
        state.declare(Sticky("paid/"))
        for text in ("old", "new"):
            with state.change() as change:
                for number in range(600):
                    change.set(f"key/{number}", text * 30)
            state.set("paid/total", "of which nothing stays")
            state.set("paid/total", text)
            state.checkpoint(text)
        floor = state.checkpoints(name="new")[0].sequence
        state.prune("new", keep=["old"])
        state.set("paid/total", "newest")
    return [row for row in rows_of(place.storage(), b"N") if rowkinds.sequence_of(row[0]) == floor]


@pytest.mark.parametrize("way", ["restored", "recovered"])
def test_going_back_past_it_where_entries_are_pruned(place: Place, way: str) -> None:
    """Nothing gives what a damaged node held; what does not need it comes back, or stays."""
    ways: list[bool] = []
    for number in range(40):  # where nodes end is by chance, and so is what each of them holds
        if set(ways) == {True, False} or (way != "restored" and number == 3):
            break
        folder = place.folder / str(number)
        folder.mkdir()
        other = Place(place.engine, folder, sealed=place.sealed)
        rows = pruned(other)
        key, good = rows[number % len(rows)]
        put_row(other.storage(), key, good[:-5] + bytes([good[-5] ^ 4]) + good[-4:])
        store = other.open()
        state = store.agent("1")
        if way == "restored":
            done = state.restore("old", past_damage=True)
            assert bool(done.passed_over) == (done.backup is None)
            ways.append(done.backup is not None)
            assert state.get("paid/total") == ("newest" if done.backup is not None else "old")
        else:
            recovery = sync.recovery.Recovery(store, order=["named"])
            assert recovery.recover(state, "corruption_detected", point="old").success
            assert state.get("paid/total") == "newest", "it is replayed"
        assert set(dict(state.items("key/")).values()) == {"old" * 30}
        other.close()
    assert set(ways) == ({True, False} if ways else set())


def test_going_back_reads_no_more_than_it_takes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = place.open().agent("1")
    with state.change() as change:
        for number in range(2000):
            change.set(f"key/{number}", "x" * 90)
    state.restore(state.checkpoint("safe"))  # which saves the index
    state.set("key/5", "new")
    store, read = place.reopen(), list[bytes]()
    storage = core_of(store).storage
    get = storage.get
    monkeypatch.setattr(storage, "get", lambda keys: read.extend(keys) or get(keys))
    dry = store.agent("1").restore("safe", dry_run=True, verify="none")
    assert dry.diff.keys == ["key/5"]
    nodes = [key for key in read if key[:1] == b"N"]
    assert len(nodes) < len(rows_of(place.storage(), b"N")) / 2


def test_a_write_under_way_is_seen_by_who_passes_over_damage_meanwhile(place: Place) -> None:
    """The state is read anew beside the commit; what that commits is no less there."""
    truth = filled(place.open())
    place.close()
    store, between = place.open_between()
    state = store.agent("1")
    state.append("list", "held from now on")
    for key, good in rows_of(place.storage(), b"N"):
        put_row(place.storage(), key, good[:-5] + bytes([good[-5] ^ 4]) + good[-4:])

    def read() -> None:
        wanted = {key: value for key, value in truth.items() if key.startswith("key/")}
        assert dict(state.items(prefix="key/")) == wanted, "it is not committed yet"

    between.before = read
    state.set("key/5", "written")
    assert between.before is None
    assert state.get("key/5") == "written"
    assert place.open().agent("1").get("key/5") == "written"


def test_a_write_behind_a_restore_past_damage_is_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is done before the restore has returned."""
    state = place.open().agent("1")
    state.set("k", 1)
    state.checkpoint("safe")
    newest = state.set("k", 2)
    key, good = rows_of(place.storage(), b"E")[newest - 1]
    put_row(place.storage(), key, good[:-3] + bytes(3))
    store = place.reopen()
    state, core = store.agent("1"), core_of(store)
    take_over = core.take_over

    def late(line: Timeline) -> None:
        state.set("k", 3)
        take_over(line)

    monkeypatch.setattr(core, "take_over", late)
    state.restore("safe", past_damage=True)
    assert state.get("k") == 3


@pytest.mark.parametrize("name", ["release", "5a" * 32])  # which a hash could be, too
def test_a_damaged_checkpoint_is_not_silently_replaced_by_an_older_namesake(
    place: Place, name: str
) -> None:
    state = place.open().agent("1")
    state.set("k", 1)
    older = state.checkpoint(name)
    state.set("k", 2)
    newer = state.checkpoint(name)
    state.set("k", 3)
    rows = rows_of(place.storage(), b"E")
    key, good = rows[newer.sequence - 1]
    put_row(place.storage(), key, good[:-3] + bytes(3))
    state = place.reopen().agent("1")
    with pytest.raises(StateIntegrityError, match="by its id"):
        state.restore(name, past_damage=True)
    assert [c.id for c in state.checkpoints()] == [older.id]
    assert state.at(older.id).get("k") == state.at(older.hash).get("k") == 1


def test_what_is_to_be_done_is_told_of_the_damage_that_counts(place: Place) -> None:
    """Going back without the newest state helps only if what one goes back to is whole."""
    state = place.open().agent("1")
    state.set("k", 1)
    point = state.checkpoint("release")
    newest = state.set("k", 2)
    found = rows_of(place.storage(), b"E")
    for sequence in (newest, point.sequence):
        key, good = found[sequence - 1]
        put_row(place.storage(), key, good[:-3] + bytes(3))
    with pytest.raises(StateIntegrityError) as caught:
        place.reopen().agent("1").restore(point.id)
    assert "past_damage" not in str(caught.value)
    put_row(place.storage(), *found[point.sequence - 1])
    state = place.reopen().agent("1")
    with pytest.raises(StateIntegrityError, match="past_damage=True"):
        state.restore(point.id)
    checkpoints = sync.checkpoints.Checkpoints(state)
    report = checkpoints.recover()
    assert state.get("k") == 1
    assert report.restored.backup is None
    assert checkpoints.confirm(report) is None  # there is nothing to let go
    assert checkpoints.held() == []
