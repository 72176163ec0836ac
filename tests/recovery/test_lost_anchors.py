"""Agents whose history was pruned, and that lost the anchor which says what it begins with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from store_kit import Place, confirm_all, put_row, rows_of

from holdfast import sync
from holdfast.errors import PrunedError, RecoveryFailedError, StateIntegrityError
from holdfast.store.journal.save import Floor
from holdfast.store.names import rowkinds

KIND = "corruption_detected"
ROW = ("row damaged", "row lost")
ANCHOR = ("anchor damaged", "anchor lost", "row damaged, anchor damaged", "row lost, anchor lost")


class Pruned(NamedTuple):
    """What an agent held before anything was lost."""

    state: dict[str, Any]
    number: int
    floor: Floor
    head: int


def pruned(place: Place, *, checkpoint: bool = True) -> Pruned:
    """Make an agent that was pruned, up to a checkpoint or not, and went on."""
    with place.open() as store:
        state = store.agent("a")
        store.agent("b").set("k", 1)
        state.set("gone", 1)
        for n in range(4):
            state.set(f"k{n}", f"{n} of them, and long enough to stay in its entry")
            state.append("list", n)
        state.delete("gone")
        state.prune(state.checkpoint("late") if checkpoint else state._handle.place()[2], keep=())
        state.append("list", "behind")
        state.set("new", {"n": 1})
        state.append("list", "last")
        line = state._handle.history.points.line()
        return Pruned(dict(state.items()), line.ledger.number, line.floor, line.sequence)


def lose(place: Place, was: Pruned, what: str) -> dict[str, bytes]:
    """Damage or lose rows; the ones that are left of these, as they are then, by their keys."""
    line = rowkinds.line(b"E", was.number, 0)
    named = {
        "row": rowkinds.anchor(was.number, 0, was.floor.number),
        "anchor": rowkinds.entry(line, was.floor.anchor),
        "base": rowkinds.entry(rowkinds.line(b"B", was.number, 0), was.floor.sequence),
    }
    place.close()
    storage, left = place.storage(), dict[str, bytes]()
    for one in what.split(", "):
        name, how = one.split()
        row = storage.get([named[name]])[0]
        assert row is not None
        spoilt = row[:-3] + bytes([row[-3] ^ 1]) + row[-2:] if how == "damaged" else None
        put_row(storage, named[name], spoilt)
        left |= {named[name].hex(): spoilt} if spoilt is not None else {}
    storage.close()
    return left


def lose_from(place: Place, was: Pruned, first: int) -> None:
    """Lose the newest entries, from a number on."""
    place.close()
    storage = place.storage()
    line = rowkinds.line(b"E", was.number, 0)
    for key, _ in rows_of(storage, b"E"):
        if key.startswith(line) and rowkinds.sequence_of(key) >= first:
            put_row(storage, key, None)
    storage.close()


def about(store: sync.Store) -> set[tuple[str, int]]:
    """The kind of row and the number of the entry that each finding of `verify` is about."""
    keys = [bytes.fromhex(one.row) for one in store.verify().findings]
    return {(key[:1].decode(), rowkinds.sequence_of(key)) for key in keys}


def works(place: Place, store: sync.Store, recovery: sync.recovery.Recovery) -> None:
    """The agent can be written, checkpointed, restored, recovered again, pruned and opened."""
    before = about(store)
    state = store.agent("a")
    state.set("more", 1)
    safe = state.checkpoint("after")
    state.set("more", 2)
    state.restore(safe)
    assert state.get("more") == 1
    for kind in ("agent_crash", KIND):
        assert recovery.recover("agent:a", kind).lost == "nothing"
    assert state.get("more") == 1
    assert about(store) == before
    confirm_all(state)
    held = dict(state.items())
    state.prune(state.checkpoint("now"), keep=())
    assert about(store) <= before
    assert dict(place.reopen().agent("a").items()) == held


@pytest.mark.parametrize("what", [*ROW, *ANCHOR])
def test_without_a_copy_the_state_is_recovered_and_the_damage_stays_named(
    place: Place, what: str
) -> None:
    was = pruned(place)
    lose(place, was, what)
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    assert recovery.recover("agent:a", KIND).success
    assert dict(store.agent("a").items()) == was.state
    assert not store.verify().ok
    store.agent("a").set("more", 1)
    assert place.reopen().agent("a").get("more") == 1


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("what", ["row damaged, anchor lost, base damaged", "anchor lost"])
def test_defaults_are_the_last_resort(place: Place, what: str, checkpoint: bool) -> None:
    was = pruned(place, checkpoint=checkpoint)
    left = lose(place, was, what)
    store = place.open()
    refuse = sync.recovery.Recovery(store, order=["defaults"])
    with pytest.raises(RecoveryFailedError, match="no defaults were given"):
        refuse.recover("agent:a", KIND)
    again = sync.recovery.Recovery(store, order=["defaults"], defaults={"k": "new"})
    report = again.recover("agent:a", KIND)
    assert report.success
    assert report.strategy == "defaults"
    assert "defaults" in report.warning
    assert "everything but sticky keys" in report.lost
    assert dict(store.agent("a").items()) == {"k": "new"}
    aside = {one.id: one.content for one in again.quarantine("agent:a").list()}
    assert left.items() <= aside.items()
    works(place, store, sync.recovery.Recovery(store))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Place]:
    """A store in files, which can be copied."""
    place = Place("sqlite", tmp_path, sealed=True)
    yield place
    place.close()


def copied(place: Place) -> str:
    """A copy of the store's files."""
    place.close()
    to = place.path.with_name("copy.db")
    for path in place.path.parent.glob(f"{place.path.name}*"):
        shutil.copy(path, to.with_name(path.name.replace(place.path.name, to.name)))
    return f"sqlite:{to}"


