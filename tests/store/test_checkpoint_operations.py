"""Operations with a way back, as blocks and decorators, inside and beside each other; groups."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.checkpoints import CheckpointRequest
from holdfast.errors import (
    CheckpointNotFoundError,
    CheckpointValidationError,
    InvalidInputError,
    StateIntegrityError,
    Unavailable,
)
from holdfast.storage.wrappers import Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core


class Broken(Exception):
    """What goes wrong in these tests."""


@pytest.fixture
def state(store: sync.Store) -> sync.State:
    state = store.agent("1")
    state.set("plan", 1)
    state.set("list", ["a"])
    return state


@pytest.fixture
def checkpoints(state: sync.State) -> sync.checkpoints.Checkpoints:
    return sync.checkpoints.Checkpoints(state)


START = {"plan": 1, "list": ["a"]}


def all_of(state: sync.State) -> dict[str, Any]:
    return dict(state.items())


def outcomes(state: sync.State) -> list[tuple[Any, Any]]:
    found = [one.metadata for one in state.checkpoints(type="post_operation")]
    return [(one["releases"], one["outcome"]) for one in found]


@pytest.mark.spec("D28")
def test_an_operation_that_ends_well_is_released(
    state: sync.State, checkpoints: sync.checkpoints.Checkpoints
) -> None:
    with checkpoints.operation("deploy", tags=["risky"]) as running:
        assert [one.why for one in checkpoints.held()] == ["operation"]
        state.set("plan", 2)
    assert (running.outcome, running.reverted) == ("completed", None)
    assert running.checkpoint.type == "pre_operation"
    assert running.checkpoint.tags == ("risky",)
    assert state.at(running.checkpoint).get("plan") == 1
    assert all_of(state) == START | {"plan": 2}
    assert checkpoints.held() == []
    assert outcomes(state) == [([running.checkpoint.id], "completed")]


def test_an_operation_that_fails_is_reverted(
    state: sync.State, checkpoints: sync.checkpoints.Checkpoints, store: sync.Store
) -> None:
    with (
        pytest.raises(Broken),
        store.acting("deployer", correlation="run-1"),
        checkpoints.operation("deploy") as running,
    ):
        state.set("plan", 2)
        with store.acting("helper", operation="sub", correlation="run-2"):
            state.append("list", "b")
        with state.change(actor="x") as change:
            change.set("new", 1)
            change.delete("plan")
        raise Broken
    assert all_of(state) == START
    assert running.outcome == "reverted"
    assert running.reverted is not None
    assert running.reverted.done == ["list", "new", "plan"]
    assert checkpoints.held() == []
    assert outcomes(state) == [([running.checkpoint.id], "reverted")]
    assert store.verify().findings == []


def test_what_others_changed_since_is_left_and_named(place: Place) -> None:
    store, other = place.open(), place.open()
    state = store.agent("1")
    state.set("plan", 1)
    state.set("mine", 1)

    def elsewhere() -> None:
        with other.acting("somebody"):
            other.agent("1").set("plan", 3)
            other.agent("1").set("theirs", 3)

    with (
        pytest.raises(Broken) as raised,
        sync.checkpoints.Checkpoints(state).operation("deploy") as running,
    ):
        state.set("plan", 2)
        state.set("mine", 2)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        raise Broken
    assert all_of(state) == {"plan": 3, "mine": 1, "theirs": 3}
    assert running.reverted is not None
    assert [one.key for one in running.reverted.left] == ["plan"]
    [note] = raised.value.__notes__
    assert "agent:1: left alone: plan" in note
    assert "somebody" in note


def test_or_kept_by_choice(state: sync.State, checkpoints: sync.checkpoints.Checkpoints) -> None:
    with pytest.raises(Broken), checkpoints.operation("deploy", on_error="keep") as running:
        state.set("plan", 2)
        raise Broken
    assert (running.outcome, state.get("plan")) == ("kept", 2)
    [found] = checkpoints.held()
    assert found.checkpoint == running.checkpoint
    state.set("later", 1)
    reverted = checkpoints.finish(found.checkpoint, "revert")
    assert reverted is not None
    assert reverted.done == ["plan"]
    assert all_of(state) == START | {"later": 1}
    assert checkpoints.held() == []
    with pytest.raises(CheckpointNotFoundError, match="still needed"):
        checkpoints.finish(found.checkpoint, "keep")


def test_nested_operations(state: sync.State, checkpoints: sync.checkpoints.Checkpoints) -> None:
    with checkpoints.operation("outer"):
        state.set("outer", 1)
        with pytest.raises(Broken), checkpoints.operation("inner"):
            state.set("inner", 1)
            state.set("plan", 2)
            raise Broken
        assert all_of(state) == START | {"outer": 1}
        with checkpoints.operation("second"):
            state.set("second", 1)
    assert all_of(state) == START | {"outer": 1, "second": 1}
    with pytest.raises(Broken), checkpoints.operation("outer"):
        state.set("second", 2)
        with checkpoints.operation("inner"):
            state.set("inner", 1)
        with pytest.raises(Broken), checkpoints.operation("inner"):
            state.set("plan", 3)
            raise Broken
        with pytest.raises(Broken), checkpoints.operation("inner", on_error="keep"):
            state.set("plan", 4)
            raise Broken
        assert len(checkpoints.held()) == 2
        raise Broken
    assert all_of(state) == START | {"outer": 1, "second": 1}, "the inner ones are part of it"
    assert checkpoints.held() == []


def test_operations_beside_each_other(plain: Place) -> None:
    """Each undoes its own, in threads of one store."""
    store = plain.open()
    state = store.agent("1")
    checkpoints = sync.checkpoints.Checkpoints(state)
    barrier = threading.Barrier(4)

    @checkpoints.operation("work")
    def work(number: int) -> None:
        barrier.wait()
        for turn in range(5):
            state.set(f"k{number}", turn)
        barrier.wait()
        if number % 2:
            raise Broken

    def run(number: int) -> None:
        with suppress(Broken):
            work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all_of(state) == {"k0": 4, "k2": 4}
    assert checkpoints.held() == []
    assert store.verify().findings == []


def _set(state: sync.State, value: Any) -> None:
    state.set("plan", value)


def _delete(state: sync.State, value: Any) -> None:
    state.delete("plan")


def _append(state: sync.State, value: Any) -> None:
    state.append("list", value)


@pytest.mark.parametrize("write", [_set, _delete, _append])
@pytest.mark.parametrize(
    ("order", "left"),
    [
        ("A+ Aw A- B+ Bw B-", False),
        ("A+ Aw B+ Bw B- A-", True),
        ("A+ B+ Aw Bw A- B-", True),
        ("A+ B+ Aw Bw A? B-", True),
    ],
)
def test_of_operations_beside_each_other_the_last_to_write_puts_back_what_it_found(
    state: sync.State, order: str, left: bool, write: Callable[[sync.State, Any], None]
) -> None:
    """`+` begins, `w` writes the same key, `-` fails, `?` is found held and undone by another."""
    running: dict[str, Any] = {}
    for name, what in order.split():
        if what == "+":
            kept = "keep" if f"{name}?" in order else "revert"
            block = sync.checkpoints.Checkpoints(state).operation(name, on_error=kept)
            context = copy_context()
            running[name] = context, block, context.run(block.__enter__)
        context, block, about = running[name]
        if what == "w":
            if write is _delete and name == "B":
                context.run(_set, state, name)
            else:
                context.run(write, state, name)
            if name == "A":
                found = all_of(state)
        elif what in "-?":
            context.run(block.__exit__, Broken, Broken(), None)
        if what == "?":
            sync.checkpoints.Checkpoints(state).finish(about.checkpoint, "revert")
    assert all_of(state) == (found if left else START)
    assert sync.checkpoints.Checkpoints(state).held() == []
    if left and "A?" not in order:
        assert [one.key for one in running["A"][2].reverted.left]


@pytest.mark.parametrize("how", ["set", "restore"])
def test_what_somebody_wrote_between_operations_that_fail_stays(
    state: sync.State, how: str
) -> None:
    first, second = (sync.checkpoints.Checkpoints(state).operation(name) for name in "AB")
    here, there = copy_context(), copy_context()
    here.run(first.__enter__)
    here.run(state.set, "plan", "A")
    if how == "set":
        state.set("plan", "ours")
    else:
        state.set("plan", "ours")
        mine = state.checkpoint("mine")
        here.run(state.set, "plan", "A again")
        state.restore(mine)
    there.run(second.__enter__)
    there.run(state.set, "plan", "B")
    here.run(first.__exit__, Broken, Broken(), None)
    there.run(second.__exit__, Broken, Broken(), None)
    assert state.get("plan") == "ours"


def test_as_a_decorator(state: sync.State, checkpoints: sync.checkpoints.Checkpoints) -> None:
    @checkpoints.operation("count")
    def count(to: int, *, fail: bool = False) -> int:
        """Counts."""
        state.set("count", to)
        if to > 1:
            count(to - 1)
        if fail:
            raise Broken
        return to

    assert (count.__name__, count.__doc__) == ("count", "Counts.")
    assert count(3) == 3
    assert state.get("count") == 1
    with pytest.raises(Broken):
        count(5, fail=True)
    assert state.get("count") == 1
    assert checkpoints.held() == []


def test_a_block_is_entered_once(checkpoints: sync.checkpoints.Checkpoints) -> None:
    block = checkpoints.operation("x")
    with block, pytest.raises(InvalidInputError, match="running"), block:
        pass
    with block:
        pass
    for name in ("", "x" * 200, "a > b", 7):
        with pytest.raises(InvalidInputError):
            checkpoints.operation(name)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="on_error"):
        checkpoints.operation("x", on_error="ignore")
    with pytest.raises(InvalidInputError, match="finished by"), checkpoints.operation("x") as it:
        checkpoints.finish(it.checkpoint, "somehow")


def test_what_cannot_be_undone_now_is_undone_later(plain: Place) -> None:
    with plain.open() as store:
        store.agent("1").set("plan", 1)
        faulty = Faulty(plain.storage())
        core = open_core(plain.url, storage=faulty, **plain.options())
        state = sync.Store(StoreHandle(core)).agent("1")
        block = sync.checkpoints.Checkpoints(state).operation("deploy")
        with pytest.raises(Broken) as raised, block as running:
            state.set("plan", 2)
            faulty.plan = (Fault("commit", faulty.calls["commit"] + 1, onward=True),)
            raise Broken
        assert "could not be undone (Unavailable)" in raised.value.__notes__[0]
        assert running.outcome == "failed"
        faulty.plan = ()
        checkpoints = sync.checkpoints.Checkpoints(state)
        [found] = checkpoints.held()
        checkpoints.finish(found.checkpoint, "revert")
        assert state.get("plan") == 1
        faulty.plan = (Fault("commit", faulty.calls["commit"] + 1, onward=True),)
        with pytest.raises(Unavailable), checkpoints.operation("never begun"):
            raise AssertionError("it has no checkpoint")
        core.close()


def test_an_operation_whose_process_was_killed(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    with place.open() as store:
        store.agent("1").set("plan", 1)
    program = textwrap.dedent("""
        import os, signal, sys
        from holdfast import sync
        store = sync.open(sys.argv[1], key=sys.argv[2], signer=sys.argv[3], durability="normal")
        state = store.agent("1")
        with sync.checkpoints.Checkpoints(state).operation("deploy"):
            state.set("plan", 2)
            state.set("half", "done")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    command = [sys.executable, "-c", program, place.url, str(place.key), place.signer]
    assert subprocess.run(command, env=place.environment(), check=False).returncode == -9
    with place.open() as store:
        state = store.agent("1")
        state.set("since", 1)
        checkpoints = sync.checkpoints.Checkpoints(state)
        [found] = checkpoints.held()
        assert (found.why, found.checkpoint.name) == ("operation", "deploy")
        checkpoints.finish(found.checkpoint, "revert")
        assert all_of(state) == {"plan": 1, "since": 1}
        assert checkpoints.held() == []
        assert store.verify().findings == []


