"""A cache in Redis in front of a store: a hint, and nothing but a hint."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_kit import Place, put_row, rows_of

import holdfast
from holdfast import Classed, sync
from holdfast.errors import DamagedRecordError
from holdfast.storage.redis import _Fuse

pytestmark = pytest.mark.usefixtures("cached_files")

LONG = {"text": "a sentence that repeats, a sentence that repeats, " * 15}
"""What does not fit into the index, and not into fewer bytes than it has."""


def results(store: Any, call: str = "read") -> dict[str, int]:
    found: dict[str, int] = store.metrics().by("cache", "result", call=call)
    return found


class Rows:
    """What the cache holds of the store in a place, and of its copies."""

    def __init__(self, server: Any, place: Place) -> None:
        self.client = server.client()
        self._names = f"holdfast:{place._open[0].stats()['lineage']}:*"
        self._place = place

    def all(self) -> dict[bytes, bytes]:
        names = sorted(self.client.scan_iter(self._names, count=1000))
        return dict(zip(names, self.client.mget(names), strict=True)) if names else {}

    def put(self, rows: dict[bytes, bytes]) -> None:
        for name, row in rows.items():
            self.client.set(name, row)

    def remove(self) -> None:
        for name in self.all():
            self.client.delete(name)


@pytest.fixture
def cached(place: Place, redis: Any) -> sync.Store:
    """A store that is new, and has the cache in front of it."""
    return place.open(cache=redis.url())


@pytest.mark.spec("K8", "K260")
def test_a_value_comes_from_the_cache(place: Place, cached: sync.Store, redis: Any) -> None:
    cached.agent("a").set("plan", LONG)
    other, counting = place.open_counting(cache=redis.url())
    state = other.agent("a")
    assert state.keys() == ["plan"]
    counting.reset()
    assert state.get("plan") == LONG
    assert counting.calls["get"] == 0
    assert results(other) == {"hit": 1}
    assert results(cached, "write") == {"done": 1}


def test_every_way_to_read_values_asks_it(place: Place, cached: sync.Store, redis: Any) -> None:
    state = cached.agent("a")
    messages = [{"number": n, **LONG} for n in range(40)]
    for message in messages:
        state.append("log", message)
    state.set("plan", LONG)

    def opened() -> tuple[sync.Store, sync.State]:
        store = place.open(cache=redis.url())
        return store, store.agent("a")

    for read in (
        lambda s: s.get("log") == messages,
        lambda s: s.tail("log", 5) == messages[-5:],
        lambda s: s.slice("log", 1, 3) == messages[1:3],
        lambda s: s.get_many(["plan", "log"]) == {"plan": LONG, "log": messages},
        lambda s: dict(s.items()) == {"plan": LONG, "log": messages},
        lambda s: s.item("plan").value == LONG,
        lambda s: s.at(1).tail("log", 1) == messages[:1],
    ):
        store, state = opened()
        assert read(state)
        assert results(store)["hit"] > 0


def test_what_is_read_is_put_there(place: Place, cached: sync.Store, redis: Any) -> None:
    cached.agent("a").set("plan", LONG)
    rows = Rows(redis, place)
    (name,) = rows.all()
    assert 0 < rows.client.pttl(name) <= 3_600_000
    rows.remove()
    for expected in ({"miss": 1}, {"hit": 1}):
        other = place.open(cache=redis.url(), cache_ttl=60)
        assert other.agent("a").get("plan") == LONG
        assert results(other) == expected
    assert 0 < rows.client.pttl(name) <= 60_000


def test_the_async_face_reads_through_it_and_the_loop_does_not_wait(
    place: Place, cached: sync.Store, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking: set[int] = set()
    run = _Fuse.run
    monkeypatch.setattr(_Fuse, "run", lambda *a: asking.add(threading.get_ident()) or run(*a))
    cached.agent("a").set("plan", LONG)
    asking.clear()

    async def read() -> dict[str, int]:
        async with holdfast.open(place.url, **place.options(cache=redis.url())) as store:
            assert await store.agent("a").get("plan") == LONG
            await store.agent("a").set("other", LONG)
            return results(store)

    assert asyncio.run(read()) == {"hit": 1}
    assert asking
    assert threading.get_ident() not in asking


def test_a_write_of_others_is_seen_at_once(place: Place, cached: sync.Store, redis: Any) -> None:
    other = place.open(cache=redis.url())
    for number in range(5):
        cached.agent("a").set("plan", {"number": number, **LONG})
        assert other.agent("a").get("plan")["number"] == number
    cached.agent("a").delete("plan")
    assert other.agent("a").get("plan") is None
    assert other.agent("b").get("plan") is None


@pytest.mark.parametrize(
    "row", [b"", b"x", b"\x01" * 4000, b"\x07" * 2_000_000], ids=["none", "short", "false", "long"]
)
def test_rubbish_is_never_damage(place: Place, cached: sync.Store, redis: Any, row: bytes) -> None:
    cached.agent("a").set("plan", LONG)
    rows = Rows(redis, place)
    good = rows.all()
    rows.put(dict.fromkeys(good, row))
    other = place.open(cache=redis.url())
    assert other.agent("a").get("plan") == LONG
    assert rows.all() == good  # what was read from the engine is put in its place
    assert results(other).get("hit") is None


def test_every_byte_of_a_row_can_be_another(place: Place, cached: sync.Store, redis: Any) -> None:
    cached.agent("a").set("plan", LONG)
    rows = Rows(redis, place)
    ((name, good),) = rows.all().items()
    core = cached._core
    for at in range(0, len(good), 7):
        rows.put({name: good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :]})
        core.atoms.clear()
        assert cached.agent("a").get("plan") == LONG
    rows.client.delete(name)
    rows.client.lpush(name, "of another type")
    core.atoms.clear()
    assert cached.agent("a").get("plan") == LONG
    assert results(cached).get("failed") is None


def test_rows_in_each_others_place_are_not_believed(
    place: Place, cached: sync.Store, redis: Any
) -> None:
    keys = [f"k{n}" for n in range(6)]
    for key in keys:
        cached.agent("a").set(key, {"key": key, **LONG})
        cached.agent("b").set(key, {"key": f"b {key}", **LONG})
    rows = Rows(redis, place)
    good = rows.all()
    assert len(good) == 12
    rows.put(dict(zip(good, [*good.values()][::-1], strict=True)))
    other = place.open(cache=redis.url())
    assert [value["key"] for _, value in other.agent("a").items()] == keys
    assert [value["key"] for _, value in other.agent("b").items()] == [f"b {key}" for key in keys]
    assert results(other) == {"wrong": 12}


@pytest.mark.parametrize("sealed", [False, True])
def test_a_copy_that_went_its_own_way_leads_nobody_astray(
    tmp_path: Path, redis: Any, sealed: bool
) -> None:
    """Both have the same lineage, instance, keys and row keys, and other rows there."""
    first = Place("sqlite", tmp_path, sealed=sealed)
    with first.open() as store:
        store.agent("a").set("start", 1)
    second = Place("sqlite", tmp_path, sealed=sealed)
    second.key, second.signer = first.key, first.signer
    second.url = f"sqlite:{tmp_path / 'copy' / 'store.db'}"
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    for place, text in ((first, "of the first"), (second, "of the second")):
        store = place.open(cache=redis.url())
        for number in range(30):
            store.agent("a").set(f"k{number}", {"by": text, **LONG})
    for _ in range(2):  # each finds what the other one has left there
        for place, text in ((first, "of the first"), (second, "of the second")):
            store = place.reopen(cache=redis.url())
            assert {value["by"] for _, value in store.agent("a").items("k")} == {text}
            store.agent("a").append("log", [text, LONG])
            assert store.verify().ok
            assert results(store)["wrong"] > 0
    first.close()
    second.close()


def test_two_stores_share_a_server(tmp_path: Path, redis: Any) -> None:
    for name in ("one", "two"):
        with sync.open(f"sqlite:{tmp_path / name}.db", cache=redis.url()) as store:
            store.agent("a").set("plan", {"of": name, **LONG})
    for name in ("one", "two"):
        with sync.open(f"sqlite:{tmp_path / name}.db", cache=redis.url()) as store:
            assert store.agent("a").get("plan")["of"] == name
            assert results(store) == {"hit": 1}


def test_verify_does_not_ask_it(place: Place, cached: sync.Store, redis: Any) -> None:
    text = "a sentence that repeats, " * 300  # in a row of its own
    cached.agent("a").set("plan", text)
    other, bare = place.open(cache=redis.url()), place.open()
    for store in (other, bare):
        assert store.agent("a").keys() == ["plan"]
        store._core.atoms.clear()
    storage = place.storage()
    ((key, row),) = rows_of(storage, b"V")
    put_row(storage, key, row[:-1] + bytes([row[-1] ^ 1]))
    assert other.agent("a").get("plan") == text
    with pytest.raises(DamagedRecordError):
        bare.agent("a").get("plan")
    assert key.hex() in [one.row for one in other.verify().findings]
    assert results(other) == {"hit": 1}
    storage.close()


# what may not lie there


def test_what_is_sensitive_is_never_there(place: Place, cached: sync.Store, redis: Any) -> None:
    state = cached.agent("a")
    state.declare(Classed("billing/", "sensitive"))
    state.set("note", LONG, class_="sensitive")
    state.set("billing/card", LONG)
    state.set("api_token", LONG)
    for number in range(30):
        state.append("secrets/log", {"number": number, **LONG})
    with state.change() as change:  # one row holds both
        change.set("password", LONG)
        change.set("plan", LONG)
    rows = Rows(redis, place)
    assert rows.all() == {}
    other = place.open(cache=redis.url())
    found = dict(other.agent("a").items())
    assert found["plan"] == found["password"] == LONG
    assert other.agent("a").tail("secrets/log", 2)[1]["number"] == 29
    assert other.agent("a").get_many(["note", "billing/card"]) == {
        "note": LONG,
        "billing/card": LONG,
    }
    assert rows.all() == {}
    state.set("open", LONG)
    assert len(rows.all()) == 1


def test_a_key_that_becomes_sensitive_is_not_put_there_any_more(
    place: Place, cached: sync.Store, redis: Any
) -> None:
    state = cached.agent("a")
    state.set("people/ann", LONG)
    state.set("people/log", [LONG] * 3)
    state.declare(Classed("people/", "sensitive"))
    rows = Rows(redis, place)
    rows.remove()
    other = place.open(cache=redis.url()).agent("a")
    assert other.get("people/ann") == LONG
    assert other.tail("people/log", 1) == [LONG]
    assert len(other.items()) == 2
    assert other.get_many(["people/ann"]) == {"people/ann": LONG}
    assert rows.all() == {}
    reads: list[Callable[[sync.View], Any]] = [
        lambda view: view.get("people/ann"),
        lambda view: view.tail("people/log", 1),
        lambda view: view.items(),
        lambda view: view.get_many(["people/ann", "people/log"]),
    ]
    for number, read in enumerate(reads):  # of a point where it was not
        with place.open(cache=redis.url()) as fresh:
            read(fresh.agent("a").at("main@2"))
        assert rows.all() == {}, number


def test_an_erased_scope_leaves_it(place: Place, cached: sync.Store, redis: Any) -> None:
    for name in ("a", "b"):
        for number in range(3):
            cached.agent(name).set("plan", {"number": number, **LONG})
    rows = Rows(redis, place)
    before = rows.all()
    assert len(before) == 6
    erased = cached.erase("agent:a")
    assert len(rows.all()) == 3
    assert any("cache" in text and "3600 s" in text for text in erased.open)
    rows.put(before)  # somebody was late, or has kept it
    other = place.open(cache=redis.url())
    assert other.agent("a").get("plan") is None
    other.agent("a").set("plan", "another")
    assert other.agent("a").get("plan") == "another"
    assert other.agent("b").get("plan")["number"] == 2


def test_what_is_pruned_leaves_it(place: Place, cached: sync.Store, redis: Any) -> None:
    state = cached.agent("a")
    for number in range(40):
        state.set("plan", {"number": number, **LONG})
    rows = Rows(redis, place)
    assert len(rows.all()) == 40
    state.prune(40)
    assert len(rows.all()) == 1
    other = place.open(cache=redis.url())
    assert other.agent("a").get("plan")["number"] == 39


def test_records_that_are_sealed_again(tmp_path: Path, redis: Any) -> None:
    place = Place("sqlite", tmp_path, sealed=True)
    store = place.open(cache=redis.url())
    store.agent("a").set("plan", LONG)
    rows = Rows(redis, place)
    old = rows.all()
    store.rotate("agent:a")
    assert any("cache" in text for text in store.reseal("agent:a")[0].open)
    assert rows.all() == {}
    rows.put(old)  # under a key that is gone
    other = place.open(cache=redis.url())
    assert other.agent("a").get("plan") == LONG
    assert results(other) == {"wrong": 1}
    assert list(rows.all()) == list(old)
    assert rows.all() != old
    place.close()
