"""Retention: which checkpoints go by which rule, what always stays, and a clock that is wrong."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from store_kit import Place, rows_of

import holdfast
from holdfast import Keep, sync
from holdfast.checkpoints import Condition, Policy, PolicyRetention, RetentionRule
from holdfast.errors import InvalidInputError, NotConfirmedError, PrunedError
from holdfast.store.upkeep import prune
from holdfast.sync.checkpoints import Retention

DAY = 86_400.0


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0
        self.clock = holdfast.Clock(lambda: self.time, lambda: self.time)


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def store(place: Place, hands: Hands) -> sync.Store:
    return place.open(clock=hands.clock)


def names(state: sync.State) -> list[str]:
    return [one.name for one in state.checkpoints()]


def make(state: sync.State, name: str, type: str = "manual", **metadata: object) -> None:
    state.set("k", f"{name} " + "x" * 200)
    tags = [f"policy:{metadata['policy']}"] if "policy" in metadata else []
    state.checkpoint(name, type=type, tags=tags, metadata=metadata or None)


@pytest.mark.parametrize(("type_", "most"), [("routine", 3), ("automatic", 5), ("manual", 2)])
def test_each_timeline_is_counted_by_itself(store: sync.Store, type_: str, most: int) -> None:
    """A trial pushes out nothing of main, main nothing of a trial, and neither piles up."""
    about = {"trigger": "shutdown"} if type_ == "automatic" else {}
    state = store.agent("1")
    state.set("k", 0)
    lines = [state, state.fork("trial"), state.fork("other")]
    retention = Retention(store, rules={"manual": RetentionRule(max_count=2)})
    for turn in range(3):
        for number, line in enumerate(lines):
            for n in range(most - 1 + number):
                make(line, f"{turn}.{n}", type_, **about)
            line.set("k", "on")
        retention.run(state)
    made = [[f"{turn}.{n}" for turn in range(3) for n in range(most - 1 + m)] for m in range(3)]
    assert [names(line) for line in lines] == [one[: -most - 1 : -1] for one in made]
    retention.end(state, "trial")
    assert names(state) == made[0][: -most - 1 : -1]
    assert store.verify().findings == []


@pytest.mark.spec("D10", "D26", "D29", "D32", "S74")
def test_the_default_rules(store: sync.Store, hands: Hands) -> None:
    state = store.agent("1")
    make(state, "old", "recovery")
    for n in range(20):
        make(state, f"manual {n}")
    hands.time += 8 * DAY
    for n in range(5):
        make(state, f"routine {n}", "routine")
    for n in range(7):
        make(state, f"end {n}", "automatic", trigger="shutdown")
    make(state, "before", "pre_operation", operation="op")
    held = state.checkpoints(limit=1)[0]
    make(state, "unsaid", "pre_operation")
    make(state, "young", "recovery")
    make(state, "after", "post_operation", releases=[])
    state.set("k", 1)
    plan = Retention(store).plan("agent:1")
    gone = {one.name for one in plan.removed}
    assert gone == {"old", "routine 0", "routine 1", "end 0", "end 1"}
    assert "routine 0" in str(plan)
    (done,) = Retention(store).run(plan)
    assert not gone & set(names(state))
    assert len(names(state)) == 32
    assert done.floor > 0
    make(state, "over", "post_operation", releases=[held.id])
    state.set("k", 2)
    assert [one.name for one in Retention(store).plan(state).removed] == ["before"]
    Retention(store).run(state)
    with pytest.raises(PrunedError):
        state.at(held)
    assert state.at("manual 3").get("k").startswith("manual 3")
    assert store.verify().findings == []


@pytest.mark.spec("X57")
def test_seven_days_and_until_an_operation_succeeds(store: sync.Store, hands: Hands) -> None:
    state = store.agent("1")
    make(state, "clean", "recovery")
    with sync.checkpoints.Checkpoints(state).operation("deploy"):
        for _ in range(6):
            hands.time += DAY / 2
            state.set("k", hands.time)
        assert {one.name for one in Retention(store).plan(state).removed} == set()
    assert [one.name for one in Retention(store).plan(state).removed] == ["deploy"]
    for _ in range(10):
        hands.time += DAY / 2
        state.set("k", hands.time)
    gone = {one.name for one in Retention(store).plan(state).removed}
    assert {"clean", "deploy"} <= gone


@pytest.mark.spec("X6")
def test_limits_and_what_keeps_in_spite_of_them(store: sync.Store, hands: Hands) -> None:
    state = store.agent("1")
    for n in range(10):
        make(state, str(n), priority="high" if n == 2 else "low")
        hands.time += 3600
    state.set("k", 1)

    def gone(rule: RetentionRule) -> str:
        found = Retention(store, rules={"manual": rule}).plan(state).removed
        return "".join(sorted(one.name for one in found))

    hour = timedelta(hours=1)
    assert gone(RetentionRule()) == ""
    assert gone(RetentionRule(max_count=4)) == "012345"
    assert gone(RetentionRule(max_age=4.5 * hour)) == "012345"
    assert gone(RetentionRule(max_age=7.5 * hour, max_count=4)) == "012345"
    assert gone(RetentionRule(max_age=hour / 2, min_count=7)) == "012"
    assert gone(RetentionRule(max_count=0, min_importance="medium")) == "013456789"


def test_pins_holds_and_what_is_in_use(store: sync.Store) -> None:
    state = store.agent("1")
    made = []
    for n in range(6):
        make(state, str(n))
        made.append(state.checkpoints(limit=1)[0])
    retention = Retention(
        store, rules={"manual": RetentionRule(max_count=0), "recovery": RetentionRule(max_count=0)}
    )
    retention.pin(made[0], "the first")
    retention.hold(made[1], "case 7")
    state.fork("trial", at=made[2])
    state.restore(made[3])
    assert retention.marked(state) == {
        made[0].id: "pinned: the first",
        made[1].id: "on hold: case 7",
    }
    state.set("k", "now")
    retention.run(state)
    kept = {one.name for one in state.checkpoints()}
    assert kept == {"0", "1", "2", "3", f"before restore of {made[3].id}"}
    assert state.at(made[1]).get("k").startswith("1 ")
    assert retention.unpin(made[0])
    assert retention.lift(made[1])
    assert not retention.lift(made[1])
    state.set("k", "later")
    retention.run(state)
    assert "0" not in names(state)
    assert "1" not in names(state)
    assert store.verify().findings == []


def test_what_was_pinned_since_the_plan_stays(store: sync.Store) -> None:
    state = store.agent("1")
    for n in range(4):
        make(state, str(n))
    retention = Retention(store, rules={"manual": RetentionRule(max_count=1)})
    plan = retention.plan(state)
    assert [one.name for one in plan.removed] == ["2", "1", "0"]
    retention.pin(state.checkpoints()[-1])
    make(state, "4")
    retention.run(plan)
    assert names(state) == ["4", "3", "0"]


def test_a_clock_ten_years_ahead_removes_nothing(store: sync.Store, hands: Hands) -> None:
    state = store.agent("1")
    for n in range(10):
        make(state, str(n))
    state.declare(Keep(age=timedelta(days=30)))
    retention = Retention(store, rules={"manual": RetentionRule(max_age=timedelta(days=30))})
    hands.time += 3650 * DAY
    plan = retention.plan(state)
    assert plan.removed == ()
    assert plan.lines[0].floor == 0
    assert "do not confirm" in plan.notes[0]
    assert retention.run(state) == []
    state.set("k", "with the wrong time")
    plan = retention.plan(state)
    assert len(plan.removed) == 10
    assert len(plan.questions) == 2
    for what in (plan, state):
        with pytest.raises(NotConfirmedError, match="10 of 10"):
            retention.run(what)
    assert len(names(state)) == 10
    retention.run(plan, confirm=True)
    assert names(state) == []


def test_a_clock_that_jumped_is_not_believed(place: Place, hands: Hands) -> None:
    """The step is noted in the entry that was written after it."""
    ticks = 0.0
    clock = holdfast.Clock(lambda: hands.time, lambda: ticks)
    store = place.open(clock=clock)
    state = store.agent("1")
    make(state, "0")
    hands.time += 3650 * DAY
    state.set("k", 1)
    plan = Retention(store, rules={"manual": RetentionRule(max_age=timedelta(1))}).plan(state)
    assert plan.removed == ()


@pytest.mark.spec("M115", "M116")
@pytest.mark.parametrize("keep", [Keep(count=5), Keep(count=0), Keep(age=timedelta(hours=5))])
def test_how_much_past_a_scope_keeps(store: sync.Store, hands: Hands, keep: Keep) -> None:
    state = store.agent("1")
    state.declare(keep)
    assert state.declared() == [keep]
    state.checkpoint("first")
    for n in range(30):
        state.set("k", f"{n} " + "x" * 200)
        hands.time += 3600
    (done,) = Retention(store).run(state)
    assert done.floor == {5: 27, 0: 32, None: 28}[keep.count]
    assert names(state) == ["first"]
    assert state.get("k").startswith("29 ")
    assert Retention(store).run(state) == [] or keep.count is not None
    with pytest.raises(PrunedError):
        state.at(10)
    assert store.verify().findings == []


def test_what_a_checkpoint_says_itself(store: sync.Store) -> None:
    """As those of a policy do; what cannot be used removes nothing."""
    state = store.agent("1")
    for n in range(5):
        make(state, f"a{n}", "triggered", policy="a", retention={"max_count": 2})
        make(state, f"b{n}", "triggered", policy="b", retention={"max_count": 4})
        make(state, f"c{n}", "triggered", policy="c", retention={"max_count": "many"})
    state.set("k", 1)
    Retention(store).run(state)
    assert sorted(names(state)) == sorted(
        ["a3", "a4", "b1", "b2", "b3", "b4", *(f"c{n}" for n in range(5))]
    )


def test_what_was_cut_short_is_finished(store: sync.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    state = store.agent("1")
    for n in range(40):
        make(state, str(n), "routine")
    state.set("k", 1)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(prune._Pruning, "_tally", stop)
        with pytest.raises(KeyboardInterrupt):
            Retention(store).run(state)
    assert len(names(state)) == 3
    assert store.verify().pruning == 1
    (done,) = Retention(store).run(state)
    assert done.entries == 10
    assert (store.verify().pruning, store.verify().findings) == (0, [])
    assert Retention(store).run(state) == []


def test_what_is_refused(store: sync.Store) -> None:
    for wrong in (
        lambda: Retention(7),
        lambda: Retention(store, rules={"odd": RetentionRule()}),
        lambda: RetentionRule(max_count=-1),
        lambda: RetentionRule(max_age=3),  # type: ignore[arg-type]
        lambda: RetentionRule(min_importance="odd"),
        lambda: Keep(),
        lambda: Keep("events/"),  # type: ignore[arg-type]
        lambda: Keep(count=1, age=timedelta(1)),
        lambda: Keep(age=timedelta(0)),
        lambda: Retention(store).pin("main@1"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInputError):
            wrong()


def test_rules_are_those_that_were_given(store: sync.Store) -> None:
    """Whoever changes the mapping later changes nothing that is removed."""
    rules: dict[str, RetentionRule] = {}
    retention = Retention(store, rules=rules)
    state = store.agent("7")
    for number in range(8):  # as many as their own rule keeps, and more than the usual one does
        state.set("k", number)
        sync.checkpoints.Checkpoints(state).create(
            f"r{number}", type="routine", retention={"max_count": 100}
        )
    rules["routine"] = RetentionRule(max_count=3)
    assert retention.plan(state).removed == ()


def test_the_async_face(place: Place) -> None:
    async def main() -> None:
        async with holdfast.open(place.url, **place.options()) as store:
            state = store.agent("1")
            for n in range(6):
                await state.set("k", "x" * 200 + str(n))
                await state.checkpoint(str(n), type="routine")
            retention = holdfast.checkpoints.Retention(store)
            made = (await state.checkpoints())[-1]
            await retention.pin(made)
            await retention.hold(made, "case")
            assert list(await retention.marked(state)) == [made.id]
            assert await retention.lift(made)
            plan = await retention.plan(state)
            assert len(plan.removed) == 2
            await retention.run(plan)
            assert len(await state.checkpoints()) == 4
            assert await retention.unpin(made)

    asyncio.run(main())


@pytest.mark.spec("K124")
def test_the_retention_of_a_policy_is_what_the_policy_says_now(store: sync.Store) -> None:
    """Also of checkpoints that it made when it still said something else."""
    state = store.agent("1")
    policies = sync.checkpoints.Policies(store, watch=False)
    often = Policy(
        "often",
        (Condition("operation_count", "operation_count", "greater_than", 1),),
        retention=PolicyRetention(max_count=5),
    )
    policies.set(state, often)
    for n in range(8):
        make(state, f"a{n}", "automatic", policy="often", retention={"max_count": 100})
    state.set("k", 1)
    Retention(store).run(state)
    assert sorted(names(state)) == ["a3", "a4", "a5", "a6", "a7"]
    policies.set(state, replace(often, retention=PolicyRetention(max_count=2, min_count=3)))
    Retention(store).run(state)
    assert sorted(names(state)) == ["a5", "a6", "a7"]
    policies.remove(state, "often")  # what each one says itself
    assert Retention(store).plan(state).removed == ()


def test_rules_together(store: sync.Store) -> None:
    """A given rule of a type is the rule; else what a checkpoint says; else the default one."""
    state = store.agent("1")
    for n in range(6):
        make(state, f"a{n}", "automatic", policy="a", retention={"max_count": 5})
        make(state, f"b{n}", "automatic", policy="b", retention={"max_count": 2})
    state.set("k", 1)

    def gone(**rules: RetentionRule) -> list[str]:
        return sorted(one.name for one in Retention(store, rules=rules).plan(state).removed)

    own = ["a0", "b0", "b1", "b2", "b3"]
    assert gone() == own
    assert gone(manual=RetentionRule(max_count=0)) == own
    assert gone(automatic=RetentionRule(max_count=100)) == []
    assert gone(automatic=RetentionRule(max_count=4)) == sorted(
        [*(f"a{n}" for n in range(4)), *(f"b{n}" for n in range(4))]
    )
    assert gone(automatic=RetentionRule(max_count=0, min_importance="medium")) == []


@pytest.mark.spec("D32", "D33")
def test_a_recovery_checkpoint_is_cleared_by_hand(store: sync.Store) -> None:
    """Whatever its rule says; what is pinned or on hold stays until that is lifted."""
    state = store.agent("1")
    retention = Retention(store)
    for name in ("one", "two", "three"):
        make(state, name, "recovery")
    state.set("k", 1)
    third, second, first = state.checkpoints()
    assert retention.plan(state).removed == ()  # for seven days
    retention.clear(first, "looked into")
    retention.clear(second)
    retention.hold(second, "case 7")
    retention.run(state)
    assert names(state) == ["three", "two"]
    retention.lift(second)
    retention.run(state)
    assert names(state) == ["three"]
    assert state.keys("$retention/") == []
    assert (third in state.checkpoints(), store.verify().findings) == (True, [])


@pytest.mark.spec("M83", "M115", "M116")
def test_a_state_that_grows_is_kept_small_by_rules(place: Place, hands: Hands) -> None:
    """Storage stops growing: retention bounds the past, whatever is written."""
    store = place.open(clock=hands.clock)
    state = store.agent("1")
    state.declare(Keep(count=20))
    sizes = []
    for _ in range(4):
        for n in range(100):
            make(state, str(n), "routine")
            state.set("k", f"{n} " * 500)
        Retention(store).run(state)
        kinds = (b"E", b"V", b"N", b"S", b"B")
        found = (rows_of(place.storage(), kind) for kind in kinds)
        sizes.append(sum(len(row) for rows in found for _, row in rows))
    assert sizes[3] - sizes[2] < 200 * 250  # of each entry the envelope stays
    assert sizes[3] < 400 * 250 + 50_000
    assert len(names(state)) == 3


@pytest.mark.parametrize("age", [1e15, float("inf"), 10**20])
def test_an_age_that_never_comes_leaves_the_count(store: sync.Store, age: float) -> None:
    state = store.agent("1")
    for n in range(5):
        state.set("x", n)
        sync.checkpoints.Checkpoints(state).create(
            f"n{n}", retention={"max_age": age, "max_count": 2}
        )
    state.set("x", 9)
    judged = sync.checkpoints.Retention(store).plan(state).lines[0].judged
    assert [one.stays for one in judged] == [True, True, False, False, False]


def test_checkpoints_of_a_policy_are_counted_together_and_none_of_somebody_elses(
    store: sync.Store,
) -> None:
    state = store.agent("1")
    policies = sync.checkpoints.Policies(store, defaults=(), watch=False)
    rare = (Condition("operation_count", "operation_count", "greater_than", 10**6),)
    policies.set(state, Policy("gold", rare, retention=PolicyRetention(max_count=2)))
    for n in range(4):
        make(state, f"gold {n}", ("automatic", "triggered")[n % 2], policy="gold")
        state.checkpoint(f"mine {n}", metadata={"policy": "gold"})
    make(state, "last")
    Retention(store).run(state)
    assert [name for name in names(state) if "gold" in name] == ["gold 3", "gold 2"]
    assert len(names(state)) == 7
