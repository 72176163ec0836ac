"""Keys that expire: absent from then on, removed by an entry, never by a clock that jumps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Hands, Place

import holdfast
from holdfast import sync
from holdfast.errors import ChangeIdError, Conflict, InvalidInputError, MissingError, Unavailable
from holdfast.store.journal.timeline import DELTA_EVERY, TAIL


def absent(state: Any, key: str) -> bool:
    """Whether every way of reading says that a key is not there."""
    answers = [
        state.get(key, "none") == "none",
        state.get_many([key]) == {},
        state.item(key) is None,
        not state.exists(key),
        state.keys(key) == [],
        key not in dict(state.items()),
        state.tail(key, 5) == [],
        state.slice(key) == [],
        state.length(key) == 0,
    ]
    assert len(set(answers)) == 1, answers
    return answers[0]


def test_expired_key_reads_as_absent(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.set("list", [1, 2], ttl=10)
    state.set("long", list(range(2000)), ttl=timedelta(seconds=10))
    state.set("fixed", [1], expires=hands.time(10))
    state.set("stays", [1])
    item = state.item("list")
    assert item is not None
    assert item.expires == hands.time(10)
    assert state.item("stays").expires is None  # type: ignore[union-attr]
    hands.move(9.999999)
    assert not any(absent(state, key) for key in ("list", "long", "fixed"))
    hands.move(0.000001)
    assert all(absent(state, key) for key in ("list", "long", "fixed"))
    assert not absent(state, "stays")
    assert timed.verify().ok


def test_terms_survive_saves_and_other_handles(place: Place, hands: Hands) -> None:
    state = place.open(clock=hands.clock).agent("a")
    other = place.open(clock=hands.clock).agent("a")
    state.set("short", 1, ttl=100)
    state.set("medium", "x" * 300, ttl=100)
    state.set("long", {f"key {n}": n for n in range(500)}, ttl=100)
    assert other.item("long").expires == hands.time(100)  # type: ignore[union-attr]
    state.checkpoint()
    for number in range(DELTA_EVERY * 2):
        state.set(f"other/{number % 7}", number)
    keys = ("short", "medium", "long")
    again = place.reopen(clock=hands.clock).agent("a")
    assert [again.item(key).expires for key in keys] == [hands.time(100)] * 3  # type: ignore[union-attr]
    assert again.get("long")["key 7"] == 7
    report = place.open(clock=hands.clock).verify()
    assert report.ok, report
    safe = again.checkpoint()
    assert again.restore(safe, verify="full").keys == 10
    hands.move(100)
    assert not any(again.exists(key) for key in keys)


def test_set_anew_forgets_the_expiry_and_update_keeps_it(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.set("set", 1, ttl=10)
    state.set("updated", 1, ttl=10)
    state.set("set", 2)
    state.update("updated", lambda value: value + 1)
    assert state.item("updated").expires == hands.time(10)  # type: ignore[union-attr]
    hands.move(10)
    assert state.get("set") == 2
    assert absent(state, "updated")
    assert state.update("updated", lambda value: value + 1, default=100) == 101
    assert state.item("updated").expires is None  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [3, 2000])
def test_append_keeps_the_expiry_until_it_has_come(
    timed: sync.Store, hands: Hands, size: int
) -> None:
    state = timed.agent("a")
    state.set("list", list(range(size)), ttl=10)
    state.append("list", "more")
    state.extend("list", range(TAIL + 1))
    assert state.item("list").expires == hands.time(10)  # type: ignore[union-attr]
    assert state.length("list") == size + 1 + TAIL + 1
    hands.move(10)
    state.append("list", "new")
    assert state.get("list") == ["new"]
    assert state.item("list").expires is None  # type: ignore[union-attr]
    assert timed.verify().ok


def test_versions_and_conditions(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    version = state.set("k", 1, ttl=10)
    state.expire("k", 20)
    assert state.item("k").version == version  # type: ignore[union-attr]
    state.set("k", 2, if_version=version, ttl=10)
    version = state.item("k").version  # type: ignore[union-attr]
    hands.move(10)
    with pytest.raises(Conflict):
        state.set("k", 3, if_version=version)
    assert state.delete("k") is False
    state.set("k", 4, if_version=0)
    assert state.get("k") == 4
    with timed.change() as change:
        change[state].set("m", 1, ttl=5)
    with pytest.raises(Conflict), state.change() as part:
        assert part.get("m") == 1
        hands.move(5)
        part.set("seen", True)
    with state.change() as part:
        assert part.get("m") is None
        assert part.keys("m") == []
        part.append("m", 1)
    assert state.get("m") == [1]


def test_expire_and_persist(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.set("k", [1])
    state.expire("k", 10)
    state.expire("k", expires=hands.time(20))
    assert state.item("k").expires == hands.time(20)  # type: ignore[union-attr]
    state.persist("k")
    hands.move(30)
    assert state.get("k") == [1]
    with state.change() as part:
        part.set("one", 1)
        part.expire("one", 5)
        part.persist("k")
    kinds = [entry.operations for entry in state.log(key="one")]
    assert kinds == [(("set", "one"),)]
    assert [entry.kinds for entry in state.log(key="k")][1:] == [("expire",)] * 2 + [("set",)]
    hands.move(5)
    assert absent(state, "one")
    for refused in (state.persist, lambda key: state.expire(key, 5)):
        with pytest.raises(MissingError):
            refused("one")
        with pytest.raises(MissingError):
            refused("never")


@pytest.mark.parametrize(
    "terms",
    [
        {"ttl": 0},
        {"ttl": -1},
        {"ttl": True},
        {"ttl": "60"},
        {"ttl": float("nan")},
        {"ttl": float("inf")},
        {"ttl": timedelta(0)},
        {"ttl": 1, "expires": datetime.now(UTC)},
        {"expires": datetime(2030, 1, 1)},  # noqa: DTZ001
        {"expires": 1_900_000_000},
        {"sliding": True},
        {"sliding": True, "expires": datetime.now(UTC)},
        {"sliding": 1, "ttl": 1},
    ],
)
def test_terms_that_cannot_be_meant_are_refused(store: sync.Store, terms: dict[str, Any]) -> None:
    state = store.agent("a")
    with pytest.raises(InvalidInputError):
        state.set("k", 1, **terms)
    assert not state.exists("k")
    state.set("k", 1)
    with pytest.raises(InvalidInputError):
        state.expire("k", **terms)
    with pytest.raises(InvalidInputError):
        state.expire("k")
    assert state.item("k").expires is None  # type: ignore[union-attr]


def test_sliding_is_put_off_by_reading_after_a_tenth(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.set("k", [1], ttl=100, sliding=True)
    first = state._handle.place()[2]
    hands.move(10)
    assert state.get("k") == [1]
    assert state._handle.place()[2] == first
    reads = (
        lambda: state.get("k"),
        lambda: state.get_many(["k"]),
        lambda: state.item("k"),
        lambda: state.items(),
        lambda: state.tail("k", 1),
        lambda: state.slice("k", 0, 1),
    )
    for number, read in enumerate(reads, 1):
        hands.move(50)
        read()
        assert state._handle.place()[2] == first + number
    entry = state.log(limit=1)[0]
    assert (entry.kinds, entry.cause.actor) == (("expire",), "system")
    assert state.item("k").version == first  # type: ignore[union-attr]
    hands.move(99)
    state.exists("k")
    state.keys()
    state.at(first).get("k")
    hands.move(1)
    assert absent(state, "k")


def test_sliding_in_an_event_loop(place: Place, hands: Hands) -> None:
    async def main(durability: str) -> None:
        options = place.options(clock=hands.clock, durability=durability)
        async with holdfast.open(place.url, **options) as store:
            state = store.agent("a")
            await state.set("k", [1], ttl=100, sliding=True)
            for _ in range(3):
                hands.move(60)
                assert await state.get("k") == [1]
                await state.set("other", 1)  # behind what the read has written
            assert (await state.item("k")).expires == hands.time(hands.passed + 100)
            await state.persist("k")
            async with state.change() as change:
                change.set("m", 1, ttl=5)
                change.expire("k", 5)
            hands.move(5)
            assert await state.sweep() == 2
            assert (await store.sweep()).keys == 0
            assert await state.keys() == ["other"]

    asyncio.run(main("normal"))
    asyncio.run(main("full"))


def test_read_only_store_reads_what_slides(plain: Place, hands: Hands) -> None:
    plain.open(clock=hands.clock).agent("a").set("k", 1, ttl=100, sliding=True)
    reader = plain.open(clock=hands.clock, read_only=True).agent("a")
    hands.move(50)
    assert reader.get("k") == 1
    hands.move(50)
    assert reader.get("k") is None


def test_sweep_writes_the_entry_that_removes(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    for number in range(25):
        state.set(f"k/{number:02}", "x" * number, ttl=10 if number % 2 else None)
    before, root = state._handle.place()[2], state.root()
    fork = state.fork("trial")
    hands.move(10)
    assert state.root() == root
    assert state.sweep(limit=5) == 5
    assert state.root() != root
    entry = state.log(limit=1)[0]
    assert entry.kinds == ("delete",)
    assert (entry.cause.actor, entry.cause.reason) == ("system", "expired")
    assert len(entry.keys) == 5
    assert state.sweep() == 7
    assert state.sweep() == 0
    assert timed.sweep().keys == 12, "those of the fork"
    assert fork.sweep() == 0
    assert state.at(before).get("k/03") == "xxx"
    assert len(state.keys()) == 13
    assert timed.agent("none").sweep() == 0
    assert timed.verify().ok


def test_sweep_removes_nothing_that_was_renewed(timed: sync.Store, hands: Hands) -> None:
    from holdfast.store.upkeep import expiry

    state = timed.agent("a")
    state.set("k", 1, ttl=10)
    state.set("m", 1, ttl=10)
    hands.move(10)
    found = expiry._expired(state._handle, "", 10)[0]
    assert found == ["k", "m"]
    state.set("k", 2)
    assert expiry._remove(state._handle, found) == 1
    state.set("m", 2, ttl=5)
    assert expiry._remove(state._handle, found) == 0
    assert (state.get("k"), state.get("m")) == (2, 2)


def test_a_view_judges_by_its_own_time(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.set("k", 1, ttl=10)
    first = state._handle.place()[2]
    hands.move(5)
    safe = state.checkpoint("safe")
    hands.move(5)
    state.set("other", 1)
    second = state._handle.place()[2]
    state.sweep()
    assert absent(state, "k")
    assert state.at(first).get("k") == 1
    assert state.at("safe").item("k").expires == hands.time(10)  # type: ignore[union-attr]
    assert state.at(second).get("k") is None
    assert state.at(hands.time(9)).get("k") == 1
    assert state.at(hands.time(10)).get("k") is None
    assert state.at(hands.time(9)).keys() == ["k"]
    assert safe.sequence


def test_restore_keeps_the_absolute_expiry(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.set("k", 1, ttl=10)
    state.set("m", 1, ttl=100)
    safe = state.checkpoint("safe")
    hands.move(50)
    assert state.sweep() == 1
    state.set("m", 2)
    planned = state.restore(safe, dry_run=True)
    assert [change.path for change in planned.diff] == ["m", "m (expires)"]
    state.restore(safe)
    assert absent(state, "k")
    assert state.item("m").expires == hands.time(100)  # type: ignore[union-attr]
    assert state.root() == safe.root


def test_diff_log_and_revert(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.set("k", {"a": 1}, ttl=100)
    safe = state.checkpoint()
    with timed.acting("other", correlation="run"):
        state.set("k", {"a": 2})
        state.set("new", 1, ttl=10)
        state.set("old", 1)
        state.expire("old", 1000)
    diff = state.diff(safe)
    assert [(c.path, c.kind) for c in diff] == [
        ("k.a", "changed"),
        ("k (expires)", "removed"),
        ("new", "added"),
        ("old", "added"),
    ]
    hands.move(10)
    assert "new" not in state.diff(safe).keys
    done = state.revert(correlation="run")
    assert done.done == ["k", "new", "old"]
    assert state.item("k").expires == hands.time(100)  # type: ignore[union-attr]
    assert state.root() == safe.root
    assert timed.verify().ok


def test_equal_terms_give_equal_roots(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.set("k", 1, expires=hands.time(100))
    root = state.root()
    state.set("k", 1)
    plain = state.root()
    state.expire("k", expires=hands.time(100))
    assert state.root() == root != plain
    state.persist("k")
    assert state.root() == plain


def test_a_change_with_an_id_may_be_sent_again_later(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")

    def send(ttl: float) -> None:
        with state.change(id="once") as change:
            change.set("k", 1, ttl=ttl)

    send(10)
    hands.move(5)
    send(10)
    assert state.item("k").expires == hands.time(10)  # type: ignore[union-attr]
    with pytest.raises(ChangeIdError):
        send(20)


@pytest.mark.parametrize("jump", [61, 86_400, 10 * 365 * 86_400])
def test_a_clock_that_jumps_forward_expires_nothing(
    timed: sync.Store, hands: Hands, jump: float
) -> None:
    state = timed.agent("a")
    state.set("k", 1, ttl=60)
    hands.move(30)
    hands.wall += jump
    assert state.get("k") == 1
    assert timed.sweep().keys == 0
    state.set("other", 1)  # which notes the step
    assert state.log(limit=1)[0].clock_step == jump
    assert state.get("k") == 1
    state.set("m", 1, ttl=60)
    assert state.item("m").expires == hands.time(90)  # type: ignore[union-attr]
    hands.move(30)
    assert absent(state, "k")
    assert timed.sweep().keys == 1
    hands.wall -= jump
    assert state.get("m") == 1


def test_a_clock_that_was_ahead_and_is_set_back_is_followed(
    timed: sync.Store, hands: Hands
) -> None:
    state = timed.agent("a")
    state.set("k", 1, ttl=60)
    hands.move(60)
    assert absent(state, "k")
    hands.wall -= 3600
    assert state.get("k") == 1
    hands.wall += 3600
    assert absent(state, "k")


Keys = st.sampled_from(["a", "b", "c"])
Steps = st.one_of(
    st.tuples(st.just("set"), Keys, st.sampled_from([None, 3, 7])),
    st.tuples(st.just("slide"), Keys, st.sampled_from([10, 20])),
    st.tuples(st.just("append"), Keys, st.none()),
    st.tuples(st.just("expire"), Keys, st.sampled_from([2, 5])),
    st.tuples(st.just("persist"), Keys, st.none()),
    st.tuples(st.just("delete"), Keys, st.none()),
    st.tuples(st.just("read"), Keys, st.none()),
    st.tuples(st.just("move"), st.just(""), st.integers(1, 5)),
    st.tuples(st.just("sweep"), st.just(""), st.none()),
    st.tuples(st.just("checkpoint"), st.just(""), st.none()),
)


@settings(max_examples=60)
@given(st.lists(Steps, max_size=40))
def test_against_a_plain_model(steps: list[tuple[str, str, Any]]) -> None:
    hands = Hands()
    model: dict[str, tuple[list[int], float, float]] = {}
    with sync.open("memory:", clock=hands.clock) as store:
        state = store.agent("a")
        for number, (kind, key, value) in enumerate(steps):
            now = hands.passed
            model = {k: v for k, v in model.items() if v[1] > now}
            old = model.get(key)
            if kind == "set":
                state.set(key, [number], ttl=value)
                model[key] = ([number], now + value if value else float("inf"), 0)
            elif kind == "slide":
                state.set(key, [number], ttl=value, sliding=True)
                model[key] = ([number], now + value, value)
            elif kind == "append":
                state.append(key, number)
                items, until, term = old or ([], float("inf"), 0)
                model[key] = ([*items, number], until, term)
            elif kind in ("expire", "persist"):
                if old is None:
                    continue
                getattr(state, kind)(*([key] if value is None else [key, value]))
                model[key] = (old[0], now + value if value else float("inf"), 0)
            elif kind == "delete":
                assert state.delete(key) is (old is not None)
                model.pop(key, None)
            elif kind == "read":
                assert state.get(key) == (old[0] if old else None)
                if old and old[2] and now > old[1] - old[2] * 0.9:
                    model[key] = (old[0], now + old[2], old[2])
            elif kind == "move":
                hands.move(value)
            elif kind == "sweep":
                state.sweep()
            else:
                state.checkpoint()
            now = hands.passed
            assert state.keys() == sorted(k for k, v in model.items() if v[1] > now)
        assert store.verify().ok


def test_a_read_does_not_fail_because_nothing_can_be_written(
    timed: sync.Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = timed.agent("a")
    state.set("k", 1, ttl=100, sliding=True)
    hands.move(50)

    def commit(_: Any) -> None:
        raise Unavailable("no space")

    with monkeypatch.context() as patch:
        patch.setattr(timed._core.storage, "commit", commit)
        assert state.get("k") == 1
    assert state.item("k").expires == hands.time(100)  # type: ignore[union-attr]
    assert state.item("k").expires == hands.time(150)  # type: ignore[union-attr]


def test_ephemeral_keys_expire(timed: sync.Store, hands: Hands) -> None:
    state = timed.agent("a")
    state.declare(holdfast.Ephemeral("tmp/"))
    head = state._handle.place()[2]
    state.set("tmp/a", [1], ttl=10)
    state.append("tmp/a", 2)
    state.set("tmp/b", 1)
    state.expire("tmp/b", 20)
    assert state.item("tmp/a").expires == hands.time(10)  # type: ignore[union-attr]
    assert state._handle.reader.class_of("tmp/a") == "ephemeral"
    with pytest.raises(InvalidInputError):
        state.set("tmp/c", 1, ttl=10, sliding=True)
    version = state.item("tmp/a").version  # type: ignore[union-attr]
    hands.move(10)
    assert absent(state, "tmp/a")
    assert state.keys() == ["tmp/b"]
    with pytest.raises(Conflict):
        state.set("tmp/a", 1, if_version=version)
    assert state.sweep() == 1
    assert state.delete("tmp/a") is False
    state.append("tmp/a", 3)
    assert state.get("tmp/a") == [3]
    with pytest.raises(MissingError):
        state.persist("tmp/none")
    assert state._handle.place()[2] == head
