"""LangGraph's long-term memory: searches of 100,000 items; puts and gets beside `SqliteStore`.

python bench/langgraph_store.py [--quick]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import Row, at_most, cpu, median, timed, told
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.sqlite import SqliteStore

from holdfast.integrations.langgraph.store.langgraph_store import HoldfastStore

DIMS = 384
SPACE = ("memories", "all")
ROUNDS = 5


def run(quick: bool) -> list[Row]:
    """What is demanded of searches, then rates that are only told."""
    count = 10_000 if quick else 100_000
    return [*searches(count), *rates(200 if quick else 1000)]


def embed(texts: Sequence[str]) -> list[Any]:
    """A direction for every text, the same in every process."""
    found = []
    for text in texts:
        seed = int.from_bytes(text.encode()[-8:], "big")
        found.append(np.random.default_rng(seed).standard_normal(DIMS, dtype=np.float32))
    return found


INDEX: Any = {"dims": DIMS, "embed": embed, "fields": ["text"]}


def value(number: int) -> dict[str, Any]:
    """A memory: a text, a kind that a twentieth shares, a score that is its own."""
    return {"text": f"fact {number}", "kind": f"kind {number % 20}", "score": number / 7}


def searches(count: int) -> list[Row]:
    """The exact ten nearest with a filter, in memory; and how long the first search reads."""
    with folder() as path:
        url = f"sqlite:{path / 'bench.db'}"
        with HoldfastStore.open(url, index=INDEX, durability="normal") as items:
            for start in range(0, count, 1000):
                stop = min(count, start + 1000)
                items.batch([PutOp(SPACE, str(n), value(n)) for n in range(start, stop)])
        with HoldfastStore.open(url, index=INDEX, durability="normal") as items:
            used: list[float] = []
            first = timed(lambda: used.append(cpu(lambda: items.search(SPACE, query="a"))))
            kinds = {
                "a kind (5 %)": {"kind": "kind 3"},
                "a score above half": {"score": {"$gt": count / 14}},
                "all but a kind (95 %)": {"kind": {"$ne": "kind 3"}},
            }
            rows = [_nearest(items, name, wanted, count) for name, wanted in kinds.items()]
            plain = repeated(lambda: items.search(SPACE, filter={"score": count / 14}))
            items.put(SPACE, "new", value(count))
            after = timed(lambda: items.search(SPACE, query="a", filter=kinds["a kind (5 %)"]))
    return [
        *rows,
        at_most(f"a filter alone over {count:,} items", median(plain) * 1e3, 50, "ms"),
        told("a search that first follows a put", after * 1e3, "ms"),
        told(f"the first search reads {count:,} items", first, "s", f"{used[0]:.1f} s of CPU"),
    ]


def _nearest(items: HoldfastStore, name: str, wanted: dict[str, Any], count: int) -> Row:
    used: list[float] = []

    def search() -> None:
        ask = {"query": "fact 77", "filter": wanted, "limit": 10}
        used.append(cpu(lambda: items.search(SPACE, **ask)))  # type: ignore[arg-type]

    times = repeated(search)
    note = f"least {min(times) * 1e3:.1f}; {median(used) * 1e3:.1f} of CPU"
    figure = f"ten nearest of {count:,} x {DIMS}, filter: {name}"
    return at_most(figure, median(times) * 1e3, 50, "ms", note=note)


def rates(count: int) -> list[Row]:
    """Calls a second of both stores in turn, both durable against power loss."""
    found: dict[str, dict[str, list[float]]] = {"ours": {}, "theirs": {}}
    with (
        folder() as path,
        HoldfastStore.open(f"sqlite:{path / 'ours.db'}") as ours,
        SqliteStore.from_conn_string(str(path / "theirs.db")) as theirs,
    ):
        theirs.setup()
        for _ in range(ROUNDS):
            for name, store in {"ours": ours, "theirs": theirs}.items():
                for what, rate in _rates(store, count // ROUNDS).items():
                    found[name].setdefault(what, []).append(rate)
    return [
        told(
            f"{what} a second", median(rate), "",
            f"SqliteStore {common.show(median(found['theirs'][what]))}",
        )
        for what, rate in found["ours"].items()
    ]  # fmt: skip


def _rates(store: BaseStore, count: int) -> dict[str, float]:
    def batches() -> None:
        for start in range(0, 1000, 100):
            ops = [PutOp(("batch",), str(n), value(n)) for n in range(start, start + 100)]
            store.batch(ops)

    calls: dict[str, tuple[int, Callable[[], Any]]] = {
        "puts": (count, lambda: [store.put(SPACE, str(n), value(n)) for n in range(count)]),
        "puts in batches of 100": (1000, batches),
        "gets": (count, lambda: [store.get(SPACE, str(n)) for n in range(count)]),
        "searches by a field": (
            20,
            lambda: [store.search(("batch",), filter={"kind": f"kind {n}"}) for n in range(20)],
        ),
    }
    return {what: number / timed(call) for what, (number, call) in calls.items()}


def repeated(call: Callable[[], Any], times: int = 15) -> list[float]:
    """Seconds of a call, often enough for a median; what the first one builds is not counted."""
    call()
    return [timed(call) for _ in range(times)]


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for stores that are thrown away."""
    with tempfile.TemporaryDirectory(dir=common.FOLDER) as name:
        yield Path(name)


if __name__ == "__main__":
    for row in run("--quick" in sys.argv):
        verdict = {True: "ok", False: "missed", None: ""}[row.ok]
        print(f"{row.figure:60} {row.limit:10} {row.measured:50} {verdict}")
