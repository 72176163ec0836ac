"""Any history, synced at any moment and cut short anywhere: the replica is the store, row for row.

What a store can do to its rows is done in any order: entries, forks, restores, merges, long values,
ids, correlations, pruning, erasing, new data keys, rows sealed again, leases, schedules, subjects.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from replica_kit import assert_same, findings
from store_kit import Place

from holdfast import sync
from holdfast.errors import HoldfastError, MissingError, OutcomeUnknown, Unavailable
from holdfast.replicas import commits
from holdfast.replicas import replica_cell as claims
from holdfast.replicas import replica_sync as syncing
from holdfast.storage import open_storage
from holdfast.storage.wrappers import MODES, Fault, Faulty

NAMES = ("one", "two", "three")


class History:
    """Does things to a store, by chance."""

    def __init__(self, place: Place, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = place.open()
        self.other = place.open()
        """Another process: its commits go to another lane."""
        self.signer = place.folder / "co.key"
        with sync.open("memory:", signer=f"file:{self.signer}"):
            pass
        self.done: Counter[str] = Counter()
        self.acts: list[Callable[[], Any]] = [
            *[self.write] * 6, self.long, self.both, self.fork, self.restore, self.merge,
            self.checkpoint, self.checkpoint, self.prune, self.prune, self.erase, self.delete,
            self.cosign, self.lease, self.schedule,
        ]  # fmt: skip
        if place.sealed:
            self.acts += [self.rotate, self.reseal, self.subject]

    def act(self) -> None:
        """Do one thing; what is not allowed just now is left."""
        act = self.chance.choice(self.acts)
        with suppress(HoldfastError, IndexError):  # of an agent without a checkpoint, too
            act()
            self.done[act.__name__] += 1

    def state(self) -> sync.State:
        store = self.chance.choice((self.store, self.other))
        state = store.agent(self.chance.choice(NAMES))
        timelines = [one.name for one in state.timelines()]
        return state.on(self.chance.choice([*timelines, "main"]))

    def write(self) -> None:
        number = self.chance.randrange(1000)
        with self.state().change(
            id=f"c{number}" if number % 5 == 0 else None, correlation=f"run-{number % 4}"
        ) as change:
            for _ in range(self.chance.randrange(1, 4)):
                change.set(f"k{self.chance.randrange(9)}", "v" * self.chance.choice((3, 300, 3000)))
            change.append("log", number)

    def long(self) -> None:
        self.state().set("long", self.chance.randbytes(60_000))
        with self.state().open_write("file") as stream:
            stream.write(self.chance.randbytes(200_000))

    def both(self) -> None:
        with self.store.change() as change:
            for name in NAMES[:2]:
                change[self.store.agent(name)].set("both", self.chance.random())

    def fork(self) -> None:
        state = self.state()
        state.fork(f"f{self.chance.randrange(3)}").set("forked", 1)

    def restore(self) -> None:
        state = self.state()
        state.restore(self.chance.choice(state.checkpoints()).id)

    def merge(self) -> None:
        state = self.store.agent(self.chance.choice(NAMES))
        state.merge(f"f{self.chance.randrange(3)}", strategy="theirs")

    def checkpoint(self) -> None:
        name = f"c{self.chance.randrange(99)}"
        known = self.store.agent(NAMES[0]).checkpoints()
        rests = [self.chance.choice(known).id] if known and "1" in name else []
        sync.checkpoints.Checkpoints(self.state()).create(name, depends_on=rests)

    def prune(self) -> None:
        state = self.state()
        last = state.log(limit=1)[0].sequence
        needed = [one.checkpoint for one in sync.checkpoints.Checkpoints(state).held()]
        keep = [*state.checkpoints()[:2], *needed] if self.chance.random() < 0.5 else None
        state.prune(max(1, last - self.chance.randrange(1, 20)), keep=keep)

    def erase(self) -> None:
        self.store.erase(f"agent:{NAMES[2]}")

    def delete(self) -> None:
        self.store.delete(f"agent:{NAMES[1]}")

    def cosign(self) -> None:
        state = self.state()
        state.cosign(self.chance.choice(state.checkpoints()).id, signer=f"file:{self.signer}")

    def lease(self) -> None:
        with self.store.lease(f"l{self.chance.randrange(3)}", wait=0):
            self.write()

    def schedule(self) -> None:
        name = f"s{self.chance.randrange(3)}"
        sync.checkpoints.Scheduler(self.store).every(3600, self.store.agent("one"), name=name)

    def rotate(self) -> None:
        self.store.rotate(f"agent:{self.chance.choice(NAMES)}")

    def reseal(self) -> None:
        self.store.reseal(f"agent:{self.chance.choice(NAMES)}")

    def subject(self) -> None:
        if self.chance.random() < 0.5:
            self.store.erase_subject("eve")
        else:
            self.state().set("person", "secret", subject="eve")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits to a replica are small, so that there are many places to be cut short at."""
    for module in (claims, commits):
        monkeypatch.setattr(module, "SIZE", 4000)
    monkeypatch.setattr(claims, "ROWS", 20)
    monkeypatch.setattr(claims, "STILL", 0.05)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_any_history_synced_at_any_moment(tmp_path: Path, seed: int, sealed: bool) -> None:
    place = Place("memory", tmp_path, sealed=sealed)
    history = History(place, seed)
    url = f"sqlite:{tmp_path}/copy.db"
    replicas = sync.replicas.Replicas(history.store, [url])
    for _ in range(10):
        for _ in range(history.chance.randrange(1, 25)):
            history.act()
        (one,) = replicas.sync().replicas
        assert (one.error, one.findings) == (None, ())
        assert_same(history.store, url)
    (one,) = replicas.sync(full=True).replicas
    assert (one.rows, one.removed, one.findings) == (0, 0, ())
    place.close()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("sealed", [False, True])
