"""What a newcomer stumbled over."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest
from store_kit import Place, put_row

import holdfast
from holdfast import Gate, GateRequest, ValueLimits, sync
from holdfast.errors import (
    GateRefusedError,
    InvalidInputError,
    LimitExceededError,
    PointNotFoundError,
    StateIntegrityError,
    WrongKeyError,
)
from holdfast.testing import Counting


def test_points_of_a_scope_that_was_deleted_do_not_fit_the_new_one(place: Place) -> None:
    store = place.open()
    state = store.agent("z")
    state.set("x", "old")
    point = state.checkpoint("c")
    entry = state.log()[-1]
    store.delete(state)
    for value in ("new", "newer", "newest"):
        state.set("x", value)
    for old in (point, entry):
        with pytest.raises(PointNotFoundError, match="made again"):
            state.restore(old)
        with pytest.raises(PointNotFoundError, match="made again"):
            state.at(old)
    assert state.get("x") == "newest"


@pytest.mark.parametrize("value", ["'text'", "5", "1.5"])
def test_a_row_of_another_type_is_damage(tmp_path: Path, value: str) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    with sync.open(url) as store:
        for number in range(3):
            store.agent("1").set("k", "x" * 100 + str(number))
        store.agent("1").checkpoint("c")
    connection = apsw.Connection(str(tmp_path / "a.db"))
    keys = [key for (key,) in connection.execute("SELECT k FROM records")]
    for key in keys:
        good = connection.execute("SELECT v FROM records WHERE k=?", (key,)).fetchall()[0][0]
        connection.execute(f"UPDATE records SET v={value} WHERE k=?", (key,))
        try:
            with sync.open(url) as store:
                assert store.verify().findings
        except StateIntegrityError:
            pass  # without what this row says, the store cannot be opened at all
        connection.execute("UPDATE records SET v=? WHERE k=?", (good, key))
    connection.close()
    with sync.open(url) as store:
        assert store.verify().ok


def test_a_cell_that_nothing_accounts_for_is_found(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    with sync.open(url) as store:
        store.agent("1").set("k", 1)
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute("INSERT INTO cells VALUES(x'5a5a', x'00')")
    connection.close()
    with sync.open(url) as store:
        assert [finding.kind for finding in store.verify().findings] == ["unaccounted"]


@pytest.mark.parametrize("byte", [0, 1])
def test_a_flipped_format_is_damage_that_can_be_left_behind(place: Place, byte: int) -> None:
    state = place.open().agent("1")
    state.set("k", 1)
    safe = state.checkpoint("safe")
    state.set("k", 2)
    state.set("k", 3)
    storage = place.storage()
    key, row = storage.scan(b"E", b"F")[2]
    bad = bytearray(row)
    bad[byte] ^= 2
    put_row(storage, key, bytes(bad))
    state = place.reopen().agent("1")
    with pytest.raises(StateIntegrityError):
        state.get("k")
    assert state.restore(safe, past_damage=True).passed_over
    assert state.get("k") == 1


def test_a_checkpoint_stays_small_after_a_long_value(place: Place) -> None:
    store, counting = place.open_counting()
    assert isinstance(counting, Counting)
    state = store.agent("1")
    state.set("long", list(range(20_000)))
    before = counting.bytes_written
    state.checkpoint("c")
    assert counting.bytes_written - before < 500
    assert place.reopen().agent("1").restore("c").keys == 1


def test_a_short_list_obeys_the_limits(place: Place) -> None:
    state = place.open(limits=ValueLimits(items=10)).agent("1")
    for number in range(10):
        state.append("list", number)
    with pytest.raises(LimitExceededError, match="10 items"):
        state.append("list", 10)
    assert state.get("list") == list(range(10))
    with pytest.raises(InvalidInputError, match="depth"):
        ValueLimits(depth=-1)


def test_a_long_list_obeys_the_limits_too(place: Place) -> None:
    state = place.open(limits=ValueLimits(items=2000)).agent("1")
    state.set("list", [])
    for number in range(0, 1990, 10):
        state.extend("list", range(number, number + 10))
    state.extend("list", range(1990, 1999))
    for more in ([1, 2], range(300)):
        with pytest.raises(LimitExceededError, match="2000 items"):
            state.extend("list", more)
    state.append("list", 1999)
    with pytest.raises(LimitExceededError, match="2000 items"), state.change() as change:
        change.set("other", 1)
        change.append("list", 2000)
    assert state.get("list") == list(range(2000))
    assert state.keys() == ["list"]
    state.update("list", lambda items: items[1:])
    state.append("list", "room again")
    assert place.reopen().agent("1").length("list") == 2000


def test_a_change_is_over_when_its_block_ends(place: Place) -> None:
    state = place.open().agent("1")
    with state.change() as change:
        change.set("a", 1)
    with pytest.raises(InvalidInputError, match="over"):
        change.set("a", 2)
    assert state.get("a") == 1


def test_a_change_takes_the_name_of_a_scope(place: Place) -> None:
    store = place.open()
    with store.change() as change:
        change["agent:1"].set("a", 1)
        change[holdfast.Scope.parse("session:2")].set("b", 2)
    assert store.agent("1").get("a") == 1
    assert store.session("2").get("b") == 2


def test_a_witness_of_another_store_is_a_finding(tmp_path: Path) -> None:
    with sync.open("memory:") as one, sync.open("memory:") as two:
        report = two.verify(expect=one.witness())
    assert [finding.kind for finding in report.findings] == ["witness"]


def test_a_key_s_log_has_the_restore_that_changed_it(place: Place) -> None:
    state = place.open().agent("1")
    state.set("x", 1)
    state.set("x", 2)
    state.set("y", 1)
    state.restore(1)
    found = state.log(key="x")
    assert [entry.sequence for entry in found] == [5, 2, 1]
    assert found[0].point == "main@1"
    assert state.item("x").version == 5  # type: ignore[union-attr]


def test_a_gate_cannot_reach_reserved_keys(place: Place) -> None:
    class Renames(Gate):
        def before(self, request: GateRequest) -> None:
            request.operations[0].key = "$mine/x"

    store = place.open()
    store.add_gate(Renames())
    with pytest.raises(GateRefusedError, match=r"Renames.*reserved"):
        store.agent("1").set("x", 1)


def test_a_useless_key_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("rubbish")
    (tmp_path / "k").chmod(0o600)
    with pytest.raises(WrongKeyError):
        sync.open(f"sqlite:{tmp_path / 'new.db'}", key=f"file:{tmp_path / 'k'}")
    assert os.listdir(tmp_path) == ["k"]


def test_the_ring_is_private(tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path / 'new.db'}", key="passphrase:correct horse"):
        pass
    assert (tmp_path / "new.db.keys").stat().st_mode & 0o077 == 0


def test_a_slip_is_refused_instead_of_finding_nothing(place: Place) -> None:
    state = place.open().agent("1")
    state.set("k", 1)
    with pytest.raises(InvalidInputError, match="chekpoint"):
        state.log(kind="chekpoint")
    with pytest.raises(InvalidInputError, match="rutine"):
        state.checkpoints(type="rutine")
    with pytest.raises(InvalidInputError, match="ValueLimits"):
        sync.open("memory:", limits=5)
