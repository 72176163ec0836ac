"""What has happened in the world is not forgotten because a row beside it is damaged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import Ephemeral, Sticky, sync
from holdfast.checkpoints import restore_request as partial
from holdfast.checkpoints.restore_request import past_damage
from holdfast.errors import Conflict, RecoveryFailedError
from holdfast.recovery import RecoveryTarget
from holdfast.store.names.cause import acting

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


def damage_values(place: Place, *entries: int) -> None:
    """Flip a bit of long values that entries of the only agent wrote."""
    place.close()
    storage = place.storage()
    left = set(entries)
    for key, row in rows_of(storage, b"V"):
        if (entry := int.from_bytes(key[9:14], "big")) in left:
            left.remove(entry)
            put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    assert not left


LONG = 50_000


def damaged(place: Place) -> sync.Store:
    """An agent with two sticky keys that cannot be read, a letter and an effect; all else can."""
    state = place.open().agent("7")
    state.declare(Sticky("eff/"))
    state.set("eff/paid", "before")
    state.set("k", 1)
    sync.agents.Mailbox(state).send("one")
    state.checkpoint("good")
    box, first = sync.agents.Mailbox(state), state._handle.place()[2]
    box.send("x" * LONG)
    letter = state._handle.place()[2]
    assert letter == first + 1
    paid = state.set("eff/paid", os.urandom(LONG))
    for n in range(300):  # so that the index is saved, which leads to the values
        state.set("k", n)
    state.set("k", 2)
    state.set("eff/other", "done")
    box.send("three")
    state.checkpoint("later")
    damage_values(place, letter, paid)
    return place.open()


def mail(state: sync.State, sent: list[str], id: str) -> None:
    """An effect that is done once."""
    with sync.agents.Effects(state).once("mail", id=id) as effect:
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
        assert "what entry" in str(sync.recovery.boot(store))
    else:
        report = sync.recovery.Recovery(store).recover("agent:7", DAMAGED)
        assert (report.strategy, report.lost) == ("journal", f"what entry {victim} did")
    for id in ("order-16", "order-17"):
        mail(store.agent("7"), sent, id)
    assert sent == ["order-16", "order-17"]
    assert store.agent("7").get("k") == 2


def test_sticky_keys_letters_and_rules_are_replayed(place: Place) -> None:
    state = place.open().agent("7")
    state.declare(Sticky("eff/"))
    state.append("eff/list", 1)
    sync.agents.Mailbox(state).send("one")
    state.checkpoint("good")
    victim = state.set("victim", 1)
    state.append("eff/list", 2)
    state.set("eff/mail", "sent")
    state.declare(Sticky("more/"))
    state.set("more/1", 1)
    sync.agents.Mailbox(state).send("two")
    damage(place, victim)
    store = place.open()
    report = sync.recovery.Recovery(store).recover("agent:7", DAMAGED)
    assert (report.strategy, report.lost) == ("journal", f"what entry {victim} did")
    state = store.agent("7")
    assert (state.get("eff/list"), state.get("eff/mail")) == ([1, 2], "sent")
    assert {Sticky("eff/"), Sticky("more/")} <= set(state.declared())
    assert [one.content for one in sync.agents.Mailbox(state).waiting()] == ["one", "two"]
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
    recovery = sync.recovery.Recovery(store, order=[way], defaults={"k": 0})
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
    report = sync.recovery.Recovery(store).recover("agent:7", DAMAGED)
    assert (report.strategy, report.restored_from) == ("keys", "main@4")
    assert report.lost == "what entry 6 did to eff/long"
    found = dict(store.agent("7").items())
    assert found.pop("eff/long") == "a" * 3000
    assert found == expected


@pytest.mark.parametrize("pieces", ["one", "many"])
@pytest.mark.parametrize("here", ["nothing", "damage", "a state"])
def test_what_a_copy_has_comes_with_its_rules(
    place: Place, tmp_path: Path, here: str, pieces: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pieces == "many":
        monkeypatch.setattr(partial, "MOST_KEYS", 2)
    folder = tmp_path / "there"
    folder.mkdir()
    there = Place("sqlite", folder, sealed=False)
    copy = there.open()

    def fill(store: sync.Store, mark: str) -> dict[str, Any]:
        state = store.agent("7")
        state.declare(Sticky("eff/"), Ephemeral("tmp/"))
        state.set("k", mark)
        state.set("eff/1", mark)
        sync.agents.Mailbox(state).send(mark)
        return dict(state.items())

    expected = fill(copy, "copy")
    if here != "nothing":
        fill(place.open(), "here")
    if here == "damage":
        damage(place, 1, 3)
    store = place.open()
    recovery = sync.recovery.Recovery(store, copies=[copy], order=["copy"])
    report = recovery.recover("agent:7", "storage_failure")
    state = store.agent("7")
    assert report.strategy == "copy"
    assert {Sticky("eff/"), Ephemeral("tmp/")} <= set(state.declared())
    if here == "a state":  # what happened here is known here
        assert (state.get("k"), state.get("eff/1")) == ("copy", "here")
        assert [one.content for one in sync.agents.Mailbox(state).waiting()] == ["here"]
    else:
        assert dict(state.items()) == expected
        assert [one.content for one in sync.agents.Mailbox(state).waiting()] == ["copy"]
    state.checkpoint("c")
    state.set("eff/2", "sent")
    state.restore("c")
    assert state.get("eff/2") == "sent"
    there.close()


def contents(state: sync.State) -> list[Any]:
    """What the letters say that wait."""
    return [one.content for one in sync.agents.Mailbox(state).waiting()]


@pytest.mark.parametrize("way", ["journal", "keys", "newest_valid", "named", "defaults"])
def test_damaged_sticky_values_stop_no_recovery(plain: Place, way: str) -> None:
    store = damaged(plain)
    point = "good" if way == "named" else None
    recovery = sync.recovery.Recovery(store, order=[way], defaults={"k": 0})
    plan = recovery.plan("agent:7", "agent_crash", point=point)
    report = recovery.recover("agent:7", "agent_crash", point=point)
    state = store.agent("7")
    assert (report.success, report.strategy) == (True, way)
    assert (plan.strategy, plan.lost) == (way, report.lost)
    wanted = {"journal": 2, "keys": 2, "defaults": 0}.get(way, 1)
    assert dict(state.items()) == {"k": wanted, "eff/paid": "before", "eff/other": "done"}
    assert contents(state) == ["one", "three"]  # what is replayed only lacks what is damaged
    if way in ("newest_valid", "named", "defaults"):
        assert "what damaged rows held of $mailbox/inbox/messages, eff/paid" in report.lost
    sync.agents.Mailbox(state).send("four")
    assert contents(state)[-1] == "four"


@pytest.mark.parametrize("kind", ["agent_crash", "missed_beats", DAMAGED])
def test_a_plan_says_what_is_done_past_damaged_sticky_values(plain: Place, kind: str) -> None:
    store = damaged(plain)
    recovery = sync.recovery.Recovery(store)
    plan = recovery.plan("agent:7", kind)
    report = recovery.recover("agent:7", kind)
    assert (report.strategy, report.lost) == (plan.strategy, plan.lost)
    assert store.agent("7").get("k") == 2
    assert dict(store.agent("7").items("eff/")) == {"eff/paid": "before", "eff/other": "done"}


def test_a_copy_gives_the_sticky_keys_that_cannot_be_read_here(
    plain: Place, tmp_path: Path
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    there = Place("sqlite", folder, sealed=False)
    state = there.open().agent("7")
    state.declare(Sticky("eff/"))
    for key in ("k", "eff/paid", "eff/other"):
        state.set(key, "copy")
    store = damaged(plain)
    recovery = sync.recovery.Recovery(store, copies=[there.open()], order=["copy"])
    assert recovery.recover("agent:7", "storage_failure").strategy == "copy"
    found = dict(store.agent("7").items())
    assert found == {"k": "copy", "eff/paid": "copy", "eff/other": "done"}
    there.close()


def test_an_explicit_recovery_leaves_nothing_that_cannot_be_read(plain: Place) -> None:
    store = damaged(plain)
    state = store.agent("7")
    done = sync.checkpoints.Checkpoints(state).recover()
    told = (
        "sticky keys that could not be read are those of main@5: $mailbox/inbox/messages, eff/paid"
    )
    assert done.restored_from == "main@5"
    assert done.restored.passed_over == told
    assert told in str(done)
    assert done.restored.left == ("eff/other",)
    assert dict(state.items()) == {"k": 1, "eff/paid": "before", "eff/other": "done"}
    assert contents(state) == ["one"]
    assert state.at(done.backup_created).get("k") == 2


def test_sticky_keys_that_others_write_meanwhile_stay(plain: Place) -> None:
    store = damaged(plain)
    state = store.agent("7")
    handle = state._handle
    with acting("test"), past_damage(handle, "main@5", "full", None) as way:
        state.set("eff/new", "done")
        state.delete("eff/other")
        change, finish = handle.plan_restore(way.point, "full", None, None, True, way.keep)
        finish(handle.core.run(change))
    assert dict(state.items()) == {"k": 1, "eff/paid": "before", "eff/new": "done"}


@pytest.mark.parametrize("what", ["the damaged one", "one that begins it", "a rule"])
def test_what_is_damaged_and_written_meanwhile_is_looked_at_again(plain: Place, what: str) -> None:
    state = damaged(plain).agent("7")
    handle = state._handle

    def restore() -> None:
        with past_damage(handle, "main@5", "full", None) as way:
            if what == "a rule":
                state.declare(Sticky("more/"))
            else:
                state.set("eff/paid" if what == "the damaged one" else "eff/p", "meanwhile")
            change, _ = handle.plan_restore(way.point, "full", None, None, True, way.keep)
            handle.core.run(change)

    with pytest.raises(Conflict):
        restore()
    assert [one.name for one in handle.history.timelines()] == ["main"]
    sync.checkpoints.Checkpoints(state).restore("good", past_damage=True)
    paid = "meanwhile" if what == "the damaged one" else "before"
    assert (state.get("k"), state.get("eff/paid")) == (1, paid)


def test_damaged_sticky_values_of_more_than_one_entry_go_back(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "MOST_BYTES", 20_000)
    state = plain.open().agent("7")
    state.declare(Sticky("eff/"))
    before = {f"eff/{n}": bytes([n]) * 10_000 for n in range(4)}
    with state.change() as change:
        for key, value in before.items():
            change.set(key, value)
    state.checkpoint("good")
    entries = [state.set(key, os.urandom(LONG)) for key in before]
    for n in range(300):
        state.set("k", n)
    damage_values(plain, *entries)
    store = plain.open()
    report = sync.recovery.Recovery(store).recover("agent:7", "partial_corruption")
    lost = "what entries 4, 5, 6, 7 did to eff/0, eff/1, eff/2, eff/3"
    assert (report.strategy, report.lost) == ("keys", lost)
    assert dict(store.agent("7").items()) == before | {"k": 299}


def test_a_list_gets_what_was_appended_behind_its_lost_beginning(plain: Place) -> None:
    state = plain.open().agent("7")
    state.append("short", "before")
    state.checkpoint("good")
    entries = []
    for key in ("new", "short"):
        state.append(key, "x" * 5000)
        entries.append(state._handle.place()[2])
    for key in ("new", "short"):
        state.append(key, "behind")
    damage(plain, *entries)
    store = plain.open()
    report = sync.recovery.Recovery(store).recover("agent:7", "agent_crash")
    assert report.lost == "what entries 3, 4 did; doubtful keys: new, short"
    found = dict(store.agent("7").items())
    assert found == {"new": ["behind"], "short": ["before", "behind"]}


def test_what_the_first_repair_made_that_can_be_read_stands(plain: Place) -> None:
    store = damaged(plain)
    mine = {"mine": lambda _: RecoveryTarget("mine", "good", "a key", keys=("eff/paid",))}
    order = ["mine", "newest_valid", "defaults"]
    given = {"strategies": mine, "defaults": {"k": 0}, "validate": [lambda _: False]}
    recovery = sync.recovery.Recovery(store, order=order, **given)
    with pytest.raises(RecoveryFailedError, match="what newest_valid made stands"):
        recovery.recover("agent:7", "agent_crash")
    report = recovery.reports("agent:7")[0]
    assert report.status == "failed"
    assert "what damaged rows held of $mailbox/inbox/messages" in report.lost
    found = dict(store.agent("7").items())
    assert found == {"k": 1, "eff/paid": "before", "eff/other": "done"}
