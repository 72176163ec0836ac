"""Observations: who is told of what, in which order it is asked, and what is there afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.errors import InvalidInputError, MissingError
from holdfast.runtime import observations as module
from holdfast.runtime.observations import ObserverInfo, RateLimiter
from holdfast.sync.runtime import Entities, Events, Observations


class World:
    """Two agents, a log and their observations, in one store."""

    def __init__(self, store: sync.Store, deliver: Callable[..., Any] | None = None) -> None:
        self.store = store
        self.entities = Entities(store.custom("fleet"))
        self.log = Events(store)
        for id in ("critic", "writer", "other"):
            if not self.entities.exists(id):
                self.entities.create("agent", id=id)
        self.observations = Observations(self.entities, self.log, deliver=deliver)
        self.observations.start()

    def does(self, name: str, agent: str = "writer", **data: Any) -> None:
        self.log.emit(name, {"agent_id": agent, **data})

    def seen(self) -> list[Any]:
        found = self.log.query("observe:begin", limit=None)
        return [one.data["data"].get("n", one.data["event"]) for one in found]


@pytest.fixture
def world(store: sync.Store) -> World:
    return World(store)


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not met():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


@pytest.mark.spec("X35", "S113", "S115")
def test_an_observer_is_told_of_what_fits_by_two_events_of_one_id(world: World) -> None:
    id = world.observations.subscribe("critic", "writer", ["message:*", "done"])
    world.does("message:sent", n=1)
    world.does("tool:called", n=2)
    world.does("message:sent", agent="other", n=3)
    world.does("done", n=4)
    assert world.seen() == [1, 4]
    begins, ends = (world.log.query(f"observe:{end}") for end in ("begin", "end"))
    for begin, end in zip(begins, ends, strict=True):
        assert begin.data["observation_id"] == end.data["observation_id"]
        assert end.timestamp >= begin.timestamp
    told = begins[0].data
    assert (told["subscription"], told["observer"], told["target"], told["event"]) == (
        *(id, "critic", "writer", "message:sent"),
    )
    assert begins[0].data["observation_id"] != begins[1].data["observation_id"]
    [one] = world.observations.list()
    assert (one["id"], one["events"], one["observed"]) == (id, ["message:*", "done"], 2)
    assert world.observations.list(observer="writer") == []
    assert world.observations.unsubscribe(id) is True
    assert world.observations.unsubscribe(id) is False
    world.does("message:sent", n=5)
    assert world.seen() == [1, 4]
    assert not world.entities.exists(id)


@pytest.mark.spec("X35")
def test_a_block_is_told_when_it_begins_and_how_it_ends(world: World) -> None:
    world.observations.subscribe("critic", "writer")
    with world.observations.observing("writer", "draft", {"n": 1}):
        assert world.seen() == [1]
        assert world.log.query("observe:end") == []
        time.sleep(0.02)
    with pytest.raises(KeyError), world.observations.observing("writer", "draft", {"n": 2}):
        raise KeyError
    good, bad = world.log.query("observe:end")
    assert (good.data["error"], bad.data["error"]) == ("", "KeyError")
    assert good.data["duration_ms"] >= 20
    took = world.observations.analyze("performance")["draft"]
    assert took["count"] == 2
    assert took["max_ms"] >= 20
    assert world.observations.analyze("errors") == {
        "total": 1,
        "errors": {"KeyError": 1},
        "rate": 0.5,
    }


@pytest.mark.spec("X35")
def test_both_agents_must_exist(world: World) -> None:
    for observer, target in (("critic", "nobody"), ("nobody", "writer")):
        with pytest.raises(MissingError, match="has no entity nobody"):
            world.observations.subscribe(observer, target)
    assert world.observations.list() == []
    assert world.entities.count(module.SUBSCRIPTION) == 0


MATCHES: list[tuple[dict[str, Any], list[int]]] = [
    ({"field": "n", "value": 2}, [2]),
    ({"field": "n", "value": 2, "operator": "gt"}, [3, 4]),
    ({"field": "n", "value": 2, "operator": "lt"}, [1]),
    ({"field": "text", "value": "ell", "operator": "contains"}, [3]),
    ({"field": "text", "pattern": "^h.*o$"}, [3]),
    ({"field": "deep.down", "value": True}, [4]),
    ({"field": "n", "value": "2"}, []),
    ({"field": "n", "value": "a", "operator": "gt"}, []),
    ({"field": "none", "value": "a", "operator": "contains"}, []),
]


@pytest.mark.spec("X35")
@pytest.mark.parametrize(("match", "found"), MATCHES)
def test_content_is_matched_by_operator_or_pattern(
    world: World, match: dict[str, Any], found: list[int]
) -> None:
    world.observations.subscribe("critic", "writer", filter={"content_match": match})
    world.does("x", n=1)
    world.does("x", n=2)
    world.does("x", n=3, text="hello")
    world.does("x", n=4, deep={"down": True})
    assert world.seen() == found


@pytest.mark.spec("X35", "S116")
def test_ten_a_second_pass_unless_another_limit_is_given(world: World) -> None:
    world.observations.subscribe("critic", "writer")
    few = {"max_events": 3, "window_seconds": 600.0}
    world.observations.subscribe("other", "writer", filter={"rate_limit": few})
    limiter = RateLimiter()
    assert (limiter.max_events, limiter.window_seconds) == (10, 1.0)
    for n in range(15):
        world.does("x", n=n)
    counts = {one["observer"]: one for one in world.observations.list()}
    assert counts["other"]["observed"] == 3
    assert counts["other"]["limited"] == 12
    assert counts["critic"]["observed"] >= 10
    assert [limiter.allow(n / 16) for n in range(25)] == [True] * 10 + [False] * 6 + [True] * 9


@pytest.mark.spec("X35")
def test_filters_are_asked_in_their_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is excluded, or does not match, or is no sample, uses nothing up of the limit."""
    world.observations.subscribe(
        "critic",
        "writer",
        filter={
            "exclude": ["noise:*"],
            "content_match": {"field": "n", "value": 10, "operator": "lt"},
            "sampling_rate": 0.5,
            "rate_limit": {"max_events": 2, "window_seconds": 600.0},
        },
    )
    drawn: list[float] = []

    def draw() -> float:
        drawn.append(0.9 if len(drawn) % 2 else 0.1)
        return drawn[-1]

    monkeypatch.setattr(module.random, "random", draw)
    world.does("noise:loud", n=1)
    world.does("x", n=20)
    assert drawn == [], "sampled last of what fits"
    for n in range(5):
        world.does("x", n=n)
    assert world.seen() == [0, 2]
    assert world.observations.list()[0]["limited"] == 1


