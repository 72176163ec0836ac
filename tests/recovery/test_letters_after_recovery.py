"""Letters of agents that go back: none is lost, none comes twice, and new ones are processed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.agents import RetryPolicy

FAILURE = "state_corruption"


def pair(store: sync.Store) -> tuple[sync.State, sync.State]:
    """Two agents that have something."""
    states = store.agent("a"), store.agent("b")
    for state in states:
        state.set("done", [])
    return states


def taken_back(reports: dict[Any, Any]) -> dict[str, int]:
    """How many letters were taken out of whose inbox."""
    steps = {str(scope): report.steps[-1][1].result for scope, report in reports.items()}
    return {scope: n for scope, one in steps.items() if (n := one["letters_taken_back"])}


def contents(state: sync.State) -> list[Any]:
    """What waits in a mailbox."""
    return [letter.content for letter in sync.agents.Mailbox(state).waiting()]


def test_what_is_kept_of_a_letter_stays_with_it_when_others_are_taken_back(
    store: sync.Store,
) -> None:
    a, b = pair(store)
    sync.agents.Mailbox(a).send("x")
    sync.checkpoints.CheckpointGroups(store).create([a, b], "g")
    sync.agents.Mailbox(a).process(lambda mail: mail.send(b, "y"))
    box = sync.agents.Mailbox(b, retry=RetryPolicy.every(1))
    box.send("poison")

    def work(mail: sync.agents.Mail) -> None:
        if mail.content == "poison":
            raise KeyError

    with pytest.raises(KeyError):
        box.process(work)
    assert taken_back(sync.recovery.Recovery(store).recover_group([a, b], FAILURE)) == {
        "agent:b": 1
    }
    assert contents(b) == []
    assert [(one.number, one.content) for one in box.set_aside()] == [(2, "poison")]
    box.send("important")
    assert contents(b) == ["important"]
    assert box.process(work) == 1
    assert box.status().waiting == 0


def test_a_letter_to_itself_comes_once(store: sync.Store) -> None:
    a, b = pair(store)
    box = sync.agents.Mailbox(a)
    box.send("start")
    sync.checkpoints.CheckpointGroups(store).create([a, b], "g")

    def work(mail: sync.agents.Mail) -> None:
        if mail.content == "start":
            mail.send(a, "step 2")

    box.process(work, limit=1)
    recovery = sync.recovery.Recovery(store)
    assert taken_back(recovery.recover_group([a, b], FAILURE)) == {"agent:a": 1}
    box.process(work, limit=1)
    assert contents(a) == ["step 2"]


def test_a_receiver_whose_past_was_pruned_gets_no_letter_twice(store: sync.Store) -> None:
    a, b = pair(store)
    sync.agents.Mailbox(a).send("x")
    sync.checkpoints.CheckpointGroups(store).create([a, b], "g")
    sync.agents.Mailbox(a).process(lambda mail: mail.send(b, "y"))
    b.set("n", 1)
    b.prune(b._handle.place()[2], reason="old")
    assert taken_back(sync.recovery.Recovery(store).recover_group([a, b], FAILURE)) == {
        "agent:b": 1
    }
    sync.agents.Mailbox(a).process(lambda mail: mail.send(b, "y"))
    assert contents(b) == ["y"]


def test_a_second_recovery_takes_nothing_back_that_is_back(store: sync.Store) -> None:
    a, b = pair(store)
    sync.agents.Mailbox(a).send("x")
    sync.checkpoints.CheckpointGroups(store).create([a, b], "g")
    sync.agents.Mailbox(a).process(lambda mail: mail.send(b, "y"))
    recovery = sync.recovery.Recovery(store)
    first = recovery.recover_group([a, b], FAILURE)
    assert taken_back(first) == {"agent:b": 1}
    assert [one.lost for one in first.values()] == ["1 entries after it", "nothing"]
    again = recovery.recover_group([a, b], FAILURE)
    assert taken_back(again) == {}
    assert [one.lost for one in again.values()] == ["nothing", "nothing"]


def test_one_that_was_set_aside_is_taken_back_and_one_that_was_removed_stays_so(
    store: sync.Store,
) -> None:
    a, b = pair(store)
    sync.agents.Mailbox(a).send("x")
    sync.checkpoints.CheckpointGroups(store).create([a, b], "g")

    def work(mail: sync.agents.Mail) -> None:
        mail.send(b, "y")
        mail.send(b, "z")

    def fails(mail: sync.agents.Mail) -> None:
        raise KeyError

    sync.agents.Mailbox(a).process(work)
    box = sync.agents.Mailbox(b, retry=RetryPolicy.every(1))
    box.remove(2)
    with pytest.raises(KeyError):
        box.process(fails)
    assert taken_back(sync.recovery.Recovery(store).recover_group([a, b], FAILURE)) == {
        "agent:b": 1
    }
    assert (box.set_aside(), contents(b)) == ([], [])
    sync.agents.Mailbox(a).process(work)
    assert contents(b) == ["y", "z"]


def test_new_letters_are_processed_though_cleared_ones_are_lost(plain: Place) -> None:
    state = plain.open().agent("7")
    box = sync.agents.Mailbox(state)
    state.set("done", [])
    state.checkpoint("good")
    for _ in range(3):
        box.send("x" * 9000)
    assert box.clear_all() == 3
    damage(plain, 3)
    store = plain.open()
    state, box = store.agent("7"), sync.agents.Mailbox(store.agent("7"))
    sync.recovery.Recovery(store).recover(state, "corruption_detected")
    box.send("new")
    assert contents(state) == ["new"]


def test_a_letter_is_there_again_at_a_moment_at_which_it_was(store: sync.Store) -> None:
    a, b = pair(store)
    groups, recovery = sync.checkpoints.CheckpointGroups(store), sync.recovery.Recovery(store)
    sync.agents.Mailbox(a).send("x")
    groups.create([a, b], "before")
    sync.agents.Mailbox(a).process(lambda mail: mail.send(b, "y"))
    groups.create([a, b], "after")
    for _ in range(2):
        recovery.recover_group([a, b], FAILURE, point="before")
        assert (contents(a), contents(b)) == (["x"], [])
        recovery.recover_group([a, b], FAILURE, point="after")
        assert (contents(a), contents(b)) == ([], ["y"])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.spec("D51")
def test_each_letter_is_processed_once_whatever_the_agents_return_to(seed: int) -> None:
    """Against a model: each letter from outside makes a chain of three, over three agents."""
    chance = random.Random(seed)
    with sync.open("memory:") as store:
        agents = [store.agent(name) for name in "abc"]
        boxes = [sync.agents.Mailbox(one) for one in agents]
        for one in agents:
            one.set("log", [])

        def handler(place: int) -> Callable[[sync.agents.Mail], None]:
            def handle(mail: sync.agents.Mail) -> None:
                name, hop = mail.content
                mail.change.append("log", f"{name}.{hop}")
                if hop < 2:
                    mail.send(agents[(place + hop) % 3], [name, hop + 1])

            return handle

        sent, groups = 0, 0
        expected: list[list[str]] = [[], [], []]
        for _ in range(chance.randint(15, 30)):
            what, place = chance.random(), chance.randrange(3)
            if what < 0.3:
                sent += 1
                boxes[place].send([f"e{sent}", 0])
                there = place
                for hop in range(3):
                    expected[there].append(f"e{sent}.{hop}")
                    there = (there + hop) % 3
            elif what < 0.7:
                boxes[place].process(handler(place), limit=1)
            elif what < 0.8:
                groups += 1
                sync.checkpoints.CheckpointGroups(store).create(agents, f"g{groups}")
            elif groups:
                named = f"g{chance.randint(1, groups)}" if chance.random() < 0.6 else None
                sync.recovery.Recovery(store).recover_group(agents, FAILURE, point=named)
        while any(box.process(handler(place)) for place, box in enumerate(boxes)):
            pass
        assert [sorted(one.get("log")) for one in agents] == [sorted(one) for one in expected]


@pytest.mark.parametrize("entry", [2, 3, 5, 6, 7, 8, 9, 11])
def test_new_letters_are_processed_after_damage(plain: Place, entry: int) -> None:
    """Letters so long that their list is a tree: what is lost of it is not there to be counted."""
    chance = random.Random(1)

    def work(mail: sync.agents.Mail) -> None:
        mail.change.append("done", mail.content["n"])

    state = plain.open().agent("7")
    state.set("done", [])
    box = sync.agents.Mailbox(state)
    letters = [{"n": n, "text": chance.randbytes(6000).hex()} for n in range(1, 6)]
    box.send(letters[0])
    box.process(work)
    state.checkpoint("good")
    for letter in letters[1:]:
        box.send(letter)
    assert box.process(work, limit=3) == 3
    damage(plain, entry)
    store = plain.open()
    state, box = store.agent("7"), sync.agents.Mailbox(store.agent("7"))
    report = sync.recovery.Recovery(store).recover(state, "corruption_detected")
    assert report.strategy == "journal"
    assert f"what entr{'ies' if ',' in report.lost else 'y'} {entry}" in report.lost
    box.send({"n": "new 1"})
    box.send({"n": "new 2"})
    box.process(work)
    assert (box.status().waiting, box.waiting()) == (0, [])
    done = state.get("done")
    assert done[-2:] == ["new 1", "new 2"]
    assert len(set(done)) == len(done)
    assert set(done) >= {1, 2, 3, 4} - {entry - 3 if entry > 4 else 1}


def test_what_is_processed_stays_so_however_often_the_agent_is_recovered(plain: Place) -> None:
    """Also if the last letters that were processed are those that are lost."""
    state = plain.open().agent("7")
    state.set("done", [])
    box = sync.agents.Mailbox(state)
    for letter in long_letters(7):
        box.send(letter)
    box.process(lambda mail: None)
    damage(plain, 8)
    store = plain.open()
    state, recovery = store.agent("7"), sync.recovery.Recovery(store)
    assert recovery.recover(state, "corruption_detected").strategy == "journal"
    for _ in range(3):
        assert contents(state) == []
        recovery.recover(state, "missed_beats")
    sync.agents.Mailbox(state).send("new")
    assert contents(state) == ["new"]


def test_new_letters_come_though_all_that_is_remembered_is_lost(plain: Place) -> None:
    """Of the letters that were processed, more are lost than the mailbox knows by their ids: those
    that are left wait again, and none that comes is taken for one of them."""
    state = plain.open().agent("7")
    box = sync.agents.Mailbox(state)
    state.set("done", [])
    for letter in long_letters(7):
        box.send(letter)
    box.process(lambda mail: None)
    for entry in range(8, 3, -1):
        damage(plain, entry)
    store = plain.open()
    state, box = store.agent("7"), sync.agents.Mailbox(store.agent("7"))
    assert sync.recovery.Recovery(store).recover(state, "corruption_detected").strategy == "journal"
    left = contents(state)
    assert len(left) == 2
    for number in range(3):
        box.send(number)
    assert contents(state) == [*left, 0, 1, 2]
    assert box.process(lambda mail: None) == 5


@pytest.mark.parametrize("removed", [2, 4, 5])
def test_one_that_was_removed_is_the_same_one_after_damage(plain: Place, removed: int) -> None:
    state = plain.open().agent("7")
    state.set("done", [])
    box = sync.agents.Mailbox(state)
    for letter in long_letters(6):
        box.send(letter)
    box.remove(removed)
    damage(plain, 4)  # the third
    store = plain.open()
    state = store.agent("7")
    for _ in range(2):
        sync.recovery.Recovery(store).recover(state, "corruption_detected")
        here = [letter["n"] for letter in contents(state)]
        assert here == [n for n in range(1, 7) if n not in (3, removed)]


def by_group(store: sync.Store, a: sync.State, b: sync.State) -> None:
    assert sync.recovery.Recovery(store).recover_group([a, b], "corruption_detected")


def by_checkpoints(store: sync.Store, a: sync.State, b: sync.State) -> None:
    sync.checkpoints.Checkpoints(a).recover()


def past_damage(store: sync.Store, a: sync.State, b: sync.State) -> None:
    assert sync.checkpoints.Checkpoints(a).restore("g", past_damage=True).success


@pytest.mark.parametrize("how", [by_group, by_checkpoints, past_damage])
@pytest.mark.parametrize("what", ["removed", "cleared", "trimmed"])
def test_new_letters_come_though_those_that_others_are_told_of_are_lost(
    plain: Place, how: Callable[[sync.Store, sync.State, sync.State], None], what: str
) -> None:
    """The letters are those of then, and what is said of letters is of now."""
    store = plain.open()
    a, b = pair(store)
    box = sync.agents.Mailbox(a, keep=1)
    for letter in long_letters(3, 30000):
        box.send(letter)
    box.process(lambda mail: None, limit=2)
    sync.checkpoints.CheckpointGroups(store).create([a, b], "g")
    for letter in long_letters(3, 30000):
        box.send(letter)
    if what == "removed":
        box.remove(5)
    elif what == "cleared":
        box.clear_all()
    else:
        box.process(lambda mail: None)
    box.send(long_letters(1, 30000)[0])
    damage_value(plain, a)
    store = plain.open()
    a, b = store.agent("a"), store.agent("b")
    how(store, a, b)
    box = sync.agents.Mailbox(a)
    for number in range(5):
        box.send(number)
    assert contents(a)[-5:] == [0, 1, 2, 3, 4]
    before = [letter["n"] for letter in contents(a)[:-5]]
    # What came since is replayed, but for the one that is damaged; or all is as it was then.
    replayed = {"removed": [3, 1, 3], "cleared": [], "trimmed": [3]}[what]
    assert before == (replayed if how is by_group else [3]), "and none twice"
    assert box.process(lambda mail: None) == len(before) + 5
    assert box.status().waiting == 0


def test_one_that_was_set_aside_is_set_aside_again_at_a_moment_at_which_it_was_there(
    store: sync.Store,
) -> None:
    a, b = pair(store)
    groups, recovery = sync.checkpoints.CheckpointGroups(store), sync.recovery.Recovery(store)
    sync.agents.Mailbox(a).send("x")
    groups.create([a, b], "before")
    sync.agents.Mailbox(a).process(lambda mail: mail.send(b, "y"))
    box = sync.agents.Mailbox(b, retry=RetryPolicy.every(1))
    with pytest.raises(ZeroDivisionError), box.next():
        _ = 1 / 0
    groups.create([a, b], "after")
    for _ in range(2):
        recovery.recover_group([a, b], FAILURE, point="before")
        assert (contents(a), contents(b), box.set_aside()) == (["x"], [], [])
        recovery.recover_group([a, b], FAILURE, point="after")
        assert (contents(a), contents(b)) == ([], [])
        assert [(one.content, one.tries) for one in box.set_aside()] == [("y", 1)]
    box.retry(1)
    assert contents(b) == ["y"]


def test_one_that_was_retried_is_taken_back_with_the_others(store: sync.Store) -> None:
    a, b = pair(store)
    sync.agents.Mailbox(a).send("x")
    sync.checkpoints.CheckpointGroups(store).create([a, b], "g")
    sync.agents.Mailbox(a).process(lambda mail: mail.send(b, "y"))
    box = sync.agents.Mailbox(b, retry=RetryPolicy.every(1))
    with pytest.raises(ZeroDivisionError), box.next():
        _ = 1 / 0
    box.retry(1)
    assert taken_back(sync.recovery.Recovery(store).recover_group([a, b], FAILURE)) == {
        "agent:b": 1
    }
    sync.agents.Mailbox(a).process(lambda mail: mail.send(b, "y"))
    assert contents(b) == ["y"]


def long_letters(count: int, size: int = 6000) -> list[dict[str, Any]]:
    """Letters of which each is a row of its own."""
    chance = random.Random(count)
    return [{"n": n, "text": chance.randbytes(size).hex()} for n in range(1, count + 1)]


def damage_value(place: Place, state: sync.State) -> None:
    """Flip a bit of what the newest entry of an agent stores apart from itself, and let that be
    needed to read it."""
    entry = state._handle.place()[2]
    for number in range(300):  # the index is saved: nothing is taken from the entries
        state.set("done", [number])
    prefix = state._handle.history.points.line().prefix[1:9]
    place.close()
    storage = place.storage()
    found = [
        (key, row)
        for key, row in rows_of(storage, b"V")
        if key[1:9] == prefix and int.from_bytes(key[9:14], "big") == entry
    ]
    assert found
    key, row = found[0]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()


def damage(place: Place, entry: int) -> None:
    """Flip a bit of an entry of the agent behind the store's back."""
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[entry - 1]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
