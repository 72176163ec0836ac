"""Verifying with a second process that reads nodes: it finds what one process finds."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import Report, sync
from holdfast.errors import InvalidInputError
from holdfast.store.proof.verify_nodes import Read
from holdfast.store.proof.verify_process import ReadBeside, _processors

pytestmark = pytest.mark.skipif(_processors() < 2, reason="a second processor is needed")


@pytest.fixture(scope="module", params=["plain", "sealed"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    place = Place("sqlite", tmp_path_factory.mktemp("beside"), sealed=request.param == "sealed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.store.journal.timeline.DELTA_EVERY", 10)
        state = place.open().agent("a")
        for number in range(120):
            state.set(f"k{number % 90}", {"n": number, "text": "x" * number})
        state.set("long", [{"n": n, "text": f"{n} " * 30} for n in range(200)])
        fork = state.fork("trial")
        for number in range(30):
            fork.append("long", {"n": number})
        with state.open_write("file") as file:
            file.write(os.urandom(300_000))
        state.restore(state.checkpoint("safe"))
        pruned = place.open().agent("pruned")
        for number in range(120):
            pruned.set(f"k{number % 50}", number)
            if number in (40, 80):
                kept = pruned.checkpoint(f"c{number}")
        pruned.prune(kept)
    place.close()
    yield place
    place.close()


SIGNALLED = "import os, signal; os.kill(os.getpid(), signal.{})"
"""A process that gets a signal before it can answer, however late this one is."""


class Seen(list[Read | None]):
    """What the second process gave back, each time that it was started."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Every scope counts as large, and what the second process gives is seen."""
    found = Seen()

    def result(self: ReadBeside, real: Any = ReadBeside.result) -> Read | None:
        found.append(real(self))
        return found[-1]

    monkeypatch.setattr("holdfast.store.proof.verify.LARGE", 1)
    monkeypatch.setattr("holdfast.store.proof.verify_process.PATIENCE", 60.0)
    monkeypatch.setattr(ReadBeside, "result", result)
    return found


def told(report: Report) -> Any:
    """What a report says, whatever the order in which it was found."""
    counted = (report.entries, report.values, report.saves, report.timelines)
    return counted, sorted((one.kind, one.place, one.message) for one in report.findings)


def test_it_says_the_same(made: Place, seen: Seen) -> None:
    store = made.open()
    report = store.verify(parallel=True)
    assert report.ok
    assert told(report) == told(store.verify())
    assert len(seen) == 2  # scopes
    assert all(one is not None for one in seen)
    assert seen[0] is not None
    assert len(seen[0].hashes) > 10  # it did the reading


@pytest.mark.parametrize("how", ["changed", "removed", "swapped", "added"])
def test_it_finds_the_same(made: Place, seen: Seen, how: str) -> None:
    storage, store = made.storage(), made.open()
    found = rows_of(storage, b"N")
    (key, row), (other, data) = found[len(found) // 3], found[len(found) // 2]
    extra = key[:13] + bytes([key[13] ^ 3]) + key[14:]
    assert not storage.get([extra])[0]
    bad = {
        "changed": {key: row[:-1] + bytes([row[-1] ^ 1])},
        "removed": {key: None},
        "swapped": {key: data, other: row},
        "added": {extra: row},
    }[how]
    for at, new in bad.items():
        put_row(storage, at, new)
    try:
        report = store.verify(parallel=True)
        assert not report.ok
        assert told(report) == told(store.verify())
        assert len(seen) == 2
    finally:
        for at in bad:
            put_row(storage, at, dict(found).get(at))
    assert store.verify().ok


def test_a_second_process_that_dies(
    made: Place, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.proof.verify_process._PROGRAM", SIGNALLED.format("SIGKILL"))
    store = made.open()
    assert told(store.verify(parallel=True)) == told(store.verify())
    assert seen == [None, None]


def test_a_second_process_that_is_not_heard(
    made: Place, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.proof.verify_process._PROGRAM", SIGNALLED.format("SIGSTOP"))
    monkeypatch.setattr("holdfast.store.proof.verify_process.PATIENCE", 0.1)
    assert made.open().verify(parallel=True).ok
    assert seen == [None, None]


def test_a_second_process_that_says_something_else(
    made: Place, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.proof.verify_process._PROGRAM", "print('hello')")
    assert made.open().verify(parallel=True).ok
    assert seen == [None, None]


@pytest.mark.parametrize("gone", ["missing", "file"])
def test_an_interpreter_that_is_gone(
    made: Place, seen: Seen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gone: str
) -> None:
    name = tmp_path / "python3"
    if gone == "file":
        name.write_text("no program")
    monkeypatch.setattr(sys, "executable", str(name))
    assert made.open().verify(parallel=True).ok
    assert seen == []


def test_a_program_that_cannot_be_started_twice(
    made: Place, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/sbin/server-with-python-inside")
    assert made.open().verify(parallel=True).ok
    assert seen == []


def test_small_scopes_and_budgets_go_without(made: Place, seen: Seen, tmp_path: Path) -> None:
    store = made.open()
    assert store.verify(parallel=True, budget=60).ok
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.store.proof.verify.LARGE", 1_000_000)
        assert store.verify(parallel=True).ok
    with sync.open(f"memory:{tmp_path}") as memory:
        memory.agent("a").set("k", 1)
        assert memory.verify(parallel=True).ok
    assert seen == []
    with pytest.raises(InvalidInputError, match="parallel is True or False"):
        store.verify(parallel=2)  # type: ignore[arg-type]


def test_cancelled_it_leaves_no_process(
    made: Place, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[ReadBeside] = []
    tasks: list[asyncio.Task[Report]] = []
    begin = ReadBeside.__init__

    def noted(self: ReadBeside, *arguments: Any) -> None:
        begin(self, *arguments)
        started.append(self)
        tasks[0].get_loop().call_soon_threadsafe(tasks[0].cancel)

    monkeypatch.setattr(ReadBeside, "__init__", noted)
    monkeypatch.setattr("holdfast.store.proof.verify_line.PAGE", 5)

    async def run() -> None:
        async with holdfast.open(made.url, **made.options()) as store:
            tasks.append(asyncio.create_task(store.verify(parallel=True)))
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]

    asyncio.run(run())
    assert started[0]._process.returncode is not None