def test_async_operations(store_url: str) -> None:
    async def run() -> None:
        async with holdfast.open(store_url) as store:
            state = store.agent("1")
            checkpoints = holdfast.checkpoints.Checkpoints(state)

            @checkpoints.operation("work")
            async def work(number: int) -> int:
                await state.set(f"k{number}", number)
                await asyncio.gather(*(state.set(f"k{number}/{n}", n) for n in range(3)))
                if number % 2:
                    raise Broken
                return number

            done = await asyncio.gather(*(work(n) for n in range(4)), return_exceptions=True)
            assert [type(one) for one in done] == [int, Broken, int, Broken]
            keys = await state.keys()
            assert keys == [f"k{n}{more}" for n in (0, 2) for more in ("", "/0", "/1", "/2")]

            async def endless() -> None:
                async with checkpoints.operation("endless"):
                    await state.set("endless", 1)
                    await asyncio.sleep(60)

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(endless(), 0.3)
            assert not await state.exists("endless"), "a cancelled one is undone"
            task = asyncio.ensure_future(endless())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await checkpoints.held() == []
            with pytest.raises(Broken):
                async with checkpoints.operation("kept", on_error="keep"):
                    await state.set("kept", 1)
                    raise Broken
            [found] = await checkpoints.held()
            await checkpoints.finish(found.checkpoint, "revert")
            assert not await state.exists("kept")

    asyncio.run(run())


