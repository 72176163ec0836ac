"""Look at any moment, try something on a timeline of its own, keep it or drop it."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast import sync

with sync.open("memory:") as store:
    state = store.workflow("report")
    state.set("title", "Tides")
    state.append("sections", "Introduction")
    then = datetime.now(UTC)
    safe = state.checkpoint("outline")
    state.append("sections", "Method")
    state.set("title", "Tides of Brest")

    # Any entry, any time, any checkpoint.
    assert state.at(1).keys() == ["title"]
    assert state.at(then).get("sections") == ["Introduction"]
    assert state.at("outline").get("title") == "Tides"
    assert state.at(safe).get("title") == "Tides"

    # A fork starts from a point; nothing is copied, and it cannot be seen from `main`.
    trial = state.fork("what-if", at=safe)
    trial.append("sections", "A bold claim")
    assert trial.get("sections") == ["Introduction", "A bold claim"]
    assert state.get("sections") == ["Introduction", "Method"]
    print(state.diff(safe, trial))

    # It was worth it: the newest state of the fork becomes that of `main`.
    result = state.adopt("what-if")
    assert state.get("sections") == ["Introduction", "A bold claim"]

    # Or it was not.
    state.restore(result.backup)
    assert state.get("title") == "Tides of Brest"
    for timeline in state.timelines():
        print(timeline)
    for entry in state.log(limit=3):
        print(entry.sequence, entry.kinds, entry.cause.reason)
