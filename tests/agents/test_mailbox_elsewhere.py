"""A mailbox whose state comes from elsewhere: no letter that is here counts as processed by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import RetryPolicy, sync


def answer(mail: sync.Mail) -> None:
    mail.change.append("answers", mail.content)


def send(state: sync.State, *contents: Any) -> sync.Mailbox:
    mailbox = sync.Mailbox(state)
    for content in contents:
        mailbox.send(content)
    return mailbox


def waiting(state: sync.State) -> list[Any]:
    return [letter.content for letter in sync.Mailbox(state).waiting()]


def counts(state: sync.State) -> tuple[int, int, int, int]:
    status = sync.Mailbox(state).status()
    return status.received, status.processed, status.waiting, status.missed


def take_over(main: sync.State, fork: sync.State, how: str) -> None:
    """Let main become what a fork is."""
    if how == "adopt":
        main.adopt("trial")
    elif how == "merge":
        main.merge(fork)
    else:
        main.restore(fork.checkpoint("good"))


@pytest.mark.parametrize("strategy", ["ours", "theirs", "newest", "both"])
def test_two_forks_that_have_processed_letters_are_merged(store: sync.Store, strategy: str) -> None:
    """Each has its own word for how far main's letters were processed."""
    main, forks = store.agent("7"), []
    for name in ("a", "b"):
        send(main, f"before {name}").process(answer)
        forks.append(main.fork(name))
    for fork in forks:
        send(fork, "own").process(answer)
    forks[0].merge("b", strategy=strategy)
    mailbox = send(forks[0], "later")
    assert waiting(forks[0])[-1] == "later"
    assert mailbox.process(answer) >= 1
    assert waiting(forks[0]) == []


@pytest.mark.parametrize("how", ["adopt", "merge", "restore"])
def test_letters_wait_when_the_state_of_a_fork_is_taken_over(store: sync.Store, how: str) -> None:
    main = store.agent("7")
    send(main, "one").process(answer)
    send(main, "both")
    fork = main.fork("trial")
    assert send(fork, *range(5)).process(answer) == 6
    box = send(main, "real 1", "real 2")
    take_over(main, fork, how)
    assert waiting(main) == ["real 1", "real 2"], "what the fork processed of main's is processed"
    assert counts(main) == (4, 2, 2, 0)
    assert box.process(answer) == 2
    box.send("later")
    assert waiting(main) == ["later"]
    assert box.process(answer) == 1
    assert main.get("answers") == ["one", "both", *range(5), "real 1", "real 2", "later"]
    assert counts(main) == (5, 5, 0, 0)
    fork.restore(main.checkpoint())  # it holds what the fork has processed, too
    send(fork, "more")
    assert waiting(fork) == ["more"]


@pytest.mark.parametrize("strategy", ["ask", "ours", "theirs", "newest", "both"])
@pytest.mark.parametrize("did", [(1, 2), (2, 1), (1, 1), (3, 1), (1, 3), (4, 5), (5, 4)])
def test_letters_that_either_side_of_a_merge_processed_are_processed(
    store: sync.Store, strategy: str, did: tuple[int, int]
) -> None:
    """What they led to comes along from both: how far the merged state is, is the farther one."""
    main = store.agent("7")
    box = send(main, "L0", "L1", "L2")
    fork = main.fork("trial")
    send(fork, "fork's 1", "fork's 2").process(answer, limit=did[0])
    send(main, "M1", "M2").process(answer, limit=did[1])
    merged = main.merge("trial", strategy=strategy)
    assert merged.conflicts == []
    sides = [["L0", "L1", "L2", *more] for more in (["fork's 1", "fork's 2"], ["M1", "M2"])]
    done = {*sides[0][: did[0]], *sides[1][: did[1]]}
    assert set(main.get("answers")) == done
    assert waiting(main) == [one for one in sides[1] if one not in done]
    box.process(answer)
    answers = main.get("answers")
    assert sorted(answers) == sorted({*answers}), "none twice"
    assert counts(main) == (5, 5, 0, 0)
    box.send("later")
    assert waiting(main) == ["later"]


