"""Background hooks of processes that are killed: nothing is lost, and of two one goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from store_kit import Place

PROGRAM = """
import os, signal, sys
from holdfast import sync
from holdfast.storage import open_storage
from holdfast.storage.wrappers import Counting
from holdfast.store.history.handle import StoreHandle
from holdfast.store.open import open_core
from holdfast.sync.hooks import Hooks

url, key, signer, path, kill, after = sys.argv[1:]
kill, goal, events = int(kill), 12, 0


class Killing(Counting):
    def commit(self, batch):
        self.number = getattr(self, "number", 0) + (after != "told")
        if self.number == kill and after == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(batch)
        if self.number >= kill > 0:
            os.kill(os.getpid(), signal.SIGKILL)


storage = Killing(open_storage(url, durability="normal"))
options = {"key": key or None, "signer": signer, "durability": "normal"}
store = sync.Store(StoreHandle(open_core(url, storage=storage, **options)))
file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
hooks = Hooks(store)


@hooks.background("n", batch_size=3)
def tell(event, context):
    global events
    events += 1
    if after == "told" and events == kill:  # in the middle of a batch: it is told of it again
        os.kill(os.getpid(), signal.SIGKILL)
    os.write(file, f"{event.new}\\n".encode())


state = store.agent("a")
while (number := state.get("n", -1) + 1) < goal:
    state.set("n", number)
hooks.stop()
store.close()
print("ended")
"""


def run(place: Place, path: Path, kill: int, after: str) -> subprocess.CompletedProcess[str]:
    arguments = [place.url, place.key or "", place.signer, str(path), str(kill), after]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=place.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.spec("L128", "L129")
@pytest.mark.parametrize("after", ["before", "after", "told"])
def test_killed_at_any_commit_every_change_is_told_at_least_once(
    tmp_path: Path, after: str
) -> None:
    place, path = Place("sqlite", tmp_path, sealed=after == "before"), tmp_path / "told"
    place.open().close()
    kills = 0
    for kill in (3, 5, 8, 6, 4, 9):
        done = run(place, path, kill, after)
        kills += done.returncode == -signal.SIGKILL
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    done = run(place, path, 0, after)
    assert "ended" in done.stdout, done.stderr
    told = [int(line) for line in path.read_text().split()]
    assert kills >= 3
    assert set(told) == set(range(12)), told
    firsts = list(dict.fromkeys(told))
    assert firsts == sorted(firsts), "in order, but for what is told again"