@pytest.mark.parametrize("what", [*ROW, *ANCHOR, "anchor lost, base lost"])
def test_a_copy_that_has_the_anchor_heals_it(home: Place, what: str) -> None:
    was = pruned(home, checkpoint=False)
    url = copied(home)
    with home.open() as store:
        store.agent("a").set("since", 1)
    lose(home, was, what)
    store = home.open()
    with sync.open(url, **home.options()) as copy:
        recovery = sync.recovery.Recovery(store, copies=[copy])
        plan = recovery.plan("agent:a", KIND)
        report = recovery.recover("agent:a", KIND)
    assert (report.lost, plan.lost) == ("nothing", "nothing")
    assert dict(store.agent("a").items()) == {**was.state, "since": 1}
    assert store.verify().ok
    assert [one.kinds for one in store.agent("a").log()].count(("prune",)) == 1


def test_a_copy_of_before_serves(home: Place) -> None:
    with home.open() as store:
        store.agent("a").set("k", 1)
        store.agent("a").fork("side").set("k", 2)
    url = copied(home)
    was = pruned(home, checkpoint=False)
    lose(home, was, "row lost, anchor lost, base lost")
    store = home.open()
    with sync.open(url, **home.options()) as copy:
        recovery = sync.recovery.Recovery(store, copies=[copy], order=["copy"])
        assert recovery.recover("agent:a", "storage_failure").strategy == "copy"
        assert dict(store.agent("a").items()) == {"k": 1}


def test_an_anchor_that_was_lost_with_the_newest_entries(place: Place) -> None:
    was = pruned(place)
    lose_from(place, was, was.floor.anchor)
    store = place.open()
    recovery = sync.recovery.Recovery(store, defaults={"k": "new"})
    plan = recovery.plan("agent:a", KIND)
    report = recovery.recover("agent:a", KIND)
    named = f"entries {was.floor.anchor} to {was.head}, which the feed names"
    assert (report.lost, plan.lost) == (named, named)
    assert store.agent("a").get("list") == [0, 1, 2, 3]
    found = store.verify()
    assert [one.what for one in found.losses] == [named]
    assert {one.kind for one in found.findings} == {"damage"}


def test_a_pruned_agent_that_lost_all_begins_anew(place: Place) -> None:
    was = pruned(place)
    lose_from(place, was, 1)
    store = place.open()
    with pytest.raises(RecoveryFailedError, match="nothing of it is left"):
        sync.recovery.Recovery(store).recover("agent:a", KIND)
    recovery = sync.recovery.Recovery(store, defaults={"k": "new"})
    report = recovery.recover("agent:a", KIND)
    assert report.strategy == "defaults"
    assert f"entries 1 to {was.head}, which the feed names" in report.lost
    assert dict(store.agent("a").items()) == {"k": "new"}
    assert "damage" in {one.kind for one in store.verify().findings}


def test_what_is_lost_is_set_aside_however_short_the_time(place: Place) -> None:
    """Between the floor and its anchor lie more entries than are looked at in no time."""
    with place.open() as store:
        state = store.agent("a")
        for n in range(300):
            state.set("k", n)
        state.prune(5, keep=())
        line = state._handle.history.points.line()
        was = Pruned({}, line.ledger.number, line.floor, line.sequence)
    left = lose(place, was, "anchor damaged, base damaged")
    store = place.open()
    steps: list[dict[str, Any]] = [{"type": "backup_current", "action": {"budget": 0}}]
    steps += [{"type": one} for one in ("locate_checkpoint", "restore_state")]
    quick = {"id": "quick", "triggers": [KIND], "steps": steps}
    recovery = sync.recovery.Recovery(store, procedures=[quick])
    assert recovery.recover("agent:a", KIND).success
    aside = {one.id: one.content for one in recovery.quarantine("agent:a").list()}
    assert left.items() <= aside.items()


def test_an_anchor_that_is_lost_while_the_store_is_open(place: Place) -> None:
    was = pruned(place)
    store = place.open()
    assert store.agent("a").at(was.floor.sequence).get("list") == [0, 1, 2, 3]
    storage = place.storage()
    put_row(storage, rowkinds.entry(rowkinds.line(b"E", was.number, 0), was.floor.anchor), None)
    storage.close()
    recovery = sync.recovery.Recovery(store)
    assert recovery.recover("agent:a", KIND).success
    assert dict(store.agent("a").items()) == was.state
    assert {kind for kind, _ in about(place.reopen())} == {"E"}


def test_what_was_pruned_is_told_without_the_anchor(place: Place) -> None:
    was = pruned(place)
    lose(place, was, "anchor lost")
    store = place.open()
    with pytest.raises(PrunedError, match="its anchor is lost"):
        store.agent("a").at(2)
    assert store.agent("a").at(was.floor.sequence).get("list") == [0, 1, 2, 3]


def test_a_state_below_the_floor_that_was_changed_is_not_believed(plain: Place) -> None:
    """Of a plain store anybody can write a row that looks right."""
    was = pruned(plain, checkpoint=False)
    with plain.open() as store:
        other = store.agent("c")
        other.set("k0", "forged")
        other.prune(other._handle.place()[2], keep=())
    lose(plain, was, "anchor damaged")
    store = plain.open()
    with pytest.raises(StateIntegrityError, match="nothing else vouches"):
        store.agent("a").at(was.floor.sequence).get("k0")
