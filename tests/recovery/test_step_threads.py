"""What a step writes from tasks and threads of its own: whose that is, and when it is refused."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import sync
from holdfast.errors import LeaseLostError, RecoveryFailedError
from holdfast.recovery import run, steps

SECONDS = 60
"""After which something hangs."""
Write = Callable[[Any], None]


async def in_a_task(write: Callable[[], None]) -> None:
    """A task that an async step begins."""

    async def task() -> None:
        write()

    await asyncio.create_task(task())


async def away(write: Callable[[], None]) -> None:
    """What asyncio puts into a thread, with the context."""
    await asyncio.to_thread(write)


async def in_an_executor(write: Callable[[], None]) -> None:
    """What asyncio puts into a thread, without the context."""
    await asyncio.get_running_loop().run_in_executor(None, write)


async def in_a_thread(write: Callable[[], None]) -> None:
    """A thread of its own."""
    thread = threading.Thread(target=write)
    thread.start()
    thread.join(SECONDS)


async def in_a_thread_with_the_context(write: Callable[[], None]) -> None:
    """A thread of its own that is given the step's context."""
    thread = threading.Thread(target=contextvars.copy_context().run, args=(write,))
    thread.start()
    thread.join(SECONDS)


OWN = [in_a_task, away, in_a_thread_with_the_context]
FOREIGN = [in_an_executor, in_a_thread]


def recovery_with(store: sync.Store, step: Any, timeout: int, *more: dict[str, Any]) -> Any:
    """A recovery by one step that writes, and what comes after it."""
    recovery = sync.recovery.Recovery(store, steps={"writes": step, "fails": lambda *_: 1 // 0})
    steps = [{"type": "backup_current"}, {"type": "writes", "timeout": timeout}, *more]
    recovery.set({"id": "p", "triggers": ["odd"], "steps": steps})
    return recovery


@pytest.mark.parametrize("how", OWN + FOREIGN)
def test_what_is_undone_if_a_later_step_fails(store: sync.Store, how: Any) -> None:
    state = store.agent("7")
    state.set("plan", 1)

    async def step(context: Any, action: Any) -> None:
        await how(lambda: context.state.set("plan", 2))

    with pytest.raises(RecoveryFailedError) as caught:
        recovery_with(store, step, 1000 * SECONDS, {"type": "fails"}).recover(state, "odd")
    assert state.get("plan") == (1 if how in OWN else 2)
    assert ("others wrote meanwhile" in str(caught.value)) == (how in FOREIGN)


@pytest.mark.parametrize("how", OWN + FOREIGN)
def test_what_is_refused_once_the_step_is_given_up(store: sync.Store, how: Any) -> None:
    state = store.agent("7")
    state.set("plan", 1)
    given_up, over = threading.Event(), threading.Event()
    refused: list[type[BaseException] | None] = []

    async def step(context: Any, action: Any) -> None:
        def late() -> None:
            assert given_up.wait(SECONDS)
            try:
                context.state.set("plan", 2)
            except LeaseLostError:
                refused.append(LeaseLostError)
            else:
                refused.append(None)

        try:
            await how(late)
        finally:
            over.set()

    def progress(title: str, said: str) -> None:
        if title == "writes" and "it took more than" in said:
            given_up.set()

    with pytest.raises(RecoveryFailedError):
        recovery_with(store, step, 100).recover(state, "odd", progress=progress)
    assert over.wait(SECONDS)
    assert refused == [LeaseLostError if how in OWN else None]
    assert state.get("plan") == (1 if how in OWN else 2)


def test_what_a_step_finds_out_late_does_not_count(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = store.agent("7")
    state.set("plan", 1)
    state.checkpoint("good")
    state.set("plan", 2)
    hangs, second, over = threading.Event(), threading.Event(), threading.Event()
    late, come = list[threading.Thread](), list[bool]()
    looked, wait, execute = steps.unreadable, run.wait, run.Running._execute

    def waiting(futures: Any, seconds: float) -> Any:
        """The time of the step that hangs is over at once; the others have theirs."""
        if not hangs.is_set():
            assert hangs.wait(SECONDS)
            return None
        return wait(futures, seconds)

    def hangs_once(handle: Any) -> Any:
        found = looked(handle)
        if not late:
            late.append(threading.current_thread())
            hangs.set()
            assert second.wait(SECONDS)
        return found

    def executed(running: Any, *given: Any) -> Any:
        made = execute(running, *given)
        if threading.current_thread() in late:
            over.set()
        return made

    def fails(context: Any, action: Any) -> None:
        """In the second attempt, once the state is put back."""
        second.set()
        come.append(over.wait(SECONDS))
        raise RuntimeError("it does not work")

    monkeypatch.setattr(run, "wait", waiting)
    monkeypatch.setattr(steps, "unreadable", hangs_once)
    monkeypatch.setattr(run.Running, "_execute", executed)
    recovery = sync.recovery.Recovery(store, steps={"fails": fails})
    locate = {"type": "locate_checkpoint", "action": {"strategies": ["newest_valid"]}}
    done = [{"type": "backup_current"}, locate, {"type": "restore_state"}, {"type": "fails"}]
    recovery.set({"id": "p", "triggers": ["odd"], "retries": 1, "backoff": 1, "steps": done})
    with pytest.raises(RecoveryFailedError):
        recovery.recover(state, "odd")
    assert come == [True]
    assert recovery.reports(state)[0].status == "rolled_back"
    assert dict(state.items()) == {"plan": 2}


def test_what_a_step_says_late_is_told_to_nobody(store: sync.Store) -> None:
    state = store.agent("7")
    state.set("plan", 1)
    second, over = threading.Event(), threading.Event()
    calls = 0

    def notify(context: Any, action: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:  # it is given up, and goes on all the same
            assert second.wait(SECONDS)
            try:
                return steps.notify_systems(context, {"message": "late"})
            finally:
                over.set()
        said = steps.notify_systems(context, {"message": "in time"})
        second.set()
        assert over.wait(SECONDS)
        return said

    recovery = sync.recovery.Recovery(store, steps={"notify": notify})
    done = [{"type": "backup_current"}, {"type": "notify", "timeout": 1000}]
    recovery.set({"id": "p", "triggers": ["odd"], "retries": 1, "backoff": 1, "steps": done})
    recovery.recover(state, "odd")
    assert calls == 2
    assert [one.message for one in recovery.notices()] == ["in time"]
