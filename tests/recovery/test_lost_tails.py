"""Newest entries that were dropped: nothing but the feed knows of them, and the report says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, confirm_all, put_row, rows_of

from holdfast import sync
from holdfast.errors import DamagedRecordError
from holdfast.recovery.lost_entries import Tails
from holdfast.store.journal.feed import FeedHeads

ALL = {"k": 1, "paid": "order 17"}


def worked(place: Place, more: int = 1) -> None:
    """An agent with a checkpoint and entries behind it."""
    with place.open() as store:
        state = store.agent("7")
        state.set("k", 1)
        state.checkpoint("good")
        for _ in range(more):
            state.set("paid", "order 17")


def drop(place: Place, count: int = 1) -> None:
    """Lose the newest entries of the agent."""
    place.close()
    storage = place.storage()
    for key, _ in rows_of(storage, b"E")[-count:]:
        put_row(storage, key, None)
    storage.close()


@pytest.mark.parametrize("kind", ["corruption_detected", "agent_crash", "state_corruption"])
def test_what_was_lost_is_named_and_its_trace_is_kept(place: Place, kind: str) -> None:
    worked(place, 3)
    drop(place, 2)
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    lost = "entries 4 to 5, which the feed names"
    assert lost in recovery.plan("agent:7", kind).lost
    report = recovery.recover("agent:7", kind)
    assert report.success
    assert lost in report.lost
    assert lost in recovery.reports("agent:7")[0].lost
    (aside,) = recovery.quarantine("agent:7").list()
    assert "entry 4" in aside.place
    assert aside.content is None
    assert recovery.recover("agent:7", "agent_crash").lost == "nothing"  # it is told once


def test_procedures_without_a_backup_tell_of_it_too(place: Place) -> None:
    worked(place)
    drop(place)
    steps = [{"type": "validate_state"}]
    procedure = {"id": "look", "triggers": ["look"], "steps": steps}
    recovery = sync.recovery.Recovery(place.open(), procedures=[procedure])
    assert recovery.recover("agent:7", "look").lost == "entry 3, which the feed names"


@pytest.mark.parametrize("kind", ["corruption_detected", "agent_crash"])
def test_a_copy_gives_back_what_was_lost(tmp_path: Path, kind: str) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    worked(place, 3)
    url = copied(place, tmp_path / "copy.db")
    drop(place, 2)
    store = place.open()
    with sync.open(url, **place.options()) as copy:
        recovery = sync.recovery.Recovery(store, copies=[copy])
        plan = recovery.plan("agent:7", kind)
        assert plan.lost == "nothing"
        assert plan.healed == 2
        assert "healed from copies: 2 rows" in str(plan)
        assert "damaged_state" in {one.kind for one in recovery.health("agent:7").concerns}
        report = recovery.recover("agent:7", kind)
    assert report.lost == "nothing"
    assert dict(store.agent("7").items()) == ALL
    assert store.verify().ok


def test_boot_and_health_do_not_take_what_is_left_for_the_newest_state(place: Place) -> None:
    worked(place, 40)
    drop(place, 30)
    store = place.open()
    concerns = {one.kind for one in sync.recovery.Recovery(store).health("agent:7").concerns}
    assert "damaged_state" in concerns
    report = sync.recovery.boot(store)
    assert report.methods["agent:7"] != "primary"
    (item,) = report.items
    assert "entries 13 to 42, which the feed names" in item.why
    again = sync.recovery.boot(store)  # though the feed still names more entries than there are
    assert again.methods["agent:7"] == "primary"
    assert again.items == []


def test_the_feed_is_read_once_and_as_far_as_is_asked(place: Place) -> None:
    store = place.open()
    states: list[Any] = [store.agent(str(n)) for n in range(3)]
    for _ in range(5):
        for state in states:
            state.set("k", 1)
    number = states[0]._handle.history.points.line().ledger.number
    heads = FeedHeads(store._core.lanes)

    def named(depth: int | None) -> tuple[int, int | None]:
        heads.look(depth)
        return heads.named(number, 0)

    assert named(1) == (0, None)  # of a part nobody knows how many there are
    assert named(3)[0] == 5
    other = place.open()
    other.agent("0").set("k", 2)
    other.agent("0").set("k", 3)
    assert named(3)[0] == 7
    assert named(None) == (7, 7)
    assert heads.named(number, 1) == (0, 0)
    assert Tails(store._handle).lost(states[0].scope) is None


def copied(place: Place, to: Path) -> str:
    """A copy of the store's files."""
    place.close()
    for path in place.path.parent.glob(f"{place.path.name}*"):
        shutil.copy(path, to.with_name(path.name.replace(place.path.name, to.name)))
    return f"sqlite:{to}"