@pytest.mark.spec("X35")
@pytest.mark.parametrize(
    "filter",
    [
        {"colour": 1},
        {"sampling_rate": 2},
        {"sampling_rate": True},
        {"rate_limit": {"max_events": 0}},
        {"rate_limit": {"max_events": 1, "window_seconds": 0}},
        {"rate_limit": {"often": 1}},
        {"content_match": {"field": "a"}},
        {"content_match": {"value": 1}},
        {"content_match": {"field": "a", "value": 1, "operator": "like"}},
        {"content_match": {"field": "a", "pattern": "(a+)+$"}},
        {"content_match": {"field": "a", "pattern": "("}},
        {"exclude": "x" * 300},
        [1],
        "exclude",
    ],
)
def test_a_filter_that_nobody_understands_is_refused(world: World, filter: Any) -> None:
    with pytest.raises(InvalidInputError):
        world.observations.subscribe("critic", "writer", filter=filter)
    assert world.entities.count(module.SUBSCRIPTION) == 0


@pytest.mark.spec("S111", "S117", "S118", "S119", "S121")
def test_subscriptions_are_entities_and_are_restored_on_start(place: Place) -> None:
    world = World(place.open())
    wanted = {"exclude": ["b"], "content_match": {"field": "n", "value": 1, "operator": "gt"}}
    id = world.observations.subscribe("critic", "writer", ["a", "b"], filter=wanted)
    kept = world.entities.get(id, include=["relationships"])
    assert kept.type == "observation_subscription"
    assert {(one.type, one.to_id) for one in kept.relationships} == {
        ("observer", "critic"),
        ("target", "writer"),
    }
    world = World(place.reopen())
    assert [one["id"] for one in world.observations.list()] == [id]
    assert [one.data["count"] for one in world.log.query("observation:restored")][-1] == 1
    assert world.log.query("observation:ready")
    for name, n in (("a", 1), ("a", 2), ("b", 3), ("c", 4)):
        world.does(name, n=n)
    assert world.seen() == [2], "the same pattern as before"


def test_a_subscription_with_properties_of_others_is_restored(store: sync.Store) -> None:
    world = World(store)
    id = world.observations.subscribe("critic", "writer", "a")
    world.observations.stop()
    world.entities.update(id, {"note": "kept for audit", "filter": None})
    world = World(store)
    world.does("a", n=1)
    assert world.seen() == [1]


