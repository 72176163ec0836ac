"""What the metrics read, against a plain model: after any writes, of any handle, and a restart."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import sync
from holdfast.checkpoints import Condition, Policy

KEYS = st.sampled_from(["a", "b", "long/key", "list", "tail"])
VALUES = st.one_of(st.integers(0, 300), st.text("xy", max_size=200), st.just("z" * 1200))
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES),
    st.tuples(st.just("append"), st.sampled_from(["list", "tail"]), st.integers(0, 9)),
    st.tuples(st.just("delete"), KEYS, st.none()),
    st.tuples(st.just("trim"), st.sampled_from(["list", "tail"]), st.integers(0, 3)),
    st.tuples(st.just("merge"), KEYS, VALUES),
    st.tuples(st.just("checkpoint"), st.none(), st.none()),
    st.tuples(st.just("restore"), st.none(), st.none()),
    st.tuples(st.just("other"), KEYS, VALUES),
    st.tuples(st.just("look"), st.none(), st.none()),
)
NEVER = tuple(
    Policy(name, (Condition(kind, metric, "greater_than", 1e15),))
    for name, kind, metric in (
        ("ratio", "state_change", "state_change_ratio"),
        ("memory", "memory_usage", "memory_usage"),
        ("count", "operation_count", "operation_count"),
    )
)
_numbers = itertools.count()


class Model:
    """The state, as it was at the last checkpoint, and how many operations there were since."""

    def __init__(self) -> None:
        self.now: dict[str, Any] = {}
        self.then: dict[str, Any] | None = None
        self.count = 0

    def checkpoint(self) -> None:
        self.then, self.count = dict(self.now), 0

    def bytes(self, state: dict[str, Any], keys: set[str]) -> int:
        return sum(len(k) + 1 + len(msgspec.msgpack.encode(state[k])) for k in keys & {*state})

    def read(self) -> dict[str, float]:
        memory = self.bytes(self.now, {*self.now})
        if self.then is None:
            return {"ratio": 1.0, "memory": memory, "count": self.count}
        differ = {k for k in {*self.now, *self.then} if self.now.get(k) != self.then.get(k)}
        changed = self.bytes(self.now, differ) + self.bytes(self.then, differ - {*self.now})
        whole = self.bytes(self.then, {*self.then})
        ratio = changed / whole if whole else float(bool(changed))
        return {"ratio": ratio, "memory": memory, "count": self.count}

    def restore(self, other: dict[str, Any]) -> None:
        self.checkpoint()  # the backup
        self.now = dict(other)


@pytest.mark.spec("K169", "K137", "K138", "K135")
@given(steps=st.lists(STEPS, max_size=25))
def test_metrics_are_what_a_model_says(steps: list[tuple[str, Any, Any]]) -> None:
    url = f"memory:policies-{next(_numbers)}"
    model, kept = Model(), [{}]
    with sync.open(url) as store, sync.open(url) as other:
        state = store.agent("a")
        with sync.checkpoints.Policies(store, defaults=NEVER) as policies:
            state.set("a", 0)
            model.now, model.count = {"a": 0}, 1
            for kind, key, value in steps:
                _do(kind, key, value, state, other.agent("a"), model, kept)
                if kind == "look":
                    assert _read(policies) == pytest.approx(model.read())
            assert _read(policies) == pytest.approx(model.read())
            assert policies.wait(60)
            assert _read(policies) == pytest.approx(model.read())
            assert (policies.errors(), policies.fired()) == ((), ())
        afresh = sync.checkpoints.Policies(other, defaults=NEVER, watch=False)
        assert _read(afresh) == pytest.approx(model.read())


def _read(policies: sync.checkpoints.Policies) -> dict[str, float | None]:
    return {one.policy.id: one.readings[0].value for one in policies.explain("agent:a")}


def _do(
    kind: str, key: str, value: Any, state: Any, other: Any, model: Model, kept: list[Any]
) -> None:
    if kind == "append":
        if not isinstance(model.now.get(key, []), list):
            return
        state.append(key, value)
        model.now[key] = [*model.now.get(key, []), value]
        model.count += 1
    elif kind in ("set", "other"):
        (state if kind == "set" else other).set(key, value)
        model.now[key] = value
        model.count += 1
    elif kind == "delete":
        if state.delete(key):
            del model.now[key]
        model.count += 1
    elif kind == "trim":
        if not isinstance(model.now.get(key, []), list):
            return
        with state.change() as change:
            change.trim(key, keep_last=value)
        if key in model.now:  # else its entry says nothing
            model.now[key] = model.now[key][max(0, len(model.now[key]) - value) :]
            model.count += 1
    elif kind == "merge":
        fork = state.fork(f"fork-{next(_numbers)}")
        fork.set(key, value)
        if state.merge(fork.timeline).entry is not None:
            model.now[key] = value
            model.count += 1
    elif kind == "checkpoint":
        state.checkpoint("kept")
        model.checkpoint()
        kept[:] = [dict(model.now)]
    elif kind == "restore" and kept[0]:
        state.restore("kept")
        model.restore(kept[0])
