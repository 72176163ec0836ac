"""`holdfast merge`."""

from __future__ import annotations

import pytest
from cli_kit import Cli

from holdfast import sync


@pytest.fixture
def two(cli: Cli) -> str:
    """A store with a fork that changed what main changed, too."""
    with sync.open("sqlite:holdfast.db") as store:
        main = store.agent("7")
        main.set("plan", {"goal": "ship", "step": 1})
        main.set("free", 1)
        trial = main.fork("what-if")
        with store.acting("ann"):
            main.set("plan", {"goal": "win", "step": 1})
        with store.acting("bob"):
            trial.set("plan", {"goal": "sink", "step": 2})
            trial.delete("free")
    return "agent:7"


def test_conflicts_are_shown_and_nothing_is_merged(cli: Cli, two: str) -> None:
    refused = cli(f"merge {two} what-if")
    assert refused.code == 5
    lines = refused.out.splitlines()
    assert lines[0] == "plan.goal: was 'ship'"
    assert lines[1].startswith("  ours: 'win'  (main@3 by ann, ")
    assert lines[2].startswith("  theirs: 'sink'  (what-if@2 by bob, ")
    assert "Give --strategy" in refused.err
    told = cli(f"merge {two} what-if --json")
    assert (told.code, told.error["error"]) == (5, "MergeConflictError")
    (conflict,) = told.json["conflicts"]
    assert (conflict["path"], conflict["base"], conflict["theirs"]) == ("plan.goal", "ship", "sink")
    assert conflict["their_entry"]["cause"]["actor"] == "bob"
    assert cli(f"log {two} --limit 1 --json").json["entries"][0]["entry"] == 3


def test_a_dry_run(cli: Cli, two: str) -> None:
    dry = cli(f"merge {two} what-if --dry-run")
    assert dry.code == 5
    assert "~ plan.step: 1 → 2" in dry.out
    assert "- free: 1" in dry.out
    decided = cli(f"merge {two} what-if --dry-run --strategy theirs --json")
    assert decided.code == 0
    assert decided.json["keys"] == ["free", "plan"]
    assert decided.json["base"] == ["main@2"]
    assert decided.json["entry"] is None
    assert cli(f"log {two} --limit 1 --json").json["entries"][0]["entry"] == 3


def test_merging(cli: Cli, two: str) -> None:
    done = cli(f"--actor judge merge {two} what-if --strategy theirs --reason 'it is better'")
    lines = done.out.splitlines()
    assert lines[0] == "agent:7: 2 keys changed by merging what-if@3 into main@4"
    assert lines[1:3] == ["  free", "  plan"]
    assert lines[-1] == "to undo it: holdfast restore agent:7 main@3"
    assert cli(f"key get {two} plan --json").json["value"] == {"goal": "sink", "step": 2}
    entry = cli(f"log {two} --kind merge --json").json["entries"][0]
    assert (entry["cause"]["actor"], entry["cause"]["reason"]) == ("judge", "it is better")
    again = cli(f"merge {two} what-if")
    assert again.out == "agent:7: nothing of what-if@3 is new to main\n"
    # And the other way: the other timeline gets what main has.
    back = cli(f"merge {two} main --timeline what-if --json").json
    assert (back["timeline"], back["entry"], back["base"]) == ("what-if", None, ["what-if@3"])
    assert cli("verify").code == 0


def test_what_merge_refuses(cli: Cli, two: str) -> None:
    assert cli(f"merge {two} nothing").code == 4
    assert cli(f"merge {two} what-if@99").code == 4
    assert cli("merge agent:none what-if").code == 4
    assert cli(f"merge {two} what-if --strategy mine").code == 2
    assert cli(f"merge {two}").code == 2