# groups


def test_a_group_is_one_moment(place: Place) -> None:
    store = place.open()
    states = [store.agent("a"), store.agent("b"), store.workflow("w")]
    groups = sync.checkpoints.CheckpointGroups(store)
    stop = threading.Event()

    def write() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            with store.change() as change:
                for state in states:
                    change[state].set("turn", turn)

    for state in states:
        state.set("turn", 0)
    writer = threading.Thread(target=write)
    writer.start()
    made = [groups.create(states, "together", tags=["t"]) for _ in range(10)]
    stop.set()
    writer.join()
    for group in made:
        turns = {
            state.at(one).get("turn") for state, one in zip(states, group.checkpoints, strict=True)
        }
        assert len(turns) == 1
    store = place.reopen()
    groups = sync.checkpoints.CheckpointGroups(store)
    states = [store.agent("a"), store.agent("b"), store.workflow("w")]
    wanted = made[3]
    member = states[1].checkpoints(name="together")[6]
    assert groups.of(member) == wanted
    done = groups.restore(wanted, reason="back")
    turn = states[0].at(wanted.checkpoints[0]).get("turn")
    assert [state.get("turn") for state in states] == [turn] * 3
    assert all(one.backup is not None for one in done)
    entry = states[0].log(limit=1)[0]
    assert entry.kinds == ("restore",)
    for scope, timeline, sequence in entry.also:
        other = store.scope(scope).on(timeline).log(since=sequence, until=sequence)[0]
        assert other.kinds == ("restore",), "entries of one change name each other"
    for state, one in zip(states, done, strict=True):
        checkpoints = sync.checkpoints.Checkpoints(state)
        assert [held.checkpoint for held in checkpoints.held()] == [one.backup]
        assert checkpoints.inspect(wanted.checkpoints[0].id if state is states[0] else one.backup)
    assert sync.checkpoints.Checkpoints(states[0]).inspect(wanted.checkpoints[0]).group == wanted.id
    assert store.verify().findings == []


