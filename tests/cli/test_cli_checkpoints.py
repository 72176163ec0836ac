"""Checkpoints by what is known of them, restores in part and elsewhere, recovery: by command."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Cli

from holdfast import sync
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    with sync.open(url) as store:
        state = store.agent("7")
        for number in range(3):
            with state.change() as change:
                change.set("plan", number)
                change.set("memory/a", f"{number}" * 300)
            state.checkpoint(f"c{number}", type="routine" if number == 1 else "manual", tags=["t"])
    return url


def test_made_and_found_by_what_is_known(cli: Cli, url: str) -> None:
    made = cli(
        f"--store {url} checkpoint create agent:7 safe --trigger deploy --priority high --json"
    ).json
    assert made["metadata"] == {"trigger": "deploy", "priority": "high"}
    assert cli(f"--store {url} checkpoint create agent:7 x --priority urgent").code == 2

    def names(options: str) -> list[str]:
        found = cli(f"--store {url} checkpoint list agent:7 {options} --json").json
        return [one["name"] for one in found["checkpoints"]]

    assert names("") == ["safe", "c2", "c1", "c0"]
    assert names("--type routine") == ["c1"]
    assert names("--trigger deploy") == ["safe"]
    assert names("--before c1") == ["c0"]
    assert names("--tag t --limit 2") == ["c2", "c1"]
    assert names("--at 2020-01-01") == []
    assert names("--valid --name c0") == ["c0"]
    assert cli(f"--store {url} checkpoint list agent:7 --type weekly").code == 2


def test_all_that_is_known(cli: Cli, url: str) -> None:
    found = cli(f"--store {url} checkpoint show agent:7 c1 --all --json").json
    assert (found["parent"], found["children"]) == ("main@2", ["main@6"])
    assert (found["keys"], found["integrity"]["valid"]) == (2, True)
    assert found["compression"]["records"] == {"lz4": 1}
    out = cli(f"--store {url} checkpoint show agent:7 c1 --all").out
    assert "parent: main@2" in out
    assert "valid: yes" in out


def test_a_group(cli: Cli, url: str) -> None:
    assert cli(f"--store {url} checkpoint create agent:7 both --also agent:8").code == 4
    assert cli(f"--store {url} key set agent:8 k 1").code == 0
    made = cli(f"--store {url} checkpoint create agent:7 both --also agent:8 --json").json
    assert [one["scope"] for one in made["checkpoints"]] == ["agent:7", "agent:8"]
    out = cli(f"--store {url} checkpoint create agent:7 both --also agent:8").out
    assert "agent:8 main@3" in out


def test_restored_in_part_and_elsewhere(cli: Cli, url: str) -> None:
    dry = cli(f"--store {url} restore agent:7 c0 --only plan --dry-run").out
    assert "~ plan: 2 → 0" in dry
    assert "memory" not in dry
    done = cli(f"--store {url} restore agent:7 c0 --only plan --json").json
    assert (done["point"], done["backup"]) == ("main@2", "main@7")
    assert cli(f"--store {url} restore agent:7 --type routine --prefix memory/").code == 0
    again = cli(f"--store {url} restore agent:7 --type routine --prefix memory/").out
    assert "nothing differs from main@4" in again
    moved = cli(f"--store {url} restore agent:8 c1 --from agent:7").out
    assert "agent:8: restored agent:7 main@4, 2 keys" in moved
    with sync.open(url) as store:
        assert store.agent("7").get_many(["plan", "memory/a"]) == {"plan": 0, "memory/a": "1" * 300}
        assert store.agent("8").get("plan") == 1
    for wrong in ("", "c0 --type routine", "--tag none"):
        assert cli(f"--store {url} restore agent:7 {wrong}").code in (2, 4)


def test_held_and_confirmed(cli: Cli, url: str) -> None:
    backup = cli(f"--store {url} restore agent:7 c0 --json").json["backup"]
    with sync.open(url) as store:
        state = store.agent("7")
        with (
            pytest.raises(KeyError),
            sync.checkpoints.Checkpoints(state).operation("deploy", on_error="keep") as running,
        ):
            state.set("plan", "half")
            raise KeyError
    found = cli(f"--store {url} checkpoint why agent:7 --json").json["why"]
    assert {(one["point"], one["reason"]) for one in found} >= {
        (running.checkpoint.id, "operation"),
        (backup, "restore"),
    }
    assert "`holdfast checkpoint confirm`" in cli(f"--store {url} checkpoint why agent:7").out
    assert cli(f"--store {url} checkpoint confirm agent:7 {running.checkpoint.id}").code == 4
    assert cli(f"--store {url} checkpoint confirm agent:7 {backup}").code == 0
    out = cli(f"--store {url} checkpoint finish agent:7 {running.checkpoint.id} --how revert").out
    assert "1 key went back" in out
    found = cli(f"--store {url} checkpoint why agent:7 --json").json["why"]
    assert {one["reason"] for one in found}.isdisjoint({"operation", "restore"})


def test_recovered(cli: Cli, url: str) -> None:
    storage = open_storage(url, durability="normal")
    found = [one for one in storage.scan(b"E", b"F") if one[0][:1] == b"E"]
    key, row = found[4]
    storage.commit(Batch(drops=[key]))
    storage.commit(Batch(puts=[(key, row[:-1] + bytes([row[-1] ^ 1]))]))
    storage.close()
    done = cli(f"--store {url} recover agent:7 --strategy newest_valid --json").json
    assert done["status"] == "succeeded"
    assert done["restored_from"] == "main@4"


def test_what_a_checkpoint_rests_on_is_named_with_what_to_do(cli: Cli, url: str) -> None:
    with sync.open(url) as store:
        tools = store.agent("tools")
        tools.set("k", 1)
        sync.checkpoints.Checkpoints(store.agent("7")).create("resting", depends_on=[tools])
        store.delete(tools.scope)
    refused = cli(f"--store {url} restore agent:7 resting")
    assert refused.code != 0
    assert "--dependencies ignore" in refused.err
    assert cli(f"--store {url} restore agent:7 resting --dependencies ignore").code == 0
