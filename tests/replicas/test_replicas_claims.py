"""Who writes to a replica, and when: nobody undoes a promotion, or writes where nothing is new."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from backup_kit import fill
from replica_kit import assert_same
from store_kit import Between, Place

from holdfast import sync
from holdfast.errors import (
    DamagedRecordError,
    InvalidInputError,
    ReadOnlyError,
    ReplicaSplitError,
    StoreNotFoundError,
    Unavailable,
)
from holdfast.replicas import compare
from holdfast.replicas import replica_cell as claims
from holdfast.replicas import replica_sync as syncing
from holdfast.replicas.replica_cell import Claim, Mark, cell_of, mark_of
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch, Storage
from holdfast.storage.wrappers import Counting, Fault, Faulty
from holdfast.store.names import rowkinds
from holdfast.store.open import META


class Made:
    """A store in memory, and a replica of it."""

    def __init__(self, folder: Path) -> None:
        self.place = Place("memory", folder, sealed=False)
        self.store = self.place.open()
        self.url = f"memory:copy-{folder}"
        self.copy = open_storage(self.url)
        fill(self.store, 1, 5)

    def sync(self, storage: Any = None, **how: Any) -> Any:
        return syncing.sync(self.store._core, storage or self.copy, **how)

    def mark(self) -> Mark | None:
        return mark_of(self.copy)[1]


@pytest.fixture
def made(tmp_path: Path) -> Any:
    made = Made(tmp_path)
    yield made
    made.place.close()


def promoted(made: Made) -> Callable[[], None]:
    """Promotes the replica and writes to it, as others do meanwhile."""

    def promote() -> None:
        sync.replicas.promote_replica(made.url)
        with sync.open(made.url) as own:
            own.agent("agent-0").set("only here", 1)

    return promote


def assert_stands(made: Made) -> None:
    """What was promoted is still a store of its own, with all that it holds."""
    assert made.mark() is None
    with sync.open(made.url) as own:
        assert own.agent("agent-0").get("only here") == 1
        own.agent("agent-0").set("goes", "on")


def test_a_promotion_behind_the_look_stands(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.sync()
    made.store.agent("agent-0").set("more", 1)
    before, others = Claim._wait, [promoted(made)]

    def wait(self: Claim) -> Any:
        found = before(self)
        if others:
            others.pop()()
        return found

    monkeypatch.setattr(Claim, "_wait", wait)
    with pytest.raises(ReplicaSplitError):
        made.sync()
    assert_stands(made)


def test_a_promotion_before_the_claim_stands(made: Made) -> None:
    made.sync()
    made.store.agent("agent-0").set("more", 1)
    slow = Between(made.copy)
    slow.before = promoted(made)
    with pytest.raises(ReplicaSplitError):
        made.sync(slow)
    assert_stands(made)


def test_a_replica_made_and_promoted_where_nothing_was_stands(made: Made) -> None:
    slow = Between(made.copy)

    def others() -> None:
        made.sync()
        promoted(made)()

    slow.before = others
    with pytest.raises(ReplicaSplitError):
        made.sync(slow)
    assert_stands(made)


def test_a_replica_is_whole_only_once_its_last_commit_is_written(made: Made) -> None:
    counting = Counting(open_storage(f"{made.url}-counted"))
    made.sync(counting)
    last = counting.calls["commit"] - 1  # the one behind it releases the claim
    with pytest.raises(Unavailable):
        made.sync(Faulty(made.copy, Fault("commit", last)))
    mark = made.mark()
    assert mark is not None
    assert not mark.whole
    assert made.copy.get([META]) == [None]
    with pytest.raises(StoreNotFoundError):
        sync.replicas.promote_replica(made.url)
    made.sync()
    assert_same(made.store, made.url)


def test_a_replica_stays_whole_until_making_it_anew_has_begun(made: Made) -> None:
    made.sync()
    with pytest.raises(Unavailable):
        made.sync(Faulty(made.copy, Fault("commit", 2)), remake=True)
    mark = made.mark()
    assert mark is not None
    assert mark.whole
    (status,) = sync.replicas.Replicas(made.store, [made.url]).status()
    assert (status.whole, status.entries, status.error) == (True, 0, None)
    assert_same(made.store, made.url)


def test_who_reads_for_long_shows_that_it_goes_on(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing all rows writes nothing: others would take it for cut short, and take over."""
    now, since, longest = 1000.0, 1000.0, 0.0
    mark, reads = made.mark(), 0

    class Slow(Between):
        def scan(self, *at: Any, **how: Any) -> Any:
            nonlocal now, mark, since, longest, reads
            reads += 1
            if made.mark() != mark:
                mark, since = made.mark(), now
            longest = max(longest, now - since)
            now += claims.STILL * 0.3 * (how["limit"] > 1)
            return made.copy.scan(*at, **how)

    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(claims, "time", clock)
    monkeypatch.setattr(compare, "PAGE", 5)
    fill(made.store, 1, 100)
    made.sync()
    assert made.sync(Slow(made.copy), full=True).rows == 0
    assert reads > 40
    assert 0 < longest < claims.STILL


