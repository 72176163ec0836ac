"""A look at what a loop left: checkpoints that are whole and were made in time."""

from __future__ import annotations

import asyncio

import pytest
from store_kit import Hands, Place, put_row, rows_of

import holdfast
from holdfast import sync
from holdfast.agents import StepResult
from holdfast.errors import InvalidInputError, ScopeNotFoundError


class Worker(sync.agents.Agent):
    """Works for some steps, each of which takes its time."""

    persistent = ("count",)

    def __init__(self, hands: Hands, steps: int, seconds: float) -> None:
        self.count = 0
        self._hands, self._steps, self._seconds = hands, steps, seconds

    def step(self) -> StepResult:
        self.count += 1
        self._hands.move(self._seconds)
        return StepResult(
            f"count {self.count}", progress=self.count, done=self.count == self._steps
        )


@pytest.mark.spec("X56")
def test_all_is_well(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("7")
    sync.agents.run(Worker(hands, 30, 300), state)
    report = sync.agents.check_loop(state)
    assert report.findings == ()
    assert report.agent == "agent:7"
    assert report.checkpoints == {"session_start": 2, "routine": 3, "recovery": 1, "automatic": 1}
    assert report.restorable == state.checkpoints()[0].id
    assert report.components == ("attached", "execution_state")
    text = report.markdown()
    assert "| routine | 3 |" in text
    assert "Nothing was found wrong." in text


@pytest.mark.spec("X56")
def test_what_came_too_late_or_too_early_is_named(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("7")
    state.checkpoint(type="session_start")
    hands.move(3000)
    state.set("k", 1)
    hands.move(1800)
    state.checkpoint(type="routine")
    assert sync.agents.check_loop(state).findings == (), "it came in time for what had changed"
    state.set("k", 2)
    hands.move(3000)
    late = state.checkpoint(type="routine")
    assert sync.agents.check_loop(state).findings == (
        f"{late.id} came 3000 s after the first change that it covers",
    )
    assert sync.agents.check_loop(state, interval=3000, tolerance=2000).findings == ()
    other = timed.agent("8")
    sync.agents.run(Worker(hands, 5, 60), other, routine=60)
    assert "60 s after the one before" in sync.agents.check_loop(other).findings[0]
    assert "60 s after" in sync.agents.check_loop(other).markdown()


def test_changes_that_wait_while_it_runs(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("7")
    state.checkpoint()
    kept = sync.agents.attach(Worker(hands, 3, 1), state)
    kept.start()
    hands.move(3000)
    assert "wait for a checkpoint" in sync.agents.check_loop(state).findings[0]
    kept.stop()
    assert sync.agents.check_loop(state).findings == ()


@pytest.mark.spec("X56", "X57")
def test_a_damaged_checkpoint_is_passed_over_and_named(place: Place) -> None:
    state = place.open().agent("7")
    state.set("plan", "good")
    good = state.checkpoint("good")
    state.set("notes", "x" * 100_000)
    bad = state.checkpoint("bad")
    place.close()
    storage = place.storage()
    key, row = max(rows_of(storage, b"V"), key=lambda pair: len(pair[1]))
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    report = sync.agents.check_loop(place.open().agent("7"))
    assert report.restorable == good.id
    assert f"{bad.id} (manual) cannot be restored" in report.findings[0]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_a_checkpoint_that_cannot_be_read_is_named(
    place: Place, number: int, missing: bool
) -> None:
    """Its own entry, not what it covers."""
    state = place.open().agent("7")
    state.set("k", 1)
    made = [state.checkpoint(name) for name in ("a", "b", "c")]
    for value in range(300):  # until the index is saved: the newest state needs none of these
        state.set("k", value)
    newest = state.checkpoint("newest")
    place.close()
    storage = place.storage()
    key, row = rows_of(storage, b"E")[made[number].sequence - 1]
    put_row(storage, key, None if missing else row[:-1] + bytes([row[-1] ^ 1]))
    storage.close()
    report = sync.agents.check_loop(place.open(read_only=True).agent("7"))
    assert report.findings[0].startswith(f"{made[number].id} cannot be read")
    assert report.restorable == newest.id


def test_there_is_none(store: sync.Store) -> None:
    state = store.agent("7")
    with pytest.raises(ScopeNotFoundError):
        sync.agents.check_loop(state)
    state.set("k", 1)
    report = sync.agents.check_loop(state)
    assert (report.restorable, report.findings[0]) == (
        None,
        "there is no checkpoint that could be restored",
    )
    for wrong in ({"interval": -1}, {"limit": 0}, {"interval": 5, "tolerance": 5}):
        with pytest.raises(InvalidInputError):
            sync.agents.check_loop(state, **wrong)  # type: ignore[arg-type]


def test_the_async_face(plain: Place) -> None:
    async def main() -> None:
        async with holdfast.open(plain.url, **plain.options()) as store:
            await store.agent("7").set("k", 1)
            await store.agent("7").checkpoint()
            assert (await holdfast.agents.check_loop(store.agent("7"))).findings == ()

    asyncio.run(main())
