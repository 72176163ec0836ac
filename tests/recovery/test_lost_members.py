"""Members of a group that lost entries, and agents that lost all of them."""

from __future__ import annotations

import pytest
from store_kit import Place, put_row, rows_of

from holdfast import sync
from holdfast.errors import RecoveryFailedError, RecoveryValidationError

BOTH = ("agent:a", "agent:b")
ALL = 1000


def lose(place: Place, agent: str, count: int) -> None:
    """Lose the newest entries of an agent."""
    store = place.open()
    prefix = store.agent(agent)._handle.history.points.line().prefix
    place.close()
    storage = place.storage()
    for key, _ in [one for one in rows_of(storage, b"E") if one[0].startswith(prefix)][-count:]:
        put_row(storage, key, None)
    storage.close()


def letters(place: Place, lost: str) -> sync.Store:
    """Two agents of one moment; then one processes a letter, writes another, and one loses that."""
    with place.open() as store:
        a, b = store.agent("a"), store.agent("b")
        for state in (a, b):
            state.set("k", 0)
        sync.checkpoints.CheckpointGroups(store).create([a, b], "together")
        sync.agents.Mailbox(a).send("go")
        answer(store)
    lose(place, lost, 1)
    return place.open()


def answer(store: sync.Store) -> None:
    """Process what waits for a, and write to b."""
    with sync.agents.Mailbox(store.agent("a")).next() as mail:
        assert mail is not None
        mail.change.set("did", 1)
        mail.send(store.agent("b"), "please")


@pytest.mark.spec("D51")
@pytest.mark.parametrize("lost", ["a", "b"])
@pytest.mark.parametrize("kind", ["agent_crash", "interrupted_handover", "corruption_detected"])
def test_a_group_of_which_one_lost_entries_goes_back(place: Place, kind: str, lost: str) -> None:
    store = letters(place, lost)
    recovery = sync.recovery.Recovery(store)
    for report in recovery.recover_group(BOTH, kind).values():
        assert report.strategy == "newest_valid"
    told = [one.lost for one in recovery.reports(f"agent:{lost}")]
    assert "which the feed names" in told[1]  # it was recovered by itself before
    assert sync.agents.Mailbox(store.agent("b")).waiting() == []
    answer(store)
    assert [one.content for one in sync.agents.Mailbox(store.agent("b")).waiting()] == ["please"]
    assert store.agent("a").get("did") == 1
    assert store.verify().ok


def all_lost(place: Place) -> sync.Store:
    """Two agents of which one has lost all of its entries."""
    with place.open() as store:
        for agent in "ab":
            for n in range(3):
                store.agent(agent).set("k", n)
        sync.checkpoints.CheckpointGroups(store).create(
            [store.agent("a"), store.agent("b")], "together"
        )
    lose(place, "a", ALL)
    return place.open()


@pytest.mark.parametrize("kind", ["agent_crash", "corruption_detected", "state_corruption"])
def test_a_group_of_which_one_lost_all_fails(place: Place, kind: str) -> None:
    store = all_lost(place)
    recovery = sync.recovery.Recovery(store)
    with pytest.raises(RecoveryFailedError, match=r"agent:a: .*nothing of it is left"):
        recovery.recover_group(BOTH, kind)
    assert recovery.reports("agent:b") == []
    assert store.agent("b").get("k") == 2


@pytest.mark.parametrize("kind", ["agent_crash", "corruption_detected", "unknown"])
def test_an_agent_that_lost_all_is_not_taken_for_an_empty_one(place: Place, kind: str) -> None:
    store = all_lost(place)
    quick = {"id": "quick", "triggers": [kind], "steps": []}
    quick["steps"] = [{"type": one} for one in ("backup_current", "locate_checkpoint")]
    quick["steps"] += [{"type": one} for one in ("restore_state", "validate_state")]
    recovery = sync.recovery.Recovery(store, procedures=[quick])
    assert recovery.plan("agent:a", kind).strategy is None
    with pytest.raises(RecoveryFailedError, match=r"no strategy serves.*nothing of it is left"):
        recovery.recover("agent:a", kind)
    recovery = sync.recovery.Recovery(store, procedures=[quick], defaults={"k": "new"})
    plan = recovery.plan("agent:a", kind)
    assert plan.strategy == "defaults"
    report = recovery.recover("agent:a", kind)
    assert report.strategy == "defaults"
    assert report.lost == plan.lost
    assert "entries 1 to 4, which the feed names" in report.lost
    assert dict(store.agent("a").items()) == {"k": "new"}
    assert store.verify().ok


def test_one_that_begins_anew_and_fails_is_empty_again(place: Place) -> None:
    store = all_lost(place)
    steps = [{"type": one} for one in ("backup_current", "locate_checkpoint", "restore_state")]
    quick = {"id": "quick", "triggers": ["agent_crash"], "steps": steps}
    quick["validation"] = [{"type": "validate_state"}]
    recovery = sync.recovery.Recovery(
        store, procedures=[quick], defaults={"k": "new"}, validate=[lambda _: "no"]
    )
    with pytest.raises(RecoveryValidationError, match="the state before it is back"):
        recovery.recover("agent:a", "agent_crash")
    assert dict(store.agent("a").items()) == {}
    good = sync.recovery.Recovery(store, procedures=[quick], defaults={"k": "new"})
    assert good.recover("agent:a", "agent_crash").success
    assert "k" in dict(store.agent("a").items())
