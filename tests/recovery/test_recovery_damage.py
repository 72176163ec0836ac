"""Damaged rows: what is lost is exactly what they held, and the report says so."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.errors import RecoveryFailedError
from holdfast.recovery.quarantine import PLACE


def damage(place: Place, kind: bytes, number: int) -> None:
    """Flip a bit of a row behind the store's back."""
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, kind)[number]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()


def work(state: sync.State, count: int = 10) -> dict[str, Any]:
    """Entries of an agent; what they come to."""
    expected: dict[str, Any] = {}
    for n in range(count):
        state.set(f"k{n}", {"n": n})
        expected[f"k{n}"] = {"n": n}
    return expected


def test_a_row_set_aside_without_its_digest_is_known_again(place: Place) -> None:
    """As stores have them of versions that kept none."""
    work(place.open().agent("7"))
    damage(place, b"E", 3)
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    assert recovery.recover("agent:7", "corruption_detected").success
    quarantine = recovery.quarantine("agent:7")
    [aside] = quarantine.list()
    book = quarantine._book
    old = replace(book.get(PLACE + aside.id), digest="")
    book.step(lambda page: page.put(PLACE + aside.id, old))
    assert quarantine.list() == [aside]
    assert recovery.recover("agent:7", "corruption_detected").success
    assert quarantine.list() == [aside]
    assert quarantine.release(aside.id).digest == aside.digest


@pytest.mark.spec("M54", "X11")
def test_one_damaged_entry_costs_what_it_did_and_nothing_else(place: Place) -> None:
    expected = work(place.open().agent("7"))
    damage(place, b"E", 3)
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    report = recovery.recover("agent:7", "corruption_detected")
    assert (report.strategy, report.lost) == ("journal", "what entry 4 did")
    del expected["k3"]
    assert dict(store.agent("7").items()) == expected
    aside = recovery.quarantine("agent:7").list()
    assert len(aside) == 1
    assert "entry 4" in aside[0].place
    assert aside[0].content
    released = recovery.quarantine("agent:7").release(aside[0].id, "seen")
    assert released.released_at is not None
    assert recovery.quarantine("agent:7").release(aside[0].id, "again") == released  # as it was


class Remembering:
    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}


@pytest.mark.parametrize("entry", [2, 3, 4])
def test_an_attached_agent_goes_on_with_what_is_left_of_it(place: Place, entry: int) -> None:
    """Its memory has a key for each item, and one that names them."""
    state, agent = place.open().agent("7"), Remembering()
    kept = sync.agents.attach(agent, state, fields=["memory"])
    agent.memory = {f"k{n}": n for n in range(40)}
    kept.save()
    for n in range(40, 44):
        agent.memory[f"k{n}"] = n
        kept.save()
    damage(place, b"E", entry - 1)
    store = place.open()
    assert sync.recovery.Recovery(store).recover("agent:7", "corruption_detected").success
    for _ in range(2):
        again = Remembering()
        with sync.agents.attach(again, store.agent("7"), fields=["memory"]):
            lost = agent.memory.keys() - again.memory.keys()
            assert lost <= {f"k{38 + entry}"}
            assert again.memory == {n: one for n, one in agent.memory.items() if n not in lost}


def test_a_value_that_later_entries_only_changed_is_left_out_and_named(place: Place) -> None:
    state = place.open().agent("7")
    state.set("story", ["word " * 200] * 40)
    state.checkpoint("good")
    state.set("lost", 1)
    state.append("story", "the end")
    state.set("kept", 2)
    damage(place, b"E", 2)
    store = place.open()
    report = sync.recovery.Recovery(store).recover("agent:7", "corruption_detected")
    after = store.agent("7")
    assert after.get("kept") == 2
    assert after.get("lost") is None
    assert after.tail("story", 1) == ["the end"]
    assert "doubtful keys: story" in report.lost


def test_later_changes_that_rest_on_a_lost_one_are_counted(place: Place) -> None:
    """An agent that sets all of its list each turn: only what is new in it is stored."""
    state, story = place.open().agent("7"), ["word " * 200] * 40
    for number in range(6):
        state.set("story", [*story, *map(str, range(number))])
    damage(place, b"E", 2)
    report = sync.recovery.Recovery(place.open()).recover("agent:7", "corruption_detected")
    assert "what entry 3 did; later changes that rest on that: 3 of story" in report.lost


