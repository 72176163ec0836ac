"""Keys: rotation of masters and data keys, erasing, and what the audit of secrets costs."""

from __future__ import annotations

import os
import time

from common import Row, at_most, message, place, timed, told

from holdfast import sync


def run(quick: bool) -> list[Row]:
    """The master key, then a data key."""
    return [
        *master(1000 if quick else 10_000),
        *data(500 if quick else 5000),
        *erasing(100 if quick else 1000),
        *auditing(2000 if quick else 20_000),
    ]


def master(scopes: int) -> list[Row]:
    """Both steps, over a ring with so many scopes, at `full`."""
    with place() as here, here.sync() as store:
        ring = store._core.ring
        assert ring is not None
        # Only the ring matters: its rows are put without the scopes themselves.
        for _ in range(0, scopes, 500):
            staged = [row for _ in range(500) for row in ring.stage_scope(os.urandom(16))[1]]
            ring.commit(staged)
        start = time.perf_counter()
        store.begin_rotation(f"{here.key}.new")
        begun = time.perf_counter()
        store.finish_rotation()
        seconds = time.perf_counter() - start
    name = f"rotation of the master, {scopes:,} scopes"
    return [
        at_most(name, seconds, 1 if scopes == 10_000 else 0.2, "s"),
        told("the same, until both keys open the store", begun - start, "s"),
    ]


def data(messages: int) -> list[Row]:
    """A conversation in entries of one message each, at `normal`."""
    with place() as here, here.sync("normal") as store:
        state = store.agent("a")
        for number in range(messages):
            state.append("messages", message(number))
        rotating = _seconds(store, "rotate")
        resealing = _seconds(store, "reseal")
    return [
        told("a new data key for a scope", rotating * 1e3, "ms"),
        told(f"{messages:,} messages sealed again", resealing, "s"),
    ]


def erasing(megabytes: int) -> list[Row]:
    """A scope of so many megabytes, and one of a tenth, but of values of 1 KB: at `full`."""
    rows = []
    for name, size, fill in (
        (f"{megabytes:,} MB, one long value", megabytes, _fill_long),
        (f"{megabytes // 10:,} MB of values of 1 KB", megabytes // 10, _fill_short),
    ):
        with place() as here:
            with here.sync("normal") as store:
                fill(store.agent("a"), size)
            with here.sync("full") as store:
                start = time.perf_counter()
                store.erase("agent:a", wait=False)
                gone = time.perf_counter() - start
                dropping = _seconds(store, "erase")
        rows += [
            at_most(f"erase of {name}, until the key is gone", gone * 1e3, 50, "ms"),
            told("the same, until its rows are dropped", dropping, "s"),
        ]
    return rows


def _fill_long(state: sync.State, megabytes: int) -> None:
    with state.open_write("long") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1_000_000))


def _fill_short(state: sync.State, megabytes: int) -> None:
    for group in range(megabytes):
        with state.change() as change:
            for number in range(1000):
                change.set(f"{group}/{number}", os.urandom(1000))


def auditing(count: int) -> list[Row]:
    """Reads of one secret, noted or not, at `full`; the commits of the notes included."""
    with place() as here, here.sync("full") as store:
        state = store.agent("a")
        state.set("api_token", "secret")

        def read() -> None:
            for _ in range(count):
                state.get("api_token")

        plain = timed(read)
        start = time.perf_counter()
        with sync.access.Audit(store):
            read()
        noted = time.perf_counter() - start
    return [told("a read of a secret that is noted, more", (noted - plain) / count * 1e6, "µs")]


def _seconds(store: sync.Store, what: str) -> float:
    start = time.perf_counter()
    getattr(store, what)("agent:a")
    return time.perf_counter() - start
