"""`holdfast revert`."""

from __future__ import annotations

import pytest
from cli_kit import Cli

from holdfast import sync


@pytest.fixture
def run(cli: Cli) -> str:
    """A store with what a run did in two scopes, and a key that somebody changed since."""
    with sync.open("sqlite:holdfast.db") as store:
        first, second = store.agent("7"), store.agent("8")
        first.set("plan", {"goal": "ship", "steps": ["a"]})
        with store.acting("bot", correlation="run-42"):
            first.set("plan", {"goal": "ship", "steps": ["a", "b"]})
            first.set("taken", 1)
            second.set("k", 1)
        with store.acting("ann"):
            first.set("taken", 2)
    return "agent:7"


def test_revert(cli: Cli, run: str) -> None:
    dry = cli(f"revert {run} --correlation run-42 --dry-run --json").json
    assert (dry["done"], dry["entry"], dry["dry_run"]) == (["plan"], None, True)
    assert dry["diff"]["changes"][0]["path"] == "plan.steps[1]"
    assert dry["left"][0]["key"] == "taken"
    assert dry["left"][0]["entry"]["cause"]["actor"] == "ann"
    shown = cli(f"revert {run} --correlation run-42 --dry-run")
    assert '- plan.steps[1]: "b"' in shown.out
    assert "left alone: taken: it was changed since, at entry 4 by ann" in shown.out

    done = cli(f"revert {run} --correlation run-42 --yes --reason 'a bad turn'")
    lines = done.out.splitlines()
    assert lines[:2] == ["agent:7: 1 key went back, main@5", "  plan"]
    assert lines[-1] == "to undo it: holdfast revert agent:7 --entry 5"
    assert cli(f"key get {run} plan --json").json["value"]["steps"] == ["a"]
    assert "a bad turn" in cli(f"log {run} --limit 1").out
    assert cli(f"revert {run} --entry 5 --yes --json").json["entry"] == 6
    assert cli(f"key get {run} plan --json").json["value"]["steps"] == ["a", "b"]
    assert cli(f"revert {run} --entry 2 --entry 5 --entry 6 --yes --json").json["done"] == ["plan"]


def test_revert_by_actor_and_who_acts(cli: Cli, run: str) -> None:
    assert cli(f"--actor judge revert {run} --actor ann --yes --json").json["done"] == ["taken"]
    entry = cli(f"log {run} --limit 1 --json").json["entries"][0]
    assert entry["cause"]["actor"] == "judge"
    assert entry["cause"]["reason"] == "revert of actor ann"


def test_revert_in_all_scopes(cli: Cli, run: str) -> None:
    done = cli("revert --correlation run-42 --yes --json").json["scopes"]
    assert [(one["scope"], one["done"]) for one in done] == [
        ("agent:7", ["plan"]),
        ("agent:8", ["k"]),
    ]
    again = cli("revert --correlation run-42 --json").json["scopes"]
    assert [one["entry"] for one in again] == [None, None], "nothing to do, nothing to ask"


def test_revert_asks(cli: Cli, run: str) -> None:
    refused = cli(f"revert {run} --correlation run-42")
    assert refused.code == 2
    assert "1 key of agent:7 would go back: add --yes" in refused.err
    assert cli(f"log {run} --limit 1 --json").json["entries"][0]["entry"] == 4


def test_what_revert_refuses(cli: Cli, run: str) -> None:
    for words in ("", "--actor a --correlation b", "--entry 0", "--entry x"):
        assert cli(f"revert {run} {words}").code == 2, words
    assert cli("revert --actor bot --yes").code == 2
    assert cli("revert --correlation run-42 --timeline trial --yes").code == 2
    for words in ("--correlation nobody", "--entry 99", "--actor nobody"):
        assert cli(f"revert {run} {words} --yes").code == 4, words
    assert cli("revert agent:none --actor bot --yes").code == 4
    error = cli(f"revert {run} --correlation nobody --json").error
    assert error["error"] == "PointNotFoundError"


def test_texts_speak_of_this_program_and_not_of_functions(cli: Cli, run: str) -> None:
    with sync.open("sqlite:holdfast.db") as store, store.change() as both:
        both["agent:7"].set("shared", 1)
        both["agent:8"].set("shared", 1)
    told = [
        cli(f"revert {run} --correlation nobody --yes").err,
        cli(f"revert {run} --entry 5 --dry-run").out,
    ]
    assert "`holdfast log` shows causes" in told[0]
    assert "made together with agent:8" in told[1]
    for text in told:
        assert "()" not in text, text
        assert "store." not in text, text
        assert '["steps"' not in text, text


def test_undo_takes_the_newest_change_back_and_again(cli: Cli, run: str) -> None:
    before = cli(f"show {run} --json").json["state"]
    cli(f"key set {run} plan null")
    assert "1 key went back, main@" in cli(f"undo {run} --reason 'a slip'").out
    assert cli(f"show {run} --json").json["state"] == before
    assert "a slip" in cli(f"log {run} --limit 1").out
    assert cli(f"undo {run} --json").json["done"] == ["plan"]
    assert cli(f"key get {run} plan --json").json["value"] is None


def test_undo_passes_over_what_features_note(cli: Cli, run: str) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        with sync.agents.Effects(store.agent("7")).once("mail", id="1") as effect:
            if effect.due:
                effect.result = "sent"
        store.agent("7").checkpoint("kept")
    assert cli(f"undo {run}").out.splitlines()[1] == "  taken"
    assert cli(f"key get {run} taken --json").json["value"] == 1
    assert cli("agent effects 7 --all --json").json["effects"][0]["status"] == "done"


def test_revert_of_a_restore_names_what_to_restore(cli: Cli, run: str) -> None:
    done = cli(f"restore {run} 1 --json").json
    left = cli(f"revert {run} --entry {done['entry']} --yes").out
    assert f"restore entry {done['entry'] - 1}" in left
    assert done["backup"] == f"main@{done['entry'] - 1}"