def test_a_group_goes_back_whole_or_not_at_all(place: Place) -> None:
    store = place.open()
    states = [store.agent("a"), store.agent("b")]
    for state in states:
        state.set("k", "x" * 300)
    group = sync.checkpoints.CheckpointGroups(store).create(states, "together")
    for state in states:
        state.set("k", "y" * 300)
    storage = place.storage()
    number = store.agent("b")._handle.history.points.line().ledger.number
    key, row = next(
        (key, row) for key, row in rows_of(storage, b"E") if key[1:7] == number.to_bytes(6, "big")
    )
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    store = place.reopen()
    with pytest.raises(StateIntegrityError):
        sync.checkpoints.CheckpointGroups(store).restore(group)
    assert store.agent("a").get("k") == "y" * 300


def test_what_is_no_group(store: sync.Store) -> None:
    groups = sync.checkpoints.CheckpointGroups(store)
    state = store.agent("a")
    state.set("k", 1)
    for states in ([], [state, state]):
        with pytest.raises(CheckpointValidationError, match="group"):
            groups.create(states, CheckpointRequest("x"))
    with pytest.raises(CheckpointValidationError) as raised:
        groups.create([], type="weekly", priority="x")
    assert len(raised.value.problems) == 3
    with pytest.raises(CheckpointNotFoundError, match="no part of a group"):
        groups.of(state.checkpoint("alone"))


