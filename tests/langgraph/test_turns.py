"""Whose turn it is: nobody is told that something is stored that is not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.errors import InvalidInputError
from holdfast.integrations.langgraph.write_queue import Job, Turns


class Notes:
    """Stands for a draft: what was applied, and what was committed."""

    committed: list[list[str]]

    def __init__(self, committed: list[list[str]]) -> None:
        self.committed = committed
        self.applied: list[str] = []

    def commit(self, cause: Any, *, relaxed: bool = False) -> None:
        self.committed.append(self.applied)


def turns_of() -> tuple[Turns, list[list[str]]]:
    committed: list[list[str]] = []
    return Turns(lambda _: Notes(committed)), committed  # type: ignore[arg-type,return-value]


def job(name: str, **options: Any) -> Job:
    return Job(lambda draft: draft.applied.append(name), **options)  # type: ignore[attr-defined]


def test_what_comes_together_is_one_commit_and_two_checkpoints_of_a_namespace_are_two() -> None:
    turns, committed = turns_of()
    begun, go_on = threading.Event(), threading.Event()

    def slow(draft: Any) -> None:
        draft.applied.append("slow")
        begun.set()
        go_on.wait(60)

    threads = [threading.Thread(target=turns.run, args=(Job(slow),))]
    threads[0].start()
    assert begun.wait(60)
    for waiting in (
        job("write"),
        job("first", puts=""),
        job("child", puts="a"),
        job("second", puts=""),
    ):
        threads.append(threading.Thread(target=turns.run, args=(waiting,)))
        threads[-1].start()
        while waiting not in turns._waiting:
            pass
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert committed == [["slow"], ["write", "first", "child"], ["second"]]


def test_one_that_is_refused_does_not_spoil_the_others() -> None:
    turns, committed = turns_of()
    begun, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def slow(draft: Any) -> None:
        begun.set()
        go_on.wait(60)

    def refused(draft: Any) -> None:
        raise InvalidInputError("no")

    def run(one: Job) -> None:
        try:
            turns.run(one)
        except InvalidInputError as error:
            errors.append(error)

    jobs = [Job(slow), job("good"), Job(refused), job("fine")]
    threads = [threading.Thread(target=run, args=(one,)) for one in jobs]
    for thread, one in zip(threads, jobs, strict=True):
        thread.start()
        if one is jobs[0]:
            assert begun.wait(60)
        else:
            while one not in turns._waiting:
                pass
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 1
    assert sorted(name for names in committed for name in names) == ["fine", "good"]


def test_a_writer_that_is_interrupted_leaves_the_others_to_write_their_own() -> None:
    turns, committed = turns_of()
    begun, go_on = threading.Event(), threading.Event()

    def interrupted(draft: Any) -> None:
        begun.set()
        go_on.wait(60)
        raise KeyboardInterrupt

    def run() -> None:
        with pytest.raises(KeyboardInterrupt):
            turns.run(Job(interrupted))

    first = threading.Thread(target=run)
    first.start()
    assert begun.wait(60)
    waiting = job("kept")
    second = threading.Thread(target=turns.run, args=(waiting,))
    second.start()
    while waiting not in turns._waiting:
        pass
    go_on.set()
    first.join(60)
    second.join(60)
    assert committed == [["kept"]]
    turns.run(job("later"))
    assert committed == [["kept"], ["later"]]
