"""Scrubbing: damage is found in the background, and healed from a copy by its commitment."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.errors import InvalidInputError, StateIntegrityError
from holdfast.recovery import heal
from holdfast.recovery.heal import Overlay
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch
from holdfast.store.inner import verify_store


def work(state: sync.State, first: int = 0, count: int = 12) -> None:
    """Entries with values short and long, and a checkpoint."""
    for n in range(first, first + count):
        state.set(f"k{n}", {"n": n})
    state.set("long", [f"line {n} {first}" * 30 for n in range(400)])
    state.checkpoint(f"after {first}")


def copied(place: Place, folder: Path) -> Place:
    """A copy of all files of a place, under a place of its own."""
    place.close()
    folder.mkdir()
    twin = Place("sqlite", folder, sealed=place.sealed)
    for path in place.path.parent.iterdir():
        shutil.copy(path, twin.path.parent / path.name)
    twin.key, twin.signer = place.key, place.signer
    return twin


def flip(place: Place, kind: bytes, number: int) -> tuple[bytes, bytes]:
    """Damage a row behind the store's back; its key, and what it was."""
    storage = place.storage()
    key, row = rows_of(storage, kind)[number]
    put_row(storage, key, flipped(row, len(row) - 3))
    storage.close()
    return key, row


def flipped(row: bytes, at: int) -> bytes:
    """With one bit changed."""
    return row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :]


@pytest.fixture(params=["plain", "sealed"])
def pair(request: Any, tmp_path: Path) -> Any:
    """A store that worked, and a copy of it."""
    place = Place("sqlite", tmp_path, sealed=request.param == "sealed")
    work(place.open().agent("7"), 0, 600)
    twin = copied(place, tmp_path / "twin")
    yield place, twin
    place.close()
    twin.close()