def test_a_group_of_which_a_scope_was_deleted(store: sync.Store) -> None:
    """Said as such, also if the name is in use again: that is another scope."""
    groups = sync.checkpoints.CheckpointGroups(store)
    for name in ("a", "b"):
        store.agent(name).set("k", 1)
    group = groups.create(["agent:a", "agent:b"], "both")
    store.delete("agent:b")
    for _ in range(2):
        with pytest.raises(CheckpointNotFoundError, match="was deleted, or"):
            groups.of(group.checkpoints[0])
        store.agent("b").set("k", 2)
    assert sync.checkpoints.Checkpoints(store.agent("a")).restore(group.checkpoints[0]).success


def test_groups_async(store_url: str) -> None:
    async def run() -> None:
        async with holdfast.open(store_url) as store:
            groups = holdfast.checkpoints.CheckpointGroups(store)
            a = store.agent("a")
            await a.set("k", 1)
            await store.agent("b").set("k", 1)
            group = await groups.create([a, "agent:b"], "both")
            await a.set("k", 2)
            await store.agent("b").set("k", 2)
            assert (await groups.of(group.checkpoints[1])).id == group.id
            await groups.restore(group)
            assert [await a.get("k"), await store.agent("b").get("k")] == [1, 1]

    asyncio.run(run())


def test_what_would_run_behind_its_end_is_not_decorated(place: Place, state: sync.State) -> None:
    """An operation around a function that runs later would protect nothing: refused at once."""

    def plain() -> int:
        return 5

    async def later() -> None: ...

    def numbers() -> Any:
        yield 1

    async def letters() -> Any:
        yield "a"

    class Called:
        async def __call__(self) -> None: ...

    blocking: Any = sync.checkpoints.Checkpoints(state).operation("a")
    for wrong, told in [
        (later, "use what has the same name in holdfast"),
        (Called(), "use what has the same name in holdfast"),
    ]:
        with pytest.raises(InvalidInputError, match=told):
            blocking(wrong)
    for wrong in (numbers, letters):
        with pytest.raises(InvalidInputError, match="runs when it is read"):
            blocking(wrong)
    with pytest.raises(InvalidInputError, match="is a function"):
        blocking(5)
    assert blocking(plain)() == 5

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            other = store.agent("2")
            await other.set("x", 1)
            awaiting: Any = holdfast.checkpoints.Checkpoints(other).operation("b")
            with pytest.raises(
                InvalidInputError, match=r"holdfast\.sync\.checkpoints\.Checkpoints"
            ):
                awaiting(plain)
            for wrong in (numbers, letters):
                with pytest.raises(InvalidInputError, match="runs when it is read"):
                    awaiting(wrong)
            await awaiting(later)()
            await awaiting(Called())()
            assert len(await other.checkpoints(type="pre_operation")) == 2

    asyncio.run(main())
