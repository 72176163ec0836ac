"""The fleet of examples/daemon.py, killed three times: nothing is lost, doubled or stuck."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from store_kit import Place

from holdfast import sync
from holdfast.sync.runtime import Entities, Events, Queue, Requests

DAEMON = Path(__file__).parents[2] / "examples" / "daemon.py"


@pytest.mark.spec("S61", "S66", "S121", "S13")
def test_a_fleet_that_is_killed_three_times_comes_to_its_end(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    url = f"sqlite:{tmp_path / 'daemon.db'}"
    words = [sys.executable, str(DAEMON), url]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            words, env=place.environment(), cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )

    for pause in (0.9, 0.5, 0.1):
        daemon = start()
        assert daemon.stdout is not None
        if pause < 0.9:  # killed at work, not only while it begins
            assert daemon.stdout.readline() in ("ready\n", "")
        time.sleep(pause)
        daemon.kill()
        daemon.communicate(timeout=60)
    daemon = start()
    told = daemon.communicate(timeout=100)[0]
    assert daemon.returncode == 0
    assert told.endswith("20 agents, 60 tasks done, 20 observations\n")
    with sync.open(url) as store:
        assert store.verify().ok
        entities = Entities(store.custom("fleet"))
        assert entities.count(group_by="type") == {"agent": 20, "observation_subscription": 20}
        for one in entities.relationships():
            assert entities.exists(one.from_id)
            assert entities.exists(one.to_id)
        for n in range(20):
            name = f"agent-{n:02}"
            done = store.session(name).get("done")
            assert done == [f"{name}-task-{m}" for m in range(3)], "each once, in order"
        assert Requests(store, print).sessions() == [], "nothing is stuck"
        names = sorted(f"agent-{n:02}" for n in range(20))
        assert sorted(Queue(store.custom("fleet"), "done").items()) == names, "each once"
        begun = Events(store).query("task:begun", limit=None)
        assert {one.data["task"] for one in begun} <= {
            f"agent-{n:02}-task-{m}" for n in range(20) for m in range(3)
        }
    place.close()


@pytest.mark.parametrize("call", ["self.done.push", "self.entities.update"])
def test_a_fleet_killed_between_two_commits_announces_each_agent_once(
    tmp_path: Path, call: str
) -> None:
    place = Place("sqlite", tmp_path, sealed=False)
    url, line = f"sqlite:{tmp_path / 'daemon.db'}", f"await {call}(entity"
    kill = "__import__('os').kill(__import__('os').getpid(), 9)"
    text = DAEMON.read_text()
    assert text.count(line) == 1
    for code, wanted in ((text.replace(line, f"{kill}; {line}"), -9), (text, 0)):
        told = subprocess.run(
            [sys.executable, "-c", code, url],
            env=place.environment(),
            cwd=tmp_path,
            capture_output=True,
            timeout=100,
        )
        assert told.returncode == wanted, told.stderr
    with sync.open(url) as store:
        names = [f"agent-{n:02}" for n in range(20)]
        assert sorted(Queue(store.custom("fleet"), "done").items()) == names
    place.close()