def test_nothing_is_written_where_nothing_has_changed(made: Made) -> None:
    made.sync()
    counting = Counting(made.copy)
    for _ in range(3):
        assert made.sync(counting).ok
    assert counting.calls["commit"] == 0
    made.store.agent("agent-0").set("more", 1)
    assert made.sync(counting).rows > 0
    counting.reset()
    with made.store.lease("l", wait=0):  # a cell, which the feed does not name
        made.sync(counting)
        assert counting.calls["commit"] > 0
        assert_same(made.store, made.url)
    made.sync()
    made.store.agent("agent-0").cosign("filled", signer=_signer(made.place))
    assert made.sync(counting).rows == 1
    assert_same(made.store, made.url)


def _signer(place: Place) -> str:
    signer = f"file:{place.folder}/co.key"
    with sync.open("memory:", signer=signer):
        return signer


def test_one_that_was_cut_short_is_finished_though_nothing_is_new(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "STILL", 0.0)
    made.sync()
    Claim(made.copy).take(lambda: None)
    assert made.mark().token  # type: ignore[union-attr]
    made.sync()
    assert not made.mark().token  # type: ignore[union-attr]


def test_the_store_itself_is_not_marked(made: Made) -> None:
    """By whatever name it is given, and to be made anew, too."""
    itself = made.place.storage()
    with pytest.raises(InvalidInputError, match="the store itself"):
        made.sync(itself, remake=True)
    assert mark_of(itself) == (None, None)
    assert made.store.verify().findings == []
    made.store.agent("agent-0").set("goes", "on")


def test_a_replica_is_not_its_own_source(made: Made) -> None:
    """It is read as a store, and given as a place to follow it: it stays the replica it was."""
    made.sync()
    for how in ({}, {"full": True}, {"remake": made.url}):
        with sync.open(made.url, read_only=True) as looked:
            (one,) = sync.replicas.Replicas(looked, [made.url]).sync(**how).replicas  # type: ignore[arg-type]
            assert "the store itself" in str(one.error)
        with pytest.raises(ReadOnlyError):
            sync.open(made.url)
    made.sync()
    assert_same(made.store, made.url)


def test_a_store_that_was_to_be_made_anew_and_still_is_one_can_be_promoted(made: Made) -> None:
    made.sync()
    promoted(made)()
    Claim(made.copy).take(lambda: None)  # and then its process was killed
    sync.replicas.promote_replica(made.url)
    assert_stands(made)
    _put_mark(made.copy, whole=False)
    sync.replicas.promote_replica(made.url)
    assert_stands(made)


def _put_mark(storage: Storage, *, whole: bool) -> None:
    _put_cell(storage, claims._encode(Mark(1, whole, b"\1" * 16, 1)))


def _put_cell(storage: Storage, cell: bytes) -> None:
    storage.commit(Batch(cells=[(rowkinds.FOLLOWS, cell_of(storage), cell)]))


def test_one_whose_mark_is_damaged_can_be_made_anew_and_promoted(made: Made) -> None:
    made.sync()
    _put_cell(made.copy, b"rubbish")
    with pytest.raises(DamagedRecordError, match="make it anew"):
        made.sync()
    (status,) = sync.replicas.Replicas(made.store, [made.url]).status()
    assert "make it anew" in str(status)
    assert made.sync(remake=True).made
    assert_same(made.store, made.url)
    _put_cell(made.copy, b"rubbish")
    promoted(made)()
    assert_stands(made)


def test_one_that_was_to_be_made_anew_is_not_lost_when_that_is_cut_short(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are still there: whoever only syncs it is told that it holds other ones."""
    monkeypatch.setattr(claims, "STILL", 0.0)
    made.sync()
    promoted(made)()
    with pytest.raises(Unavailable):
        made.sync(Faulty(made.copy, Fault("commit", 2, onward=True)), remake=True)
    with pytest.raises(ReplicaSplitError):
        made.sync()
    sync.replicas.promote_replica(made.url)
    assert_stands(made)
