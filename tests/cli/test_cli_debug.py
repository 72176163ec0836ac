"""The console for going through the past: moving, looking, forking; from a pipe and by options."""

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


def test_find_goes_to_entries_by_key_kind_and_who(cli: Cli, agent: str) -> None:
    found = documents(cli, "rfind talk", "rfind tester", "find checkpoint")
    assert [one["entry"] for one in found] == [2, 1, 3]
    missing = console(cli, "find nowhere", "where")
    assert missing.code == 4
    assert missing.out == ""


def test_blame_is_of_the_state_here(cli: Cli, agent: str) -> None:
    now, then = documents(cli, "blame plan step", "goto 3", "blame plan step")[::2]
    assert [(one["value"], one["entry"]) for one in now["parts"]] == [(2, 4)]
    assert [(one["value"], one["entry"]) for one in then["parts"]] == [(1, 1)]
    assert "main@4 tester: plan.step: 2" in console(cli, "blame plan step").out
    assert "has no key 'talk' there" in console(cli, "goto 1", "blame talk").err


def test_a_fork_begins_where_one_stands(cli: Cli, agent: str) -> None:
    (_, made) = documents(cli, "goto safe", "fork trial")
    assert made == {"timeline": "trial", "start": "main@3"}
    with sync.open(STATE, read_only=True) as store:
        assert store.agent("7").on("trial").get("plan") == {"goal": "ship", "step": 1}
        assert store.agent("7")._handle.place()[2] == 4
    assert cli("debug", "agent:7", "--timeline", "trial", "-c", "where").code == 0


def test_the_rest_of_the_commands(cli: Cli, agent: str) -> None:
    out = console(cli, "keys", "log 2", "entry", "checkpoints", "diff 1", "help", "# nothing").out
    for text in ("plan\ntalk\n", "4: ", "set plan", "main@3 manual safe", "replay [POINT]"):
        assert text in out
    told = documents(cli, "keys t", "log 1", "entry", "checkpoints", "diff 1", "help goto")
    assert told[0] == {"keys": ["talk"]}
    assert [one["entry"] for one in told[1]["entries"]] == [4]
    assert told[2]["cause"]["actor"] == "tester"
    assert told[3]["checkpoints"][0]["name"] == "safe"
    assert told[5]["help"] == [
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
        ("fork", 2),
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
    from holdfast.cli.debug import Console
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
    found = documents(cli, "goto 1", "next", "find checkpoint", "rfind plan", "log")
    assert [one["entry"] for one in found[:4]] == [1, 2, 3, 1]
    assert "entry 2" in found[1]["damage"]
    assert console(cli, "goto 2", "entry").code == 6


def test_sensitive_values_are_hidden(cli: Cli, agent: str) -> None:
    cli("key set agent:7 api_token '\"s3cr3t\"'")
    lines = ("show", "diff", "blame api_token")
    assert "s3cr3t" not in console(cli, *lines).out
    assert "s3cr3t" in console(cli, *lines, more=("--reveal",)).out


def test_show_works_beside_a_lookup_and_shows_nothing_of_it(cli: Cli, agent: str) -> None:
    with sync.open(STATE) as store:
        state = store.agent("7")
        state.declare(Lookup("by_pin", terms={"pin": "pin"}))
        state.set("card", {"pin": "1234"})
        state.set("password", {"pin": "HUSH"})
    shown = console(cli, "show", "keys")
    assert shown.code == 0, shown.err
    listed = cli("key", "list", "agent:7", "--prefix", "$")
    every = cli("show", "agent:7", "--prefix", "$")
    for one in (shown, listed, every):
        assert "$terms" not in one.out
        assert "HUSH" not in one.out
