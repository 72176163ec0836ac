"""Expiry and classes beside lookups, trims, long values, merges, proofs and ephemeral keys."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

import pytest
from store_kit import Hands, Place, rows_of

import holdfast
import holdfast_verify
from holdfast import Classed, Ephemeral, Lookup, sync
from holdfast.errors import InvalidValueError, MergeConflictError, MissingError
from holdfast.store.history.restore import rebuild_lookup
from holdfast.store.journal.timeline import DELTA_EVERY
from holdfast.store.rules.lookup import TERMS

BY_STATUS = Lookup("by_status", prefix="tasks/", terms="status")
BY_TAG = Lookup("by_tag", prefix="tags/", terms="[]")
SECRET = "correct horse battery staple"
LONG = bytes(range(256)) * 8192


def statuses(state: Any, **asked: Any) -> list[str]:
    return list(state.find("by_status", **asked).items)


def terms(state: sync.State) -> list[str]:
    return [key for key, _ in state._handle.reader.now().scan(TERMS)]  # type: ignore[union-attr]


def sound(store: sync.Store) -> None:
    report = store.verify()
    assert report.ok, report


# lookups


def test_a_lookup_never_gives_what_has_expired(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.declare(BY_STATUS)
    for number in range(6):
        state.set(f"tasks/{number}", {"status": "open"}, ttl=10 if number % 2 else None)
    before = state._handle.place()[2]
    assert len(statuses(state, status="open")) == 6
    hands.move(10)
    assert statuses(state, status="open") == ["tasks/0", "tasks/2", "tasks/4"]
    page = state.find("by_status", limit=2, values=True)
    assert [key for key, _ in page.items] == ["tasks/0", "tasks/2"]
    assert statuses(state, after=page.after) == ["tasks/4"]
    assert statuses(state, order="-status", limit=1) == ["tasks/4"]
    assert len(statuses(state.at(before))) == 6, "then they had not"
    rebuild_lookup(state._handle, "by_status")
    sound(timed)
    assert statuses(state) == ["tasks/0", "tasks/2", "tasks/4"]


def test_terms_go_when_the_key_is_swept(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.declare(BY_STATUS)
    state.set("tasks/1", {"status": "open"}, ttl=10)
    state.set("tasks/2", {"status": "open"})
    hands.move(10)
    assert state.sweep() == 1
    assert [name.rpartition("/")[2] for name in terms(state)] == ["2"]
    assert state.log(limit=1)[0].operations == (("delete", "tasks/1"),)
    sound(timed)


def test_an_append_to_an_expired_list_leaves_none_of_its_terms(
    timed: sync.Store, hands: Hands
) -> None:
    state = timed.agent("a")
    state.declare(BY_TAG)
    state.set("tags/1", [f"tag {number}" for number in range(500)], ttl=10)
    assert len(terms(state)) == 500
    hands.move(10)
    state.append("tags/1", "new")
    assert state.get("tags/1") == ["new"]
    assert len(terms(state)) == 1
    sound(timed)


def test_expire_and_sliding_leave_terms_alone(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.declare(BY_STATUS)
    state.set("tasks/1", {"status": "open"}, ttl=100, sliding=True)
    hands.move(50)
    assert state.find("by_status", values=True).items == [("tasks/1", {"status": "open"})]
    hands.move(80)
    assert statuses(state) == ["tasks/1"], "the find with values put it off"
    state.persist("tasks/1")
    hands.move(1000)
    assert statuses(state) == ["tasks/1"]
    sound(timed)


@pytest.mark.parametrize("named", [False, True])
def test_lookup_beside_what_is_sensitive_tells_nothing_of_its_length(
    tmp_path: Path, named: bool
) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    state = store.agent("a")
    state.declare(Lookup("by_note", terms="note"))
    if not named:
        state.declare(Classed("k", "sensitive"))
    for number in range(2 * DELTA_EVERY):
        state.set("k", {"note": f"n{number}"}, class_="sensitive" if named else None)
    state.set("other", 1)
    number = store._core.ledger(state.scope).number.to_bytes(6, "big")
    saves = [row for key, row in rows_of(place.storage(), b"S") if key[1:7] == number]
    assert {row[0] >> 1 & 3 for row in saves} == {3}
    lengths = set()
    for note in ("n", "n" * 60):
        state.set("k", {"note": note}, class_="sensitive" if named else None)
        state.delete("k")
        *_, (_, row) = rows_of(place.storage(), b"E")
        lengths.add(len(row))
    assert len(lengths) == 1, "the entry that removes it, too"
    rebuilt = set()
    for note in ("n", "n" * 60):
        state.set("k", {"note": note}, class_="sensitive" if named else None)
        known = {key for key, _ in rows_of(place.storage(), b"E")}
        rebuild_lookup(state._handle, "by_note")
        made = [len(row) for key, row in rows_of(place.storage(), b"E") if key not in known]
        rebuilt.add(tuple(made))
    assert len(rebuilt) == 1, "and those that build the lookup"
    sound(store)
    place.close()


# trims


def test_a_trim_keeps_expiry_and_class(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    for key, length in (("short", 10), ("long", 3000)):
        state.set(key, list(range(length)), ttl=10, class_="sensitive")
        assert state.trim(key, keep_last=length // 2) == length // 2
        item = state.item(key)
        assert item is not None
        assert (item.expires, item.class_) == (hands.time(10), "sensitive")
        assert len(item.value) == length // 2
    assert state.trim("long", keep_last=3) == 1497, "so short that it is set whole"
    assert state._handle.reader.class_of("long") == "sensitive"
    sound(timed)
    hands.move(10)
    assert state.trim("long", keep_last=1) == 0
    with state.change() as change:
        change.trim("short", keep_last=1)
        change.set("other", 1)
    assert not state.exists("short")
    state.append("long", 1)
    assert state.get("long") == [1]
    sound(timed)


# long values


def test_long_values_respect_expiry(timed: sync.Store, hands: Hands, tmp_path: Path) -> None:
    state = timed.agent("a")
    for key, value in (("short", b"abc"), ("long", LONG)):
        state.set(key, value, ttl=10, class_="sensitive")
        state.checkpoint()
        with state.open_read(key) as file:
            assert file.read() == value
        assert state.read_range(key, 1, 3) == value[1:3]
        assert state.get_file(key, tmp_path / "file") == len(value)
        hands.move(10)
        with pytest.raises(MissingError):
            state.open_read(key)
        with pytest.raises(MissingError):
            state.read_range(key)
        with pytest.raises(MissingError):
            state.get_file(key, tmp_path / "file")
        assert state.at(state._handle.place()[2]).read_range(key, 0, 1) == value[:1]


def test_reading_a_long_value_puts_its_expiry_off(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.set("long", LONG, ttl=10, sliding=True)
    hands.move(8)
    state.read_range("long", 0, 1)
    hands.move(8)
    assert state.exists("long")


@pytest.mark.parametrize("length", [10, 3 << 20])
def test_what_is_written_in_pieces_forgets_expiry_as_set_does(
    timed: sync.Store, hands: Hands, length: int
) -> None:
    state = timed.agent("a")
    state.set("file", b"old" * 100_000, ttl=10)
    with state.open_write("file") as file:
        file.write(bytes(length))
    hands.move(20)
    assert state.read_range("file", 0, 5) == bytes(5)
    assert state.item("file").expires is None  # type: ignore[union-attr]
    sound(timed)


def test_a_long_value_from_outside_is_refused(plain: Place) -> None:
    state = plain.open().agent("a")
    with (
        pytest.raises(InvalidValueError, match="external"),
        state.open_write("external/page") as file,
    ):
        file.write(bytes(3 << 20))
    assert not state.exists("external/page")


def test_a_long_sensitive_value_is_not_compressed(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    for key, compressed in (("plan", True), ("api_token", False)):
        known = {k for k, _ in rows_of(place.storage(), b"V")}
        with store.agent("a").open_write(key) as file:
            file.write(b"".join(b"%020d" % number for number in range(100_000)))
        size = sum(len(row) for k, row in rows_of(place.storage(), b"V") if k not in known)
        assert (size < 1_500_000) == compressed
    sound(store)
    store.rotate("agent:a")
    store.reseal("agent:a")
    sound(store)
    place.close()


# merges


def pair(store: sync.Store) -> tuple[sync.State, sync.State]:
    main = store.agent("a")
    main.set("k", {"a": 1, "b": 1})
    main.set("other", 1)
    return main, main.fork("trial")


def test_expiry_and_class_travel_with_a_value_that_is_merged(
    timed: sync.Store, hands: Hands
) -> None:
    main, trial = pair(timed)
    trial.set("k", {"a": 2}, ttl=100, class_="sensitive")
    trial.set("new", [1], ttl=50)
    trial.set("slides", 1, ttl=20, sliding=True)
    trial.expire("other", 30)
    done = main.merge("trial")
    assert done.keys == ["k", "new", "other", "slides"]
    for key, seconds in (("k", 100), ("new", 50), ("other", 30), ("slides", 20)):
        assert main.item(key).expires == hands.time(seconds)  # type: ignore[union-attr]
    assert main._handle.reader.class_of("k") == "sensitive"
    assert main.item("other").version == 2, "only its expiry changed"  # type: ignore[union-attr]
    hands.move(15)
    main.get("slides")
    hands.move(10)
    assert main.exists("slides")
    assert main.merge("trial").entry is None
    sound(timed)


def test_what_ours_says_of_expiry_stays_with_our_value(timed: sync.Store, hands: Hands) -> None:
    main, trial = pair(timed)
    main.set("k", {"a": 9}, ttl=100)
    trial.set("k", {"a": 8}, ttl=5)
    with pytest.raises(MergeConflictError):
        main.merge("trial")
    main.merge("trial", strategy="ours")
    assert main.item("k").expires == hands.time(100)  # type: ignore[union-attr]
    main, trial = timed.agent("b"), timed.agent("b")
    main.set("list", [1], ttl=100)
    trial = main.fork("trial")
    main.append("list", 2)
    trial.append("list", 3)
    main.merge("trial")
    assert main.item("list").value == [1, 2, 3]  # type: ignore[union-attr]
    assert main.item("list").expires == hands.time(100)  # type: ignore[union-attr]


def test_expired_keys_count_as_absent_in_a_merge(timed: sync.Store, hands: Hands) -> None:
    main, trial = pair(timed)
    trial.expire("k", 10)
    trial.set("new", 1, ttl=10)
    main.set("mine", 1, ttl=10)
    trial.set("mine", 2)
    hands.move(10)
    done = main.merge("trial")
    assert (done.keys, done.conflicts) == (["k", "mine"], [])
    assert main.keys() == ["mine", "other"]
    assert main.get("mine") == 2
    assert main.merge("trial").entry is None
    sound(timed)


def test_what_is_merged_of_something_sensitive_is_sensitive(place: Place) -> None:
    main, trial = pair(place.open())
    main.set("k", {"a": 2, "b": 1})
    trial.set("k", {"a": 1, "b": SECRET}, class_="sensitive")
    main.merge("trial")
    assert main.get("k") == {"a": 2, "b": SECRET}
    assert main._handle.reader.class_of("k") == "sensitive"


class Reads(holdfast.Gate):
    """Notes which sensitive keys were read."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def reading(self, reading: holdfast.GateReading) -> None:
        self.keys += reading.keys


