"""The same names without `await`, on an encrypted store, from several threads."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import holdfast
from holdfast import sync
from holdfast.errors import Conflict, KeyMissingError


@holdfast.register
@dataclass
class Budget:
    limit: int
    spent: int = 0


def main(folder: Path) -> None:
    (folder / "secrets").mkdir()  # keys belong somewhere else than the data
    url, key = f"sqlite:{folder}/agents.db", f"file:{folder}/secrets/agents.key"

    with sync.open(url, key=key) as store:
        state = store.agent("buyer")
        state.set("budget", Budget(limit=100))

        # A function of the old value; nobody's update is lost.
        def spend(budget: Budget) -> Budget:
            return Budget(budget.limit, budget.spent + 1)

        with ThreadPoolExecutor(8) as pool:
            for _ in range(40):
                pool.submit(state.update, "budget", spend)
        assert state.get("budget") == Budget(100, 40)

        # Or compare and set, by version.
        item = state.item("budget")
        assert item is not None
        state.set("budget", Budget(200, 40), if_version=item.version)
        try:
            state.set("budget", Budget(300, 40), if_version=item.version)
        except Conflict as conflict:
            print("refused:", conflict)

    try:
        sync.open(url)
    except KeyMissingError as error:
        print("refused:", error)


with tempfile.TemporaryDirectory() as place:
    main(Path(place))
