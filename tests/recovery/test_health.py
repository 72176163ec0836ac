"""Health: a number, the reasons for it, and what to do about each."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from store_kit import Hands, Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.errors import InvalidInputError, RecoveryFailedError
from holdfast.recovery.health import POINTS
from holdfast.recovery.records import Records

LONG = "a text that is too long for an entry " * 400
IN_MEMORY = {"not_encrypted"}


def kinds(found: holdfast.recovery.Health) -> set[str]:
    return {one.kind for one in found.concerns}


def damage_last(place: Place, kind: bytes) -> None:
    """Flip a bit of the newest row of a kind."""
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, kind)[-1]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()


@pytest.mark.spec("M84", "M95")
def test_a_store_without_concerns_is_at_100_and_damage_takes_most_of_it(place: Place) -> None:
    state = place.open().agent("7")
    state.set("plan", LONG)
    state.checkpoint("good")
    well = sync.recovery.Recovery(place.open()).health()
    assert kinds(well) <= IN_MEMORY
    assert well.score == 100 - sum(one.points for one in well.concerns)
    assert well.complete
    state.set("plan", LONG + "!" * 9000)
    damage_last(place, b"V")
    ill = sync.recovery.Recovery(place.open()).health()
    assert ill.score <= well.score - POINTS["damaged_state"]
    first = ill.concerns[0]
    assert (first.kind, first.scope, first.next) == (
        "damaged_state",
        "agent:7",
        "holdfast repair agent:7",
    )
    assert "entry 3" in first.what
    assert str(ill).startswith(f"health: {ill.score} of 100")


def test_an_erase_that_is_not_finished_is_told_until_it_is_swept(tmp_path: Path) -> None:
    place = Place("memory", tmp_path, sealed=True)
    store = place.open()
    store.agent("7").set("plan", LONG)
    store.erase("agent:7", wait=False)
    told = {one.kind: one for one in sync.recovery.Recovery(store).health().concerns}
    assert told["unfinished_erase"].next.startswith("holdfast sweep")
    store.sweep()
    assert "unfinished_erase" not in kinds(sync.recovery.Recovery(store).health())
    place.close()


def test_what_was_begun_and_never_ended_is_told_with_the_next_step(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("plan", 1)
    with (
        pytest.raises(KeyError),
        sync.checkpoints.Checkpoints(state).operation("deploy", on_error="keep"),
    ):
        raise KeyError
    begun = store.agent("8")
    begun.set("plan", 1)
    begun.checkpoint("good")
    recovery = sync.recovery.Recovery(store)
    records = Records(store._handle, begun.scope)
    chosen = recovery.procedures()[0]
    records.begin(holdfast.recovery.AgentFailure("agent_crash").check(), chosen).keep()
    done = state.restore(state.checkpoints(limit=1)[0])
    assert done.backup is not None
    state.set("plan", 2)
    restored = state.restore(1)
    assert restored.backup is not None
    found = {(one.kind, one.scope): one for one in recovery.health().concerns}
    resume = found["unfinished_recovery", "agent:8"]
    assert resume.next == "holdfast recovery resume agent:8"
    unconfirmed = found["unconfirmed_restore", "agent:7"]
    assert unconfirmed.next.startswith("holdfast checkpoint confirm agent:7 main@")
    only = recovery.health("agent:7")
    assert {one.scope for one in only.concerns} <= {"", "agent:7"}


def test_a_recovery_that_failed_is_a_concern_until_one_succeeds(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("plan", 1)
    state.checkpoint("good")
    steps = {"break": lambda context, action: 1 / 0}
    broken = {"id": "broken", "triggers": ["x"], "steps": [{"type": "break"}]}
    recovery = sync.recovery.Recovery(store, steps=steps, procedures=[broken])
    with pytest.raises(RecoveryFailedError):
        recovery.recover(state, "x")
    assert "failed_recovery" in kinds(recovery.health())
    recovery.recover(state, "agent_crash")
    assert "failed_recovery" not in kinds(recovery.health())


def test_after_a_repair_only_history_is_damaged_and_nothing_is_held(place: Place) -> None:
    state = place.open().agent("7")
    for number in range(5):
        state.set(f"k{number}", number)
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[2]
    put_row(storage, key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])
    storage.close()
    recovery = sync.recovery.Recovery(place.open())
    assert "damaged_state" in kinds(recovery.health())
    report = recovery.recover("agent:7", "hash_mismatch")
    assert report.strategy == "journal"
    after = kinds(recovery.health())
    assert {"damaged_past", "in_quarantine"} <= after
    assert not after & {"damaged_state", "unconfirmed_restore"}


def test_work_whose_end_nobody_knows(store: sync.Store) -> None:
    state = store.agent("7")
    sync.agents.AgentState(state).put("tasks", "t1", holdfast.agents.Task(id="t1", title="ask"))
    sync.agents.Handovers(store).offer(state, store.agent("8"), "t1", reason="busy")
    with pytest.raises(KeyError), sync.agents.Effects(state).once("mail") as effect:
        assert effect.due
        raise KeyError

    def stopped(step: object) -> None:
        raise KeyboardInterrupt

    arrow = holdfast.agents.MachineArrow("sent", work=stopped)
    states = {
        "new": holdfast.agents.MachineState(on={"send": arrow}),
        "sent": holdfast.agents.MachineState(),
    }
    machine = sync.agents.Machine(state, holdfast.agents.MachineDefinition("new", states))
    with pytest.raises(KeyboardInterrupt):
        machine.fire("send")
    found = {(one.kind, one.scope): one for one in sync.recovery.Recovery(store).health().concerns}
    assert "mail" in found["unknown_effect", "agent:7"].what
    assert found["unanswered_handover", "agent:8"].next == "holdfast agent handovers agent:8"
    assert "send was begun" in found["unfinished_transition", "agent:7"].what


def test_retention_that_is_due(store: sync.Store) -> None:
    state = store.agent("7")
    for number in range(8):
        state.set("plan", number)
        state.checkpoint(f"r{number}", type="routine")
    found = {one.kind: one for one in sync.recovery.Recovery(store).health().concerns}
    assert found["retention_due"].next == "holdfast retention plan agent:7, then run"


def test_an_agent_that_goes_on_without_checkpoints(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("7")
    state.set("plan", 1)
    recovery = sync.recovery.Recovery(timed)
    assert "old_checkpoint" in kinds(recovery.health())
    state.checkpoint("good")
    assert "old_checkpoint" not in kinds(recovery.health())
    hands.move(3 * 86_400)
    assert "old_checkpoint" not in kinds(recovery.health())  # nothing changed since
    state.set("plan", 2)
    told = next(one for one in recovery.health().concerns if one.kind == "old_checkpoint")
    assert "3 days old" in told.what


def test_where_secrets_lie_is_told_from_what_the_store_was_opened_with(tmp_path: Path) -> None:
    url, key = f"sqlite:{tmp_path / 'a.db'}", f"file:{tmp_path / 'a.key'}"
    with pytest.warns(UserWarning, match="same folder"):
        store = sync.open(url, key=key)
    with store:
        recovery = sync.recovery.Recovery(store)
        found = recovery.health(url=url, key=key, durability="normal")
        assert {"key_beside_store", "durability", "signer_with_store"} <= kinds(found)
        assert str(tmp_path) not in str(found)
        apart = recovery.health(url=url, key="file:/nowhere/a.key")
        assert "key_beside_store" not in kinds(apart)
    with sync.open("memory:") as memory:
        assert "in_memory" in kinds(sync.recovery.Recovery(memory).health(url="memory:"))


@pytest.mark.spec("M117")
@pytest.mark.parametrize(
    ("free", "size", "kind"),
    [
        (1 << 40, 1 << 20, ""),
        (9 << 30, 80 << 30, ""),
        (7 << 30, 80 << 30, "disk_nearly_full"),
        (500 << 20, 1 << 20, "disk_nearly_full"),
        (1 << 20, 1 << 20, "disk_full"),
    ],
)
def test_a_store_that_grows_until_its_disk_is_full_is_told_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, size: int, kind: str
) -> None:
    """Catches: what is free that is not compared with the store's own size."""
    disk = shutil.disk_usage(tmp_path)._replace(total=1 << 41, free=free)
    url = f"sqlite:{tmp_path / 'a.db'}"
    with sync.open(url) as store:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
        monkeypatch.setattr(os.path, "getsize", lambda path: size)
        found = kinds(sync.recovery.Recovery(store).health(url=url))
    assert {one for one in found if one.startswith("disk")} == ({kind} if kind else set())


