"""A mailbox whose state comes from elsewhere: no letter that is here counts as processed by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from holdfast.agents import RetryPolicy


def answer(mail: sync.agents.Mail) -> None:
    mail.change.append("answers", mail.content)


def send(state: sync.State, *contents: Any) -> sync.agents.Mailbox:
    mailbox = sync.agents.Mailbox(state)
    for content in contents:
        mailbox.send(content)
    return mailbox


def waiting(state: sync.State) -> list[Any]:
    return [letter.content for letter in sync.agents.Mailbox(state).waiting()]


def counts(state: sync.State) -> tuple[int, int, int, int]:
    status = sync.agents.Mailbox(state).status()
    return status.received, status.processed, status.waiting, status.missed


def take_over(main: sync.State, fork: sync.State, how: str) -> None:
    """Let main become what a fork is."""
    if how == "adopt":
        main.adopt("trial")
    elif how == "merge":
        main.merge(fork)
    else:
        main.restore(fork.checkpoint("good"))


@pytest.mark.parametrize("how", ["adopt", "merge", "restore"])
def test_letters_that_came_since_a_fork_began_wait(store: sync.Store, how: str) -> None:
    """What processing wrote since is undone with the state, so those are processed again."""
    main = store.agent("7")
    send(main, "one").process(answer)
    fork = main.fork("trial")
    fork.set("tried", True)
    send(main, "two", "three").process(answer, limit=1)
    if how == "adopt":
        main.adopt("trial")
    elif how == "merge":
        main.merge("trial")
    else:
        main.restore(fork.checkpoint())
    assert main.get("tried") is True
    assert waiting(main) == (["three"] if how == "merge" else ["two", "three"])
    sync.agents.Mailbox(main).process(answer)
    assert main.get("answers") == ["one", "two", "three"]


def test_letters_wait_when_the_state_of_another_agent_is_taken_over(
    store: sync.Store, tmp_path: Path
) -> None:
    one, other, third = (store.agent(name) for name in "abc")
    send(one, *range(4)).process(answer)
    one.checkpoint("safe")
    send(other, "b1", "b2", "b3").process(answer, limit=1)
    sync.checkpoints.Checkpoints(other).restore("safe", source=one)
    assert waiting(other) == ["b1", "b2", "b3"], "what b1 led to is not there any more"
    sync.agents.Mailbox(other).process(answer)
    assert other.get("answers") == [*range(4), "b1", "b2", "b3"]
    path = tmp_path / "a.json"
    sync.checkpoints.export_checkpoint(one, path, plain=True)
    send(third, "c1", "c2")
    sync.checkpoints.import_checkpoint(third, path)
    assert waiting(third) == ["c1", "c2"]
    fresh = store.agent("d")
    sync.checkpoints.import_checkpoint(fresh, path)
    send(fresh, "d1")
    assert waiting(fresh) == ["d1"], "it has the letters of the other, which are processed"


def fail(mail: sync.agents.Mail) -> None:
    raise ValueError


def set_aside(box: sync.agents.Mailbox) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        box.process(fail)


LEFT: dict[str, Callable[[sync.agents.Mailbox], Any]] = {
    "set aside": set_aside,
    "removed": lambda box: box.remove(1),
    "cleared": lambda box: box.clear_all(),
}


@pytest.mark.parametrize("how", ["import", "restore"])
@pytest.mark.parametrize("what", LEFT)
def test_letters_that_came_along_stay_as_they_are_known_here(
    store: sync.Store, tmp_path: Path, how: str, what: str
) -> None:
    """Also in a scope that has declared something of its own, and so takes no declarations."""
    one, other = store.agent("7"), store.agent("8")
    send(one, "first", "second")
    one.checkpoint("safe")
    sync.agents.Agents(store, {}).register("8", kind="bot")
    if how == "import":
        sync.checkpoints.export_checkpoint(one, tmp_path / "one.hfx", plain=True)
        sync.checkpoints.import_checkpoint(other, tmp_path / "one.hfx")
    else:
        sync.checkpoints.Checkpoints(other).restore("safe", source=one)
    assert waiting(other) == ["first", "second"]
    here = other.checkpoint("here")
    box = sync.agents.Mailbox(other, retry=RetryPolicy.every(1))
    LEFT[what](box)
    left = waiting(other)
    assert left == ([] if what == "cleared" else ["second"])
    other.restore(here)
    assert waiting(other) == left
    assert [letter.content for letter in box.set_aside()] == ["first"] * (what == "set aside")


def test_the_next_letter_comes_though_the_last_one_was_reverted(store: sync.Store) -> None:
    state = store.agent("7")
    mailbox = send(state, "one")
    with store.acting("me", correlation="run"):
        mailbox.send("two")
    mailbox.process(answer)
    state.revert(correlation="run")
    assert waiting(state) == []
    mailbox.send("three")
    assert waiting(state) == ["three"]
    mailbox.process(answer)
    assert state.get("answers") == ["one", "two", "three"]


def test_one_that_is_put_behind_all_others_is_not_taken_for_the_one_set_aside(
    store: sync.Store,
) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, keep=2, retry=RetryPolicy.every(1))
    mailbox.send("bad")
    with pytest.raises(ZeroDivisionError), mailbox.next():
        _ = 1 / 0
    safe = state.checkpoint()
    send(state, *range(6))
    mailbox.process(answer, limit=4)
    mailbox.retry(1)
    assert waiting(state) == [4, 5, "bad"], "the one at the end is not the one set aside"
    state.restore(safe)
    missed = mailbox.status().missed
    assert waiting(state) == [*range(missed, 6), "bad"], "it is not as far as the one at the end"


def test_what_was_missed_is_told_until_the_state_is_another(store: sync.Store) -> None:
    state = store.agent("7")
    mailbox = sync.agents.Mailbox(state, keep=2)
    state.set("x", 1)
    safe = state.checkpoint()
    send(state, *range(8))
    mailbox.process(answer)
    now = state.checkpoint()
    state.restore(safe)
    assert counts(state) == (8, 0, 2, 6)
    mailbox.process(answer, limit=1)
    assert counts(state) == (8, 1, 1, 6)
    mailbox.process(answer)
    assert counts(state) == (8, 2, 0, 6)
    state.restore(now)
    assert counts(state) == (8, 8, 0, 0)
