"""What policies read of a state is the same, whoever asks and when."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Place

from holdfast import Keep, Lookup, sync
from holdfast.checkpoints import Condition, Policy, PolicyFrequency, PolicySetting
from holdfast.checkpoints.policy import policy_engine
from holdfast.checkpoints.policy.tracker import BESIDE, Measured, measure, own_size
from holdfast.errors import InvalidInputError
from holdfast.store.history.diff import index_of
from holdfast.store.history.handle import LineHandle

A = "agent:a"


def count(threshold: float, window: float | None = None) -> Condition:
    return Condition(
        "operation_count", "operation_count", "greater_than_or_equal", threshold, window
    )


def read(policies: sync.checkpoints.Policies, id_: str) -> float | None:
    found = next(one for one in policies.explain(A) if one.policy.id == id_)
    return found.readings[0].value


# operations in a time window


def test_a_policy_that_is_set_while_policies_are_read_is_followed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the read of the policies, and before that of the head that they are taken to be of."""
    store = place.open()
    elsewhere = sync.checkpoints.Policies(place.open(), defaults=(), watch=False)
    late = [Policy("late", (count(10**9),))]

    def meanwhile(handle: LineHandle) -> Measured:
        if late:
            elsewhere.set(A, late.pop())
        return measure(handle)

    with sync.checkpoints.Policies(store, defaults=()) as policies:
        store.agent("a").set("k", 1)
        monkeypatch.setattr(policy_engine, "measure", meanwhile)
        policies.set(A, Policy("first", (count(10**9),)))
        policies.wait()
        found = {one.policy.id for one in policies.explain(A)}
    assert found == {"first", "late"}


# bytes


def test_pruning_does_not_reset_what_is_counted(place: Place) -> None:
    """Whoever prunes: a policy over operations would never fire beside retention."""
    store, elsewhere = place.open(), place.open()
    state = store.agent("a")
    state.declare(Keep(count=5))
    state.checkpoint("start")
    with sync.checkpoints.Policies(store, defaults=()) as policies:
        policies.set(A, Policy("all", (count(10**9),)))
        policies.set(A, Policy("lately", (count(10**9, 3_600_000),)))
        policies.wait()  # when an operation was is known from its entry alone until then
        for rounds, pruning in enumerate((store, elsewhere, store), 1):
            for n in range(20):
                state.set("k", n)
            assert sync.checkpoints.Retention(pruning).run(A)
            policies.wait()
            # What is pruned counts by its entries: those that set policies or pruned are, too.
            assert read(policies, "all") in range(20 * rounds, 20 * rounds + 9)
            assert read(policies, "lately") in range(20 * rounds, 20 * rounds + 9)
        fresh = sync.checkpoints.Policies(place.open(), defaults=(), watch=False)
        assert read(fresh, "all") in range(60, 69)


def test_memory_usage_does_not_change_because_a_checkpoint_is_made(place: Place) -> None:
    """What policies and lookups take beside the state counts neither before nor after."""
    store = place.open()
    state = store.agent("a")
    rule = Policy("big", (Condition("memory_usage", "memory_usage", "greater_than", 1e9),))
    with sync.checkpoints.Policies(store, defaults=()) as policies:
        for number in range(4):
            policies.set(A, Policy(f"p{number}", (count(1000),), "a name that takes some bytes"))
        policies.set(A, rule)
        state.declare(Lookup("by_status", prefix="task/", terms={"status": "status"}))
        before = read(policies, "big")
        state.set("task/1", {"status": "open", "text": "x" * 200})
        size = read(policies, "big")
        assert size is not None
        assert before is not None
        grown = size - before
        assert 200 < grown < 250
        state.checkpoint("c")
        assert read(policies, "big") == size
        state.set("task/2", {"status": "open", "text": "x" * 200})
        assert read(policies, "big") == size + grown
        assert (
            read(sync.checkpoints.Policies(store, defaults=(), watch=False), "big") == size + grown
        )
        state.checkpoint("d")
        assert read(policies, "big") == size + grown
        assert (
            read(sync.checkpoints.Policies(store, defaults=(), watch=False), "big") == size + grown
        )