@pytest.mark.parametrize("strategy", ["ask", "ours", "theirs", "newest", "both"])
def test_letters_processed_since_two_timelines_were_merged_crosswise(
    store: sync.Store, strategy: str
) -> None:
    """They have two newest common states, which differ in how far the mailbox is."""
    main, done = store.agent("7"), []
    box = send(main, "L0", "L1")
    fork = main.fork("trial")
    send(main, "M1", "M2", "M3")
    theirs = send(fork, "fork's 1", "fork's 2", "fork's 3")
    box.process(lambda mail: None, limit=1)
    theirs.process(lambda mail: None, limit=3)
    here, there = main.place()[2], fork.place()[2]
    main.merge(f"trial@{there}")
    fork.merge(f"main@{here}")
    box.process(lambda mail: done.append(mail.content), limit=2)
    theirs.process(lambda mail: None, limit=1)
    assert done == ["M1", "M2"]
    merged = main.merge("trial", strategy=strategy)
    assert len(merged.base) == 2
    assert merged.conflicts == []
    assert waiting(main) == ["M3"]


def test_a_fork_that_becomes_what_main_is_now_processes_its_own_letters(store: sync.Store) -> None:
    main = store.agent("7")
    send(main, "one").process(answer)
    fork = main.fork("trial")
    send(fork, "trial 1", "trial 2").process(answer, limit=1)
    send(main, *range(10)).process(answer)
    fork.restore(main.checkpoint())
    assert waiting(fork) == ["trial 1", "trial 2"], "and one is processed"


def test_letters_wait_when_the_state_of_another_agent_is_taken_over(
    store: sync.Store, tmp_path: Path
) -> None:
    one, other, third = (store.agent(name) for name in "abc")
    send(one, *range(4)).process(answer)
    one.checkpoint("safe")
    send(other, "b1", "b2", "b3").process(answer, limit=1)
    sync.Checkpoints(other).restore("safe", source=one)
    assert waiting(other) == ["b1", "b2", "b3"], "what b1 led to is not there any more"
    sync.Mailbox(other).process(answer)
    assert other.get("answers") == [*range(4), "b1", "b2", "b3"]
    path = tmp_path / "a.json"
    sync.export_checkpoint(one, path, plain=True)
    send(third, "c1", "c2")
    sync.import_checkpoint(third, path)
    assert waiting(third) == ["c1", "c2"]
    fresh = store.agent("d")
    sync.import_checkpoint(fresh, path)
    send(fresh, "d1")
    assert waiting(fresh) == ["d1"], "it has the letters of the other, which are processed"


def fail(mail: sync.Mail) -> None:
    raise ValueError


def set_aside(box: sync.Mailbox) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        box.process(fail)


LEFT: dict[str, Callable[[sync.Mailbox], Any]] = {
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
    sync.Agents(store, {}).register("8", kind="bot")
    if how == "import":
        sync.export_checkpoint(one, tmp_path / "one.hfx", plain=True)
        sync.import_checkpoint(other, tmp_path / "one.hfx")
    else:
        sync.Checkpoints(other).restore("safe", source=one)
    assert waiting(other) == ["first", "second"]
    here = other.checkpoint("here")
    box = sync.Mailbox(other, retry=RetryPolicy.every(1))
    LEFT[what](box)
    left = waiting(other)
    assert left == ([] if what == "cleared" else ["second"])
    other.restore(here)
    assert waiting(other) == left
    assert [letter.content for letter in box.set_aside()] == ["first"] * (what == "set aside")


def test_a_restore_of_its_own_past_is_as_ever_after_that(store: sync.Store) -> None:
    main = store.agent("7")
    send(main, "one").process(answer)
    before = main.checkpoint()
    send(main, "two").process(answer)
    fork = main.fork("trial")
    send(fork, "trial").process(answer)
    main.adopt("trial")
    send(main, "three").process(answer)
    main.restore(before)
    assert waiting(main) == ["two", "three"]
    sync.Mailbox(main).process(answer)
    assert main.get("answers") == ["one", "two", "three"]


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
    mailbox = sync.Mailbox(state, keep=2, retry=RetryPolicy.every(1))
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
    mailbox = sync.Mailbox(state, keep=2)
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


def test_async_letters_wait_when_the_state_of_a_fork_is_taken_over() -> None:
    async def run() -> None:
        async with await holdfast.open("memory:") as store:
            main = store.agent("7")
            box = holdfast.Mailbox(main)
            await box.send("one")
            other = holdfast.Mailbox(await main.fork("trial"))
            await other.send("trial")
            for _ in range(2):
                async with other.next() as mail:
                    assert mail is not None
            await box.send("real")
            await main.adopt("trial")
            assert [letter.content for letter in await box.waiting()] == ["real"]

    asyncio.run(run())
