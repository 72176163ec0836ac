"""Merging: ten keys that differ, of a state with very many."""

from __future__ import annotations

from common import Row, at_least, at_most, median, place, timed, told

from holdfast import sync

ROUNDS = 9
DIFFER = 10


def run(quick: bool) -> list[Row]:
    """A merge of ten keys, against reading both states whole to find them."""
    keys = 20_000 if quick else 100_000
    with place() as here, here.sync("normal") as store:
        main = store.agent("a")
        for start in range(0, keys, 10_000):
            with main.change() as change:
                for number in range(start, start + 10_000):
                    change.set(f"memory/facts/{number:06}", {"fact": number, "by": "main"})
        trial = main.fork("trial")
        merges = [_merge(main, trial, keys, turn) for turn in range(ROUNDS)]
        whole = min(timed(lambda: _read(main, trial)) for _ in range(2))
        nothing = median([timed(lambda: main.merge(trial)) for _ in range(20)])
    took = median(merges)
    name = f"merging {DIFFER} keys of {keys:,} on each side"
    return [
        at_most(name, took * 1e3, 10, "ms", note=f"greatest of {ROUNDS} {max(merges) * 1e3:.1f}"),
        at_least("reading both states whole / that", whole / took, 20),
        told("merging when there is nothing new", nothing * 1e3, "ms"),
    ]


def _merge(main: sync.State, trial: sync.State, keys: int, turn: int) -> float:
    """Seconds of one merge, after both sides changed ten keys each, half of them the same."""
    for number in range(DIFFER):
        key = (turn * 7919 + number * 104_729) % keys
        trial.set(f"memory/facts/{key:06}", {"fact": key, "by": "main", f"trial {turn}": turn})
        other = key if number % 2 else (key + 1) % keys
        main.set(f"memory/facts/{other:06}", {"fact": other, "by": "main", f"main {turn}": turn})
    found = []
    took = timed(lambda: found.append(main.merge(trial)))
    assert len(found[0].keys) == DIFFER
    return took


def _read(main: sync.State, trial: sync.State) -> None:
    """What a merge would have to do without trees: read both, compare."""
    ours, theirs = dict(main.items()), dict(trial.items())
    sum(ours.get(key) != value for key, value in theirs.items())
