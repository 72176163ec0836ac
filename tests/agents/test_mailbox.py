"""The mailbox: every letter is processed once, together with what it leads to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.agents import RetryPolicy
from holdfast.errors import (
    ChangeIdError,
    Conflict,
    HoldfastError,
    InvalidInputError,
    InvalidKeyError,
    InvalidValueError,
    MissingError,
)
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core


def answer(mail: sync.agents.Mail) -> None:
    mail.change.append("answers", mail.content)


@pytest.mark.spec("D17")
def test_letters_are_processed_in_order_with_what_they_lead_to(place: Place, hands: Hands) -> None:
    state = place.open(clock=hands.clock).agent("7")
    mailbox = sync.agents.Mailbox(state)
    assert state._handle.place()[2] == 0, "making one touches nothing"
    first = mailbox.send({"ask": 1}, sender="agent:8")
    mailbox.send("two")
    assert [letter.content for letter in mailbox.waiting()] == [{"ask": 1}, "two"]
    letter = mailbox.waiting(limit=1)[0]
    assert (letter.number, letter.id, letter.sender) == (1, first, "agent:8")
    assert (letter.time, letter.tries) == (hands.time(), 0)
    before = state._handle.place()[2]
    assert mailbox.process(answer, limit=1) == 1
    assert state._handle.place()[2] == before + 1, "one entry: the answer and that it is done"
    status = mailbox.status()
    assert (status.received, status.processed, status.waiting) == (2, 1, 1)
    assert status.last_processed_id == first
    with mailbox.next() as mail:
        assert mail is not None
        assert mail.content == "two"
        mail.change.append("answers", "two")
    with mailbox.next() as mail:
        assert mail is None
    assert mailbox.process(answer) == 0
    assert state.get("answers") == [{"ask": 1}, "two"]


def test_an_id_is_sent_once(place: Place, hands: Hands) -> None:
    mailbox = sync.agents.Mailbox(place.open(clock=hands.clock).agent("7"))
    assert mailbox.send("a", id="order-1") == "order-1"
    hands.move(5)
    again = sync.agents.Mailbox(place.open(clock=hands.clock).agent("7"))
    assert again.send("a", id="order-1") == "order-1"
    mailbox.send("b", id="order-2")
    for content in ("b", ["a"], None):
        with pytest.raises(ChangeIdError, match="with other content"):
            again.send(content, id="order-1")
    assert [letter.content for letter in mailbox.waiting()] == ["a", "b"]


def test_what_fails_stays_and_is_set_aside_in_the_end(store: sync.Store) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy.every(3))
    mailbox.send("poison")
    mailbox.send("good")

    def work(mail: sync.agents.Mail) -> None:
        mail.change.append("answers", mail.content)
        if mail.content == "poison":
            raise ValueError("secret")

    for _ in range(3):
        with pytest.raises(ValueError, match="secret"):
            mailbox.process(work)
    assert state.get("answers") is None, "nothing of a failed attempt is applied"
    assert mailbox.process(work) == 1
    [letter] = mailbox.set_aside()
    assert (letter.content, letter.tries, letter.error) == ("poison", 3, "ValueError")
    status = mailbox.status()
    assert (status.processed, status.waiting, status.set_aside) == (2, 0, 1)
    assert mailbox.retry(letter.number) == letter.id
    assert mailbox.process(answer) == 1
    assert state.get("answers") == ["good", "poison"]
    with pytest.raises(MissingError, match="set_aside"):
        mailbox.retry(letter.number)


def test_a_letter_whose_outcome_is_refused_blocks_nobody(store: sync.Store) -> None:
    """The block itself ended well: it is its change that cannot be committed."""
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy())
    mailbox.send("poison")
    mailbox.send("good")
    with pytest.raises(InvalidValueError), mailbox.next() as mail:
        assert mail is not None
        mail.change.set("x", object())
    [letter] = mailbox.set_aside()
    assert (letter.content, letter.error) == ("poison", "InvalidValueError")
    assert mailbox.interrupted() == [], "its attempt has ended"
    assert mailbox.process(answer) == 1


def test_a_letter_that_another_was_faster_with_has_not_failed(place: Place) -> None:
    mailbox, other = (sync.agents.Mailbox(place.open().agent("7")) for _ in range(2))
    mailbox.send("a")
    mailbox.send("b")
    with pytest.raises(Conflict), mailbox.next() as mail:
        assert mail is not None
        assert other.process(answer, limit=1) == 1
    assert [(letter.content, letter.tries) for letter in mailbox.waiting()] == [("b", 0)]
    with pytest.raises(Conflict), mailbox.next() as mail:
        assert mail is not None
        mail.change.get("x")
        place.open().agent("7").set("x", 1)
    assert [letter.tries for letter in mailbox.waiting()] == [0]


def test_tries_are_counted_over_restarts(place: Place) -> None:
    sync.agents.Mailbox(place.open().agent("7")).send("x")
    for tries in range(2):
        mailbox = sync.agents.Mailbox(place.open().agent("7"))
        with suppress(ZeroDivisionError), mailbox.next() as mail:
            assert mail is not None
            assert mail.letter.tries == tries
            raise ZeroDivisionError
    mailbox.send("y")
    seen = [(letter.tries, letter.error) for letter in mailbox.waiting()]
    assert seen == [(2, "ZeroDivisionError"), (0, "")]
    with mailbox.next() as mail:
        assert mail is not None
        assert (mail.letter.tries, mail.letter.error) == (2, "ZeroDivisionError")
    assert [letter.tries for letter in mailbox.waiting()] == [0]


@pytest.mark.spec("D17")
def test_a_restore_loses_no_letter_and_undoes_what_processing_wrote(store: sync.Store) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state)
    mailbox.send("a")
    mailbox.process(answer)
    safe = state.checkpoint()
    mailbox.send("b")
    mailbox.send("c")
    mailbox.process(answer, limit=1)
    state.restore(safe)
    assert state.get("answers") == ["a"]
    assert [letter.content for letter in mailbox.waiting()] == ["b", "c"]
    mailbox.process(answer)
    assert state.get("answers") == ["a", "b", "c"]


def refuse_bad(mail: sync.agents.Mail) -> None:
    if mail.content == "bad":
        raise ZeroDivisionError
    answer(mail)


def test_no_restore_makes_a_letter_that_fails_a_new_one(store: sync.Store) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy.every(3))
    for content in ("a", "bad", "b", "bad", "c"):
        mailbox.send(content)
    safe = state.checkpoint()
    for _ in range(6):
        with pytest.raises(ZeroDivisionError):
            mailbox.process(refuse_bad)
        state.restore(safe)
    status = mailbox.status()
    assert (status.received, status.processed, status.waiting, status.set_aside) == (5, 2, 3, 2)
    assert [letter.content for letter in mailbox.waiting(limit=2)] == ["a", "b"]
    assert mailbox.process(refuse_bad) == 3
    assert state.get("answers") == ["a", "b", "c"]


@pytest.mark.parametrize("tries", [1, 2])
def test_a_letter_that_fails_during_a_restore_takes_none_before_it_along(
    store: sync.Store, tries: int
) -> None:
    """Those before it are to be processed again: what they wrote was undone."""
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy.every(tries))
    state.set("k", 1)
    safe = state.checkpoint()
    for number in range(5):
        mailbox.send(number)
    mailbox.process(answer, limit=3)
    with pytest.raises(ZeroDivisionError), mailbox.next():
        state.restore(safe)
        raise ZeroDivisionError
    wanted = [0, 1, 2, 4] if tries == 1 else [0, 1, 2, 3, 4]
    assert [letter.content for letter in mailbox.waiting()] == wanted
    assert mailbox.process(answer) == len(wanted)
    assert state.get("answers") == wanted
    assert mailbox.status().set_aside == 5 - len(wanted)


def test_letters_that_were_processed_are_not_those_that_clear_all_removes(
    store: sync.Store,
) -> None:
    """After a restore to before them they come again, and what was removed does not."""
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy.every(1))
    state.set("k", 1)
    safe = state.checkpoint()
    for content in (0, "bad", 1, 2, 3):
        mailbox.send(content)
    with pytest.raises(ZeroDivisionError):
        mailbox.process(refuse_bad)
    mailbox.process(answer, limit=1)
    assert mailbox.clear_all() == 3, "two that wait and one set aside"
    for number in (4, 5):
        mailbox.send(number)
    mailbox.process(answer, limit=1)
    assert mailbox.clear_all() == 1
    assert mailbox.status().waiting == 0
    state.restore(safe)
    assert [letter.content for letter in mailbox.waiting()] == [0, 1, 4]
    status = mailbox.status()
    assert (status.received, status.processed, status.waiting) == (7, 4, 3)
    assert mailbox.process(answer) == 3
    mailbox.send(6)
    assert mailbox.process(answer) == 1
    assert state.get("answers") == [0, 1, 4, 6]


def test_what_is_kept_of_letters_that_were_cleared_is_bounded(store: sync.Store) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, keep=4)
    for number in range(30):
        mailbox.send(number)
        mailbox.send("no")
        mailbox.process(answer, limit=1)
        assert mailbox.clear_all() == 1
    assert state.get("answers") == list(range(30))
    assert state.length("$mailbox/inbox/cleared") < 10


def test_a_letter_that_is_tried_again_is_processed_once(store: sync.Store) -> None:
    """Also after a restore to a time at which it still stood at its first place."""
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, retry=RetryPolicy.every(1))
    for content in ("bad", "b"):
        mailbox.send(content)
    safe = state.checkpoint()
    with pytest.raises(ZeroDivisionError):
        mailbox.process(refuse_bad)
    mailbox.retry(1)
    state.restore(safe)
    assert [letter.content for letter in mailbox.waiting()] == ["b", "bad"]
    assert mailbox.process(answer) == 2
    assert state.get("answers") == ["b", "bad"]


def test_what_is_kept_of_letters_set_aside_is_bounded(store: sync.Store) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, keep=4, retry=RetryPolicy.every(1))
    for number in range(40):
        mailbox.send("bad" if number % 2 else number)
    for _ in range(20):
        with suppress(ZeroDivisionError):
            mailbox.process(refuse_bad)
    for letter in mailbox.set_aside():
        mailbox.retry(letter.number)
    assert mailbox.process(answer) == 20
    assert len(state.keys("$mailbox/inbox/")) < 10


def test_a_fork_has_no_mailbox(store: sync.Store) -> None:
    state = store.agent("7")
    box = sync.agents.Mailbox(state)
    box.send("a")
    trial = state.fork("trial")
    with pytest.raises(InvalidInputError, match="has no mailbox"):
        sync.agents.Mailbox(trial)
    with box.next() as mail, pytest.raises(InvalidInputError, match="letters belong to main"):
        assert mail is not None
        mail.send(trial, "b")
    assert box.status().waiting == 0
    assert [letter.content for letter in sync.agents.Mailbox(store.agent("7")).waiting()] == []


def test_a_letter_to_another_agent_goes_with_the_answer(store: sync.Store) -> None:
    one, two = store.agent("1"), store.agent("2")
    for agent in (one, two):
        sync.agents.Mailbox(agent).send("ping" if agent is one else "hello")

    def work(mail: sync.agents.Mail) -> None:
        mail.change.set("last", mail.content)
        mail.send(two, "pong")

    before = one._handle.place()[2]
    sync.agents.Mailbox(one).process(work)
    assert one._handle.place()[2] == before + 1
    letter = sync.agents.Mailbox(two).waiting()[-1]
    assert (letter.content, letter.sender) == ("pong", "agent:1")
    sync.agents.Mailbox(one).send("ping")

    def fail(mail: sync.agents.Mail) -> None:
        mail.send(two, "pong")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sync.agents.Mailbox(one).process(fail)
    assert sync.agents.Mailbox(two).status().waiting == 2


def test_what_is_processed_is_trimmed_and_what_a_restore_would_need_is_missed(
    store: sync.Store,
) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, keep=8)
    mailbox.send(0)
    safe = state.checkpoint()
    for number in range(1, 50):
        mailbox.send(number)
        mailbox.process(answer)
    assert state.length("$mailbox/inbox/messages") <= 11
    assert state.get("answers") == list(range(50))
    state.restore(safe)
    status = mailbox.status()
    assert status.missed == 50 - status.waiting > 0
    mailbox.process(answer)
    assert state.get("answers") == list(range(50))[status.missed :]
    assert (mailbox.status().missed, mailbox.status().waiting) == (status.missed, 0)  # still
    assert mailbox.status().processed == 50 - status.missed


def test_two_that_process_do_each_letter_once(place: Place) -> None:
    store = place.open()
    for number in range(30):
        sync.agents.Mailbox(store.agent("7")).send(number)
    errors: list[Exception] = []

    def work() -> None:
        try:
            sync.agents.Mailbox(place.open().agent("7")).process(answer)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.agent("7").get("answers") == list(range(30))
    assert store.verify().findings == []


def test_who_was_slower_gets_a_conflict_and_nothing_is_applied(place: Place) -> None:
    mailbox, other = (sync.agents.Mailbox(place.open().agent("7")) for _ in range(2))
    mailbox.send("a")
    with pytest.raises(Conflict), mailbox.next() as mail:
        assert mail is not None
        other.process(answer)
        answer(mail)
    assert mailbox._state.get("answers") == ["a"]


def test_users_cannot_write_its_keys(store: sync.Store) -> None:
    mailbox = sync.agents.Mailbox(store.agent("7"))
    mailbox.send("a")
    with pytest.raises(InvalidKeyError), mailbox.next() as mail:
        assert mail is not None
        mail.change.delete("$mailbox/done")


def test_the_async_face(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            state, other = store.agent("7"), store.agent("8")
            mailbox = holdfast.agents.Mailbox(state, retry=RetryPolicy.every(1))
            for content in ("a", "b", "poison"):
                await mailbox.send(content, id=content)

            async def work(mail: holdfast.agents.Mail) -> None:
                if mail.content == "poison":
                    raise ZeroDivisionError
                known = await mail.change.get("answers", [])
                mail.change.set("answers", [*known, mail.content])
                mail.send(other, mail.content)

            with pytest.raises(ZeroDivisionError):
                await mailbox.process(work)
            assert await state.get("answers") == ["a", "b"]
            assert (await mailbox.status()).set_aside == 1
            [letter] = await mailbox.set_aside()
            await mailbox.retry(letter.number)
            assert [one.content for one in await mailbox.waiting()] == ["poison"]
            async with mailbox.next() as mail:
                assert mail is not None
                mail.change.set("last", mail.content)
            assert await state.get("last") == "poison"
            await mailbox.send("refused")
            with pytest.raises(InvalidValueError):
                async with mailbox.next() as mail:
                    assert mail is not None
                    mail.change.set("x", object())
            assert [one.content for one in await mailbox.set_aside()] == ["refused"]
            assert await mailbox.process(lambda mail: None) == 0
            assert (await holdfast.agents.Mailbox(other).status()).waiting == 2

    asyncio.run(main())


def test_what_cannot_be_meant_is_refused(store: sync.Store) -> None:
    state = store.agent("7")
    for options in ({"keep": -1}, {"retry": 5}, {"keep": "all"}):
        with pytest.raises(InvalidInputError):
            sync.agents.Mailbox(state, **options)  # type: ignore[arg-type]
    mailbox = sync.agents.Mailbox(state)
    for wrong in ({"content": object()}, {"content": 1, "sender": 7}, {"content": 1, "id": ""}):
        with pytest.raises(InvalidInputError):
            mailbox.send(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        mailbox.process("work")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        sync.agents.Mailbox("agent:7")  # type: ignore[arg-type]
    mailbox.send("a")
    with pytest.raises(InvalidInputError), mailbox.next() as mail:
        assert mail is not None
        mail.send("agent:8", 1)  # type: ignore[arg-type]


STEPS = st.lists(
    st.sampled_from(
        [
            "send",
            "send",
            "process",
            "fail",
            "fail, restored",
            "remove",
            "clear",
            "checkpoint",
            "restore",
            "reopen",
        ]
    ),
    max_size=25,
)


class Model:
    """Letters that only come, a position and answers that go back, and what never goes back."""

    def __init__(self) -> None:
        self.sent = self.done = self.first = 0
        self.answers: list[int] = []
        self.fails: dict[int, int] = {}
        self.skipped: set[int] = set()

    def waiting(self) -> list[int]:
        numbers = range(max(self.done, self.first), self.sent)
        return [number for number in numbers if number not in self.skipped]

    def process(self, number: int) -> None:
        self.answers, self.done = [*self.answers, number], number + 1
        self.first = max(self.first, self.done - 3)

    def fail(self, number: int) -> None:
        self.fails[number] = self.fails.get(number, 0) + 1
        if self.fails[number] == 2:
            self.done = number + 1 if self.waiting()[0] == number else self.done
            self.skipped.add(number)


@given(STEPS)
def test_it_does_what_a_plain_model_does(steps: list[str]) -> None:
    store = sync.open("memory:")
    state = store.agent("7")
    options: Any = {"retry": RetryPolicy.every(2), "keep": 3}
    mailbox, model = sync.agents.Mailbox(state, **options), Model()
    safe: Any = None
    kept: tuple[int, list[int]] = (0, [])
    for step in steps:
        number = next(iter(model.waiting()), None)
        if step == "send":
            mailbox.send(model.sent)
            model.sent += 1
        elif step == "process" and number is not None:
            assert mailbox.process(answer, limit=1) == 1
            model.process(number)
        elif step == "fail" and number is not None:
            with suppress(ZeroDivisionError), mailbox.next():
                raise ZeroDivisionError
            model.fail(number)
        elif step == "fail, restored" and number is not None and safe is not None:
            with suppress(ZeroDivisionError), mailbox.next():
                state.restore(safe)
                raise ZeroDivisionError
            model.done, model.answers = kept
            model.fail(number)
        elif step == "remove" and number is not None:
            mailbox.remove(number + 1)
            model.skipped.add(number)
        elif step == "clear":
            aside = len(mailbox.set_aside())
            assert mailbox.clear_all() == len(model.waiting()) + aside
            assert mailbox.set_aside() == []
            model.skipped.update(model.waiting())
        elif step == "checkpoint":
            safe, kept = state.checkpoint(), (model.done, model.answers)
        elif step == "restore" and safe is not None:
            state.restore(safe)
            model.done, model.answers = kept
        elif step == "reopen":
            mailbox = sync.agents.Mailbox(store.agent("7"), **options)
        assert state.get("answers", []) == model.answers
        assert [one.content for one in mailbox.waiting()] == model.waiting()
        assert [one.content for one in mailbox.waiting(limit=2)] == model.waiting()[:2]
        status = mailbox.status()
        assert status.waiting == len(model.waiting())
        assert status.processed + status.waiting + status.missed == status.received == model.sent
    store.close()


def test_a_crash_at_any_storage_call_loses_and_repeats_nothing(place: Place) -> None:
    """From the nth call on nothing works any more; then another process goes on."""
    for nth in range(1, 200):
        name = f"crash-{nth}"
        faulty = Faulty(place.storage(), Fault("*", nth, "ambiguous-applied", onward=True))
        sent = 0
        with suppress(HoldfastError):
            broken = sync.Store(
                StoreHandle(open_core(place.url, storage=faulty, **place.options()))
            )
            mailbox = sync.agents.Mailbox(broken.agent(name))
            for number in range(3):
                mailbox.send(number, id=str(number))
                sent = number + 1
            mailbox.process(answer)
        store = place.open()
        state = store.agent(name)
        again = sync.agents.Mailbox(state)
        for number in range(max(sent - 1, 0), 3):  # whoever is not sure sends again
            again.send(number, id=str(number))
        again.process(answer)
        assert state.get("answers") == [0, 1, 2]
        store.close()
        if not faulty.failed:
            break
    else:
        raise AssertionError("the last round had nothing left to fail")
    assert place.open().verify().findings == []


PROGRAM = """
import sys
from holdfast import sync
url, key, signer = sys.argv[1], sys.argv[2] or None, sys.argv[3]
def work(mail):
    mail.change.append("answers", mail.content)
with sync.open(url, key=key, durability="normal", signer=signer) as store:
    mailbox = sync.agents.Mailbox(store.agent("7"), keep=20)
    print("ready", flush=True)
    while True:
        mailbox.process(work)
"""


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place("sqlite", tmp_path, sealed=request.param)
    yield found
    found.close()


def test_killed_again_and_again_it_does_every_letter_once(shared: Place) -> None:
    store = shared.open()
    mailbox = sync.agents.Mailbox(store.agent("7"))
    sent = 0
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, shared.url, shared.key or "", shared.signer],
            env=shared.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            end = time.monotonic() + 60
            goal = sent + 15
            while mailbox.status().processed < goal and time.monotonic() < end:
                mailbox.send(sent)
                sent += 1
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
    mailbox.process(answer)
    assert store.agent("7").get("answers") == list(range(sent))
    assert sent >= 60
    assert store.verify().findings == []
