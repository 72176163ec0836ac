"""Members of a group that lost entries, and agents that lost all of them."""

from __future__ import annotations

from datetime import UTC, datetime

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
    report = sync.recovery.Recovery(store).recover_group(BOTH, kind)
    assert report.strategy == "newest_valid"
    assert "which the feed names" in report.lost[f"agent:{lost}"]
    if kind != "corruption_detected":
        assert "not of one moment" in report.passed["as_it_is"]
    assert sync.agents.Mailbox(store.agent("b")).waiting() == []
    answer(store)
    assert [one.content for one in sync.agents.Mailbox(store.agent("b")).waiting()] == ["please"]
    assert store.agent("a").get("did") == 1
    assert store.verify().ok


def test_if_there_is_nothing_to_go_back_to_it_is_said(place: Place) -> None:
    with place.open() as store:
        for n in range(5):
            with store.change() as change:
                for agent in BOTH:
                    change[agent].set("k", n)
    lose(place, "a", 2)
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    report = recovery.recover_group(BOTH, "agent_crash")
    assert report.strategy == "as_it_is"
    said = "agent:a lost entries 4 to 5, which the feed names: the agents are not of one moment"
    assert report.why.startswith(said)
    assert said in str(report)
    assert recovery.group_reports()[0].why == report.why
    assert store.verify().ok
    assert recovery.recover_group(BOTH, "agent_crash").why == ""  # it is known, and told once


def test_a_time_that_lost_entries_may_be_of_is_no_moment(place: Place) -> None:
    with place.open() as store:
        store.agent("b").set("k", 0)
        store.agent("a").set("k", 0)
        early = datetime.now(UTC)
        for n in range(4):
            store.agent("a").set("k", n)
    lose(place, "a", 2)
    store = place.open()
    recovery = sync.recovery.Recovery(store)
    with pytest.raises(RecoveryFailedError, match="may be of before that time"):
        recovery.recover_group(BOTH, "drift", at=datetime.now(UTC))
    report = recovery.recover_group(BOTH, "drift", at=early)
    assert report.points["agent:a"] == "main@1"


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
    with pytest.raises(RecoveryFailedError, match="changed nothing"):
        sync.recovery.Recovery(store).recover_group(BOTH, kind)
    (report,) = sync.recovery.Recovery(store).group_reports()
    assert report.lost["agent:a"] == "entries 1 to 4, which the feed names"
    if kind == "agent_crash":
        assert "nothing of it is left" in report.why


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
