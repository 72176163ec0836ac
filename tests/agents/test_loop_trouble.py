"""The loop while it deals with trouble: what fails then keeps it from nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import sync
from holdfast.agents import RetryPolicy, StepResult

QUICK: dict[str, Any] = {"backoff": 0.001, "idle": 0.001}


class Failing:
    """Fails in one of its steps."""

    def __init__(self, at: int = 2) -> None:
        self.count = 0
        self._at = at

    def step(self) -> StepResult:
        self.count += 1
        if self.count == self._at:
            raise ZeroDivisionError
        return StepResult(f"step {self.count}", done=self.count == 4)


def triggers(state: sync.State) -> list[str]:
    """Of the recovery checkpoints, oldest first."""
    found = [one.metadata["trigger"] for one in state.checkpoints(type="recovery")]
    return found[::-1]


def refuse(alarms: Any) -> None:
    raise KeyError("not found")


class Reading(Failing):
    """Cannot read some of its letters."""

    def on_letter(self, mail: Any) -> None:
        if mail.content == "bad":
            raise ZeroDivisionError


@pytest.mark.parametrize("retry", [None, RetryPolicy(kinds=("timeout",))])
def test_bad_letters_with_good_ones_between_do_not_end_the_loop(
    store: sync.Store, retry: RetryPolicy | None
) -> None:
    mailbox = sync.agents.Mailbox(store.agent("7"))
    for content in ("good", "bad") * 6:
        mailbox.send(content)
    result = sync.agents.run(Reading(0), store.agent("7"), drift=False, retry=retry, **QUICK)
    assert (result.outcome, result.letters) == ("done", 6)
    for _ in range(5):
        mailbox.send("bad")
    with pytest.raises(ZeroDivisionError) as failed:
        sync.agents.run(Reading(0), store.agent("7"), drift=False, retry=retry, **QUICK)
    assert "5 errors in a row" in "".join(failed.value.__notes__)


def test_good_letters_do_not_hide_that_no_step_succeeds(store: sync.Store) -> None:
    mailbox = sync.agents.Mailbox(store.agent("7"))

    class Broken(Reading):
        def step(self) -> StepResult:
            mailbox.send("good")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sync.agents.run(Broken(), store.agent("7"), drift=False, **QUICK)
    assert mailbox.status().processed == 4


def test_attempts_of_others_are_no_failures_of_an_agent_that_takes_no_letters(
    store: sync.Store,
) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy(kinds=("timeout",)))
    mailbox.send("charge")
    with mailbox.next() as mail:
        assert mail is not None
        sync.agents.run(Failing(0), state, **QUICK)
    assert mailbox.status().processed == 1
    assert mailbox.set_aside() == []


@pytest.mark.parametrize("how", ["object", "class", "function"])
def test_an_attempt_that_was_cut_short_is_counted_before_the_agent_recovers(
    store: sync.Store, how: str
) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy(kinds=("timeout",)))
    mailbox.send("charge")

    class Killed(BaseException):
        pass

    seen: list[str | None] = []

    class Answering(Failing):
        def on_letter(self, mail: Any) -> None:
            raise Killed

        def handle_recovery(self) -> None:
            seen.extend(letter.kind for letter in mailbox.set_aside())

    retry = RetryPolicy(kinds=("timeout",))
    agent: Any = {"object": Answering(0), "class": Answering, "function": lambda: Answering(0)}
    with pytest.raises(Killed):
        sync.agents.run(agent[how], state, retry=retry, **QUICK)
    sync.agents.run(agent[how], state, retry=retry, **QUICK)
    assert seen == ["daemon_restart"]