def test_conflicts_do_not_show_what_is_sensitive(place: Place) -> None:
    store = place.open()
    main, trial = pair(store)
    for state, value in ((main, SECRET + "1"), (trial, SECRET + "2")):
        state.set("api_token", {"field": value})
    reads = Reads()
    store.add_gate(reads)
    with pytest.raises(MergeConflictError) as refused:
        main.merge("trial")
    dry = main.merge("trial", strategy="theirs", dry_run=True)
    for shown in (refused.value, *refused.value.conflicts, dry, dry.diff, *dry.conflicts):
        assert SECRET not in f"{shown} {shown!r}"
    assert [one.path for one in dry.conflicts] == ["api_token"]
    assert reads.keys == []
    main.merge("trial", strategy=lambda conflict: conflict.theirs)
    assert set(reads.keys) == {"api_token"}
    assert main.get("api_token") == {"field": SECRET + "2"}


def test_revert_and_diff_of_what_was_merged(timed: sync.Store, hands: Hands) -> None:
    main, trial = pair(timed)
    with timed.acting("ann"):
        trial.set("k", {"a": 2, "b": 1}, ttl=100)
    before = main._handle.place()[2]
    main.expire("k", 7)
    done = main.merge("trial")
    assert [one.path for one in main.diff(before)] == ["k.a", "k (expires)"]
    assert done.entry is not None
    main.revert(entries=[done.entry])
    item = main.item("k")
    assert item is not None
    assert (item.value, item.expires) == ({"a": 1, "b": 1}, hands.time(7))


