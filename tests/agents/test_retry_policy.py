"""What becomes of requests that fail: which are tried again, when, and which are set aside."""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.agents import RetryPolicy, failure_kind
from holdfast.errors import Conflict, InvalidInputError, MissingError, StoreLockedError

KINDS = (
    "timeout",
    "network_error",
    "api_rate_limit",
    "daemon_restart",
    "provider_error",
    "temporary_failure",
)


class Answered(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("answered")
        self.status_code = status


class Named(Exception):
    kind = "temporary_failure"


def wrapped(cause: BaseException) -> Exception:
    """As clients do: their own error, raised from the one that says what happened."""
    error = ValueError("the request failed")
    error.__cause__ = cause
    return error


@pytest.mark.spec("X36")
def test_the_policy_is_three_attempts_two_seconds_doubled_up_to_a_minute() -> None:
    policy = RetryPolicy()
    assert (policy.max_attempts, policy.kinds) == (3, KINDS)
    assert [policy.pause(n) for n in (1, 2, 3, 5, 6, 10_000)] == [2, 4, 8, 32, 60, 60]
    for kind in KINDS:
        assert [policy.again(kind, n) for n in (1, 2, 3)] == [True, True, False]
    assert not policy.again("", 1)
    assert not policy.again("bad_request", 1)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "timeout"),
        (ConnectionResetError(), "network_error"),
        (OSError(errno.EHOSTUNREACH, "no route"), "network_error"),
        (FileNotFoundError(), ""),
        (Answered(429), "api_rate_limit"),
        (Answered(408), "timeout"),
        (Answered(503), "provider_error"),
        (Answered(400), ""),
        (Conflict("x"), "temporary_failure"),
        (StoreLockedError("x"), "temporary_failure"),
        (Named(), "temporary_failure"),
        (ValueError(), ""),
        (wrapped(wrapped(TimeoutError())), "timeout"),
        (wrapped(Answered(500)), "provider_error"),
    ],
)
def test_the_kind_of_a_failure(error: Exception, kind: str) -> None:
    assert failure_kind(error) == kind


def failing(mailbox: sync.agents.Mailbox, error: Exception) -> None:
    with suppress(type(error)), mailbox.next() as mail:
        assert mail is not None
        raise error


@pytest.mark.spec("X36", "S67")
def test_what_may_pass_is_tried_again_after_longer_and_longer_pauses(
    place: Place, hands: Hands
) -> None:
    mailbox = sync.agents.Mailbox(place.open(clock=hands.clock).agent("7"), retry=RetryPolicy())
    mailbox.send("ask", id="r-1")
    mailbox.send("behind")
    for tries, wait in ((1, 2), (2, 4)):
        failing(mailbox, TimeoutError())
        letter = mailbox.waiting()[0]
        assert (letter.id, letter.tries, letter.kind) == ("r-1", tries, "timeout")
        assert letter.due is not None
        assert letter.due == hands.time(hands.passed + wait)
        # Also for another process, and those behind it keep their place.
        mailbox = sync.agents.Mailbox(place.open(clock=hands.clock).agent("7"), retry=RetryPolicy())
        hands.move(wait - 0.1)
        with mailbox.next() as mail:
            assert mail is None
        assert mailbox.process(lambda mail: None) == 0
        hands.move(0.2)
    failing(mailbox, TimeoutError())
    [letter] = mailbox.set_aside()
    assert (letter.id, letter.tries, letter.kind, letter.due) == ("r-1", 3, "timeout", None)
    assert mailbox.process(lambda mail: None) == 1


def test_what_will_not_pass_is_set_aside_at_once(store: sync.Store) -> None:
    mailbox = sync.agents.Mailbox(store.agent("7"), retry=RetryPolicy())
    mailbox.send("nonsense")
    failing(mailbox, ValueError("secret"))
    [letter] = mailbox.set_aside()
    assert (letter.tries, letter.error, letter.kind) == (1, "ValueError", "")
    assert mailbox.status().waiting == 0


def test_a_clock_that_goes_back_keeps_no_letter_waiting(place: Place, hands: Hands) -> None:
    mailbox = sync.agents.Mailbox(place.open(clock=hands.clock).agent("7"), retry=RetryPolicy())
    mailbox.send("ask")
    failing(mailbox, TimeoutError())
    hands.move(-86_400)
    assert mailbox.process(lambda mail: None) == 1


