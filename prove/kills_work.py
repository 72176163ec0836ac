"""A writer that is killed: `kills_work.py URL NAME SEED LEVEL`; each line says what returned."""

from __future__ import annotations

import os
import random
import sys

from holdfast import sync
from holdfast.store.journal import timeline


def main(url: str, name: str, seed: str, level: str) -> None:
    """Write until killed. After each commit its number goes to stdout."""
    timeline.DELTA_EVERY = 16
    draw = random.Random(seed)
    with sync.open(url, durability=level) as store:
        mine, shared = store.agent(name), store.shared
        start = mine.get("count", 0)
        os.write(1, b"%d\n" % start)
        for number in range(start + 1, 1 << 40):
            with store.change(id=f"{name}-{number}") as change:
                change[mine].set("count", number)
                change[mine].append("own", number)
                change[shared].append("all", [name, number])
            roll = draw.random()
            if roll < 0.1:
                mine.set("text", f"{number} " * draw.randrange(3000))
            elif roll < 0.2:
                mine.checkpoint(f"at {number}")
            elif roll < 0.25:
                trial = mine.fork(f"trial {number}")
                trial.set("count", -number)
            os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main(*sys.argv[1:])
