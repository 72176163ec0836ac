"""The console for going through the past: moving and looking; from a pipe and by options."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_kit import Cli

from holdfast import Lookup, sync
from holdfast.storage import open_storage
from holdfast.storage.contract import Batch

STATE = "sqlite:holdfast.db"


def console(cli: Cli, *lines: str, more: tuple[str, ...] = ()) -> Any:
    """Lines through a pipe."""
    return cli("debug", "agent:7", *more, stdin="\n".join(lines).encode())


def documents(cli: Cli, *lines: str) -> list[Any]:
    out = console(cli, *lines, more=("--json",)).out
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.spec("M86")
def test_stepping_shows_the_state_at_each_entry_and_what_changed_it(cli: Cli, agent: str) -> None:
    where, empty, first, shown, diff = documents(
        cli, "where", "goto first", "next", "show plan", "diff"
    )
    assert (where["entry"], where["head"]) == (4, 4)
    assert empty["what"] is None
    assert first["what"]["operations"] == [{"kind": "set", "key": "plan"}]
    assert shown["state"] == {"plan": {"goal": "ship", "step": 1}}
    assert [one["kind"] for one in diff["changes"]] == ["added"]
    out = console(cli, "back", "w", "b 2", "show").out.splitlines()
    assert out[0].startswith("main@3 of 4: ")
    assert "checkpoint by tester" in out[0]
    assert json.loads("\n".join(out[3:])) == {"plan": {"goal": "ship", "step": 1}}


def test_replay_walks_forward_and_shows_what_each_entry_did(cli: Cli, agent: str) -> None:
    out = console(cli, "goto 1", "replay safe", "replay").out
    assert [line.split(" of ")[0] for line in out.splitlines() if line.startswith("main@")] == [
        f"main@{number}" for number in (1, 2, 3, 4)
    ]
    assert "~ plan.step: 1 → 2" in out
    assert console(cli, "replay 2").code == 4
    [there] = documents(cli, "replay")
    assert there["entry"] == there["head"]


def test_the_rest_of_the_commands(cli: Cli, agent: str) -> None:
    out = console(cli, "entry", "diff 1", "help", "# nothing").out
    for text in ("set plan", "replay [POINT]"):
        assert text in out
    told = documents(cli, "entry", "diff 1", "help goto")
    assert told[0]["cause"]["actor"] == "tester"
    assert told[2]["help"] == [
        "goto POINT: an entry's number, a time, a checkpoint (or its id); or first, or last"
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("bogus", 2),
        ("next 0", 2),
        ("next", 4),
        ("back 9", 4),
        ("goto", 2),
        ("show nothing", 4),
        ("show 'open", 2),
        ("help bogus", 2),
        ("goto nowhere", 4),
    ],
)
def test_what_is_wrong_ends_a_script_with_its_code(
    cli: Cli, agent: str, line: str, code: int
) -> None:
    done = console(cli, "where", line, "where")
    assert done.code == code
    assert len(done.out.splitlines()) == 1
    assert done.err.startswith("error: ")


def test_at_a_terminal_an_error_is_said_and_the_console_goes_on(cli: Cli, agent: str) -> None:
    from holdfast.cli.commands.history import Console
    from holdfast.cli.session import Session

    with sync.open(STATE, read_only=True) as store:
        made = Console(Session(), store.agent("7"))
        assert made.onecmd("bogus") is False
        assert made.onecmd("back") is False
        assert made.prompt == "agent:7 main@3> "
        assert made.onecmd("EOF") is True


def test_a_damaged_entry_is_shown_as_such_and_passed_over(cli: Cli, agent: str) -> None:
    storage = open_storage(STATE, durability="normal")
    key, row = next(one for one in storage.scan(b"E", b"F") if one[0][-1] == 2)
    storage.commit(Batch(drops=[key]))
    storage.commit(Batch(puts=[(key, row[:-3] + bytes([row[-3] ^ 1]) + row[-2:])]))
    storage.close()
    found = documents(cli, "goto 1", "next", "next")
    assert [one["entry"] for one in found] == [1, 2, 3]
    assert "entry 2" in found[1]["damage"]
    assert console(cli, "goto 2", "entry").code == 6


def test_sensitive_values_are_hidden(cli: Cli, agent: str) -> None:
    cli("key set agent:7 api_token '\"s3cr3t\"'")
    lines = ("show", "diff")
    assert "s3cr3t" not in console(cli, *lines).out
    assert "s3cr3t" in console(cli, *lines, more=("--reveal",)).out


def test_show_works_beside_a_lookup_and_shows_nothing_of_it(cli: Cli, agent: str) -> None:
    with sync.open(STATE) as store:
        state = store.agent("7")
        state.declare(Lookup("by_pin", terms={"pin": "pin"}))
        state.set("card", {"pin": "1234"})
        state.set("password", {"pin": "HUSH"})
    shown = console(cli, "show")
    assert shown.code == 0, shown.err
    listed = cli("key", "list", "agent:7", "--prefix", "$")
    every = cli("show", "agent:7", "--prefix", "$")
    for one in (shown, listed, every):
        assert "$terms" not in one.out
        assert "HUSH" not in one.out
