"""Of the ways back, the one that loses least: what damaged rows held, and nothing beside it."""

from __future__ import annotations

from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.errors import Conflict, StateIntegrityError
from holdfast.recovery import steps
from holdfast.recovery.heal import damage_of
from holdfast.recovery.lost_entries import Tails
from holdfast.storage.contract import Batch
from holdfast.store.inner import STATED, StoreHandle, core_of, handle_of, state_losses
from holdfast.store.names import rowkinds

COUNT, SAVED = 120, 256
KIND = "corruption_detected"


def message(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {number} " * 8}


def filled(store: sync.Store) -> None:
    """A list that was appended to, with its index saved at entry 256; the plan is newer."""
    state = store.agent("7")
    for number in range(COUNT):
        state.set("plan", number)
        state.append("talk", message(number))
        if number % 30 == 0:
            state.checkpoint(f"at {number}")
    for number in range(20):
        state.set("plan", 1000 + number)
    assert state._handle.place()[2] == 264


def entry_of(number: int) -> int:
    """The entry that appended a message."""
    return 2 * number + 2 + (number + 29) // 30


def spoil(place: Place, kind: bytes, sequence: int, how: str = "flipped", ordinal: int = 0) -> None:
    place.close()
    storage = place.storage()
    found = [row for row in rows_of(storage, kind) if rowkinds.sequence_of(row[0]) == sequence]
    key, row = found[ordinal]
    at = {"flipped": -3, "envelope": 25}.get(how)
    if at is None:
        put_row(storage, key, None)
    else:
        bad = bytearray(row)
        bad[at] ^= 8
        put_row(storage, key, bytes(bad))
    storage.close()


def talk(store: sync.Store) -> list[int]:
    """Which messages are there."""
    found = [one["content"] for one in store.agent("7").get("talk")]
    return [int(text.split()[1]) for text in found]


def all_but(*numbers: int) -> list[int]:
    return [number for number in range(COUNT) if number not in numbers]


def stated(store: sync.Store) -> list[str]:
    report = store.verify()
    assert all(one.kind in STATED and one.row for one in report.findings)
    rows = [(one.kind, bytes.fromhex(one.row)) for one in report.findings]
    return state_losses(handle_of(store.agent("7")), rows, "no copy has it")


# a saved index


@pytest.mark.parametrize("how", ["flipped", "gone"])
@pytest.mark.parametrize("ordinal", [0, -1])
@pytest.mark.parametrize("before", [200, 260])
def test_a_damaged_saved_index_costs_no_state(
    place: Place, how: str, ordinal: int, before: int
) -> None:
    filled(place.open())
    spoil(place, b"N", SAVED, how, ordinal)
    store = place.open()
    assert not store.verify().ok
    state = store.agent("7")
    assert damage_of(handle_of(state), Tails(StoreHandle(core_of(store)))) is None
    assert state.restore(264, dry_run=True).dry_run
    report = sync.recovery.Recovery(store).recover(state, KIND)
    assert (report.success, report.lost, talk(store)) == (True, "nothing", all_but())
    stated(store)
    store = place.reopen()
    assert store.verify().ok
    state = store.agent("7")
    state.prune(before, dry_run=True)
    state.prune(before)
    store = place.reopen()
    assert store.verify().ok
    assert talk(store) == all_but()
    for point in (260, 264):
        assert len(store.agent("7").at(point).get("talk")) == COUNT
    newest = rows_of(place.storage(), b"S")[-1][0]
    assert rowkinds.sequence_of(newest) > SAVED, "it is saved as the entries give it"


def test_a_statement_that_others_overtake_is_made_anew_as_it_was(place: Place) -> None:
    filled(place.open())
    spoil(place, b"S", SAVED)
    store, between = place.open_between()
    report = store.verify()

    def overtaken() -> None:
        raise Conflict("others were faster", [])

    between.before = overtaken
    rows = [(one.kind, bytes.fromhex(one.row)) for one in report.findings]
    ids = state_losses(handle_of(store.agent("7")), rows, "no copy has it")
    assert between.before is None
    assert ids == [one.id for one in store.agent("7").checkpoints(name="stated loss")]
    newest = rows_of(place.storage(), b"S")[-1][0]
    assert rowkinds.sequence_of(newest) > SAVED, "it is saved as the entries give it"
    store = place.reopen()
    assert (store.verify().ok, talk(store)) == (True, all_but())


# keys that are damaged


@pytest.mark.parametrize("numbers", [(50,), (50, 90), (40, 41, 42)])
def test_damaged_entries_of_a_list_cost_their_items_alone(
    place: Place, numbers: tuple[int, ...]
) -> None:
    filled(place.open())
    for number in numbers:
        spoil(place, b"E", entry_of(number))
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    plan, report = recovery.plan("agent:7", KIND), recovery.recover("agent:7", KIND)
    entries = ", ".join(str(entry_of(number)) for number in numbers)
    text = f"what entr{'y' if len(numbers) == 1 else 'ies'} {entries} did to talk"
    assert (plan.strategy, plan.lost) == (report.strategy, report.lost) == ("keys", text)
    assert talk(store) == all_but(*numbers)
    assert store.agent("7").get("plan") == 1019
    stated(store)
    assert place.reopen().verify().ok


def test_a_list_of_which_a_part_was_changed_since_is_as_it_was(place: Place) -> None:
    """What such a change would do to a list that lacks an item, nobody knows."""
    store = place.open()
    filled(store)
    state = store.agent("7")
    items = state.get("talk")
    state.set("talk", [*items[:50], *items[51:]])
    for number in range(300):
        state.set("plan", number)
    spoil(place, b"E", entry_of(70))
    store = place.open()
    report = sync.recovery.Recovery(store).recover("agent:7", KIND)
    assert report.strategy == "keys"
    assert report.lost == "60 changes of 1 keys since main@125: talk"
    assert talk(store) == list(range(61))
    assert store.agent("7").get("plan") == 299


def test_what_a_check_refuses_is_not_replayed_again(place: Place) -> None:
    filled(place.open())
    spoil(place, b"E", entry_of(100))
    store = place.open()

    def unbroken(state: sync.State) -> bool:
        found = [int(one["content"].split()[1]) for one in state.get("talk")]
        return found == list(range(len(found)))

    report = sync.recovery.Recovery(store, validate=[unbroken]).recover("agent:7", KIND)
    assert (report.success, report.strategy) == (True, "keys")
    assert talk(store) == list(range(len(talk(store))))
    assert store.agent("7").get("plan") == 1019


# what cannot be done gives way


@pytest.mark.parametrize("ordinal", [0, -1])
@pytest.mark.parametrize("how", ["flipped", "gone"])
def test_neither_the_index_nor_all_entries_can_be_read(
    place: Place, how: str, ordinal: int
) -> None:
    filled(place.open())
    spoil(place, b"E", entry_of(100), how)
    spoil(place, b"N", SAVED, ordinal=ordinal)
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    plan, report = recovery.plan("agent:7", KIND), recovery.recover("agent:7", KIND)
    assert (report.success, report.attempts, report.lost) == (True, 1, plan.lost)
    assert talk(store) == all_but(100)
    assert store.agent("7").get("plan") == 1019
    stated(store)
    assert place.reopen().verify().ok
    assert talk(place.open()) == all_but(100)


def test_keys_that_cannot_be_put_back_give_way_to_the_next_strategy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to the same keys as an older checkpoint has them: `journal` loses less."""
    filled(place.open())
    spoil(place, b"E", entry_of(100))
    run = steps.Bringing.run
    failing = iter([True])

    def once(self: steps.Bringing, if_head: int | None) -> Any:
        if next(failing, False):
            raise StateIntegrityError("it cannot be put together")
        return run(self, if_head)

    store = place.open()
    monkeypatch.setattr(steps.Bringing, "run", once)
    report = sync.recovery.Recovery(store).recover("agent:7", KIND)
    assert (report.success, report.strategy, report.attempts) == (True, "journal", 2)
    assert report.seconds < 5
    assert "it cannot be put together" in report.passed["keys"]
    assert talk(store) == all_but(100)


# what is stated


@pytest.mark.parametrize("how", ["flipped", "envelope", "gone"])
def test_no_key_is_named_whose_value_is_whole(place: Place, how: str) -> None:
    """Not for the entry behind a damaged one, nor for what lies beside a damaged value."""
    filled(place.open())
    spoil(place, b"E", entry_of(31), how)
    store = place.open()
    assert sync.recovery.Recovery(store).recover("agent:7", KIND).success
    stated(store)
    store = place.reopen()
    assert store.verify().ok
    state = store.agent("7")
    with state.change() as change:
        change.set("one", [bytes([n]) * 9000 for n in range(200)])
        change.set("two", [bytes([n]) * 8000 for n in range(200)])
    written = state._handle.place()[2]
    state.set("one", 1)
    spoil(place, b"V", written)
    store = place.open()
    assert not store.verify().ok
    stated(store)
    assert place.reopen().verify().ok


@pytest.mark.parametrize("save", ["whole", "flipped"])
def test_a_save_that_lost_entries_announced_is_in_nobodys_way(place: Place, save: str) -> None:
    """The feed does not name these either: its newest rows are gone as well."""
    store = place.open()
    filled(store)
    place.close()
    storage = place.storage()
    lost = [key for key, _ in rows_of(storage, b"E") if rowkinds.sequence_of(key) > SAVED]
    feed = [key for key, _ in rows_of(storage, b"F")][-len(lost) :]
    storage.commit(Batch(drops=[*lost, *feed]))
    storage.close()
    if save == "flipped":
        spoil(place, b"S", SAVED)
    store = place.open()
    assert {one.kind for one in store.verify().findings} == {"unaccounted"}
    stated(store)
    store = place.reopen()
    assert store.verify().ok
    assert talk(store) == all_but()
    for number in range(600):
        store.agent("7").set("plan", number)
    store = place.reopen()
    assert (store.verify().ok, talk(store)) == (True, all_but())
