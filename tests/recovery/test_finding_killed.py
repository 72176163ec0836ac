"""Watchdog, boot and healing whose process ends with any of their commits: another finishes."""

from __future__ import annotations

import itertools
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from beats_kit import by_hand, pass_a_lease
from store_kit import Hands, Place, put_row, rows_of

from holdfast import sync
from holdfast.errors import HoldfastError
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core


def faulty(place: Place, **more: Any) -> tuple[sync.Store, Faulty]:
    """A store whose storage can be told to fail, as a process of its own has one."""
    storage = Faulty(place.storage())
    core = open_core(place.url, storage=storage, **place.options(**more))
    return by_hand(sync.Store(StoreHandle(core))), storage


def die(storage: Faulty, nth: int) -> None:
    """From the nth commit from now on nothing is written any more."""
    storage.plan = (Fault("commit", storage.calls["commit"] + nth, onward=True),)


class Counter(sync.agents.Agent):
    """Counts."""

    persistent = ("count",)
    count = 0


def silent(store: sync.Store, id: str) -> None:
    """An agent whose process renews its lease no more."""
    agents = sync.agents.Agents(store, {"counter": lambda identity: Counter()})
    agents.register(id, kind="counter")
    kept = agents.spawn(id)
    kept.agent.count = 41
    kept.save()


def test_a_watchdog_that_ends_at_any_commit_leaves_its_work_to_the_next(
    plain: Place, hands: Hands
) -> None:
    runner = by_hand(plain.open(clock=hands.clock))
    for nth in itertools.count(1):
        silent(runner, str(nth))
        dying, storage = faulty(plain, clock=hands.clock)
        watchdog = sync.recovery.Watchdog(dying)
        watchdog.look()
        pass_a_lease(hands, dying)
        die(storage, nth)
        with suppress(HoldfastError):
            watchdog.look()
        survived = not storage.failed
        storage.plan = ()
        storage.close()
        store = by_hand(plain.open(clock=hands.clock))
        for one in store.leases():
            if one.name.startswith("recovery/"):
                store.break_lease(one.name)
        second = sync.recovery.Watchdog(store)
        outcomes = [one.outcome for one in second.look()]
        for _ in range(3):
            pass_a_lease(hands, store)
            outcomes += [one.outcome for one in second.look()]
        assert set(outcomes) <= {"recovered", "failed"}, (nth, outcomes)
        assert second.unanswered() == []
        reports = sync.recovery.Recovery(store).reports(f"agent:{nth}")
        assert reports[0].success
        assert {one.lost for one in reports} == {"nothing"}
        agents = sync.agents.Agents(store, {"counter": lambda identity: Counter()})
        assert agents.spawn(str(nth)).agent.count == 41
        agents.close()
        second.stop()
        if survived:
            break
    assert nth > 12
    assert plain.open().verify().findings == []


def unfinished(place: Place, scope: str) -> None:
    """Leave an operation, an effect and a letter."""
    store, storage = faulty(place)
    state = store.scope(scope)
    state.set("plan", 1)
    with suppress(HoldfastError), sync.checkpoints.Checkpoints(state).operation("deploy"):
        state.set("plan", 2)
        with suppress(RuntimeError), sync.agents.Effects(state).once("charge", key="k"):
            raise RuntimeError
        sync.agents.Mailbox(state).send("hello", id="1")
        die(storage, 1)
    storage.plan = ()
    storage.close()


def test_a_boot_that_ends_at_any_commit_is_finished_by_the_next(plain: Place) -> None:
    for nth in itertools.count(1):
        scope = f"workflow:{nth}"
        unfinished(plain, scope)
        dying, storage = faulty(plain)
        die(storage, nth)
        with suppress(HoldfastError):
            sync.recovery.boot(dying, scopes=[scope])
        survived = not storage.failed
        storage.plan = ()
        storage.close()
        store = plain.open()
        report = sync.recovery.boot(store, scopes=[scope])
        assert report.left == []
        state = store.scope(scope)
        assert state.get("plan") == 1
        effect = sync.agents.Effects(state).get("charge", key="k")
        assert effect is not None
        assert effect.status == "planned"
        assert [one.id for one in sync.agents.Mailbox(state).waiting()] == ["1"]
        assert sync.checkpoints.Checkpoints(state).held() == []
        if survived:
            break
    assert nth > 2
    assert plain.open().verify().findings == []


@pytest.mark.parametrize("mode", ["before", "ambiguous-applied", "ambiguous-lost"])
def test_healing_that_ends_at_any_commit_is_done_by_the_next_slice(
    tmp_path: Path, mode: str
) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    for n in range(10):
        place.open().agent("7").set(f"k{n}", n)
    place.close()
    (tmp_path / "twin").mkdir()
    twin = Place("sqlite", tmp_path / "twin", sealed=False)
    for path in place.path.parent.iterdir():
        shutil.copy(path, twin.path.parent / path.name)
    twin.signer = place.signer
    copy = twin.open()
    key, row = rows_of(copy._core.storage, b"E")[3]
    for nth in itertools.count(1):
        place.close()
        storage = place.storage()
        put_row(storage, key, b"damaged")
        storage.close()
        dying, failing = faulty(place)
        failing.plan = (Fault("commit", failing.calls["commit"] + nth, mode, onward=True),)
        with suppress(HoldfastError):
            sync.recovery.Scrubber(dying, copies=[copy], budget=30).slice()
        survived = not failing.failed
        failing.plan = ()
        failing.close()
        store = place.open()
        with suppress(HoldfastError):
            store.break_lease("recovery/scrub")
        assert sync.recovery.Scrubber(store, copies=[copy], budget=30).slice() is not None
        assert store._core.storage.get([key]) == [row]
        assert dict(store.agent("7").items()) == {f"k{n}": n for n in range(10)}
        aside = [one.id for one in sync.recovery.Recovery(store).quarantine("agent:7").list()]
        assert aside == [key.hex()]
        if survived:
            break
    assert nth > 3
    assert place.open().verify().findings == []
    place.close()
    twin.close()
