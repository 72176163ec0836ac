"""`holdfast hook`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli

from holdfast import sync
from holdfast.hooks import HookContext, Skipped
from holdfast.hooks.hook_events import Changed
from holdfast.sync.hooks import Hooks

PROGRAM = """
from holdfast.hooks import Cancel, Skipped

def judge(event, context):
    if context.params.get("limit", 10) < event.new:
        raise ValueError("too much")
    return Skipped("even") if event.new % 2 == 0 else None

async def waits(event, context):
    return judge(event, context)

def front(event, context):
    return Cancel("no")
"""


@pytest.fixture
def told(cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with a hook that was told of five changes, and is two behind."""
    (here / "bots.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(here)
    with sync.open("sqlite:holdfast.db") as store:
        hooks = Hooks(store)

        @hooks.background("k", name="judge")
        def judge(event: Changed, context: HookContext) -> Any:
            if event.new == 3:
                raise ValueError("three")
            return Skipped("even") if event.new % 2 == 0 else None

        for number in range(5):
            store.agent("7").set("k", number)
        hooks.stop()
        with store.agent("7").change() as change:
            change.set("other", 1)
        store.agent("7").set("k", 5)


@pytest.mark.usefixtures("told")
def test_list_and_metrics_tell_of_hooks_of_other_processes(cli: Cli) -> None:
    [row] = cli("hook list --json").json["hooks"]
    assert (row["name"], row["told"]) == ("judge", 5)
    assert row["results"] == {"Continue": 1, "Skipped": 3, "failed": 1}
    assert row["behind"] >= 2
    assert cli("hook list").out == f"judge\t{row['behind']}\t5\t1\n"
    told = cli("hook metrics").out.rstrip("\n").split("\t")
    assert told == ["judge", "5", "1", "Continue 1, Skipped 3, failed 1", "ValueError: three"]


@pytest.mark.usefixtures("told")
@pytest.mark.spec("L77", "L79")
def test_replay_calls_a_function_of_yours_and_compares(cli: Cli) -> None:
    done = cli("hook replay judge --from bots:judge --keys k --scope agent:*")
    assert done.out.splitlines() == [
        "judge (simulate): 6 events, 1 differ, 0 failed (Skipped 3, Continue 3)",
        "  agent:7 main@4 k: failed then, Continue now",
    ]
    words = "hook replay judge --from bots:waits --keys k --mode modified --param limit=3 --json"
    report = cli(words).json
    results = [one["result"] for one in report["results"]]
    assert results == ["Skipped", "Continue", "Skipped", "Continue", "failed", "failed"]
    done = cli("hook replay x --from bots:front --front --json").json
    assert {one["result"] for one in done["results"]} == {"Cancel"}
    assert len(done["results"]) == 7
    since = "hook replay x --from bots:front --front --since 2100-01-01T00:00:00+00:00 --json"
    assert cli(since).json["results"] == []


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    "words",
    [
        *("judge", "judge --from bots", "judge --from bots:missing", "judge --from bots:PROGRAM"),
        *("judge --from bots:judge --param limit", "judge --from bots:judge --param limit=x"),
        *("judge --from bots:judge --since yesterday", "judge --from bots:judge --mode fast"),
        "judge --from bots:judge --mode exact --param limit=1",
    ],
)
def test_what_cannot_be_meant_is_refused(cli: Cli, words: str) -> None:
    refused = cli(f"hook replay {words}")
    assert (refused.code, refused.out) == (2, "")


def test_a_store_without_hooks_has_none(cli: Cli, agent: str) -> None:
    assert cli("hook list --json").json == {"hooks": []}
    assert cli("hook metrics").out == ""
