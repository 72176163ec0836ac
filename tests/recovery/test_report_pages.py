"""Reports as pages: all that is known, and nothing of what users wrote is taken for markup."""

from __future__ import annotations

import logging
from html.parser import HTMLParser

import pytest
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.errors import RecoveryFailedError

NASTY = '<script>alert(1)</script> | *bold* `code` [a](b)\nnext & "last"'


class Tags(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def failed(store: sync.Store) -> holdfast.recovery.RecoveryReport:
    def break_it(context: object, action: object) -> None:
        raise ValueError(NASTY)

    state = store.agent("7")
    state.set("plan", 1)
    broken = {"id": "broken", "triggers": ["x"], "steps": [{"type": "break_it"}]}
    recovery = sync.recovery.Recovery(store, steps={"break_it": break_it}, procedures=[broken])
    failure = holdfast.recovery.AgentFailure("x", NASTY, evidence={"seen": NASTY})
    with pytest.raises(RecoveryFailedError):
        recovery.recover(state, failure)
    return recovery.reports(state)[0]


def test_a_page_of_markdown_is_escaped(store: sync.Store) -> None:
    report = failed(store)
    text = report.markdown()
    assert "<script>" not in text.replace("\\<script\\>", "")
    rows = [line for line in text.splitlines() if line.startswith("| 1 ")]
    assert len(rows) == len(report.steps) == 2  # the step, and undoing it
    assert rows[0].replace("\\|", "").count("|") == 6
    assert "\\*bold\\* \\`code\\` \\[a\\](b) next \\& " in rows[0]


def test_a_recovery_that_succeeded_says_what_was_lost_and_how_long_steps_took(
    store: sync.Store,
) -> None:
    state = store.agent("7")
    state.set("plan", 1)
    state.checkpoint("good")
    state.set("plan", 2)
    report = sync.recovery.Recovery(store).recover(state, "state_corruption")
    text = report.markdown()
    assert "**lost**: 1 entries after it" in text
    assert "**served**: newest\\_valid, main@2" in text
    assert "| 1 | steps | restore\\_state | done | 0." in text


@pytest.mark.parametrize("signed", [True, False])
def test_a_page_says_signed_only_of_what_is(place: Place, signed: bool) -> None:
    store = place.open()
    states = [store.agent("7"), store.agent("8")]
    for state in states:
        state.set("plan", 1)
    store._core.signer = store._core.signer if signed else None  # as one that is not here
    recovery = sync.recovery.Recovery(store)
    sync.checkpoints.CheckpointGroups(store).create(states, "both")
    alone = recovery.recover("agent:7", "agent_crash")
    scope = "custom:$recovery/agent:7"
    for report in (alone, recovery.recover_group(states, "agent_crash")[states[0].scope]):
        assert report.signed == signed == bool(store.scope(scope).checkpoints()[0].signed_by)
        page = report.markdown()
        assert ("kept and signed in" in page) == signed
        assert ("kept, unsigned, in" in page) == (not signed)


def test_that_an_agent_begins_with_defaults_is_said_and_logged(
    store: sync.Store, caplog: pytest.LogCaptureFixture
) -> None:
    state = store.agent("7")
    state.set("plan", 1)
    recovery = sync.recovery.Recovery(
        store, defaults={"plan": 0}, order=["newest_valid", "defaults"]
    )
    with caplog.at_level(logging.WARNING, "holdfast.recovery"):
        report = recovery.recover(state, "state_corruption")
    assert state.get("plan") == 0
    assert "defaults" in report.warning
    for text in (str(report), report.markdown()):
        assert "warning" in text
    assert [report.id in one.getMessage() for one in caplog.records] == [True]
    state.checkpoint("good")
    caplog.clear()
    assert recovery.recover(state, "state_corruption").warning == ""
    assert not caplog.records