def test_a_group_is_healed_from_copies_as_one_agent_is(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    with place.open() as store:
        store.agent("8").set("k", 1)
    worked(place, 3)
    with place.open() as store:
        sync.checkpoints.CheckpointGroups(store).create(["agent:7", "agent:8"], "both")
        store.agent("7").set("k", "odd")
    url = copied(place, tmp_path / "copy.db")
    drop_of_agent(place, 2)
    store = place.open()
    with sync.open(url, **place.options()) as copy:
        recovery = sync.recovery.Recovery(store, copies=[copy])
        reports = recovery.recover_group(["agent:7", "agent:8"], "agent_crash")
    assert [one.lost for one in recovery.reports("agent:7")] == ["1 entries after it", "nothing"]
    assert all(one.success for one in reports.values())
    assert dict(store.agent("7").items()) == ALL
    assert store.verify().ok


def test_a_group_tells_what_going_back_loses(place: Place) -> None:
    store = place.open()
    team = [store.agent("7"), store.agent("8")]
    for member in team:
        member.set("k", 1)
    sync.checkpoints.CheckpointGroups(store).create(team, "good")
    team[0].set("k", 2)
    team[0].set("k", 3)
    reports = sync.recovery.Recovery(store).recover_group(team, "state_corruption")
    assert [one.lost for one in reports.values()] == ["2 entries after it", "nothing"]
    assert "lost: 2 entries after it" in str(reports[team[0].scope])


def lost_fifteen(place: Place) -> Any:
    """An agent that lost entries 6 to 20, recovered."""
    with place.open() as store:
        for n in range(20):
            store.agent("7").set("k", n)
    drop(place, 15)
    store = place.open()
    report = sync.recovery.Recovery(store).recover("agent:7", "corruption_detected")
    assert report.lost == "entries 6 to 20, which the feed names"
    return store


def drop_of_agent(place: Place, count: int) -> list[tuple[bytes, bytes]]:
    """Lose the newest entries of the agent, not those of its recoveries; what they were."""
    store = place.open()
    prefix = store.agent("7")._handle.history.points.line().prefix
    place.close()
    storage = place.storage()
    gone = [(key, row) for key, row in rows_of(storage, b"E") if key.startswith(prefix)][-count:]
    for key, _ in gone:
        put_row(storage, key, None)
    storage.close()
    return gone


def test_what_was_told_is_known_to_verify_and_asks_for_nothing_more(place: Place) -> None:
    store = lost_fifteen(place)
    report = store.verify()
    assert report.ok
    (known,) = report.losses
    assert known.scope == "agent:7"
    assert known.what == "entries 6 to 20, which the feed names"
    assert "known to be lost: agent:7: entries 6 to 20" in str(report)
    health = sync.recovery.Recovery(store).health("agent:7")
    assert "damaged_state" not in {one.kind for one in health.concerns}
    (concern,) = (one for one in health.concerns if one.kind == "known_loss")
    assert "entries 6 to 20" in concern.what
    state = store.agent("7")
    for n in range(30):  # past the lost numbers, and over them
        state.set("k", n)
        assert not store.verify().findings
    assert store.verify().losses == [known]
    assert any(one.name.startswith("losses of ") for one in state.checkpoints())  # it is signed


def test_a_later_loss_below_the_told_numbers_is_told(place: Place) -> None:
    store = lost_fifteen(place)
    store.agent("7").set("paid", "order 17")
    store.agent("7").set("paid", "order 18")
    gone = drop_of_agent(place, 2)
    store = place.open()
    (finding,) = store.verify().findings
    assert finding.kind == "feed"
    recovery = sync.recovery.Recovery(store)
    first, last = (int.from_bytes(key[9:14], "big") for key, _ in gone)
    lost = f"entries {first} to {last}, which the feed names"
    for kind in ("agent_crash", "corruption_detected"):
        assert recovery.plan("agent:7", kind).lost == lost
    assert recovery.recover("agent:7", "agent_crash").lost == lost
    assert store.verify().ok
    assert len(store.verify().losses) == 2
    assert recovery.recover("agent:7", "corruption_detected").lost == "nothing"


def test_entries_put_back_over_what_was_told_are_found(place: Place) -> None:
    with place.open() as store:
        for n in range(20):
            store.agent("7").set("k", n)
    old = drop_of_agent(place, 15)
    store = place.open()
    sync.recovery.Recovery(store).recover("agent:7", "corruption_detected")
    store.agent("7").set("k", "new")
    assert store.verify().ok
    drop_of_agent(place, 100)
    place.close()
    storage = place.storage()
    for key, row in old:
        put_row(storage, key, row)
    storage.close()
    assert "feed" in {one.kind for one in place.open().verify().findings}


def test_nothing_is_written_in_the_place_of_what_is_lost(place: Place) -> None:
    """A process asks the feed before it first writes to a timeline; others are not held up."""
    worked(place, 3)
    drop(place, 2)
    store = place.open()
    assert store.agent("7").get("k") == 1
    for _ in range(2):
        with pytest.raises(DamagedRecordError, match="the feed names entries up to 5"):
            store.agent("7").set("k", 2)
    store.agent("8").set("k", 2)
    recovery = sync.recovery.Recovery(store)
    assert recovery.recover("agent:7", "corruption_detected").lost != "nothing"
    store.agent("7").set("k", 2)
    place.close()
    store = place.open()
    store.agent("7").set("k", 3)
    assert store.verify().ok


@pytest.mark.usefixtures("unaware")
def test_entries_that_others_wrote_over_are_found(place: Place) -> None:
    worked(place, 3)
    drop(place, 2)
    store = place.open()
    for n in range(5):
        store.agent("7").set("k", n)
    (finding,) = store.verify().findings
    assert finding.message == (
        "entries 4 to 5, which the feed names, were dropped, and others have taken their numbers"
    )
    report = sync.recovery.Recovery(store).recover("agent:7", "corruption_detected")
    assert report.lost == "entries 4 to 5, which the feed names"
    assert store.verify().ok


@pytest.mark.usefixtures("unaware")
def test_of_a_commit_that_is_lost_in_part_that_part_is_named(place: Place) -> None:
    with place.open() as store:
        state = store.agent("7")
        state.set("k", 1)
        state.checkpoint("good")
        state.set("k", 2)
        state.restore("good")  # entry 4, the backup, and entry 5 in one commit
    drop(place, 1)
    store = place.open()
    for _ in range(3):
        assert Tails(store._handle).lost(store.agent("7").scope) == {"main": [5, 5]}
        store.agent("7").set("k", 3)  # takes the number of the lost one


@pytest.mark.parametrize("size", [10, 9000])
def test_what_was_stored_with_lost_entries_stands_in_nobodys_way(place: Place, size: int) -> None:
    with place.open() as store:
        for n in range(20):
            with (
                store.acting("client", correlation=f"run {n}"),
                store.agent("7").change(id=f"change {n}") as change,
            ):
                change.set("k", str(n) * size)
    drop(place, 10)
    store = place.open()
    assert sync.recovery.Recovery(store).recover("agent:7", "corruption_detected").success
    assert store.verify().ok
    for n in range(20):
        store.agent("7").set("k", str(n) * size)
    assert store.verify().ok


def test_what_is_known_to_be_lost_outlives_pruning_and_a_check_in_parts(place: Place) -> None:
    store = lost_fifteen(place)
    state = store.agent("7")
    for n in range(30):
        state.set("k", n)
    confirm_all(state)
    state.prune(before=state.checkpoint("late"), keep=())
    report = store.verify()
    assert report.ok
    assert len(report.losses) == 1
    state.set("k", "later")
    seen = store.verify(budget=0)
    while seen.resume is not None:
        assert seen.ok
        seen = store.verify(budget=0, resume=seen.resume)
    assert seen.ok


def numbers(entries: Any) -> list[int]:
    """The numbers of the agent's entries, in the order in which they came."""
    return [one.sequence for one in entries if str(one.scope) == "agent:7"]


def test_the_feed_goes_on_behind_what_is_known_to_be_lost(place: Place) -> None:
    """Numbers were given twice; each entry that is here comes once, in order, from anywhere."""
    store = place.open()
    other = place.open()  # writes to a lane of its own
    beginning = store.position()
    for n in range(10):
        (store, other)[n % 2].agent("7").set("k", n)
    middle = store.position()
    for n in range(10):
        (store, other)[n % 2].agent("7").set("k", n)
    late = store.position()
    drop_of_agent(place, 15)
    for _ in range(2):
        store, other = place.open(), place.open()
        recovery = sync.recovery.Recovery(store)
        assert "which the feed names" in recovery.recover("agent:7", "corruption_detected").lost
        for n in range(30):
            (store, other)[n % 3 % 2].agent("7").set("k", n)
            store.agent("8").set("k", n)
        head = store.agent("7")._handle.place()[2]
        for since, first in ((beginning, 1), (middle, 6), (late, 6)):
            assert numbers(place.open().feed(since)) == list(range(first, head + 1))
            watch = place.open().watch(since=since, timeout=0)
            assert numbers(watch) == list(range(first, head + 1))
        drop_of_agent(place, 7)  # once more


def test_a_watch_that_had_seen_what_is_lost_goes_on(place: Place) -> None:
    store = place.open()
    watch = store.watch("agent:7", since=store.position(), timeout=0)
    state = store.agent("7")
    for n in range(20):
        state.set("k", n)
    assert numbers(watch) == list(range(1, 21))
    storage, prefix = store._core.storage, state._handle.history.points.line().prefix
    for key, _ in rows_of(storage, b"E"):
        if key.startswith(prefix) and int.from_bytes(key[9:14], "big") > 5:
            put_row(storage, key, None)
    other = place.open()
    assert sync.recovery.Recovery(other).recover("agent:7", "corruption_detected").success
    for n in range(30):
        other.agent("7").set("k", n)
    assert numbers(watch) == list(range(6, other.agent("7")._handle.place()[2] + 1))