def test_kinds_of_your_own(store: sync.Store) -> None:
    def kind_of(error: BaseException) -> str | None:
        if isinstance(error, KeyError):
            raise ZeroDivisionError  # what it cannot tell is counted all the same
        return "overloaded" if isinstance(error, LookupError) else None

    policy = RetryPolicy(max_attempts=2, delay=0, kinds=("overloaded",), kind_of=kind_of)
    mailbox = sync.agents.Mailbox(store.agent("7"), retry=policy)
    for error, aside in ((IndexError(), 0), (KeyError(), 1), (TimeoutError(), 2)):
        mailbox.send("ask")
        failing(mailbox, error)
        assert len(mailbox.set_aside()) == aside
        if not aside:
            mailbox.clear_all()
    assert [one.error for one in mailbox.set_aside()] == ["KeyError", "TimeoutError"]


PROGRAM = """
import os, signal, sys
from holdfast.agents import RetryPolicy
from holdfast import sync
url, key, signer, how = sys.argv[1], sys.argv[2] or None, sys.argv[3], sys.argv[4]
def work(mail):
    os.kill(os.getpid(), signal.SIGKILL)
class Agent:
    def step(self):
        pass
    def on_letter(self, mail):
        work(mail)
policy = RetryPolicy(delay=0)
with sync.open(url, key=key, signer=signer) as store:
    state = store.agent("7")
    if how == "loop":
        sync.agents.run(Agent, state, retry=policy, lease=0.2)
    else:
        sync.recovery.boot(store)
        sync.agents.Mailbox(state, retry=policy).process(work)
"""


@pytest.mark.spec("X36", "S83")
@pytest.mark.parametrize("how", ["loop", "boot"])
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_a_request_that_ends_its_process_is_not_tried_for_ever(
    tmp_path: Path, how: str, sealed: bool
) -> None:
    place = Place("sqlite", tmp_path, sealed=sealed)
    store = place.open()
    state = store.agent("7")
    sync.agents.Mailbox(state).send("poison", id="r-1")
    words = [place.url, place.key or "", place.signer, how]
    for _ in range(3):
        process = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words], env=place.environment(), timeout=60
        )
        assert process.returncode == -signal.SIGKILL
    report = sync.recovery.boot(store, wait=30)
    [letter] = sync.agents.Mailbox(state).set_aside()
    assert (letter.id, letter.tries, letter.kind) == ("r-1", 3, "daemon_restart")
    found = [(one.kind, one.what, one.outcome) for one in report.items]
    assert ("request", "r-1", "left") in found
    assert store.verify().findings == []
    place.close()


