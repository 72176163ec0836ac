"""`holdfast query`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cli_kit import Cli

from holdfast import Lookup, sync


@pytest.fixture
def tasks(cli: Cli) -> str:
    """A scope with a lookup."""
    with sync.open("sqlite:holdfast.db") as store:
        state = store.agent("7")
        for number, status in enumerate(["open", "done", "open", 1, "1", None]):
            state.set(f"tasks/{number}", {"status": status, "due": number})
        state.set("tasks/9", {"status": datetime(2026, 11, 15, tzinfo=UTC), "due": 1.5})
        terms = {"status": "status", "due": "due"}
        state.declare(Lookup("by_status", prefix="tasks/", terms=terms))
        state.set("tasks/0", {"status": "shut", "due": 0})
    return "agent:7 by_status"


def keys(cli: Cli, words: str) -> list[str]:
    return [one["key"] for one in cli(f"query {words} --json").json["found"]]


def test_query(cli: Cli, tasks: str) -> None:
    assert cli(f"query {tasks} status=open").out == 'tasks/2\t{"status": "open", "due": 2}\n'
    assert keys(cli, f"{tasks} status=1") == ["tasks/3"]
    assert keys(cli, f"""{tasks} 'status="1"'""") == ["tasks/4"]
    assert keys(cli, f"{tasks} status=null") == ["tasks/5"]
    assert keys(cli, f"{tasks} status^=o") == ["tasks/2"]
    assert keys(cli, f"{tasks} 'due>=1' 'due<3'") == ["tasks/1", "tasks/2"]
    assert keys(cli, f"{tasks} 'due>1.0'") == ["tasks/9"]
    time = '{"$time": "2026-11-15T01:00:00+01:00"}'
    assert keys(cli, f"{tasks} 'status={time}'") == ["tasks/9"]


def test_query_of_the_past(cli: Cli, tasks: str) -> None:
    with sync.open("sqlite:holdfast.db") as store:
        before = store.agent("7")._handle.place()[2] - 1
    assert keys(cli, f"{tasks} status=open --at {before} --order -due") == ["tasks/2", "tasks/0"]
    assert "declares no lookup" in cli(f"query {tasks} --at 6").err


def test_pages(cli: Cli, tasks: str) -> None:
    first = cli(f"query {tasks} --limit 2 --json").json
    assert len(first["found"]) == 2
    told = cli(f"query {tasks} --limit 2")
    assert f"--after {first['after']}" in told.err
    second = cli(f"query {tasks} --limit 99 --after {first['after']} --json").json
    assert second["after"] is None
    assert len(first["found"]) + len(second["found"]) == 7


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("agent:7 nothing", "by_status"),
        ("agent:7 by_status colour=1", "status, due"),
        ("agent:7 by_status status", "no condition"),
        ("agent:7 by_status due=1 due=2", "two conditions"),
        ("agent:7 by_status due=1 'due<2'", "two conditions"),
        ("agent:7 by_status --order due", "sorts by 'status' first"),
        ("agent:7 by_status 'status=[1]'", "no term"),
    ],
)
def test_slips_are_told(cli: Cli, tasks: str, words: str, told: str) -> None:
    done = cli(f"query {words}")
    assert done.code != 0
    assert told in done.err
