"""Two processes with 64 writers each on one scope, against one process alone."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from common import Row, answer, at, at_least, at_most, in_child, place, start_child, told, writers

WRITERS = 64


def run(quick: bool) -> list[Row]:
    """Together, each, and the longest wait."""
    seconds = 2.0 if quick else 5.0
    with place() as here:
        folder = str(here.folder.parent)
        with here.sync() as store:
            store.agent("a").set("first", 1)
        alone = in_child("processes:write", folder=folder, name="alone", seconds=seconds, start=0)
        start = time.time() + 1.0
        children = [
            start_child("processes:write", folder=folder, name=name, seconds=seconds, start=start)
            for name in ("left", "right")
        ]
        both = [answer(child) for child in children]
        with here.sync() as store:
            report = store.verify()
            last = store.agent("a")._handle.place()[2]
    together = sum(one["rate"] for one in both)
    written = 1 + alone["done"] + sum(one["done"] for one in both)
    return [
        at_least("two processes together / one", together / alone["rate"], 0.5),
        at_least("the slower one's part", min(one["rate"] for one in both) / together, 0.25),
        at_most("longest wait for a set", max(one["longest"] for one in both), 0.25, "s"),
        at_most(
            "sets lost, and findings of verify",
            written - last + len(report.findings),
            0,
            note=f"{written:,} written",
        ),
        told("one process", alone["rate"], "sets/s"),
        told("two processes together", together, "sets/s"),
    ]


def write(folder: str, name: str, seconds: float, start: float) -> dict[str, Any]:
    """64 writers for so many seconds, from a moment on."""

    async def work() -> dict[str, Any]:
        async with at(folder).open() as store:
            state = store.agent("a")
            await state.get("first")
            await asyncio.sleep(max(0.0, start - time.time()))
            load = await writers(
                WRITERS, seconds, lambda w, n: state.set(f"{name}/{w}/{n % 16}", {"fact": n})
            )
        return {"rate": load.rate, "done": load.done, "longest": load.longest}

    return asyncio.run(work())
