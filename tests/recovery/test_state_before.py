"""A recovery that does not succeed is undone to the state in which it began, whatever its steps
wrote, and whenever they kept it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import RecoveryFailedError

BACKUP, RESTORE = {"type": "backup_current"}, {"type": "restore_state"}
LOCATE = {"type": "locate_checkpoint", "action": {"strategies": ["newest_valid"]}}
BOOM: dict[str, Any] = {"type": "boom"}
CASES = {
    "a step of one's own before it": [{"type": "mark"}, BACKUP, LOCATE, RESTORE, BOOM],
    "behind the restore": [LOCATE, RESTORE, BACKUP, BOOM],
    "side by side with the restore": [
        {**LOCATE, "dependencies": []},
        RESTORE,
        {"type": "told"},
        {"type": "await", "dependencies": []},
        BACKUP,
        {**BOOM, "dependencies": ["told", "backup_current"]},
    ],
    "twice": [BACKUP, LOCATE, RESTORE, {**BACKUP, "id": "again"}, BOOM],
    "not at all": [LOCATE, RESTORE, {"type": "mark"}, BOOM],
}


def agent(store: sync.Store) -> sync.State:
    """One with a checkpoint, and more since."""
    state = store.agent("7")
    state.set("k", 1)
    state.checkpoint("good")
    state.set("k", 3)
    state.set("mine", "before")
    return state


def recovery_by(
    store: sync.Store, steps: list[dict[str, Any]], **more: Any
) -> sync.recovery.Recovery:
    """One whose procedure `p` has these steps: `mark` writes, `boom` fails."""
    restored = threading.Event()
    own = {
        "mark": lambda context, action: context.state.set("k", 99) and {},
        "boom": lambda context, action: 1 / 0,
        "told": lambda context, action: restored.set(),
        "await": lambda context, action: {"in time": restored.wait(60)},
    }
    made = {"id": "p", "triggers": ["p"], "steps": steps, "backoff": 0, **more}
    return sync.recovery.Recovery(store, steps=own, procedures=[made])


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_the_state_before_is_that_of_the_beginning(
    store: sync.Store, steps: list[dict[str, Any]], retries: int
) -> None:
    state = agent(store)
    recovery = recovery_by(store, steps, retries=retries)
    with pytest.raises(RecoveryFailedError, match="the state before it is back"):
        recovery.recover(state, "p")
    report = recovery.reports(state)[0]
    assert (report.status, report.lost, report.attempts) == ("rolled_back", "nothing", retries + 1)
    assert state.items() == [("k", 3), ("mine", "before")]


def test_what_others_write_between_two_attempts_stands(store: sync.Store) -> None:
    state = agent(store)
    recovery = recovery_by(store, [BACKUP, LOCATE, RESTORE, BOOM], retries=1)
    told: list[str] = []

    def others(title: str, what: str) -> None:
        told.append(title)
        if told.count("restore_backup") == 1 and title == "restore_backup":
            thread = threading.Thread(target=lambda: state.set("mine", "theirs"))
            thread.start()
            thread.join()

    with pytest.raises(
        RecoveryFailedError, match="is not undone: other than before are the keys mine"
    ):
        recovery.recover(state, "p", progress=others)
    assert recovery.reports(state)[0].status == "failed"
    assert state.items() == [("k", 3), ("mine", "theirs")]
