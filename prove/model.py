"""A hypothesis state machine: the store against a plain model, operation by operation.

Operations of every kind go at random through one of three hands: a first handle, a second
handle of the same process, or a second process. After each, all of them must show exactly what
the model holds; after reopening too, and at every checkpoint; at the end `verify` finds nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from holdfast import sync
from holdfast.store.journal import timeline
from prove.common import Result, pick
from prove.ops import Generator, Op, carry_out, dump_store, past_differs
from prove.peer import Peer


class Machine(RuleBasedStateMachine):
    """One store in a file, and the model of it."""

    peer: Peer
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-prove-")
        self.url = f"sqlite:{Path(self.folder.name) / 'store.db'}"
        self.handles = [sync.open(self.url, durability="normal")]
        self.handles.append(sync.open(self.url, durability="normal"))
        self.peer.ask("open", self.url)

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        """What is done follows from the seed."""
        self.generator = Generator(seed, scopes=("agent:a", "session:s:1"))
        for number, op in enumerate(self.prologue()):
            self.generator.model.apply(op)
            self.do(op, number % 3)
            self.compare((number + 1) % 3)

    def prologue(self) -> Iterator[Op]:
        """What must not be left to chance: a long list that grows, and a name used again."""
        yield ("set", "agent:a", "main", "log", self.generator.items())
        for _ in range(3):
            yield ("append", "agent:a", "main", "log", self.generator.item())
        yield ("checkpoint", "agent:a", "main", "c0")
        yield ("set", "agent:a", "main", "k0", 1)
        yield ("restore", "agent:a", "main", "c0")
        yield ("set", "session:s:1", "main", "k0", "first life")
        yield ("drop", "session:s:1")
        yield ("set", "session:s:1", "main", "k1", "second life")

    @rule(hands=st.lists(st.sampled_from([0, 0, 1, 2]), min_size=4, max_size=8))
    def operate(self, hands: list[int]) -> None:
        """Some operations, each by one hand and seen by the next."""
        for number, hand in enumerate(hands):
            self.one(hand, hands[number - 1])

    def one(self, hand: int, look: int) -> None:
        """One operation by one hand, seen by another."""
        Machine.steps += 1
        op = self.generator.next()
        self.do(op, hand)
        self.compare(look)

    def do(self, op: Op, hand: int) -> None:
        """Let one hand carry out an operation."""
        if op[0] == "reopen":
            self.reopen(hand)
        elif hand == 2:
            self.peer.ask("op", op)
        else:
            carry_out(self.handles[hand], op)

    def reopen(self, hand: int) -> None:
        """Close one of the hands and open it again."""
        if hand == 2:
            self.peer.ask("close")
            self.peer.ask("open", self.url)
        else:
            self.handles[hand].close()
            self.handles[hand] = sync.open(self.url, durability="normal")

    def compare(self, look: int) -> None:
        """One hand shows all that the model holds."""
        seen = self.peer.ask("dump") if look == 2 else dump_store(self.handles[look])
        assert seen == self.generator.model.dump(), f"hand {look} sees something else"

    def teardown(self) -> None:
        """Look at the past and verify, then clean up."""
        try:
            if hasattr(self, "generator"):
                for look in (0, 1, 2):
                    self.compare(look)
                wrong = past_differs(self.handles[1], self.generator.model)
                assert not wrong, f"the past differs: {wrong}"
                self.rebuilt()
                found = self.handles[0].verify().findings
                assert not found, f"verify: {found[:1]}"
        finally:
            for handle in self.handles:
                handle.close()
            self.peer.ask("close")
            self.folder.cleanup()

    def rebuilt(self) -> None:
        """Equal states have equal roots: empty a scope, set its keys whole, compare."""
        for scope in self.generator.model.scopes:
            state = self.handles[0].scope(scope)
            before, items = state.root(), dict(state.items())
            for key in items:
                state.delete(key)
            for key in sorted(items, reverse=True):
                state.set(key, items[key])
            assert state.root() == before, f"{scope}: the same state has another root"


def run(seed: int, scale: int) -> Result:
    """Run the machine."""
    often, timeline.DELTA_EVERY = timeline.DELTA_EVERY, 7
    Machine.peer, Machine.steps = Peer(), 0
    how = settings(
        max_examples=pick(scale, 5, 40, 2000),
        stateful_step_count=pick(scale, 8, 15, 30),
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    findings: list[str] = []
    try:
        run_state_machine_as_test(with_seed(seed)(Machine), settings=how)
    except Exception as error:
        findings.append(_told(error))
    finally:
        Machine.peer.close()
        timeline.DELTA_EVERY = often
    figure = f"{Machine.steps} operations"
    return Result(figure, "two handles and a second process against a model", seed, findings)


def _told(error: Any) -> str:
    parts = getattr(error, "exceptions", [error])
    return "; ".join(f"{type(e).__name__}: {str(e)[:300]}" for e in parts)
