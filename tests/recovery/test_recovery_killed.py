"""A recovery whose process ends after any of its commits is finished by another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from store_kit import Place

from holdfast import sync
from holdfast.errors import HoldfastError, MissingError
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core

DONE = {"task": {"id": 1}}


def plain(state: sync.State) -> dict[str, object]:
    """What a user sees of an agent."""
    return dict(state.items())


def faulty(place: Place) -> tuple[sync.Store, Faulty]:
    """A store whose storage can be told to fail, as a process of its own has one."""
    storage = Faulty(place.storage())
    core = open_core(place.url, storage=storage, **place.options())
    return sync.Store(StoreHandle(core)), storage


def break_leases(store: sync.Store) -> None:
    """What time does to the leases of a process that is gone."""
    for one in store.leases():
        try:
            store.break_lease(one.name)
        except MissingError:
            continue


def ends(place: Place) -> Iterator[tuple[int, sync.Store]]:
    """For each commit of a recovery a store whose process ended with that commit."""
    for nth in itertools.count(1):
        with place.open() as store:
            state = store.agent(str(nth))
            state.set("task", {"id": 1})
            state.checkpoint("good")
            state.set("plan", "bad")
        dying, storage = faulty(place)
        before = storage.calls["commit"]
        storage.plan = (Fault("commit", before + nth, onward=True),)
        try:
            sync.recovery.Recovery(dying).recover(f"agent:{nth}", "state_corruption")
        except HoldfastError:
            yield nth, place.open()
        else:
            assert nth > 10, "a recovery that writes so little was not looked at"
            return
        finally:
            storage.plan = ()
            storage.close()


def test_a_recovery_that_ends_at_any_commit_is_finished_by_another(place: Place) -> None:
    for nth, store in ends(place):
        state = store.agent(str(nth))
        assert plain(state) in ({"task": {"id": 1}, "plan": "bad"}, DONE), nth
        break_leases(store)
        recovery = sync.recovery.Recovery(store)
        resumed = recovery.resume(state)
        if not resumed and not recovery.reports(state):
            recovery.recover(state, "state_corruption")  # it had not begun
        report = recovery.reports(state)[0]
        assert report.success, report
        assert plain(state) == DONE
        told = [one for one in recovery.notices(limit=1000) if one.agent == str(state.scope)]
        assert len(told) == 1
        assert recovery.resume(state) == []
        store.close()
    assert place.open().verify().findings == []
