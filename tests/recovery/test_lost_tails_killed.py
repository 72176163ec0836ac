"""A recovery of lost entries whose process ends with any commit: resumed, it says the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.errors import HoldfastError, MissingError
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core

LOST = "entries 7 to 8, which the feed names"


def lose(place: Place, agent: str, count: int = 2) -> None:
    """Lose the newest entries of an agent."""
    store = place.open()
    prefix = store.agent(agent)._handle.history.points.line().prefix
    place.close()
    storage = place.storage()
    for key, _ in [one for one in rows_of(storage, b"E") if one[0].startswith(prefix)][-count:]:
        put_row(storage, key, None)
    storage.close()


def break_leases(store: sync.Store) -> None:
    """What time does to the leases of a process that is gone."""
    for one in store.leases():
        try:
            store.break_lease(one.name)
        except MissingError:
            continue


def ends(
    place: Place, recover: Callable[[sync.recovery.Recovery, str], object]
) -> Iterator[tuple[str, sync.Store]]:
    """For each commit of a recovery a store whose process ended with that commit."""
    for nth in itertools.count(1):
        agent = f"a{nth}"
        with place.open() as store:
            for n in range(8):
                store.agent(agent).set("k", n)
            store.agent(f"b{nth}").set("k", 1)
        lose(place, agent)
        storage = Faulty(place.storage())
        dying = sync.Store(StoreHandle(open_core(place.url, storage=storage, **place.options())))
        storage.plan = (Fault("commit", storage.calls["commit"] + nth, onward=True),)
        try:
            recover(sync.recovery.Recovery(dying), agent)
        except HoldfastError:
            store = place.open()
            break_leases(store)
            yield agent, store
            store.close()
        else:
            assert nth > 5, "a recovery that writes so little was not looked at"
            return
        finally:
            storage.plan = ()
            storage.close()


def check_told(store: sync.Store, agent: str) -> None:
    """The loss is told, once, and signed; and the feed goes on over it."""
    report = store.verify(f"agent:{agent}")
    assert report.ok, report
    assert [one.what for one in report.losses] == [LOST]
    state = store.agent(agent)
    names = [one.name for one in state.checkpoints() if one.name.startswith("losses of ")]
    assert len(names) == 1
    for n in range(3):
        state.set("k", n)
    last = state._handle.place()[2]
    numbers = [one.sequence for one in store.feed() if str(one.scope) == f"agent:{agent}"]
    assert numbers == list(range(1, last + 1))


@pytest.mark.parametrize("kind", ["agent_crash", "corruption_detected", "storage_failure"])
def test_one_agent_has_lost_the_same_whoever_ends_it(place: Place, kind: str) -> None:
    for agent, store in ends(place, lambda recovery, one: recovery.recover(f"agent:{one}", kind)):
        recovery = sync.recovery.Recovery(store)
        recovery.resume(f"agent:{agent}")
        if not recovery.reports(f"agent:{agent}"):
            recovery.recover(f"agent:{agent}", kind)  # it had not begun
        (report,) = recovery.reports(f"agent:{agent}")
        assert report.success, report
        assert report.lost == LOST, agent
        check_told(store, agent)
        signed = store.custom(f"$recovery/agent:{agent}").checkpoints()
        assert f"recovery {report.id}" in {one.name for one in signed}