class Asking:
    """An agent whose service is busy at first."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def on_letter(self, mail: sync.agents.Mail) -> None:
        self.asked.append(mail.content)
        if mail.content == "wrong":
            raise ValueError
        if self.asked.count("busy") < 3:
            raise Answered(429)

    def step(self) -> holdfast.agents.StepResult:
        return holdfast.agents.StepResult("work", done=len(self.asked) > 4)


def test_a_loop_follows_the_policy(store: sync.Store) -> None:
    state, agent = store.agent("7"), Asking()
    for content in ("wrong", "busy", "behind"):
        sync.agents.Mailbox(state).send(content)
    policy = RetryPolicy(delay=0.01)
    result = sync.agents.run(agent, state, retry=policy, backoff=0.0, idle=0.01)
    assert result.outcome == "done"
    assert agent.asked == ["wrong", "busy", "busy", "busy", "behind"]
    [aside] = sync.agents.Mailbox(state).set_aside()
    assert (aside.content, aside.tries) == ("wrong", 1)


def test_where_a_restart_is_not_to_be_retried_the_request_is_set_aside(store: sync.Store) -> None:
    mailbox = sync.agents.Mailbox(store.agent("7"), retry=RetryPolicy(kinds=("timeout",)))
    mailbox.send("charge the card", id="r-1")
    with suppress(KeyboardInterrupt), mailbox.next():
        raise KeyboardInterrupt  # as if the process ended here
    assert mailbox.interrupted() == ["r-1"]
    assert mailbox.interrupted() == []
    assert [one.kind for one in mailbox.set_aside()] == ["daemon_restart"]


def test_a_cut_attempt_sets_nothing_before_it_aside_after_a_restore(store: sync.Store) -> None:
    state = store.agent("7")
    policy = RetryPolicy(kinds=("timeout",))
    mailbox = sync.agents.Mailbox(state, retry=policy)
    for number in range(3):
        mailbox.send(number)
    safe = state.checkpoint()
    assert mailbox.process(lambda mail: None, limit=2) == 2
    with suppress(KeyboardInterrupt), mailbox.next():
        raise KeyboardInterrupt
    state.restore(safe)
    assert len(mailbox.interrupted()) == 1
    assert [one.content for one in mailbox.waiting()] == [0, 1]


def test_an_attempt_that_ends_leaves_no_note(place: Place) -> None:
    store = place.open()
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy(delay=0))
    mailbox.send("a")
    failing(mailbox, TimeoutError())
    assert mailbox.process(lambda mail: None) == 1
    assert state.keys("$mailbox/inbox/begun/") == []
    assert sync.recovery.boot(store).items == []


@pytest.mark.spec("X36")
def test_requests_are_listed_removed_and_cleared(store: sync.Store) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy())
    for name in ("bad", "b", "c", "d"):
        mailbox.send(name, id=name)
    failing(mailbox, ValueError())
    assert [one.id for one in mailbox.waiting()] == ["b", "c", "d"]
    assert [one.id for one in mailbox.set_aside()] == ["bad"]
    safe = state.checkpoint()
    mailbox.remove(3)
    assert [one.id for one in mailbox.waiting()] == ["b", "d"]
    with pytest.raises(MissingError, match="no letter 3"):
        mailbox.remove(3)
    assert (mailbox.clear_failed(), mailbox.clear_failed()) == (1, 0)
    assert mailbox.set_aside() == []
    assert [one.id for one in mailbox.waiting()] == ["b", "d"]
    mailbox.send("bad", id="again")
    assert mailbox.clear_all() == 3
    status = mailbox.status()
    assert (status.waiting, status.set_aside, status.missed) == (0, 0, 0)
    state.restore(safe)
    assert mailbox.waiting() == [], "no restore brings back what was removed"
    mailbox.send("new", id="new")
    seen: list[Any] = []
    assert mailbox.process(lambda mail: seen.append(mail.content)) == 1
    assert seen == ["new"]


def test_what_is_removed_while_it_is_processed_is_not_done(store: sync.Store) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy())
    for remove in (lambda: mailbox.remove(1), mailbox.clear_all):
        mailbox.send("a")
        with pytest.raises(Conflict), mailbox.next() as mail:
            assert mail is not None
            mail.change.set("done", True)
            remove()
        assert state.get("done") is None
        assert mailbox.status().waiting == 0


@given(st.lists(st.sampled_from([*KINDS, "", "own"]), max_size=8), st.integers(1, 6))
def test_no_request_is_tried_more_often_than_it_may_be(kinds: list[str], most: int) -> None:
    class Failed(Exception):
        """Of a kind."""

    failed = iter(kinds)
    policy = RetryPolicy(most, delay=0, kind_of=lambda error: next(failed, None) or None)
    with sync.open("memory:") as store:
        mailbox = sync.agents.Mailbox(store.agent("7"), retry=policy)
        mailbox.send("ask")
        tries = 0
        while mailbox.status().waiting:
            tries += 1
            failing(mailbox, Failed())
    again = 0
    while again < len(kinds) and kinds[again] in KINDS:
        again += 1
    assert tries == min(again + 1, most)


def test_the_async_face(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            mailbox = holdfast.agents.Mailbox(store.agent("7"), retry=RetryPolicy(delay=0))
            for name in ("bad", "b", "c"):
                await mailbox.send(name, id=name)
            with suppress(ValueError):
                async with mailbox.next():
                    raise ValueError
            with suppress(KeyboardInterrupt):
                async with mailbox.next():
                    raise KeyboardInterrupt
            assert await mailbox.interrupted() == []
            assert [(one.tries, one.kind) for one in await mailbox.waiting()] == [
                (1, "daemon_restart"),
                (0, ""),
            ]
            await mailbox.remove(3)
            assert await mailbox.clear_failed() == 1
            assert await mailbox.clear_all() == 1
            assert (await mailbox.status()).waiting == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": 2.5},
        {"delay": -1},
        {"delay": float("nan")},
        {"longest": "60"},
        {"factor": 0.5},
        {"kinds": "timeout"},
        {"kinds": [""]},
        {"kind_of": "timeout"},
    ],
)
def test_what_makes_no_policy_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        RetryPolicy(**wrong)


def test_what_is_no_policy_is_refused(store: sync.Store) -> None:
    with pytest.raises(InvalidInputError, match="RetryPolicy"):
        sync.agents.Mailbox(store.agent("7"), retry=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="RetryPolicy"):
        sync.agents.Loop(store.agent("7"), object(), retry=3)
