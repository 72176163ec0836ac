"""Many forks at one moment: one commit, numbers without gaps, names that are taken once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, rows_of

import holdfast
from holdfast.errors import Conflict, LeaseLostError, ScopeNotFoundError
from holdfast.storage.wrappers import Counting

LONG = [{"n": n, "text": "x" * 50} for n in range(500)]


def numbers(place: Place) -> list[int]:
    """Numbers of all timelines; there is one scope."""
    return [int.from_bytes(key[7:9], "big") for key, _ in rows_of(place.storage(), b"T")]


@pytest.mark.parametrize("commit", ["thread", "inline"])
def test_a_thousand_forks_at_one_moment(plain: Place, commit: str) -> None:
    async def main() -> None:
        counting = Counting(plain.storage())
        options = plain.options(storage=counting, commit=commit)
        async with holdfast.open(plain.url, **options) as store:
            state = store.agent("1")
            await state.set("list", LONG)
            counting.reset()
            made = await asyncio.gather(*(state.fork(f"trial {n}") for n in range(1000)))
            # As many share a commit as are ready while the one before is written.
            assert counting.calls["commit"] < 100
            assert counting.calls["scan"] + counting.calls["get"] < 500  # for all, not for each
            assert counting.bytes_written < 1000 * 600 + 60_000  # the tree is saved once
            await asyncio.gather(*(one.append("list", n) for n, one in enumerate(made)))
            assert [(await one.tail("list", 1))[0] for one in made] == list(range(1000))
            assert await state.length("list") == 500

    asyncio.run(main())
    assert numbers(plain) == list(range(1001))
    again = plain.open()
    assert again.agent("1").on("trial 77").tail("list", 1) == [77]
    assert {line.name for line in again.agent("1").timelines()} == {
        "main",
        *(f"trial {n}" for n in range(1000)),
    }


def test_of_forks_at_one_moment_some_are_cancelled(plain: Place) -> None:
    """Those are made or not; the others are, and each has its own cause."""

    async def main() -> set[str]:
        async with holdfast.open(plain.url, **plain.options(commit="thread")) as store:
            state = store.agent("1")
            await state.set("k", 1)

            async def fork(n: int) -> None:
                with store.acting(f"actor {n}"):
                    await state.fork(f"f{n}")

            tasks = [asyncio.create_task(fork(n)) for n in range(60)]
            for turns, some in enumerate((tasks[:20:2], tasks[20:40:2])):
                for _ in range(turns + 1):
                    await asyncio.sleep(0)
                for task in some:
                    task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            stopped = {n for n, one in enumerate(done) if one is not None}
            assert all(isinstance(done[n], asyncio.CancelledError) for n in stopped)
            assert stopped <= set(range(0, 40, 2))
            made = {info.name for info in await state.timelines()} - {"main"}
            assert made >= {f"f{n}" for n in range(60) if n not in stopped}
            for name in made:
                entry = (await state.on(name).log(limit=1))[0]
                assert entry.cause.actor == f"actor {name[1:]}"
            return made

    made = asyncio.run(main())
    assert numbers(plain) == list(range(len(made) + 1))
    assert plain.open().verify().findings == []


def test_of_forks_at_one_moment_one_fails(plain: Place) -> None:
    """What is wrong with one of them is told to that one alone."""

    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            state = store.agent("1")
            await state.set("k", 1)
            done = await asyncio.gather(
                *(state.fork(f"f{n}", at=n) for n in (1, 99, 1)), return_exceptions=True
            )
            wrong = [type(one) for one in done if isinstance(one, BaseException)]
            assert sorted(kind.__name__ for kind in wrong) == ["Conflict", "PointNotFoundError"]
            assert [line.name for line in await state.timelines()] == ["main", "f1"]

    asyncio.run(main())


def test_threads_and_handles_fork_one_scope(place: Place) -> None:
    handles = [place.open(), place.open()]
    handles[0].agent("1").set("list", LONG)
    failed: list[BaseException] = []

    def work(mine: int) -> None:
        try:
            state = handles[mine % 2].agent("1")
            for n in range(12):
                state.fork(f"{mine}/{n}").set("mine", [mine, n])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert numbers(place) == list(range(73))
    store = place.reopen()
    for mine in range(6):
        for n in range(12):
            assert store.agent("1").on(f"{mine}/{n}").get("mine") == [mine, n]
    assert store.verify().findings == []


def test_a_name_is_given_once(place: Place) -> None:
    """To one of many that want it at one moment, in this handle and in another."""

    async def main() -> None:
        async with (
            holdfast.open(place.url, **place.options(commit="thread")) as one,
            holdfast.open(place.url, **place.options(commit="thread")) as two,
        ):
            await one.agent("1").set("k", 1)
            wanted = [store.agent("1").fork(f"n{n % 7}") for n in range(30) for store in (one, two)]
            done: list[Any] = await asyncio.gather(*wanted, return_exceptions=True)
            made = [one.timeline for one in done if not isinstance(one, BaseException)]
            assert sorted(made) == [f"n{n}" for n in range(7)]
            errors = [one for one in done if isinstance(one, BaseException)]
            assert all(type(error) is Conflict and "already" in str(error) for error in errors)

    asyncio.run(main())
    assert numbers(place) == list(range(8))
    assert place.open().verify().findings == []


def test_forks_that_fail_leave_no_gap(plain: Place) -> None:
    """Some of a group fail: their names are taken, their lease is lost. The others are made."""

    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options(commit="thread")) as store:
            state = store.agent("1")
            await state.set("k", 1)
            begin = asyncio.Event()

            async def under() -> None:
                async with store.lease("job", duration=60):
                    taken.set()
                    await begin.wait()
                    await asyncio.gather(*(state.fork(f"under {n}") for n in range(5)))

            async def free(n: int) -> None:
                await begin.wait()
                await state.fork(f"free {n // 2}")

            taken = asyncio.Event()
            tasks = [
                asyncio.create_task(under()),
                *(asyncio.create_task(free(n)) for n in range(20)),
            ]
            await taken.wait()
            await store.break_lease("job")
            begin.set()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert type(done[0]) is LeaseLostError
            assert sum(type(one) is Conflict for one in done) == 10
            names = [line.name for line in await state.timelines()]
            assert sorted(names) == sorted(["main", *(f"free {n}" for n in range(10))])

    asyncio.run(main())
    assert numbers(plain) == list(range(11))
    assert plain.open().verify().findings == []


def test_a_scope_deleted_meanwhile_is_forked_no_more(plain: Place) -> None:
    store, other = plain.open(), plain.open()
    for number in range(20):
        state = store.agent("1")
        state.set("k", number)
        begun = threading.Barrier(2)

        def delete(begun: threading.Barrier = begun) -> None:
            begun.wait()
            while True:
                try:
                    other.delete("agent:1")
                    return
                except Conflict:
                    continue

        thread = threading.Thread(target=delete)
        thread.start()
        begun.wait()
        try:
            for n in range(30):
                state.fork(f"f{n}")
        except ScopeNotFoundError:
            pass  # it was deleted before all were made
        thread.join()
        assert [str(info.scope) for info in store.scopes().items] == []
    assert store.verify().findings == []


@pytest.mark.parametrize("deleted_first", [True, False])
def test_a_fork_and_the_end_of_its_scope_in_one_group(place: Place, deleted_first: bool) -> None:
    """No timeline is left alive: what comes second sees what the first has done."""
    store = place.open()
    core, state = store._core, store.agent("1")
    state.set("k", 1)
    plans = [store._handle.plan_delete("agent:1", None), state._handle.plan_fork("late", None)]
    tickets = [core.submit(change) for change, _ in plans[:: 1 if deleted_first else -1]]
    core.committer.drain()
    assert tickets[0].outcome()
    with pytest.raises((Conflict, ScopeNotFoundError)):
        tickets[1].outcome()
    core.forget(core.ledger(state.scope))
    left = [str(info.scope) for info in store.scopes().items]
    assert left == ([] if deleted_first else ["agent:1"])
    if not deleted_first:
        assert state.on("late").get("k") == 1
        store.delete("agent:1")
    assert place.open().verify().findings == []


def test_a_scope_erased_meanwhile_is_forked_no_more(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store, other = place.open(), place.open()
    state = store.agent("1")
    state.set("k", 1)
    state.fork("early")
    plans = [state._handle.plan_fork(f"late {n}", None) for n in range(3)]
    other.erase("agent:1")
    tickets = [store._core.submit(change) for change, _ in plans]
    store._core.committer.drain()
    for ticket in tickets:
        with pytest.raises(ScopeNotFoundError, match="was erased"):
            ticket.outcome()
    assert state.get("k") is None
    assert store.verify().findings == []
    place.close()