# proofs


def test_a_proof_says_expiry_and_class(timed: sync.Store, hands: Hands, tmp_path: Path) -> None:
    state = timed.agent("a")
    reads = Reads()
    timed.add_gate(reads)
    state.set("k", ["v" * 100] * 30, ttl=10, class_="sensitive")
    state.set("plain", 1)
    state.checkpoint("one")
    hands.move(20)
    state.checkpoint("two")
    for at, told in (("one", "until"), ("two", "expired since")):
        state.prove("k", at=at).save(tmp_path / "proof")
        found = _checked(tmp_path / "proof")
        assert (found["valid"], found["value"]) == (True, ["v" * 100] * 30)
        assert (found["class"], found["expires"]) == ("sensitive", hands.time(10).isoformat())
        assert told in found["told"]
    assert reads.keys == ["k", "k"]
    state.prove("plain").save(tmp_path / "proof")
    found = _checked(tmp_path / "proof")
    assert (found["value"], found["class"], found["expires"]) == (1, "", None)


def _checked(path: Path) -> dict[str, Any]:
    options = argparse.Namespace(pin=set(), require=1)
    return holdfast_verify.verdict(str(path), path.read_bytes(), options, [])


# the rest


def test_ephemeral_lists_keep_their_expiry(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.declare(Ephemeral("tmp/"))
    state.set("tmp/list", [1, 2], ttl=10)
    state.append("tmp/list", 3)
    assert state.trim("tmp/list", keep_last=1) == 2
    assert state.item("tmp/list").expires == hands.time(10)  # type: ignore[union-attr]
    hands.move(10)
    assert not state.exists("tmp/list")
    assert timed.sweep().keys == 1


def test_one_sweep_for_all(plain: Place) -> None:
    async def main() -> None:
        hands = Hands()
        async with holdfast.open(plain.url, durability="normal", clock=hands.clock) as store:
            await store.agent("a").set("k", 1, ttl=10)
            await store.agent("b").set("k", 1, ttl=10)
            hands.move(10)
            assert (await store.sweep(limit=1)).keys == 1
            swept = await store.sweep()
            assert (swept.keys, swept.uploads, swept.waiting) == (1, 0, 0)

    asyncio.run(main())
