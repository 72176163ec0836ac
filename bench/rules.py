"""Rules on the way in and out: what hooks cost those who write.

The same agent of one store writes with a hook and without, in turns, so that both have the same
weather and the same file; figures are ratios of one run. Commits take 2 ms longer than the disk of
the machine: see `common.Synced`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from common import Place, Row, at_most, cpu, median, place, quantile, timed

from holdfast.sync.access import Access
from holdfast.sync.hooks import Hooks

SETTLED = 0.3
"""Seconds in which a hook behind has begun."""
ELSEWHERE = """
import sys
from holdfast import sync
from holdfast.sync.hooks import Hooks
with sync.open(sys.argv[1], key=sys.argv[2]) as store:
    Hooks(store).background(name="all")(lambda event, context: None)
    print("ready", flush=True)
    sys.stdin.readline()
"""
Hooked = Callable[[Place, Any], AbstractContextManager[None]]


def run(quick: bool) -> list[Row]:
    """Hooks in front, behind, in the same process and in another."""
    turns = 4 if quick else 20
    name = "a set at a sync of 2 ms beside a background hook on"
    return [
        at_most(
            "a set at a sync of 2 ms with one hook in front that does nothing, of one without",
            _ratio(turns, _front),
            1.05,
        ),
        at_most(f"{name} another scope, of one without", _ratio(turns, _other), 1.05),
        at_most(f"{name} everything, in a process of its own", _ratio(turns, _elsewhere), 1.05),
        at_most(f"{name} everything, in the same process", _ratio(turns, _all), 1.6, goal=True),
        _caught_up(5_000 if quick else 50_000),
        *_guarded(2_000 if quick else 10_000),
    ]


def _ratio(turns: int, hooked: Hooked) -> float:
    """What a set takes with a hook, of what it takes without."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    with place() as here, here.sync(synced=True) as store:
        state = store.agent("a")
        _written(state)
        for turn in range(turns):
            for with_it in (True, False) if turn % 2 else (False, True):
                if with_it:
                    with hooked(here, store):
                        taken[True] += _written(state)
                else:
                    taken[False] += _written(state)
    # The quarter that other programs disturbed least: a set that waits for a core tells nothing.
    return quantile(taken[True], 0.25) / quantile(taken[False], 0.25)


def _written(state: Any) -> list[float]:
    """Seconds of some sets, one by one."""
    return [timed(partial(state.set, f"k{n % 20}", {"number": n})) for n in range(100)]


def _nothing(*_: object) -> None:
    """A hook that has nothing to say."""


@contextmanager
def _front(_: Place, store: Any) -> Iterator[None]:
    hooks = Hooks(store)
    hooks.before(name="idle")(_nothing)
    yield
    hooks.stop()


@contextmanager
def _behind(store: Any, scope: str) -> Iterator[None]:
    hooks = Hooks(store)
    hooks.background(scope=scope, name="behind")(_nothing)
    time.sleep(SETTLED)
    yield
    hooks.stop()


def _other(_: Place, store: Any) -> AbstractContextManager[None]:
    return _behind(store, "agent:other")


def _all(_: Place, store: Any) -> AbstractContextManager[None]:
    return _behind(store, "*")


@contextmanager
def _elsewhere(here: Place, _: Any) -> Iterator[None]:
    words = [sys.executable, "-c", ELSEWHERE, here.url, here.key]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        time.sleep(SETTLED)
        yield
    finally:
        child.communicate("\n")


def _guarded(keys: int) -> list[Row]:
    """Gets of who has one of 1,000 grants, of those of the store's owner, by CPU."""
    names, cold, warm = [f"k{n}" for n in range(keys)], list[float](), list[float]()
    with place() as here:
        with here.sync("normal") as store:
            access = Access(store)
            for first in range(0, keys, 500):
                store.agent("a").set_many(dict.fromkeys(names[first : first + 500], "x" * 200))
            for n in range(1_000):
                access.grant(f"p{n % 10}", f"agent:{n}", "read_write")
            access.grant("p1", "agent:a", "read")

        def each(state: Any, some: list[str]) -> float:
            return cpu(lambda: [state.get(name) for name in some])

        for turn in range(6):
            taken = {}
            for guarded in (True, False) if turn % 2 else (False, True):
                with here.sync("normal") as store:
                    mine = Access(store).as_("p1") if guarded else store
                    mine.agent("a").keys()  # the index is in memory, the values are not
                    first = each(mine.agent("a"), names)
                    taken[guarded] = first, each(mine.agent("a"), names[-500:] * 20)
            cold.append(taken[True][0] / taken[False][0])
            warm.append(taken[True][1] / taken[False][1])
    name = "a get with 1,000 grants, of one without, CPU"
    return [
        at_most(f"{name}: from memory", median(warm), 1.5, goal=True),
        at_most(f"{name}: from SQLite", median(cold), 1.1, goal=True),
    ]


def _caught_up(changes: int) -> Row:
    """How long a background hook goes on behind the last of many changes."""
    with place() as here, here.sync("normal") as store:
        hooks, seen = Hooks(store), []
        hooks.background(name="all")(lambda event, _: seen.append(event.key))
        states = [store.agent(f"a{number}") for number in range(10)]
        for number in range(changes):
            states[number % 10].set("k", number)
        seconds = timed(lambda: hooks.named("all").runner.drain(600.0))
        if len(seen) < changes:
            raise RuntimeError("the hook was not told of all")
        hooks.stop()
    name = f"a background hook is told of the last of {changes:,} changes, after it"
    return at_most(name, seconds, 1, "s")