@pytest.mark.spec("S112", "S114", "S120")
def test_rate_limiters_are_made_anew(place: Place) -> None:
    world = World(place.open())
    few = {"max_events": 2, "window_seconds": 6000.0}
    world.observations.subscribe("critic", "writer", filter={"rate_limit": few})
    for n in range(5):
        world.does("x", n=n)
    assert world.seen() == [0, 1]
    world.log.stop()
    world = World(place.reopen())
    for n in range(10, 15):
        world.does("x", n=n)
    assert world.seen() == [0, 1, 10, 11]
    assert world.observations.list()[0]["limited"] == 3


@pytest.mark.spec("X35", "S121")
def test_subscriptions_end_with_either_agent(place: Place) -> None:
    world = World(place.open())
    first = world.observations.subscribe("critic", "writer")
    second = world.observations.subscribe("writer", "other")
    third = world.observations.subscribe("critic", "other")
    world.does("agent:terminated")
    assert [one["id"] for one in world.observations.list()] == [third]
    until(lambda: not world.entities.exists(first) and not world.entities.exists(second))
    [told] = world.log.query("observation:target_terminated")
    assert told.data == {"observer": "critic", "target": "writer", "subscription": first}
    world.does("agent:terminated", agent="critic")  # whom nobody observes
    assert world.observations.list() == []
    until(lambda: not world.entities.exists(third))
    world.observations.subscribe("critic", "other")
    world.entities.delete("other")
    again = World(place.open())
    again.entities.delete("other")
    assert Observations(again.entities, again.log).start() == 0, "gone while nobody looked"
    assert again.entities.count(module.SUBSCRIPTION) == 0


def test_an_agent_made_again_is_not_observed_by_what_was_said_of_the_one_before(
    store: sync.Store,
) -> None:
    world = World(store)
    for observer in ("critic", "writer"):
        world.observations.subscribe(observer, "writer")
    kept = world.observations.subscribe("critic", "other")
    Entities(store.custom("fleet")).delete("writer")  # by whomever
    assert [one.id for one in world.entities.query(module.SUBSCRIPTION).items] == [kept]
    assert {one.from_id for one in world.entities.relationships()} == {kept}
    world.entities.create("agent", id="writer")
    world.does("tool:call", n=1)
    world.does("tool:call", agent="other", n=2)
    assert world.seen() == [2]
    assert [one["id"] for one in world.observations.list()] == [kept]


def test_what_is_no_subscription_is_not_ended(world: World) -> None:
    """An agent under that id stays, with all that it has."""
    assert not world.observations.unsubscribe("writer")
    assert world.entities.exists("writer")
    assert not world.observations.unsubscribe("sub_none")


@pytest.mark.spec("X35")
def test_batches_are_delivered_to_each_observer(store: sync.Store) -> None:
    got: list[tuple[str, list[int]]] = []
    world = World(
        store, deliver=lambda who, events: got.append((who, [e.data["data"]["n"] for e in events]))
    )
    assert (module.QUEUE, module.BATCH, module.INTERVAL) == (1000, 10, 0.1)
    wide = {"rate_limit": {"max_events": 1000}}
    world.observations.subscribe("critic", "writer", filter=wide)
    world.observations.subscribe("other", "writer", filter=wide)
    for n in range(30):
        world.does("x", n=n)
    world.observations.stop()
    for who in ("critic", "other"):
        mine = [n for name, some in got for n in some if name == who]
        assert mine == [n for n in range(30) for _ in range(2)]
    assert max(len(some) for _, some in got) <= 10
    world.does("x", n=99)
    assert not any(99 in some for _, some in got), "stopped"
    assert world.observations.list(), "and still subscribed"


@pytest.mark.spec("X35")
def test_a_full_queue_drops_and_counts_and_a_failing_observer_opens_the_breaker(
    store: sync.Store,
) -> None:
    begun, free = threading.Event(), threading.Event()

    def deliver(who: str, events: list[Any]) -> None:
        begun.set()
        assert free.wait(30)
        raise OSError("unreachable")

    world = World(store, deliver=deliver)
    wide = {"rate_limit": {"max_events": 10_000}}
    world.observations.subscribe("critic", "writer", filter=wide)
    world.does("x", n=0)
    assert begun.wait(30)
    for n in range(600):
        world.does("x", n=n)
    dropped = world.observations.dropped
    assert 150 <= dropped <= 210, "two events each, a thousand wait"
    free.set()
    world.observations.stop()
    assert world.observations.dropped == 1202, "none was delivered, and all are counted"
    settings = module.BREAKER
    assert (settings.failures, settings.window, settings.open) == (5, 300.0, 60.0)
    assert not world.observations.breaker.allow()


