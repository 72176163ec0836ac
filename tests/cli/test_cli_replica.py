"""`holdfast replica`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from cli_kit import Cli

from holdfast import sync


def test_a_replica_is_made_followed_and_promoted(cli: Cli, tmp_path: Path) -> None:
    url = f"{tmp_path}/copy.db"
    cli("init")
    cli("key set agent:7 plan 1")
    assert cli(f"replica status {url}").code == 1
    made = cli(f"replica sync {url} --json")
    assert made.code == 0
    assert made.json["replicas"][0]["made"]
    cli("key set agent:7 plan 2")
    assert "1 entries behind" in cli(f"replica status {url}").out
    assert cli(f"--store {url} key get agent:7 plan").out == "1\n"
    assert "rows written" in cli(f"replica sync {url}").out
    assert cli(f"replica status {url} --json").json["replicas"][0]["entries"] == 0
    assert cli(f"--store {url} verify").code == 0
    refused = cli(f"--store {url} key set agent:7 plan 9")
    assert refused.code == 2
    assert "replica" in refused.err
    assert "store of its own" in cli(f"replica promote {url}").out
    assert cli(f"--store {url} key set agent:7 plan 3").code == 0
    split = cli(f"replica sync {url}")
    assert split.code == 1
    assert "ReplicaSplitError" in split.out
    assert cli(f"replica sync {url} --full --remake {url}").code == 0
    assert cli(f"--store {url} key get agent:7 plan").out == "2\n"


def test_a_process_follows_until_it_is_ended(tmp_path: Path) -> None:
    with sync.open(f"sqlite:{tmp_path}/a.db") as store:
        store.agent("7").set("plan", 1)
        words = ["--store", f"{tmp_path}/a.db", "--json", "replica", "run", f"{tmp_path}/b.db"]
        words = [sys.executable, "-m", "holdfast", *words, "--interval", "0.05"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
            try:
                assert follower.stdout is not None
                assert json.loads(follower.stdout.readline())["made"]
                store.agent("7").set("plan", 2)
                assert json.loads(follower.stdout.readline())["rows"] > 0
                follower.send_signal(signal.SIGTERM)
                assert follower.wait(60) == 0
            finally:
                follower.kill()
    with sync.open(f"sqlite:{tmp_path}/b.db", read_only=True) as copy:
        assert copy.agent("7").get("plan") == 2
