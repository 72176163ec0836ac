"""What an open store counts and times of itself: saves, commits, refusals."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from bisect import bisect_right
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import Place

import holdfast
from holdfast import sync
from holdfast.errors import Conflict, GateRefusedError, InvalidInputError, Unavailable
from holdfast.storage.contract import Batch
from holdfast.storage.wrappers import Counting, Fault, Faulty
from holdfast.store.history.handle import StoreHandle
from holdfast.store.names.meter import (
    BOUNDS,
    MEASURES,
    MOST,
    OTHER,
    RECOVERIES,
    SAVES,
    Meter,
)
from holdfast.store.open import open_core


class Slow(Counting):
    """A storage whose commits take a while."""

    def commit(self, batch: Batch) -> None:
        time.sleep(0.02)
        super().commit(batch)


def opened(place: Place, storage: Any) -> sync.Store:
    return sync.Store(StoreHandle(open_core(place.url, storage=storage, **place.options())))


@pytest.mark.spec("M79", "M94", "M122")
def test_saves_and_commits_are_counted_and_timed(place: Place) -> None:
    place.open().agent("7").set("made", True)
    with opened(place, Slow(place.storage())) as store:
        state = store.agent("7")
        for n in range(3):
            state.set("n", n)
        with pytest.raises(Conflict):
            state.set("n", 9, if_version=1)
        found = store.metrics()
    assert found.by("saves", "outcome") == {"saved": 3}
    assert found.share("saves", outcome="saved") == 1.0  # a conflict is for who asked to decide
    saves, commits = found.latency("saves", outcome="saved"), found.latency("commits")
    assert commits.count == saves.count == 3
    assert 0.02 <= commits.mean <= saves.mean
    assert saves.seconds >= commits.seconds >= 0.06
    assert saves.quantile(1.0) >= 0.02
    assert saves.quantile(0.0) <= saves.quantile(0.5) <= saves.quantile(0.99)


@pytest.mark.spec("M79")
def test_a_commit_that_fails_counts_as_a_save_that_failed(place: Place) -> None:
    place.open().agent("7").set("made", True)
    faulty = Faulty(place.storage())
    with opened(place, faulty) as store:
        state = store.agent("7")
        state.set("n", 1)
        faulty.plan = (Fault("commit", faulty.calls["commit"] + 1),)
        with pytest.raises(Unavailable):
            state.set("n", 2)
        found = store.metrics()
    assert found.by("saves", "outcome") == {"saved": 1, "Unavailable": 1}
    assert found.count("commits") == 1


def test_changes_that_share_a_commit_are_each_a_save(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options(commit="inline")) as store:
            state = store.agent("7")
            await state.set("made", True)
            before = store.metrics()
            await asyncio.gather(*(state.set(f"k{n}", n) for n in range(20)))
            found = store.metrics().since(before)
            assert found.count("saves", outcome="saved") == 20
            assert 1 <= found.count("commits") < 20
            assert 0 < found.seconds <= store.metrics().seconds

    asyncio.run(main())


@pytest.mark.spec("M81")
def test_what_a_gate_refuses_is_a_validation_failure(store: sync.Store) -> None:
    class Even(holdfast.Gate):
        def before(self, request: holdfast.GateRequest) -> None:
            if any(one.value % 2 for one in request.operations):
                raise GateRefusedError("only even numbers")

    store.add_gate(Even())
    store.agent("7").set("n", 2)
    for _ in range(2):
        with pytest.raises(GateRefusedError):
            store.agent("7").set("n", 1)
    assert store.metrics().by("validation_failures", "what") == {"gate": 2}
    assert store.metrics().count("saves") == 1


def test_one_store_does_not_count_for_another(place: Place) -> None:
    one, other = place.open(), place.open()
    one.agent("7").set("n", 1)
    assert (one.metrics().count("saves"), other.metrics().count("saves")) == (1, 0)


def test_figures_are_those_that_are_known(place: Place) -> None:
    with opened(place, Slow(place.storage())) as store:
        quiet = store.metrics()
        store.agent("7").set("n", 1)
        found = store.metrics()
    assert not any("_p99" in name or "_failed" in name for name in quiet.figures())
    figures = found.figures()
    assert (figures["saves"], figures["saves_failed"]) == (1, 0)
    assert figures["saves_p99"] > 0.01
    assert found.since(found).figures()["saves"] == 0


def test_slips_are_refused_with_the_names_that_there_are(store: sync.Store) -> None:
    found = store.metrics()
    with pytest.raises(InvalidInputError, match="there are saves, commits"):
        found.count("save")
    with pytest.raises(InvalidInputError, match="saves has no label 'outcom'; it has outcome"):
        found.share("saves", outcom="saved")
    with pytest.raises(InvalidInputError, match="commits has no label 'outcome'; it has none"):
        found.by("commits", "outcome")
    wrong: Any
    for wrong in (-0.1, 1.1, "0.5", True, None):
        with pytest.raises(InvalidInputError):
            found.latency("saves").quantile(wrong)
    for wrong in (None, {}, store.metrics()):
        with pytest.raises(InvalidInputError, match="earlier snapshot"):
            found.since(wrong)


def test_a_snapshot_is_plain_data_that_stays_as_it_was(store: sync.Store) -> None:
    store.agent("7").set("secret", "hunter2")
    found = store.metrics()
    text = json.dumps(found.data())
    assert "hunter2" not in text
    assert "secret" not in text
    store.agent("7").set("n", 2)
    assert json.dumps(found.data()) == text
    data = found.data()
    [saves] = [one for one in data["series"] if one["name"] == "saves"]
    assert (saves["labels"], saves["count"], sum(saves["buckets"])) == ({"outcome": "saved"}, 1, 1)
    assert len(saves["buckets"]) == len(data["bounds"]) + 1
    assert data["figures"] == found.figures()
    assert "saves: 1" in str(found)


def test_memory_is_bounded_and_nothing_is_left_uncounted() -> None:
    meter = Meter()
    for n in range(MOST + 50):
        meter.add(RECOVERIES, (f"kind {n}", "succeeded"))
    found = meter.read()
    assert len(found.by("recoveries", "failure")) == MOST + 1
    assert found.count("recoveries", failure=OTHER) == 50
    assert found.count("recoveries") == MOST + 50


def test_beyond_the_bound_what_ended_well_is_still_no_failure() -> None:
    meter = Meter()
    for n in range(MOST + 50):
        meter.add(RECOVERIES, (f"kind {n}", "failed" if n % 10 == 0 else "succeeded"))
        meter.add(SAVES, (f"Error{n}",))
    meter.add(SAVES, ("saved",))
    found = meter.read()
    every = MOST + 50
    assert found.by("recoveries", "outcome") == {"failed": every / 10, "succeeded": every * 0.9}
    assert found.by("recoveries", "outcome", failure=OTHER) == {"failed": 5, "succeeded": 45}
    assert found.figures()["recoveries_failed"] == pytest.approx(0.1)
    assert (found.count("saves", outcome=OTHER), found.count("saves", outcome="saved")) == (50, 1)
    assert len(found.by("saves", "outcome")) == MOST + 2, "kinds of errors have their bound"


def test_what_did_not_happen_since_is_not_named() -> None:
    meter = Meter()
    meter.add(RECOVERIES, ("a", "failed"))
    before = meter.read()
    meter.add(RECOVERIES, ("b", "succeeded"))
    found = meter.read().since(before)
    assert found.by("recoveries", "outcome") == {"succeeded": 1}
    assert [one["labels"]["failure"] for one in found.data()["series"]] == ["b"]


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_conflict_that_no_caller_is_told_of_is_no_failed_save(place: Place, face: str) -> None:
    """What is made again by itself counts once, by how it ended."""
    other = place.open().agent("7")
    other.set("n", 0)

    def once(seen: list[int]) -> Any:
        def add(n: int) -> int:
            if not seen:
                seen.append(n)
                other.set("n", 10)
            return n + 1

        return add

    def always(n: int) -> int:
        other.set("n", n + 1)
        return n

    if face == "sync":
        with place.open() as store:
            assert store.agent("7").update("n", once([])) == 11
            assert store.metrics().by("saves", "outcome") == {"saved": 1}
            with pytest.raises(Conflict):
                store.agent("7").update("n", always)
            assert store.metrics().by("saves", "outcome") == {"saved": 1}
        return

    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            assert await store.agent("7").update("n", once([])) == 11
            assert store.metrics().by("saves", "outcome") == {"saved": 1}
            with pytest.raises(Conflict):
                await store.agent("7").update("n", always)
            assert store.metrics().by("saves", "outcome") == {"saved": 1}

    asyncio.run(main())


def test_threads_lose_no_count() -> None:
    meter = Meter()

    def work() -> None:
        for _ in range(2000):
            meter.add(SAVES, ("saved",), 0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = meter.read().latency("saves")
    assert (taken.count, round(taken.seconds, 6)) == (8000, 8.0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from(["succeeded", "failed"]),
            st.none() | st.floats(0, 1000),
        ),
        max_size=40,
    ),
    st.integers(0, 40),
)
def test_it_counts_as_a_plain_list_would(happened: list[tuple[Any, ...]], cut: int) -> None:
    meter = Meter()
    for kind, outcome, seconds in happened[:cut]:
        meter.add(RECOVERIES, (kind, outcome), seconds)
    before = meter.read()
    for kind, outcome, seconds in happened[cut:]:
        meter.add(RECOVERIES, (kind, outcome), seconds)
    for found, model in ((meter.read(), happened), (meter.read().since(before), happened[cut:])):
        assert found.count("recoveries") == len(model)
        assert found.by("recoveries", "failure") == Counter(kind for kind, _, _ in model)
        good = [one for one in model if one[1] == "succeeded"]
        wanted = len(good) / len(model) if model else None
        assert found.share("recoveries", outcome="succeeded") == wanted
        timed = sorted(seconds for _, _, seconds in model if seconds is not None)
        taken = found.latency("recoveries")
        assert taken.count == len(timed)
        assert taken.seconds == pytest.approx(sum(timed))
        assert taken.buckets == tuple(
            sum(1 for one in timed if bisect_right(BOUNDS, one) == place)
            for place in range(len(BOUNDS) + 1)
        )
        for share in (0.5, 0.99):
            if timed and timed[-1] < BOUNDS[-1]:
                exact = timed[max(0, -int(-share * len(timed) // 1) - 1)]
                low = max([0.0, *(one for one in BOUNDS if one <= exact)])
                high = min(one for one in BOUNDS if one > exact)
                assert low <= taken.quantile(share) <= high


def test_every_measure_says_what_it_is() -> None:
    for name, measure in MEASURES.items():
        assert measure.name == name
        assert measure.text
        assert bool(measure.good) == ("outcome" in measure.labels)
