"""What has happened in the world is not forgotten because a row beside it is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Ephemeral, Sticky, sync

DAMAGED = "corruption_detected"


def damage(place: Place, *entries: int) -> None:
    """Flip a bit of entries of the only agent behind the store's back."""
    place.close()
    storage = place.storage()
    found = rows_of(storage, b"E")
    for entry in entries:
        key, row = found[entry - 1]
        put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()


def mail(state: sync.State, sent: list[str], id: str) -> None:
    """An effect that is done once."""
    with sync.Effects(state).once("mail", id=id) as effect:
        if effect.due:
            sent.append(id)
            effect.result = "sent"


@pytest.mark.parametrize("boots", [False, True])
def test_an_effect_is_not_done_again_after_damage_before_it(place: Place, boots: bool) -> None:
    sent: list[str] = []
    state = place.open().agent("7")
    mail(state, sent, "order-16")
    state.checkpoint("good")
    victim = state.set("victim", 1)
    state.set("k", 2)
    mail(state, sent, "order-17")
    damage(place, victim)
    store = place.open()
    if boots:
        assert "what entry" in str(sync.boot(store))
    else:
        report = sync.Recovery(store).recover("agent:7", DAMAGED)
        assert (report.strategy, report.lost) == ("journal", f"what entry {victim} did")
    for id in ("order-16", "order-17"):
        mail(store.agent("7"), sent, id)
    assert sent == ["order-16", "order-17"]
    assert store.agent("7").get("k") == 2


def test_sticky_keys_letters_and_rules_are_replayed(place: Place) -> None:
    state = place.open().agent("7")
    state.declare(Sticky("eff/"))
    state.append("eff/list", 1)
    sync.Mailbox(state).send("one")
    state.checkpoint("good")
    victim = state.set("victim", 1)
    state.append("eff/list", 2)
    state.set("eff/mail", "sent")
    state.declare(Sticky("more/"))
    state.set("more/1", 1)
    sync.Mailbox(state).send("two")
    damage(place, victim)
    store = place.open()
    report = sync.Recovery(store).recover("agent:7", DAMAGED)
    assert (report.strategy, report.lost) == ("journal", f"what entry {victim} did")
    state = store.agent("7")
    assert (state.get("eff/list"), state.get("eff/mail")) == ([1, 2], "sent")
    assert {Sticky("eff/"), Sticky("more/")} <= set(state.declared())
    assert [one.content for one in sync.Mailbox(state).waiting()] == ["one", "two"]
    state.restore("good")
    assert (state.get("more/1"), state.get("eff/mail")) == (1, "sent")


@pytest.mark.parametrize("way", ["newest_valid", "named", "defaults"])
def test_sticky_keys_stay_when_the_rest_goes_back(place: Place, way: str) -> None:
    sent: list[str] = []
    state = place.open().agent("7")
    state.declare(Sticky("eff/"))
    state.set("k", 1)
    mail(state, sent, "order-16")
    state.checkpoint("good")
    victim = state.set("victim", 1)
    state.set("k", 2)
    mail(state, sent, "order-17")
    state.set("eff/1", "done")
    damage(place, victim)
    store = place.open()
    recovery = sync.Recovery(store, order=[way], defaults={"k": 0})
    point = "good" if way == "named" else None
    report = recovery.recover("agent:7", "state_corruption", point=point)
    state = store.agent("7")
    assert report.strategy == way
    assert dict(state.items()) == {"k": 0 if way == "defaults" else 1, "eff/1": "done"}
    for id in ("order-16", "order-17"):
        mail(state, sent, id)
    assert sent == ["order-16", "order-17"]
    if way != "defaults":
        assert report.lost == "2 entries after it"  # the damaged one, and `k`


def test_a_damaged_sticky_value_goes_back_alone(plain: Place) -> None:
    state = plain.open().agent("7")
    state.declare(Sticky("eff/"))
    state.set("eff/long", "a" * 3000)
    state.set("eff/other", 1)
    state.checkpoint("good")
    state.set("eff/other", 2)
    state.set("eff/long", [bytes([n]) * 9000 for n in range(40)])
    for n in range(300):  # so that the index is saved, which leads to the value
        state.set("n", n)
    expected = {key: value for key, value in state.items() if key != "eff/long"}
    plain.close()
    storage = plain.storage()
    key, row = rows_of(storage, b"V")[3]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    store = plain.open()
    report = sync.Recovery(store).recover("agent:7", DAMAGED)
    assert (report.strategy, report.restored_from) == ("keys", "main@4")
    assert report.lost == "changes of 1 keys since main@4"
    found = dict(store.agent("7").items())
    assert found.pop("eff/long") == "a" * 3000
    assert found == expected


@pytest.mark.parametrize("here", ["nothing", "damage", "a state"])
def test_what_a_copy_has_comes_with_its_rules(place: Place, tmp_path: Path, here: str) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    there = Place("sqlite", folder, sealed=False)
    copy = there.open()

    def fill(store: sync.Store, mark: str) -> dict[str, Any]:
        state = store.agent("7")
        state.declare(Sticky("eff/"), Ephemeral("tmp/"))
        state.set("k", mark)
        state.set("eff/1", mark)
        sync.Mailbox(state).send(mark)
        return dict(state.items())

    expected = fill(copy, "copy")
    if here != "nothing":
        fill(place.open(), "here")
    if here == "damage":
        damage(place, 1, 3)
    store = place.open()
    recovery = sync.Recovery(store, copies=[copy], order=["copy"])
    report = recovery.recover("agent:7", "storage_failure")
    state = store.agent("7")
    assert report.strategy == "copy"
    assert {Sticky("eff/"), Ephemeral("tmp/")} <= set(state.declared())
    if here == "a state":  # what happened here is known here
        assert (state.get("k"), state.get("eff/1")) == ("copy", "here")
        assert [one.content for one in sync.Mailbox(state).waiting()] == ["here"]
    else:
        assert dict(state.items()) == expected
        assert [one.content for one in sync.Mailbox(state).waiting()] == ["copy"]
    state.checkpoint("c")
    state.set("eff/2", "sent")
    state.restore("c")
    assert state.get("eff/2") == "sent"
    there.close()
