"""Functions of users that checkpoints call: what they raise is theirs, what did not run is told."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from store_kit import Hands

import holdfast
from holdfast import sync
from holdfast.errors import InvalidInputError, StateValidationError

ENDS = [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit]


def _wait(until: Callable[[], Any]) -> None:
    for _ in range(6000):
        if until():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come")


@pytest.mark.parametrize("kind", ENDS)
def test_whatever_a_job_raises_the_schedules_go_on(kind: type[BaseException]) -> None:
    def job(run: Any) -> None:
        raise kind

    with sync.open("memory:") as store:
        agent = store.agent("a")
        with sync.checkpoints.Scheduler(store, jobs={"job": job}) as scheduler:
            scheduler.every(0.1, job="job")
            scheduler.every(0.1, agent, name="checkpoints")
            for n in range(3):
                agent.set("n", n)
                _wait(lambda n=n: len(agent.checkpoints()) > n)
            _wait(lambda: scheduler.schedules()[1].runs > 1)
            assert scheduler.schedules()[1].failed == kind.__name__


def test_whatever_a_job_on_the_loop_raises_the_program_goes_on() -> None:
    async def main() -> str | None:
        async def job(run: Any) -> None:
            sys.exit("no network")

        hands = Hands()
        async with holdfast.open("memory:", clock=hands.clock) as store:
            scheduler = holdfast.checkpoints.Scheduler(store, jobs={"job": job})
            await scheduler.every(1, job="job")
            hands.move(2)
            return (await scheduler.run_due())[0].error

    assert asyncio.run(main()) == "SystemExit"


def test_an_interrupt_in_the_main_thread_ends_the_call_and_the_slot_is_run_again() -> None:
    ran: list[str] = []

    def job(run: Any) -> None:
        ran.append(run.id)
        if len(ran) == 1:
            raise KeyboardInterrupt

    hands = Hands()
    with sync.open("memory:", clock=hands.clock) as store:
        scheduler = sync.checkpoints.Scheduler(store, jobs={"one": job, "two": job})
        scheduler.every(10, job="one")
        scheduler.every(10, job="two")
        hands.move(11)
        with pytest.raises(KeyboardInterrupt):
            scheduler.run_due()
        assert [run.outcome for run in scheduler.run_due()] == ["done", "done"]
        assert len(set(ran)) == 2


# what did not run


async def _awaited(given: Any) -> None:
    raise AssertionError("nobody awaits it")


class _Object:
    async def __call__(self, given: Any) -> None:
        await _awaited(given)


FORMS = [_awaited, functools.partial(_awaited), _Object()]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_async_is_refused_on_the_blocking_face(form: Any) -> None:
    with sync.open("memory:") as store:
        agent = store.agent("a")
        agent.set("x", 1)
        agent.checkpoint("c")
        checkpoints = sync.checkpoints.Checkpoints(agent)
        for give in (
            lambda: sync.checkpoints.Checkpoints(agent, sync=form),
            lambda: sync.checkpoints.Scheduler(store, jobs={"job": form}),
            lambda: checkpoints.restore("c", validate=form),
            lambda: checkpoints.simulate(form, "c"),
            lambda: checkpoints.operation("o")(form),
        ):
            with pytest.raises(InvalidInputError):
                give()


def test_what_only_gives_something_to_await_has_failed() -> None:
    def form(given: Any) -> Any:
        return _awaited(given)

    with sync.open("memory:") as store:
        agent = store.agent("a")
        agent.set("x", 1)
        result = sync.checkpoints.Checkpoints(agent, sync=form).create("c", sync=True)
        assert (result.synchronized, result.sync_error) == (False, "NotRunError")
        checkpoints = sync.checkpoints.Checkpoints(agent)
        for call in (
            lambda: checkpoints.simulate(form, "c"),
            lambda: checkpoints.operation("o")(form)(1),
        ):
            with pytest.raises(InvalidInputError):
                call()
        with pytest.raises(StateValidationError):
            checkpoints.restore("c", validate=form)
    hands = Hands()
    with sync.open("memory:", clock=hands.clock) as store:
        scheduler = sync.checkpoints.Scheduler(store, jobs={"job": form})
        scheduler.every(1, job="job")
        hands.move(2)
        assert [(run.outcome, run.error) for run in scheduler.run_due()] == [
            ("failed", "NotRunError")
        ]


def test_on_the_async_face_whatever_gives_something_to_await_is_awaited() -> None:
    ran: list[Any] = []

    async def work(given: Any) -> None:
        await asyncio.sleep(0)
        ran.append(given)

    class Working:
        async def __call__(self, given: Any) -> None:
            await work(given)

    async def main() -> None:
        for form in (work, functools.partial(work), Working(), lambda given: work(given)):
            ran.clear()
            hands = Hands()
            async with holdfast.open("memory:", clock=hands.clock) as store:
                agent = store.agent("a")
                await agent.set("x", 1)
                made = await holdfast.checkpoints.Checkpoints(agent, sync=form).create(
                    "c", sync=True
                )
                scheduler = holdfast.checkpoints.Scheduler(store, jobs={"job": form})
                await scheduler.every(1, job="job")
                hands.move(2)
                done = await scheduler.run_due()
                assert made.synchronized
                assert [run.outcome for run in done] == ["done"]
                assert len(ran) == 2

    asyncio.run(main())


@pytest.mark.parametrize("jobs", [["x"], 5, {1: print}])
def test_jobs_are_given_by_their_names(jobs: Any) -> None:
    with sync.open("memory:") as store, pytest.raises(InvalidInputError, match="mapping"):
        sync.checkpoints.Scheduler(store, jobs=jobs)


async def _later(*_: Any) -> int:
    return 1


@pytest.mark.filterwarnings("error")
def test_update_and_replay_say_that_they_take_plain_functions() -> None:
    with sync.open("memory:") as store:
        state = store.agent("a")
        state.set("k", 0)
        with pytest.raises(InvalidInputError, match="update takes a plain function"):
            state.update("k", _later)
        with pytest.raises(InvalidInputError, match="replay takes a plain function"):
            state.replay(_later, 0)
        assert state.get("k") == 0