def test_a_report_names_all_that_is_lost_where_its_text_names_some(place: Place) -> None:
    state = place.open().agent("7")
    with state.change() as change:
        for n in range(11):
            change.set(f"list{n:02}", ["word " * 200] * 40)
    state.checkpoint("good")
    for n in range(12):
        state.set(f"lost{n:02}", n)
    for n in range(11):
        state.append(f"list{n:02}", n)
    for n in range(12):
        damage(place, b"E", 2 + n)
    report = sync.recovery.Recovery(place.open()).recover("agent:7", "corruption_detected")
    assert "10, 11, 12 and 2 more did" in report.lost
    assert "list09 and 1 more" in report.lost
    (done,) = [one.result for _, one in report.steps if one.step == "restore_state"]
    assert done["lost_entries"] == list(range(3, 15))
    assert done["doubtful_keys"] == [f"list{n:02}" for n in range(11)]


def test_damage_in_the_past_alone_costs_nothing(place: Place) -> None:
    state = place.open().agent("7")
    with state.change() as change:
        for n in range(400):
            change.set(f"k{n}", n)
    for n in range(300):
        state.set("k1", n)
    expected = dict(state.items())
    damage(place, b"E", 1)
    store = place.open()
    report = sync.recovery.Recovery(store).recover("agent:7", "corruption_detected")
    assert report.lost in ("nothing", "what entry 2 did")
    assert dict(store.agent("7").items()) == expected


def test_a_newest_entry_behind_many_others_can_be_passed_over(place: Place) -> None:
    """The state is not saved by the restore that leaves it, for it cannot be read."""
    state = place.open().agent("7")
    for n in range(600):
        state.set(f"k{n % 5}", n)
    state.checkpoint("good")
    damage(place, b"E", -1)
    store = place.open()
    report = sync.recovery.Recovery(store).recover("agent:7", "corruption_detected")
    assert report.success
    assert store.agent("7").get("k4") == 599


def test_without_anything_else_an_agent_begins_with_defaults_and_a_warning(place: Place) -> None:
    work(place.open().agent("7"), 2)
    damage(place, b"E", 0)
    damage(place, b"E", 1)
    store = place.open()
    with pytest.raises(RecoveryFailedError, match="no strategy serves"):
        quick(store).recover("agent:7", "corruption_detected", procedure="quick")
    recovery = quick(store, defaults={"task": None})
    report = recovery.recover("agent:7", "corruption_detected", procedure="quick")
    assert report.strategy == "defaults"
    assert dict(store.agent("7").items()) == {"task": None}
    assert "everything" in report.lost
    assert set(report.passed) == {"keys", "journal", "newest_valid", "copy"}


def quick(store: sync.Store, **more: Any) -> sync.recovery.Recovery:
    """With the standard procedure, and no pauses."""
    recovery = sync.recovery.Recovery(store, **more)
    standard = recovery.select(recovery_failure())
    recovery.set({**standard.data(), "id": "quick", "retries": 0})
    return recovery


def recovery_failure() -> Any:
    """What the standard procedure answers."""
    from holdfast.recovery import AgentFailure

    return AgentFailure("agent_crash")


def test_a_copy_of_the_store_gives_what_is_lost_here(place: Place, tmp_path: Any) -> None:
    with sync.open(f"sqlite:{tmp_path}/copy.db") as copy:
        expected = work(copy.agent("7"))
        work(place.open().agent("7"), 3)
        damage(place, b"E", 0)
        store = place.open()
        recovery = sync.recovery.Recovery(store, copies=[copy], order=["copy"])
        report = recovery.recover("agent:7", "storage_failure")
        assert report.strategy == "copy"
        assert dict(store.agent("7").items()) == expected


def test_what_was_set_aside_is_erased_with_the_agent(place: Place) -> None:
    secret = "the secret of 4711"
    place.open().agent("7").set("k", secret)
    work(place.open().agent("7"))
    damage(place, b"E", 0)
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    recovery.recover("agent:7", "corruption_detected")
    [aside] = recovery.quarantine("agent:7").list()
    assert aside.content is not None
    assert (secret.encode() in aside.content) is not place.sealed
    recovery.quarantine("agent:7").release(aside.id)
    store.erase("agent:7")
    assert recovery.quarantine("agent:7").list() == []
    assert recovery.reports("agent:7") == []
    place.close()
    if place.engine == "sqlite":
        files = [one.read_bytes() for one in place.path.parent.iterdir() if one.is_file()]
        assert not any(secret.encode() in one for one in files)
    assert place.open().verify().ok