def test_an_observer_that_wants_to_end_the_program_has_failed(store: sync.Store) -> None:
    told: list[str] = []

    def deliver(who: str, events: list[Any]) -> None:
        told.append(who)
        if who == "critic":
            raise SystemExit

    world = World(store, deliver=deliver)
    for who in ("other", "critic"):
        world.observations.subscribe(who, "writer")
    world.does("x")
    world.observations.stop()
    assert set(told) == {"critic", "other"}
    assert world.observations.dropped == 2


@pytest.mark.spec("X35")
def test_queries_have_a_limit_and_a_cap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {"rate_limit": {"max_events": 10_000}}
    world.observations.subscribe("critic", "writer", filter=wide)
    for n in range(120):
        world.does("x" if n % 2 else "y", n=n)
    found = world.observations.query()
    assert [one.data["data"]["n"] for one in found] == list(range(119, 19, -1))
    monkeypatch.setattr(module, "MOST_QUERIED", 30)
    assert len(world.observations.query(limit=5000)) == 30
    assert len(world.observations.query(events="y", limit=3)) == 3
    assert world.observations.query(target="critic") == []
    assert world.observations.query(observer="writer") == []


@pytest.mark.spec("X35")
def test_a_replay_has_its_order_and_pauses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.observations.subscribe("critic", "writer")
    for n in range(3):
        world.does("x", n=n)
        time.sleep(0.02)
    slept: list[float] = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    assert [one.data["data"]["n"] for one in world.observations.replay(speed=2.0)] == [0, 1, 2]
    assert slept[0] == 0
    assert all(0.009 <= one < 5 for one in slept[1:])
    slept.clear()
    world.observations.replay(speed=0, as_new_events=True, target_agent="other")
    assert slept == []
    again = [one for one in world.log.query("x") if "replayed" in one.data]
    assert [(one.data["agent_id"], one.data["n"]) for one in again] == [
        ("other", n) for n in range(3)
    ]
    with pytest.raises(InvalidInputError):
        world.observations.replay(speed=-1)


@pytest.mark.spec("X34", "X35")
def test_what_was_stripped_is_never_replayed_as_if_it_were_whole(world: World) -> None:
    world.observations.subscribe("critic", "writer")
    world.does("x", n=1, text="x" * 2000)
    world.does("x", n=2)
    world.observations.replay(speed=0, as_new_events=True)
    again = [one.data["n"] for one in world.log.query("x") if "replayed" in one.data]
    assert again == [2]


@pytest.mark.spec("X35")
def test_analysis_of_frequency(world: World) -> None:
    assert world.observations.analyze() == {"total": 0, "events": {}, "per_second": 0.0}
    world.observations.subscribe("critic", "writer")
    for name in ("a", "b", "a"):
        world.does(name)
    found = world.observations.analyze("frequency")
    assert (found["total"], found["events"]) == (3, {"a": 2, "b": 1})
    assert found["per_second"] > 0
    with pytest.raises(InvalidInputError):
        world.observations.analyze("luck")


@pytest.mark.spec("S113")
def test_events_about_observations_are_not_observed(world: World) -> None:
    world.observations.subscribe("critic", "writer", "*")
    world.log.emit("observe:begin", {"agent_id": "writer"})
    world.log.emit("observation:ready", {"agent_id": "writer"})
    world.log.emit("x", {"agent": "writer", "n": 1})
    world.log.emit("x", {"source_agent": "writer", "n": 2})
    world.log.emit("x", {"n": 3})
    assert world.observations.list()[0]["observed"] == 2


def test_made_from_what_it_is_made_of(world: World) -> None:
    with pytest.raises(InvalidInputError, match="same face"):
        Observations(world.entities, "log")  # type: ignore[arg-type]

    async def deliver(observer: str, events: Any) -> None: ...

    with pytest.raises(InvalidInputError, match="async def"):
        Observations(world.entities, world.log, deliver=deliver)
    assert isinstance(next(iter(world.observations._infos()), None), ObserverInfo | None)


def test_two_fleets_are_observed_through_one_log(world: World) -> None:
    fleet = Entities(world.store.custom("other"))
    for id in ("critic", "writer"):
        fleet.create("agent", id=id)
    other = Observations(fleet, world.log)
    for one in (other, other, world.observations):
        one.start()
    for one in (other, world.observations):
        one.subscribe("critic", "writer")
    world.does("x", n=1)
    world.observations.stop()
    world.does("x", n=2)
    assert world.seen() == [1, 1, 2]
