"""What stops one thread, or a gate, is nothing to the changes of others that it commits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from store_kit import Between, Place

import holdfast
from holdfast import sync
from holdfast.errors import Conflict, OutcomeUnknown, Unavailable
from holdfast.storage.contract import Batch
from holdfast.store.commit.change import Change, Target, Ticket
from holdfast.store.commit.group import Committer
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core


class Stops(Between):
    """A storage one of whose commits is interrupted: before it, or behind it."""

    when = ""

    def commit(self, batch: Batch) -> None:
        when, self.when = self.when, ""
        if when == "before":
            raise KeyboardInterrupt
        super().commit(batch)
        if when == "behind":
            raise KeyboardInterrupt


@pytest.fixture
def stops(place: Place) -> Any:
    """A store of one handle over such a storage, and the storage."""
    storage = Stops(place.storage())
    core = open_core(place.url, storage=storage, **place.options())  # type: ignore[arg-type]
    yield sync.Store(StoreHandle(core)), storage
    core.close()


def waiting(store: sync.Store, key: str) -> Ticket:
    """A change of another thread that waits to be committed."""
    state = store.agent("a")
    target = Target(state._handle.place()[0], "main")
    target.ops = [("set", key, store._core.ledger(target.scope).splitter.split(1))]
    ticket = Ticket(Change([target], None))
    store._core.committer.submit(ticket)
    return ticket


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_commit_that_is_interrupted_is_settled_for_all(
    stops: tuple[sync.Store, Stops], place: Place, when: str
) -> None:
    store, storage = stops
    state = store.agent("a")
    state.set("k", 0)
    other = waiting(store, "other")
    storage.when = when
    with pytest.raises(KeyboardInterrupt):
        state.set("k", 1)
    assert other.done
    assert other.outcome()[0].sequence == 2
    assert (state.get("other"), state.get("k")) == (1, 1)
    assert state.set("k", 2) == 4
    with place.open() as fresh:
        assert fresh.agent("a").get_many(["k", "other"]) == {"k": 2, "other": 1}
        assert fresh.verify().findings == []


def test_what_was_not_sent_is_left_to_the_others(
    stops: tuple[sync.Store, Stops], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is interrupted while entries are built has written nothing, and takes its own back."""
    store, storage = stops
    state = store.agent("a")
    state.set("k", 0)
    other = waiting(store, "other")

    def stop() -> object:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "turn", stop)
    with pytest.raises(KeyboardInterrupt):
        state.set("k", 1)
    assert not other.done
    store._core.committer.drive(other)
    assert other.outcome()[0].sequence == 2
    assert (state.get("other"), state.get("k")) == (1, 0)


def test_a_group_that_was_overtaken_is_left_to_the_others_too(
    stops: tuple[sync.Store, Stops], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conflict says that nothing of it is there, also while it is being built anew."""
    store, storage = stops
    state = store.agent("a")
    state.set("k", 0)
    other = waiting(store, "other")

    def overtaken(batch: Batch) -> None:
        monkeypatch.setattr(storage, "version", stop)
        raise Conflict("overtaken", [])

    def stop() -> object:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "commit", overtaken)
    with pytest.raises(KeyboardInterrupt):
        state.set("k", 1)
    assert not other.done
    store._core.committer.drive(other)
    assert (state.get("other"), state.get("k")) == (1, 0)


def test_wherever_it_is_interrupted_no_change_of_others_is_lost(store: sync.Store) -> None:
    """At each step of the one who commits: the others' are done, or wait to be committed."""
    committer, state = store._core.committer, store.agent("a")
    state.set("k", 0)
    step = 0
    while True:
        step += 1
        other = waiting(store, "other")
        if not interrupted(Committer._commit_waiting.__code__, step, lambda: state.set("k", 1)):
            break
        assert other.done or other in committer._waiting
        committer.drive(other)
        assert other.outcome()
    assert step > 50
    assert committer.waiting == 0


def interrupted(code: CodeType, step: int, call: Callable[[], object]) -> bool:
    """Whether a call came to a step inside a function: it is interrupted there."""
    left = step

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if not left:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def test_who_cannot_know_is_told_so(
    stops: tuple[sync.Store, Stops], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted behind the commit, before it was noted: then it is there, or it is not."""
    store, _ = stops
    state = store.agent("a")
    state.set("k", 0)
    other = waiting(store, "other")

    def stop(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(store._core.lanes, "committed", stop)
    with pytest.raises(KeyboardInterrupt):
        state.set("k", 1)
    with pytest.raises(OutcomeUnknown, match="look, or give changes an id"):
        other.outcome()
    assert (state.get("other"), state.get("k")) == (1, 1)
    assert store.verify().findings == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OutcomeUnknown])
def test_no_scope_is_stored_without_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Callable[[], BaseException]
) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open()
    store.agent("a").set("k", 1)

    def stop(*_: object) -> None:
        raise error()

    with monkeypatch.context() as patched:
        patched.setattr(store._core.ring, "commit", stop)
        with pytest.raises((KeyboardInterrupt, Unavailable)):
            store.agent("new").set("k", 1)
    assert store.agent("new").get("k") is None
    assert store.agent("new").set("k", 2) == 1
    store = place.reopen()
    assert store.agent("new").get("k") == 2
    assert store.verify().findings == []
    place.close()


class Breaks(holdfast.Gate):
    """A gate that ends, behind the second entry, in what is no `Exception`."""

    def __init__(self, error: Callable[[], BaseException]) -> None:
        self.error = error

    def after(self, change: Any, written: Any) -> None:
        if written[0].sequence == 2:
            raise self.error()


ERRORS = [SystemExit, asyncio.CancelledError, GeneratorExit]


@pytest.mark.parametrize("error", ERRORS)
def test_a_gate_behind_a_change_cannot_fail_it(
    store: sync.Store, error: Callable[[], BaseException]
) -> None:
    store.add_gate(Breaks(error))
    state = store.agent("a")
    assert [state.set("k", n) for n in range(3)] == [1, 2, 3]
    assert list(store._core.gates.errors) == [f"Breaks: {error.__name__}"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("durability", ["full", "normal"])
@pytest.mark.parametrize("error", ERRORS)
def test_a_gate_cannot_end_who_writes_for_all(
    place: Place, error: Callable[[], BaseException], durability: str
) -> None:
    async def run() -> list[int]:
        options = place.options() | {"durability": durability}
        async with asyncio.timeout(60), holdfast.open(place.url, **options) as store:
            store.add_gate(Breaks(error))
            return [await store.agent("a").set("k", n) for n in range(3)]

    assert asyncio.run(run()) == [1, 2, 3]