def test_cut_short_anywhere_it_verifies_and_the_next_sync_goes_on(
    tmp_path: Path, sealed: bool
) -> None:
    place = Place("memory", tmp_path, sealed=sealed)
    history = History(place, 7)
    if sealed:  # the ring is shared: of what it has lost, a replica that is cut short knows later
        gone = {"erase", "rotate", "reseal", "subject"}
        history.acts = [act for act in history.acts if act.__name__ not in gone]
    url = f"memory:cut-{tmp_path}"
    good = open_storage(url)
    syncing.sync(history.store._core, good)
    cuts = 0
    for number in range(45):
        for _ in range(history.chance.randrange(1, 12)):
            history.act()
        mode, nth = history.chance.choice(MODES), history.chance.randrange(1, 120)
        broken = Faulty(good, Fault("*" if number % 2 else "commit", nth % 12 + 1, mode, True))
        try:
            syncing.sync(history.store._core, broken)
        except (Unavailable, OutcomeUnknown):
            cuts += 1
            # An erasure that is cut short says so, as it does in any store.
            told = {one.place for one in findings(history.store, good) if one.kind != "erasure"}
            assert told <= {one.place for one in history.store.verify().findings}
        if number % 3 == 0:
            done = syncing.sync(history.store._core, good)
            assert done.findings == ()
            assert_same(history.store, url)
    assert cuts > 15
    place.close()


@pytest.mark.usefixtures("small")
def test_a_new_replica_that_is_cut_short_anywhere_is_finished_later(tmp_path: Path) -> None:
    place = Place("memory", tmp_path, sealed=False)
    history = History(place, 3)
    url = f"memory:new-{tmp_path}"
    good = open_storage(url)
    for nth in range(1, 400):
        for _ in range(3):
            history.act()
        broken = Faulty(good, Fault("commit", nth % 9 + 2, "before", onward=True))
        try:
            syncing.sync(history.store._core, broken)
            break
        except Unavailable:
            with pytest.raises(MissingError):
                sync.open(url)
    syncing.sync(history.store._core, good)
    assert_same(history.store, url)
    place.close()
