"""Leases against a plain model: several holders, each with a clock of its own."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast import Clock, Lease, sync
from holdfast.errors import LeaseLostError
from holdfast.store.lease import Leases

DURATION = 100.0
who = st.integers(0, 2)
_names = itertools.count()


@dataclass
class Party:
    """A process: its store, its clock, the lease that it believes to hold."""

    store: sync.Store
    ticks: list[float]
    lease: Lease | None = None
    stale: list[Lease] = field(default_factory=list)
    seen: tuple[Any, float] | None = None
    """What it saw of the lease, and since when by its own clock."""


class Model(RuleBasedStateMachine):
    """The truth is a term, who has it, and how often it was renewed."""

    @initialize()
    def start(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(Leases, "_turn", lambda self: None)
        url = f"memory:leases-{os.getpid()}-{next(_names)}"
        self.parties = [self._party(url, offset) for offset in (0.0, 5e6, -3e3)]
        self.term, self.holder, self.beats = 0, -1, 0
        self.log: list[list[int]] = []
        self.parties[0].store.agent("1").set("log", [])

    def _party(self, url: str, offset: float) -> Party:
        ticks = [1000.0 + offset]
        clock = Clock(wall=lambda: 1e9 - 7 * ticks[0], monotonic=lambda: ticks[0])
        return Party(sync.open(url, clock=clock), ticks)

    @rule(n=who, seconds=st.sampled_from([1.0, 33.0, 34.0, 99.0, 100.0, 1e4]))
    def time_passes(self, n: int, seconds: float) -> None:
        self.parties[n].ticks[0] += seconds

    @rule(n=who)
    def look_and_take(self, n: int) -> None:
        party = self.parties[n]
        truth, now = (self.term, self.beats), party.ticks[0]
        may = self.holder < 0
        if not may:
            if party.seen is not None and party.seen[0] == truth:
                may = now - party.seen[1] >= DURATION
            else:
                party.seen = truth, now
        lease = party.store._core.leases.take("job", DURATION, f"party {n}")
        assert (lease is not None) is may
        if lease is not None:
            if party.lease is not None:
                party.stale.append(party.lease)
            self.term, self.holder, self.beats = self.term + 1, n, 0
            party.lease = lease
            assert (lease.term, lease.held) == (self.term, True)

    @rule(n=who)
    def beat(self, n: int) -> None:
        party = self.parties[n]
        lease = party.lease
        due = lease is not None and not lease.over and lease.due <= party.ticks[0]
        party.store._core.leases.renew_due()
        if due:
            assert lease is not None
            assert lease.held is self._has(n, lease)
            self.beats += self._has(n, lease)

    @rule(n=who, old=st.booleans())
    def write(self, n: int, old: bool) -> None:
        party = self.parties[n]
        lease = party.stale[-1] if old and party.stale else party.lease
        if lease is None:
            return
        row = [n, lease.term, len(self.log)]
        try:
            with lease.fencing():
                party.store.agent("1").append("log", row)
        except LeaseLostError:
            assert not self._has(n, lease)
            assert not lease.held
        else:
            assert self._has(n, lease)
            self.log.append(row)

    @rule(n=who)
    def give_back(self, n: int) -> None:
        party = self.parties[n]
        if party.lease is not None:
            if self._has(n, party.lease):
                self.holder = -1
            party.lease.release()
            assert not party.lease.held
            party.stale.append(party.lease)
            party.lease = None

    @rule(n=who)
    def break_it(self, n: int) -> None:
        if self.term:
            owner = self.parties[n].store.break_lease("job")
            assert owner == (f"party {self.holder}" if self.holder >= 0 else None)
            self.term, self.holder, self.beats = self.term + 1, -1, 0

    def _has(self, n: int, lease: Lease) -> bool:
        return self.holder == n and lease.term == self.term

    @invariant()
    def all_see_the_truth(self) -> None:
        for party in self.parties:
            assert party.store.agent("1").get("log") == self.log
            for info in party.store.leases():
                owner = f"party {self.holder}" if self.holder >= 0 else None
                assert (info.term, info.owner, info.beats) == (self.term, owner, self.beats)
        terms = [row[1] for row in self.log]
        assert terms == sorted(terms)

    def teardown(self) -> None:
        if hasattr(self, "parties"):
            assert self.parties[0].store.verify().findings == []
            for party in self.parties:
                party.store.close()
            self.patch.undo()


TestLeases = Model.TestCase
TestLeases.settings = settings(stateful_step_count=40)
