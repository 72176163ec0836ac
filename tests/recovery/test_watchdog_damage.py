"""Damage and a watchdog: all that is left is answered, whoever found it first, and not for ever."""

from __future__ import annotations

import time
from typing import Any

import pytest
from store_kit import Hands, Place, put_row, rows_of

from holdfast import sync
from holdfast.errors import RecoveryFailedError

BUDGET = 300.0
"""Seconds in which a slice is through all of such a small store, on whatever machine."""


def worked(place: Place, count: int = 4) -> list[tuple[bytes, bytes]]:
    """An agent that wrote; the rows of its entries."""
    with place.open() as store:
        state = store.agent("7")
        for n in range(count):
            state.set("k", n)
    place.close()
    storage = place.storage()
    found = rows_of(storage, b"E")
    storage.close()
    return found


def put(place: Place, key: bytes, row: bytes | None) -> None:
    """Let a row be another one, or none, behind the store's back."""
    place.close()
    storage = place.storage()
    put_row(storage, key, row)
    storage.close()


def spoil(place: Place, key: bytes, row: bytes) -> None:
    """Damage a row."""
    put(place, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])


class Watching:
    """A watchdog that a scrubber tells of what it finds."""

    def __init__(self, store: sync.Store, *given: Any, **more: Any) -> None:
        self.watchdog = sync.recovery.Watchdog(store, *given, **more)
        self.scrubber = sync.recovery.Scrubber(
            store, budget=BUDGET, interval=0.02, found=self.watchdog.report
        )

    def look(self) -> list[Any]:
        """What both do at a time."""
        self.scrubber.slice()
        return self.watchdog.look()


@pytest.mark.spec("K2")
def test_damage_is_found_and_answered_by_itself_with_a_state_that_is_checked(place: Place) -> None:
    """Catches: a watchdog that finds and does not recover; `validate` that is not asked; what was
    put back, and then refused, that stays."""
    store = place.open()
    state = store.agent("7")
    for plan in ("good", "odd", "lost"):
        state.set("plan", plan)
        state.checkpoint(plan)
    state.set("plan", "damaged")
    spoil(place, *rows_of(place.storage(), b"E")[-1])
    store = place.open()
    state = store.agent("7")

    def after(found: Any) -> str | None:
        """Refuses one before it is put back, and another only once it is there."""
        plan = found.get("plan")
        there = isinstance(found, sync.State)
        return f"{plan} is not sound" if plan == "lost" or (there and plan == "odd") else None

    recovery = sync.recovery.Recovery(store, order=["newest_valid"], validate=[after])
    both = Watching(store, recovery, interval=0.02)
    with both.watchdog, both.scrubber:  # nobody calls them
        end = time.monotonic() + 60
        while not recovery.reports(state) or recovery.reports(state)[0].finished_at is None:
            assert time.monotonic() < end
            time.sleep(0.02)
    report = recovery.reports(state)[0]
    assert (report.status, state.get("plan")) == ("succeeded", "good")
    failed = {one.step for _, one in report.steps if not one.success}
    assert failed == {"validate_state"}, "the odd one was put back, and refused"

    state.set("plan", "now")
    refusing = sync.recovery.Recovery(
        store, validate=[lambda found: "no" if isinstance(found, sync.State) else None]
    )
    with pytest.raises(RecoveryFailedError):
        refusing.recover(state, "state_corruption", point="good")
    report = refusing.reports(state)[0]
    done = [(part, one.step) for part, one in report.steps if one.success]
    assert ("steps", "restore_state") in done
    assert ("rollback", "restore_backup") in done
    assert (report.status, state.get("plan")) == ("rolled_back", "now")


def test_damage_that_another_was_told_of_is_recovered(place: Place) -> None:
    spoil(place, *worked(place)[-1])
    done = sync.recovery.Scrubber(place.open(), budget=BUDGET).slice()
    assert done is not None
    assert done.findings != ()
    store = place.open()
    watchdog = Watching(store)
    assert [one.outcome for one in watchdog.look()] == ["recovered"]
    assert [watchdog.look() for _ in range(3)] == [[], [], []]  # what is past harms nobody
    assert store.agent("7").get("k") == 2


@pytest.mark.parametrize("left", [3, 0])
def test_newest_entries_that_were_lost_are_answered_once(place: Place, left: int) -> None:
    for key, _ in worked(place)[left:]:
        put(place, key, None)
    store = place.open()
    watchdog = Watching(store, sync.recovery.Recovery(store, defaults={"k": "new"}))
    [one] = watchdog.look()
    assert one.outcome == "recovered"
    assert "which the feed names" in one.report.lost
    assert [watchdog.look() for _ in range(3)] == [[], [], []]
    assert store.agent("7").get("k") == (2 if left else "new")


def test_what_cannot_be_mended_is_tried_again_after_pauses(plain: Place, hands: Hands) -> None:
    spoil(plain, *worked(plain)[-1])
    sync.recovery.Scrubber(plain.open(), budget=BUDGET).slice()
    store = plain.open(clock=hands.clock)
    watchdog = Watching(store, sync.recovery.Recovery(store, order=["newest_valid"]))
    tries = []
    for _ in range(20):
        tries += [one.outcome for one in watchdog.look()]
        hands.move(0.5)
    assert tries == ["failed"] * 4  # after a second, two and four
    assert [one.tries for one in watchdog.watchdog.unanswered()] == [4]


def test_a_function_is_told_of_damage_after_pauses_until_it_is_mended(
    plain: Place, hands: Hands
) -> None:
    row = worked(plain)[-1]
    spoil(plain, *row)
    store, told = plain.open(clock=hands.clock), list[str]()
    watchdog = Watching(store, on_failure=lambda scope, _: told.append(str(scope)))
    found = []
    for _ in range(20):
        found += [one.outcome for one in watchdog.look()]
        hands.move(0.5)
    assert found == ["told"] * 4  # after a second, two and four
    assert told == ["agent:7"] * 4
    assert [one.error for one in watchdog.watchdog.unanswered()] == ["it is still damaged"]
    watchdog.watchdog.stop()
    put(plain, *row)
    watchdog = Watching(plain.open(), on_failure=lambda scope, _: told.append(str(scope)))
    assert [one.outcome for one in watchdog.look()] == ["passed"]
    assert watchdog.watchdog.unanswered() == []


def test_a_recovery_that_mends_nothing_is_not_made_again_at_each_look(place: Place) -> None:
    spoil(place, *worked(place)[-1])
    store = place.open()
    kinds = ["hash_mismatch", "partial_corruption", "structure_invalid", "data_inconsistent"]
    nothing = {"id": "nothing", "triggers": kinds, "steps": [{"type": "cleanup"}]}
    watchdog = Watching(store, sync.recovery.Recovery(store, procedures=[nothing]))
    [one] = [one for _ in range(4) for one in watchdog.look()]
    assert one.outcome == "recovered"
    assert one.report.procedure == "nothing"