def test_memory_usage_counts_the_characters_of_a_key(place: Place) -> None:
    """As the tree does, so that it is the same before a checkpoint and behind it."""
    store = place.open()
    state = store.agent("a")
    state.checkpoint("nothing")
    rule = Policy("big", (Condition("memory_usage", "memory_usage", "greater_than", 1e9),))
    with sync.checkpoints.Policies(store, defaults=()) as policies:
        policies.set(A, rule)
        before = read(policies, "big")
        state.set("é" * 100, b"x" * 20)
        state.set("e" * 100, b"x" * 20)
        grown = read(policies, "big")
        assert before is not None
        assert grown is not None
        assert (grown - before) % 2 == 0, "both keys count alike"
        assert grown - before < 2 * (101 + 30)
        state.checkpoint("c")
        assert read(policies, "big") == grown


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["", "a", "~"]), st.integers(0, 999)),
        st.integers(0, 300),
        max_size=600,
    )
)
def test_the_own_size_leaves_out_just_what_is_beside(
    sizes: dict[tuple[str, int], int],
) -> None:
    """Of an index of any shape, by going through all of it."""
    with sync.open("memory:") as store:
        state = store.agent("a")
        policies = sync.checkpoints.Policies(store, watch=False, defaults=())
        for number in range(min(len(sizes), 5)):
            policies.set(A, Policy(f"p{number}", (count(5),)))
        state.declare(Lookup("by", prefix="a", terms={"n": "n"}))
        with state.change() as change:
            for (start, number), size in sizes.items():
                change.set(f"{start}{number}", {"n": "y" * size})
        line = store._core.timeline(store._core.ledger(state.scope))
        root = index_of(line)
        trees = line.ledger.trees
        empty = type(root)(0, (), b"")
        expected = sum(
            type(root)(0, (one,), b"").size - empty.size
            for one in trees.walk(root)
            if not one[0].startswith(BESIDE)
        )
        assert own_size(trees, root) == expected


# what a store cannot do


def test_a_policy_that_demands_encryption_and_came_into_a_plain_store_is_of_exports_alone(
    tmp_path: Path,
) -> None:
    sealed = Place("memory", tmp_path, sealed=True).open()
    state = sealed.agent("a")
    rule = Policy(
        "sealed",
        (count(1),),
        frequency=PolicyFrequency(1000),
        encryption=PolicySetting(True, "AES-256-GCM"),
        priority="critical",
    )
    sync.checkpoints.Policies(sealed, watch=False).set(state, rule)
    state.set("k", 1)
    state.checkpoint("c")
    sync.checkpoints.export_checkpoint(state, tmp_path / "a.hfx", at="c", plain=True)
    trust = [sealed.identity().rsplit(":", 1)[1]]

    plain = Place("memory", tmp_path, sealed=False).open()
    with sync.checkpoints.Policies(plain, defaults=()) as policies:
        sync.checkpoints.import_checkpoint(plain.agent("a"), tmp_path / "a.hfx", trust=trust)
        plain.agent("a").set("k", 2)
        policies.wait()
        (found,) = policies.explain(A)
        assert found.policy == rule
        assert (found.effective["encryption"], found.effective["exports"]) == (
            "off",
            "only with a key",
        )
        (made, *_) = plain.agent("a").checkpoints()
        assert made.metadata["policy"] == "sealed"
        with pytest.raises(InvalidInputError, match="demands encryption"):
            sync.checkpoints.export_checkpoint(plain.agent("a"), tmp_path / "b.hfx", at=made)
    (found,) = sync.checkpoints.Policies(sealed, defaults=(), watch=False).explain(A)
    assert found.effective["encryption"] == "AES-256-GCM"


def test_a_count_that_is_past_what_it_is_to_equal_was_equal_before() -> None:
    with sync.open("memory:") as store:
        equal = Condition("operation_count", "operation_count", "equals", 5)
        with sync.checkpoints.Policies(store, defaults=()) as policies:
            policies.set(A, Policy("five", (equal,)))
            state = store.agent("a")
            with state.change() as change:
                for n in range(7):
                    change.set(f"k{n}", n)
            policies.wait()
            assert len(state.checkpoints()) == 1
    lately = Condition("operation_count", "operation_count", "equals", 5, 1000)
    assert [lately.holds(value) for value in (4, 5, 6)] == [False, True, False]
