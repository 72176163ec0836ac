"""Queues of items: each is taken by one, and none is lost but by its end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from store_kit import Between, Hands, Place

import holdfast
from holdfast import sync
from holdfast.errors import InvalidInputError
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core
from holdfast.sync.runtime import Queue
from holdfast.testing import crash


@pytest.mark.spec("X31")
def test_items_are_taken_from_the_front_in_their_order(place: Place) -> None:
    queue = Queue(place.open().custom("work"), "mail")
    assert queue.pop() == queue.peek() == queue.items() == []
    assert queue.push("a", {"b": 1}) == 2
    assert queue.push(3) == 3
    assert queue.push() == 3
    assert queue.peek(2) == ["a", {"b": 1}]
    assert queue.pop() == ["a"]
    again = Queue(place.reopen().custom("work"), "mail")
    assert again.items() == [{"b": 1}, 3]
    assert len(again.items()) == 2
    assert Queue(place.open().custom("work"), "other").items() == []
    assert again.pop(10) == [{"b": 1}, 3]
    assert again.pop(0) == []
    again.push(4)
    assert again.delete() == 1
    assert again.delete() == 0
    again.push(5)
    assert again.pop(2) == [5]


@pytest.mark.spec("X31")
def test_items_end_after_an_hour_unless_they_are_told_otherwise(
    timed: sync.Store, hands: Hands
) -> None:
    queue = Queue(timed.custom("work"), "mail")
    queue.push("minute", ttl=60)
    queue.push("hour")
    queue.push("two hours", ttl=timedelta(hours=2))
    queue.push("ever", ttl=None)
    hands.move(61)
    assert queue.items() == ["hour", "two hours", "ever"]
    hands.move(3538)
    assert len(queue.items()) == 3
    hands.move(2)
    assert queue.peek() == ["two hours"]
    assert queue.pop() == ["two hours"]
    hands.move(10**7)
    assert queue.items() == ["ever"]
    queue.push("new", ttl=None)
    queue.expire(10)
    assert len(queue.items()) == 2
    hands.move(11)
    assert queue.items() == []
    queue.push("after")
    assert queue.pop(5) == ["after"]


@pytest.mark.spec("X38", "X31")
def test_concurrent_queue_push_must_not_lose_items(plain: Place) -> None:
    """A thousand pushes and pops at once lose and double nothing."""

    async def main() -> list[Any]:
        async with holdfast.open(plain.url, **plain.options()) as store:
            queue = holdfast.runtime.Queue(store.custom("work"), "mail")
            got: list[Any] = []

            async def take() -> None:
                got.extend(await queue.pop())

            await asyncio.gather(*(one for n in range(500) for one in (queue.push(n), take())))
            got.extend(await queue.pop(1000))
            return got

    assert sorted(asyncio.run(main())) == list(range(500))


WORK = """
import sys
from holdfast import sync
from holdfast.sync.runtime import Queue
url, key, signer, name = sys.argv[1:]
with sync.open(url, key=key or None, signer=signer, durability="normal") as store:
    queue = Queue(store.custom("work"), "mail")
    got = []
    for n in range(100):
        queue.push(f"{name}{n}")
        got += queue.pop(n % 3)
    print(*got)
"""


@pytest.mark.spec("X38", "X31")
def test_two_processes_that_push_and_pop_have_each_item_once(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    place.open().close()
    arguments = [sys.executable, "-c", WORK, place.url, place.key or "", place.signer]
    others = [
        subprocess.Popen([*arguments, name], env=place.environment(), stdout=subprocess.PIPE)
        for name in "ab"
    ]
    got = [one for other in others for one in other.communicate(timeout=90)[0].decode().split()]
    assert [one.returncode for one in others] == [0, 0]
    got += Queue(place.open().custom("work"), "mail").pop(1000)
    assert Counter(got) == Counter(f"{name}{n}" for name in "ab" for n in range(100))
    place.close()


@pytest.mark.spec("X31")
def test_who_pops_between_a_look_and_a_commit_has_another_item(plain: Place) -> None:
    other = Queue(plain.open().custom("work"), "mail")
    other.push("a", "b", "c")
    between = Between(plain.storage())
    core = open_core(plain.url, storage=between, **plain.options())  # type: ignore[arg-type]
    with sync.Store(StoreHandle(core)) as store:
        queue = Queue(store.custom("work"), "mail")
        got: list[Any] = []
        between.before = lambda: got.extend(other.pop())
        got += queue.pop()
        assert sorted(got) == ["a", "b"]
        assert queue.items() == ["c"]


@pytest.mark.spec("X31", "X38")
@pytest.mark.parametrize("ends", [True, False])
def test_who_pops_while_the_queue_ends_and_begins_anew_takes_nothing_unseen(
    timed: sync.Store, hands: Hands, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Between the look and the commit all that was seen goes, and something else comes."""
    queue, other = (Queue(timed.custom("work"), "mail") for _ in range(2))
    queue.push("seen", ttl=None)
    if ends:
        other.expire(10)
    look = queue._front

    def meanwhile(count: int) -> Any:
        monkeypatch.undo()
        found = look(count)
        if ends:
            hands.move(11)
        else:
            other.delete()
        other.push("new")
        return found

    monkeypatch.setattr(queue, "_front", meanwhile)
    assert queue.pop() == ["new"]
    assert queue.items() == []


def work(store: sync.Store) -> None:
    """Takes what is there into a list of its own, and pushes what follows from it."""
    queue = Queue(store.custom("work"), "mail")
    if not store.custom("work").exists("begun"):
        queue.push(*(n for n in range(5) if n not in queue.items()))
        store.custom("work").set("begun", True)
    while queue.items():
        queue.pop()


def left(store: sync.Store) -> list[Any]:
    items = Queue(store.custom("work"), "mail").items()
    assert items == sorted(items)
    assert len(set(items)) == len(items), "nothing twice"
    return items


@pytest.mark.spec("X31")
def test_killed_at_every_commit_an_item_is_in_it_or_not() -> None:
    report = crash(work, see=left)
    assert report.ok, str(report)
    assert report.commits >= 6


def test_bad_input(store: sync.Store) -> None:
    queue = Queue(store.custom("work"), "mail")
    for call in (
        lambda: Queue(store.custom("work"), "a/b"),
        lambda: Queue(store, "a"),  # type: ignore[arg-type]
        lambda: queue.pop(-1),
        lambda: queue.pop("1"),  # type: ignore[arg-type]
        lambda: queue.push(1, ttl=-1),
        lambda: queue.push(1, ttl="1"),  # type: ignore[arg-type]
        lambda: queue.expire(-1),
        lambda: queue.named(""),
    ):
        with pytest.raises(InvalidInputError):
            call()
    with pytest.raises(holdfast.HoldfastError):
        queue.push(object())
    assert queue.items() == []


def test_a_restore_brings_back_what_was_in_it(store: sync.Store) -> None:
    state = store.custom("work")
    queue = Queue(state, "mail")
    queue.push(1, 2, 3)
    before = state.checkpoint("before")
    queue.pop(2)
    state.restore(before)
    assert queue.pop(5) == [1, 2, 3]