@pytest.mark.parametrize("kind", [b"E", b"V", b"N", b"S"])
@pytest.mark.spec("M84")
def test_every_row_of_a_scope_is_healed_to_the_byte(pair: Any, kind: bytes) -> None:
    place, twin = pair
    storage = place.storage()
    count = len(rows_of(storage, kind))
    storage.close()
    assert count
    key, row = flip(place, kind, count // 2)
    store = place.open()
    assert not store.verify().ok
    scrubber = sync.recovery.Scrubber(store, copies=[twin.open()], budget=30)
    done = scrubber.slice()
    assert done is not None
    assert done.finished
    assert [one.row for one in done.healed] == [key.hex()]
    assert done.findings == ()
    assert store.verify().ok
    assert place.storage().get([key]) == [row]
    aside = sync.recovery.Recovery(store).quarantine("agent:7").list()
    assert [one.id for one in aside] == [key.hex()]
    assert aside[0].content not in (None, row)


def test_rows_that_are_missing_come_back(pair: Any) -> None:
    place, twin = pair
    storage = place.storage()
    entries = rows_of(storage, b"E")
    for key, _ in (entries[2], entries[3], entries[-1]):
        put_row(storage, key, None)
    storage.close()
    store = place.open()
    done = sync.recovery.Scrubber(store, copies=[twin.open()], budget=30).slice()
    assert done is not None
    assert len(done.healed) == 3
    assert store.verify().ok
    assert store.agent("7").get("k3") == {"n": 3}
    store.agent("7").set("more", 1)
    assert store.verify().ok


def test_a_copy_that_went_its_own_way_gives_nothing_of_that(pair: Any) -> None:
    place, twin = pair
    work(place.open().agent("7"), 1000)
    place.close()
    work(twin.open().agent("7"), 2000)
    twin.close()
    storage = place.storage()
    damaged = [rows_of(storage, b"E")[n] for n in (4, 610)]
    storage.close()
    flip(place, b"E", 4)
    flip(place, b"E", 610)
    value, _ = flip(place, b"V", -1)
    other = twin.storage()
    assert other.get([value]) != [None]
    other.close()
    store = place.open()
    done = sync.recovery.Scrubber(store, copies=[twin.open()], budget=30).slice()
    assert done is not None
    assert [one.row for one in done.healed] == [damaged[0][0].hex()]
    left = {one.row for one in done.findings}
    assert {damaged[1][0].hex(), value.hex()} <= left


def test_a_row_whose_follower_is_missing_is_not_believed(tmp_path: Path) -> None:
    """Nothing commits to it any more: in a plain store anybody could have made it."""
    place = Place("sqlite", tmp_path, sealed=False)
    work(place.open().agent("7"))
    twin = copied(place, tmp_path / "twin")
    storage = twin.storage()
    put_row(storage, rows_of(storage, b"E")[5][0], None)
    storage.close()
    storage = place.storage()
    rows = rows_of(storage, b"E")
    put_row(storage, rows[4][0], None)
    put_row(storage, rows[5][0], None)
    storage.close()
    store = place.open()
    copy = sync.open(twin.url, **twin.options())
    done = sync.recovery.Scrubber(store, copies=[copy], budget=30).slice()
    assert done is not None
    assert done.healed == ()
    assert place.storage().get([rows[4][0]]) == [None]
    copy.close()
    place.close()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_damaged_or_missing_is_healed_from_a_whole_copy(pair: Any, seed: int) -> None:
    place, twin = pair
    chance = random.Random(seed)
    storage = place.storage()
    kinds = [key for kind in (b"E", b"V", b"N", b"S") for key, _ in rows_of(storage, kind)]
    before = dict(zip(kinds, storage.get(kinds), strict=True))
    for key in chance.sample(kinds, 12):
        row = before[key]
        assert row is not None
        at = chance.randrange(len(row))
        put_row(storage, key, chance.choice([None, row[:at], flipped(row, at)]))
    storage.close()
    store = place.open()
    done = sync.recovery.Scrubber(store, copies=[twin.open()], budget=30).slice()
    assert done is not None
    assert done.findings == ()
    assert store.verify().ok
    assert dict(zip(kinds, store._core.storage.get(kinds), strict=True)) == before


@given(
    st.dictionaries(st.binary(min_size=1, max_size=2), st.binary(max_size=2), max_size=8),
    st.dictionaries(st.binary(min_size=1, max_size=2), st.binary(max_size=2), max_size=8),
    st.tuples(st.binary(max_size=2), st.binary(max_size=3)),
    st.integers(0, 6),
    st.booleans(),
)
def test_rows_laid_over_a_storage_are_read_as_if_they_were_there(
    there: dict[bytes, bytes],
    over: dict[bytes, bytes],
    bounds: tuple[bytes, bytes],
    limit: int,
    reverse: bool,
) -> None:
    storage = open_storage("memory:")
    storage.commit(Batch(puts=list(there.items())))
    seen = Overlay(storage, over)
    model = there | over
    low, high = bounds
    wanted = sorted(((k, v) for k, v in model.items() if low <= k < high), reverse=reverse)
    assert seen.scan(low, high, limit=limit, reverse=reverse) == wanted[:limit]
    keys = [*there, *over, b"\xff\xff\xff"]
    assert seen.get(keys) == [model.get(key) for key in keys]
    storage.close()


def test_a_row_that_is_damaged_again_after_it_was_released_is_set_aside_again(pair: Any) -> None:
    place, twin = pair
    bad: list[bytes | None] = []
    key = b""
    for at in (3, 4):
        place.close()
        storage = place.storage()
        key, row = next(one for one in rows_of(storage, b"E")[5:] if one[0] == (key or one[0]))
        bad.append(flipped(row, len(row) - at))
        put_row(storage, key, bad[-1])
        storage.close()
        store, copy = place.open(), twin.open()
        aside = sync.recovery.Recovery(store).quarantine("agent:7")
        done = sync.recovery.Scrubber(store, copies=[copy], budget=30).slice()
        assert done is not None
        assert [one.row for one in done.healed] == [key.hex()]
        (first,) = aside.list()
        assert (first.id, first.content, first.reason) == (key.hex(), bad[-1], "")
        assert aside.release(first.id, "seen").released_at is not None
    assert place.reopen().verify().ok


@pytest.mark.spec("X11")
def test_what_no_copy_has_is_set_aside_and_told_by_each_pass(place: Place) -> None:
    work(place.open().agent("7"))
    place.close()
    key, _ = flip(place, b"E", 3)
    store = place.open()
    told: list[Any] = []
    scrubber = sync.recovery.Scrubber(store, budget=30, found=told.append)
    first, second = scrubber.slice(), scrubber.slice()
    assert first is not None
    assert second is not None
    assert key.hex() in {one.row for one in first.findings}
    assert second.findings == first.findings
    assert len(told) == 2
    assert key.hex() in {
        one.id for one in sync.recovery.Recovery(store).quarantine("agent:7").list()
    }
    assert scrubber.status().passes == 2
    assert scrubber.status().damaged >= 1


def test_who_cannot_be_told_stops_no_scrubbing_and_is_told_again(plain: Place) -> None:
    work(plain.open().agent("7"))
    plain.close()
    key, _ = flip(plain, b"E", 3)
    told: list[Any] = []

    def found(findings: Any) -> None:
        told.append({one.row for one in findings})
        if len(told) == 1:
            raise RuntimeError("the pager is down")

    scrubber = sync.recovery.Scrubber(plain.open(), budget=30, found=found)
    passes = []
    for _ in range(4):
        scrubber.slice()
        passes.append(scrubber.status().passes)
        assert scrubber.status().damaged >= 1
    assert passes == [1, 2, 3, 4]
    assert len(told) == 4
    assert key.hex() in told[0]
    assert told[0] == told[1]


def test_slices_go_on_where_the_last_one_stopped_in_whatever_process(place: Place) -> None:
    for n in range(4):
        work(place.open().agent(str(n)))
    place.close()
    key, _ = flip(place, b"E", 40)
    found: set[str] = set()
    slices, finished = 0, False
    while not finished:
        done = sync.recovery.Scrubber(place.reopen(), budget=0.0001).slice()
        assert done is not None
        found |= {one.row for one in done.findings}
        slices, finished = slices + 1, done.finished
    assert slices > 3
    assert key.hex() in found


def test_one_process_scrubs_at_a_time_in_the_background(place: Place) -> None:
    store = place.open()
    work(store.agent("7"))
    with store.lease("recovery/scrub"):
        assert sync.recovery.Scrubber(place.open()).slice() is None
    with sync.recovery.Scrubber(store, interval=0.01) as scrubber:
        while scrubber.status().passes < 2:
            pass
    passes = scrubber.status().passes
    assert scrubber.status().passes == passes


def test_another_store_is_no_copy(place: Place, tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path}/other.db") as other:
        with pytest.raises(InvalidInputError, match="no copy of this store"):
            sync.recovery.Scrubber(place.open(), copies=[other])
        with pytest.raises(InvalidInputError, match="budget"):
            sync.recovery.Scrubber(other, budget=0)


def test_a_damaged_state_reads_again_after_healing_in_the_same_process(pair: Any) -> None:
    place, twin = pair
    store = place.open()
    flip(place, b"V", 0)
    fresh = place.open()
    with pytest.raises(StateIntegrityError):
        fresh.agent("7").get("long")
    sync.recovery.Scrubber(store, copies=[twin.open()], budget=30).slice()
    assert len(fresh.agent("7").get("long")) == 400


@pytest.mark.spec("M83")
def test_what_is_left_over_is_cleaned_away(place: Place) -> None:
    """Copies of damaged rows, values that expired, and past that nobody needs."""
    place.open().agent("damaged").set("k", 1)
    place.close()
    key, _ = flip(place, b"E", 0)
    store = place.open()
    state = store.agent("7")
    for n in range(20):
        state.set("k", {"n": n})
    state.checkpoint("now")
    state.set("short", 1, ttl=0.001)
    sync.recovery.Scrubber(store, budget=30).slice()
    recovery = sync.recovery.Recovery(store, order=["defaults"], defaults={})
    recovery.recover("agent:damaged", "corruption_detected")
    quarantine = recovery.quarantine("agent:damaged")
    assert quarantine.get(key.hex()).content is not None
    assert quarantine.release(key.hex(), "looked at").content is None
    while store.sweep().keys == 0:
        pass
    assert state.keys() == ["k"]
    assert state.prune("now").entries
    assert store.verify("agent:7").findings == []
    assert state.get("k") == {"n": 19}


def test_a_row_of_the_directory_is_healed_from_a_copy(pair: Any) -> None:
    place, twin = pair
    key, row = flip(place, b"D", 0)
    with pytest.raises(StateIntegrityError):
        place.open().agent("7").get("k1")
    found = sync.recovery.Scrubber(place.open(), budget=60).slice()
    assert found is not None
    assert any(one.row == key.hex() for one in found.findings)
    done = sync.recovery.Scrubber(place.open(), copies=[twin.open()], budget=60).slice()
    assert done is not None
    assert [(one.scope, one.row, one.copy) for one in done.healed] == [(None, key.hex(), 0)]
    assert place.open().verify().ok
    assert place.open().agent("7").get("k1") == {"n": 1}
    assert dict(rows_of(place.open()._core.storage, b"D"))[key] == row
    aside = sync.recovery.Recovery(place.open()).quarantine("custom:$recovery").list()
    assert key.hex() in [one.id for one in aside]


def test_a_scope_whose_row_a_copy_has_is_recovered_without_reading_all_others(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a step that reads the whole store, and so takes longer than it may."""
    place, twin = pair
    storage = place.storage()
    ((key, _),) = rows_of(storage, b"D")
    put_row(storage, key, None)
    storage.close()
    looked: list[Any] = []

    def verify(core: Any, scope: Any = None, **more: Any) -> Any:
        looked.append(scope)
        return verify_store(core, scope, **more)

    monkeypatch.setattr(heal, "verify_store", verify)
    store = place.open()
    recovery = sync.recovery.Recovery(store, copies=[twin.open()])
    assert recovery.recover("agent:7", "corruption_detected").success
    assert store.agent("7").get("k1") == {"n": 1}
    assert {str(one) for one in looked} == {"agent:7"}


def test_a_directory_row_of_another_scope_is_no_cure(pair: Any) -> None:
    """A copy that went its own way has another scope of that name: its row opens nothing here."""
    place, twin = pair
    before = set(dict(rows_of(place.open()._core.storage, b"D")))
    for one in (place, twin):
        one.open().agent("8").set("plan", 1)
    place.close()
    storage = place.storage()
    number = next(n for n, it in enumerate(rows_of(storage, b"D")) if it[0] not in before)
    storage.close()
    flip(place, b"D", number)
    done = sync.recovery.Scrubber(place.open(), copies=[twin.open()], budget=60).slice()
    assert done is not None
    assert not done.healed
    with pytest.raises(StateIntegrityError):
        place.open().agent("8").get("plan")