def test_time_that_runs_out_is_said_and_not_taken_for_health(store: sync.Store) -> None:
    for number in range(20):
        store.agent(str(number)).set("plan", number)
    found = sync.recovery.Recovery(store).health(budget=0)
    assert not found.complete
    assert "not_all_looked_at" in kinds(found)


def test_wrong_arguments(store: sync.Store) -> None:
    recovery = sync.recovery.Recovery(store)
    with pytest.raises(InvalidInputError, match="budget"):
        recovery.health(budget=-1)
    with pytest.raises(InvalidInputError):
        recovery.health(7)


def test_the_async_face_says_the_same() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            await store.agent("7").set("plan", 1)
            found = await holdfast.recovery.Recovery(store).health("agent:7")
            assert "old_checkpoint" in kinds(found)

    asyncio.run(main())


def test_a_group_that_was_not_recovered_is_told_until_its_members_are(
    timed: sync.Store, hands: Hands
) -> None:
    states = [timed.agent("a"), timed.agent("b"), timed.agent("c")]
    for state in states:
        state.set("plan", 1)
        state.checkpoint("good")
    recovery = sync.recovery.Recovery(timed)
    with pytest.raises(RecoveryFailedError):
        recovery.recover_group(states, "state_corruption")  # there is no group of checkpoints

    def told(of: sync.State | None = None) -> list[str]:
        return [one.next for one in recovery.health(of).concerns if one.kind == "failed_recovery"]

    assert len(told()) == 3
    assert len(told(states[0])) == 1
    hands.move(1)
    recovery.recover(states[0], "agent_crash")
    assert told(states[0]) == []
    assert len(told()) == 2
    sync.checkpoints.CheckpointGroups(timed).create(states, "both")
    recovery.recover_group(states[1:], "state_corruption")
    assert told() == []
