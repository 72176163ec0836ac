"""What is taken from copies of a store: the newest there is, and never less than is here."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.agents import Task
from holdfast.checkpoints import restore_request as partial
from holdfast.checkpoints.restore_request import Bringing
from holdfast.errors import RecoveryFailedError, ScopeErasedError, ScopeNotFoundError
from holdfast.recovery.failure_kinds import FAILURES


@pytest.fixture
def home(tmp_path: Path) -> Any:
    """A store in files, which can be copied."""
    place = Place("sqlite", tmp_path, sealed=True)
    yield place
    place.close()


def write(place: Place, first: int, last: int) -> None:
    """Entries of the agent, each with its number."""
    with place.open() as store:
        for n in range(first, last + 1):
            store.agent("7").set("k", n)


def copied(place: Place, name: str) -> str:
    """A copy of the store's files."""
    place.close()
    to = place.path.with_name(name)
    for path in place.path.parent.glob(f"{place.path.name}*"):
        shutil.copy(path, to.with_name(path.name.replace(place.path.name, to.name)))
    return f"sqlite:{to}"


def damage(place: Place, number: int, *, lost: bool) -> None:
    """Lose the entries of the agent from a number on, or spoil that one alone."""
    storage = place.storage()
    for key, row in rows_of(storage, b"E")[number - 1 :]:
        put_row(storage, key, None if lost else row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
        if not lost:
            break
    storage.close()


def recovered(place: Place, *urls: str, kind: str = "storage_failure") -> tuple[Any, int]:
    """The report of a recovery with copies, and the state after it."""
    store = place.open()
    with ExitStack() as stack:
        copies = [stack.enter_context(sync.open(url, **place.options())) for url in urls]
        report = sync.recovery.Recovery(store, copies=copies).recover("agent:7", kind)
    assert store.verify().ok or kind == "state_corruption"
    return report, store.agent("7").get("k")


@pytest.mark.parametrize("kind", ["storage_failure", "network_partition"])
def test_a_store_that_has_all_that_copies_have_keeps_it(home: Place, kind: str) -> None:
    write(home, 1, 8)
    old = copied(home, "old.db")
    write(home, 9, 12)
    new = copied(home, "new.db")
    write(home, 13, 14)
    report, k = recovered(home, old, new, kind=kind)
    assert (report.lost, k) == ("nothing", 14)
    if kind == "storage_failure":
        why = "copy 0: all that it has is here; copy 1: all that it has is here"
        assert report.passed["copy"] == why


@pytest.mark.parametrize("turned", [False, True])
def test_the_newest_of_several_copies_is_taken(home: Place, tmp_path: Path, turned: bool) -> None:
    write(home, 1, 2)
    urls = []
    (tmp_path / "copies").mkdir()
    for name, k in (("old", 10), ("new", 11)):
        url = f"sqlite:{tmp_path}/copies/{name}.db"
        with sync.open(url, **home.options()) as there:
            there.agent("7").set("k", k)
        urls.append(url)
    report, k = recovered(home, *(reversed(urls) if turned else urls))
    assert (report.strategy, report.lost, k) == ("copy", "what the copy lacks", 11)


@pytest.mark.parametrize(
    ("at", "lost"),
    [
        (16, "what the copy lacks"),
        (14, "entries 15 to 22, which the feed names"),
        (10, "entries 15 to 22, which the feed names"),
    ],
)
def test_of_an_old_copy_and_a_lost_tail_it_is_said_what_is_lost(
    home: Place, at: int, lost: str
) -> None:
    write(home, 1, at)
    old = copied(home, "old.db")
    write(home, at + 1, 22)
    home.close()
    damage(home, 15, lost=True)
    report, k = recovered(home, old)
    assert report.lost == lost
    assert k == max(at, 14)


def test_a_copy_that_went_its_own_way_is_not_taken_for_ours(home: Place) -> None:
    write(home, 1, 10)
    url = copied(home, "other.db")
    with sync.open(url, **home.options()) as there:
        for n in range(2):
            there.agent("7").set("k", f"elsewhere {n}")
    write(home, 11, 14)
    home.close()
    damage(home, 11, lost=True)
    report, k = recovered(home, url)
    assert report.strategy == "copy"
    assert report.lost == "what the copy lacks"
    assert k == "elsewhere 1"


@pytest.mark.parametrize("kind", sorted({*FAILURES, "mine"}))
def test_an_agent_that_is_not_in_the_store_begins_anew(home: Place, kind: str) -> None:
    """From a copy, another store that has one of that name, or from defaults."""
    store = home.open()
    store.agent("other").set("k", 1)
    has_copies = "copy" in FAILURES.get(kind, FAILURES["unknown"]).strategies
    with sync.open(f"sqlite:{home.path.with_name('copy.db')}", **home.options()) as copy:
        copy.agent("7").set("k", 5)
        for given, agent in (({"copies": [copy]}, "agent:7"), ({"defaults": {"k": 7}}, "agent:8")):
            recovery = sync.recovery.Recovery(store, **given)
            plan = recovery.plan(agent, kind)
            if plan.strategy is None:
                assert kind == "network_partition"
                assert "defaults" in given
                continue
            report = recovery.recover(agent, kind)
            assert (report.strategy, report.attempts) == (plan.strategy, 1)
            assert report.strategy == ("copy" if has_copies and "copies" in given else "defaults")
            assert store.scope(agent).get("k") == (5 if "copies" in given else 7)
    assert store.verify().ok
    with pytest.raises(ScopeNotFoundError):
        sync.recovery.Recovery(store).recover("agent:9", kind)


@pytest.mark.spec("X13")
@pytest.mark.parametrize(
    "kind", sorted(name for name, kind in FAILURES.items() if kind.strategies[0] == "newest_valid")
)
def test_a_state_that_makes_no_sense_does_not_answer_itself(home: Place, kind: str) -> None:
    """Without a checkpoint, a copy does, or defaults; if there are none, the recovery fails."""
    write(home, 1, 1)
    url = copied(home, "copy.db")
    write(home, 2, 2)
    store = home.open()
    with pytest.raises(RecoveryFailedError, match="that is the one that makes no sense"):
        sync.recovery.Recovery(store).recover("agent:7", kind)
    assert store.agent("7").get("k") == 2
    with sync.open(url, **home.options()) as copy:
        report = sync.recovery.Recovery(store, copies=[copy], defaults={"k": 0}).recover(
            "agent:7", kind
        )
    assert (report.strategy, store.agent("7").get("k")) == ("copy", 1)
    report = sync.recovery.Recovery(store, defaults={"k": 0}).recover("agent:7", kind)
    assert (report.strategy, store.agent("7").get("k")) == ("defaults", 0)


@pytest.mark.parametrize("erased", [False, True])
def test_a_foreign_store_with_subjects_does_not_serve(home: Place, erased: bool) -> None:
    """What it seals for them could not be read here."""
    write(home, 1, 1)
    store = home.open()
    with sync.open(f"sqlite:{home.path.with_name('other.db')}", **home.options()) as other:
        other.agent("7").append("talk", "I am Ada", subject="ada")
        if erased:
            other.erase_subject("ada")
        recovery = sync.recovery.Recovery(store, copies=[other], order=["copy"])
        assert "subjects" in recovery.plan("agent:7", "storage_failure").passed["copy"]
        with pytest.raises(RecoveryFailedError, match="subjects"):
            recovery.recover("agent:7", "storage_failure")
    assert store.agent("7").get("k") == 1


def task(state: sync.State) -> None:
    sync.agents.AgentState(state).put("tasks", "t", Task(id="t", title="work"))


def letter(state: sync.State) -> None:
    sync.agents.Mailbox(state).send("go")


@pytest.mark.parametrize("fill", [task, letter])
def test_one_that_came_from_a_copy_is_a_state_like_any_other(home: Place, fill: Any) -> None:
    """Also if all that it has are keys that parts of ours keep, or that no restore takes back."""
    store = home.open()
    store.agent("other").set("k", 1)
    with sync.open(f"sqlite:{home.path.with_name('copy.db')}", **home.options()) as copy:
        fill(copy.agent("7"))
        assert sync.recovery.Recovery(store, copies=[copy]).recover("agent:7").strategy == "copy"
    root = store.agent("7").root()
    for given in ({}, {"defaults": {"k": 0}}):
        report = sync.recovery.Recovery(store, **given).recover("agent:7", "agent_crash")
        assert (report.strategy, report.lost) == ("as_it_is", "nothing")
        assert store.agent("7").root() == root


def test_a_beginning_that_a_check_refuses_leaves_nothing(home: Place) -> None:
    store = home.open()
    recovery = sync.recovery.Recovery(store, defaults={"k": 7}, validate=[lambda now: "no"])
    with pytest.raises(Exception, match="the state before it is back"):
        recovery.recover("agent:7", "agent_crash")
    assert dict(store.agent("7").items()) == {}
    assert (
        sync.recovery.Recovery(store, defaults={"k": 7}).recover("agent:7", "agent_crash").success
    )
    assert store.agent("7").get("k") == 7


@pytest.mark.parametrize("again", [False, True])
def test_an_erased_agent_does_not_come_back_from_a_copy(home: Place, again: bool) -> None:
    write(home, 1, 3)
    url = copied(home, "copy.db")
    store = home.open()
    store.erase("agent:7")
    if again:
        store.agent("7").set("k", "another one")
    with sync.open(url, **home.options()) as copy:
        recovery = sync.recovery.Recovery(store, copies=[copy], order=["copy"])
        if again:
            plan = recovery.plan("agent:7", "agent_crash")
            assert plan.strategy is None
            assert "was erased in this store" in plan.passed["copy"]
        else:
            for refused in (recovery.plan, recovery.recover):
                with pytest.raises(ScopeErasedError, match="no copy brings it back"):
                    refused("agent:7", "storage_failure")
            assert recovery.reports("agent:7") == []
        anew = sync.recovery.Recovery(
            store, copies=[copy], order=["copy", "defaults"], defaults={"k": 0}
        )
        report = anew.recover("agent:7", "storage_failure")
        assert report.strategy == "defaults"
        assert "was erased in this store" in report.passed["copy"]
    assert store.agent("7").get("k") == 0
    assert store.verify().ok


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("most", [2000, 1])
@pytest.mark.parametrize("when", ["located", "compared"])
def test_one_that_is_erased_while_a_copy_is_taken_over_stays_erased(
    home: Place, monkeypatch: pytest.MonkeyPatch, damaged: bool, most: int, when: str
) -> None:
    """In one entry, or (if `most` keys fit into one) put together on a timeline of its own."""
    write(home, 1, 3)
    home.open().agent("7").set("name", "Ada")
    url = copied(home, "copy.db")
    write(home, 5, 6)
    if damaged:
        damage(home, 2, lost=False)
    store, other = home.open(), home.open()
    compared = Bringing._now

    def erase() -> None:
        if other.agent("7").exists("name"):
            other.erase("agent:7")

    def now(one: Bringing) -> Any:
        found = compared(one)
        if when == "compared" and one.handle.timeline == "main":
            erase()
        return found

    monkeypatch.setattr(partial, "MOST_KEYS", most)
    monkeypatch.setattr(Bringing, "_now", now)
    told: list[str] = []

    def progress(step: str, what: str) -> None:
        told.append(step)
        if step == "locate_checkpoint" and (damaged or when == "located"):
            erase()

    with sync.open(url, **home.options()) as copy:
        recovery = sync.recovery.Recovery(store, copies=[copy], order=["copy"])
        with pytest.raises(RecoveryFailedError, match="agent:7 was erased since it began"):
            recovery.recover("agent:7", "state_corruption", progress=progress)
    assert "locate_checkpoint" in told
    assert dict(other.agent("7").items()) == {}
    assert [one for one in other.scopes().items if one.scope.kind == "agent"] == []
    assert recovery.reports("agent:7") == []
    assert other.verify().ok


def test_a_beginning_that_was_undone_brings_no_erased_agent_back(home: Place) -> None:
    """Neither the next attempt nor the next recovery takes what it made for another agent."""
    store = home.open()
    store.agent("7").set("name", "Ada")
    store.erase("agent:7")

    def check(now: Any) -> bool:
        return bool(now.exists("name"))

    with sync.open(f"sqlite:{home.path.with_name('copy.db')}", **home.options()) as copy:
        copy.agent("7").set("name", "Ada")  # a store of another lineage
        recovery = sync.recovery.Recovery(store, copies=[copy], defaults={"k": 0}, validate=[check])
        with pytest.raises(RecoveryFailedError, match="stays erased"):
            recovery.recover("agent:7", "storage_failure")
        assert store.agent("7").items() == []
        with pytest.raises(RecoveryFailedError, match="stays erased"):
            sync.recovery.Recovery(store, copies=[copy]).recover("agent:7", "storage_failure")
    assert store.verify().ok


def test_a_copy_that_is_refused_is_not_taken_for_another_one(home: Place) -> None:
    store = home.open()
    store.agent("7").set("k", 0)
    urls = [f"sqlite:{home.path.with_name(name)}" for name in ("good.db", "odd.db")]
    with ExitStack() as opened:
        copies = [opened.enter_context(sync.open(url, **home.options())) for url in urls]
        for n, one in enumerate(copies):  # each has one entry, the odd one is newer
            one.agent("7").set("k", n + 1)

        def check(now: Any) -> bool:
            return not isinstance(now, sync.State) or now.get("k") == 1

        given: Any = {"copies": copies, "order": ["copy"], "validate": [check]}
        report = sync.recovery.Recovery(store, **given).recover("agent:7", "storage_failure")
    assert (report.strategy, report.attempts) == ("copy", 2)
    assert store.agent("7").get("k") == 1


def test_an_agent_whose_row_is_damaged_is_refused_with_what_helps(place: Place) -> None:
    """Catches: attempt after attempt, and an error that names no way out."""
    place.open().agent("7").set("k", 1)
    place.close()
    storage = place.storage()
    ((key, row),) = rows_of(storage, b"D")
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    recovery = sync.recovery.Recovery(place.reopen())
    with pytest.raises(
        RecoveryFailedError, match=r"give a copy of this store.* or erase the agent"
    ):
        recovery.recover("agent:7", "corruption_detected")
    assert recovery.reports("agent:7") == []
